//! Direct access to a program's memory: packing, local reductions, strings, and allocation.
//!
//! A program passes a buffer's address with a count and a datatype, and MPI gives the described memory to the call while it runs.
//! This makes each block here sound.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use datatypes::{Basic, Datatype, Memory};
use ffi::{In, Out, Text};
use mpi::ADDRESS_MIN;

use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::objects;
use crate::types::{self, Address, Number};

/// The names of the three arguments that describe a buffer.
#[derive(Clone, Copy)]
pub(crate) struct ArgumentNames {
    pub(crate) address: &'static str,
    pub(crate) count: &'static str,
    pub(crate) datatype: &'static str,
}

/// The names for calls with a single buffer, and for calls with a send and a receive buffer.
const BUFFER_NAMES: ArgumentNames = ArgumentNames { address: "buf", count: "count", datatype: "datatype" };
pub(crate) const SEND: ArgumentNames =
    ArgumentNames { address: "sendbuf", count: "sendcount", datatype: "sendtype" };
pub(crate) const RECEIVE: ArgumentNames =
    ArgumentNames { address: "recvbuf", count: "recvcount", datatype: "recvtype" };

/// The buffer of a call that has only one: an address, a count and a datatype, valid for as long as MPI requires.
#[inline(always)]
pub(crate) fn buffer<N: Number>(
    address: Address,
    count: N,
    datatype: types::Datatype,
) -> Answer<mpi::Buffer> {
    named_buffer(BUFFER_NAMES, address, count, datatype)
}

/// As [`buffer`], for arguments with these names.
#[inline(always)]
pub(crate) fn named_buffer<N: Number>(
    names: ArgumentNames,
    address: Address,
    count: N,
    datatype: types::Datatype,
) -> Answer<mpi::Buffer> {
    let count = count.to_i64();
    buffer_of(names, address, count, datatype_of(names.datatype, count, datatype)?)
}

/// The datatype of `count` elements. If `count` is 0, `MPI_DATATYPE_NULL` is accepted.
#[inline(always)]
pub(crate) fn datatype_of(argument: &'static str, count: i64, handle: types::Datatype) -> Answer<Datatype> {
    objects::datatype(handle, argument).or_else(|fault| null_datatype(count, handle, fault))
}

/// Accepts a null datatype for a count of 0.
#[cold]
fn null_datatype(count: i64, handle: types::Datatype, fault: Fault) -> Answer<Datatype> {
    let is_excused = handle.value() == c::MPI_DATATYPE_NULL && count == 0;
    if is_excused { Ok(Datatype::from(Basic::Byte)) } else { Err(fault) }
}

/// The bytes of a buffer of a contiguous predefined datatype, for blocking calls; `None` for other datatypes and invalid arguments.
#[inline(always)]
pub(crate) fn piece<N: Number>(address: Address, count: N, datatype: types::Datatype) -> Option<mpi::Piece> {
    pieces(address, count, datatype, 1)
}

/// As [`piece`], for `times` times `count` elements.
#[inline(always)]
pub(crate) fn pieces<N: Number>(
    address: Address,
    count: N,
    datatype: types::Datatype,
    times: i32,
) -> Option<mpi::Piece> {
    let (each, count) = (Datatype::predefined_contiguous_size(datatype.value()), count.to_i64());
    let len = usize::try_from(each.checked_mul(count)?.checked_mul(times.into())?).ok()?;
    if each > 0 { bytes_at(address, len) } else { None }
}

/// `len` bytes at a program's address, for blocking calls; `None` for an invalid address.
#[inline(always)]
pub(crate) fn bytes_at(address: Address, len: usize) -> Option<mpi::Piece> {
    let is_there = address.0 >= ADDRESS_MIN;
    // SAFETY: MPI makes the demands of `Piece::new` on a program that passes these. Test: `ring_messages_arrive_on_shm`.
    is_there.then(|| unsafe { mpi::Piece::new(address.0, len) })
}

/// The buffer of a call whose arguments have these names.
#[inline(always)] // as `mpi::Buffer::new`
pub(crate) fn buffer_of(
    names: ArgumentNames,
    address: Address,
    count: i64,
    datatype: Datatype,
) -> Answer<mpi::Buffer> {
    if count < 0 {
        return Err(negative_count(names, count));
    }
    // SAFETY: MPI makes the demands of `Buffer::new` on a program that passes these. Test: `ring_messages_arrive_on_shm`.
    unsafe { mpi::Buffer::new(address.0, count, datatype) }
        .map_err(|error| buffer_error(names, address, error))
}

/// The error for a negative count.
#[cold]
fn negative_count(names: ArgumentNames, count: i64) -> Fault {
    Fault::new(c::MPI_ERR_COUNT, format!("{}: {count} is negative", names.count))
}

/// The error of a buffer, with the name of the argument that caused it.
#[cold]
fn buffer_error(names: ArgumentNames, address: Address, error: mpi::Error) -> Fault {
    let name = match error.class {
        mpi::Class::BUFFER if address.0 == c::MPI_IN_PLACE => {
            return Fault::new(error.class.0, format!("{}: MPI_IN_PLACE has no meaning here", names.address));
        }
        mpi::Class::COUNT => names.count,
        mpi::Class::BUFFER => names.address,
        _ => names.datatype,
    };
    Fault::new(error.class.0, format!("{name}: {}", error.text))
}

/// A buffer that begins `displacement` bytes after an address. If `is_far`, the displacement has 64 bits and may be an absolute
/// address, relative to `MPI_BOTTOM`; otherwise the address itself must also be valid for the elements.
pub(crate) fn buffer_at(
    names: ArgumentNames,
    address: Address,
    (displacement, is_far): (i64, bool),
    count: i64,
    datatype: Datatype,
) -> Answer<mpi::Buffer> {
    let may_begin = address.0 >= ADDRESS_MIN || (is_far && address.0 != c::MPI_IN_PLACE);
    if !may_begin {
        buffer_of(names, address, count, datatype.clone())?;
    }
    buffer_of(names, Address(address.0.wrapping_add_signed(displacement as isize)), count, datatype)
}

/// Elements that the call accesses itself, without a transfer: their datatype, and the memory that the datatype's offsets refer to.
pub(crate) fn elements<N: Number>(
    names: ArgumentNames,
    address: Address,
    count: N,
    datatype: types::Datatype,
) -> Answer<(Datatype, ProgramMemory)> {
    let buffer = named_buffer(names, address, count, datatype)?;
    Ok((buffer.datatype().clone(), ProgramMemory(address)))
}

/// Checks that an address is valid for a buffer of `len` bytes.
pub(crate) fn check_bytes(argument: &'static str, address: Address, len: u64) -> Answer {
    let names = ArgumentNames { address: argument, ..BUFFER_NAMES };
    buffer_of(names, address, len as i64, Datatype::from(Basic::Byte)).map(drop)
}

/// The address that a datatype's offsets are relative to.
pub(crate) struct ProgramMemory(pub(crate) Address);

impl Memory for ProgramMemory {
    fn load(&self, offset: i64, into: &mut [u8]) {
        copy_from(Address(self.0.0.wrapping_add_signed(offset as isize)), into);
    }

    fn store(&mut self, offset: i64, from: &[u8]) {
        copy_to(Address(self.0.0.wrapping_add_signed(offset as isize)), from);
    }
}

/// Copies bytes from a program's memory.
pub(crate) fn copy_from(address: Address, into: &mut [u8]) {
    let from = with_exposed_provenance::<u8>(address.0);
    // SAFETY: see the head of this file; a program's memory does not overlap with ours. Test: `datatypes` of
    // tests/c/single_process.c.
    unsafe { uaccess::copy(into.as_mut_ptr(), from, into.len()) };
}

/// Copies bytes into a program's memory.
pub(crate) fn copy_to(address: Address, from: &[u8]) {
    let into = with_exposed_provenance_mut::<u8>(address.0);
    // SAFETY: as above.
    unsafe { uaccess::copy(into, from.as_ptr(), from.len()) };
}

/// Reads an array of `count` addresses; all are NULL if the array is.
pub(crate) fn addresses(array: Address, count: usize) -> Vec<Address> {
    // SAFETY: a program passes NULL or an array of this many addresses. Test: `programs_are_spawned`.
    let array = unsafe { In::<usize>::new(with_exposed_provenance(array.0)) };
    let addresses = array.items(count).map(|items| items.map(Address).collect::<Vec<_>>());
    addresses.unwrap_or_else(|| vec![Address(0); count])
}

/// Reads the strings that an array of `count` addresses points to; `None` for each NULL.
pub(crate) fn optional_strings(array: Address, count: usize) -> Vec<Option<String>> {
    // SAFETY: a program passes NULL or strings. Test: as above.
    let text = |address: Address| unsafe { Text::new(with_exposed_provenance(address.0)) }.get();
    addresses(array, count).into_iter().map(text).collect()
}

/// Reads a NULL-terminated array of strings; empty for NULL.
pub(crate) fn strings(array: Address) -> Vec<String> {
    let at = |place: usize| Address(array.0 + place * size_of::<usize>());
    let texts =
        (0..).map(|place| if array.0 == 0 { None } else { optional_strings(at(place), 1).pop().flatten() });
    texts.map_while(|text| text).collect()
}

/// Stores a zero-terminated string in `room` bytes, truncated if necessary; returns its length without the zero.
pub(crate) fn put_text(place: Out<u8>, text: &str, room: usize) -> i32 {
    let Some(most) = room.checked_sub(1) else { return 0 };
    let end = text.floor_char_boundary(most);
    text.bytes().take(end).chain([0]).enumerate().for_each(|(at, byte)| place.element(at).set(byte));
    end as i32
}

/// A copy of the span of elements, from their first byte to their last.
pub(crate) fn copy_span(address: Address, datatype: &Datatype, count: i64) -> Answer<(Address, Vec<u8>)> {
    let span = datatype.span(count)?;
    let mut bytes = vec![0; (span.end - span.start) as usize];
    let start = Address(address.0.wrapping_add_signed(span.start as isize));
    copy_from(start, &mut bytes);
    Ok((start, bytes))
}

/// The alignment of `MPI_Alloc_mem`: sufficient for every basic type, and a cache line.
const ALIGNMENT: usize = 64;

/// Allocates memory for a program; [`release`] frees it.
pub(crate) fn allocate(bytes: usize) -> Answer<Address> {
    let mut place = std::ptr::null_mut();
    // SAFETY: `place` receives the result; the alignment is a power of two and a multiple of a pointer's size. Test: `environment`
    // of tests/c/single_process.c.
    let error = unsafe { libc::posix_memalign(&raw mut place, ALIGNMENT, bytes.max(1)) };
    match error {
        0 => Ok(Address(place.expose_provenance())),
        _ => Err(Fault::new(c::MPI_ERR_NO_MEM, format!("size: there are no {bytes} bytes"))),
    }
}

/// Frees memory of [`allocate`].
pub(crate) fn release(address: Address) {
    // SAFETY: a program passes NULL, or a result of `MPI_Alloc_mem` once. Test: as above.
    unsafe { libc::free(with_exposed_provenance_mut(address.0)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_string_is_truncated_between_characters() {
        let mut room = [7_u8; 6];
        // SAFETY: the array has six bytes, and no more are used.
        let place = unsafe { Out::new(room.as_mut_ptr()) };
        assert_eq!(put_text(place, "abcdé", 6), 4);
        assert_eq!(room, *b"abcd\0\x07");
        assert_eq!((put_text(place, "xy", 0), put_text(place, "xy", 1), room[0]), (0, 0, 0));
    }
}
