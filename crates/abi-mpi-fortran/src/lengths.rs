//! The lengths of arrays that depend on a communicator: its size, its dimensions, and its numbers of neighbours.

use crate::arg::{address_of, result};
use crate::c::{
    MPI_Cartdim_get, MPI_Comm_rank, MPI_Comm_remote_size, MPI_Comm_size, MPI_Comm_test_inter,
    MPI_Dist_graph_neighbors_count, MPI_Graph_neighbors_count, MPI_Topo_test,
};

/// `MPI_GRAPH`, `MPI_CART` and `MPI_DIST_GRAPH`.
const GRAPH: i32 = 212;
const CART: i32 = 211;
const DIST_GRAPH: i32 = 213;

/// The number of processes that a process of this communicator communicates with in a collective operation.
pub(crate) fn size(comm: usize) -> usize {
    let is_inter = result(|flag| MPI_Comm_test_inter(comm, flag)) != 0;
    let size =
        result(|size| if is_inter { MPI_Comm_remote_size(comm, size) } else { MPI_Comm_size(comm, size) });
    usize::try_from(size).unwrap_or(0)
}

/// The dimensions of a Cartesian communicator; 0 for others, about which the call itself reports the error.
pub(crate) fn dimensions(comm: usize) -> usize {
    let is_cartesian = result(|kind| MPI_Topo_test(comm, kind)) == CART;
    let dimensions = if is_cartesian { result(|dimensions| MPI_Cartdim_get(comm, dimensions)) } else { 0 };
    usize::try_from(dimensions).unwrap_or(0)
}

/// The numbers of neighbours that a process receives from and sends to.
fn degrees(comm: usize) -> [usize; 2] {
    let ([mut indegree, mut outdegree], mut is_weighted) = ([0_i32; 2], 0_i32);
    match result(|kind| MPI_Topo_test(comm, kind)) {
        CART => return [2 * dimensions(comm); 2],
        GRAPH => {
            let rank = result(|rank| MPI_Comm_rank(comm, rank));
            indegree = result(|count| MPI_Graph_neighbors_count(comm, rank, count));
            outdegree = indegree;
        }
        DIST_GRAPH => {
            let places =
                (address_of(&mut indegree), address_of(&mut outdegree), address_of(&mut is_weighted));
            MPI_Dist_graph_neighbors_count(comm, places.0, places.1, places.2);
        }
        _ => {}
    }
    [indegree, outdegree].map(|degree| usize::try_from(degree).unwrap_or(0))
}

pub(crate) fn indegree(comm: usize) -> usize {
    degrees(comm)[0]
}

pub(crate) fn outdegree(comm: usize) -> usize {
    degrees(comm)[1]
}
