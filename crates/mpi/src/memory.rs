//! The program's memory: the one place that copies from it and into it, and that makes it reachable for NICs.

use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU8;

use datatypes::{Basic, Datatype, Memory};
use verbs::{Access, Buf, ImplicitMr, MemoryKind, Mr, Pd};

use crate::error::{Class, Error, Result};

/// A program's buffer: `count` elements of a datatype at an address. An operation that is given one may use its memory until it is
/// complete, as MPI says. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Buffer {
    address: usize,
    count: i64,
    datatype: Datatype,
    len: u64,
    /// Keeps the memory, where it is this library's.
    _own: Option<Own>,
}

/// Memory of this library's.
type Own = Arc<dyn Debug + Send + Sync>;

/// Bytes from which on memory of this library's has pages of its own.
const LONG: usize = 4096;

impl Buffer {
    /// A buffer of `count` elements at an address.
    ///
    /// # Safety
    /// The memory that `count` elements of `datatype` at `address` take is readable, and writable where an operation receives into
    /// it, until every operation that is given this buffer or a clone of it has completed; nobody uses it meanwhile in a way that
    /// MPI forbids.
    ///
    /// # Errors
    /// [`Class::COUNT`] for a negative count, or one whose bytes nobody can address; [`Class::TYPE`] for a datatype that is not
    /// committed; [`Class::BUFFER`] for address 0 with data.
    pub unsafe fn new(address: usize, count: i64, datatype: Datatype) -> Result<Self> {
        if !datatype.is_committed() {
            return Err(Error::new(Class::TYPE, "the datatype is not committed; call MPI_Type_commit first"));
        }
        let len = datatype.bytes(count).map_err(|error| Error::new(Class::COUNT, error.text))?;
        let span = datatype.span(count).map_err(|error| Error::new(Class::COUNT, error.text))?;
        // MPI_BOTTOM is address 0, with a datatype that has the addresses.
        if len > 0 && address == 0 && span.start == 0 {
            return Err(Error::new(Class::BUFFER, format_args!("the buffer is null, but has {len} bytes")));
        }
        Ok(Self { address, count, datatype, len, _own: None })
    }

    /// A buffer of no bytes.
    pub fn nothing() -> Self {
        Self { address: 0, count: 0, datatype: Datatype::from(Basic::Byte), len: 0, _own: None }
    }

    /// Memory of this library's own, which lives as long as the buffer and its clones; it begins with these bytes.
    pub(crate) fn own(bytes: &[u8]) -> Result<Self> {
        let (address, own): (usize, Own) = if bytes.len() < LONG {
            let own: Vec<AtomicU8> = bytes.iter().map(|byte| AtomicU8::new(*byte)).collect();
            (own.as_ptr().expose_provenance(), Arc::new(own))
        } else {
            let own = Buf::alloc(bytes.len())?;
            own.write(0, bytes)?;
            (own.as_ptr().expose_provenance(), Arc::new(own))
        };
        let (count, len) = (bytes.len() as i64, bytes.len() as u64);
        Ok(Self { address, count, datatype: Datatype::from(Basic::Byte), len, _own: Some(own) })
    }

    /// A buffer of this library's own with this one's data.
    pub(crate) fn copied(&self) -> Result<Self> {
        Self::own(&self.to_vec())
    }

    /// Copies all its bytes, in the order of the type map.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len as usize];
        self.load(&mut bytes);
        bytes
    }

    /// Bytes of data in it.
    #[allow(clippy::len_without_is_empty, reason = "an empty one is as good as any")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Its address, as it was given.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Its count, as it was given.
    pub fn count(&self) -> i64 {
        self.count
    }

    /// Its datatype, as it was given.
    pub fn datatype(&self) -> &Datatype {
        &self.datatype
    }

    /// A buffer that begins `extents` extents of the datatype behind this one, of another count.
    ///
    /// # Safety
    /// As [`Buffer::new`].
    ///
    /// # Errors
    /// As [`Buffer::new`].
    pub unsafe fn part(&self, extents: i64, count: i64) -> Result<Self> {
        let bytes = self.datatype.extent().wrapping_mul(extents);
        // SAFETY: promised by the caller.
        unsafe { Self::new(self.address.wrapping_add_signed(bytes as isize), count, self.datatype.clone()) }
    }

    /// Address and length of the bytes, where they lie in one piece and in order.
    pub(crate) fn one_piece(&self) -> Option<(usize, usize)> {
        let run = self.datatype.single_run(self.count)?;
        let len = usize::try_from(run.length).ok()?;
        Some((self.address.wrapping_add_signed(run.offset as isize), len))
    }

    /// Copies all bytes, which must be as many as `into` has.
    pub(crate) fn load(&self, into: &mut [u8]) {
        match self.one_piece() {
            Some((address, len)) => copy_from(address, &mut into[..len]),
            None => {
                drop(self.datatype.cursor(self.count).map(|mut cursor| cursor.pack(&Raw(self.address), into)))
            }
        }
    }

    /// Copies into the first bytes: as many as there are and it has room for.
    pub(crate) fn store(&self, from: &[u8]) {
        match self.one_piece() {
            Some((address, len)) => copy_to(address, &from[..from.len().min(len)]),
            None => {
                drop(
                    self.datatype
                        .cursor(self.count)
                        .map(|mut cursor| cursor.unpack(from, &mut Raw(self.address))),
                );
            }
        }
    }

    /// Copies all bytes to a place in a NIC's buffer.
    pub(crate) fn load_to(&self, buf: &Buf, at: usize) -> verbs::Result<()> {
        match self.one_piece() {
            Some((address, len)) => {
                // SAFETY: readable while the operation is under way, as promised to `Buffer::new`; nobody writes to it meanwhile.
                // Test: buffers_are_packed_and_unpacked.
                buf.write(at, unsafe { std::slice::from_raw_parts(pointer(address), len) })
            }
            None => {
                let mut bytes = vec![0; self.len as usize];
                self.load(&mut bytes);
                buf.write(at, &bytes)
            }
        }
    }

    /// Copies `len` bytes at a place in a NIC's buffer into the first bytes.
    pub(crate) fn store_from(&self, buf: &Buf, at: usize, len: usize) -> verbs::Result<()> {
        let len = len.min(usize::try_from(self.len).unwrap_or(usize::MAX));
        match self.one_piece() {
            Some((address, _)) if len > 0 => {
                // SAFETY: writable while the operation is under way, as promised to `Buffer::new`, and nobody else uses it; `len`
                // is within it. Test: buffers_are_packed_and_unpacked.
                buf.read(at, unsafe { std::slice::from_raw_parts_mut(pointer(address), len) })
            }
            _ => {
                self.store(&buf.to_vec(at..at + len)?);
                Ok(())
            }
        }
    }
}

fn pointer(address: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address)
}

fn copy_from(address: usize, into: &mut [u8]) {
    if !into.is_empty() {
        // SAFETY: readable while the operation is under way, as promised to `Buffer::new`; `into` is this library's.
        // Test: buffers_are_packed_and_unpacked.
        unsafe { std::ptr::copy_nonoverlapping(pointer(address), into.as_mut_ptr(), into.len()) }
    }
}

fn copy_to(address: usize, from: &[u8]) {
    if !from.is_empty() {
        // SAFETY: as above, for writing.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), pointer(address), from.len()) }
    }
}

/// A buffer's memory, for datatypes that have gaps.
struct Raw(usize);

impl Memory for Raw {
    fn load(&self, offset: i64, into: &mut [u8]) {
        copy_from(self.0.wrapping_add_signed(offset as isize), into);
    }

    fn store(&mut self, offset: i64, from: &[u8]) {
        copy_to(self.0.wrapping_add_signed(offset as isize), from);
    }
}

/// A region of all memory, with as many rights as the device gives; `None` where it has none. With rights for peers, they must be
/// trusted as far as this process's user is: they are of one job.
pub(crate) fn all_memory(pd: &Pd) -> Result<Option<ImplicitMr>> {
    let Some(access) = pd.device().attr().implicit_mr else { return Ok(None) };
    // SAFETY: requests name memory of operations under way only, which stays mapped as promised to `Buffer::new`, or of buffers
    // that the operation keeps. Test: messages_of_all_sizes_arrive.
    Ok(Some(unsafe { pd.reg_all(access) }?))
}

/// Registers the program's memory for as long as an operation uses it.
pub(crate) fn register(pd: &Pd, address: usize, len: usize, access: Access) -> Result<Mr> {
    let base = NonNull::new(pointer(address))
        .ok_or_else(|| Error::new(Class::BUFFER, "memory at address 0 cannot be registered"))?;
    // SAFETY: mapped while the operation is under way, as promised to `Buffer::new`; the operation drops the region when it is
    // complete. References to its bytes are alive only inside the copies of this file. Test: messages_of_all_sizes_arrive.
    let buf = unsafe { Buf::from_raw(base, len, MemoryKind::Host, 0, Arc::new(())) };
    Ok(pd.reg_mr(&buf, access)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(memory: &mut [u8], count: i64, datatype: Datatype) -> Buffer {
        // SAFETY: the tests keep the memory, and the datatypes lie inside.
        unsafe { Buffer::new(memory.as_mut_ptr().expose_provenance(), count, datatype) }.expect("a buffer")
    }

    /// Every second byte.
    fn comb(len: i64) -> Datatype {
        let comb = Datatype::vector(len, 1, 2, &Basic::Byte.into()).expect("a vector");
        comb.commit();
        comb
    }

    #[test]
    fn buffers_are_packed_and_unpacked() {
        let nic = Buf::alloc(64).expect("memory");
        for (datatype, count) in [(Datatype::from(Basic::Byte), 5), (comb(5), 1)] {
            let mut source: Vec<u8> = (1..=10).collect();
            let step = if count == 5 { 1 } else { 2 };
            let want: Vec<u8> = source.iter().copied().step_by(step).take(5).collect();
            let from = buffer(&mut source, count, datatype.clone());
            let mut packed = [0; 5];
            from.load(&mut packed);
            assert_eq!(packed, want[..]);
            from.load_to(&nic, 7).expect("inside");
            assert_eq!(nic.to_vec(7..12).expect("inside"), want);
            for by_nic in [false, true] {
                let mut target = vec![0; 10];
                let to = buffer(&mut target, count, datatype.clone());
                if by_nic {
                    to.store_from(&nic, 7, 3).expect("inside");
                } else {
                    to.store(&packed[..3]);
                }
                let got: Vec<u8> = target.iter().copied().step_by(step).take(5).collect();
                assert_eq!(got, [&want[..3], &[0, 0]].concat());
                assert_eq!(target.iter().filter(|byte| **byte != 0).count(), 3, "nothing between");
            }
        }
    }

    #[test]
    fn what_is_longer_than_the_buffer_is_cut() {
        let mut target = vec![0; 4];
        buffer(&mut target[..3], 3, Basic::Byte.into()).store(&[9; 100]);
        assert_eq!(target, [9, 9, 9, 0]);
    }

    #[test]
    fn wrong_buffers_are_refused() {
        // SAFETY: nothing is made of them.
        let new =
            |address, count, datatype| unsafe { Buffer::new(address, count, datatype) }.map(|b| b.len());
        let byte = || Datatype::from(Basic::Byte);
        assert_eq!(new(0, 0, byte()), Ok(0));
        assert_eq!(new(0, 1, byte()).expect_err("null").class, Class::BUFFER);
        assert_eq!(new(8, -1, byte()).expect_err("negative").class, Class::COUNT);
        let raw = Datatype::contiguous(2, &byte()).expect("a type");
        assert_eq!(new(8, 1, raw).expect_err("not committed").class, Class::TYPE);
        assert_eq!(Buffer::nothing().len(), 0);
    }
}
