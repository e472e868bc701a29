//! [`JobProfile`]: what the ranks of a job called, how long that took, and what they sent to each other.

use std::collections::BTreeMap;

use host::Span;
use pmi::profile::{CallStats, MessageTotals, Profile, Proto, Traffic};

use super::super::number::plural;

/// Profiles of the ranks of a job; `None` for a rank that left no profile.
#[derive(Clone, Debug, Default)]
pub struct JobProfile {
    /// By rank.
    pub ranks: Vec<Option<Profile>>,
}

/// A function, as all ranks called it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CallRow<'a> {
    pub(super) name: &'a str,
    pub(super) all: CallStats,
    /// The rank that spent most time in it, and how much.
    pub(super) most: (usize, Span),
}

/// Traffic from one rank to another; processes of other jobs follow the last rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) sent: MessageTotals,
}

impl JobProfile {
    pub(super) fn known(&self) -> impl Iterator<Item = (usize, &Profile)> {
        self.ranks.iter().enumerate().filter_map(|(rank, profile)| Some((rank, profile.as_ref()?)))
    }

    pub(super) fn missing(&self) -> Vec<usize> {
        (0..self.ranks.len()).filter(|rank| self.ranks[*rank].is_none()).collect()
    }

    /// Functions, those with the most time first.
    pub(super) fn calls(&self) -> Vec<CallRow<'_>> {
        let mut rows: BTreeMap<&str, CallRow<'_>> = BTreeMap::new();
        for (rank, profile) in self.known() {
            for (name, stats) in &profile.calls {
                let new = CallRow { name, all: CallStats::default(), most: (rank, Span::ZERO) };
                let row = rows.entry(name).or_insert(new);
                row.all.calls = row.all.calls.saturating_add(stats.calls);
                row.all.time += stats.time;
                row.all.bytes = row.all.bytes.saturating_add(stats.bytes);
                if stats.time > row.most.1 {
                    row.most = (rank, stats.time);
                }
            }
        }
        let mut rows: Vec<_> = rows.into_values().collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.all.time));
        rows
    }

    /// Traffic by protocol.
    pub(super) fn protocols(&self) -> Vec<(Proto, MessageTotals)> {
        let mut all = Traffic::default();
        self.known().flat_map(|(_, profile)| &profile.sent).for_each(|sent| all.add(sent));
        let by = Proto::ALL.into_iter().map(|way| (way, all.for_protocol(way)));
        by.filter(|(_, sent)| sent.messages > 0).collect()
    }

    /// Pairs of sender and receiver, largest traffic first.
    pub(super) fn pairs(&self) -> Vec<Pair> {
        let of = |(from, profile): (usize, &Profile)| -> Vec<Pair> {
            let all = profile.sent.iter().map(Traffic::all).enumerate();
            all.filter(|(_, sent)| sent.messages > 0).map(|(to, sent)| Pair { from, to, sent }).collect()
        };
        let mut pairs: Vec<Pair> = self.known().flat_map(of).collect();
        pairs.sort_by_key(|pair| std::cmp::Reverse((pair.sent.bytes, pair.sent.messages)));
        pairs
    }

    /// The name of a rank as a receiver.
    pub(super) fn receiver(&self, to: usize) -> String {
        if to < self.ranks.len() { to.to_string() } else { "other jobs".to_owned() }
    }

    /// How long ranks were watched, and which part of that they spent in MPI.
    pub(super) fn summary(&self) -> String {
        let watched = self.known().map(|(_, profile)| profile.watched).fold(Span::ZERO, |a, b| a + b);
        let inside = self.known().map(|(_, profile)| in_mpi(profile)).fold(Span::ZERO, |a, b| a + b);
        let known = self.known().count();
        let ranks = plural(self.ranks.len(), "rank");
        if known == 0 {
            return format!("{ranks}, of which none has left a profile");
        }
        let each = watched / known as u64;
        format!("{ranks}, watched for {each} each, {} of it in MPI", share(inside, watched))
    }

    /// The ranks without a profile, if any.
    pub(super) fn gap(&self) -> Option<String> {
        const WHY: &str = "left without MPI_Finalize, or with another MPI library";
        match &self.missing()[..] {
            [] => None,
            [rank] => Some(format!("Rank {rank} is missing: it {WHY}.")),
            ranks => {
                let named: Vec<String> = ranks.iter().take(16).map(usize::to_string).collect();
                let more = if ranks.len() > 16 { ", ..." } else { "" };
                Some(format!("Ranks {}{more} are missing: they {WHY}.", named.join(", ")))
            }
        }
    }
}

/// The time that a rank spent in calls.
pub(super) fn in_mpi(profile: &Profile) -> Span {
    profile.calls.values().fold(Span::ZERO, |sum, stats| sum + stats.time)
}

/// A part in per cent.
pub(super) fn share(part: Span, of: Span) -> String {
    format!("{:.0} %", 100.0 * part.as_ps() as f64 / of.as_ps().max(1) as f64)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A rank that has called two functions, and sent to the next rank.
    pub(in super::super) fn rank(rank: usize, size: usize) -> Profile {
        let (us, next) = (rank + 1, (rank + 1) % size);
        let text = format!(
            "watched:2000000000,call:MPI_Send:10:{us}000000:5000,call:MPI_Wait:10:{us}00000000:0,sent:{next}:eager/ring:10:5000"
        );
        let notes = |key: &str| (key == format!("profile-{rank}-0")).then_some(text.as_str());
        Profile::from_notes(rank as u32, size, notes).expect("a note").expect("a profile")
    }

    /// Three ranks; the middle one has no profile.
    pub(in super::super) fn three() -> JobProfile {
        JobProfile { ranks: vec![Some(rank(0, 3)), None, Some(rank(2, 3))] }
    }

    #[test]
    fn calls_are_summed_and_the_longest_stands_first() {
        let job = three();
        let calls = job.calls();
        assert_eq!(calls.iter().map(|row| row.name).collect::<Vec<_>>(), ["MPI_Wait", "MPI_Send"]);
        assert_eq!(calls[0].all, CallStats { calls: 20, time: Span::from_us(400), bytes: 0 });
        assert_eq!((calls[0].most, calls[1].all.bytes), ((2, Span::from_us(300)), 10_000));
        assert_eq!(job.protocols(), [(Proto::EagerRing, MessageTotals { messages: 20, bytes: 10_000 })]);
        let sent = MessageTotals { messages: 10, bytes: 5000 };
        assert_eq!(job.pairs(), [Pair { from: 0, to: 1, sent }, Pair { from: 2, to: 0, sent }]);
    }

    #[test]
    fn who_is_missing_is_named() {
        let job = three();
        assert_eq!(job.summary(), "3 ranks, watched for 2.00 ms each, 10 % of it in MPI");
        assert_eq!(
            job.gap().as_deref(),
            Some("Rank 1 is missing: it left without MPI_Finalize, or with another MPI library.")
        );
        let none = JobProfile { ranks: vec![None; 20] };
        assert!(
            none.gap().is_some_and(|gap| gap.starts_with("Ranks 0, 1, 2,") && gap.contains("15, ... are"))
        );
        assert!(none.summary().contains("none has left a profile") && none.calls().is_empty());
        assert_eq!(JobProfile { ranks: vec![Some(rank(0, 1))] }.gap(), None);
    }
}
