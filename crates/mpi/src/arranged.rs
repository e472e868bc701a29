//! Communicators with a [`Topology`]. Ranks stay as they are, also where the program would let them be changed.

use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::topology::{Distributed, Graph, Grid, Topology};

/// Edges of a distributed graph, from whoever knows them: of each the source, the destination and the weight.
type Edges = Vec<[i32; 3]>;

impl Comm {
    /// A communicator of the first members in a grid; none for the others. Collective.
    ///
    /// # Errors
    /// [`Class::DIMS`] for a grid of more members than there are; [`Class::COMM`] for an intercommunicator;
    /// [`Class::PROC_ABORTED`] when a member is lost.
    pub fn cart_create(&self, grid: Grid) -> Result<Option<Self>> {
        let size = grid.size();
        self.arrange(size, Topology::Grid(grid), Class::DIMS)
    }

    /// A communicator of the first members in a graph; none for the others. Collective.
    ///
    /// # Errors
    /// As [`Comm::cart_create`], but [`Class::ARG`] for too many.
    pub fn graph_create(&self, graph: Graph) -> Result<Option<Self>> {
        let size = graph.index().len() as i32;
        self.arrange(size, Topology::Graph(graph), Class::ARG)
    }

    fn arrange(&self, size: i32, topology: Topology, too_many: Class) -> Result<Option<Self>> {
        self.check_intra()?;
        if size > self.size() {
            let text = format!("the topology has {size} processes, but the communicator {}", self.size());
            return Err(Error::new(too_many, text));
        }
        let context = self.agree()?;
        if self.rank() >= size {
            return Ok(None);
        }
        let group = Group::new(self.group().members()[..size as usize].to_vec())?;
        self.child(context, group, None, Some(topology)).map(Some)
    }

    fn check_intra(&self) -> Result<()> {
        if self.is_inter() {
            return Err(Error::new(Class::COMM, "an intercommunicator has no topology"));
        }
        Ok(())
    }

    /// A communicator of those that differ in the remaining dimensions of the grid only. Collective.
    ///
    /// # Errors
    /// [`Class::TOPOLOGY`] if this is no grid; [`Class::DIMS`] for flags of other dimensions; [`Class::PROC_ABORTED`].
    pub fn cart_sub(&self, remain: &[bool]) -> Result<Self> {
        let Some(Topology::Grid(grid)) = self.topology() else {
            return Err(Error::new(Class::TOPOLOGY, "the communicator is no grid"));
        };
        let (part, number) = grid.part(self.rank(), remain)?;
        let split = self.split_into(number, self.rank(), Some(Topology::Grid(part)))?;
        split.ok_or_else(|| Error::new(Class::INTERN, "a part of a grid has no member"))
    }

    /// A communicator of all members, of which each says who its neighbours are. Collective.
    ///
    /// # Errors
    /// [`Class::RANK`] for neighbours that there are not; [`Class::ARG`] for other weights than edges; [`Class::COMM`];
    /// [`Class::PROC_ABORTED`].
    pub fn dist_graph_create_adjacent(&self, neighbours: Distributed) -> Result<Self> {
        self.check_intra()?;
        self.check_members(neighbours.sources.iter().chain(&neighbours.destinations))?;
        if let Some([sources, destinations]) = &neighbours.weights
            && (sources.len() != neighbours.sources.len()
                || destinations.len() != neighbours.destinations.len())
        {
            return Err(Error::new(Class::ARG, "there must be a weight for each edge"));
        }
        let context = self.agree()?;
        self.child(context, self.group().clone(), None, Some(Topology::Distributed(neighbours)))
    }

    /// A communicator of all members, of which each says some edges of the whole: source, destination, weight. Collective.
    ///
    /// # Errors
    /// As [`Comm::dist_graph_create_adjacent`].
    pub fn dist_graph_create(&self, edges: &Edges, is_weighted: bool) -> Result<Self> {
        self.check_intra()?;
        self.check_members(edges.iter().flat_map(|[source, destination, _]| [source, destination]))?;
        let said: Vec<u8> = edges.iter().flatten().flat_map(|number| number.to_le_bytes()).collect();
        let all = self.talk()?.collected(self.rank(), &said)?;
        let number = |at: usize| all[at..at + 4].try_into().map(i32::from_le_bytes).unwrap_or(-1);
        let all = (0..all.len() / 12).map(|edge| [12 * edge, 12 * edge + 4, 12 * edge + 8].map(number));
        let of = |end: usize| all.clone().filter(move |edge| edge[end] == self.rank());
        let weights = [1, 0].map(|end| of(end).map(|edge| edge[2]).collect());
        self.dist_graph_create_adjacent(Distributed {
            sources: of(1).map(|edge| edge[0]).collect(),
            destinations: of(0).map(|edge| edge[1]).collect(),
            weights: is_weighted.then_some(weights),
        })
    }

    fn check_members<'a>(&self, mut ranks: impl Iterator<Item = &'a i32>) -> Result<()> {
        match ranks.find(|rank| !(0..self.size()).contains(*rank)) {
            None => Ok(()),
            Some(rank) => Err(Error::new(Class::RANK, format_args!("neighbour {rank} is not a rank"))),
        }
    }
}
