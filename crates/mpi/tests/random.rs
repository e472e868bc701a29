//! Random programs of sends, receives, probes, cancels, splits and collective operations in worlds, by seed, under loss, delay and
//! stalls; each runs twice, with equal traces.
//!
//! The expected result is known in advance: the plan of each program contains all messages, and each rank receives them by calls
//! that depend on the seed, while sums over all ranks are in progress.

mod support;

use datatypes::{Basic, Operator};
use mpi::{
    ANY_SOURCE, ANY_TAG, BsendSpace, Collective, Comm, Connect, MatchEngine, Matcher, Mode, Process, Request,
};
use support::{Play, TestRng, buffer, each_seed, in_threads_by, in_threads_on, pattern, typed, with};
use verbs::host::world::Ended;

/// Seeds per network condition, unless `NICETY_SEEDS` sets another number.
const SEEDS: u64 = 30;

const WEATHERS: &[&str] = &[
    "model:mt23108-vapi",
    "model:mt23108-vapi(faults.loss_ppm=5000)",
    "model:mt23108-nicmem(faults.delay_ns=20000)",
    "model:mt23108-vapi(faults.stall_ppm=20000,faults.stall_ns=50000)",
    "model:mt23108-nicmem(faults.loss_ppm=3000,faults.delay_ns=5000,faults.stall_ppm=5000,faults.stall_ns=20000)",
];

/// A message of the plan.
#[derive(Clone, Copy, Debug)]
struct Sent {
    from: i32,
    to: i32,
    tag: i32,
    len: usize,
    mode: Mode,
}

fn plan(seed: u64, ranks: i32) -> Vec<Sent> {
    let mut rng = TestRng::new(seed);
    let count = 10 + rng.below(60);
    let modes = [Mode::Standard, Mode::Standard, Mode::Synchronous, Mode::Buffered];
    let lens = [0, 1, 30, 90, 700, 6_000, 9_000, 60_000];
    let one = |_| Sent {
        from: rng.below(ranks as usize) as i32,
        to: rng.below(ranks as usize) as i32,
        tag: rng.below(3) as i32,
        len: lens[rng.below(lens.len())] + rng.below(3),
        mode: modes[rng.below(modes.len())],
    };
    (0..count).map(one).collect()
}

/// A program: plans of messages among all ranks, and among subsets, each in its own communicator, so that messages of a rank that
/// runs ahead do not mix with others. Portals does not support cancelling sends.
fn play(process: &Process, seed: u64, match_engine: MatchEngine) {
    let (world, mut rng) = (process.world(), TestRng::new(seed ^ 0xc0));
    process.attach_buffer(BsendSpace::Automatic).expect("the first");
    for phase in 0..1 + rng.below(3) as u64 {
        let (ways, parts, turned) = (rng.below(3), 1 + rng.below(3) as i32, rng.below(2) == 0);
        let key = if turned { -world.rank() } else { world.rank() };
        let comm = match ways {
            0 => world.dup().expect("a copy"),
            1 => world.split(world.rank() % parts, key).expect("split").expect("a colour"),
            // A subset, made by two splits; the second one keeps all of its members.
            _ => {
                let half = world.split(world.rank() / 2, key).expect("split").expect("a colour");
                half.split(0, half.rank()).expect("split").expect("a colour")
            }
        };
        let in_vain = (match_engine == MatchEngine::Verbs).then(|| CancelledReceives::begin(&comm, seed));
        exchange(process, &comm, seed + 1000 * phase);
        in_vain.into_iter().for_each(CancelledReceives::end);
    }
    process.detach_buffer().expect("flushed");
}

/// Sends this rank's messages of the plan without waiting, and receives its messages in some order and by some calls.
fn exchange(process: &Process, world: &Comm, seed: u64) {
    let (me, plan) = (world.rank(), plan(seed, world.size()));
    let mut rng = TestRng::new(seed ^ 0x5eed ^ (process.world().rank() as u64) << 32);
    let mut outgoing: Vec<(Sent, Vec<u8>)> = (0..)
        .zip(&plan)
        .filter(|(_, sent)| sent.from == me)
        .map(|(number, sent)| (*sent, pattern(sent.from, number, sent.len)))
        .collect();
    let mut incoming: Vec<(usize, Sent)> =
        plan.iter().copied().enumerate().filter(|(_, sent)| sent.to == me).collect();
    let mut requests = Vec::new();
    let sums = Sums::begin(world, seed, &mut requests);
    let mut sends = outgoing.iter_mut();
    loop {
        let next = if rng.below(2) == 0 || incoming.is_empty() { sends.next() } else { None };
        match next {
            Some((sent, bytes)) => {
                let to = with(sent.to, sent.tag);
                requests.push(world.isend(sent.mode, &buffer(bytes), to).expect("begun"));
            }
            None if incoming.is_empty() => break,
            // The next message may come from this rank itself, or depend on a message of this rank to another.
            None if sends.len() > 0 => {
                let _ = world.iprobe(with(ANY_SOURCE, ANY_TAG)).expect("valid");
            }
            None => take(world, &mut rng, &mut incoming),
        }
    }
    let statuses = Request::wait_all(&mut requests.iter_mut().collect::<Vec<_>>());
    assert!(statuses.iter().all(|status| status.error.is_none()), "{statuses:?}");
    sums.check(world);
    assert_eq!(world.iprobe(with(ANY_SOURCE, ANY_TAG)).expect("valid"), None, "nothing is left");
}

/// Sends that nobody receives; half of them are cancelled directly, and half at the end.
struct CancelledReceives {
    aside: Comm,
    data: Vec<Vec<u8>>,
    sends: Vec<Request>,
}

impl CancelledReceives {
    fn begin(comm: &Comm, seed: u64) -> Self {
        let mut rng = TestRng::new(seed ^ 0xad ^ (comm.rank() as u64) << 32);
        let aside = comm.dup().expect("a copy");
        let mut data: Vec<Vec<u8>> =
            (0..rng.below(4)).map(|_| vec![7; [0, 30, 6_000, 60_000][rng.below(4)]]).collect();
        let sends = data.iter_mut().map(|bytes| {
            let to = with(rng.below(comm.size() as usize) as i32, 0);
            let send = aside.isend(Mode::Synchronous, &buffer(bytes), to).expect("begun");
            if rng.below(2) == 0 {
                send.cancel().expect("active");
            }
            send
        });
        let sends = sends.collect();
        Self { aside, data, sends }
    }

    fn end(mut self) {
        for send in &mut self.sends {
            send.cancel().expect("active");
            assert!(send.wait().cancelled, "nobody has received it");
        }
        drop(self.data);
        self.aside.collective(&Collective::Barrier).expect("all are there");
        assert_eq!(
            self.aside.iprobe(with(ANY_SOURCE, ANY_TAG)).expect("valid"),
            None,
            "it came all the same"
        );
    }
}

/// Sums over all ranks of a communicator, in progress concurrently with its messages.
struct Sums(Vec<Vec<u8>>);

impl Sums {
    fn begin(comm: &Comm, seed: u64, requests: &mut Vec<Request>) -> Self {
        let mut rng = TestRng::new(seed ^ 0x50);
        let mut all = Vec::new();
        for number in 0..rng.below(4) {
            let words = [1, 5, 900][rng.below(3)];
            let mine = (0..words).flat_map(|word| (value(comm.rank(), number) + word).to_ne_bytes());
            let mut sums: Vec<u8> = mine.collect();
            let output = typed(&mut sums, words as i64, &Basic::Uint64.into());
            let call = Collective::Allreduce { input: None, output, op: Operator::Sum.into() };
            requests.push(comm.icollective(&call).expect("begun"));
            all.push(sums);
        }
        Self(all)
    }

    fn check(&self, comm: &Comm) {
        let size = comm.size() as u64;
        for (number, sums) in self.0.iter().enumerate() {
            let of_all: u64 = (0..comm.size()).map(|rank| value(rank, number)).sum();
            for (word, sum) in (0..).zip(sums.chunks_exact(8)) {
                assert_eq!(sum, (of_all + size * word).to_ne_bytes(), "sum {number}, word {word}");
            }
        }
    }
}

/// A rank's contribution to the first word of a sum.
fn value(rank: i32, number: usize) -> u64 {
    rank as u64 * 1001 + number as u64 * 17 + 1
}

/// Receives one message by some call, and checks that the plan allows it.
fn take(world: &Comm, rng: &mut TestRng, incoming: &mut Vec<(usize, Sent)>) {
    let wished = incoming[rng.below(incoming.len())].1;
    let source = if rng.below(3) == 0 { ANY_SOURCE } else { wished.from };
    let tag = if rng.below(3) == 0 { ANY_TAG } else { wished.tag };
    let from = with(source, tag);
    let mut bytes = vec![0; 70_000];
    let status = match rng.below(5) {
        0 => world.receive(buffer(&mut bytes), from).expect("valid"),
        1 => world.ireceive(buffer(&mut bytes), from).expect("begun").wait(),
        2 => {
            let (message, seen) = world.mprobe(from).expect("valid");
            let status = message.receive(buffer(&mut bytes));
            assert_eq!(status, seen);
            status
        }
        3 => {
            let seen = world.probe(from).expect("valid");
            let status = world.receive(buffer(&mut bytes), with(seen.source, seen.tag)).expect("valid");
            assert_eq!(status, seen);
            status
        }
        _ => {
            let mut other = [0; 1];
            let mut cancelled = world.ireceive(buffer(&mut other), with(wished.from, 77)).expect("begun");
            let mut receives = world.ireceive(buffer(&mut bytes), from).expect("begun");
            cancelled.cancel().expect("active");
            assert!(cancelled.wait().cancelled);
            receives.wait()
        }
    };
    // Messages of one sender with one tag arrive in order.
    let same = |sent: &Sent| sent.from == status.source && sent.tag == status.tag;
    let at = incoming.iter().position(|(_, sent)| same(sent)).expect("a message of the plan");
    let (number, sent) = incoming.remove(at);
    assert!(source == ANY_SOURCE || source == sent.from);
    assert!(tag == ANY_TAG || tag == sent.tag);
    assert_eq!(status.bytes, sent.len as u64, "message {number}");
    assert!(bytes[..sent.len] == pattern(sent.from, number, sent.len), "message {number}");
}

fn run(match_engine: MatchEngine, card: &'static str, seed: u64) -> Ended {
    let ranks = 2 + (seed % 4) as u32;
    Play { match_engine, card, seed, ..Play::new(ranks) }
        .run(move |process| play(process, seed, match_engine))
}

fn complete_for_each_seed(match_engine: MatchEngine) {
    for card in WEATHERS {
        each_seed(SEEDS, card, |seed| run(match_engine, card, seed));
    }
}

#[test]
fn random_programs_complete() {
    complete_for_each_seed(MatchEngine::Verbs);
}

#[test]
fn random_programs_complete_by_portals() {
    complete_for_each_seed(MatchEngine::Portals(Matcher::Caller));
}

#[test]
fn random_programs_complete_with_each_portals_matcher() {
    for device in ["shm", "iwarp"] {
        for (matcher, _) in Matcher::ALL {
            in_threads_by(MatchEngine::Portals(matcher), device, 4, all_by_portals);
        }
    }
}

fn all(process: &Process) {
    (1..=20).for_each(|seed| play(process, seed, MatchEngine::Verbs));
}

fn all_by_portals(process: &Process) {
    (1..=20).for_each(|seed| play(process, seed, MatchEngine::Portals(Matcher::Caller)));
}

/// Devices with rings, devices that send, and ranks with and without memory for rings: then the two directions of a pair may use
/// different protocols.
#[test]
fn random_programs_complete_by_all_protocols() {
    for devices in [vec!["shm"], vec!["shm(dm=4K)"], vec!["shm(dm=4K)", "shm"], vec!["iwarp"]] {
        in_threads_on(devices, 4, Connect::OnDemand, all);
    }
}
