//! Known answers: external32 byte by byte, operators on every type they reduce, and the types they refuse.

use datatypes::{Basic, BasicKind, Datatype, Error, ErrorKind, Memory, Op, Operator, Result, UserFunction};
use std::sync::Arc;

struct Bytes(Vec<u8>);

impl Memory for Bytes {
    fn load(&self, offset: i64, into: &mut [u8]) {
        into.copy_from_slice(&self.0[offset as usize..][..into.len()]);
    }

    fn store(&mut self, offset: i64, from: &[u8]) {
        self.0[offset as usize..][..from.len()].copy_from_slice(from);
    }
}

/// Packs one element of these bytes, and checks that unpacking restores it.
fn external(basic: Basic, bytes: &[u8]) -> Result<Vec<u8>> {
    let datatype = Datatype::from(basic);
    let mut into = Vec::new();
    datatype.pack_external32(1, &Bytes(bytes.to_vec()), &mut into)?;
    let mut back = Bytes(vec![0; bytes.len()]);
    datatype.unpack_external32(1, &into, &mut back)?;
    assert_eq!(back.0, bytes, "{basic:?}");
    Ok(into)
}

/// C's `long double` 1.5 on this machine.
fn long_double() -> Vec<u8> {
    let bits: u128 = if cfg!(target_arch = "x86_64") { 0x3fff_c000_0000_0000_0000 } else { 0x3_fff8 << 108 };
    bits.to_ne_bytes().to_vec()
}

/// Nested arrays as numpy has them, of which mpi4py's tests make types: 2 times 3 elements of 12 integers at odd strides.
#[test]
fn a_part_of_a_type_counts_with_its_padding() {
    let inner = Datatype::hvector(3, 4, 25, &Basic::Int.into()).expect("a vector");
    assert_eq!((inner.true_extent(), inner.extent()), (66, 68));
    let outer = Datatype::hvector(2, 3, 273, &inner).expect("a vector");
    assert_eq!((outer.true_extent(), outer.extent()), (475, 480));
}

#[test]
fn external32_is_big_endian_with_the_sizes_of_the_standard() {
    assert_eq!(external(Basic::Int, &(-2_i32).to_ne_bytes()), Ok(vec![0xff, 0xff, 0xff, 0xfe]));
    assert_eq!(external(Basic::Long, &(-2_i64).to_ne_bytes()), Ok(vec![0xff, 0xff, 0xff, 0xfe]));
    assert_eq!(
        external(Basic::UnsignedLong, &0xffff_fffe_u64.to_ne_bytes()),
        Ok(vec![0xff, 0xff, 0xff, 0xfe])
    );
    assert_eq!(external(Basic::LongLong, &258_i64.to_ne_bytes()), Ok(vec![0, 0, 0, 0, 0, 0, 1, 2]));
    assert_eq!(external(Basic::Wchar, &0x20ac_u32.to_ne_bytes()), Ok(vec![0x20, 0xac]));
    assert_eq!(external(Basic::Double, &1.5_f64.to_ne_bytes()), Ok(vec![0x3f, 0xf8, 0, 0, 0, 0, 0, 0]));
    let quad = [&[0x3f, 0xff, 0x80][..], &[0; 13]].concat();
    assert_eq!(external(Basic::LongDouble, &long_double()), Ok(quad));
    let complex = [1.0_f32.to_ne_bytes(), (-2.0_f32).to_ne_bytes()].concat();
    assert_eq!(external(Basic::CFloatComplex, &complex), Ok(vec![0x3f, 0x80, 0, 0, 0xc0, 0, 0, 0]));
    assert_eq!(external(Basic::Integer16, &1_i128.to_ne_bytes()).map(|bytes| bytes[15]), Ok(1));
    // A pair has no padding in external32.
    let pair = [&7_i16.to_ne_bytes()[..], &[0, 0], &9_i32.to_ne_bytes()].concat();
    assert_eq!(external(Basic::ShortInt, &pair), Ok(vec![0, 7, 0, 0, 0, 9]));
}

#[test]
fn external32_refuses_values_that_do_not_fit() {
    for (basic, bytes) in [
        (Basic::Long, (1_i64 << 31).to_ne_bytes().to_vec()),
        (Basic::Long, (-(1_i64 << 31) - 1).to_ne_bytes().to_vec()),
        (Basic::UnsignedLong, (1_u64 << 32).to_ne_bytes().to_vec()),
        (Basic::Wchar, 0x1_0000_u32.to_ne_bytes().to_vec()),
    ] {
        assert_eq!(
            external(basic, &bytes).map_err(|error| error.kind),
            Err(ErrorKind::Conversion),
            "{basic:?}"
        );
    }
    let short = Datatype::from(Basic::Int).unpack_external32(2, &[0; 7], &mut Bytes(vec![0; 8]));
    assert_eq!(short.map_err(|error| error.kind), Err(ErrorKind::Truncate));
}

#[test]
fn external32_converts_runs_longer_than_a_chunk() {
    let values: Vec<i64> = (0..3000).map(|i| i * 7 - 9000).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
    let datatype = Datatype::from(Basic::Long);
    let mut into = Vec::new();
    datatype.pack_external32(3000, &Bytes(bytes.clone()), &mut into).expect("small numbers");
    let expected: Vec<u8> = values.iter().flat_map(|&value| (value as i32).to_be_bytes()).collect();
    assert_eq!(into, expected);
    let mut back = Bytes(vec![0; bytes.len()]);
    assert_eq!(datatype.unpack_external32(3000, &into, &mut back), Ok(12000));
    assert_eq!(back.0, bytes);
}

/// Applies an operator to bytes at an odd address.
fn apply(operator: Operator, basic: Basic, left: &[u8], right: &[u8]) -> Vec<u8> {
    let datatype = Datatype::from(basic);
    let count = (left.len() as i64 + datatype.extent() - 1) / datatype.extent();
    let left = [&[0xee], left].concat();
    let mut right = [&[0xee], right].concat();
    Op::from(operator).apply(&left[1..], &mut right[1..], count, &datatype).expect("legal");
    assert_eq!(right.remove(0), 0xee);
    right
}

macro_rules! check {
    ($type:ty, $basic:expr, $operator:ident, $left:expr, $right:expr, $result:expr) => {{
        let bytes =
            |values: &[$type]| values.iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<u8>>();
        let result = apply(Operator::$operator, $basic, &bytes(&$left), &bytes(&$right));
        assert_eq!(result, bytes(&$result), "{:?} of {:?}", Operator::$operator, $basic);
    }};
}

macro_rules! check_integers {
    ($($type:ty => $($basic:ident)*;)*) => {$($(
        let basic = Basic::$basic;
        check!($type, basic, Sum, [1, <$type>::MAX, 5], [2, 1, 6], [3, <$type>::MIN, 11]);
        check!($type, basic, Prod, [3, 2, 0], [4, 7, 9], [12, 14, 0]);
        check!($type, basic, Min, [3, <$type>::MIN, <$type>::MAX], [4, 7, 9], [3, <$type>::MIN, 9]);
        check!($type, basic, Max, [3, <$type>::MIN, <$type>::MAX], [4, 7, 9], [4, 7, <$type>::MAX]);
        check!($type, basic, Band, [6, 0, 1], [3, 1, 1], [2, 0, 1]);
        check!($type, basic, Bor, [6, 0, 1], [3, 1, 1], [7, 1, 1]);
        check!($type, basic, Bxor, [6, 0, 1], [3, 1, 1], [5, 1, 0]);
    )*)*};
}

#[test]
fn integers_of_every_width() {
    check_integers! {
        i8 => Int8 SignedChar Integer1;
        u8 => Uint8 UnsignedChar;
        i16 => Int16 Short Integer2;
        u16 => Uint16 UnsignedShort;
        i32 => Int32 Int Integer Integer4;
        u32 => Uint32 Unsigned;
        i64 => Int64 Long LongLong Integer8 Aint Count Offset;
        u64 => Uint64 UnsignedLong UnsignedLongLong;
        i128 => Integer16;
    }
    check!(u8, Basic::Byte, Bxor, [0xf0], [0xff], [0x0f]);
}

#[test]
fn truth_values() {
    for basic in [Basic::Int, Basic::Logical, Basic::Logical4, Basic::Unsigned] {
        check!(i32, basic, Land, [0, 5, 7, 0], [0, 0, 2, 3], [0, 0, 1, 0]);
        check!(i32, basic, Lor, [0, 5, 7, 0], [0, 0, 2, 3], [0, 1, 1, 1]);
        check!(i32, basic, Lxor, [0, 5, 7, 0], [0, 0, 2, 3], [0, 1, 0, 1]);
    }
    check!(u8, Basic::CBool, Lor, [0, 1], [0, 0], [0, 1]);
    check!(i128, Basic::Logical16, Land, [1 << 100], [1], [1]);
}

#[test]
fn floating_point() {
    for basic in [Basic::Float, Basic::Real, Basic::Real4] {
        check!(f32, basic, Sum, [1.5, 1e30], [2.0, 1e30], [3.5, 2e30]);
        check!(f32, basic, Prod, [1.5], [-2.0], [-3.0]);
    }
    for basic in [Basic::Double, Basic::DoublePrecision, Basic::Real8] {
        check!(f64, basic, Sum, [0.1], [0.2], [0.1 + 0.2]);
        check!(f64, basic, Min, [0.1, -1.0], [0.2, -2.0], [0.1, -2.0]);
        check!(f64, basic, Max, [0.1, -1.0], [0.2, -2.0], [0.2, -1.0]);
    }
    // (1 + 2i)(3 + 4i) = -5 + 10i
    check!(f32, Basic::Complex, Prod, [1.0, 2.0], [3.0, 4.0], [-5.0, 10.0]);
    check!(f64, Basic::CDoubleComplex, Prod, [1.0, 2.0], [3.0, 4.0], [-5.0, 10.0]);
    check!(f64, Basic::Complex16, Sum, [1.0, 2.0], [3.0, 4.0], [4.0, 6.0]);
}

#[test]
fn floating_point_in_software() {
    let [one, two, three, six] = [0x3c00_u16, 0x4000, 0x4200, 0x4600];
    check!(u16, Basic::Real2, Sum, [one, 0x7bff], [two, 0x7bff], [three, 0x7c00]);
    check!(u16, Basic::Real2, Prod, [two], [three], [six]);
    check!(u16, Basic::Real2, Max, [two], [three], [three]);
    // (1 + 2i)(3 + i) = 1 + 7i
    check!(u16, Basic::Complex4, Prod, [one, two], [three, one], [one, 0x4700]);
    let quad = |value: u128| value << 112;
    check!(u128, Basic::Real16, Sum, [quad(0x3fff)], [quad(0x3fff)], [quad(0x4000)]);
    check!(u128, Basic::Real16, Min, [quad(0x3fff)], [quad(0xbfff)], [quad(0xbfff)]);
    if cfg!(target_arch = "x86_64") {
        let [one, two, three] =
            [0x3fff_8000_0000_0000_0000_u128, 0x4000_8000_0000_0000_0000, 0x4000_c000_0000_0000_0000];
        check!(u128, Basic::LongDouble, Sum, [one], [two], [three]);
        check!(u128, Basic::LongDouble, Prod, [three], [one], [three]);
        // 1 + 2^-63 is the next long double after 1; 2^-64 more is lost.
        check!(u128, Basic::LongDouble, Sum, [one], [0x3fc0_8000_0000_0000_0000], [one | 1]);
        check!(u128, Basic::LongDouble, Sum, [one], [0x3fbf_8000_0000_0000_0000], [one]);
    }
}

#[test]
fn pairs_keep_the_lesser_index_of_equal_values() {
    let pairs = |list: &[(f64, i32)]| {
        let bytes =
            |&(value, index): &(f64, i32)| [&value.to_ne_bytes()[..], &index.to_ne_bytes(), &[9; 4]].concat();
        list.iter().flat_map(bytes).collect::<Vec<u8>>()
    };
    let (left, right) = (pairs(&[(1.0, 5), (2.0, 6), (3.0, 1)]), pairs(&[(2.0, 1), (1.0, 2), (3.0, 0)]));
    let least = apply(Operator::Minloc, Basic::DoubleInt, &left, &right);
    assert_eq!(least, pairs(&[(1.0, 5), (1.0, 2), (3.0, 0)]));
    let greatest = apply(Operator::Maxloc, Basic::DoubleInt, &left, &right);
    assert_eq!(greatest, pairs(&[(2.0, 1), (2.0, 6), (3.0, 0)]));
    // The last pair may lack its padding.
    let most = apply(Operator::Maxloc, Basic::DoubleInt, &left[..44], &right[..44]);
    assert_eq!(most, pairs(&[(2.0, 1), (2.0, 6), (3.0, 0)])[..44]);
    check!(i32, Basic::TwoInt, Minloc, [3, 7, -1, 2], [3, 4, 0, 1], [3, 4, -1, 2]);
    check!(f32, Basic::TwoReal, Maxloc, [3.0, 7.0], [3.0, 4.0], [3.0, 4.0]);
    let made = Datatype::value_index(&Basic::Uint64.into(), &Basic::Int16.into())
        .expect("predefined")
        .expect("a pair");
    let pair = |value: u64, index: i16| [&value.to_ne_bytes()[..], &index.to_ne_bytes(), &[0; 6]].concat();
    let mut result = pair(u64::MAX, 1);
    Op::from(Operator::Minloc).apply(&pair(1 << 63, 2), &mut result, 1, &made).expect("legal");
    assert_eq!(result, pair(1 << 63, 2));
}

#[test]
fn accumulate_operators_select_an_operand() {
    check!(u8, Basic::Char, Replace, [1], [2], [1]);
    check!(u8, Basic::Char, NoOp, [1], [2], [2]);
    for operator in [Operator::Replace, Operator::NoOp] {
        let (op, int) = (Op::from(operator), Basic::Int.into());
        assert_eq!(op.check_reduction(&int).map_err(|error| error.kind), Err(ErrorKind::Op));
        assert!(op.check(&int).is_ok() && Op::from(Operator::Sum).check_reduction(&int).is_ok());
    }
}

#[test]
fn chars_are_reduced_as_signed_ones() {
    check!(i8, Basic::Char, Max, [-1, 5], [1, -5], [1, 5]);
    check!(i8, Basic::Char, Sum, [100], [100], [-56]);
}

/// The kinds that each operator reduces, by the standard's table.
fn legal(operator: Operator) -> &'static [BasicKind] {
    use BasicKind::{Byte, CSigned, CUnsigned, Complex, FInteger, Logical, Multi, Pair, Real};
    match operator {
        Operator::Min | Operator::Max => &[CSigned, CUnsigned, FInteger, Multi, Real],
        Operator::Sum | Operator::Prod => &[CSigned, CUnsigned, FInteger, Multi, Real, Complex],
        Operator::Band | Operator::Bor | Operator::Bxor => &[CSigned, CUnsigned, FInteger, Multi, Byte],
        Operator::Land | Operator::Lor | Operator::Lxor => &[CSigned, CUnsigned, Multi, Logical],
        Operator::Minloc | Operator::Maxloc => &[Pair],
        Operator::Replace | Operator::NoOp => &[],
    }
}

#[test]
fn illegal_combinations_change_nothing() {
    for &operator in &Operator::ALL[..12] {
        for &basic in Basic::ALL {
            let (datatype, op) = (Datatype::from(basic), Op::from(operator));
            // Not in the standard, but supported by other implementations.
            let kind = if basic == Basic::Char { BasicKind::CSigned } else { basic.kind() };
            let expected = legal(operator).contains(&kind);
            assert_eq!(op.check(&datatype).is_ok(), expected, "{operator:?} of {basic:?}");
            let mut right = [0x3c; 64];
            let applied = op.apply(&[0x3d; 64], &mut right, 1, &datatype);
            assert_eq!(applied.is_ok(), expected);
            assert!(expected || right == [0x3c; 64]);
        }
        assert_eq!(Operator::from_abi(operator.abi()), Some(operator));
        let derived = Datatype::contiguous(1, &Basic::Int.into()).expect("one");
        assert_eq!(Op::from(operator).check(&derived).map_err(|error| error.kind), Err(ErrorKind::Op));
        let short = Op::from(Operator::Sum).apply(&[0; 4], &mut [0; 4], 2, &Basic::Int.into());
        assert_eq!(short.map_err(|error| error.kind), Err(ErrorKind::Truncate));
    }
    assert!(Op::from(Operator::Sum).check(&Datatype::duplicate(&Basic::Int.into())).is_ok());
}

/// `right = 10 * left + right`, digit by digit; refuses more than nine elements.
struct Digits;

impl UserFunction for Digits {
    fn apply(&self, left: &[u8], right: &mut [u8], count: i64, datatype: &Datatype) -> Result<()> {
        if count > 9 {
            return Err(Error::new(ErrorKind::Other(77), "too many"));
        }
        assert_eq!(
            (left.len() as i64, right.len() as i64),
            (count * datatype.extent(), count * datatype.extent())
        );
        right.iter_mut().zip(left).for_each(|(right, left)| *right += 10 * left);
        Ok(())
    }
}

#[test]
fn user_defined_operators_accept_any_type() {
    let op = Op::User { function: Arc::new(Digits), commutative: false };
    assert!(!op.is_commutative());
    let derived = Datatype::contiguous(2, &Basic::Byte.into()).expect("two");
    let mut right = [1, 2, 3, 4, 9];
    op.apply(&[5, 6, 7, 8], &mut right, 2, &derived).expect("two");
    assert_eq!(right, [51, 62, 73, 84, 9]);
    let refused = op.apply(&[0; 20], &mut [0; 20], 10, &derived);
    assert_eq!(refused.map_err(|error| error.kind), Err(ErrorKind::Other(77)));
}
