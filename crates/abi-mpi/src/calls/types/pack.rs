//! Packing and unpacking, in native format and in external32 (MPI 5.0, sections 5.2 and 5.3).

use ffi::{Out, Text};

use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::memory::{ArgumentNames, check_bytes, copy_from, copy_to, datatype_of, elements};
use crate::objects::get;
use crate::types::{self, Address, Comm, Number};

const INPUT: ArgumentNames = ArgumentNames { address: "inbuf", count: "incount", datatype: "datatype" };
const OUTPUT: ArgumentNames = ArgumentNames { address: "outbuf", count: "outcount", datatype: "datatype" };

/// The current position in a packed buffer as an address, and the number of bytes left.
fn room<N: Number>(buffer: Address, size: N, position: Out<N>) -> Answer<(Address, u64)> {
    let at = position
        .required(Fault::new(c::MPI_ERR_ARG, "position: it is NULL"))?
        .get()
        .map_or(0, Number::to_i64);
    let left = size.to_i64().checked_sub(at).filter(|left| *left >= 0 && at >= 0);
    let left =
        left.ok_or_else(|| Fault::new(c::MPI_ERR_ARG, format!("position: {at} is outside of the buffer")))?;
    Ok((Address(buffer.0.wrapping_add(at as usize)), left as u64))
}

fn advance<N: Number>(position: Out<N>, bytes: u64) {
    let next = position.get().and_then(|at| N::from_i64(at.to_i64() + bytes as i64));
    // The new position fits, as the buffer's size has the same width.
    next.into_iter().for_each(|next| position.set(next));
}

/// Checks that a packed buffer has room for `needed` bytes; errors use the given argument names.
fn check((packed, address): (Address, &'static str), (left, size): (u64, &str), needed: u64) -> Answer {
    if left < needed {
        let text = format!("{size}: {needed} bytes are needed, and {left} are left");
        return Err(Fault::new(c::MPI_ERR_TRUNCATE, text));
    }
    check_bytes(address, packed, needed)
}

/// MPI 5.0, section 5.2.
pub(crate) fn pack<N: Number>(
    inbuf: Address,
    incount: N,
    handle: types::Datatype,
    outbuf: Address,
    outsize: N,
    position: Out<N>,
    comm: Comm,
) -> Answer {
    get(comm, "comm")?;
    let (datatype, memory) = elements(INPUT, inbuf, incount, handle)?;
    let (place, left) = room(outbuf, outsize, position)?;
    let mut cursor = datatype.cursor(incount.to_i64())?;
    check((outbuf, "outbuf"), (left, "outsize"), cursor.total())?;
    let mut bytes = vec![0; cursor.total() as usize];
    cursor.pack(&memory, &mut bytes);
    copy_to(place, &bytes);
    advance(position, bytes.len() as u64);
    Ok(())
}

/// MPI 5.0, section 5.2.
pub(crate) fn unpack<N: Number>(
    inbuf: Address,
    insize: N,
    position: Out<N>,
    outbuf: Address,
    outcount: N,
    handle: types::Datatype,
    comm: Comm,
) -> Answer {
    get(comm, "comm")?;
    let (datatype, mut memory) = elements(OUTPUT, outbuf, outcount, handle)?;
    let (place, left) = room(inbuf, insize, position)?;
    let mut cursor = datatype.cursor(outcount.to_i64())?;
    check((inbuf, "inbuf"), (left, "insize"), cursor.total())?;
    let mut bytes = vec![0; cursor.total() as usize];
    copy_from(place, &mut bytes);
    cursor.unpack(&bytes, &mut memory);
    advance(position, bytes.len() as u64);
    Ok(())
}

/// Returns a number of bytes.
fn put_size<N: Number>(size: Out<N>, bytes: u64) -> Answer {
    let fitting = i64::try_from(bytes).ok().and_then(N::from_i64);
    let large = || Fault::new(c::MPI_ERR_VALUE_TOO_LARGE, format!("size: {bytes} does not fit"));
    size.set(fitting.ok_or_else(large)?);
    Ok(())
}

/// MPI 5.0, section 5.2.
pub(crate) fn pack_size<N: Number>(incount: N, handle: types::Datatype, comm: Comm, size: Out<N>) -> Answer {
    get(comm, "comm")?;
    put_size(size, datatype_of("datatype", incount.to_i64(), handle)?.bytes(incount.to_i64())?)
}

fn check_external32(datarep: Text) -> Answer {
    match datarep.get().as_deref() {
        Some("external32") => Ok(()),
        other => {
            let text = format!("datarep: '{}' is not known; external32 is", other.unwrap_or_default());
            Err(Fault::new(c::MPI_ERR_ARG, text))
        }
    }
}

/// MPI 5.0, section 5.3.
pub(crate) fn pack_external_size<N: Number>(
    datarep: Text,
    incount: N,
    handle: types::Datatype,
    size: Out<i64>,
) -> Answer {
    check_external32(datarep)?;
    put_size(size, datatype_of("datatype", incount.to_i64(), handle)?.external32_size(incount.to_i64())?)
}

/// MPI 5.0, section 5.3.
pub(crate) fn pack_external<N: Number>(
    datarep: Text,
    inbuf: Address,
    incount: N,
    handle: types::Datatype,
    outbuf: Address,
    outsize: i64,
    position: Out<i64>,
) -> Answer {
    check_external32(datarep)?;
    let (datatype, memory) = elements(INPUT, inbuf, incount, handle)?;
    let (place, left) = room(outbuf, outsize, position)?;
    let mut bytes = Vec::new();
    datatype.pack_external32(incount.to_i64(), &memory, &mut bytes)?;
    check((outbuf, "outbuf"), (left, "outsize"), bytes.len() as u64)?;
    copy_to(place, &bytes);
    advance(position, bytes.len() as u64);
    Ok(())
}

/// MPI 5.0, section 5.3.
pub(crate) fn unpack_external<N: Number>(
    datarep: Text,
    inbuf: Address,
    insize: i64,
    position: Out<i64>,
    outbuf: Address,
    outcount: N,
    handle: types::Datatype,
) -> Answer {
    check_external32(datarep)?;
    let (datatype, mut memory) = elements(OUTPUT, outbuf, outcount, handle)?;
    let (place, left) = room(inbuf, insize, position)?;
    let needed = datatype.external32_size(outcount.to_i64())?;
    check((inbuf, "inbuf"), (left, "insize"), needed)?;
    let mut bytes = vec![0; needed as usize];
    copy_from(place, &mut bytes);
    let used = datatype.unpack_external32(outcount.to_i64(), &bytes, &mut memory)?;
    advance(position, used as u64);
    Ok(())
}
