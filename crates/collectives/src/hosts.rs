//! Collectives of ranks on several hosts. Each host has a leader: the host's ranks reduce or gather to it, leaders exchange
//! messages between the hosts, and each leader sends the result to its host's ranks. Each byte passes once between two hosts; the
//! other algorithms do not distinguish hosts, and send it for each rank.
//!
//! The leader of the root's host is the root; of others it is their first rank. Between leaders the algorithm depends on the
//! number of hosts and bytes only, so that a rank needs no costs. The order of a reduction also depends on the ranks of each host.
//!
//! Cost: the algorithm between leaders, and messages within a host at a sixteenth of the cost.

use crate::allreduce::{rabenseifner, recursive_doubling};
use crate::barrier::{dissemination, send_signal, wait_signal};
use crate::bcast::{binomial, scatter_ring};
use crate::cost::{Case, Cost, log2_up};
use crate::reduce;
use crate::schedule::{Schedule, Span, copy, receive, send};
use crate::task::{Blocks, Root, Task};

/// The cost of a message within a host, as a part of one between hosts: 1 MiB takes 0.1 ms through memory and 0.8 to 8 over
/// networks of 10 and 1 Gb/s, 8 bytes 0.3 us and 5 to 100.
const WITHIN: f64 = 1.0 / 16.0;
/// Bytes from which leaders divide a vector into parts if there are more than two hosts.
const LONG: u64 = 64 << 10;

/// Why a call is not supported.
pub(crate) fn unsupported_reason(case: &Case) -> Option<&'static str> {
    match () {
        () if case.hosts < 2 => Some("the ranks are on one host"),
        () if case.hosts >= case.size => Some("each rank has a host of its own"),
        () if case.kind.reduces() && !case.commutative => Some("the operator is not commutative"),
        () => None,
    }
}

/// Whether leaders divide vectors into parts.
fn divides(hosts: usize, bytes: u64) -> bool {
    hosts > 2 && bytes >= LONG
}

/// The case between leaders, and the rounds of a binomial tree within a host.
fn leaders_and_rounds(case: &Case) -> (Case, f64) {
    let within = f64::from(log2_up(case.size.div_ceil(case.hosts.max(1))));
    (Case { size: case.hosts, hosts: 1, ..*case }, within)
}

/// The cost between leaders and of this number of trees within the hosts.
fn with_trees(case: &Case, between: Cost, trees: f64, reduced: f64) -> Cost {
    let (leaders, rounds) = leaders_and_rounds(case);
    let within = WITHIN * trees * rounds;
    let all_within = WITHIN * trees * (case.size - case.hosts) as f64;
    let (messages, bytes) = between.total(&leaders);
    Cost {
        messages: between.messages + within,
        bytes: between.bytes + within * case.n(),
        reduced: between.reduced + reduced * rounds * case.n(),
        ..between
    }
    .with_all(messages + all_within, bytes + all_within * case.n())
}

pub(crate) fn barrier_cost(case: &Case) -> Cost {
    let (leaders, _) = leaders_and_rounds(case);
    with_trees(case, dissemination::cost(&leaders), 2.0, 0.0)
}

pub(crate) fn bcast_cost(case: &Case) -> Cost {
    let (leaders, _) = leaders_and_rounds(case);
    let divides = divides(leaders.size, case.bytes);
    with_trees(case, if divides { scatter_ring::cost(&leaders) } else { binomial::cost(&leaders) }, 1.0, 0.0)
}

pub(crate) fn reduce_cost(case: &Case) -> Cost {
    let (leaders, _) = leaders_and_rounds(case);
    let divides = divides(leaders.size, case.bytes);
    let between =
        if divides { reduce::rabenseifner::cost(&leaders) } else { reduce::binomial::cost(&leaders) };
    with_trees(case, between, 1.0, 1.0)
}

pub(crate) fn allreduce_cost(case: &Case) -> Cost {
    let (leaders, _) = leaders_and_rounds(case);
    let divides = divides(leaders.size, case.bytes);
    let between = if divides { rabenseifner::cost(&leaders) } else { recursive_doubling::cost(&leaders) };
    with_trees(case, between, 2.0, 1.0)
}

pub(crate) fn allgather_cost(case: &Case) -> Cost {
    let (hosts, all) = (case.hosts as f64, case.ranks());
    let rounds = hosts - 1.0;
    let received = rounds / hosts * all;
    Cost::new(rounds + WITHIN, (received + WITHIN * all) * case.n())
        .with_all(hosts * rounds + WITHIN * all, (hosts * received + WITHIN * all * all) * case.n())
}

/// The ranks of this rank's host, and the leaders of all hosts.
struct Groups {
    /// In ascending order.
    own: Vec<usize>,
    /// By the host's number.
    leaders: Vec<usize>,
    /// The number of this rank's host.
    host: usize,
}

impl Groups {
    /// The root is the leader of its host.
    fn new(task: &Task, root: Option<usize>) -> Self {
        let of_rank = &task.hosts;
        let hosts = of_rank.iter().max().map_or(0, |last| last + 1);
        let leader = |host: usize| {
            let first = of_rank.iter().position(|on| *on == host);
            root.filter(|root| of_rank[*root] == host).or(first).expect("each host has a rank")
        };
        let host = of_rank[task.rank];
        let own = (0..task.size).filter(|rank| of_rank[*rank] == host).collect();
        Self { own, leaders: (0..hosts).map(leader).collect(), host }
    }

    fn leader(&self) -> usize {
        self.leaders[self.host]
    }

    fn is_leader(&self, task: &Task) -> bool {
        task.rank == self.leader()
    }

    /// The task among the ranks of this host, whose root is the leader.
    fn within(&self, task: &Task) -> Task {
        let place = |rank: usize| self.own.iter().position(|own| *own == rank).expect("a rank of this host");
        part_of(task, place(task.rank), self.own.len(), place(self.leader()))
    }

    /// The leader's task among the leaders; the root is the leader of this rank's host.
    fn between(&self, task: &Task, root: usize) -> Task {
        part_of(task, self.host, self.leaders.len(), task.hosts[root])
    }
}

fn part_of(task: &Task, rank: usize, size: usize, root: usize) -> Task {
    Task { rank, size, root: Root::Rank(root), hosts: [].into(), ..task.clone() }
}

pub(crate) fn barrier(task: &Task) -> Schedule {
    let (mut schedule, groups) = (Schedule::default(), Groups::new(task, None));
    let leader = groups.leader();
    if !groups.is_leader(task) {
        schedule.push_round([send_signal(leader)]);
        schedule.push_round([wait_signal(leader)]);
        return schedule;
    }
    let others = || groups.own.iter().copied().filter(|rank| *rank != leader);
    schedule.push_round(others().map(wait_signal));
    schedule.append_among(&dissemination::plan(&groups.between(task, leader)), &groups.leaders);
    schedule.push_round(others().map(send_signal));
    schedule
}

pub(crate) fn bcast(task: &Task) -> Schedule {
    let root = task.root_rank();
    let (mut schedule, groups) = (Schedule::default(), Groups::new(task, Some(root)));
    if groups.is_leader(task) {
        let between = groups.between(task, root);
        let divides = divides(groups.leaders.len(), task.output.block(0).bytes);
        let plan = if divides { scatter_ring::plan(&between) } else { binomial::plan(&between) };
        schedule.append_among(&plan, &groups.leaders);
    }
    schedule.append_among(&binomial::plan(&groups.within(task)), &groups.own);
    schedule
}

/// Reduces within the host to the leader, and there into `output`, if given. Returns the leader's sum.
fn reduce_within(schedule: &mut Schedule, task: &Task, groups: &Groups, output: Option<Span>) -> Span {
    let (within, mut plan) = (groups.within(task), Schedule::default());
    let sum = reduce::binomial::reduce_to(&mut plan, &within, within.root_rank(), output);
    // The first to be appended, so the span's buffer keeps its number.
    schedule.append_among(&plan, &groups.own);
    sum
}

pub(crate) fn reduce(task: &Task) -> Schedule {
    let root = task.root_rank();
    let (mut schedule, groups) = (Schedule::default(), Groups::new(task, Some(root)));
    let output = (task.rank == root).then(|| task.output.block(0));
    let sum = reduce_within(&mut schedule, task, &groups, output);
    if groups.is_leader(task) {
        let between = Task { input: Blocks::single(sum.as_outer()), ..groups.between(task, root) };
        let divides = divides(groups.leaders.len(), sum.bytes);
        let plan =
            if divides { reduce::rabenseifner::plan(&between) } else { reduce::binomial::plan(&between) };
        schedule.append_among(&plan, &groups.leaders);
    }
    schedule
}

pub(crate) fn allreduce(task: &Task) -> Schedule {
    let (mut schedule, groups) = (Schedule::default(), Groups::new(task, None));
    let output = groups.is_leader(task).then(|| task.output.block(0));
    let sum = reduce_within(&mut schedule, task, &groups, output);
    if groups.is_leader(task) {
        let between = Task { input: Blocks::single(sum.as_outer()), ..groups.between(task, groups.leader()) };
        let divides = divides(groups.leaders.len(), sum.bytes);
        let plan = if divides { rabenseifner::plan(&between) } else { recursive_doubling::plan(&between) };
        schedule.append_among(&plan, &groups.leaders);
    }
    schedule.append_among(&binomial::plan(&groups.within(task)), &groups.own);
    schedule
}

/// Leaders forward the blocks of whole hosts around a ring. While a leader receives the blocks of one host, it sends the blocks of
/// the previous host to the ranks of its own.
pub(crate) fn allgather(task: &Task) -> Schedule {
    let (mut schedule, groups) = (Schedule::default(), Groups::new(task, None));
    let (leader, hosts) = (groups.leader(), groups.leaders.len());
    let blocks_of = |host: usize| -> Vec<Span> {
        let ranks: Vec<usize> = (0..task.size).filter(|rank| task.hosts[*rank] == host).collect();
        let (first, end) = (ranks[0], ranks[ranks.len() - 1] + 1);
        if end - first == ranks.len() {
            return task.output.range(first, end);
        }
        ranks.into_iter().map(|rank| task.output.block(rank)).collect()
    };
    // The host whose blocks this host has after a number of rounds.
    let arrived = |rounds: usize| (groups.host + hosts - rounds) % hosts;
    let own_copy = copy(task.input.block(0), task.output.block(task.rank));
    if !groups.is_leader(task) {
        schedule.push_round([send(leader, task.input.block(0)), own_copy]);
        for round in 0..hosts {
            schedule.push_round(blocks_of(arrived(round)).into_iter().map(|span| receive(leader, span)));
        }
        return schedule;
    }
    let others: Vec<usize> = groups.own.iter().copied().filter(|rank| *rank != leader).collect();
    let gathered = others.iter().map(|rank| receive(*rank, task.output.block(*rank)));
    schedule.push_round(gathered.chain([own_copy]));
    let (next, previous) =
        (groups.leaders[(groups.host + 1) % hosts], groups.leaders[(groups.host + hosts - 1) % hosts]);
    for round in 0..hosts {
        let has = blocks_of(arrived(round));
        let to_own = others.iter().flat_map(|rank| has.iter().map(|span| send(*rank, *span)));
        let mut steps: Vec<_> = to_own.collect();
        if round + 1 < hosts {
            steps.extend(has.iter().map(|span| send(next, *span)));
            steps.extend(blocks_of(arrived(round + 1)).into_iter().map(|span| receive(previous, span)));
        }
        schedule.push_round(steps);
    }
    schedule
}
