//! Traffic over rails of modelled cards while a cable is cut: `rails_storm [FIRST [LAST [shared]]]` runs these
//! seeds, with `shared` the storms of messages into a shared receive queue.

#[path = "../tests/support/rails.rs"]
mod rails;

use std::process::ExitCode;

use rails::Load;
use verbs::host::world::FiberKind;

fn main() -> ExitCode {
    let seed =
        |at, default: u64| std::env::args().nth(at).and_then(|arg| arg.parse().ok()).unwrap_or(default);
    let first = seed(1, 1);
    let seeds = first..=seed(2, first);
    let shared = std::env::args().nth(3).is_some_and(|arg| arg == "shared");
    let (load, word) = if shared { (Load::Shared, " shared") } else { (Load::Traffic, "") };
    let (mut failed, mut lost, count) = (0, 0, seeds.clone().count());
    for seed in seeds {
        match rails::storm(seed, load, FiberKind::Coroutine) {
            Ok((_, rails)) => lost += u32::from(rails > 0),
            Err(why) => {
                failed += 1;
                let again = "cargo run --release -p nic-model --example rails_storm --";
                eprintln!("{why}\nto see it again: {again} {seed} {seed}{word}\n");
            }
        }
    }
    println!("{count} storms, in {lost} of which a rail was lost; {failed} failed");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
