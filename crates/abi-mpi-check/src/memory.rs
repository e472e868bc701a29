//! [`Memory`]: a buffer of a call, as its address, count and datatype describe it. It is the program's memory, which may be gone: the
//! kernel reads it for us, and reports that.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use findings::Image;

use crate::library::{self, COMM_SELF, SUCCESS};

/// The datatypes that the program has committed. Questions about other handles would call its error handlers.
static COMMITTED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// The program has committed a datatype.
pub(crate) fn committed(datatype: usize) {
    COMMITTED.lock().unwrap_or_else(PoisonError::into_inner).insert(datatype);
}

/// The program has freed a datatype.
pub(crate) fn freed(datatype: usize) {
    COMMITTED.lock().unwrap_or_else(PoisonError::into_inner).remove(&datatype);
}

/// Whether a handle is that of a datatype which can be used.
fn is_datatype(handle: usize) -> bool {
    library::is_predefined_datatype(handle)
        || COMMITTED.lock().unwrap_or_else(PoisonError::into_inner).contains(&handle)
}

/// The longest buffer of a datatype with gaps whose contents are compared, in bytes.
const PACKED_MAX: i64 = 64 << 20;

/// A buffer: `count` elements of a datatype at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) address: usize,
    pub(crate) count: i64,
    pub(crate) datatype: usize,
}

/// What a buffer contained.
pub(crate) enum Contents {
    /// A range of addresses without gaps.
    Range(Image, Range<usize>),
    /// The bytes that MPI_Pack makes of it.
    Packed(Image),
}

/// How a buffer differs from what it contained.
pub(crate) enum Difference {
    /// Bytes of it, by their offsets, and the address of the first if that is known.
    Bytes(Range<usize>, Option<usize>),
    /// It is not mapped any more.
    Gone,
}

impl Memory {
    /// Whether its datatype and its count are valid, and it is not empty.
    pub(crate) fn is_valid(&self) -> bool {
        self.count > 0 && is_datatype(self.datatype)
    }

    /// How many bytes of data it has.
    pub(crate) fn bytes(&self) -> u64 {
        let mut size = 0;
        let is_known = self.is_valid() && library::type_size(self.datatype, &mut size) == SUCCESS;
        if is_known { (size.max(0) as u64).saturating_mul(self.count as u64) } else { 0 }
    }

    /// Its addresses, if it has no gaps and is not empty.
    pub(crate) fn range(&self) -> Option<Range<usize>> {
        let (mut size, mut extents) = (0, [[0; 2]; 2]);
        let [[lb, extent], [true_lb, true_extent]] = &mut extents;
        let is_known = self.is_valid()
            && library::type_size(self.datatype, &mut size) == SUCCESS
            && library::type_get_extent(self.datatype, lb, extent) == SUCCESS
            && library::type_get_true_extent(self.datatype, true_lb, true_extent) == SUCCESS;
        if !is_known || size <= 0 || *extent != size || *true_extent != size {
            return None;
        }
        let start = self.address.checked_add_signed(isize::try_from(*true_lb).ok()?)?;
        let len = usize::try_from(size.checked_mul(self.count)?).ok()?;
        Some(start..start.checked_add(len)?)
    }

    /// What it contains now; `None` if it is empty, too long, or not mapped.
    pub(crate) fn contents(&self) -> Option<Contents> {
        if let Some(range) = self.range() {
            let image = Image::take(0..range.len(), |at, bytes| read(range.start + at, bytes)).ok()?;
            return Some(Contents::Range(image, range));
        }
        let packed = self.packed()?;
        let image = Image::take(0..packed.len(), |at, bytes| copy(&packed, at, bytes)).ok()?;
        Some(Contents::Packed(image))
    }

    /// How it differs from what it contained.
    pub(crate) fn difference(&self, before: &Contents) -> Option<Difference> {
        match before {
            Contents::Range(image, range) => {
                match image.changed(0, |at, bytes| read(range.start + at, bytes)) {
                    Ok(changed) => {
                        changed.map(|bytes| Difference::Bytes(bytes.clone(), Some(range.start + bytes.start)))
                    }
                    Err(Unreadable) => Some(Difference::Gone),
                }
            }
            Contents::Packed(image) => {
                let packed = self.packed()?;
                let changed = image.changed(0, |at, bytes| copy(&packed, at, bytes)).ok()??;
                Some(Difference::Bytes(changed, None))
            }
        }
    }

    /// Its data without gaps.
    fn packed(&self) -> Option<Vec<u8>> {
        let (mut size, mut position) = (0, 0);
        let is_known =
            self.is_valid() && library::pack_size(self.count, self.datatype, COMM_SELF, &mut size) == SUCCESS;
        if !is_known || !(1..=PACKED_MAX).contains(&size) {
            return None;
        }
        let mut packed = vec![0_u8; size as usize];
        let to = packed.as_mut_ptr().expose_provenance();
        let code = library::pack(self.address, self.count, self.datatype, to, size, &mut position, COMM_SELF);
        packed.truncate(position.clamp(0, size) as usize);
        (code == SUCCESS).then_some(packed)
    }
}

/// The memory is not mapped, or may not be read.
#[derive(Debug)]
struct Unreadable;

fn copy(from: &[u8], at: usize, bytes: &mut [u8]) -> Result<(), Unreadable> {
    let part = from.get(at..at + bytes.len()).ok_or(Unreadable)?;
    bytes.copy_from_slice(part);
    Ok(())
}

/// Copies memory of the program (process_vm_readv(2) of this process).
fn read(address: usize, bytes: &mut [u8]) -> Result<(), Unreadable> {
    if bytes.is_empty() {
        return Ok(());
    }
    let to = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let from = libc::iovec { iov_base: std::ptr::with_exposed_provenance_mut(address), iov_len: bytes.len() };
    // SAFETY: the kernel writes to `bytes` only, and checks the other address. Test: `seeded_bugs_are_found`, by memory that is gone.
    let count = unsafe { libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0) };
    if count == bytes.len() as isize { Ok(()) } else { Err(Unreadable) }
}

/// A value that the program keeps at an address; `None` for NULL.
pub(crate) fn value<T: Copy + Default>(address: usize) -> Option<T> {
    values(address, 1).pop()
}

/// Values of an array of the program; none for NULL.
pub(crate) fn values<T: Copy + Default>(address: usize, count: usize) -> Vec<T> {
    if address == 0 {
        return Vec::new();
    }
    let from = std::ptr::with_exposed_provenance::<T>(address);
    // SAFETY: the arguments of a call, which MPI reads as well: `count` values of a type of C. They may be unaligned only where MPI would
    // fail, too. Test: `seeded_bugs_are_found`.
    (0..count).map(|at| unsafe { from.add(at).read_unaligned() }).collect()
}

/// Replaces a value that the call has stored for the program.
pub(crate) fn store<T>(address: usize, value: T) {
    // SAFETY: as `values`; the call before has stored a value of this type there. Test: `seeded_bugs_are_found`.
    unsafe { std::ptr::with_exposed_provenance_mut::<T>(address).write_unaligned(value) }
}
