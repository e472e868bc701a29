//! Topologies: Cartesian grids, graphs, and distributed graphs, where each process knows only its own edges (MPI 5.0, chapter 8).

use ffi::{In, Out};
use mpi::{DistGraph, Graph, Grid, Topology, fill_dims};

use super::group::integers;
use crate::answer::{Answer, Fault};
use crate::constants as c;
use crate::objects::{Ref, get, insert_comm};
use crate::types::{Comm, Info, kind};

/// The error for a communicator without the topology that the call needs.
fn topology_error(what: &str) -> Fault {
    Fault::new(c::MPI_ERR_TOPOLOGY, format!("comm: it is no {what}"))
}

/// The communicator, which must have a topology.
fn comm_with_topology(comm: Comm) -> Answer<Ref<kind::Comm>> {
    let object = get(comm, "comm")?;
    if object.topology().is_none() {
        return Err(Fault::new(c::MPI_ERR_TOPOLOGY, "comm: it has no topology"));
    }
    Ok(object)
}

/// The communicator's grid.
fn grid(comm: &mpi::Comm) -> Answer<&Grid> {
    match comm.topology() {
        Some(Topology::Grid(grid)) => Ok(grid),
        _ => Err(topology_error("grid")),
    }
}

/// The communicator's graph.
fn graph(comm: &mpi::Comm) -> Answer<&Graph> {
    match comm.topology() {
        Some(Topology::Graph(graph)) => Ok(graph),
        _ => Err(topology_error("graph")),
    }
}

/// The communicator's distributed graph.
fn dist_graph(comm: &mpi::Comm) -> Answer<&DistGraph> {
    match comm.topology() {
        Some(Topology::DistGraph(edges)) => Ok(edges),
        _ => Err(topology_error("distributed graph")),
    }
}

/// The number of sources and destinations of a process in its communicator's topology.
pub(crate) fn degrees(comm: &mpi::Comm) -> Answer<(i32, i32)> {
    let (sources, destinations) = match comm.topology() {
        None => {
            return Err(Fault::new(c::MPI_ERR_TOPOLOGY, "comm: it has no topology, so it has no neighbours"));
        }
        Some(Topology::Grid(grid)) => (2 * grid.dims().len(), 2 * grid.dims().len()),
        Some(Topology::Graph(graph)) => {
            let all = graph.neighbours(comm.rank()).len();
            (all, all)
        }
        Some(Topology::DistGraph(edges)) => (edges.sources.len(), edges.destinations.len()),
    };
    Ok((sources as i32, destinations as i32))
}

/// Stores numbers in an array of `room` elements.
fn store_array(numbers: &[i32], array: Out<i32>, room: i32) {
    let room = usize::try_from(room).unwrap_or(0);
    numbers.iter().take(room).enumerate().for_each(|(at, number)| array.element(at).set(*number));
}

/// MPI 5.0, section 8.5.5.
pub(crate) fn topo_test(comm: Comm, status: Out<i32>) -> Answer {
    status.set(match get(comm, "comm")?.topology() {
        None => c::MPI_UNDEFINED,
        Some(Topology::Grid(_)) => c::MPI_CART,
        Some(Topology::Graph(_)) => c::MPI_GRAPH,
        Some(Topology::DistGraph(_)) => c::MPI_DIST_GRAPH,
    });
    Ok(())
}

/// MPI 5.0, section 8.5.2.
pub(crate) fn dims_create(nnodes: i32, ndims: i32, dims: Out<i32>) -> Answer {
    let count = usize::try_from(ndims).map_err(|_| Fault::new(c::MPI_ERR_DIMS, "ndims: it is negative"))?;
    let given: Option<Vec<i32>> = (0..count).map(|at| dims.element(at).get()).collect();
    let mut filled = given.ok_or_else(|| Fault::new(c::MPI_ERR_ARG, "dims: it is NULL"))?;
    fill_dims(nnodes, &mut filled)?;
    store_array(&filled, dims, ndims);
    Ok(())
}

/// A grid from the arguments of a call.
fn new_grid(ndims: i32, dims: In<i32>, periods: In<i32>) -> Answer<Grid> {
    let periods: Vec<bool> =
        integers(periods, ndims, "periods")?.into_iter().map(|is_ring| is_ring != 0).collect();
    Ok(Grid::new(&integers(dims, ndims, "dims")?, &periods)?)
}

/// MPI 5.0, section 8.5.1.
pub(crate) fn cart_create(
    comm_old: Comm,
    ndims: i32,
    dims: In<i32>,
    periods: In<i32>,
    reorder: i32,
    comm_cart: Out<Comm>,
) -> Answer {
    let grid = new_grid(ndims, dims, periods)?;
    comm_cart.set(insert_comm(get(comm_old, "comm_old")?.cart_create(grid, reorder != 0)?)?);
    Ok(())
}

/// MPI 5.0, section 8.5.8.
pub(crate) fn cart_map(comm: Comm, ndims: i32, dims: In<i32>, periods: In<i32>, newrank: Out<i32>) -> Answer {
    let size = new_grid(ndims, dims, periods)?.size();
    put_rank(&*get(comm, "comm")?, size, c::MPI_ERR_DIMS, newrank)
}

/// Returns the rank of this process in a topology of this size.
fn put_rank(comm: &mpi::Comm, size: i32, too_large: i32, newrank: Out<i32>) -> Answer {
    if size > comm.size() {
        let text = format!("comm: the topology has {size} processes, but it has {}", comm.size());
        return Err(Fault::new(too_large, text));
    }
    newrank.set(if comm.rank() < size { comm.rank() } else { c::MPI_UNDEFINED });
    Ok(())
}

/// MPI 5.0, section 8.5.5.
pub(crate) fn cartdim_get(comm: Comm, ndims: Out<i32>) -> Answer {
    ndims.set(grid(&*comm_with_topology(comm)?)?.dims().len() as i32);
    Ok(())
}

/// MPI 5.0, section 8.5.5.
pub(crate) fn cart_get(
    comm: Comm,
    maxdims: i32,
    dims: Out<i32>,
    periods: Out<i32>,
    coords: Out<i32>,
) -> Answer {
    let comm = comm_with_topology(comm)?;
    let grid = grid(&comm)?;
    store_array(grid.dims(), dims, maxdims);
    store_array(
        &grid.periods().iter().map(|is_ring| (*is_ring).into()).collect::<Vec<i32>>(),
        periods,
        maxdims,
    );
    store_array(&grid.coords(comm.rank())?, coords, maxdims);
    Ok(())
}

/// MPI 5.0, section 8.5.5.
pub(crate) fn cart_rank(comm: Comm, coords: In<i32>, rank: Out<i32>) -> Answer {
    let comm = comm_with_topology(comm)?;
    let grid = grid(&comm)?;
    rank.set(grid.rank(&integers(coords, grid.dims().len() as i32, "coords")?)?);
    Ok(())
}

/// MPI 5.0, section 8.5.5.
pub(crate) fn cart_coords(comm: Comm, rank: i32, maxdims: i32, coords: Out<i32>) -> Answer {
    store_array(&grid(&*comm_with_topology(comm)?)?.coords(rank)?, coords, maxdims);
    Ok(())
}

/// MPI 5.0, section 8.5.6.
pub(crate) fn cart_shift(
    comm: Comm,
    direction: i32,
    disp: i32,
    rank_source: Out<i32>,
    rank_dest: Out<i32>,
) -> Answer {
    let comm = comm_with_topology(comm)?;
    let dimension = usize::try_from(direction).unwrap_or(usize::MAX);
    let (source, destination) = grid(&comm)?.shift(comm.rank(), dimension, disp)?;
    rank_source.set(source);
    rank_dest.set(destination);
    Ok(())
}

/// MPI 5.0, section 8.5.7.
pub(crate) fn cart_sub(comm: Comm, remain_dims: In<i32>, newcomm: Out<Comm>) -> Answer {
    let comm = comm_with_topology(comm)?;
    let remain = integers(remain_dims, grid(&comm)?.dims().len() as i32, "remain_dims")?;
    let remain: Vec<bool> = remain.into_iter().map(|remains| remains != 0).collect();
    newcomm.set(insert_comm(Some(comm.cart_sub(&remain)?))?);
    Ok(())
}

/// A graph from the arguments of a call.
fn new_graph(nnodes: i32, index: In<i32>, edges: In<i32>) -> Answer<Graph> {
    let index = integers(index, nnodes, "indx")?;
    let edges = integers(edges, index.last().copied().unwrap_or(0), "edges")?;
    Ok(Graph::new(&index, &edges)?)
}

/// MPI 5.0, section 8.5.3.
pub(crate) fn graph_create(
    comm_old: Comm,
    nnodes: i32,
    indx: In<i32>,
    edges: In<i32>,
    reorder: i32,
    comm_graph: Out<Comm>,
) -> Answer {
    let graph = new_graph(nnodes, indx, edges)?;
    comm_graph.set(insert_comm(get(comm_old, "comm_old")?.graph_create(graph, reorder != 0)?)?);
    Ok(())
}

/// MPI 5.0, section 8.5.8.
pub(crate) fn graph_map(comm: Comm, nnodes: i32, indx: In<i32>, edges: In<i32>, newrank: Out<i32>) -> Answer {
    let size = new_graph(nnodes, indx, edges)?.index().len() as i32;
    put_rank(&*get(comm, "comm")?, size, c::MPI_ERR_ARG, newrank)
}

/// MPI 5.0, section 8.5.5.
pub(crate) fn graphdims_get(comm: Comm, nnodes: Out<i32>, nedges: Out<i32>) -> Answer {
    let comm = comm_with_topology(comm)?;
    let graph = graph(&comm)?;
    nnodes.set(graph.index().len() as i32);
    nedges.set(graph.edges().len() as i32);
    Ok(())
}

/// MPI 5.0, section 8.5.5.
pub(crate) fn graph_get(comm: Comm, maxindex: i32, maxedges: i32, indx: Out<i32>, edges: Out<i32>) -> Answer {
    let comm = comm_with_topology(comm)?;
    let graph = graph(&comm)?;
    store_array(graph.index(), indx, maxindex);
    store_array(graph.edges(), edges, maxedges);
    Ok(())
}

/// The neighbours of a valid rank.
fn neighbours(comm: &mpi::Comm, rank: i32) -> Answer<&[i32]> {
    let graph = graph(comm)?;
    if !(0..comm.size()).contains(&rank) {
        let text = format!("rank: {rank} is not in a graph of {}", comm.size());
        return Err(Fault::new(c::MPI_ERR_RANK, text));
    }
    Ok(graph.neighbours(rank))
}

/// MPI 5.0, section 8.5.5.
pub(crate) fn graph_neighbors_count(comm: Comm, rank: i32, nneighbors: Out<i32>) -> Answer {
    nneighbors.set(neighbours(&*comm_with_topology(comm)?, rank)?.len() as i32);
    Ok(())
}

/// MPI 5.0, section 8.5.5.
pub(crate) fn graph_neighbors(comm: Comm, rank: i32, maxneighbors: i32, array: Out<i32>) -> Answer {
    store_array(neighbours(&*comm_with_topology(comm)?, rank)?, array, maxneighbors);
    Ok(())
}

/// The weights of `count` edges; `None` for `MPI_UNWEIGHTED`. `MPI_WEIGHTS_EMPTY` is an empty list.
fn weights(array: In<i32>, count: i32, argument: &str) -> Answer<Option<Vec<i32>>> {
    match array.addr() {
        c::MPI_UNWEIGHTED => Ok(None),
        c::MPI_WEIGHTS_EMPTY if count == 0 => Ok(Some(Vec::new())),
        c::MPI_WEIGHTS_EMPTY => {
            let text = format!("{argument}: it is MPI_WEIGHTS_EMPTY, but there are {count} edges");
            Err(Fault::new(c::MPI_ERR_ARG, text))
        }
        _ => integers(array, count, argument).map(Some),
    }
}

/// Hints are ignored; weights matter if ranks are reordered (MPI 5.0, section 8.5.4).
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn dist_graph_create_adjacent(
    comm_old: Comm,
    indegree: i32,
    sources: In<i32>,
    sourceweights: In<i32>,
    outdegree: i32,
    destinations: In<i32>,
    destweights: In<i32>,
    _info: Info,
    reorder: i32,
    comm_dist_graph: Out<Comm>,
) -> Answer {
    let of_sources = weights(sourceweights, indegree, "sourceweights")?;
    let weights = of_sources.zip(weights(destweights, outdegree, "destweights")?);
    let neighbours = DistGraph {
        sources: integers(sources, indegree, "sources")?,
        destinations: integers(destinations, outdegree, "destinations")?,
        weights: weights.map(<[Vec<i32>; 2]>::from),
    };
    let made = get(comm_old, "comm_old")?.dist_graph_create_adjacent(neighbours, reorder != 0)?;
    comm_dist_graph.set(insert_comm(Some(made))?);
    Ok(())
}

/// As [`dist_graph_create_adjacent`] (MPI 5.0, section 8.5.4).
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn dist_graph_create(
    comm_old: Comm,
    n: i32,
    sources: In<i32>,
    degrees: In<i32>,
    destinations: In<i32>,
    weights: In<i32>,
    _info: Info,
    reorder: i32,
    comm_dist_graph: Out<Comm>,
) -> Answer {
    let (sources, degrees) = (integers(sources, n, "sources")?, integers(degrees, n, "degrees")?);
    if let Some(degree) = degrees.iter().find(|degree| **degree < 0) {
        return Err(Fault::new(c::MPI_ERR_ARG, format!("degrees: {degree} is negative")));
    }
    let count = degrees.iter().try_fold(0_i32, |sum, degree| sum.checked_add(*degree));
    let count = count.ok_or_else(|| Fault::new(c::MPI_ERR_ARG, "degrees: their sum passes 32 bits"))?;
    let weights = self::weights(weights, count, "weights")?;
    let is_weighted = weights.is_some();
    let from = sources.iter().zip(&degrees).flat_map(|(source, degree)| vec![*source; *degree as usize]);
    let to = integers(destinations, count, "destinations")?;
    let weights = weights.unwrap_or_else(|| vec![0; count as usize]);
    let edges = from.zip(to).zip(weights).map(|((source, to), weight)| [source, to, weight]).collect();
    let made = get(comm_old, "comm_old")?.dist_graph_create(&edges, is_weighted, reorder != 0)?;
    comm_dist_graph.set(insert_comm(Some(made))?);
    Ok(())
}

/// MPI 5.0, section 8.5.5.
pub(crate) fn dist_graph_neighbors_count(
    comm: Comm,
    indegree: Out<i32>,
    outdegree: Out<i32>,
    weighted: Out<i32>,
) -> Answer {
    let comm = comm_with_topology(comm)?;
    let edges = dist_graph(&comm)?;
    indegree.set(edges.sources.len() as i32);
    outdegree.set(edges.destinations.len() as i32);
    weighted.set(edges.weights.is_some().into());
    Ok(())
}

/// MPI 5.0, section 8.5.5.
#[allow(clippy::too_many_arguments)] // as many as the standard has
pub(crate) fn dist_graph_neighbors(
    comm: Comm,
    maxindegree: i32,
    sources: Out<i32>,
    sourceweights: Out<i32>,
    maxoutdegree: i32,
    destinations: Out<i32>,
    destweights: Out<i32>,
) -> Answer {
    let comm = comm_with_topology(comm)?;
    let edges = dist_graph(&comm)?;
    store_array(&edges.sources, sources, maxindegree);
    store_array(&edges.destinations, destinations, maxoutdegree);
    if let Some([of_sources, of_destinations]) = &edges.weights {
        put_weights(of_sources, sourceweights, maxindegree);
        put_weights(of_destinations, destweights, maxoutdegree);
    }
    Ok(())
}

/// Stores weights in an array, unless the program passed `MPI_UNWEIGHTED`.
fn put_weights(weights: &[i32], array: Out<i32>, room: i32) {
    if ![c::MPI_UNWEIGHTED, c::MPI_WEIGHTS_EMPTY].contains(&array.addr()) {
        store_array(weights, array, room);
    }
}
