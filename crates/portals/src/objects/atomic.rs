//! [`Op`] and [`Datatype`]: the atomic operations and their element types, and how they change bytes, aligned
//! or not (Portals 4.3, section 3.15).

use std::cmp::Ordering;

use datatypes::{Basic, Operator};

macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$of:meta])* $variant:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[$of])* $variant = $number,)* }

        impl $name {
            /// All values, by number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The value with this number.
            #[must_use]
            pub fn from_number(number: u8) -> Option<Self> {
                Self::ALL.get(usize::from(number)).copied()
            }
        }
    };
}

numbered! {
    /// An atomic operation (`PTL_MIN` and others).
    Op {
        /// The minimum.
        Min = 0,
        /// The maximum.
        Max = 1,
        /// The sum; integers wrap.
        Sum = 2,
        /// The product; integers wrap.
        Prod = 3,
        /// Logical or.
        Lor = 4,
        /// Logical and.
        Land = 5,
        /// Bitwise or.
        Bor = 6,
        /// Bitwise and.
        Band = 7,
        /// Logical exclusive or.
        Lxor = 8,
        /// Bitwise exclusive or.
        Bxor = 9,
        /// The message's value.
        Swap = 10,
        /// The message's value, if the operand equals the target's.
        Cswap = 11,
        /// The message's value, if the operand does not equal the target's.
        CswapNe = 12,
        /// The message's value, if the operand is at most the target's.
        CswapLe = 13,
        /// The message's value, if the operand is less than the target's.
        CswapLt = 14,
        /// The message's value, if the operand is at least the target's.
        CswapGe = 15,
        /// The message's value, if the operand is greater than the target's.
        CswapGt = 16,
        /// The message's bits where the operand has ones; the target's elsewhere.
        Mswap = 17,
    }
}

numbered! {
    /// The type of the elements of an atomic operation (`PTL_INT8_T` and others).
    Datatype {
        /// 8 bits, signed.
        Int8 = 0,
        /// 8 bits, unsigned.
        Uint8 = 1,
        /// 16 bits, signed.
        Int16 = 2,
        /// 16 bits, unsigned.
        Uint16 = 3,
        /// 32 bits, signed.
        Int32 = 4,
        /// 32 bits, unsigned.
        Uint32 = 5,
        /// `float`.
        Float = 6,
        /// 64 bits, signed.
        Int64 = 7,
        /// 64 bits, unsigned.
        Uint64 = 8,
        /// `double`.
        Double = 9,
        /// `float complex`.
        FloatComplex = 10,
        /// `double complex`.
        DoubleComplex = 11,
        /// `long double`.
        LongDouble = 12,
        /// `long double complex`.
        LongDoubleComplex = 13,
    }
}

/// Bytes of the largest element.
pub const ELEMENT_MAX: usize = 32;

/// The operand of a conditional or masked swap: its first bytes hold one element.
pub type Operand = [u8; ELEMENT_MAX];

impl Datatype {
    const fn basic(self) -> Basic {
        match self {
            Self::Int8 => Basic::Int8,
            Self::Uint8 => Basic::Uint8,
            Self::Int16 => Basic::Int16,
            Self::Uint16 => Basic::Uint16,
            Self::Int32 => Basic::Int32,
            Self::Uint32 => Basic::Uint32,
            Self::Float => Basic::Float,
            Self::Int64 => Basic::Int64,
            Self::Uint64 => Basic::Uint64,
            Self::Double => Basic::Double,
            Self::FloatComplex => Basic::CFloatComplex,
            Self::DoubleComplex => Basic::CDoubleComplex,
            Self::LongDouble => Basic::LongDouble,
            Self::LongDoubleComplex => Basic::CLongDoubleComplex,
        }
    }

    /// Bytes of an element.
    #[must_use]
    pub const fn size(self) -> usize {
        self.basic().size() as usize
    }

    /// The type of the parts of a complex number, and how many parts an element has.
    const fn parts(self) -> (Basic, usize) {
        match self {
            Self::FloatComplex => (Basic::Float, 2),
            Self::DoubleComplex => (Basic::Double, 2),
            Self::LongDoubleComplex => (Basic::LongDouble, 2),
            other => (other.basic(), 1),
        }
    }

    const fn is_complex(self) -> bool {
        self.parts().1 == 2
    }

    const fn is_integer(self) -> bool {
        !self.is_complex() && !matches!(self, Self::Float | Self::Double | Self::LongDouble)
    }
}

impl Op {
    const fn operator(self) -> Option<Operator> {
        Some(match self {
            Self::Min => Operator::Min,
            Self::Max => Operator::Max,
            Self::Sum => Operator::Sum,
            Self::Prod => Operator::Prod,
            Self::Lor => Operator::Lor,
            Self::Land => Operator::Land,
            Self::Bor => Operator::Bor,
            Self::Band => Operator::Band,
            Self::Lxor => Operator::Lxor,
            Self::Bxor => Operator::Bxor,
            _ => return None,
        })
    }

    /// Whether it is one of the operations of `PtlSwap`.
    #[must_use]
    pub const fn is_swap(self) -> bool {
        self.operator().is_none()
    }

    /// Whether it has an operand, and so applies to a single element.
    #[must_use]
    pub const fn has_operand(self) -> bool {
        self.is_swap() && !matches!(self, Self::Swap)
    }

    /// Whether it is defined on elements of a type: complex numbers have no order, and only integers have
    /// bits.
    #[must_use]
    pub const fn takes(self, datatype: Datatype) -> bool {
        match self {
            Self::Sum | Self::Prod | Self::Swap | Self::Cswap | Self::CswapNe => true,
            Self::Min | Self::Max | Self::CswapLe | Self::CswapLt | Self::CswapGe | Self::CswapGt => {
                !datatype.is_complex()
            }
            Self::Lor | Self::Land | Self::Bor | Self::Band | Self::Lxor | Self::Bxor | Self::Mswap => {
                datatype.is_integer()
            }
        }
    }

    /// Applies the operation: combines each whole element of `target` with that of `incoming` and stores the
    /// result in `target`. Does nothing if [`Op::takes`] rejects the type. Operations without an operand
    /// ignore `operand`.
    ///
    /// # Panics
    /// If `incoming` is shorter than the whole elements of `target`.
    pub fn apply(self, datatype: Datatype, operand: &Operand, incoming: &[u8], target: &mut [u8]) {
        let whole = target.len() - target.len() % datatype.size();
        let (incoming, target) = (&incoming[..whole], &mut target[..whole]);
        if !self.takes(datatype) {
            return;
        }
        if let Some(operator) = self.operator() {
            return datatype.basic().reduce(operator, incoming, target);
        }
        if self == Self::Swap {
            return target.copy_from_slice(incoming);
        }
        let size = datatype.size();
        for (incoming, target) in incoming.chunks_exact(size).zip(target.chunks_exact_mut(size)) {
            if self == Self::Mswap {
                let masked = target.iter_mut().zip(incoming).zip(operand);
                masked.for_each(|((target, incoming), mask)| *target = (incoming & mask) | (*target & !mask));
            } else if self.holds(datatype, &operand[..size], target) {
                target.copy_from_slice(incoming);
            }
        }
    }

    /// Whether the condition of a conditional swap holds. A NaN only satisfies inequality.
    fn holds(self, datatype: Datatype, operand: &[u8], target: &[u8]) -> bool {
        let (basic, count) = datatype.parts();
        let size = datatype.size() / count;
        let mut orders =
            operand.chunks_exact(size).zip(target.chunks_exact(size)).map(|(a, b)| basic.compare(a, b));
        match self {
            Self::Cswap => orders.all(|order| order == Some(Ordering::Equal)),
            Self::CswapNe => orders.any(|order| order != Some(Ordering::Equal)),
            _ => orders.all(|order| {
                order.is_some_and(|order| match self {
                    Self::CswapLe => order.is_le(),
                    Self::CswapLt => order.is_lt(),
                    Self::CswapGe => order.is_ge(),
                    _ => order.is_gt(),
                })
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operand(bytes: &[u8]) -> Operand {
        let mut operand = [0; ELEMENT_MAX];
        operand[..bytes.len()].copy_from_slice(bytes);
        operand
    }

    fn on_i32(op: Op, by: i32, incoming: i32, target: i32) -> i32 {
        let mut bytes = target.to_ne_bytes();
        op.apply(Datatype::Int32, &operand(&by.to_ne_bytes()), &incoming.to_ne_bytes(), &mut bytes);
        i32::from_ne_bytes(bytes)
    }

    fn on_f64(op: Op, by: f64, incoming: f64, target: f64) -> f64 {
        let mut bytes = target.to_ne_bytes();
        op.apply(Datatype::Double, &operand(&by.to_ne_bytes()), &incoming.to_ne_bytes(), &mut bytes);
        f64::from_ne_bytes(bytes)
    }

    #[test]
    fn numbers_match_the_reference() {
        assert!(Op::ALL.iter().enumerate().all(|(n, op)| *op as usize == n) && Op::ALL.len() == 18);
        assert!(
            Datatype::ALL.iter().enumerate().all(|(n, of)| *of as usize == n) && Datatype::ALL.len() == 14
        );
        assert_eq!((Op::from_number(18), Datatype::from_number(14)), (None, None));
        let sizes: Vec<usize> = Datatype::ALL.iter().map(|datatype| datatype.size()).collect();
        assert_eq!(sizes[..12], [1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 8, 16]);
        assert!(sizes.iter().all(|size| *size <= ELEMENT_MAX));
    }

    /// Goal: each operator computes what its name says. Method: compare with the C semantics on pairs of all
    /// signs and orders.
    #[test]
    fn operators_match_c_semantics() {
        let values = [-7, -1, 0, 1, 3, 7, i32::MAX, i32::MIN];
        for (incoming, target) in values.iter().flat_map(|a| values.iter().map(move |b| (*a, *b))) {
            let want = [
                incoming.min(target),
                incoming.max(target),
                incoming.wrapping_add(target),
                incoming.wrapping_mul(target),
                i32::from(incoming != 0 || target != 0),
                i32::from(incoming != 0 && target != 0),
                incoming | target,
                incoming & target,
                i32::from((incoming != 0) != (target != 0)),
                incoming ^ target,
                incoming,
            ];
            for (op, want) in Op::ALL.iter().zip(want) {
                assert_eq!(on_i32(*op, 5, incoming, target), want, "{op:?} of {incoming} and {target}");
            }
            for by in values {
                let holds =
                    [by == target, by != target, by <= target, by < target, by >= target, by > target];
                for (op, holds) in Op::ALL[11..17].iter().zip(holds) {
                    let want = if holds { incoming } else { target };
                    assert_eq!(
                        on_i32(*op, by, incoming, target),
                        want,
                        "{op:?} by {by} of {incoming} and {target}"
                    );
                }
                assert_eq!(on_i32(Op::Mswap, by, incoming, target), (incoming & by) | (target & !by));
            }
        }
    }

    #[test]
    fn floats_and_complex_numbers_are_compared_as_numbers() {
        assert_eq!(on_f64(Op::Cswap, 0.0, 5.0, -0.0), 5.0, "zeros are equal");
        assert_eq!(on_f64(Op::Cswap, f64::NAN, 5.0, 1.0), 1.0);
        assert_eq!(on_f64(Op::CswapNe, f64::NAN, 5.0, 1.0), 5.0);
        assert_eq!(on_f64(Op::CswapGe, f64::NAN, 5.0, 1.0), 1.0);
        assert_eq!(on_f64(Op::CswapLt, -1.0, 5.0, 1.0), 5.0);
        let complex = |re: f32, im: f32| [re.to_ne_bytes(), im.to_ne_bytes()].concat();
        for (by, want) in [(complex(1.0, 2.0), complex(8.0, 9.0)), (complex(1.0, 3.0), complex(1.0, 2.0))] {
            let mut target = complex(1.0, 2.0);
            Op::Cswap.apply(Datatype::FloatComplex, &operand(&by), &complex(8.0, 9.0), &mut target);
            assert_eq!(target, want);
        }
        let mut product = complex(0.0, 1.0);
        Op::Prod.apply(Datatype::FloatComplex, &[0; 32], &complex(0.0, 1.0), &mut product);
        assert_eq!(product, complex(-1.0, 0.0));
    }

    #[test]
    fn only_whole_elements_change() {
        let mut target = [1, 0, 1, 0, 1];
        Op::Sum.apply(Datatype::Uint16, &[0; 32], &[1, 0, 2, 0, 3], &mut target);
        let want = [1_u16 + 1, 1 + 2].map(u16::to_ne_bytes).concat();
        assert_eq!((&target[..4], target[4]), (&want[..], 1));
    }

    /// Goal: an operation leaves types that it does not accept unchanged, and accepts those of the standard's
    /// table.
    #[test]
    fn unsupported_types_are_left_unchanged() {
        for (op, datatype) in Op::ALL.iter().flat_map(|op| Datatype::ALL.iter().map(move |of| (*op, *of))) {
            let (incoming, mut target) = ([0x55; 32], [0x33; 32]);
            op.apply(datatype, &[0xff; 32], &incoming[..datatype.size()], &mut target[..datatype.size()]);
            assert!(op.takes(datatype) || target == [0x33; 32], "{op:?} of {datatype:?}");
        }
        let taken = |op: Op| Datatype::ALL.iter().filter(|datatype| op.takes(**datatype)).count();
        assert_eq!((taken(Op::Sum), taken(Op::Min), taken(Op::Bor), taken(Op::Mswap)), (14, 11, 8, 8));
    }
}
