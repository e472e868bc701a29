//! Collective operations.

use findings::Stack;

use crate::calls::p2p::add;
use crate::collectives::{Call, compare};
use crate::entry::{entry, sized, word};
use crate::library::{self, SUCCESS};
use crate::memory::{Memory, values};
use crate::requests::Operation;
use crate::state;

/// The bytes of a buffer.
fn bytes(count: i64, datatype: usize) -> Option<u64> {
    Some(Memory { address: 0, count, datatype }.bytes())
}

/// The rank of this process in a communicator that is checked.
fn is_root(root: i32, comm: usize) -> bool {
    let mut rank = -1;
    let second = state::with(|state| state.messages.second_of_group(comm)).flatten();
    second.is_some_and(|second| library::comm_rank(second, &mut rank) == SUCCESS) && rank == root
}

entry!(MPI_Barrier(comm: usize) call {
    compare(CALL, comm, &Call::default());
    call()
});
sized!(MPI_Bcast MPI_Bcast_c(buffer: p, count: n, datatype: p, root: i, comm: p) call {
    compare(CALL, comm, &Call { root: Some(root), bytes: bytes(count.into(), datatype), ..Call::default() });
    call()
});
sized!(MPI_Gather MPI_Gather_c(
    sendbuf: p, sendcount: n, sendtype: p, recvbuf: p, recvcount: n, recvtype: p, root: i, comm: p
) call {
    let bytes = if is_root(root, comm) { bytes(recvcount.into(), recvtype) } else { bytes(sendcount.into(), sendtype) };
    compare(CALL, comm, &Call { root: Some(root), bytes, ..Call::default() });
    call()
});
sized!(MPI_Scatter MPI_Scatter_c(
    sendbuf: p, sendcount: n, sendtype: p, recvbuf: p, recvcount: n, recvtype: p, root: i, comm: p
) call {
    let bytes = if is_root(root, comm) { bytes(sendcount.into(), sendtype) } else { bytes(recvcount.into(), recvtype) };
    compare(CALL, comm, &Call { root: Some(root), bytes, ..Call::default() });
    call()
});
sized!(MPI_Allgather MPI_Allgather_c(
    sendbuf: p, sendcount: n, sendtype: p, recvbuf: p, recvcount: n, recvtype: p, comm: p
) call {
    compare(CALL, comm, &Call { bytes: bytes(recvcount.into(), recvtype), ..Call::default() });
    call()
});
sized!(MPI_Alltoall MPI_Alltoall_c(
    sendbuf: p, sendcount: n, sendtype: p, recvbuf: p, recvcount: n, recvtype: p, comm: p
) call {
    compare(CALL, comm, &Call { bytes: bytes(recvcount.into(), recvtype), ..Call::default() });
    call()
});
sized!(MPI_Gatherv MPI_Gatherv_c(
    sendbuf: p, sendcount: n, sendtype: p, recvbuf: p, recvcounts: p, displs: p, recvtype: p, root: i, comm: p
) call {
    compare(CALL, comm, &Call { root: Some(root), ..Call::default() });
    call()
});
sized!(MPI_Scatterv MPI_Scatterv_c(
    sendbuf: p, sendcounts: p, displs: p, sendtype: p, recvbuf: p, recvcount: n, recvtype: p, root: i, comm: p
) call {
    compare(CALL, comm, &Call { root: Some(root), ..Call::default() });
    call()
});
sized!(MPI_Allgatherv MPI_Allgatherv_c(
    sendbuf: p, sendcount: n, sendtype: p, recvbuf: p, recvcounts: p, displs: p, recvtype: p, comm: p
) call {
    compare(CALL, comm, &Call::default());
    call()
});
sized!(MPI_Alltoallv MPI_Alltoallv_c(
    sendbuf: p, sendcounts: p, sdispls: p, sendtype: p, recvbuf: p, recvcounts: p, rdispls: p, recvtype: p, comm: p
) call {
    compare(CALL, comm, &Call::default());
    call()
});
sized!(MPI_Alltoallw MPI_Alltoallw_c(
    sendbuf: p, sendcounts: p, sdispls: p, sendtypes: p, recvbuf: p, recvcounts: p, rdispls: p, recvtypes: p, comm: p
) call {
    compare(CALL, comm, &Call::default());
    call()
});
sized!(MPI_Reduce MPI_Reduce_c(sendbuf: p, recvbuf: p, count: n, datatype: p, op: p, root: i, comm: p) call {
    compare(CALL, comm, &Call { root: Some(root), ..reduction(count.into(), datatype, op) });
    call()
});

/// A reduction of this many elements.
fn reduction(count: i64, datatype: usize, op: usize) -> Call {
    Call { op: Some(op), datatype: Some(datatype), bytes: bytes(count, datatype), root: None }
}

/// Reductions without a root.
macro_rules! reductions {
    ($($name:ident $large:ident;)*) => {$(
        sized!($name $large(sendbuf: p, recvbuf: p, count: n, datatype: p, op: p, comm: p) call {
            compare(CALL, comm, &reduction(count.into(), datatype, op));
            call()
        });
    )*};
}

reductions! {
    MPI_Allreduce MPI_Allreduce_c;
    MPI_Reduce_scatter_block MPI_Reduce_scatter_block_c;
    MPI_Scan MPI_Scan_c;
    MPI_Exscan MPI_Exscan_c;
}

entry!(MPI_Reduce_scatter(sendbuf: usize, recvbuf: usize, recvcounts: usize, datatype: usize, op: usize, comm: usize) call {
    let counts: Vec<i32> = values(recvcounts, size(comm));
    compare(CALL, comm, &reduction(counts.into_iter().map(i64::from).sum(), datatype, op));
    call()
});
entry!(MPI_Reduce_scatter_c(sendbuf: usize, recvbuf: usize, recvcounts: usize, datatype: usize, op: usize, comm: usize) call {
    let counts: Vec<i64> = values(recvcounts, size(comm));
    compare(CALL, comm, &reduction(counts.into_iter().sum(), datatype, op));
    call()
});

/// The size of a communicator; 0 if it is not checked.
fn size(comm: usize) -> usize {
    let mut size = 0;
    if let Some(second) = state::with(|state| state.messages.second_of_group(comm)).flatten() {
        library::comm_size(second, &mut size);
    }
    usize::try_from(size).unwrap_or(0)
}

/// Nonblocking collectives: only their requests are watched.
macro_rules! nonblocking {
    ($($name:ident $large:ident($($arg:ident: $kind:tt),*);)*) => {$(
        sized!($name $large($($arg: $kind,)* request: p) call {
            let code = call();
            if code == SUCCESS {
                add(CALL, Operation::default(), request, false, (Stack::here(), None));
            }
            code
        });
    )*};
}

entry!(MPI_Ibarrier(comm: usize, request: usize) call {
    let code = call();
    if code == SUCCESS {
        add(CALL, Operation::default(), request, false, (Stack::here(), None));
    }
    code
});

nonblocking! {
    MPI_Ibcast MPI_Ibcast_c(buffer: p, count: n, datatype: p, root: i, comm: p);
    MPI_Igather MPI_Igather_c(sendbuf: p, sendcount: n, sendtype: p, recvbuf: p, recvcount: n, recvtype: p, root: i, comm: p);
    MPI_Iscatter MPI_Iscatter_c(sendbuf: p, sendcount: n, sendtype: p, recvbuf: p, recvcount: n, recvtype: p, root: i, comm: p);
    MPI_Iallgather MPI_Iallgather_c(sendbuf: p, sendcount: n, sendtype: p, recvbuf: p, recvcount: n, recvtype: p, comm: p);
    MPI_Ialltoall MPI_Ialltoall_c(sendbuf: p, sendcount: n, sendtype: p, recvbuf: p, recvcount: n, recvtype: p, comm: p);
    MPI_Igatherv MPI_Igatherv_c(sendbuf: p, sendcount: n, sendtype: p, recvbuf: p, recvcounts: p, displs: p, recvtype: p, root: i, comm: p);
    MPI_Iscatterv MPI_Iscatterv_c(sendbuf: p, sendcounts: p, displs: p, sendtype: p, recvbuf: p, recvcount: n, recvtype: p, root: i, comm: p);
    MPI_Iallgatherv MPI_Iallgatherv_c(sendbuf: p, sendcount: n, sendtype: p, recvbuf: p, recvcounts: p, displs: p, recvtype: p, comm: p);
    MPI_Ialltoallv MPI_Ialltoallv_c(sendbuf: p, sendcounts: p, sdispls: p, sendtype: p, recvbuf: p, recvcounts: p, rdispls: p, recvtype: p, comm: p);
    MPI_Ireduce MPI_Ireduce_c(sendbuf: p, recvbuf: p, count: n, datatype: p, op: p, root: i, comm: p);
    MPI_Iallreduce MPI_Iallreduce_c(sendbuf: p, recvbuf: p, count: n, datatype: p, op: p, comm: p);
    MPI_Iscan MPI_Iscan_c(sendbuf: p, recvbuf: p, count: n, datatype: p, op: p, comm: p);
    MPI_Iexscan MPI_Iexscan_c(sendbuf: p, recvbuf: p, count: n, datatype: p, op: p, comm: p);
    MPI_Ireduce_scatter_block MPI_Ireduce_scatter_block_c(sendbuf: p, recvbuf: p, count: n, datatype: p, op: p, comm: p);
}
