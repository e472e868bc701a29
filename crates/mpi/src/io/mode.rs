//! [`FileMode`]: how a file is opened.

use crate::error::{Class, Error, Result};

/// How a file is opened, as a sum of the standard ABI's numbers (`MPI_MODE_RDONLY` and its like).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(i32);

impl FileMode {
    /// All pointers begin at the end.
    pub const APPEND: Self = Self(1);
    /// It is made if it is not there.
    pub const CREATE: Self = Self(2);
    /// It is deleted when it is closed.
    pub const DELETE_ON_CLOSE: Self = Self(4);
    /// It must not be there.
    pub const EXCL: Self = Self(8);
    /// It is read alone.
    pub const RDONLY: Self = Self(16);
    /// It is read and written.
    pub const RDWR: Self = Self(32);
    /// The shared pointer alone is used.
    pub const SEQUENTIAL: Self = Self(64);
    /// Nobody else has it open.
    pub const UNIQUE_OPEN: Self = Self(128);
    /// It is written alone.
    pub const WRONLY: Self = Self(256);

    /// What a program passes.
    ///
    /// # Errors
    /// [`Class::AMODE`] unless it says one of reading, writing and both, and nothing that contradicts that.
    pub fn new(number: i32) -> Result<Self> {
        let wrong = |why| Error::new(Class::AMODE, format_args!("amode: {number} {why}"));
        let (mode, ways) = (Self(number), [Self::RDONLY, Self::RDWR, Self::WRONLY]);
        if !(0..512).contains(&number) {
            return Err(wrong("has modes that there are not"));
        }
        if ways.into_iter().filter(|way| mode.has(*way)).count() != 1 {
            return Err(wrong("has not one of MPI_MODE_RDONLY, MPI_MODE_RDWR and MPI_MODE_WRONLY"));
        }
        if mode.has(Self::RDONLY) && (mode.has(Self::CREATE) || mode.has(Self::EXCL)) {
            return Err(wrong("makes a file that is only read"));
        }
        if mode.has(Self::RDWR) && mode.has(Self::SEQUENTIAL) {
            return Err(wrong("reads and writes a sequential file"));
        }
        Ok(mode)
    }

    /// As programs have it.
    pub fn number(self) -> i32 {
        self.0
    }

    /// All but this one.
    pub(crate) fn without(self, one: Self) -> Self {
        Self(self.0 & !one.0)
    }

    /// Whether it has this one.
    pub fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_that_contradict_themselves_are_refused() {
        for number in [16, 32, 256, 34, 34 | 8 | 4 | 128, 256 | 64 | 1, 16 | 64] {
            assert_eq!(FileMode::new(number).map(FileMode::number), Ok(number));
        }
        for number in [0, -1, 16 | 32, 16 | 256, 16 | 2, 16 | 8, 32 | 64, 512 | 32, 2] {
            assert_eq!(FileMode::new(number).map_err(|error| error.class), Err(Class::AMODE), "{number}");
        }
    }
}
