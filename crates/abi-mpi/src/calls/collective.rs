//! Collective operations in their blocking, nonblocking and persistent forms (MPI 5.0, chapter 6), and those on neighborhoods
//! (sections 8.6 to 8.8).
//!
//! Arguments that MPI calls not significant at a process are not read: they may have any value.

use datatypes::{Datatype, Operator};
use ffi::{In, Out};
use mpi::{Buffer, Collective, SmallCollective};

use super::p2p::request::new_request;
use super::topology::degrees;
use super::types::datatype::numbers;
use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::memory::{
    ArgumentNames, RECEIVE, SEND, buffer, buffer_at, datatype_of, named_buffer, piece, pieces,
};
use crate::objects::{self, datatype, get};
use crate::strict;
use crate::types::{self, Address, Comm, Number, Op};

const SEND_ALL: ArgumentNames = ArgumentNames { count: "sendcounts", ..SEND };
const RECEIVE_ALL: ArgumentNames = ArgumentNames { count: "recvcounts", ..RECEIVE };
const REDUCE_FROM: ArgumentNames = ArgumentNames { count: "count", datatype: "datatype", ..SEND };
const REDUCE_INTO: ArgumentNames = ArgumentNames { count: "count", datatype: "datatype", ..RECEIVE };

/// Whether this process is the root: it receives what is gathered, or holds what is scattered.
fn is_root(comm: &mpi::Comm, root: i32) -> bool {
    root == if comm.is_inter() { mpi::ROOT } else { comm.rank() }
}

/// Whether a process has its own block in a rooted operation. In an intercommunicator, these are the processes that name a root of
/// the remote group.
fn has_own_block(comm: &mpi::Comm, root: i32) -> bool {
    !comm.is_inter() || root >= 0
}

/// A buffer, or `None` for `MPI_IN_PLACE`.
fn unless_in_place(address: Address, buffer: impl FnOnce() -> Answer<Buffer>) -> Answer<Option<Buffer>> {
    if address.0 == c::MPI_IN_PLACE { Ok(None) } else { buffer().map(Some) }
}

/// A buffer if it is significant, otherwise an empty one.
fn if_significant(is_significant: bool, buffer: impl FnOnce() -> Answer<Buffer>) -> Answer<Buffer> {
    if is_significant { buffer() } else { Ok(Buffer::empty()) }
}

/// One contiguous buffer with a block for each of `ranks` ranks.
fn blocks<N: Number>(
    names: ArgumentNames,
    address: Address,
    count: N,
    datatype: types::Datatype,
    ranks: i32,
) -> Answer<Buffer> {
    let (count, ranks) = (count.to_i64(), i64::from(ranks));
    // A negative count stays negative, so that the later check reports it.
    let all = if count < 0 { Some(count) } else { count.checked_mul(ranks) };
    let too_many =
        || Fault::new(c::MPI_ERR_COUNT, format!("sendcount or recvcount: {count} for {ranks} ranks"));
    named_buffer(names, address, all.ok_or_else(too_many)?, datatype)
}

/// Empty blocks, if all counts are 0: the call then ignores addresses, displacements and datatypes.
fn empty_blocks(counts: &[i64]) -> Option<Vec<Buffer>> {
    counts.iter().all(|count| *count == 0).then(|| vec![Buffer::empty(); counts.len()])
}

/// Blocks of one datatype at displacements in extents.
fn blocks_at_displacements<N: Number>(
    names: ArgumentNames,
    address: Address,
    (counts, displacements): (In<N>, In<N>),
    handle: types::Datatype,
    ranks: i32,
) -> Answer<Vec<Buffer>> {
    let counts = numbers(counts, ranks.into(), names.count)?;
    if let Some(blocks) = empty_blocks(&counts) {
        return Ok(blocks);
    }
    let displacements = numbers(displacements, ranks.into(), "displs")?;
    let datatype = datatype(handle, names.datatype)?;
    let block = |(count, displacement): (i64, i64)| {
        let displacement = (displacement.wrapping_mul(datatype.extent()), N::IS_LARGE);
        buffer_at(names, address, displacement, count, datatype.clone())
    };
    counts.into_iter().zip(displacements).map(block).collect()
}

/// Blocks of one datatype each at displacements in bytes.
fn blocks_with_types<N: Number, D: Number>(
    names: ArgumentNames,
    address: Address,
    (counts, displacements): (In<N>, In<D>),
    handles: In<types::Datatype>,
    ranks: i32,
) -> Answer<Vec<Buffer>> {
    let counts = numbers(counts, ranks.into(), names.count)?;
    if let Some(blocks) = empty_blocks(&counts) {
        return Ok(blocks);
    }
    let displacements = numbers(displacements, ranks.into(), "displs")?;
    let none = || Fault::new(c::MPI_ERR_ARG, format!("{}s: it is NULL", names.datatype));
    let handles = handles.items(counts.len()).ok_or_else(none)?;
    let block = |((count, displacement), handle): ((i64, i64), types::Datatype)| {
        let datatype = datatype_of(names.datatype, count, handle)?;
        buffer_at(names, address, (displacement, D::IS_LARGE), count, datatype)
    };
    counts.into_iter().zip(displacements).zip(handles).map(block).collect()
}

/// The operator of a handle, checked for reducing elements of a datatype.
fn operator(op: Op, datatype: types::Datatype) -> Answer<datatypes::Op> {
    let op = get(op, "op")?.0.clone();
    strict::check_reduction(&op, datatype)?;
    Ok(op)
}

/// The fast path: runs a short collective without a schedule; `None` if that is not possible.
#[inline]
fn try_small(comm: Comm, call: impl FnOnce() -> Option<SmallCollective>) -> Option<Answer> {
    let done = objects::try_with_comm(comm, |comm| comm.try_collective(&call()?)).flatten()?;
    Some(done.map_err(Fault::from))
}

/// MPI 5.0, section 6.3.
pub(crate) fn barrier(comm: Comm) -> Answer {
    try_small(comm, || Some(SmallCollective::Barrier)).unwrap_or_else(|| barrier_scheduled(comm))
}

/// MPI 5.0, section 6.4.
pub(crate) fn bcast<N: Number>(
    buffer: Address,
    count: N,
    datatype: types::Datatype,
    root: i32,
    comm: Comm,
) -> Answer {
    let call = || Some(SmallCollective::Bcast { piece: piece(buffer, count, datatype)?, root });
    try_small(comm, call).unwrap_or_else(|| bcast_scheduled(buffer, count, datatype, root, comm))
}

/// MPI 5.0, section 6.9.6.
pub(crate) fn allreduce<N: Number>(
    sendbuf: Address,
    recvbuf: Address,
    count: N,
    datatype: types::Datatype,
    op: Op,
    comm: Comm,
) -> Answer {
    let call = || {
        let is_in_place = sendbuf.0 == c::MPI_IN_PLACE;
        let input = if is_in_place { None } else { Some(piece(sendbuf, count, datatype)?) };
        let output = piece(recvbuf, count, datatype)?;
        let basic =
            Datatype::predefined_basic(datatype.value()).filter(|basic| strict::is_allowed(*basic))?;
        let operator = Operator::from_abi(op.value().try_into().ok()?).filter(|op| !op.selects_operand())?;
        Some(SmallCollective::Allreduce { input, output, basic, operator })
    };
    try_small(comm, call).unwrap_or_else(|| allreduce_scheduled(sendbuf, recvbuf, count, datatype, op, comm))
}

/// Allgather (MPI 5.0, section 6.7) and alltoall (section 6.8): try the fast path, then the general one. Each rank sends one block, or one
/// to each rank.
macro_rules! exchanges {
    ($($name:ident, $long:ident, $call:ident, $is_one_given:literal;)*) => {
        $(
            #[allow(clippy::too_many_arguments)] // as many as the standard has
            pub(crate) fn $name<N: Number>(
                sendbuf: Address,
                sendcount: N,
                sendtype: types::Datatype,
                recvbuf: Address,
                recvcount: N,
                recvtype: types::Datatype,
                comm: Comm,
            ) -> Answer {
                let done = objects::try_with_comm(comm, |comm| {
                    let ranks = comm.peers().size();
                    let given = if $is_one_given { 1 } else { ranks };
                    let call = SmallCollective::$call {
                        input: pieces(sendbuf, sendcount, sendtype, given)?,
                        output: pieces(recvbuf, recvcount, recvtype, ranks)?,
                    };
                    comm.try_collective(&call)
                });
                match done.flatten() {
                    Some(done) => Ok(done?),
                    None => $long(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm),
                }
            }
        )*
    };
}

exchanges! {
    allgather, allgather_scheduled, Allgather, true;
    alltoall, alltoall_scheduled, Alltoall, false;
}

/// The blocking, nonblocking and persistent form of each operation. `comm` names the communicator in the body, which builds the
/// operation. The sections beside the operations are those of the blocking forms. MPI 5.0 has the nonblocking forms in section 6.12 and the
/// persistent ones in 6.13; those of neighborhood collectives in 8.7 and 8.8.
macro_rules! collectives {
    ($(fn $wait:ident, $begin:ident, $make:ident [$($number:ident)?] ($comm:ident $(, $name:ident: $kind:ty)*) $body:block)*) => {
        $(
            #[allow(clippy::too_many_arguments)] // as many as the standard has
            pub(crate) fn $wait$(<$number: Number>)?($($name: $kind,)* comm: Comm) -> Answer {
                let $comm = get(comm, "comm")?;
                let call = $body;
                call.check_apart()?;
                Ok($comm.collective(&call)?)
            }

            #[allow(clippy::too_many_arguments)] // as many as the standard has
            pub(crate) fn $begin$(<$number: Number>)?(
                $($name: $kind,)*
                comm: Comm,
                request: Out<types::Request>,
            ) -> Answer {
                let $comm = get(comm, "comm")?;
                let call = $body;
                call.check_apart()?;
                new_request($comm.icollective(&call)?, request)
            }

            #[allow(clippy::too_many_arguments)] // as many as the standard has
            pub(crate) fn $make$(<$number: Number>)?(
                $($name: $kind,)*
                comm: Comm,
                _info: types::Info,
                request: Out<types::Request>,
            ) -> Answer {
                let $comm = get(comm, "comm")?;
                let call = $body;
                call.check_apart()?;
                new_request($comm.collective_init(&call)?, request)
            }
        )*
    };
}

collectives! {
    // MPI 5.0, section 6.3.
    fn barrier_scheduled, ibarrier, barrier_init [] (comm) {
        Collective::Barrier
    }

    // MPI 5.0, section 6.4.
    fn bcast_scheduled, ibcast, bcast_init [N] (comm, buf: Address, count: N, datatype: types::Datatype, root: i32) {
        // In the root's group of an intercommunicator, only the root has data.
        let is_significant = has_own_block(&comm, root) || is_root(&comm, root);
        Collective::Bcast { buffer: if_significant(is_significant, || buffer(buf, count, datatype))?, root }
    }

    // MPI 5.0, section 6.5.
    fn gather, igather, gather_init [N] (
        comm, sendbuf: Address, sendcount: N, sendtype: types::Datatype,
        recvbuf: Address, recvcount: N, recvtype: types::Datatype, root: i32
    ) {
        let own = || if_significant(has_own_block(&comm, root), || named_buffer(SEND, sendbuf, sendcount, sendtype));
        let all = || blocks(RECEIVE, recvbuf, recvcount, recvtype, comm.peers().size());
        let output = if_significant(is_root(&comm, root), all)?;
        Collective::Gather { input: unless_in_place(sendbuf, own)?, output, root }
    }

    // MPI 5.0, section 6.5.
    fn gatherv, igatherv, gatherv_init [N] (
        comm, sendbuf: Address, sendcount: N, sendtype: types::Datatype,
        recvbuf: Address, recvcounts: In<N>, displs: In<N>, recvtype: types::Datatype, root: i32
    ) {
        let own = || if_significant(has_own_block(&comm, root), || named_buffer(SEND, sendbuf, sendcount, sendtype));
        let ranks = if is_root(&comm, root) { comm.peers().size() } else { 0 };
        let output = match ranks {
            0 => Vec::new(),
            _ => blocks_at_displacements(RECEIVE_ALL, recvbuf, (recvcounts, displs), recvtype, ranks)?,
        };
        Collective::Gatherv { input: unless_in_place(sendbuf, own)?, output, root }
    }

    // MPI 5.0, section 6.6.
    fn scatter, iscatter, scatter_init [N] (
        comm, sendbuf: Address, sendcount: N, sendtype: types::Datatype,
        recvbuf: Address, recvcount: N, recvtype: types::Datatype, root: i32
    ) {
        let all = || blocks(SEND, sendbuf, sendcount, sendtype, comm.peers().size());
        let own = || if_significant(has_own_block(&comm, root), || named_buffer(RECEIVE, recvbuf, recvcount, recvtype));
        let input = if_significant(is_root(&comm, root), all)?;
        Collective::Scatter { input, output: unless_in_place(recvbuf, own)?, root }
    }

    // MPI 5.0, section 6.6.
    fn scatterv, iscatterv, scatterv_init [N] (
        comm, sendbuf: Address, sendcounts: In<N>, displs: In<N>, sendtype: types::Datatype,
        recvbuf: Address, recvcount: N, recvtype: types::Datatype, root: i32
    ) {
        let own = || if_significant(has_own_block(&comm, root), || named_buffer(RECEIVE, recvbuf, recvcount, recvtype));
        let ranks = if is_root(&comm, root) { comm.peers().size() } else { 0 };
        let input = match ranks {
            0 => Vec::new(),
            _ => blocks_at_displacements(SEND_ALL, sendbuf, (sendcounts, displs), sendtype, ranks)?,
        };
        Collective::Scatterv { input, output: unless_in_place(recvbuf, own)?, root }
    }

    // MPI 5.0, section 6.7.
    fn allgather_scheduled, iallgather, allgather_init [N] (
        comm, sendbuf: Address, sendcount: N, sendtype: types::Datatype,
        recvbuf: Address, recvcount: N, recvtype: types::Datatype
    ) {
        let input = unless_in_place(sendbuf, || named_buffer(SEND, sendbuf, sendcount, sendtype))?;
        Collective::Allgather { input, output: blocks(RECEIVE, recvbuf, recvcount, recvtype, comm.peers().size())? }
    }

    // MPI 5.0, section 6.7.
    fn allgatherv, iallgatherv, allgatherv_init [N] (
        comm, sendbuf: Address, sendcount: N, sendtype: types::Datatype,
        recvbuf: Address, recvcounts: In<N>, displs: In<N>, recvtype: types::Datatype
    ) {
        let input = unless_in_place(sendbuf, || named_buffer(SEND, sendbuf, sendcount, sendtype))?;
        let output = blocks_at_displacements(RECEIVE_ALL, recvbuf, (recvcounts, displs), recvtype, comm.peers().size())?;
        Collective::Allgatherv { input, output }
    }

    // MPI 5.0, section 6.8.
    fn alltoall_scheduled, ialltoall, alltoall_init [N] (
        comm, sendbuf: Address, sendcount: N, sendtype: types::Datatype,
        recvbuf: Address, recvcount: N, recvtype: types::Datatype
    ) {
        let ranks = comm.peers().size();
        let input = unless_in_place(sendbuf, || blocks(SEND, sendbuf, sendcount, sendtype, ranks))?;
        Collective::Alltoall { input, output: blocks(RECEIVE, recvbuf, recvcount, recvtype, ranks)? }
    }

    // MPI 5.0, section 6.8.
    fn alltoallv, ialltoallv, alltoallv_init [N] (
        comm, sendbuf: Address, sendcounts: In<N>, sdispls: In<N>, sendtype: types::Datatype,
        recvbuf: Address, recvcounts: In<N>, rdispls: In<N>, recvtype: types::Datatype
    ) {
        let ranks = comm.peers().size();
        let input = match sendbuf.0 {
            c::MPI_IN_PLACE => None,
            _ => Some(blocks_at_displacements(SEND_ALL, sendbuf, (sendcounts, sdispls), sendtype, ranks)?),
        };
        Collective::Alltoallw {
            input,
            output: blocks_at_displacements(RECEIVE_ALL, recvbuf, (recvcounts, rdispls), recvtype, ranks)?,
        }
    }

    // MPI 5.0, section 6.8.
    fn alltoallw, ialltoallw, alltoallw_init [N] (
        comm, sendbuf: Address, sendcounts: In<N>, sdispls: In<N>, sendtypes: In<types::Datatype>,
        recvbuf: Address, recvcounts: In<N>, rdispls: In<N>, recvtypes: In<types::Datatype>
    ) {
        let ranks = comm.peers().size();
        let input = match sendbuf.0 {
            c::MPI_IN_PLACE => None,
            _ => Some(blocks_with_types(SEND_ALL, sendbuf, (sendcounts, sdispls), sendtypes, ranks)?),
        };
        Collective::Alltoallw {
            input,
            output: blocks_with_types(RECEIVE_ALL, recvbuf, (recvcounts, rdispls), recvtypes, ranks)?,
        }
    }

    // MPI 5.0, section 6.9.1.
    fn reduce, ireduce, reduce_init [N] (
        comm, sendbuf: Address, recvbuf: Address, count: N, datatype: types::Datatype, op: Op, root: i32
    ) {
        let from = || named_buffer(REDUCE_FROM, sendbuf, count, datatype);
        let input = unless_in_place(sendbuf, || if_significant(has_own_block(&comm, root), from))?;
        let into = || named_buffer(REDUCE_INTO, recvbuf, count, datatype);
        let output = if_significant(is_root(&comm, root), into)?;
        Collective::Reduce { input, output, op: operator(op, datatype)?, root }
    }

    // MPI 5.0, section 6.9.6.
    fn allreduce_scheduled, iallreduce, allreduce_init [N] (
        comm, sendbuf: Address, recvbuf: Address, count: N, datatype: types::Datatype, op: Op
    ) {
        let input = unless_in_place(sendbuf, || named_buffer(REDUCE_FROM, sendbuf, count, datatype))?;
        let output = named_buffer(REDUCE_INTO, recvbuf, count, datatype)?;
        Collective::Allreduce { input, output, op: operator(op, datatype)? }
    }

    // MPI 5.0, section 6.10.2.
    fn reduce_scatter, ireduce_scatter, reduce_scatter_init [N] (
        comm, sendbuf: Address, recvbuf: Address, recvcounts: In<N>, datatype: types::Datatype, op: Op
    ) {
        let counts = numbers(recvcounts, comm.size().into(), "recvcounts")?;
        reduce_scatter_call(&comm, sendbuf, recvbuf, counts, datatype, op)?
    }

    // MPI 5.0, section 6.10.1.
    fn reduce_scatter_block, ireduce_scatter_block, reduce_scatter_block_init [N] (
        comm, sendbuf: Address, recvbuf: Address, recvcount: N, datatype: types::Datatype, op: Op
    ) {
        let counts = vec![recvcount.to_i64(); comm.size() as usize];
        reduce_scatter_call(&comm, sendbuf, recvbuf, counts, datatype, op)?
    }

    // MPI 5.0, section 6.11.1.
    fn scan, iscan, scan_init [N] (
        comm, sendbuf: Address, recvbuf: Address, count: N, datatype: types::Datatype, op: Op
    ) {
        let input = unless_in_place(sendbuf, || named_buffer(REDUCE_FROM, sendbuf, count, datatype))?;
        let output = named_buffer(REDUCE_INTO, recvbuf, count, datatype)?;
        Collective::Scan { input, output, op: operator(op, datatype)? }
    }

    // MPI 5.0, section 6.11.2.
    fn exscan, iexscan, exscan_init [N] (
        comm, sendbuf: Address, recvbuf: Address, count: N, datatype: types::Datatype, op: Op
    ) {
        let input = unless_in_place(sendbuf, || named_buffer(REDUCE_FROM, sendbuf, count, datatype))?;
        let output = named_buffer(REDUCE_INTO, recvbuf, count, datatype)?;
        Collective::Exscan { input, output, op: operator(op, datatype)? }
    }

    // MPI 5.0, section 8.6.1.
    fn neighbor_allgather, ineighbor_allgather, neighbor_allgather_init [N] (
        comm, sendbuf: Address, sendcount: N, sendtype: types::Datatype,
        recvbuf: Address, recvcount: N, recvtype: types::Datatype
    ) {
        let (sources, _) = degrees(&comm)?;
        Collective::NeighborAllgather {
            input: named_buffer(SEND, sendbuf, sendcount, sendtype)?,
            output: blocks(RECEIVE, recvbuf, recvcount, recvtype, sources)?,
        }
    }

    // MPI 5.0, section 8.6.1.
    fn neighbor_allgatherv, ineighbor_allgatherv, neighbor_allgatherv_init [N] (
        comm, sendbuf: Address, sendcount: N, sendtype: types::Datatype,
        recvbuf: Address, recvcounts: In<N>, displs: In<N>, recvtype: types::Datatype
    ) {
        let (sources, _) = degrees(&comm)?;
        Collective::NeighborAllgatherv {
            input: named_buffer(SEND, sendbuf, sendcount, sendtype)?,
            output: blocks_at_displacements(RECEIVE_ALL, recvbuf, (recvcounts, displs), recvtype, sources)?,
        }
    }

    // MPI 5.0, section 8.6.2.
    fn neighbor_alltoall, ineighbor_alltoall, neighbor_alltoall_init [N] (
        comm, sendbuf: Address, sendcount: N, sendtype: types::Datatype,
        recvbuf: Address, recvcount: N, recvtype: types::Datatype
    ) {
        let (sources, destinations) = degrees(&comm)?;
        Collective::NeighborAlltoall {
            input: blocks(SEND, sendbuf, sendcount, sendtype, destinations)?,
            output: blocks(RECEIVE, recvbuf, recvcount, recvtype, sources)?,
        }
    }

    // MPI 5.0, section 8.6.2.
    fn neighbor_alltoallv, ineighbor_alltoallv, neighbor_alltoallv_init [N] (
        comm, sendbuf: Address, sendcounts: In<N>, sdispls: In<N>, sendtype: types::Datatype,
        recvbuf: Address, recvcounts: In<N>, rdispls: In<N>, recvtype: types::Datatype
    ) {
        let (sources, destinations) = degrees(&comm)?;
        Collective::NeighborAlltoallw {
            input: blocks_at_displacements(SEND_ALL, sendbuf, (sendcounts, sdispls), sendtype, destinations)?,
            output: blocks_at_displacements(RECEIVE_ALL, recvbuf, (recvcounts, rdispls), recvtype, sources)?,
        }
    }

    // MPI 5.0, section 8.6.2.
    fn neighbor_alltoallw, ineighbor_alltoallw, neighbor_alltoallw_init [N] (
        comm, sendbuf: Address, sendcounts: In<N>, sdispls: In<i64>, sendtypes: In<types::Datatype>,
        recvbuf: Address, recvcounts: In<N>, rdispls: In<i64>, recvtypes: In<types::Datatype>
    ) {
        let (sources, destinations) = degrees(&comm)?;
        Collective::NeighborAlltoallw {
            input: blocks_with_types(SEND_ALL, sendbuf, (sendcounts, sdispls), sendtypes, destinations)?,
            output: blocks_with_types(RECEIVE_ALL, recvbuf, (recvcounts, rdispls), recvtypes, sources)?,
        }
    }
}

/// `MPI_Reduce_scatter` and `MPI_Reduce_scatter_block`: each rank receives a block of the result.
fn reduce_scatter_call(
    comm: &mpi::Comm,
    sendbuf: Address,
    recvbuf: Address,
    counts: Vec<i64>,
    datatype: types::Datatype,
    op: Op,
) -> Answer<Collective> {
    if let Some(count) = counts.iter().find(|count| **count < 0) {
        return Err(Fault::new(c::MPI_ERR_COUNT, format!("recvcounts: {count} is negative")));
    }
    let sum = counts.iter().try_fold(0_i64, |sum, count| sum.checked_add(*count));
    let all = sum.ok_or_else(|| Fault::new(c::MPI_ERR_COUNT, "recvcounts: their sum passes 64 bits"))?;
    let input = unless_in_place(sendbuf, || named_buffer(REDUCE_FROM, sendbuf, all, datatype))?;
    let own = if input.is_none() { all } else { counts[comm.rank() as usize] };
    let output = named_buffer(REDUCE_INTO, recvbuf, own, datatype)?;
    Ok(Collective::ReduceScatter { input, output, counts, op: operator(op, datatype)? })
}
