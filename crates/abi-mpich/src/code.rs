//! Error codes.
//!
//! A code of our library is a class in six bits and the number of a text, or a code of the program, above the last predefined
//! code. In MPICH's ABI a class has eight bits here, which the number of the text follows; added ones have the bit [`ADDED`].

use crate::conversion;

/// `MPI_ERR_LASTCODE` of the standard ABI, and of MPICH's.
const LAST: i32 = 16383;
pub(crate) const LAST_OF_MPICH: i32 = 0x3fff_ffff;
/// The bits of a class: in our library, and here.
const CLASS_BITS: i32 = 6;
const CLASS_BITS_HERE: i32 = 8;
/// The bit of codes that the program has added.
const ADDED: i32 = 0x4000_0000;
/// `MPI_ERR_UNKNOWN` of the standard ABI.
const UNKNOWN: i32 = 14;

/// A code for the program.
#[cold]
#[inline(never)]
pub(crate) fn to_mpich(code: i32) -> i32 {
    match code {
        0 => 0,
        _ if code > LAST => code.wrapping_add(ADDED),
        _ => {
            let class = code & ((1 << CLASS_BITS) - 1);
            conversion::class::to_mpich(class) | code >> CLASS_BITS << CLASS_BITS_HERE
        }
    }
}

/// A code of the program.
pub(crate) fn to_standard(code: i32) -> i32 {
    let standard = class::to_standard(code & ((1 << CLASS_BITS_HERE) - 1));
    match code {
        0 => 0,
        _ if code & ADDED != 0 => code.wrapping_sub(ADDED),
        _ if standard >= 1 << CLASS_BITS => standard,
        _ => (code >> CLASS_BITS_HERE) << CLASS_BITS | standard,
    }
}

/// Classes, and codes of the interface for tools, which have no texts.
pub(crate) mod class {
    use super::{ADDED, LAST, UNKNOWN, conversion};

    /// A class for the program.
    pub(crate) fn to_mpich(class: i32) -> i32 {
        if class > LAST { class.wrapping_add(ADDED) } else { conversion::class::to_mpich(class) }
    }

    /// A class of the program.
    pub(crate) fn to_standard(class: i32) -> i32 {
        if class & ADDED != 0 {
            return class.wrapping_sub(ADDED);
        }
        // A class that the standard lacks is unknown.
        match conversion::class::to_standard(class) {
            i32::MIN => UNKNOWN,
            standard => standard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_convert_to_mpich_and_back() {
        for code in
            (0..=LAST + 100).filter(|code| *code == 0 || *code > LAST || (1..=62).contains(&(code & 63)))
        {
            assert_eq!(to_standard(to_mpich(code)), code);
        }
        // MPI_ERR_TRUNCATE with the text of number 3, and MPI_ERR_RANK.
        assert_eq!((to_mpich(3 << 6 | 15), to_standard(6)), (3 << 8 | 14, 6));
        assert_eq!(to_standard(101), UNKNOWN);
        for class in (0..=62).chain(1001..=1018) {
            assert_eq!(class::to_standard(class::to_mpich(class)), class);
        }
    }
}
