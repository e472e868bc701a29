//! Measures how long 8 bytes take from one process to another, for each transport and each thread that can match, in turns of one run.
//!
//! `cargo run --release -p mpi --example match_engine_speed [DEVICE]`

use std::net::{IpAddr, Ipv4Addr};

use datatypes::{Basic, Datatype};
use mpi::{Buffer, Comm, Config, LocalKvs, MatchEngine, Matcher, Mode, PeerTag, Port, Process};
use verbs::Buf;
use verbs::host::{Host, Task};

const TURNS: usize = 9;
const ROUNDS: u64 = 20_000;
const MATCH_ENGINES: [(MatchEngine, &str); 2] =
    [(MatchEngine::Verbs, "verbs"), (MatchEngine::Portals(Matcher::Caller), "Portals")];

fn process(
    host: &Host,
    kvs: &std::sync::Arc<LocalKvs>,
    rank: u32,
    device: &str,
    match_engine: MatchEngine,
) -> Process {
    let device = fabric::open(device, host).expect("a device");
    let address = device.attr().port_addrs.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let ports = vec![Port { device, address, fabric: "fabric".into() }];
    let config = Config { ports, node: "here".into(), match_engine, ..Config::default() };
    Process::start(host, &config, kvs.bootstrap(rank, host)).expect("a job")
}

/// Nanoseconds of a message, one way.
fn ping(host: &Host, comm: &Comm, rank: u32) -> f64 {
    let memory = Buf::alloc(64).expect("memory");
    let bytes = |at| Buffer::of(&memory, at, 8, &Datatype::from(Basic::Byte)).expect("inside");
    let (out, into) = (bytes(0), bytes(8));
    let with = PeerTag { rank: 1 - rank as i32, tag: 1 };
    let began = host.now();
    for _ in 0..ROUNDS {
        if rank == 0 {
            comm.send(Mode::Standard, &out, with).expect("sent");
        }
        comm.receive(into.clone(), with).expect("received");
        if rank == 1 {
            comm.send(Mode::Standard, &out, with).expect("sent");
        }
    }
    host.now().since(began).as_ps() as f64 / 2000.0 / ROUNDS as f64
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn run(host: &Host, kvs_of_jobs: &[std::sync::Arc<LocalKvs>; 2], rank: u32, device: &str) {
    let processes = [0, 1].map(|at| process(host, &kvs_of_jobs[at], rank, device, MATCH_ENGINES[at].0));
    let mut found = [Vec::new(), Vec::new()];
    for turn in 0..=TURNS {
        for (process, found) in processes.iter().zip(&mut found) {
            let took = ping(host, process.world(), rank);
            // The first turn makes connections.
            if turn > 0 {
                found.push(took);
            }
        }
    }
    for process in processes {
        process.finalize().expect("an end");
    }
    if rank == 0 {
        let ratios = found[1].iter().zip(&found[0]).map(|(over, floor)| over / floor).collect();
        let [floor, over] = found.map(median);
        let ratio = median(ratios);
        println!("{device}: 8 B over verbs {floor:.0} ns, over Portals {over:.0} ns: {ratio:.2}");
    }
}

fn main() {
    let device = std::env::args().nth(1).unwrap_or_else(|| "shm".into());
    let host = verbs::host::real::host();
    let kvs_of_jobs = [0, 1].map(|_| LocalKvs::new(2));
    let (other, theirs, name) = (host.clone(), kvs_of_jobs.clone(), device.clone());
    let task: Task = host.spawn("rank", None, move || run(&other, &theirs, 1, &name)).expect("a thread");
    run(&host, &kvs_of_jobs, 0, &device);
    task.join();
}
