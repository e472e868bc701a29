//! Measures events per second and memory per rank of virtual time: `cargo run --release -p host --example
//! world_speed [RANKS...]`.
//!
//! Ranks run rounds of a dissemination barrier: each charges time, sends, and waits for a message. A world has one
//! thread, so events per second of processor time is the rate of an otherwise idle machine.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Instant;

use host::world::{Config, Ended, EventHandler, HandlerId, Node, Timeline, World};
use host::{EventCount, Span, Time};

struct Wire {
    timeline: Timeline,
    nodes: Vec<Node>,
    id: OnceLock<HandlerId>,
    inbox: Vec<Mutex<VecDeque<u64>>>,
}

impl Wire {
    fn send(&self, to: usize) {
        let when = self.timeline.now() + Span::from_us(1) + Span::from_ns(to as u64 % 7);
        self.timeline.schedule(when, *self.id.get().expect("added"), to as u64);
    }

    fn receive(&self, me: usize, host: &host::Host, wakeup: &EventCount) {
        let attempt = || {
            self.nodes[me].sync();
            host.charge(Span::from_ns(20));
            self.inbox[me].lock().expect("no panic").pop_front()
        };
        host.wait("receive", wakeup, None, attempt).expect("no deadline");
    }
}

impl EventHandler for Wire {
    fn on_event(&self, now: Time, token: u64) {
        self.inbox[token as usize].lock().expect("no panic").push_back(now.as_ps());
        self.nodes[token as usize].signal();
    }
}

fn barriers(ranks: usize, rounds: u64) -> (Ended, u64) {
    let before = resident_kib();
    let mut world = World::new(Config::default());
    let nodes: Vec<Node> = (0..ranks).map(|i| world.add_node(&format!("node {i}"))).collect();
    let wire = Arc::new(Wire {
        timeline: world.timeline(),
        nodes: nodes.clone(),
        id: OnceLock::new(),
        inbox: nodes.iter().map(|_| Mutex::new(VecDeque::new())).collect(),
    });
    let _ = wire.id.set(world.timeline().add_handler(wire.clone()));
    let resident = Arc::new(Mutex::new(0));
    for (me, node) in nodes.iter().enumerate() {
        let (wire, host, resident) = (wire.clone(), node.host(), resident.clone());
        let body = move || {
            let wakeup = EventCount::new();
            for round in 0..rounds {
                let mut distance = 1;
                while distance < ranks {
                    host.charge(Span::from_ns(200));
                    wire.send((me + distance) % ranks);
                    wire.receive(me, &host, &wakeup);
                    distance *= 2;
                }
                if me == 0 && round == rounds / 2 {
                    *resident.lock().expect("no panic") = resident_kib();
                }
            }
        };
        world.spawn(&format!("rank {me}"), &[node], body).expect("a fiber");
    }
    let ended = world.run().expect("an end");
    let used = resident.lock().expect("no panic").saturating_sub(before);
    (ended, used)
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
}

/// Processor time of this process so far, in seconds.
fn processor() -> f64 {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    spent.tv_sec as f64 + spent.tv_nsec as f64 / 1e9
}

fn main() {
    println!(
        "{:>7} {:>12} {:>12} {:>14} {:>10} {:>14}",
        "ranks", "events", "events/s", "of processor", "KiB/rank", "virtual us"
    );
    let asked: Vec<usize> =
        std::env::args().skip(1).map(|ranks| ranks.parse().expect("a number of ranks")).collect();
    for (ranks, rounds) in [(4, 50_000), (256, 400), (1024, 80), (4096, 20), (16_384, 4)] {
        if !asked.is_empty() && !asked.contains(&ranks) {
            continue;
        }
        let (began, spent) = (Instant::now(), processor());
        let (ended, kib) = barriers(ranks, rounds);
        let (seconds, spent) = (began.elapsed().as_secs_f64(), processor() - spent);
        println!(
            "{ranks:>7} {:>12} {:>12.0} {:>14.0} {:>10.2} {:>14.1}",
            ended.events,
            ended.events as f64 / seconds,
            ended.events as f64 / spent,
            kib as f64 / ranks as f64,
            ended.time.as_ps() as f64 / 1e6
        );
    }
}
