//! The table of all algorithms, and the choice by cost, with an explanation.

use crate::cost::{Case, Cost, Costs};
use crate::schedule::Schedule;
use crate::task::{CollKind, Task};
use crate::{
    allgather, allreduce, alltoall, barrier, bcast, gather, hosts, reduce, reduce_scatter, scan, scatter,
    shared,
};
use std::fmt::Write;

/// An algorithm for a collective.
#[derive(Debug)]
pub struct Algorithm {
    /// The collective it implements.
    pub kind: CollKind,
    /// Its name, unique for the kind.
    pub name: &'static str,
    requirement: Requirement,
    cost: fn(&Case) -> Cost,
    /// `None` if the algorithm uses no messages.
    plan: Option<fn(&Task) -> Schedule>,
}

/// Why a named algorithm cannot carry out a call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AlgorithmError {
    /// The kind has no algorithm of that name.
    #[error("{} has no algorithm `{name}`: it has {}", .kind.name(), algorithm_names(*.kind))]
    Unknown {
        /// The collective.
        kind: CollKind,
        /// The requested name.
        name: String,
    },
    /// It does not support the call.
    #[error("{} by `{name}` is not possible: {why}", .kind.name())]
    Unsupported {
        /// The collective.
        kind: CollKind,
        /// Its name.
        name: &'static str,
        /// The missing property of the call.
        why: &'static str,
    },
}

/// The names of a kind's algorithms.
fn algorithm_names(kind: CollKind) -> String {
    Algorithm::all_for(kind).map(|algorithm| algorithm.name).collect::<Vec<_>>().join(", ")
}

/// An algorithm's requirement for a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Requirement {
    Nothing,
    Commutative,
    /// All blocks have one size, which all ranks know.
    EqualBlocks,
    PowerOfTwo,
    /// Memory shared by all ranks.
    Shared,
    /// Several hosts, and more ranks than hosts.
    Hosts,
}

impl Requirement {
    /// Why a call does not meet it.
    fn unsupported_reason(self, case: &Case) -> Option<&'static str> {
        match self {
            Self::Commutative if !case.commutative => Some("the operator is not commutative"),
            Self::EqualBlocks if !case.equal_blocks => Some("blocks differ in size"),
            Self::PowerOfTwo if !case.size.is_power_of_two() => {
                Some("the number of ranks is no power of two")
            }
            Self::Shared => shared::unsupported_reason(case),
            Self::Hosts => hosts::unsupported_reason(case),
            _ => None,
        }
    }
}

macro_rules! algorithms {
    (@plan) => { None };
    (@plan $plan:path) => { Some($plan) };
    ($($kind:ident $name:literal $requirement:ident $cost:path $(, $plan:path)?;)*) => {
        /// All algorithms. Of each kind, the first one with no requirement supports every call.
        static ALGORITHMS: &[Algorithm] = &[$(Algorithm {
            kind: CollKind::$kind,
            name: $name,
            requirement: Requirement::$requirement,
            cost: $cost,
            plan: algorithms!(@plan $($plan)?),
        },)*];
    };
}

algorithms! {
    Barrier "recursive-doubling" PowerOfTwo barrier::recursive_doubling::cost, barrier::recursive_doubling::plan;
    Barrier "dissemination" Nothing barrier::dissemination::cost, barrier::dissemination::plan;
    Barrier "tree" Nothing barrier::tree::cost, barrier::tree::plan;
    Barrier "flat" Nothing barrier::flat::cost, barrier::flat::plan;
    Barrier "direct" Nothing barrier::direct::cost, barrier::direct::plan;
    Barrier "shared" Shared shared::barrier;
    Barrier "hosts" Hosts hosts::barrier_cost, hosts::barrier;
    Bcast "binomial" Nothing bcast::binomial::cost, bcast::binomial::plan;
    Bcast "scatter-ring" Nothing bcast::scatter_ring::cost, bcast::scatter_ring::plan;
    Bcast "chain" Nothing bcast::chain::cost, bcast::chain::plan;
    Bcast "flat" Nothing bcast::flat::cost, bcast::flat::plan;
    Bcast "shared" Shared shared::bcast;
    Bcast "hosts" Hosts hosts::bcast_cost, hosts::bcast;
    Gather "linear" Nothing gather::linear::cost, gather::linear::plan;
    Gather "binomial" EqualBlocks gather::binomial::cost, gather::binomial::plan;
    Scatter "linear" Nothing scatter::linear::cost, scatter::linear::plan;
    Scatter "binomial" EqualBlocks scatter::binomial::cost, scatter::binomial::plan;
    Allgather "recursive-doubling" PowerOfTwo allgather::recursive_doubling::cost, allgather::recursive_doubling::plan;
    Allgather "ring" Nothing allgather::ring::cost, allgather::ring::plan;
    Allgather "bruck" Nothing allgather::bruck::cost, allgather::bruck::plan;
    Allgather "direct" Nothing allgather::direct::cost, allgather::direct::plan;
    Allgather "shared" Shared shared::allgather;
    Allgather "hosts" Hosts hosts::allgather_cost, hosts::allgather;
    Alltoall "pairwise" Nothing alltoall::pairwise::cost, alltoall::pairwise::plan;
    Alltoall "bruck" EqualBlocks alltoall::bruck::cost, alltoall::bruck::plan;
    Alltoall "direct" Nothing alltoall::direct::cost, alltoall::direct::plan;
    Alltoall "shared" Shared shared::alltoall;
    Reduce "binomial" Nothing reduce::binomial::cost, reduce::binomial::plan;
    Reduce "rabenseifner" Commutative reduce::rabenseifner::cost, reduce::rabenseifner::plan;
    Reduce "flat" Nothing reduce::flat::cost, reduce::flat::plan;
    Reduce "shared" Shared shared::reduce;
    Reduce "hosts" Hosts hosts::reduce_cost, hosts::reduce;
    Allreduce "recursive-doubling" Nothing allreduce::recursive_doubling::cost, allreduce::recursive_doubling::plan;
    Allreduce "rabenseifner" Commutative allreduce::rabenseifner::cost, allreduce::rabenseifner::plan;
    Allreduce "ring" Commutative allreduce::ring::cost, allreduce::ring::plan;
    Allreduce "flat" Nothing allreduce::flat::cost, allreduce::flat::plan;
    Allreduce "direct" Nothing allreduce::direct::cost, allreduce::direct::plan;
    Allreduce "shared" Shared shared::reduce;
    Allreduce "hosts" Hosts hosts::allreduce_cost, hosts::allreduce;
    ReduceScatter "in-order" Nothing reduce_scatter::in_order::cost, reduce_scatter::in_order::plan;
    ReduceScatter "halving" Commutative reduce_scatter::halving::cost, reduce_scatter::halving::plan;
    ReduceScatter "pairwise" Commutative reduce_scatter::pairwise::cost, reduce_scatter::pairwise::plan;
    Scan "doubling" Nothing scan::cost, scan::plan;
    Exscan "doubling" Nothing scan::cost_exclusive, scan::plan_exclusive;
}

impl Algorithm {
    /// The algorithms of a kind.
    pub fn all_for(kind: CollKind) -> impl Iterator<Item = &'static Self> {
        ALGORITHMS.iter().filter(move |algorithm| algorithm.kind == kind)
    }

    /// The algorithm with a name, if it supports a call.
    ///
    /// # Errors
    /// [`AlgorithmError`] if there is no such algorithm, or it does not support the call.
    pub fn by_name(name: &str, case: &Case) -> Result<&'static Self, AlgorithmError> {
        let kind = case.kind;
        let found = Self::all_for(kind).find(|algorithm| algorithm.name == name);
        let found = found.ok_or_else(|| AlgorithmError::Unknown { kind, name: name.to_owned() })?;
        match found.unsupported_reason(case) {
            Some(why) => Err(AlgorithmError::Unsupported { kind, name: found.name, why }),
            None => Ok(found),
        }
    }

    /// Why it does not support a call, if so.
    pub fn unsupported_reason(&self, case: &Case) -> Option<&'static str> {
        self.requirement.unsupported_reason(case)
    }

    /// The cost of a call with it.
    pub fn cost(&self, case: &Case) -> Cost {
        (self.cost)(case)
    }

    /// This rank's schedule. The schedules of all ranks match if their tasks do and they use the same algorithm. `None` for an
    /// algorithm without messages: it shows and reads data in memory that ranks share, and the owner of that memory executes it.
    pub fn plan(&self, task: &Task) -> Option<Schedule> {
        self.plan.map(|plan| plan(task))
    }
}

/// A chosen algorithm, and its cost.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The cheapest algorithm that supports the call; among equally cheap ones the first in the table.
    pub algorithm: &'static Algorithm,
    /// The segment size for a pipeline, in bytes: [`Task::segment`].
    pub segment: u64,
    /// Its cost.
    pub seconds: f64,
}

/// Chooses by cost. The case's segment size is ignored, and the best one is determined. Whether ranks use shared memory is decided
/// for a size of one byte, whatever the real size: ranks with different sizes must take the same path to detect the mismatch.
pub fn choose(case: Case, costs: Costs) -> Choice {
    let case = Case { segment: best_segment(&case, costs), ..case };
    let found = cheapest(&Case { bytes: 1, segment: 1, ..case }, costs, None);
    let shared = found.filter(|(algorithm, _)| algorithm.requirement == Requirement::Shared);
    let without_shared = || cheapest(&Case { shared: 0, ..case }, costs, None);
    let chosen = shared.map(|(algorithm, _)| (algorithm, algorithm.cost(&case).seconds(&case, costs)));
    let (algorithm, seconds) =
        chosen.or_else(without_shared).expect("each kind has an algorithm without requirements");
    Choice { algorithm, segment: case.segment, seconds }
}

/// The cheapest algorithm that supports a call, except one, and its cost; among equally cheap ones the first in the table.
fn cheapest(case: &Case, costs: Costs, except: Option<&Algorithm>) -> Option<(&'static Algorithm, f64)> {
    Algorithm::all_for(case.kind)
        .filter(|&algorithm| {
            algorithm.unsupported_reason(case).is_none()
                && !except.is_some_and(|except| std::ptr::eq(algorithm, except))
        })
        .map(|algorithm| (algorithm, algorithm.cost(case).seconds(case, costs)))
        .reduce(|best, next| if next.1 < best.1 { next } else { best })
}

/// The reason for a choice: its saving over the next best algorithm.
pub(crate) fn reason(case: Case, choice: &Choice, costs: Costs) -> String {
    let case = Case { segment: choice.segment, ..case };
    let Some((other, seconds)) = cheapest(&case, costs, Some(choice.algorithm)) else {
        return "the only one possible".to_owned();
    };
    let against = format!("{} ({:.2} us)", other.name, seconds * 1e6);
    if seconds < choice.seconds {
        return format!(
            "used for all sizes, so that ranks with different sizes detect it; {against} would cost less"
        );
    }
    let (mine, theirs) = (choice.algorithm.cost(&case), other.cost(&case));
    let (rounds, reduced) = (theirs.messages - mine.messages, theirs.reduced - mine.reduced);
    let saved = if let Some(shared) = costs.shared_cores_of(&case) {
        let turns = theirs.messages * theirs.turn(&shared) - mine.messages * mine.turn(&shared);
        let (mine, theirs) = (mine.total(&case), theirs.total(&case));
        let (messages, bytes) = (theirs.0 - mine.0, theirs.1 - mine.1);
        [
            (turns, "waits of ranks that share cores".to_owned()),
            (messages * shared.message, format!("{messages:.0} messages of all ranks")),
            (bytes * shared.byte, format!("{bytes:.0} B sent by all ranks")),
            (reduced * costs.gamma, format!("{reduced:.0} B reduced")),
        ]
    } else {
        let (further, bytes) = (theirs.further - mine.further, theirs.bytes - mine.bytes);
        [
            (rounds * costs.alpha, format!("{rounds:.0} sequential messages")),
            (further * costs.gap, format!("{further:.0} further messages")),
            (bytes * costs.beta, format!("{bytes:.0} B sent")),
            (reduced * costs.gamma, format!("{reduced:.0} B reduced")),
        ]
    };
    match saved.iter().max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((seconds, what)) if *seconds > 0.0 => format!("saves {what} against {against}"),
        _ => format!("costs the same as {against}"),
    }
}

/// The choice for a call as text: a line for each algorithm, with its cost or why it is not possible; the chosen one is marked.
pub fn explain(case: Case, costs: Costs) -> String {
    let choice = choose(case, costs);
    let case = Case { segment: choice.segment, ..case };
    let mut text = String::new();
    for algorithm in Algorithm::all_for(case.kind) {
        let mark = if std::ptr::eq(algorithm, choice.algorithm) { '*' } else { ' ' };
        let line = match algorithm.unsupported_reason(&case) {
            Some(why) => format!("{mark} {:<20} not possible: {why}\n", algorithm.name),
            None => {
                let cost = algorithm.cost(&case);
                format!(
                    "{mark} {:<20} {:>12.2} us: {cost}\n",
                    algorithm.name,
                    cost.seconds(&case, costs) * 1e6
                )
            }
        };
        text.write_str(&line).expect("writing to a string cannot fail");
    }
    text
}

/// The segment size with the lowest cost for a chain of ranks: `sqrt(n alpha / ((p - 2) beta))`.
fn best_segment(case: &Case, costs: Costs) -> u64 {
    let later_ranks = case.size.saturating_sub(2) as f64;
    let best = (case.bytes as f64 * costs.alpha / (later_ranks * costs.beta)).sqrt();
    // With two ranks, or if bytes cost nothing, a single segment.
    if best.is_finite() { (best as u64).clamp(1, case.bytes.max(1)) } else { case.bytes.max(1) }
}
