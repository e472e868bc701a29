//! Traffic over rails of modelled cards while a cable is cut: `rails_storm [FIRST [LAST]]` runs the storms of these seeds.

#[path = "../tests/support/rails.rs"]
mod rails;

use std::process::ExitCode;

use verbs::host::world::Factory;

fn main() -> ExitCode {
    let seed = |at, default: u64| std::env::args().nth(at).and_then(|arg| arg.parse().ok()).unwrap_or(default);
    let first = seed(1, 1);
    let seeds = first..=seed(2, first);
    let (mut failed, count) = (0, seeds.clone().count());
    for seed in seeds {
        if let Err(why) = rails::storm(seed, Factory::Coroutine) {
            failed += 1;
            eprintln!("{why}\nto see it again: cargo run --release -p nic-model --example rails_storm -- {seed}\n");
        }
    }
    println!("{count} storms, {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
