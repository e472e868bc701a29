//! [`Barriers`]: who waits for whom in a job, and when they are let go.

use super::violation::{BARRIERS_MAX, Violation};
use crate::wire::{Message, excerpt};
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

/// Ranks that are let go from a barrier.
#[derive(Debug)]
pub(super) struct Release {
    /// Who was inside.
    pub(super) ranks: BTreeSet<u32>,
    /// Of the barrier.
    pub(super) tag: Option<u32>,
    /// Whether all members came; otherwise one of them never will.
    pub(super) is_complete: bool,
}

/// The barriers of a job.
#[derive(Debug)]
pub(super) struct Barriers {
    /// The node of each rank.
    node_of: Vec<u32>,
    /// The ranks of each node.
    nodes: BTreeMap<u32, Vec<u32>>,
    /// Ranks that will come to no barrier any more.
    past: BTreeSet<u32>,
    /// Who is inside.
    inside: BTreeMap<Key, BTreeSet<u32>>,
}

impl Barriers {
    /// None yet, for ranks on these nodes.
    pub(super) fn new(node_of: Vec<u32>) -> Self {
        let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, &node) in (0..).zip(&node_of) {
            nodes.entry(node).or_default().push(rank);
        }
        Self { node_of, nodes, past: BTreeSet::new(), inside: BTreeMap::new() }
    }

    /// A rank comes to the barrier that its message names: the barrier's tag, and who is let go by that.
    pub(super) fn enter(
        &mut self,
        rank: u32,
        message: &Message<'_>,
    ) -> Result<(Option<u32>, Option<Release>), Violation> {
        let key = self.key(rank, message)?;
        if self.inside.values().filter(|inside| inside.contains(&rank)).count() == BARRIERS_MAX {
            return Err(Violation::TooManyBarriers);
        }
        let (wanted, in_vain) = self.outlook(&key.0);
        let inside = self.inside.entry(key.clone()).or_default();
        if !inside.insert(rank) {
            return Err(Violation::Group(excerpt(message.get("group").unwrap_or_default())));
        }
        let is_over = inside.len() == wanted || in_vain;
        Ok((key.1, is_over.then(|| self.release(&key, !in_vain))))
    }

    /// A rank will come to no barrier any more; those who wait for it go on to wait.
    pub(super) fn retire(&mut self, rank: u32) {
        self.past.insert(rank);
    }

    /// As [`retire`](Self::retire), and who waits for it is let go.
    pub(super) fn leave(&mut self, rank: u32) -> Vec<Release> {
        self.retire(rank);
        let with_it = self.inside.keys().filter(|(members, _)| self.is_member(members, rank));
        let keys: Vec<Key> = with_it.cloned().collect();
        keys.iter().map(|key| self.release(key, false)).collect()
    }

    /// The members and the tag that a message names, if the rank may wait so.
    fn key(&self, rank: u32, message: &Message<'_>) -> Result<Key, Violation> {
        let Some(text) = message.get("group") else { return Ok((Members::World, None)) };
        let wrong = || Violation::Group(excerpt(text));
        let (group, tag) = text.rsplit_once(':').ok_or_else(wrong)?;
        let tag: u32 = tag.parse().map_err(|_| wrong())?;
        let members = match group {
            "WORLD" => Members::World,
            "NODE" => Members::Node(self.node_of[rank as usize]),
            list => {
                let ranks: Result<Vec<u32>, _> = list.split(',').map(str::parse).collect();
                let mut ranks = ranks.map_err(|_| wrong())?;
                ranks.sort_unstable();
                let is_group = ranks.is_sorted_by(|a, b| a < b) && ranks.binary_search(&rank).is_ok();
                if !is_group || ranks.last().is_none_or(|&last| last as usize >= self.node_of.len()) {
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
            Members::Node(node) => self.node_of[rank as usize] == *node,
            Members::Ranks(ranks) => ranks.binary_search(&rank).is_ok(),
        }
    }

    /// How many members there are, and whether one of them will not come any more.
    fn outlook(&self, members: &Members) -> (usize, bool) {
        let of = |ranks: &[u32]| (ranks.len(), ranks.iter().any(|rank| self.past.contains(rank)));
        match members {
            Members::World => (self.node_of.len(), !self.past.is_empty()),
            Members::Node(node) => self.nodes.get(node).map_or((0, false), |ranks| of(ranks)),
            Members::Ranks(ranks) => of(ranks),
        }
    }

    /// Lets those go who are inside.
    fn release(&mut self, key: &Key, is_complete: bool) -> Release {
        Release { ranks: self.inside.remove(key).unwrap_or_default(), tag: key.1, is_complete }
    }
}
