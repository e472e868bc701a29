//! Decides which calls of a communicator use shared memory. All members reach the same decision.

use collectives::{Case, CollKind};
use verbs::DeviceAttr;

use crate::coll::collective::Collective;
use crate::coll::shm::setup::{create, is_possible};
use crate::coll::shm::slots::BCOPY_MAX;
use crate::coll::shm::small::SmallCollective;
use crate::coll::shm::state::{CommShmColl, MEMBERS_MAX, ShmColl, ShmSetup};
use crate::comm::communicator::Comm;
use crate::error::Result;
use crate::memory::Buffer;

/// Bytes that each of `ranks` ranks of a host can publish to all others at a time in shared device memory. Longer data are read
/// directly from the owner's buffer: [`Case::shared`].
pub fn shared_bytes(attr: &DeviceAttr, ranks: u32) -> u64 {
    if attr.maps_peers && (2..=MEMBERS_MAX as u32).contains(&ranks) { BCOPY_MAX as u64 } else { 0 }
}

/// Eligible calls of a communicator that use messages before shared memory is set up. Creating it takes as long as about ten short
/// calls by messages on a communicator whose members are connected, and a hundred on the first communicator, so it does not pay for
/// few calls. All members count the same calls.
const CALLS_BEFORE: u32 = 8;

impl CommShmColl {
    /// Carries out a call if it uses shared memory. Invalid calls are left to the message path, which reports the error.
    pub(crate) fn run(&mut self, comm: &Comm, call: &Collective) -> Option<Result<()>> {
        if matches!(self.state, ShmSetup::Impossible) {
            return None;
        }
        let case = case_of(comm, call)?;
        self.run_case(comm, call, case).transpose()
    }

    /// Runs the call through shared memory, and sets that up after some calls; `None` if it has to use messages.
    fn run_case(&mut self, comm: &Comm, call: &Collective, case: Case) -> Result<Option<()>> {
        if matches!(self.state, ShmSetup::Impossible) || !self.uses_shm(comm, case) {
            return Ok(None);
        }
        match &mut self.state {
            ShmSetup::Counting(calls) if *calls < CALLS_BEFORE => {
                *calls += 1;
                return Ok(None);
            }
            ShmSetup::Counting(_) => {
                let made = if is_possible(comm)? { create(comm)? } else { None };
                self.state = made.map_or(ShmSetup::Impossible, |shm| ShmSetup::Ready(Box::new(shm)));
            }
            ShmSetup::Impossible | ShmSetup::Ready(_) => {}
        }
        match &mut self.state {
            ShmSetup::Ready(shm) => shm.run(call).map(Some),
            _ => Ok(None),
        }
    }

    /// The state, if the last call of this kind used it, because a similar call will too.
    #[inline]
    fn last_used(&mut self, kind: CollKind) -> Option<&mut ShmColl> {
        match (&mut self.state, &self.last[kind as usize]) {
            (ShmSetup::Ready(shm), Some((case, true))) if case.commutative => Some(shm),
            _ => None,
        }
    }

    /// As [`CommShmColl::run`] for short calls on contiguous data. Returns `None` if the call does not qualify.
    #[inline]
    pub(crate) fn run_small(&mut self, call: &SmallCollective) -> Option<Result<()>> {
        let shm = self.last_used(call.kind())?;
        call.is_possible(shm).then(|| shm.run_small(call))
    }

    fn uses_shm(&mut self, comm: &Comm, case: Case) -> bool {
        let last = &mut self.last[case.kind as usize];
        if let Some((known, chosen)) = last
            && *known == case
        {
            return *chosen;
        }
        let chosen = comm.core().tuning().choose(case, || comm.is_of_own_job()).algorithm.name == "shared";
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
        Collective::Barrier => (CollKind::Barrier, None),
        Collective::Bcast { root, .. } if is_rank(*root) => (CollKind::Bcast, None),
        Collective::Allgather { output, .. } if even(output) => (CollKind::Allgather, None),
        Collective::Alltoall { input, output } if even(output) && input.as_ref().is_none_or(even) => {
            (CollKind::Alltoall, None)
        }
        Collective::Reduce { input, output, op, root } if is_rank(*root) => {
            let given = match input {
                Some(input) => input,
                None if *root == comm.rank() => output,
                None => return None,
            };
            let significant = if *root == comm.rank() { output } else { given };
            significant.check_reduced_by(op).ok()?;
            (CollKind::Reduce, Some(op))
        }
        Collective::Allreduce { output, op, .. } => {
            output.check_reduced_by(op).ok()?;
            (CollKind::Allreduce, Some(op))
        }
        _ => return None,
    };
    let commutative = op.is_none_or(|op| op.is_commutative());
    Some(Case {
        kind,
        size,
        bytes: 1,
        commutative,
        equal_blocks: true,
        segment: 0,
        shared: BCOPY_MAX as u64,
        hosts: 1,
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use host::Task;

    use super::*;
    use crate::coll::shm::ring::{CHUNK, RING_LEN};
    use crate::{Config, LocalKvs, Port, Process, Tuning};

    /// Runs a body in threads on a device, with a named algorithm for barriers.
    fn in_threads(device: &'static str, ranks: u32, barrier: Option<&'static str>, body: fn(&Process)) {
        in_threads_on(&vec![device; ranks as usize], barrier, body);
    }

    /// As [`in_threads`], each rank on a device of its own.
    fn in_threads_on(devices: &[&'static str], barrier: Option<&'static str>, body: fn(&Process)) {
        let ranks = devices.len() as u32;
        let (host, kvs) = (host::real::host(), LocalKvs::new(ranks));
        let run = |rank: u32| {
            let (host, kvs, device) = (host.clone(), Arc::clone(&kvs), devices[rank as usize]);
            move || {
                let device = fabric::open(device, &host).expect("a device");
                let ports = vec![Port { device, address: Ipv4Addr::LOCALHOST.into(), fabric: "shm".into() }];
                let algorithms =
                    barrier.map(|name| (CollKind::Barrier, name.to_owned())).into_iter().collect();
                let tuning = Tuning { costs: None, algorithms };
                let config = Config { ports, node: "here".into(), tuning, ..Config::default() };
                let process = Process::start(&host, &config, kvs.bootstrap(rank, &host)).expect("a job");
                body(&process);
                process.finalize().expect("an end");
            }
        };
        let ranks: Vec<Task> =
            (0..ranks).map(|rank| host.spawn("rank", None, run(rank)).expect("a thread")).collect();
        ranks.into_iter().for_each(Task::join);
    }

    /// Whether a call uses shared memory, on a communicator that has had enough earlier calls.
    fn uses_shared_memory(comm: &Comm, call: &Collective) -> bool {
        (0..=CALLS_BEFORE).any(|_| comm.run_shm(call).map(|done| done.expect("valid")).is_some())
    }

    /// Goal: communicators with few calls need no memory, and all members switch at the same call, whatever the calls are.
    #[test]
    fn first_calls_use_messages() {
        in_threads("shm", 3, None, |process| {
            let comm = process.world().dup().expect("made");
            let calls = [Collective::Barrier, bcast(8), bcast(10 * BCOPY_MAX)];
            for number in 0..CALLS_BEFORE as usize {
                assert!(comm.run_shm(&calls[number % 3]).is_none(), "call {number}");
                comm.collective(&Collective::Gather {
                    input: Some(Buffer::empty()),
                    output: Buffer::empty(),
                    root: 0,
                })
                .expect("a gather is not counted");
            }
            assert!(comm.run_shm(&calls[1]).expect("shared memory is used").is_ok());
            assert!(comm.run_shm(&calls[2]).is_some());
        });
    }

    fn bcast(len: usize) -> Collective {
        Collective::Bcast { buffer: Buffer::from_bytes(&vec![1; len]).expect("memory"), root: 0 }
    }

    #[test]
    fn calls_of_few_members_use_shared_memory() {
        in_threads("shm", 3, None, |process| {
            let world = process.world();
            assert!(uses_shared_memory(world, &Collective::Barrier));
            for len in [0, 1, BCOPY_MAX, BCOPY_MAX + 1, 100 * BCOPY_MAX] {
                assert!(uses_shared_memory(world, &bcast(len)), "{len} bytes");
            }
            assert!(!uses_shared_memory(process.comm_self(), &Collective::Barrier), "of one");
        });
    }

    #[test]
    fn named_algorithm_replaces_shared_memory() {
        in_threads("shm", 2, Some("tree"), |process| {
            assert!(!uses_shared_memory(process.world(), &Collective::Barrier));
            assert!(uses_shared_memory(process.world(), &bcast(8)));
        });
    }

    /// A byte of rank `rank`'s block `block`.
    fn byte(rank: usize, block: usize, at: usize) -> u8 {
        (rank * 31 + block * 7 + at * 3 + at / 251) as u8
    }

    /// Calls on `len` bytes a rank or block, whose results are compared byte by byte.
    fn check_long_calls(process: &Process, len: usize) {
        let world = process.world();
        let (me, ranks) = (world.rank() as usize, world.size() as usize);
        let buffer = |bytes: Vec<u8>| Buffer::from_bytes(&bytes).expect("memory");
        let block = |rank: usize, block: usize| (0..len).map(move |at| byte(rank, block, at));
        let zeros = |blocks: usize| buffer(vec![0; blocks * len]);
        let run = |call: &Collective| assert!(uses_shared_memory(world, call), "{call:?}");
        let all = |of: &dyn Fn(usize) -> Vec<u8>| (0..ranks).flat_map(of).collect::<Vec<u8>>();
        let sum: Vec<u8> =
            (0..len).map(|at| (0..ranks).fold(0, |sum, rank| sum ^ byte(rank, 5, at))).collect();
        let (mine, op) = (buffer(block(me, 5).collect()), || datatypes::Operator::Bxor.into());
        for root in 0..ranks {
            let data = if root == me { buffer(block(root, 1).collect()) } else { zeros(1) };
            run(&Collective::Bcast { buffer: data.clone(), root: root as i32 });
            assert!(data.to_vec().into_iter().eq(block(root, 1)), "broadcast from {root}");
            let result = zeros(1);
            let (input, output) = (Some(mine.clone()), result.clone());
            run(&Collective::Reduce { input, output, op: op(), root: root as i32 });
            assert!(root != me || result.to_vec() == sum, "reduced to {root}");
        }
        for in_place in [false, true] {
            let output = zeros(ranks);
            let own = output.clone().packed_range((me * len) as u64, len as u64);
            own.store(&block(me, 5).collect::<Vec<u8>>());
            let input = (!in_place).then(|| mine.clone());
            run(&Collective::Allgather { input, output: output.clone() });
            assert!(output.to_vec() == all(&|rank| block(rank, 5).collect()), "gathered, {in_place}");
            let given = buffer(all(&|to| block(me, to).collect()));
            let output = if in_place { given.clone() } else { zeros(ranks) };
            run(&Collective::Alltoall { input: (!in_place).then_some(given), output: output.clone() });
            assert!(output.to_vec() == all(&|from| block(from, me).collect()), "exchanged, {in_place}");
            let output = if in_place { buffer(block(me, 5).collect()) } else { zeros(1) };
            let input = (!in_place).then(|| mine.clone());
            run(&Collective::Allreduce { input, output: output.clone(), op: op() });
            assert!(output.to_vec() == sum, "reduced, {in_place}");
        }
    }

    /// Goal: data of all lengths arrive whole, in chunks or not. Method: lengths around those of chunks and rings, in members of
    /// which none, one or all have no memory for a ring.
    #[test]
    fn long_data_arrive_whole_with_and_without_rings() {
        fn body(process: &Process) {
            let lens = [BCOPY_MAX + 1, CHUNK - 1, CHUNK, CHUNK + 1, 200_000, RING_LEN, RING_LEN + 100_001];
            lens.into_iter().for_each(|len| check_long_calls(process, len));
        }
        const SMALL: &str = "shm(dm=512KiB)";
        for devices in [vec!["shm"; 2], vec!["shm"; 3], vec![SMALL; 3]] {
            in_threads_on(&devices, None, body);
        }
        in_threads_on(&[SMALL, "shm", "shm"], None, body);
        in_threads_on(&["shm", "shm", SMALL], None, body);
    }

    /// Goal: rings that are full get room again after a member without a ring has published late. Method: that member begins when
    /// the others have long filled their rings, with data that do not fit into them.
    #[test]
    fn rings_get_room_after_late_data_without_ring() {
        in_threads_on(&["shm(dm=512KiB)", "shm", "shm"], None, |process| {
            let world = process.world();
            assert!(uses_shared_memory(world, &Collective::Barrier));
            let len = 2 * RING_LEN;
            let output = Buffer::from_bytes(&vec![0; 3 * len]).expect("memory");
            let input = Some(Buffer::from_bytes(&vec![world.rank() as u8 + 1; len]).expect("memory"));
            if world.rank() == 0 {
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
            assert!(uses_shared_memory(world, &Collective::Allgather { input, output: output.clone() }));
            let gathered = output.to_vec();
            assert!(gathered.chunks(len).zip(1..).all(|(part, rank)| part.iter().all(|byte| *byte == rank)));
        });
    }

    /// Goal: a ring is freed when all members have finished with it. Method: create more communicators than have room for one.
    #[test]
    fn rings_of_freed_communicators_are_reused() {
        in_threads("shm(dm=2MiB)", 2, None, |process| {
            for round in 0..20 {
                let comm = process.world().dup().expect("made");
                let call = |len: usize| uses_shared_memory(&comm, &bcast(len));
                assert!(call(CHUNK) && call(10 * CHUNK), "communicator {round}");
            }
        });
    }

    /// Without memory to share, all calls use messages.
    #[test]
    fn calls_without_device_memory_use_messages() {
        in_threads("shm(dm=4KiB)", 2, None, |process| {
            assert!(!uses_shared_memory(process.world(), &Collective::Barrier));
            process.world().collective(&Collective::Barrier).expect("all are there");
        });
    }

    /// Goal: a root need not wait for late members, which find the data of each operation in order. Method: seven broadcasts return
    /// at the root before the other member starts the first of them.
    #[test]
    fn bcast_root_does_not_wait_for_late_members() {
        use std::sync::atomic::{AtomicBool, Ordering};
        static IS_AHEAD: AtomicBool = AtomicBool::new(false);
        in_threads("shm", 2, None, |process| {
            let (world, mut byte) = (process.world(), [0_u8; 40]);
            let broadcast = |byte: &mut [u8]| {
                let buffer = Buffer::from_bytes(byte).expect("memory");
                assert!(uses_shared_memory(world, &Collective::Bcast { buffer: buffer.clone(), root: 0 }));
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
    fn memory_of_freed_communicators_is_reused() {
        in_threads("shm(dm=1MiB)", 2, None, |process| {
            for round in 0..100 {
                let comm = process.world().dup().expect("made");
                assert!(uses_shared_memory(&comm, &Collective::Barrier), "communicator {round}");
                // All members have passed when the next communicator is created.
            }
        });
    }

    /// Goal: a member that waits for another's flag finds it, even if that member leaves and frees its memory soon. Method: an
    /// operation in which both wait for both, directly followed by the end of the communicator.
    #[test]
    fn memory_stays_while_a_member_polls_it() {
        in_threads("shm", 2, None, |process| {
            for _ in 0..300 {
                let comm = process.world().dup().expect("made");
                assert!(uses_shared_memory(&comm, &bcast(40 * BCOPY_MAX)));
            }
        });
    }
}
