//! Decides which calls of a communicator use its [`CommExchange`]. All members reach the same decision.

use collectives::{Case, Kind};
use verbs::DeviceAttr;

use crate::coll::collective::Collective;
use crate::coll::shm::desks::SHOWN_MAX;
use crate::coll::shm::exchange::{CommExchange, Exchange, MEMBERS_MAX, State};
use crate::coll::shm::plain::PlainCall;
use crate::coll::shm::setup::{is_possible, make};
use crate::comm::communicator::Comm;
use crate::error::Result;
use crate::memory::Buffer;

/// Bytes that each of `ranks` ranks of a host can show to all others at a time in shared device memory. Longer data are read
/// directly from the owner's buffer: [`Case::shared`].
pub fn shared_bytes(attr: &DeviceAttr, ranks: u32) -> u64 {
    if attr.maps_peers && (2..=MEMBERS_MAX as u32).contains(&ranks) { SHOWN_MAX as u64 } else { 0 }
}

/// Eligible calls of a communicator that use messages before an exchange is created. Creating it takes as long as about ten short
/// calls by messages on a communicator whose members are connected, and a hundred on the first communicator, so it does not pay for
/// few calls. All members count the same calls.
const CALLS_BEFORE: u32 = 8;

impl CommExchange {
    /// Carries out a call if it uses the exchange. Invalid calls are left to the message path, which reports the error.
    pub(crate) fn carry_out(&mut self, comm: &Comm, call: &Collective) -> Option<Result<()>> {
        if matches!(self.state, State::Impossible) {
            return None;
        }
        let case = case_of(comm, call)?;
        self.carry_out_case(comm, call, case).transpose()
    }

    fn carry_out_case(&mut self, comm: &Comm, call: &Collective, case: Case) -> Result<Option<()>> {
        if matches!(self.state, State::Impossible) || !self.chooses(comm, case) {
            return Ok(None);
        }
        match &mut self.state {
            State::Counting(calls) if *calls < CALLS_BEFORE => {
                *calls += 1;
                return Ok(None);
            }
            State::Counting(_) => {
                let made = if is_possible(comm)? { make(comm)? } else { None };
                self.state = made.map_or(State::Impossible, |exchange| State::Made(Box::new(exchange)));
            }
            State::Impossible | State::Made(_) => {}
        }
        match &mut self.state {
            State::Made(exchange) => exchange.carry_out(call).map(Some),
            _ => Ok(None),
        }
    }

    /// The exchange, if the last call of this kind used it, because a similar call will too.
    #[inline]
    fn known(&mut self, kind: Kind) -> Option<&mut Exchange> {
        match (&mut self.state, &self.last[kind as usize]) {
            (State::Made(exchange), Some((case, true))) if case.commutative => Some(exchange),
            _ => None,
        }
    }

    /// As [`CommExchange::carry_out`] for short calls on contiguous data. Returns `None` if the call does not qualify.
    #[inline]
    pub(crate) fn carry_out_plain(&mut self, call: &PlainCall) -> Option<Result<()>> {
        let exchange = self.known(call.kind())?;
        call.is_possible(exchange).then(|| exchange.carry_out_plain(call))
    }

    fn chooses(&mut self, comm: &Comm, case: Case) -> bool {
        let last = &mut self.last[case.kind as usize];
        if let Some((known, chosen)) = last
            && *known == case
        {
            return *chosen;
        }
        let chosen = comm.core().tuning().choose(case).algorithm.name == "shared";
        *last = Some((case, chosen));
        chosen
    }
}

/// The properties of a valid call that are the same at all members. Sizes are left out: members with different sizes must take the
/// same path, so that the mismatch is detected.
fn case_of(comm: &Comm, call: &Collective) -> Option<Case> {
    let (size, is_rank) = (comm.size() as usize, |root: i32| (0..comm.size()).contains(&root));
    let even = |buffer: &Buffer| buffer.count() % size as i64 == 0;
    let (kind, op) = match call {
        Collective::Barrier => (Kind::Barrier, None),
        Collective::Bcast { root, .. } if is_rank(*root) => (Kind::Bcast, None),
        Collective::Allgather { output, .. } if even(output) => (Kind::Allgather, None),
        Collective::Alltoall { input, output } if even(output) && input.as_ref().is_none_or(even) => {
            (Kind::Alltoall, None)
        }
        Collective::Reduce { input, output, op, root } if is_rank(*root) => {
            let given = match input {
                Some(input) => input,
                None if *root == comm.rank() => output,
                None => return None,
            };
            let significant = if *root == comm.rank() { output } else { given };
            significant.check_reduced_by(op).ok()?;
            (Kind::Reduce, Some(op))
        }
        Collective::Allreduce { output, op, .. } => {
            output.check_reduced_by(op).ok()?;
            (Kind::Allreduce, Some(op))
        }
        _ => return None,
    };
    let commutative = op.is_none_or(|op| op.is_commutative());
    Some(Case { kind, size, bytes: 1, commutative, even: true, segment: 0, shared: SHOWN_MAX as u64 })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use host::Task;

    use super::*;
    use crate::{Board, Config, Port, Process, Tuning};

    /// Runs a body in threads on a device, with a named algorithm for barriers.
    fn in_threads(device: &'static str, ranks: u32, barrier: Option<&'static str>, body: fn(&Process)) {
        let (host, board) = (host::real::host(), Board::new(ranks));
        let run = |rank: u32| {
            let (host, board) = (host.clone(), Arc::clone(&board));
            move || {
                let device = fabric::open(device, &host).expect("a device");
                let ports = vec![Port { device, address: Ipv4Addr::LOCALHOST.into(), fabric: "shm".into() }];
                let algorithms = barrier.map(|name| (Kind::Barrier, name.to_owned())).into_iter().collect();
                let tuning = Tuning { costs: None, algorithms };
                let config = Config { ports, node: "here".into(), tuning, ..Config::default() };
                let process = Process::start(&host, &config, board.seat(rank, &host)).expect("a job");
                body(&process);
                process.finalize().expect("an end");
            }
        };
        let ranks: Vec<Task> =
            (0..ranks).map(|rank| host.spawn("rank", None, run(rank)).expect("a thread")).collect();
        ranks.into_iter().for_each(Task::join);
    }

    /// Whether a call uses the exchange, on a communicator that has had enough earlier calls.
    fn goes_this_way(comm: &Comm, call: &Collective) -> bool {
        (0..=CALLS_BEFORE).any(|_| comm.exchange(call).map(|done| done.expect("valid")).is_some())
    }

    /// Goal: communicators with few calls need no memory, and all members switch at the same call, whatever the calls are.
    #[test]
    fn the_first_calls_go_by_messages() {
        in_threads("shm", 3, None, |process| {
            let comm = process.world().dup().expect("made");
            let calls = [Collective::Barrier, bcast(8), bcast(10 * SHOWN_MAX)];
            for number in 0..CALLS_BEFORE as usize {
                assert!(comm.exchange(&calls[number % 3]).is_none(), "call {number}");
                comm.collective(&Collective::Gather {
                    input: Some(Buffer::nothing()),
                    output: Buffer::nothing(),
                    root: 0,
                })
                .expect("it does not count");
            }
            assert!(comm.exchange(&calls[1]).expect("it goes this way").is_ok());
            assert!(comm.exchange(&calls[2]).is_some());
        });
    }

    fn bcast(len: usize) -> Collective {
        Collective::Bcast { buffer: Buffer::own(&vec![1; len]).expect("memory"), root: 0 }
    }

    #[test]
    fn calls_of_few_members_go_this_way() {
        in_threads("shm", 3, None, |process| {
            let world = process.world();
            assert!(goes_this_way(world, &Collective::Barrier));
            for len in [0, 1, SHOWN_MAX, SHOWN_MAX + 1, 100 * SHOWN_MAX] {
                assert!(goes_this_way(world, &bcast(len)), "{len} bytes");
            }
            assert!(!goes_this_way(process.alone(), &Collective::Barrier), "of one");
        });
    }

    #[test]
    fn a_named_algorithm_is_taken_instead() {
        in_threads("shm", 2, Some("tree"), |process| {
            assert!(!goes_this_way(process.world(), &Collective::Barrier));
            assert!(goes_this_way(process.world(), &bcast(8)));
        });
    }

    /// Without memory to share, all calls use messages.
    #[test]
    fn without_memory_nothing_goes_this_way() {
        in_threads("shm(dm=4KiB)", 2, None, |process| {
            assert!(!goes_this_way(process.world(), &Collective::Barrier));
            process.world().collective(&Collective::Barrier).expect("all are there");
        });
    }

    /// Goal: a root need not wait for late members, which find the data of each operation in order. Method: seven broadcasts return
    /// at the root before the other member starts the first of them.
    #[test]
    fn a_root_may_be_ahead() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static IS_AHEAD: AtomicBool = AtomicBool::new(false);
        in_threads("shm", 2, None, |process| {
            let (world, mut byte) = (process.world(), [0_u8; 40]);
            let broadcast = |byte: &mut [u8]| {
                let buffer = Buffer::own(byte).expect("memory");
                assert!(goes_this_way(world, &Collective::Bcast { buffer: buffer.clone(), root: 0 }));
                buffer.load(byte);
            };
            broadcast(&mut byte);
            if world.rank() == 1 {
                while !IS_AHEAD.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            }
            for number in 1..=7 {
                byte = [if world.rank() == 0 { number } else { 0 }; 40];
                broadcast(&mut byte);
                assert_eq!(byte, [number; 40]);
            }
            IS_AHEAD.store(true, Ordering::Release);
        });
    }

    /// Goal: memory is freed when all members have finished with it. Method: create more communicators than fit into memory.
    #[test]
    fn memory_of_communicators_comes_back() {
        in_threads("shm(dm=1MiB)", 2, None, |process| {
            for round in 0..100 {
                let comm = process.world().dup().expect("made");
                assert!(goes_this_way(&comm, &Collective::Barrier), "communicator {round}");
                // All members have passed when the next communicator is created.
            }
        });
    }

    /// Goal: a member that waits for another's flag finds it, even if that member leaves and frees its memory soon. Method: an
    /// operation in which both wait for both, directly followed by the end of the communicator.
    #[test]
    fn memory_stays_while_a_member_looks_at_it() {
        in_threads("shm", 2, None, |process| {
            for _ in 0..300 {
                let comm = process.world().dup().expect("made");
                assert!(goes_this_way(&comm, &bcast(40 * SHOWN_MAX)));
            }
        });
    }
}
