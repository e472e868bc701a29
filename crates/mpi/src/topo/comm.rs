//! Communicators with a [`Topology`] (MPI 5.0, section 8.5). Where the program allows reordering, and there are several hosts,
//! ranks are assigned so that neighbours are on the same host ([`crate::topo::map`]).

use crate::comm::communicator::Comm;
use crate::comm::group::Group;
use crate::error::{Class, Error, Result};
use crate::topo::map::{Edge, map_ranks};
use crate::topo::topology::{DistGraph, Graph, Grid, Topology};

/// Edges of a distributed graph: source, destination and weight of each.
type Edges = Vec<[i32; 3]>;

impl Comm {
    /// A communicator of the first members as a grid; `None` at the others. With `reorder`, ranks may differ from those here.
    /// Collective (MPI 5.0, section 8.5.1).
    ///
    /// # Errors
    /// [`Class::DIMS`] for a grid of more members than exist; [`Class::COMM`] for an intercommunicator;
    /// [`Class::PROC_ABORTED`] when a member is lost.
    pub fn cart_create(&self, grid: Grid, reorder: bool) -> Result<Option<Self>> {
        let size = grid.size();
        self.create_with_topology(size, Topology::Grid(grid), reorder, Class::DIMS)
    }

    /// A communicator of the first members as a graph; `None` at the others. With `reorder`, ranks may differ from those here.
    /// Collective (MPI 5.0, section 8.5.3).
    ///
    /// # Errors
    /// As [`Comm::cart_create`], but [`Class::ARG`] for too many.
    pub fn graph_create(&self, graph: Graph, reorder: bool) -> Result<Option<Self>> {
        let size = graph.index().len() as i32;
        self.create_with_topology(size, Topology::Graph(graph), reorder, Class::ARG)
    }

    fn create_with_topology(
        &self,
        size: i32,
        topology: Topology,
        reorder: bool,
        too_many: Class,
    ) -> Result<Option<Self>> {
        self.check_intra()?;
        if size > self.size() {
            let text = format!("the topology has {size} processes, but the communicator {}", self.size());
            return Err(Error::new(too_many, text));
        }
        let context = self.agree_context()?;
        if self.rank() >= size {
            return Ok(None);
        }
        let mut members = self.group().members()[..size as usize].to_vec();
        if let Some(hosts) = self.host_numbers(size as usize, reorder)? {
            let edges = (0..size).flat_map(|rank| {
                let to = topology.neighbours(rank).destinations.into_iter().flatten();
                to.map(move |to| (rank as usize, to, 1))
            });
            if let Some(order) = map_ranks(&hosts, &edges.collect::<Vec<_>>()) {
                members = order.iter().map(|at| members[*at]).collect();
            }
        }
        self.derive(context, Group::new(members)?, None, Some(topology)).map(Some)
    }

    /// The host number of each of the first members, if reordering is allowed and there are several hosts.
    fn host_numbers(&self, size: usize, reorder: bool) -> Result<Option<Vec<usize>>> {
        if !reorder {
            return Ok(None);
        }
        let hosts = self.number_hosts(size)?;
        Ok((hosts.iter().max() > Some(&0)).then_some(hosts))
    }

    fn check_intra(&self) -> Result<()> {
        if self.is_inter() {
            return Err(Error::new(Class::COMM, "an intercommunicator has no topology"));
        }
        Ok(())
    }

    /// A communicator of the members that differ only in the remaining dimensions of the grid. Collective (MPI 5.0, section 8.5.7).
    ///
    /// # Errors
    /// [`Class::TOPOLOGY`] without a grid; [`Class::DIMS`] for a wrong number of flags; [`Class::PROC_ABORTED`].
    pub fn cart_sub(&self, remain: &[bool]) -> Result<Self> {
        let Some(Topology::Grid(grid)) = self.topology() else {
            return Err(Error::new(Class::TOPOLOGY, "the communicator has no Cartesian topology"));
        };
        let (part, number) = grid.sub_grid(self.rank(), remain)?;
        let split = self.split_into(number, self.rank(), Some(Topology::Grid(part)))?;
        split.ok_or_else(|| Error::new(Class::INTERN, "a part of a grid has no member"))
    }

    /// A communicator of all members, each of which specifies its own neighbours. With `reorder`, ranks may differ from those here,
    /// and each rank has the neighbours that its former holder specified. Collective (MPI 5.0, section 8.5.4).
    ///
    /// # Errors
    /// [`Class::RANK`] for invalid neighbours; [`Class::ARG`] for a wrong number of weights; [`Class::COMM`];
    /// [`Class::PROC_ABORTED`].
    pub fn dist_graph_create_adjacent(&self, neighbours: DistGraph, reorder: bool) -> Result<Self> {
        self.check_intra()?;
        self.check_members(neighbours.sources.iter().chain(&neighbours.destinations))?;
        if let Some([sources, destinations]) = &neighbours.weights
            && (sources.len() != neighbours.sources.len()
                || destinations.len() != neighbours.destinations.len())
        {
            return Err(Error::new(Class::ARG, "there must be a weight for each edge"));
        }
        if let Some(hosts) = self.host_numbers(self.size() as usize, reorder)? {
            return self.dist_graph_reordered(&neighbours, &hosts);
        }
        let context = self.agree_context()?;
        self.derive(context, self.group().clone(), None, Some(Topology::DistGraph(neighbours)))
    }

    /// As [`Comm::dist_graph_create_adjacent`] with reordering: each member sends its neighbours to all.
    fn dist_graph_reordered(&self, neighbours: &DistGraph, hosts: &[usize]) -> Result<Self> {
        let weights = neighbours.weights.as_ref();
        let ends = [&neighbours.sources, &neighbours.destinations];
        let encoded = ends.into_iter().enumerate().flat_map(|(end, ranks)| {
            let weight =
                move |at: usize| weights.and_then(|all| all[end].get(at)).map_or(1, |weight| *weight);
            let one = move |(at, rank): (usize, &i32)| [self.rank(), end as i32, *rank, weight(at)];
            ranks.iter().enumerate().flat_map(one)
        });
        let all =
            self.oob()?.allgatherv(self.rank(), &encoded.flat_map(i32::to_le_bytes).collect::<Vec<_>>())?;
        let numbers: Vec<i32> =
            all.chunks_exact(4).map(|four| four.try_into().map_or(-1, i32::from_le_bytes)).collect();
        let edges = numbers.chunks_exact(4);
        let to = edges.clone().filter(|edge| edge[1] == 1);
        let to = to.map(|edge| (edge[0] as usize, edge[2] as usize, edge[3].max(0) as u64));
        let order = map_ranks(hosts, &to.collect::<Vec<Edge>>());
        let context = self.agree_context()?;
        let order = order.unwrap_or_else(|| (0..hosts.len()).collect());
        let members = order.iter().map(|at| self.group().members()[*at]).collect();
        let mine = order.iter().position(|at| *at == self.rank() as usize).map_or(-1, |rank| rank as i32);
        let of = |end: i32, field: usize| {
            edges.clone().filter(|edge| edge[0] == mine && edge[1] == end).map(|edge| edge[field]).collect()
        };
        let weights = weights.map(|_| [of(0, 3), of(1, 3)]);
        let own = DistGraph { sources: of(0, 2), destinations: of(1, 2), weights };
        self.derive(context, Group::new(members)?, None, Some(Topology::DistGraph(own)))
    }

    /// A communicator of all members, each of which specifies some edges of the graph: source, destination, weight. With `reorder`,
    /// ranks may differ from those here. Collective (MPI 5.0, section 8.5.4).
    ///
    /// # Errors
    /// As [`Comm::dist_graph_create_adjacent`].
    pub fn dist_graph_create(&self, edges: &Edges, is_weighted: bool, reorder: bool) -> Result<Self> {
        self.check_intra()?;
        self.check_members(edges.iter().flat_map(|[source, destination, _]| [source, destination]))?;
        let encoded: Vec<u8> = edges.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        let all = self.oob()?.allgatherv(self.rank(), &encoded)?;
        let number = |at: usize| all[at..at + 4].try_into().map(i32::from_le_bytes).unwrap_or(-1);
        let all = (0..all.len() / 12).map(|edge| [12 * edge, 12 * edge + 4, 12 * edge + 8].map(number));
        let of = |end: usize| all.clone().filter(move |edge| edge[end] == self.rank());
        let weights = [1, 0].map(|end| of(end).map(|edge| edge[2]).collect());
        let neighbours = DistGraph {
            sources: of(1).map(|edge| edge[0]).collect(),
            destinations: of(0).map(|edge| edge[1]).collect(),
            weights: is_weighted.then_some(weights),
        };
        self.dist_graph_create_adjacent(neighbours, reorder)
    }

    fn check_members<'a>(&self, mut ranks: impl Iterator<Item = &'a i32>) -> Result<()> {
        match ranks.find(|rank| !(0..self.size()).contains(*rank)) {
            None => Ok(()),
            Some(rank) => Err(Error::new(Class::RANK, format_args!("neighbour {rank} is not a rank"))),
        }
    }
}
