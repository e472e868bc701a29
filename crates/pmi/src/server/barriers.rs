//! Who waits for whom in a job, and when they are let go.

use super::{Awaiting, BARRIERS_MAX, Phase, RankId, Served, Server, Violation};
use crate::wire::{Draft, Framing, Message, excerpt};
use std::collections::{BTreeMap, BTreeSet};

/// The members of a barrier.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Members {
    World,
    Node(u32),
    /// In order, none twice.
    Ranks(Vec<u32>),
}

/// Which barrier: members may be in several at once by different tags. Without a tag it is that of PMI 1.1.
type Key = (Members, Option<u32>);

/// The barriers of a job.
#[derive(Debug)]
pub(super) struct Barriers {
    /// The ranks of each node.
    nodes: BTreeMap<u32, Vec<u32>>,
    /// Who is inside.
    inside: BTreeMap<Key, BTreeSet<u32>>,
}

impl Barriers {
    /// None yet, for ranks on these nodes.
    pub(super) fn new(nodes_of_ranks: &[u32]) -> Self {
        let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, &node) in (0..).zip(nodes_of_ranks) {
            nodes.entry(node).or_default().push(rank);
        }
        Self { nodes, inside: BTreeMap::new() }
    }
}

impl Served {
    /// The members and the tag that a message names, if the rank may wait so.
    fn key(&self, rank: u32, message: &Message<'_>) -> Result<Key, Violation> {
        let Some(text) = message.get("group") else { return Ok((Members::World, None)) };
        let wrong = || Violation::Group(excerpt(text));
        let (group, tag) = text.rsplit_once(':').ok_or_else(wrong)?;
        let tag: u32 = tag.parse().map_err(|_| wrong())?;
        let members = match group {
            "WORLD" => Members::World,
            "NODE" => Members::Node(self.ranks[rank as usize].place.node),
            list => {
                let ranks: Result<Vec<u32>, _> = list.split(',').map(str::parse).collect();
                let mut ranks = ranks.map_err(|_| wrong())?;
                ranks.sort_unstable();
                let is_group = ranks.is_sorted_by(|a, b| a < b) && ranks.binary_search(&rank).is_ok();
                if !is_group || ranks.last().is_none_or(|&last| last as usize >= self.ranks.len()) {
                    return Err(wrong());
                }
                Members::Ranks(ranks)
            }
        };
        Ok((members, Some(tag)))
    }

    fn is_member(&self, members: &Members, rank: u32) -> bool {
        match members {
            Members::World => true,
            Members::Node(node) => self.ranks[rank as usize].place.node == *node,
            Members::Ranks(ranks) => ranks.binary_search(&rank).is_ok(),
        }
    }

    /// How many members there are, and whether one of them will not come any more.
    fn outlook(&self, members: &Members) -> (usize, bool) {
        let is_past = |rank: &u32| !matches!(self.ranks[*rank as usize].phase, Phase::Fresh | Phase::Joined);
        let of = |ranks: &[u32]| (ranks.len(), ranks.iter().any(is_past));
        match members {
            Members::World => (self.ranks.len(), self.past > 0),
            Members::Node(node) => self.barriers.nodes.get(node).map_or((0, false), |ranks| of(ranks)),
            Members::Ranks(ranks) => of(ranks),
        }
    }

    /// A rank will come to no barrier any more: who waits for it is let go, with a refusal.
    pub(super) fn release_all_with(&mut self, rank: u32) {
        let keys: Vec<Key> = self
            .barriers
            .inside
            .keys()
            .filter(|(members, _)| self.is_member(members, rank))
            .cloned()
            .collect();
        for key in keys {
            self.release(&key, false);
        }
    }

    /// Lets those go who are inside.
    fn release(&mut self, key: &Key, is_complete: bool) {
        let tag = key.1;
        for rank in self.barriers.inside.remove(key).unwrap_or_default() {
            let rank = &mut self.ranks[rank as usize];
            rank.barriers -= 1;
            let mut answer = Draft::new(Framing::Lines, "barrier_out");
            answer = if is_complete {
                answer.with("rc", 0)
            } else {
                answer.with("rc", 1).with("msg", "a_rank_has_left")
            };
            match tag {
                Some(tag) => answer = answer.with("tag", tag),
                None => rank.awaiting = None,
            }
            if !matches!(rank.phase, Phase::Gone) {
                rank.outbox.push(answer.finish());
            }
        }
    }
}

impl Server {
    /// A rank comes to a barrier.
    pub(super) fn barrier(&mut self, id: RankId, message: &Message<'_>) -> Result<(), Violation> {
        let Some(job) = self.jobs.get_mut(&id.job) else { return Ok(()) };
        let key = job.key(id.rank, message)?;
        let (wanted, in_vain) = job.outlook(&key.0);
        let rank = &mut job.ranks[id.rank as usize];
        if rank.barriers == BARRIERS_MAX {
            return Err(Violation::TooManyBarriers);
        }
        let inside = job.barriers.inside.entry(key.clone()).or_default();
        if !inside.insert(id.rank) {
            return Err(Violation::Group(excerpt(message.get("group").unwrap_or_default())));
        }
        rank.barriers += 1;
        if key.1.is_none() {
            rank.awaiting = Some(Awaiting::Fence);
        }
        if inside.len() == wanted || in_vain {
            job.release(&key, !in_vain);
        }
        Ok(())
    }
}
