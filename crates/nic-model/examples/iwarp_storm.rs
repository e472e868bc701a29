//! The protocol state machines of iWARP in virtual time, for any number of seeds.
//!
//! `cargo run --release -p nic-model --example iwarp_storm -- 20000` runs 20000 seeds, each twice, on all
//! cores; `... -- 17..18` runs one of them.

#[path = "../tests/iwarp_storm/mod.rs"]
mod iwarp_storm;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use host::world::FiberKind;

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_else(|| "1000".to_owned());
    let number = |text: &str| text.parse::<u64>().expect("a number of seeds, or FROM..TO");
    let (from, to) = match argument.split_once("..") {
        Some((from, to)) => (number(from), number(to)),
        None => (1, number(&argument) + 1),
    };
    if to == from + 1 {
        println!("{:#?}", iwarp_storm::run(from, FiberKind::Coroutine));
    }
    let (next, failed, events) = (AtomicU64::new(from), AtomicU64::new(0), AtomicU64::new(0));
    let endings = Mutex::new(BTreeMap::<String, u64>::new());
    let work = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= to {
                break;
            }
            match iwarp_storm::run_twice(seed) {
                Ok(run) => {
                    events.fetch_add(2 * run.ended.events, Ordering::Relaxed);
                    let mut endings = endings.lock().expect("nobody panics with it");
                    for report in &run.reports {
                        *endings.entry(format!("{:?}", report.ending)).or_default() += 1;
                    }
                }
                Err(why) => {
                    failed.fetch_add(1, Ordering::Relaxed);
                    println!("{why}\n");
                }
            }
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..cores).for_each(|_| drop(scope.spawn(work))));
    for (ending, count) in endings.into_inner().expect("nobody panicked with it") {
        println!("{count:>8} ends: {ending}");
    }
    let (failed, events) = (failed.into_inner(), events.into_inner());
    println!("{} seeds, each twice, {events} events: {failed} failed", to - from);
    std::process::exit(i32::from(failed > 0));
}
