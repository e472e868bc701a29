//! What the first exchange between two processes costs, which makes their connection: 8 bytes there and back. Prints quartiles.
//!
//! `cargo run --release -p mpi --example connect_cost [DEVICE [ROUNDS]]`

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Barrier};

use datatypes::{Basic, Datatype};
use mpi::{Buffer, Comm, Config, LocalKvs, Mode, PeerTag, Port, Process};
use verbs::host::{Host, Task};
use verbs::{Buf, Device};

/// Rounds before the first that counts.
const WARM_UP: usize = 10;

fn exchange(comm: &Comm, rank: u32) {
    let memory = Buf::alloc(16).expect("memory");
    let bytes = |at| Buffer::of(&memory, at, 8, &Datatype::from(Basic::Byte)).expect("inside");
    let with = PeerTag { rank: 1 - rank as i32, tag: 1 };
    if rank == 0 {
        comm.send(Mode::Standard, &bytes(0), with).expect("sent");
    }
    comm.receive(bytes(8), with).expect("received");
    if rank == 1 {
        comm.send(Mode::Standard, &bytes(0), with).expect("sent");
    }
}

/// Microseconds of the first exchange of two processes in a job of their own.
fn round(host: &Host, kvs: &Arc<LocalKvs>, rank: u32, device: &Device, start: &Barrier) -> f64 {
    let address = device.attr().port_addrs.first().copied().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let ports = vec![Port { device: device.clone(), address, fabric: "fabric".into() }];
    let config = Config { ports, node: "here".into(), ..Config::default() };
    let process = Process::start(host, &config, kvs.bootstrap(rank, host)).expect("a job");
    start.wait();
    let began = host.now();
    exchange(process.world(), rank);
    let took = host.now().since(began).as_ps() as f64 / 1e6;
    process.finalize().expect("an end");
    took
}

fn main() {
    let device = std::env::args().nth(1).unwrap_or_else(|| "shm".into());
    let rounds: usize = std::env::args().nth(2).map_or(300, |text| text.parse().expect("a number"));
    let host = verbs::host::real::host();
    let (start, kvs_of_jobs) = (Arc::new(Barrier::new(2)), (0..rounds + WARM_UP).map(|_| LocalKvs::new(2)));
    let kvs_of_jobs: Vec<Arc<LocalKvs>> = kvs_of_jobs.collect();
    let run = |rank: u32| {
        let (host, start, kvs_of_jobs, device) =
            (host.clone(), start.clone(), kvs_of_jobs.clone(), device.clone());
        move || {
            let device = fabric::open(&device, &host).expect("a device");
            let times = kvs_of_jobs.iter().map(|kvs| round(&host, kvs, rank, &device, &start));
            let mut times: Vec<f64> = times.skip(WARM_UP).collect();
            if rank == 0 {
                times.sort_by(f64::total_cmp);
                let [low, median, high] = [1, 2, 3].map(|quarter| times[times.len() * quarter / 4]);
                println!("connect {median:.1} us ({low:.1} to {high:.1})");
            }
        }
    };
    let task: Task = host.spawn("rank", None, run(1)).expect("a thread");
    run(0)();
    task.join();
}
