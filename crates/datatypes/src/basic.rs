//! The predefined datatypes of MPI's standard ABI, with their kinds, sizes, and sizes in external32.

use crate::float::Format;
use crate::{Error, Result};

/// The meaning of an element's bytes. MPI groups its datatypes this way to define which operators reduce them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BasicKind {
    /// C's signed integers.
    CSigned,
    /// C's unsigned integers.
    CUnsigned,
    /// Fortran's integers.
    FInteger,
    /// Addresses, counts and offsets: signed, of any language.
    Multi,
    /// Floating point.
    Real,
    /// Two floating point numbers: the real part, then the imaginary one.
    Complex,
    /// Truth values: 0 is false.
    Logical,
    /// Uninterpreted bytes.
    Byte,
    /// Text. No operator reduces it, except for `MPI_CHAR`: see [`Basic::is_reduced_by`].
    Character,
    /// The output of `MPI_Pack`.
    Packed,
    /// A value and an index, laid out as in a C struct.
    Pair,
}

/// The class argument of `MPI_Type_match_size`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TypeClass {
    /// `MPI_TYPECLASS_INTEGER`.
    Integer,
    /// `MPI_TYPECLASS_REAL`.
    Real,
    /// `MPI_TYPECLASS_COMPLEX`.
    Complex,
}

macro_rules! basics {
    ($($(#[$doc:meta])* $variant:ident = $handle:literal, $name:literal, $kind:ident, $size:literal, $external:literal;)*) => {
        /// A predefined datatype. Its number is its handle in the ABI.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[repr(u16)]
        pub enum Basic { $($(#[$doc])* $variant = $handle,)* }

        impl Basic {
            /// All predefined datatypes, in the order of their handles.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name from `MPI_Type_get_name`, such as `"MPI_INT"`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// The meaning of its bytes.
            pub const fn kind(self) -> BasicKind {
                match self { $(Self::$variant => BasicKind::$kind,)* }
            }

            /// Bytes of data; for a pair, without padding.
            pub const fn size(self) -> u32 {
                match self { $(Self::$variant => $size,)* }
            }

            /// Bytes in external32, by the standard's table: a long has 4 there, independent of its size here.
            pub const fn external_size(self) -> u32 {
                match self { $(Self::$variant => $external,)* }
            }
        }
    };
}

// The standard's handles, then sizes here (LP64) and in external32.
basics! {
    /// `MPI_AINT`.
    Aint = 0x201, "MPI_AINT", Multi, 8, 8;
    /// `MPI_COUNT`.
    Count = 0x202, "MPI_COUNT", Multi, 8, 8;
    /// `MPI_OFFSET`.
    Offset = 0x203, "MPI_OFFSET", Multi, 8, 8;
    /// `MPI_PACKED`.
    Packed = 0x207, "MPI_PACKED", Packed, 1, 1;
    /// `MPI_SHORT`.
    Short = 0x208, "MPI_SHORT", CSigned, 2, 2;
    /// `MPI_INT`.
    Int = 0x209, "MPI_INT", CSigned, 4, 4;
    /// `MPI_LONG`.
    Long = 0x20a, "MPI_LONG", CSigned, 8, 4;
    /// `MPI_LONG_LONG`.
    LongLong = 0x20b, "MPI_LONG_LONG", CSigned, 8, 8;
    /// `MPI_UNSIGNED_SHORT`.
    UnsignedShort = 0x20c, "MPI_UNSIGNED_SHORT", CUnsigned, 2, 2;
    /// `MPI_UNSIGNED`.
    Unsigned = 0x20d, "MPI_UNSIGNED", CUnsigned, 4, 4;
    /// `MPI_UNSIGNED_LONG`.
    UnsignedLong = 0x20e, "MPI_UNSIGNED_LONG", CUnsigned, 8, 4;
    /// `MPI_UNSIGNED_LONG_LONG`.
    UnsignedLongLong = 0x20f, "MPI_UNSIGNED_LONG_LONG", CUnsigned, 8, 8;
    /// `MPI_FLOAT`.
    Float = 0x210, "MPI_FLOAT", Real, 4, 4;
    /// `MPI_C_FLOAT_COMPLEX`.
    CFloatComplex = 0x212, "MPI_C_FLOAT_COMPLEX", Complex, 8, 8;
    /// `MPI_CXX_FLOAT_COMPLEX`.
    CxxFloatComplex = 0x213, "MPI_CXX_FLOAT_COMPLEX", Complex, 8, 8;
    /// `MPI_DOUBLE`.
    Double = 0x214, "MPI_DOUBLE", Real, 8, 8;
    /// `MPI_C_DOUBLE_COMPLEX`.
    CDoubleComplex = 0x216, "MPI_C_DOUBLE_COMPLEX", Complex, 16, 16;
    /// `MPI_CXX_DOUBLE_COMPLEX`.
    CxxDoubleComplex = 0x217, "MPI_CXX_DOUBLE_COMPLEX", Complex, 16, 16;
    /// `MPI_LOGICAL`.
    Logical = 0x218, "MPI_LOGICAL", Logical, 4, 4;
    /// `MPI_INTEGER`.
    Integer = 0x219, "MPI_INTEGER", FInteger, 4, 4;
    /// `MPI_REAL`.
    Real = 0x21a, "MPI_REAL", Real, 4, 4;
    /// `MPI_COMPLEX`.
    Complex = 0x21b, "MPI_COMPLEX", Complex, 8, 8;
    /// `MPI_DOUBLE_PRECISION`.
    DoublePrecision = 0x21c, "MPI_DOUBLE_PRECISION", Real, 8, 8;
    /// `MPI_DOUBLE_COMPLEX`.
    DoubleComplex = 0x21d, "MPI_DOUBLE_COMPLEX", Complex, 16, 16;
    /// `MPI_CHARACTER`.
    Character = 0x21e, "MPI_CHARACTER", Character, 1, 1;
    /// `MPI_LONG_DOUBLE`.
    LongDouble = 0x220, "MPI_LONG_DOUBLE", Real, 16, 16;
    /// `MPI_C_LONG_DOUBLE_COMPLEX`.
    CLongDoubleComplex = 0x224, "MPI_C_LONG_DOUBLE_COMPLEX", Complex, 32, 32;
    /// `MPI_CXX_LONG_DOUBLE_COMPLEX`.
    CxxLongDoubleComplex = 0x225, "MPI_CXX_LONG_DOUBLE_COMPLEX", Complex, 32, 32;
    /// `MPI_FLOAT_INT`.
    FloatInt = 0x228, "MPI_FLOAT_INT", Pair, 8, 8;
    /// `MPI_DOUBLE_INT`.
    DoubleInt = 0x229, "MPI_DOUBLE_INT", Pair, 12, 12;
    /// `MPI_LONG_INT`.
    LongInt = 0x22a, "MPI_LONG_INT", Pair, 12, 8;
    /// `MPI_2INT`.
    TwoInt = 0x22b, "MPI_2INT", Pair, 8, 8;
    /// `MPI_SHORT_INT`.
    ShortInt = 0x22c, "MPI_SHORT_INT", Pair, 6, 6;
    /// `MPI_LONG_DOUBLE_INT`.
    LongDoubleInt = 0x22d, "MPI_LONG_DOUBLE_INT", Pair, 20, 20;
    /// `MPI_2REAL`.
    TwoReal = 0x230, "MPI_2REAL", Pair, 8, 8;
    /// `MPI_2DOUBLE_PRECISION`.
    TwoDoublePrecision = 0x231, "MPI_2DOUBLE_PRECISION", Pair, 16, 16;
    /// `MPI_2INTEGER`.
    TwoInteger = 0x232, "MPI_2INTEGER", Pair, 8, 8;
    /// `MPI_C_BOOL`.
    CBool = 0x238, "MPI_C_BOOL", Logical, 1, 1;
    /// `MPI_CXX_BOOL`.
    CxxBool = 0x239, "MPI_CXX_BOOL", Logical, 1, 1;
    /// `MPI_WCHAR`.
    Wchar = 0x23c, "MPI_WCHAR", Character, 4, 2;
    /// `MPI_INT8_T`.
    Int8 = 0x240, "MPI_INT8_T", CSigned, 1, 1;
    /// `MPI_UINT8_T`.
    Uint8 = 0x241, "MPI_UINT8_T", CUnsigned, 1, 1;
    /// `MPI_CHAR`.
    Char = 0x243, "MPI_CHAR", Character, 1, 1;
    /// `MPI_SIGNED_CHAR`.
    SignedChar = 0x244, "MPI_SIGNED_CHAR", CSigned, 1, 1;
    /// `MPI_UNSIGNED_CHAR`.
    UnsignedChar = 0x245, "MPI_UNSIGNED_CHAR", CUnsigned, 1, 1;
    /// `MPI_BYTE`.
    Byte = 0x247, "MPI_BYTE", Byte, 1, 1;
    /// `MPI_INT16_T`.
    Int16 = 0x248, "MPI_INT16_T", CSigned, 2, 2;
    /// `MPI_UINT16_T`.
    Uint16 = 0x249, "MPI_UINT16_T", CUnsigned, 2, 2;
    /// `MPI_INT32_T`.
    Int32 = 0x250, "MPI_INT32_T", CSigned, 4, 4;
    /// `MPI_UINT32_T`.
    Uint32 = 0x251, "MPI_UINT32_T", CUnsigned, 4, 4;
    /// `MPI_INT64_T`.
    Int64 = 0x258, "MPI_INT64_T", CSigned, 8, 8;
    /// `MPI_UINT64_T`.
    Uint64 = 0x259, "MPI_UINT64_T", CUnsigned, 8, 8;
    /// `MPI_LOGICAL1`.
    Logical1 = 0x2c0, "MPI_LOGICAL1", Logical, 1, 1;
    /// `MPI_INTEGER1`.
    Integer1 = 0x2c1, "MPI_INTEGER1", FInteger, 1, 1;
    /// `MPI_LOGICAL2`.
    Logical2 = 0x2c8, "MPI_LOGICAL2", Logical, 2, 2;
    /// `MPI_INTEGER2`.
    Integer2 = 0x2c9, "MPI_INTEGER2", FInteger, 2, 2;
    /// `MPI_REAL2`.
    Real2 = 0x2ca, "MPI_REAL2", Real, 2, 2;
    /// `MPI_LOGICAL4`.
    Logical4 = 0x2d0, "MPI_LOGICAL4", Logical, 4, 4;
    /// `MPI_INTEGER4`.
    Integer4 = 0x2d1, "MPI_INTEGER4", FInteger, 4, 4;
    /// `MPI_REAL4`.
    Real4 = 0x2d2, "MPI_REAL4", Real, 4, 4;
    /// `MPI_COMPLEX4`.
    Complex4 = 0x2d3, "MPI_COMPLEX4", Complex, 4, 4;
    /// `MPI_LOGICAL8`.
    Logical8 = 0x2d8, "MPI_LOGICAL8", Logical, 8, 8;
    /// `MPI_INTEGER8`.
    Integer8 = 0x2d9, "MPI_INTEGER8", FInteger, 8, 8;
    /// `MPI_REAL8`.
    Real8 = 0x2da, "MPI_REAL8", Real, 8, 8;
    /// `MPI_COMPLEX8`.
    Complex8 = 0x2db, "MPI_COMPLEX8", Complex, 8, 8;
    /// `MPI_LOGICAL16`.
    Logical16 = 0x2e0, "MPI_LOGICAL16", Logical, 16, 16;
    /// `MPI_INTEGER16`.
    Integer16 = 0x2e1, "MPI_INTEGER16", FInteger, 16, 16;
    /// `MPI_REAL16`.
    Real16 = 0x2e2, "MPI_REAL16", Real, 16, 16;
    /// `MPI_COMPLEX16`.
    Complex16 = 0x2e3, "MPI_COMPLEX16", Complex, 16, 16;
    /// `MPI_COMPLEX32`.
    Complex32 = 0x2eb, "MPI_COMPLEX32", Complex, 32, 32;
}

impl Basic {
    /// The value of its handle in the ABI.
    pub const fn abi(self) -> u16 {
        self as u16
    }

    /// The datatype with this handle.
    pub fn from_abi(handle: u16) -> Option<Self> {
        Self::ALL.binary_search_by_key(&handle, |basic| basic.abi()).ok().map(|at| Self::ALL[at])
    }

    /// The kind that operators use for its elements. MPI reduces no text (MPI 5.0, section 6.9.2), but programs reduce `MPI_CHAR`, which
    /// other implementations treat as `MPI_SIGNED_CHAR`.
    pub(crate) const fn reduced_kind(self) -> BasicKind {
        match self {
            Self::Char => BasicKind::CSigned,
            other => other.kind(),
        }
    }

    /// Its alignment by a C or Fortran compiler, in bytes.
    pub(crate) const fn align(self) -> u32 {
        if let Some((value, index)) = self.pair() {
            let (value, index) = (value.align(), index.align());
            return if value > index { value } else { index };
        }
        match self.kind() {
            BasicKind::Complex => self.size() / 2,
            _ => self.size(),
        }
    }

    /// The types of value and index of a pair.
    pub const fn pair(self) -> Option<(Self, Self)> {
        Some(match self {
            Self::FloatInt => (Self::Float, Self::Int),
            Self::DoubleInt => (Self::Double, Self::Int),
            Self::LongInt => (Self::Long, Self::Int),
            Self::TwoInt => (Self::Int, Self::Int),
            Self::ShortInt => (Self::Short, Self::Int),
            Self::LongDoubleInt => (Self::LongDouble, Self::Int),
            Self::TwoReal => (Self::Real, Self::Real),
            Self::TwoDoublePrecision => (Self::DoublePrecision, Self::DoublePrecision),
            Self::TwoInteger => (Self::Integer, Self::Integer),
            _ => return None,
        })
    }

    /// The format of a floating point number, or of each half of a complex one.
    pub(crate) const fn format(self) -> Option<Format> {
        let bytes = match self.kind() {
            BasicKind::Real => self.size(),
            BasicKind::Complex => self.size() / 2,
            _ => return None,
        };
        Some(match (bytes, self) {
            (2, _) => Format::HALF,
            (4, _) => Format::SINGLE,
            (8, _) => Format::DOUBLE,
            (_, Self::LongDouble | Self::CLongDoubleComplex | Self::CxxLongDoubleComplex) => {
                Format::LONG_DOUBLE
            }
            _ => Format::QUAD,
        })
    }

    /// Whether it is an integer of any language.
    pub(crate) const fn is_integer(self) -> bool {
        matches!(
            self.kind(),
            BasicKind::CSigned | BasicKind::CUnsigned | BasicKind::FInteger | BasicKind::Multi
        )
    }

    /// `MPI_Type_match_size`: Fortran's type of a class and a size in bytes.
    ///
    /// # Errors
    /// If there is no such type.
    pub fn matching(class: TypeClass, size: i64) -> Result<Self> {
        Ok(match (class, size) {
            (TypeClass::Integer, 1) => Self::Integer1,
            (TypeClass::Integer, 2) => Self::Integer2,
            (TypeClass::Integer, 4) => Self::Integer4,
            (TypeClass::Integer, 8) => Self::Integer8,
            (TypeClass::Integer, 16) => Self::Integer16,
            (TypeClass::Real, 2) => Self::Real2,
            (TypeClass::Real, 4) => Self::Real4,
            (TypeClass::Real, 8) => Self::Real8,
            (TypeClass::Real, 16) => Self::Real16,
            (TypeClass::Complex, 4) => Self::Complex4,
            (TypeClass::Complex, 8) => Self::Complex8,
            (TypeClass::Complex, 16) => Self::Complex16,
            (TypeClass::Complex, 32) => Self::Complex32,
            _ => return Err(Error::arg(format!("size: no predefined {class:?} type has {size} bytes"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_ascend_and_are_found() {
        assert!(Basic::ALL.windows(2).all(|two| two[0].abi() < two[1].abi()));
        for &basic in Basic::ALL {
            assert_eq!(Basic::from_abi(basic.abi()), Some(basic));
        }
        assert_eq!(Basic::from_abi(0x200), None);
        assert_eq!(Basic::ALL.len(), 70);
    }

    #[test]
    fn handles_of_fixed_size_say_it() {
        let sized = |handle: u16| (0x240..0x280).contains(&handle) || (0x2c0..0x300).contains(&handle);
        for &basic in Basic::ALL.iter().filter(|basic| sized(basic.abi())) {
            assert_eq!(basic.size(), 1 << ((basic.abi() >> 3) & 7), "{}", basic.name());
        }
    }

    #[test]
    fn pairs_are_the_sum_of_their_parts() {
        for &basic in Basic::ALL {
            assert_eq!(basic.pair().is_some(), basic.kind() == BasicKind::Pair, "{}", basic.name());
            if let Some((value, index)) = basic.pair() {
                assert_eq!(basic.size(), value.size() + index.size());
                assert_eq!(basic.external_size(), value.external_size() + index.external_size());
            }
        }
    }

    #[test]
    fn a_type_is_matched_by_class_and_size() {
        assert_eq!(Basic::matching(TypeClass::Real, 8), Ok(Basic::Real8));
        assert!(Basic::matching(TypeClass::Real, 3).is_err());
    }
}
