//! Statuses. Ours have the standard's layout, in which the words after the public ones hold the bytes received and whether the operation
//! was cancelled. MPICH's have those first, in two words.

use crate::arg::{self, UNSET};
use crate::{code, conversion};

/// `MPI_STATUS_IGNORE` and `MPI_STATUSES_IGNORE` of MPICH's ABI.
const IGNORE: usize = 1;
/// The words of a status in MPICH's ABI.
pub(crate) const WORDS: usize = 5;

/// A status of the standard ABI, as our library has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Status {
    source: i32,
    tag: i32,
    error: i32,
    bytes: [i32; 2],
    is_cancelled: i32,
    unused: [i32; 2],
}

impl Status {
    /// A status that no call has set.
    pub(crate) const UNSET: Self =
        Self { source: UNSET, tag: 0, error: UNSET, bytes: [0; 2], is_cancelled: 0, unused: [0; 2] };

    /// The words of MPICH's form, without the error. One bit of the second is whether the operation was cancelled.
    #[inline(always)]
    fn received(&self) -> [i32; WORDS - 1] {
        let high = self.bytes[1] << 1 | i32::from(self.is_cancelled != 0);
        let source = conversion::rank::to_mpich(self.source);
        [self.bytes[0], high, source, conversion::tag::to_mpich(self.tag)]
    }

    /// The words of MPICH's form.
    pub(crate) fn to_mpich(self) -> [i32; WORDS] {
        let [low, high, source, tag] = self.received();
        [low, high, source, tag, code::to_mpich(self.error)]
    }

    /// A status from the words of MPICH's form.
    pub(crate) fn from_mpich([low, high, source, tag, error]: [i32; WORDS]) -> Self {
        // Fields that the program has not set may have any value, and a program may set them to MPI_UNDEFINED.
        let known = |value: i32, converted: i32| if converted == i32::MIN { value } else { converted };
        Self {
            source: known(source, conversion::rank::to_standard(source)),
            tag: known(tag, conversion::tag::to_standard(tag)),
            error: code::to_standard(error),
            bytes: [low, (high as u32 >> 1) as i32],
            is_cancelled: high & 1,
            unused: [0; 2],
        }
    }
}

/// Whether the program passes a status.
#[inline]
fn is_there(at: usize) -> bool {
    at > IGNORE
}

/// The status at an address.
pub(crate) fn read(at: usize) -> Status {
    if is_there(at) {
        Status::from_mpich(std::array::from_fn(|word| arg::read(at, word)))
    } else {
        Status::UNSET
    }
}

/// The address of a status in place of the program's; 0 if the program ignores it.
#[inline]
pub(crate) fn place(at: usize, ours: &mut Status) -> usize {
    if is_there(at) { arg::address_of(ours) } else { 0 }
}

/// Stores a status that a call has set. The error field stays as it is, unless the call has set it.
#[inline]
pub(crate) fn put(at: usize, status: &Status) {
    if !is_there(at) || status.source == UNSET {
        return;
    }
    let [low, high, source, tag] = status.received();
    [low, high, source, tag].into_iter().enumerate().for_each(|(word, value)| arg::write(at, word, value));
    if status.error != UNSET {
        arg::write(at, WORDS - 1, code::to_mpich(status.error));
    }
}

/// Statuses for an array of the program.
pub(crate) struct List(arg::Items<Status, 16>);

impl List {
    /// As many statuses, or none if the program ignores them.
    pub(crate) fn new(array: usize, count: usize) -> Self {
        Self(arg::Items::new(if is_there(array) { count } else { 0 }, Status::UNSET))
    }

    /// Its address for a call.
    pub(crate) fn address(&mut self) -> usize {
        self.0.address()
    }

    /// Stores the statuses that a call has set.
    pub(crate) fn put(&mut self, array: usize) {
        for (at, status) in self.0.all().iter().enumerate() {
            put(array + at * WORDS * size_of::<i32>(), status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_convert_to_mpich_and_back() {
        let status =
            Status { source: -3, tag: 4, error: 15, bytes: [-2, 7], is_cancelled: 1, unused: [0; 2] };
        // MPI_PROC_NULL and MPI_ERR_TRUNCATE.
        assert_eq!(status.to_mpich(), [-2, 15, -1, 4, 14]);
        assert_eq!(Status::from_mpich(status.to_mpich()), status);
        assert_eq!(size_of::<Status>(), 32);
        // MPI_UNDEFINED, as a query function of a generalized request may set it.
        let unknown = Status { source: -32766, tag: -32766, ..status };
        assert_eq!(Status::from_mpich(unknown.to_mpich()), unknown);
    }
}
