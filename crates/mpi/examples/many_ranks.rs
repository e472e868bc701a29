//! A job of many ranks in virtual time: a barrier and a sum of 8 bytes, how long that takes to simulate, and how much memory a rank
//! takes: `many_ranks [RANKS [DEVICE]]`.

use std::sync::Arc;
use std::time::Instant;

use datatypes::{Basic, Datatype, Operator};
use mpi::{Buffer, Collective, Config, LocalKvs, Port, Process};
use verbs::Buf;
use verbs::host::Host;
use verbs::host::world::{self, FiberKind, World};

fn rank(host: &Host, kvs: &Arc<LocalKvs>, rank: u32, device: &str) {
    let device = fabric::open(device, host).expect("a device");
    let address = device.attr().port_addrs[0];
    let ports = vec![Port { device, address, fabric: "card".into() }];
    let config = Config { ports, node: format!("rank-{rank}"), ..Config::default() };
    let process = Process::start(host, &config, kvs.bootstrap(rank, host)).expect("a job");
    let world = process.world();
    world.collective(&Collective::Barrier).expect("all come");
    let memory = Buf::alloc(8).expect("memory");
    memory.write(0, &u64::from(rank).to_ne_bytes()).expect("inside");
    let output = Buffer::of(&memory, 0, 1, &Datatype::from(Basic::Uint64)).expect("inside");
    world
        .collective(&Collective::Allreduce { input: None, output, op: Operator::Sum.into() })
        .expect("all come");
    let size = world.size() as u64;
    assert_eq!(memory.to_vec(0..8).expect("inside"), (size * (size - 1) / 2).to_ne_bytes());
    process.finalize().expect("an end");
}

/// The most memory that this process has had, in KiB.
fn most_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

fn main() {
    let mut args = std::env::args().skip(1);
    let ranks: u32 = args.next().map_or(4096, |count| count.parse().expect("a number of ranks"));
    let device = args.next().unwrap_or_else(|| "model:mt23108-vapi".to_owned());
    let (before, began) = (most_kib(), Instant::now());
    let config =
        world::Config { seed: 1, fiber_kind: FiberKind::Coroutine, stack: 256 << 10, max_events: u64::MAX };
    let mut world = World::new(config);
    let kvs = LocalKvs::new(ranks);
    for number in 0..ranks {
        let name = format!("rank-{number}");
        let node = world.add_node(&name);
        let (host, kvs, device) = (node.host(), kvs.clone(), device.clone());
        world.spawn(&name, &[&node], move || rank(&host, &kvs, number, &device)).expect("a fiber");
    }
    let ended = world.run().expect("it ends");
    let each = (most_kib() - before) as f64 / f64::from(ranks);
    println!(
        "{ranks} ranks on {device}: {:.1} s, {each:.1} KiB a rank; {ended:?}",
        began.elapsed().as_secs_f64()
    );
}
