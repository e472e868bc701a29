//! Which algorithm: the table of all of them, and the choice by cost, which says why.

use crate::cost::{Case, Cost, Costs};
use crate::schedule::Schedule;
use crate::task::{Kind, Task};
use crate::{
    allgather, allreduce, alltoall, barrier, bcast, gather, reduce, reduce_scatter, scan, scatter, shared,
};
use std::fmt::Write;

/// An algorithm of a collective.
#[derive(Debug)]
pub struct Algorithm {
    /// What it carries out.
    pub kind: Kind,
    /// Its name, unique for the kind.
    pub name: &'static str,
    needs: Needs,
    cost: fn(&Case) -> Cost,
    /// Nothing where there are no messages to plan.
    plan: Option<fn(&Task) -> Schedule>,
}

/// Why an algorithm that was asked for by name cannot carry out a call.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Unfit {
    /// The kind has none of that name.
    #[error("{} has no algorithm `{name}`: it has {}", .kind.name(), names(*.kind))]
    Unknown {
        /// What was to be carried out.
        kind: Kind,
        /// The name asked for.
        name: String,
    },
    /// It asks more of a call.
    #[error("{} by `{name}` is not possible: {why}", .kind.name())]
    Refuses {
        /// What was to be carried out.
        kind: Kind,
        /// Its name.
        name: &'static str,
        /// What the call lacks.
        why: &'static str,
    },
}

/// The names of a kind's algorithms.
fn names(kind: Kind) -> String {
    Algorithm::of(kind).map(|algorithm| algorithm.name).collect::<Vec<_>>().join(", ")
}

/// What an algorithm asks of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Needs {
    Nothing,
    Commutative,
    /// Blocks that all have one size, which all ranks know.
    Even,
    PowerOfTwo,
    /// Memory that all ranks share.
    Shared,
}

impl Needs {
    /// Why a call is refused.
    fn refuses(self, case: &Case) -> Option<&'static str> {
        match self {
            Self::Commutative if !case.commutative => Some("the operator is not commutative"),
            Self::Even if !case.even => Some("blocks differ in size"),
            Self::PowerOfTwo if !case.size.is_power_of_two() => {
                Some("the number of ranks is no power of two")
            }
            Self::Shared => shared::refuses(case),
            _ => None,
        }
    }
}

macro_rules! algorithms {
    (@plan) => { None };
    (@plan $plan:path) => { Some($plan) };
    ($($kind:ident $name:literal $needs:ident $cost:path $(, $plan:path)?;)*) => {
        /// All algorithms. The first of a kind that needs nothing takes every call.
        static ALGORITHMS: &[Algorithm] = &[$(Algorithm {
            kind: Kind::$kind,
            name: $name,
            needs: Needs::$needs,
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
    Bcast "binomial" Nothing bcast::binomial::cost, bcast::binomial::plan;
    Bcast "scatter-ring" Nothing bcast::scatter_ring::cost, bcast::scatter_ring::plan;
    Bcast "chain" Nothing bcast::chain::cost, bcast::chain::plan;
    Bcast "flat" Nothing bcast::flat::cost, bcast::flat::plan;
    Bcast "shared" Shared shared::bcast;
    Gather "linear" Nothing gather::linear::cost, gather::linear::plan;
    Gather "binomial" Even gather::binomial::cost, gather::binomial::plan;
    Scatter "linear" Nothing scatter::linear::cost, scatter::linear::plan;
    Scatter "binomial" Even scatter::binomial::cost, scatter::binomial::plan;
    Allgather "recursive-doubling" PowerOfTwo allgather::recursive_doubling::cost, allgather::recursive_doubling::plan;
    Allgather "ring" Nothing allgather::ring::cost, allgather::ring::plan;
    Allgather "bruck" Nothing allgather::bruck::cost, allgather::bruck::plan;
    Allgather "direct" Nothing allgather::direct::cost, allgather::direct::plan;
    Allgather "shared" Shared shared::allgather;
    Alltoall "pairwise" Nothing alltoall::pairwise::cost, alltoall::pairwise::plan;
    Alltoall "bruck" Even alltoall::bruck::cost, alltoall::bruck::plan;
    Alltoall "direct" Nothing alltoall::direct::cost, alltoall::direct::plan;
    Alltoall "shared" Shared shared::alltoall;
    Reduce "binomial" Nothing reduce::binomial::cost, reduce::binomial::plan;
    Reduce "rabenseifner" Commutative reduce::rabenseifner::cost, reduce::rabenseifner::plan;
    Reduce "flat" Nothing reduce::flat::cost, reduce::flat::plan;
    Reduce "shared" Shared shared::reduce;
    Allreduce "recursive-doubling" Nothing allreduce::recursive_doubling::cost, allreduce::recursive_doubling::plan;
    Allreduce "rabenseifner" Commutative allreduce::rabenseifner::cost, allreduce::rabenseifner::plan;
    Allreduce "ring" Commutative allreduce::ring::cost, allreduce::ring::plan;
    Allreduce "flat" Nothing allreduce::flat::cost, allreduce::flat::plan;
    Allreduce "direct" Nothing allreduce::direct::cost, allreduce::direct::plan;
    Allreduce "shared" Shared shared::reduce;
    ReduceScatter "in-order" Nothing reduce_scatter::in_order::cost, reduce_scatter::in_order::plan;
    ReduceScatter "halving" Commutative reduce_scatter::halving::cost, reduce_scatter::halving::plan;
    ReduceScatter "pairwise" Commutative reduce_scatter::pairwise::cost, reduce_scatter::pairwise::plan;
    Scan "doubling" Nothing scan::cost, scan::plan;
    Exscan "doubling" Nothing scan::cost_exclusive, scan::plan_exclusive;
}

impl Algorithm {
    /// Those of a kind.
    pub fn of(kind: Kind) -> impl Iterator<Item = &'static Self> {
        ALGORITHMS.iter().filter(move |algorithm| algorithm.kind == kind)
    }

    /// The one of a kind with a name, if it can carry out a call.
    ///
    /// # Errors
    /// [`Unfit`] if there is none, or it cannot.
    pub fn named(name: &str, case: &Case) -> Result<&'static Self, Unfit> {
        let kind = case.kind;
        let found = Self::of(kind).find(|algorithm| algorithm.name == name);
        let found = found.ok_or_else(|| Unfit::Unknown { kind, name: name.to_owned() })?;
        match found.refuses(case) {
            Some(why) => Err(Unfit::Refuses { kind, name: found.name, why }),
            None => Ok(found),
        }
    }

    /// Why it cannot carry out a call, if so.
    pub fn refuses(&self, case: &Case) -> Option<&'static str> {
        self.needs.refuses(case)
    }

    /// What a call costs by it.
    pub fn cost(&self, case: &Case) -> Cost {
        (self.cost)(case)
    }

    /// What this rank does. Ranks that call with fitting tasks and one algorithm have schedules that fit. `None` for an algorithm
    /// without messages: it shows and takes data in memory that ranks share, and whoever has that carries it out.
    pub fn plan(&self, task: &Task) -> Option<Schedule> {
        self.plan.map(|plan| plan(task))
    }
}

/// An algorithm, and why it was chosen.
#[derive(Clone, Debug)]
pub struct Choice {
    /// The cheapest that can carry out the call; of equally cheap ones the first in the table.
    pub algorithm: &'static Algorithm,
    /// In which segments a pipeline is to pass on its data, in bytes: [`Task::segment`].
    pub segment: u64,
    /// Its costs.
    pub seconds: f64,
}

/// Chooses by cost. The segment of the case is not looked at: the best one is found. Whether ranks go by memory that they share is
/// chosen for a byte, whatever there is: those that come with different sizes must meet to learn of it.
pub fn choose(case: Case, costs: Costs) -> Choice {
    let case = Case { segment: best_segment(&case, costs), ..case };
    let found = cheapest(&Case { bytes: 1, segment: 1, ..case }, costs, None);
    let shared = found.filter(|(algorithm, _)| algorithm.needs == Needs::Shared);
    let alone = || cheapest(&Case { shared: 0, ..case }, costs, None);
    let chosen = shared.map(|(algorithm, _)| (algorithm, algorithm.cost(&case).seconds(costs)));
    let (algorithm, seconds) = chosen.or_else(alone).expect("one of each kind takes every call");
    Choice { algorithm, segment: case.segment, seconds }
}

/// The cheapest algorithm that can carry out a call but for one, and its cost; of equally cheap ones the first in the table.
fn cheapest(case: &Case, costs: Costs, but: Option<&Algorithm>) -> Option<(&'static Algorithm, f64)> {
    Algorithm::of(case.kind)
        .filter(|&algorithm| {
            algorithm.refuses(case).is_none() && !but.is_some_and(|but| std::ptr::eq(algorithm, but))
        })
        .map(|algorithm| (algorithm, algorithm.cost(case).seconds(costs)))
        .reduce(|best, next| if next.1 < best.1 { next } else { best })
}

/// Why a choice was made: what it saves against the next best.
pub(crate) fn reason(case: Case, choice: &Choice, costs: Costs) -> String {
    let case = Case { segment: choice.segment, ..case };
    let Some((other, seconds)) = cheapest(&case, costs, Some(choice.algorithm)) else {
        return "the only one that can".to_owned();
    };
    let against = format!("{} ({:.2} us)", other.name, seconds * 1e6);
    if seconds < choice.seconds {
        return format!(
            "all sizes go one way, so that ranks learn of different ones; {against} would cost less"
        );
    }
    let (mine, theirs) = (choice.algorithm.cost(&case), other.cost(&case));
    let (messages, further) = (theirs.messages - mine.messages, theirs.further - mine.further);
    let (bytes, reduced) = (theirs.bytes - mine.bytes, theirs.reduced - mine.reduced);
    let saved = [
        (messages * costs.alpha, format!("{messages:.0} messages in turn")),
        (further * costs.gap, format!("{further:.0} messages beside")),
        (bytes * costs.beta, format!("{bytes:.0} B sent")),
        (reduced * costs.gamma, format!("{reduced:.0} B reduced")),
    ];
    match saved.iter().max_by(|a, b| a.0.total_cmp(&b.0)) {
        Some((seconds, what)) if *seconds > 0.0 => format!("saves {what} against {against}"),
        _ => format!("costs the same as {against}"),
    }
}

/// The choice for a call in words: a line for each algorithm, with its cost or why it is not possible; the chosen one is marked.
pub fn explain(case: Case, costs: Costs) -> String {
    let choice = choose(case, costs);
    let case = Case { segment: choice.segment, ..case };
    let mut text = String::new();
    for algorithm in Algorithm::of(case.kind) {
        let mark = if std::ptr::eq(algorithm, choice.algorithm) { '*' } else { ' ' };
        let line = match algorithm.refuses(&case) {
            Some(why) => format!("{mark} {:<20} not possible: {why}\n", algorithm.name),
            None => {
                let cost = algorithm.cost(&case);
                format!("{mark} {:<20} {:>12.2} us: {cost}\n", algorithm.name, cost.seconds(costs) * 1e6)
            }
        };
        text.write_str(&line).expect("a string takes all");
    }
    text
}

/// The segment with which a chain of ranks costs least: `sqrt(n alpha / ((p - 2) beta))`.
fn best_segment(case: &Case, costs: Costs) -> u64 {
    let behind = case.size.saturating_sub(2) as f64;
    let best = (case.bytes as f64 * costs.alpha / (behind * costs.beta)).sqrt();
    // Of two ranks, or without a cost of bytes, all at once.
    if best.is_finite() { (best as u64).clamp(1, case.bytes.max(1)) } else { case.bytes.max(1) }
}
