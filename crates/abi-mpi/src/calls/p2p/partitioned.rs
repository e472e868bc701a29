//! Partitioned communication (MPI 5.0, chapter 4).

use ffi::{In, Out};
use mpi::{Buffer, PeerTag};

use super::request::{new_request, pready_range};
use crate::answer::{Answer, Fault};
use crate::calls::group::integers;
use crate::constants as c;
use crate::memory::buffer;
use crate::objects::get;
use crate::types::{self, Address, Comm, Info};

/// The buffer that contains all partitions of a message; `count` elements are one partition.
fn whole_buffer(buf: Address, partitions: i32, count: i64, datatype: types::Datatype) -> Answer<Buffer> {
    if partitions < 1 {
        return Err(Fault::new(c::MPI_ERR_ARG, format!("partitions: {partitions} is less than 1")));
    }
    // `buffer` rejects a negative count.
    let total = if count < 0 { Some(count) } else { count.checked_mul(partitions.into()) };
    let too_many = || Fault::new(c::MPI_ERR_COUNT, format!("count: {count} in {partitions} partitions"));
    buffer(buf, total.ok_or_else(too_many)?, datatype)
}

/// MPI 5.0, section 4.2.1.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn psend_init(
    buf: Address,
    partitions: i32,
    count: i64,
    datatype: types::Datatype,
    dest: i32,
    tag: i32,
    comm: Comm,
    _info: Info,
    request: Out<types::Request>,
) -> Answer {
    let comm = get(comm, "comm")?;
    let buffer = whole_buffer(buf, partitions, count, datatype)?;
    new_request(comm.send_parts_init(buffer, partitions, PeerTag { rank: dest, tag })?, request)
}

/// MPI 5.0, section 4.2.1.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn precv_init(
    buf: Address,
    partitions: i32,
    count: i64,
    datatype: types::Datatype,
    source: i32,
    tag: i32,
    comm: Comm,
    _info: Info,
    request: Out<types::Request>,
) -> Answer {
    let comm = get(comm, "comm")?;
    let buffer = whole_buffer(buf, partitions, count, datatype)?;
    new_request(comm.receive_parts_init(buffer, partitions, PeerTag { rank: source, tag })?, request)
}

/// MPI 5.0, section 4.2.1.
pub(crate) fn pready(partition: i32, request: types::Request) -> Answer {
    pready_range(partition, partition, request)
}

/// MPI 5.0, section 4.2.1.
pub(crate) fn pready_list(length: i32, array: In<i32>, request: types::Request) -> Answer {
    let list = integers(array, length, "array_of_partitions")?;
    list.into_iter().try_for_each(|part| pready(part, request))
}
