//! Gather by a binomial tree, blocks of one size: few messages for short blocks.
//!
//! Cost: `ceil(log2 p) alpha + (p - 1) n beta`.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, copy, receive, send};
use crate::task::Task;
use crate::tree;

pub(crate) fn cost(case: &Case) -> Cost {
    let others = case.ranks() - 1.0;
    Cost::new(case.log(), others * case.n()).with_all(others, case.blocks_up_a_tree() * case.n())
}

/// Inner ranks of the tree, and a root other than 0, gather packed blocks, ordered by number from the root on.
pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, number, size) = (Schedule::default(), task.relative_rank(), task.size);
    let (mine, end) = (task.input.block(0), tree::subtree_end(task.relative_rank(), task.size));
    let Some(parent) = tree::parent(number) else {
        root(&mut schedule, task);
        return schedule;
    };
    if end == number + 1 {
        schedule.push_round([send(task.rank_of(parent), mine)]);
        return schedule;
    }
    let packed = schedule.scratch_bytes(mine.bytes * (end - number) as u64);
    let blocks = |first: usize, end: usize| {
        packed.window(mine.bytes * (first - number) as u64, mine.bytes * (end - number) as u64)
    };
    schedule.push_round([copy(mine, blocks(number, number + 1))]);
    for child in tree::children(number, size) {
        schedule.push_round([receive(task.rank_of(child), blocks(child, tree::subtree_end(child, size)))]);
    }
    schedule.push_round([send(task.rank_of(parent), packed)]);
    schedule
}

fn root(schedule: &mut Schedule, task: &Task) {
    let (size, root) = (task.size, task.rank);
    schedule.push_round([copy(task.input.block(0), task.output.block(root))]);
    for child in tree::children(0, size) {
        let (first, end) = (root + child, root + tree::subtree_end(child, size));
        // The part of a subtree beyond the last rank consists of ranks from 0 on.
        if first < size && end > size {
            let bytes = task.output.block(0).bytes;
            let packed = schedule.scratch_bytes(bytes * (end - first) as u64);
            schedule.push_round([receive(task.rank_of(child), packed)]);
            let (high, low) = (task.output.range(first, size), task.output.range(0, end - size));
            let at = bytes * (size - first) as u64;
            schedule.push_round([
                copy(packed.window(0, at), high[0]),
                copy(packed.window(at, packed.bytes), low[0]),
            ]);
        } else {
            let (first, end) = if first < size { (first, end) } else { (first - size, end - size) };
            schedule.push_round([receive(task.rank_of(child), task.output.range(first, end)[0])]);
        }
    }
}
