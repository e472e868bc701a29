//! [`Barriers`]: the ranks of a job that wait in barriers, and their release.

use super::violation::{BARRIERS_MAX, Violation};
use crate::wire::{Message, excerpt};
use std::collections::{BTreeMap, BTreeSet};

/// The members of a barrier.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Members {
    World,
    Node(u32),
    /// Sorted and unique.
    Ranks(Vec<u32>),
}

/// The identity of a barrier: the same members may use several at once with different tags. Without a tag it is the barrier of PMI
/// 1.1.
type Key = (Members, Option<u32>);

/// Ranks that are released from a barrier.
#[derive(Debug)]
pub(super) struct Release {
    /// The ranks that were waiting.
    pub(super) ranks: BTreeSet<u32>,
    /// The barrier's tag.
    pub(super) tag: Option<u32>,
    /// Whether all members entered; otherwise one of them has left.
    pub(super) is_complete: bool,
}

/// The barriers of a job.
#[derive(Debug)]
pub(super) struct Barriers {
    /// The node of each rank.
    node_of: Vec<u32>,
    /// The ranks of each node.
    nodes: BTreeMap<u32, Vec<u32>>,
    /// Ranks that will enter no more barriers.
    past: BTreeSet<u32>,
    /// The ranks waiting in each barrier.
    inside: BTreeMap<Key, BTreeSet<u32>>,
}

impl Barriers {
    /// No barriers yet, for ranks on these nodes.
    pub(super) fn new(node_of: Vec<u32>) -> Self {
        let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (rank, &node) in (0..).zip(&node_of) {
            nodes.entry(node).or_default().push(rank);
        }
        Self { node_of, nodes, past: BTreeSet::new(), inside: BTreeMap::new() }
    }

    /// Enters a rank into the barrier that its message names. Returns the barrier's tag, and the ranks this releases.
    pub(super) fn enter(
        &mut self,
        rank: u32,
        message: &Message<'_>,
    ) -> Result<(Option<u32>, Option<Release>), Violation> {
        let key = self.key(rank, message)?;
        if self.inside.values().filter(|inside| inside.contains(&rank)).count() == BARRIERS_MAX {
            return Err(Violation::TooManyBarriers);
        }
        let (member_count, one_has_left) = self.count_members(&key.0);
        let inside = self.inside.entry(key.clone()).or_default();
        if !inside.insert(rank) {
            return Err(Violation::Group(excerpt(message.get("group").unwrap_or_default())));
        }
        let is_finished = inside.len() == member_count || one_has_left;
        Ok((key.1, is_finished.then(|| self.release(&key, !one_has_left))))
    }

    /// Records that a rank will enter no more barriers. Ranks that wait for it keep waiting.
    pub(super) fn retire(&mut self, rank: u32) {
        self.past.insert(rank);
    }

    /// As [`retire`](Self::retire), and releases the ranks that wait for it.
    pub(super) fn leave(&mut self, rank: u32) -> Vec<Release> {
        self.retire(rank);
        let with_it = self.inside.keys().filter(|(members, _)| self.is_member(members, rank));
        let keys: Vec<Key> = with_it.cloned().collect();
        keys.iter().map(|key| self.release(key, false)).collect()
    }

    /// The members and the tag in a message, if the rank may wait for them.
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

    /// The number of members, and whether one of them has left.
    fn count_members(&self, members: &Members) -> (usize, bool) {
        let of = |ranks: &[u32]| (ranks.len(), ranks.iter().any(|rank| self.past.contains(rank)));
        match members {
            Members::World => (self.node_of.len(), !self.past.is_empty()),
            Members::Node(node) => self.nodes.get(node).map_or((0, false), |ranks| of(ranks)),
            Members::Ranks(ranks) => of(ranks),
        }
    }

    /// Releases the ranks that wait in a barrier.
    fn release(&mut self, key: &Key, is_complete: bool) -> Release {
        Release { ranks: self.inside.remove(key).unwrap_or_default(), tag: key.1, is_complete }
    }
}
