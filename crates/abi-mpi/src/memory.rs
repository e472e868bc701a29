//! Memory of programs that calls reach without a transfer: packing, local reductions, texts, and allocation.
//!
//! A program passes the address of a buffer with a count and a datatype; the memory that these take is the call's while it runs. That
//! is what makes each block here sound.

use std::ptr::{with_exposed_provenance, with_exposed_provenance_mut};

use datatypes::{Basic, Datatype, Memory};
use ffi::{In, Out, Text};
use mpi::ADDRESS_MIN;

use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::objects;
use crate::types::{self, Address, Number};

/// How the three arguments are called that a buffer is passed as.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    pub(crate) address: &'static str,
    pub(crate) count: &'static str,
    pub(crate) datatype: &'static str,
}

/// The names where a call has one buffer, and where it has one of each kind.
const ONLY: Names = Names { address: "buf", count: "count", datatype: "datatype" };
pub(crate) const SEND: Names = Names { address: "sendbuf", count: "sendcount", datatype: "sendtype" };
pub(crate) const RECEIVE: Names = Names { address: "recvbuf", count: "recvcount", datatype: "recvtype" };

/// The one buffer of a call: with an address, a count and a datatype, for as long as MPI says.
#[inline(always)]
pub(crate) fn buffer<N: Number>(
    address: Address,
    count: N,
    datatype: types::Datatype,
) -> Answer<mpi::Buffer> {
    named_buffer(ONLY, address, count, datatype)
}

/// As [`buffer`], of a call whose arguments have these names.
#[inline(always)]
pub(crate) fn named_buffer<N: Number>(
    names: Names,
    address: Address,
    count: N,
    datatype: types::Datatype,
) -> Answer<mpi::Buffer> {
    let count = count.wide();
    buffer_of(names, address, count, datatype_of(names.datatype, count, datatype)?)
}

/// The datatype of `count` elements. If `count` is 0, `MPI_DATATYPE_NULL` is accepted.
#[inline(always)]
pub(crate) fn datatype_of(argument: &'static str, count: i64, handle: types::Datatype) -> Answer<Datatype> {
    objects::datatype(handle, argument).or_else(|fault| no_datatype(count, handle, fault))
}

#[cold]
fn no_datatype(count: i64, handle: types::Datatype, fault: Fault) -> Answer<Datatype> {
    let is_excused = handle.value() == c::MPI_DATATYPE_NULL && count == 0;
    if is_excused { Ok(Datatype::from(Basic::Byte)) } else { Err(fault) }
}

/// The bytes of a buffer of a predefined datatype without gaps, for a call that returns when it is done with them; nothing for any
/// other, and for what is wrong.
#[inline(always)]
pub(crate) fn piece<N: Number>(address: Address, count: N, datatype: types::Datatype) -> Option<mpi::Piece> {
    pieces(address, count, datatype, 1)
}

/// As [`piece`], of so many times as many elements.
#[inline(always)]
pub(crate) fn pieces<N: Number>(
    address: Address,
    count: N,
    datatype: types::Datatype,
    times: i32,
) -> Option<mpi::Piece> {
    let (each, count) = (Datatype::predefined_dense(datatype.value()), count.wide());
    let len = usize::try_from(each.checked_mul(count)?.checked_mul(times.into())?).ok()?;
    if each > 0 { bytes_at(address, len) } else { None }
}

/// So many bytes at an address of a program's, if that is one, for a call that returns when it is done with them.
#[inline(always)]
pub(crate) fn bytes_at(address: Address, len: usize) -> Option<mpi::Piece> {
    let is_there = address.0 >= ADDRESS_MIN;
    // SAFETY: what `Piece::new` asks for is what MPI asks of a program that passes these. Test: `messages_go_round_on_shm`.
    is_there.then(|| unsafe { mpi::Piece::new(address.0, len) })
}

/// A buffer of a call whose arguments have these names.
#[inline(always)] // as `mpi::Buffer::new`
pub(crate) fn buffer_of(
    names: Names,
    address: Address,
    count: i64,
    datatype: Datatype,
) -> Answer<mpi::Buffer> {
    if count < 0 {
        return Err(negative(names, count));
    }
    // SAFETY: what `Buffer::new` asks for is what MPI asks of a program that passes these. Test: `messages_go_round_on_shm`.
    unsafe { mpi::Buffer::new(address.0, count, datatype) }.map_err(|error| refused(names, address, error))
}

#[cold]
fn negative(names: Names, count: i64) -> Fault {
    Fault::new(c::MPI_ERR_COUNT, format!("{}: {count} is negative", names.count))
}

#[cold]
fn refused(names: Names, address: Address, error: mpi::Error) -> Fault {
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

/// A buffer that begins `displacement` bytes after an address. If `is_far`, the displacement has 64 bits and may be an absolute address,
/// relative to `MPI_BOTTOM`; otherwise the address itself must also be valid for the elements.
pub(crate) fn displaced(
    names: Names,
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
    names: Names,
    address: Address,
    count: N,
    datatype: types::Datatype,
) -> Answer<(Datatype, Raw)> {
    let buffer = named_buffer(names, address, count, datatype)?;
    Ok((buffer.datatype().clone(), Raw(address)))
}

/// Checks that `len` bytes can begin at an address.
pub(crate) fn check_bytes(argument: &'static str, address: Address, len: u64) -> Answer {
    let names = Names { address: argument, ..ONLY };
    buffer_of(names, address, len as i64, Datatype::from(Basic::Byte)).map(drop)
}

/// A buffer that a datatype's offsets lead into.
pub(crate) struct Raw(pub(crate) Address);

impl Memory for Raw {
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
    // SAFETY: as the head of this file says; nothing that a program passes overlaps with memory of ours. Test:
    // `datatypes` of tests/c/alone.c.
    unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
}

/// Copies bytes into a program's memory.
pub(crate) fn copy_to(address: Address, from: &[u8]) {
    let into = with_exposed_provenance_mut::<u8>(address.0);
    // SAFETY: as above.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), into, from.len()) };
}

/// So many addresses at an address; none at NULL.
pub(crate) fn addresses(array: Address, count: usize) -> Vec<Address> {
    // SAFETY: a program passes NULL or an array of so many addresses. Test: `programs_are_started`.
    let array = unsafe { In::<usize>::new(with_exposed_provenance(array.0)) };
    let addresses = array.items(count).map(|items| items.map(Address).collect::<Vec<_>>());
    addresses.unwrap_or_else(|| vec![Address(0); count])
}

/// The string at each of so many addresses at an address; none where that is NULL.
pub(crate) fn some_strings(array: Address, count: usize) -> Vec<Option<String>> {
    // SAFETY: a program passes NULL or strings. Test: as above.
    let text = |address: Address| unsafe { Text::new(with_exposed_provenance(address.0)) }.get();
    addresses(array, count).into_iter().map(text).collect()
}

/// The strings at an address, up to the one that is NULL; none at NULL.
pub(crate) fn strings(array: Address) -> Vec<String> {
    let at = |place: usize| Address(array.0 + place * size_of::<usize>());
    let texts =
        (0..).map(|place| if array.0 == 0 { None } else { some_strings(at(place), 1).pop().flatten() });
    texts.map_while(|text| text).collect()
}

/// Puts a string with a zero behind it into `room` bytes, cut if it is longer; its length without the zero.
pub(crate) fn put_text(place: Out<u8>, text: &str, room: usize) -> i32 {
    let Some(most) = room.checked_sub(1) else { return 0 };
    let end = text.floor_char_boundary(most);
    text.bytes().take(end).chain([0]).enumerate().for_each(|(at, byte)| place.nth(at).set(byte));
    end as i32
}

/// The bytes from the first to the last that elements at an address take, copied.
pub(crate) fn whole(address: Address, datatype: &Datatype, count: i64) -> Answer<(Address, Vec<u8>)> {
    let span = datatype.span(count)?;
    let mut bytes = vec![0; (span.end - span.start) as usize];
    let start = Address(address.0.wrapping_add_signed(span.start as isize));
    copy_from(start, &mut bytes);
    Ok((start, bytes))
}

/// What `MPI_Alloc_mem` gives is aligned for every basic type, and for whoever moves whole cache lines.
const ALIGNMENT: usize = 64;

/// New memory of a program's, which [`release`] takes back.
pub(crate) fn allocate(bytes: usize) -> Answer<Address> {
    let mut place = std::ptr::null_mut();
    // SAFETY: a place for the result; the alignment is a power of two and a multiple of a pointer's size. Test:
    // `environment` of tests/c/alone.c.
    let error = unsafe { libc::posix_memalign(&raw mut place, ALIGNMENT, bytes.max(1)) };
    match error {
        0 => Ok(Address(place.expose_provenance())),
        _ => Err(Fault::new(c::MPI_ERR_NO_MEM, format!("size: there are no {bytes} bytes"))),
    }
}

/// Gives memory back that [`allocate`] gave.
pub(crate) fn release(address: Address) {
    // SAFETY: a program passes what `MPI_Alloc_mem` gave, once, or NULL. Test: as above.
    unsafe { libc::free(with_exposed_provenance_mut(address.0)) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        let mut room = [7_u8; 6];
        // SAFETY: six bytes, and no more are used.
        let place = unsafe { Out::new(room.as_mut_ptr()) };
        assert_eq!(put_text(place, "abcdé", 6), 4);
        assert_eq!(room, *b"abcd\0\x07");
        assert_eq!((put_text(place, "xy", 0), put_text(place, "xy", 1), room[0]), (0, 0, 0));
    }
}
