//! Jobs for tests: the same body as ranks of a simulated world, and as threads that communicate through devices.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use datatypes::{Basic, Datatype};
use mpi::{
    ANY_SOURCE, ANY_TAG, Buffer, CollKind, Comm, Config, Connect, LocalKvs, MatchEngine, OneSided, PeerTag,
    Port, Process, Status, Tuning,
};
use verbs::host::world::{self, Ended, FiberKind, World};
use verbs::host::{Host, Task};

/// Aligns long allocations to pages, and keeps shorter ones within one page. The cost of a registration on a modelled card depends
/// on the number of pages, and equal seeds must give equal worlds.
struct OnPages;

// SAFETY: as the system's allocator, with more alignment than requested.
unsafe impl GlobalAlloc for OnPages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as promised by the caller.
        unsafe { System.alloc(paged(layout)) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as promised by the caller, with the alignment used for the allocation.
        unsafe { System.dealloc(memory, paged(layout)) }
    }
}

fn paged(layout: Layout) -> Layout {
    let align = layout.size().next_power_of_two().min(4096);
    layout.align_to(align).expect("a power of two")
}

#[global_allocator]
static ALLOCATOR: OnPages = OnPages;

/// The program of each rank.
pub(crate) type Body = fn(&Process);

/// A job in virtual time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Play {
    pub(crate) card: &'static str,
    pub(crate) ranks: u32,
    pub(crate) seed: u64,
    pub(crate) connect: Connect,
    pub(crate) fiber_kind: FiberKind,
    /// Messages are written to peers' memory.
    pub(crate) fast_path: bool,
    /// Which one-sided operations are sent as messages.
    pub(crate) one_sided: OneSided,
    /// The transport of messages.
    pub(crate) match_engine: MatchEngine,
    /// Collective algorithms by name.
    pub(crate) algorithms: &'static [(CollKind, &'static str)],
}

impl Play {
    pub(crate) fn new(ranks: u32) -> Self {
        let (connect, fiber_kind) = (Connect::OnDemand, FiberKind::Coroutine);
        Self {
            card: "model:mt23108-vapi",
            ranks,
            seed: 1,
            connect,
            fiber_kind,
            fast_path: false,
            one_sided: OneSided::default(),
            match_engine: MatchEngine::Verbs,
            algorithms: &[],
        }
    }

    /// Runs a body on a machine for each rank.
    pub(crate) fn run(self, body: impl Fn(&Process) + Clone + Send + 'static) -> Ended {
        let config = world::Config {
            seed: self.seed,
            fiber_kind: self.fiber_kind,
            stack: 1 << 20,
            max_events: 200_000_000,
        };
        let mut world = World::new(config);
        let kvs = LocalKvs::new(self.ranks);
        for rank in 0..self.ranks {
            let name = format!("rank-{rank}");
            let node = world.add_node(&name);
            let (host, kvs, body, name_of_node) = (node.host(), kvs.clone(), body.clone(), name.clone());
            let run = move || {
                let names = self.algorithms.iter().map(|(kind, name)| (*kind, (*name).to_owned()));
                let tuning = Tuning { costs: None, algorithms: names.collect() };
                let how = Config {
                    connect: self.connect,
                    tuning,
                    fast_path: self.fast_path,
                    one_sided: self.one_sided,
                    match_engine: self.match_engine,
                    ..Config::default()
                };
                rank_body(&host, &kvs, rank, (self.card, "card", &name_of_node), how, body)
            };
            world.spawn(&name, &[&node], run).expect("a fiber");
        }
        world.run().unwrap_or_else(|failure| panic!("{self:?}: {failure}"))
    }
}

fn rank_body(
    host: &Host,
    kvs: &Arc<LocalKvs>,
    rank: u32,
    (device, fabric, node): (&str, &str, &str),
    how: Config,
    body: impl Fn(&Process),
) {
    let device = fabric::open(device, host).expect("a device");
    let address = device.attr().port_addrs.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let ports = vec![Port { device, address, fabric: fabric.into() }];
    let config = Config { ports, node: node.into(), ..how };
    let process = Process::start(host, &config, kvs.bootstrap(rank, host)).expect("a job");
    body(&process);
    process.finalize().expect("an end");
}

/// Ends the test program when a rank panics: the other ranks would wait for it.
pub(crate) struct Alarm;

impl Drop for Alarm {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::exit(101);
        }
    }
}

/// Runs a body in real time, in a thread for each rank.
pub(crate) fn in_threads(device: &'static str, ranks: u32, connect: Connect, body: Body) {
    in_threads_on(vec![device], ranks, connect, body);
}

/// As [`in_threads`], with a message transport.
pub(crate) fn in_threads_by(match_engine: MatchEngine, device: &'static str, ranks: u32, body: Body) {
    in_threads_with(vec![device], ranks, Config { match_engine, ..Config::default() }, body);
}

/// As [`in_threads`] over iWARP, with messages by the fast path.
pub(crate) fn in_threads_written(ranks: u32, body: Body) {
    in_threads_with(vec!["iwarp"], ranks, Config { fast_path: true, ..Config::default() }, body);
}

/// As [`in_threads`] over iWARP, with messages by the fast path from odd ranks only.
pub(crate) fn in_threads_written_by_odd(ranks: u32, body: Body) {
    let how = |rank| Config { fast_path: rank % 2 == 1, ..Config::default() };
    in_threads_at(vec!["iwarp"], ranks, how, |_| "here".to_owned(), body);
}

/// As [`in_threads`], with the devices assigned to ranks in turn.
pub(crate) fn in_threads_on(
    devices: Vec<&'static str>,
    ranks: u32,
    connect: Connect,
    body: impl Fn(&Process) + Clone + Send + 'static,
) {
    in_threads_with(devices, ranks, Config { connect, ..Config::default() }, body);
}

/// As [`in_threads`], with ranks assigned in turn to a number of nominal hosts.
pub(crate) fn in_threads_of_hosts(device: &'static str, ranks: u32, hosts: u32, body: Body) {
    let node = move |rank| format!("host-{}", rank % hosts);
    in_threads_at(vec![device], ranks, |_| Config::default(), node, body);
}

fn in_threads_with(
    devices: Vec<&'static str>,
    ranks: u32,
    how: Config,
    body: impl Fn(&Process) + Clone + Send + 'static,
) {
    in_threads_at(devices, ranks, |_| how.clone(), |_| "here".to_owned(), body);
}

fn in_threads_at(
    devices: Vec<&'static str>,
    ranks: u32,
    how: impl Fn(u32) -> Config,
    node: impl Fn(u32) -> String,
    body: impl Fn(&Process) + Clone + Send + 'static,
) {
    let (host, kvs) = (verbs::host::real::host(), LocalKvs::new(ranks));
    let run = |rank: u32| {
        let (host, kvs, how, body) = (host.clone(), kvs.clone(), how(rank), body.clone());
        let (device, node) = (devices[rank as usize % devices.len()], node(rank));
        move || {
            let _alarm = Alarm;
            rank_body(&host, &kvs, rank, (device, "fabric", &node), how, body);
        }
    };
    let threads: Vec<Task> =
        (0..ranks).map(|rank| host.spawn("rank", None, run(rank)).expect("a thread")).collect();
    threads.into_iter().for_each(Task::join);
}

/// Bytes as a buffer. Tests must keep them while the buffer is used.
pub(crate) fn buffer(bytes: &mut [u8]) -> Buffer {
    typed(bytes, bytes.len() as i64, &Basic::Byte.into())
}

/// Bytes as a buffer of another type, which must fit inside.
pub(crate) fn typed(bytes: &mut [u8], count: i64, datatype: &Datatype) -> Buffer {
    // SAFETY: the tests keep the bytes, and do not access them while the buffer is used.
    unsafe { Buffer::new(bytes.as_mut_ptr().expose_provenance(), count, datatype.clone()) }.expect("a buffer")
}

/// The payload of message `number` from rank `rank`, with this length.
pub(crate) fn pattern(rank: i32, number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + number * 31 + rank as usize * 101) as u8).collect()
}

/// Any source, any tag.
pub(crate) const ANY: PeerTag = PeerTag { rank: ANY_SOURCE, tag: ANY_TAG };

pub(crate) fn with(rank: i32, tag: i32) -> PeerTag {
    PeerTag { rank, tag }
}

/// Sends bytes in the standard mode.
pub(crate) fn send(comm: &Comm, mut bytes: Vec<u8>, to: PeerTag) {
    comm.send(mpi::Mode::Standard, &buffer(&mut bytes), to).expect("sent");
}

/// Receives a message of at most `room` bytes.
pub(crate) fn receive(comm: &Comm, room: usize, from: PeerTag) -> (Vec<u8>, Status) {
    let mut bytes = vec![0xee; room];
    let status = comm.receive(buffer(&mut bytes), from).expect("valid");
    bytes.truncate(status.bytes as usize);
    (bytes, status)
}

/// Runs the seeds of a random test in virtual time: `few` seeds, some of them twice; or the number in the variable `NICETY_SEEDS`,
/// all of them twice. `run` returns the result that must be equal the second time.
pub(crate) fn each_seed<T: PartialEq + std::fmt::Debug>(few: u64, what: &str, run: impl Fn(u64) -> T) {
    let wished = std::env::var("NICETY_SEEDS").ok();
    let seeds = wished.as_deref().map_or(few, |text| text.parse().expect("NICETY_SEEDS is a number"));
    for seed in 1..=seeds {
        let once = run(seed);
        if wished.is_some() || seed.is_multiple_of(4) {
            assert_eq!(once, run(seed), "{what}, seed {seed}: another world");
        }
    }
}

/// A simple pseudo-random number generator (xorshift64*).
#[derive(Clone)]
pub(crate) struct TestRng(u64);

impl TestRng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        ((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize) % sides
    }
}
