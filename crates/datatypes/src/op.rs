//! Reduction operators: which reduce which types, and what a user's must do.

use crate::arithmetic;
use crate::datatype::Element;
use crate::{Basic, Datatype, Error, ErrorKind, Kind, Result};
use std::fmt;
use std::sync::Arc;

macro_rules! operators {
    ($($(#[$doc:meta])* $variant:ident = $handle:literal, $name:literal;)*) => {
        /// A predefined operator. Its number is its handle in the ABI.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum Operator { $($(#[$doc])* $variant = $handle,)* }

        impl Operator {
            /// All of them, in the order of their handles.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// As C writes it, `"MPI_SUM"`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

operators! {
    /// `MPI_SUM`; integers wrap.
    Sum = 0x21, "MPI_SUM";
    /// `MPI_MIN`.
    Min = 0x22, "MPI_MIN";
    /// `MPI_MAX`.
    Max = 0x23, "MPI_MAX";
    /// `MPI_PROD`; integers wrap.
    Prod = 0x24, "MPI_PROD";
    /// `MPI_BAND`.
    Band = 0x28, "MPI_BAND";
    /// `MPI_BOR`.
    Bor = 0x29, "MPI_BOR";
    /// `MPI_BXOR`.
    Bxor = 0x2a, "MPI_BXOR";
    /// `MPI_LAND`; true is 1.
    Land = 0x30, "MPI_LAND";
    /// `MPI_LOR`; true is 1.
    Lor = 0x31, "MPI_LOR";
    /// `MPI_LXOR`; true is 1.
    Lxor = 0x32, "MPI_LXOR";
    /// `MPI_MINLOC`; of equal values the lesser index.
    Minloc = 0x38, "MPI_MINLOC";
    /// `MPI_MAXLOC`; of equal values the lesser index.
    Maxloc = 0x39, "MPI_MAXLOC";
    /// `MPI_REPLACE`, of accumulating operations: the left one.
    Replace = 0x3c, "MPI_REPLACE";
    /// `MPI_NO_OP`, of accumulating operations: the right one.
    NoOp = 0x3d, "MPI_NO_OP";
}

impl Operator {
    /// The value of its handle in the ABI.
    pub const fn abi(self) -> u16 {
        self as u16
    }

    /// The one with this handle.
    pub fn from_abi(handle: u16) -> Option<Self> {
        Self::ALL.iter().copied().find(|operator| operator.abi() == handle)
    }

    /// Whether the standard lets it reduce elements of a kind.
    fn reduces(self, kind: Kind) -> bool {
        let number =
            matches!(kind, Kind::CSigned | Kind::CUnsigned | Kind::FInteger | Kind::Multi | Kind::Real);
        match self {
            Self::Min | Self::Max => number,
            Self::Sum | Self::Prod => number || kind == Kind::Complex,
            Self::Band | Self::Bor | Self::Bxor => (number && kind != Kind::Real) || kind == Kind::Byte,
            Self::Land | Self::Lor | Self::Lxor => {
                matches!(kind, Kind::CSigned | Kind::CUnsigned | Kind::Multi | Kind::Logical)
            }
            Self::Minloc | Self::Maxloc => kind == Kind::Pair,
            Self::Replace | Self::NoOp => true,
        }
    }
}

/// A user's operator.
pub trait UserFunction: Send + Sync {
    /// `right` becomes `left op right`, element by element. Both slices hold `count` elements as they lie in memory: they begin at
    /// `datatype.span(count).start` from the address that a C function gets, and end where the span ends.
    ///
    /// # Errors
    /// What the function says is wrong.
    fn apply(&self, left: &[u8], right: &mut [u8], count: i64, datatype: &Datatype) -> Result<()>;
}

/// An operator that reduces elements of two buffers into one.
#[derive(Clone)]
pub enum Op {
    /// One of the standard's.
    Predefined(Operator),
    /// A user's.
    User {
        /// What it does.
        function: Arc<dyn UserFunction>,
        /// Whether operands may change places.
        commutative: bool,
    },
}

impl From<Operator> for Op {
    fn from(operator: Operator) -> Self {
        Self::Predefined(operator)
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Predefined(operator) => f.write_str(operator.name()),
            Self::User { commutative: true, .. } => f.write_str("a user's commutative operator"),
            Self::User { commutative: false, .. } => f.write_str("a user's operator"),
        }
    }
}

impl Op {
    /// Whether operands may change places: all predefined ones do, but for the two that take one side.
    pub fn is_commutative(&self) -> bool {
        match self {
            Self::Predefined(operator) => !matches!(operator, Operator::Replace | Operator::NoOp),
            Self::User { commutative, .. } => *commutative,
        }
    }

    /// Whether this reduces elements of a type; to be asked before anything moves.
    ///
    /// # Errors
    /// Of kind [`Op`](ErrorKind::Op) if not.
    pub fn check(&self, datatype: &Datatype) -> Result<()> {
        let Self::Predefined(operator) = self else { return Ok(()) };
        let legal = match datatype.element() {
            Some(Element::Single(basic)) => operator.reduces(basic.kind()),
            Some(Element::Pair(..)) => operator.reduces(Kind::Pair),
            None => false,
        };
        if !legal {
            let text = format!("op: {} does not reduce {datatype:?}", operator.name());
            return Err(Error::new(ErrorKind::Op, text));
        }
        Ok(())
    }

    /// `right` becomes `left op right`, element by element in their order, so that the bits of the result depend on the operands
    /// alone. Slices are as [`UserFunction::apply`] has them, and need no alignment.
    ///
    /// # Errors
    /// What [`Op::check`] refuses, and an illegal count or slices that are too short: before a byte has changed. Else what a
    /// user's function says.
    pub fn apply(&self, left: &[u8], right: &mut [u8], count: i64, datatype: &Datatype) -> Result<()> {
        self.check(datatype)?;
        let span = datatype.span(count)?;
        let length = (span.end - span.start) as usize;
        if left.len() < length || right.len() < length {
            let (short, text) = (left.len().min(right.len()), "bytes for elements that span");
            return Err(Error::new(ErrorKind::Truncate, format!("inoutbuf: {short} {text} {length}")));
        }
        let (left, right) = (&left[..length], &mut right[..length]);
        match self {
            Self::User { function, .. } => return function.apply(left, right, count, datatype),
            Self::Predefined(Operator::NoOp) => {}
            Self::Predefined(Operator::Replace) => right.copy_from_slice(left),
            Self::Predefined(operator) => match datatype.element() {
                Some(Element::Single(basic)) => arithmetic::reduce(*operator, basic, left, right),
                Some(Element::Pair(value, index)) => {
                    reduce_pairs(*operator, (value, index), datatype.extent() as usize, left, right);
                }
                None => {}
            },
        }
        Ok(())
    }
}

/// The lesser or the greater value wins, with its index; of equal values the lesser index. The last pair may lack its padding.
fn reduce_pairs(
    operator: Operator,
    (value, index): (Basic, Basic),
    extent: usize,
    left: &[u8],
    right: &mut [u8],
) {
    use std::cmp::Ordering;
    let wins = if operator == Operator::Minloc { Ordering::Less } else { Ordering::Greater };
    let at = crate::datatype::index_offset(value, index) as usize;
    let (value_end, index_end) = (value.size() as usize, at + index.size() as usize);
    for (left, right) in left.chunks(extent).zip(right.chunks_mut(extent)) {
        let order = arithmetic::compare(value, &left[..value_end], &right[..value_end]);
        let lesser = || {
            arithmetic::compare(index, &left[at..index_end], &right[at..index_end]) == Some(Ordering::Less)
        };
        if order == Some(wins) || (order == Some(Ordering::Equal) && lesser()) {
            right[..value_end].copy_from_slice(&left[..value_end]);
            right[at..index_end].copy_from_slice(&left[at..index_end]);
        }
    }
}
