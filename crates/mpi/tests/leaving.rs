//! Processes that leave regularly: their messages arrive, and operations that name them fail with "has left" instead of a loss.
//! Each process is its own job, so that no fence delays it, and closes its device directly after it has left. Tests run in virtual
//! time by seeds, and in real time on shared memory and iWARP.

mod support;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use auth::Key;
use datatypes::{Basic, Op, Operator};
use mpi::{
    Bootstrap, Bridge, Class, Collective, Comm, Config, Error, LocalBootstrap, LocalKvs, MatchEngine,
    Matcher, Mode, Port, Process, Result, Status,
};
use support::{TestRng, buffer, each_seed, pattern, receive, send, with};
use verbs::host::world::{self, Ended, World};
use verbs::host::{EventCount, Host, Lock, Span, Task};

/// A pipe between two processes, for [`Comm::join`].
#[derive(Default)]
struct Pipe {
    queues: Lock<[VecDeque<Vec<u8>>; 2]>,
    wakeups: [EventCount; 2],
    hosts: Lock<[Option<Host>; 2]>,
}

/// One end of a pipe.
struct PipeEnd {
    pipe: Arc<Pipe>,
    side: usize,
    host: Host,
}

impl PipeEnd {
    fn new(pipe: &Arc<Pipe>, side: usize, host: &Host) -> Self {
        pipe.hosts.lock(host)[side] = Some(host.clone());
        Self { pipe: pipe.clone(), side, host: host.clone() }
    }
}

impl Bridge for PipeEnd {
    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        let other = 1 - self.side;
        self.pipe.queues.lock(&self.host)[other].push_back(bytes.to_vec());
        if let Some(host) = &self.pipe.hosts.lock(&self.host)[other] {
            host.notify(&self.pipe.wakeups[other]);
        }
        Ok(())
    }

    fn shared_key(&self) -> Option<Key> {
        None
    }

    fn receive(&mut self, _: usize) -> Result<Vec<u8>> {
        let next = || self.pipe.queues.lock(&self.host)[self.side].pop_front();
        let came = self.host.wait("Bridge::receive", &self.pipe.wakeups[self.side], None, next);
        came.ok_or_else(|| Error::new(Class::PORT, "the world ended"))
    }
}

/// Number of connections to processes of other jobs.
const REMOTE_PROCS: u32 = 4;

/// The job of one process, which allows connections to other jobs.
struct SingleProcess(Arc<LocalBootstrap>);

impl Bootstrap for SingleProcess {
    fn rank(&self) -> u32 {
        self.0.rank()
    }

    fn size(&self) -> u32 {
        self.0.size()
    }

    fn remote_procs_max(&self) -> u32 {
        REMOTE_PROCS
    }

    fn random_key(&self) -> Result<Key> {
        self.0.random_key()
    }

    fn put(&self, key: &str, value: &str) -> Result<()> {
        self.0.put(key, value)
    }

    fn get(&self, key: &str) -> Result<String> {
        self.0.get(key)
    }

    fn fence(&self) -> Result<()> {
        self.0.fence()
    }
}

/// The program of a process, given its ends of the pipes to the other processes in order.
type Body = fn(&Process, u64, Vec<PipeEnd>);

/// The device and protocol of a run.
#[derive(Clone, Copy, Debug)]
struct Way {
    device: &'static str,
    fast_path: bool,
    match_engine: MatchEngine,
}

impl Way {
    const fn by(device: &'static str) -> Self {
        Self { device, fast_path: false, match_engine: MatchEngine::Verbs }
    }

    const fn written(device: &'static str) -> Self {
        Self { fast_path: true, ..Self::by(device) }
    }
}

/// The runs in virtual time.
const MODELS: [Way; 4] = [
    Way::by("model:mt23108-vapi"),
    Way::written("model:mt23108-vapi"),
    Way::by("model:t3b"),
    Way { match_engine: MatchEngine::Portals(Matcher::Caller), ..Way::by("model:mt23108-vapi") },
];

/// Runs a process from start to end, and closes its device directly afterwards.
fn live(way: Way, me: usize, host: &Host, seed: u64, ends: Vec<PipeEnd>, body: Body) {
    let device = fabric::open(way.device, host).expect("a device");
    let address = device.attr().port_addrs.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let ports = vec![Port { device, address, fabric: "fabric".into() }];
    let node = if host.node().is_some() { format!("node-{me}") } else { "node".into() };
    let (fast_path, match_engine) = (way.fast_path, way.match_engine);
    let config = Config { ports, node, fast_path, match_engine, ..Config::default() };
    let bootstrap = LocalKvs::with_job_number(1, me as u64).bootstrap(0, host);
    let process = Process::start(host, &config, Arc::new(SingleProcess(bootstrap))).expect("a job");
    body(&process, seed, ends);
    process.finalize().expect("an end");
}

/// Pipes between all processes; the ends of each process.
fn pipes(hosts: &[Host]) -> Vec<Vec<PipeEnd>> {
    let mut ends: Vec<Vec<PipeEnd>> = hosts.iter().map(|_| Vec::new()).collect();
    for lower in 0..hosts.len() {
        for higher in lower + 1..hosts.len() {
            let pipe = Arc::new(Pipe::default());
            ends[lower].push(PipeEnd::new(&pipe, 0, &hosts[lower]));
            ends[higher].push(PipeEnd::new(&pipe, 1, &hosts[higher]));
        }
    }
    ends
}

/// Runs processes in virtual time, each on its own machine.
fn in_a_world(way: Way, seed: u64, bodies: &[Body]) -> Ended {
    let mut world = World::new(world::Config { seed, stack: 1 << 20, ..world::Config::default() });
    let nodes: Vec<_> = (0..bodies.len()).map(|me| world.add_node(&format!("node-{me}"))).collect();
    let hosts: Vec<Host> = nodes.iter().map(|node| node.host()).collect();
    for (me, ((body, ends), host)) in bodies.iter().zip(pipes(&hosts)).zip(hosts).enumerate() {
        let body = *body;
        let run = move || live(way, me, &host, seed, ends, body);
        world.spawn(&format!("process-{me}"), &[&nodes[me]], run).expect("a fiber");
    }
    world.run().unwrap_or_else(|failure| panic!("{way:?}, seed {seed}: {failure}"))
}

/// Runs processes as threads in real time.
fn in_threads(device: &'static str, seed: u64, bodies: &[Body]) {
    let host = verbs::host::real::host();
    let hosts: Vec<Host> = bodies.iter().map(|_| host.clone()).collect();
    let run = |(me, (body, ends)): (usize, (&Body, Vec<PipeEnd>))| {
        let (host, body) = (host.clone(), *body);
        let run = move || {
            let _alarm = support::Alarm;
            live(Way::by(device), me, &host, seed, ends, body);
        };
        verbs::host::real::host().spawn("process", None, run).expect("a thread")
    };
    let threads: Vec<Task> = bodies.iter().zip(pipes(&hosts)).enumerate().map(run).collect();
    threads.into_iter().for_each(Task::join);
}

/// One test for each kind of time and body.
macro_rules! bodies {
    ($($name:ident: $($body:ident),*;)*) => {
        mod model {
            $(#[test] fn $name() {
                super::each_seed(12, stringify!($name), |seed| {
                    super::MODELS.map(|way| super::in_a_world(way, seed, &[$(super::$body),*]).trace)
                });
            })*
        }
        mod shm {
            $(#[test] fn $name() {
                (0..20).for_each(|seed| super::in_threads("shm", seed, &[$(super::$body),*]));
            })*
        }
        mod iwarp {
            $(#[test] fn $name() {
                (0..20).for_each(|seed| super::in_threads("iwarp", seed, &[$(super::$body),*]));
            })*
        }
    };
}

bodies! {
    what_was_sent_before_leaving_arrives: receives_all, sends_and_leaves;
    a_reduction_ends_well_though_a_member_leaves_at_once: reduces_and_stays, reduces_and_leaves;
    a_receive_from_anybody_outlives_a_member: hears_of_the_last, leaves_first, sends_last;
    room_for_connections_comes_back: meets_many, visits, visits, visits, visits, visits, visits, visits, visits, visits, visits,
        visits, visits;
}

fn joined(process: &Process, end: &mut PipeEnd) -> Comm {
    process.world().join(0, Ok(Some(end))).expect("two jobs")
}

/// Lets some time pass without any action of this process.
fn pause(process: &Process, rng: &mut TestRng) {
    let span = Span::from_us(rng.below(200) as u64);
    match process.host().node() {
        Some(_) => process.host().charge(span),
        None => std::thread::sleep(span.to_std()),
    }
}

/// Lengths that cover each protocol.
const LENGTHS: [usize; 6] = [0, 8, 500, 5_000, 70_000, 300_000];

fn lengths(seed: u64) -> Vec<usize> {
    let mut rng = TestRng::new(seed);
    (0..1 + rng.below(40)).map(|_| LENGTHS[rng.below(LENGTHS.len())]).collect()
}

fn sends_and_leaves(process: &Process, seed: u64, mut ends: Vec<PipeEnd>) {
    let comm = joined(process, &mut ends[0]);
    let mut all: Vec<Vec<u8>> =
        lengths(seed).into_iter().enumerate().map(|(number, len)| pattern(1, number, len)).collect();
    let begin = |bytes: &mut Vec<u8>| comm.isend(Mode::Standard, &buffer(bytes), with(0, 7)).expect("begun");
    let requests: Vec<_> = all.iter_mut().map(begin).collect();
    for mut request in requests {
        assert_eq!(request.wait().class(), Class::SUCCESS);
    }
    comm.disconnect().expect("its own part");
}

fn receives_all(process: &Process, seed: u64, mut ends: Vec<PipeEnd>) {
    let (comm, mut rng) = (joined(process, &mut ends[0]), TestRng::new(seed + 99));
    for (number, len) in lengths(seed).into_iter().enumerate() {
        if rng.below(3) == 0 {
            pause(process, &mut rng);
        }
        let (bytes, status) = receive(&comm, 300_000, with(0, 7));
        assert!(status.class() == Class::SUCCESS && bytes == pattern(1, number, len), "{number}: {status:?}");
    }
    has_left(&comm, 0);
}

/// Checks that operations that name a process that has left fail without waiting.
fn has_left(comm: &Comm, rank: i32) {
    let mut byte = [0; 1];
    let told = |error: Option<Error>| {
        let error = error.expect("nothing comes from there");
        assert!(error.class == Class::PROC_ABORTED && error.text.contains("has left"), "{error}");
    };
    let status: Status = comm.receive(buffer(&mut byte), with(rank, 7)).expect("valid");
    told(status.error.map(|error| error.as_ref().clone()));
    told(comm.send(Mode::Standard, &buffer(&mut byte), with(rank, 7)).err());
    told(comm.probe(with(rank, 7)).err());
}

fn reduce(process: &Process, seed: u64, end: &mut PipeEnd, is_first: bool) {
    let mut rng = TestRng::new(seed * 2 + u64::from(is_first));
    let both = joined(process, end);
    let all = both.intercomm_merge(!is_first).expect("one communicator");
    pause(process, &mut rng);
    let op: Op = Operator::Sum.into();
    let mut sum = [0_u8; 8];
    let mut one = 1_u64.to_ne_bytes();
    let typed = |bytes: &mut [u8]| support::typed(bytes, 1, &Basic::Uint64.into());
    let call = Collective::Allreduce { input: Some(typed(&mut one)), output: typed(&mut sum), op };
    all.collective(&call).unwrap_or_else(|e| panic!("seed {seed} first {is_first}: {e}"));
    assert_eq!(u64::from_ne_bytes(sum), 2);
    all.disconnect().expect("its own part");
    both.disconnect().expect("its own part");
}

fn reduces_and_stays(process: &Process, seed: u64, mut ends: Vec<PipeEnd>) {
    reduce(process, seed, &mut ends[0], seed.is_multiple_of(2));
}

fn reduces_and_leaves(process: &Process, seed: u64, mut ends: Vec<PipeEnd>) {
    reduce(process, seed, &mut ends[0], !seed.is_multiple_of(2));
}

/// The communicator of three processes that have joined one after the other.
fn all_three(process: &Process, me: usize, ends: &mut [PipeEnd]) -> Comm {
    let merged = |comm: Comm, high| comm.intercomm_merge(high).expect("one communicator");
    match me {
        0 | 1 => {
            let two = merged(joined(process, &mut ends[0]), me == 1);
            let bridge: Option<&mut dyn Bridge> = if me == 0 { Some(&mut ends[1]) } else { None };
            merged(two.join(0, Ok(bridge)).expect("three jobs"), false)
        }
        _ => merged(joined(process, &mut ends[0]), true),
    }
}

fn leaves_first(process: &Process, _: u64, mut ends: Vec<PipeEnd>) {
    let all = all_three(process, 1, &mut ends);
    // This connects both processes.
    send(&all, vec![1], with(0, 1));
    receive(&all, 1, with(0, 1));
    all.disconnect().expect("its own part");
}

fn sends_last(process: &Process, _: u64, mut ends: Vec<PipeEnd>) {
    let all = all_three(process, 2, &mut ends);
    receive(&all, 1, with(0, 2));
    send(&all, vec![9], with(0, 3));
    all.disconnect().expect("its own part");
}

fn hears_of_the_last(process: &Process, seed: u64, mut ends: Vec<PipeEnd>) {
    let all = all_three(process, 0, &mut ends);
    let mut got = [0; 1];
    let mut from_any = all.ireceive(buffer(&mut got), with(mpi::ANY_SOURCE, 3)).expect("begun");
    receive(&all, 1, with(1, 1));
    send(&all, vec![1], with(1, 1));
    pause(process, &mut TestRng::new(seed));
    // Returns when that process has left.
    has_left(&all, 1);
    send(&all, vec![2], with(2, 2));
    assert_eq!(from_any.wait().class(), Class::SUCCESS);
    assert_eq!(got, [9]);
    all.disconnect().expect("its own part");
}

fn visits(process: &Process, _: u64, mut ends: Vec<PipeEnd>) {
    let comm = joined(process, &mut ends[0]);
    send(&comm, vec![3], with(0, 7));
    comm.disconnect().expect("its own part");
}

/// Connects to more processes than the limit at a time, one after the other.
fn meets_many(process: &Process, _: u64, mut ends: Vec<PipeEnd>) {
    assert!(ends.len() > 2 * REMOTE_PROCS as usize);
    for end in &mut ends {
        let comm = joined(process, end);
        let (bytes, status) = receive(&comm, 1, with(0, 7));
        assert!(bytes == [3], "{status:?}");
        has_left(&comm, 0);
        comm.disconnect().expect("its own part");
    }
}
