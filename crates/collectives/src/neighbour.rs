//! Neighbour collectives: send to each neighbour of one list and receive from each of another, directly and in one round.

use crate::schedule::{Schedule, receive, send};
use crate::task::Blocks;

/// The neighbours of this rank. A missing neighbour, as at the border of a grid, is skipped together with its block.
#[derive(Clone, Debug)]
pub struct Neighbours {
    /// Ranks to receive from, in the order of the output's blocks.
    pub sources: Vec<Option<usize>>,
    /// Ranks to send to, in the order of the input's blocks.
    pub destinations: Vec<Option<usize>>,
    /// Whether they are neighbours in a grid: two for each dimension, below and above.
    pub is_grid: bool,
}

/// The schedule of a rank. For an allgather, all blocks of the input are the same.
///
/// Messages between two ranks match in order. In a grid, a message sent downwards is received from above: where both neighbours of
/// a dimension are one rank, its first message belongs to the second block.
pub fn plan(neighbours: &Neighbours, input: &Blocks, output: &Blocks) -> Schedule {
    let mut schedule = Schedule::default();
    let sends = neighbours
        .destinations
        .iter()
        .enumerate()
        .map(|(at, peer)| peer.and_then(|to| send(to, input.block(at))));
    let receives = (0..neighbours.sources.len()).map(|at| {
        let at = if neighbours.is_grid { at ^ 1 } else { at };
        neighbours.sources[at].and_then(|from| receive(from, output.block(at)))
    });
    schedule.push_round(sends.chain(receives));
    schedule
}
