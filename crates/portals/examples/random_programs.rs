//! Random programs of several processes in virtual time, with faults, for any number of seeds.
//!
//! `cargo run --release -p portals --example random_programs -- 1000` runs 1000 seeds and alternates the fault
//! settings; `... -- 17..18` runs one of them.

#[path = "../tests/worlds/mod.rs"]
mod programs;

use programs::FAULT_SETTINGS;

fn main() {
    let argument = std::env::args().nth(1).unwrap_or_else(|| "1000".to_owned());
    let number = |text: &str| text.parse::<u64>().expect("a number of seeds, or FROM..TO");
    let (from, to) = match argument.split_once("..") {
        Some((from, to)) => (number(from), number(to)),
        None => (1, number(&argument) + 1),
    };
    let mut failed = 0;
    for seed in from..to {
        let card = FAULT_SETTINGS[seed as usize % FAULT_SETTINGS.len()];
        let goes =
            std::panic::catch_unwind(|| programs::run(card, seed).map(drop).map_err(|why| println!("{why}")));
        if !matches!(goes, Ok(Ok(()))) {
            failed += 1;
            println!("seed {seed} on {card} failed");
        }
    }
    println!("{} seeds: {failed} failed", to - from);
    std::process::exit(i32::from(failed > 0));
}
