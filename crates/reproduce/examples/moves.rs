//! Makes `data/moves.csv` anew: which values of the machine files move which rows.
//!
//! `cargo run --release -p reproduce --example moves > crates/reproduce/data/moves.csv` takes some ten minutes;
//! progress is printed to standard error. Arguments name cards; then only their lines are printed. With `-- --shaken` it
//! prints `data/shaken.csv` instead, after some five minutes of processor time: the claims that move if all values change
//! together.

use std::io::stdout;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use reproduce::{GROUPS, Sensitivity, shaken};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let wanted =
        |group: &&[&str]| asked.is_empty() || asked.iter().any(|card| group[0].ends_with(card.as_str()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    // Never set: an interrupt ends this program.
    let stop = AtomicBool::new(false);
    let mut out = csv::Writer::from_writer(stdout());
    if asked.iter().any(|arg| arg == "--shaken") {
        shaken(threads, &stop).map_or(Ok(()), |all| all.write(&mut out))?;
        return Ok(out.flush()?);
    }
    for cards in GROUPS.iter().copied().filter(wanted) {
        let began = Instant::now();
        let sensitivity = Sensitivity::new(reproduce::machines(&[])?, cards, threads, &stop);
        let trials = sensitivity.trials(cards[0]);
        eprintln!("{}: {} changes, base in {:.1?}", cards[0], trials.len(), began.elapsed());
        for trial in trials {
            let effects =
                sensitivity.try_change(&trial, cards, &stop).filter(|effects| !effects.rows.is_empty());
            if let Some(effects) = effects {
                effects.write(&mut out)?;
                out.flush()?;
            }
        }
        eprintln!("{}: done in {:.1?}", cards[0], began.elapsed());
    }
    Ok(())
}
