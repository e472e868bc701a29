//! [`FileMode`]: the access mode of an open file (MPI 5.0, section 14.2.1).

use crate::error::{Class, Error, Result};

/// The access mode of a file, as a sum of the standard ABI's numbers (`MPI_MODE_RDONLY` and others).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(i32);

impl FileMode {
    /// All pointers start at the end of the file.
    pub const APPEND: Self = Self(1);
    /// The file is created if it does not exist.
    pub const CREATE: Self = Self(2);
    /// The file is deleted when it is closed.
    pub const DELETE_ON_CLOSE: Self = Self(4);
    /// The file must not exist.
    pub const EXCL: Self = Self(8);
    /// The file is only read.
    pub const RDONLY: Self = Self(16);
    /// The file is read and written.
    pub const RDWR: Self = Self(32);
    /// Only the shared pointer is used.
    pub const SEQUENTIAL: Self = Self(64);
    /// No other program has the file open.
    pub const UNIQUE_OPEN: Self = Self(128);
    /// The file is only written.
    pub const WRONLY: Self = Self(256);

    /// Checks a program's mode.
    ///
    /// # Errors
    /// [`Class::AMODE`] unless it contains exactly one of the read and write modes, and no flag that contradicts it.
    pub fn new(number: i32) -> Result<Self> {
        let wrong = |why| Error::new(Class::AMODE, format_args!("amode: {number} {why}"));
        let (mode, access_modes) = (Self(number), [Self::RDONLY, Self::RDWR, Self::WRONLY]);
        if !(0..512).contains(&number) {
            return Err(wrong("contains unknown flags"));
        }
        if access_modes.into_iter().filter(|access| mode.has(*access)).count() != 1 {
            return Err(wrong("needs exactly one of MPI_MODE_RDONLY, MPI_MODE_RDWR and MPI_MODE_WRONLY"));
        }
        if mode.has(Self::RDONLY) && (mode.has(Self::CREATE) || mode.has(Self::EXCL)) {
            return Err(wrong("combines MPI_MODE_RDONLY with MPI_MODE_CREATE or MPI_MODE_EXCL"));
        }
        if mode.has(Self::RDWR) && mode.has(Self::SEQUENTIAL) {
            return Err(wrong("combines MPI_MODE_RDWR with MPI_MODE_SEQUENTIAL"));
        }
        Ok(mode)
    }

    /// The number that programs use.
    pub fn number(self) -> i32 {
        self.0
    }

    /// The mode without this flag.
    pub(crate) fn without(self, one: Self) -> Self {
        Self(self.0 & !one.0)
    }

    /// Whether it includes this flag.
    pub fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictory_access_modes_are_errors() {
        for number in [16, 32, 256, 34, 34 | 8 | 4 | 128, 256 | 64 | 1, 16 | 64] {
            assert_eq!(FileMode::new(number).map(FileMode::number), Ok(number));
        }
        for number in [0, -1, 16 | 32, 16 | 256, 16 | 2, 16 | 8, 32 | 64, 512 | 32, 2] {
            assert_eq!(FileMode::new(number).map_err(|error| error.class), Err(Class::AMODE), "{number}");
        }
    }
}
