//! Attacks on the stack as repeatable programs. `cargo xtask siege` builds and runs this; by hand, `siege --list` names the
//! attacks and `siege --only NAME --minutes N` runs one attack.
//!
//! | file | what it holds |
//! |---|---|
//! | `attack` | an attack, its budget and its counts |
//! | `attacks` | one file an attack, and their list |
//! | `runner` | runs each attack in a separate process and watches it, so that a crash or a hang is a result |
//! | `child` | child processes of this program in a role, which communicate in lines |
//! | `programs` | C programs that attacks need, compiled against the libraries that cargo built with this program |
//! | `wiretap` | honest programs' TCP traffic, as an attacker on the network reads it |
//! | `endpoint`, `stress_traffic` | an end of connections; traffic with every byte and every completion accounted for |
//! | `resources` | resources of a process, and those that it leaves behind |

mod attack;
mod attacks;
mod child;
mod endpoint;
mod programs;
mod resources;
mod runner;
mod stress_traffic;
mod wiretap;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use attack::Budget;
use runner::RunOptions;

/// Inject faults into the stack, and count the failures.
///
/// Examples:
///   siege --list
///   siege --minutes 60
///   siege --only kills --minutes 5 --seed 7
///   siege --only false-values --values 1000
#[derive(Parser)]
#[command(name = "siege", verbatim_doc_comment)]
struct Options {
    /// Time for all attacks together, in minutes.
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    minutes: f64,
    /// Run only this attack, such as kills; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Leave out this attack; may be repeated.
    #[arg(long, value_name = "NAME")]
    skip: Vec<String>,
    /// Seed of all random numbers; printed, so that a run can be repeated.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// For `false-values`: try this many values of each field, however long it takes, and print the result of each field.
    #[arg(long, value_name = "N")]
    values: Option<u64>,
    /// For `false-values`: only fields whose names contain this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    field: String,
    /// The machine is shared: report late reactions, but fail only for hangs of more than a second.
    #[arg(long)]
    shared: bool,
    /// Print the attacks with a description of each.
    #[arg(long)]
    list: bool,
    /// Carry out one attack in this process, and print its counts.
    #[arg(long, hide = true, value_name = "NAME")]
    attack: Option<String>,
    /// Run as a child process in this role.
    #[arg(long, hide = true, value_name = "ROLE")]
    role: Option<String>,
}

fn run(options: &Options) -> Result<bool> {
    if let Some(role) = &options.role {
        attacks::role(role)?;
        return Ok(true);
    }
    let time = Duration::try_from_secs_f64(options.minutes * 60.0)?;
    if let Some(name) = &options.attack {
        let mut budget = Budget::new(time, options.seed);
        (budget.values, budget.field) = (options.values, options.field.clone());
        runner::carry_out(name, budget)?;
        return Ok(true);
    }
    if options.list {
        attacks::ALL.iter().for_each(|attack| println!("{:<18} {}", attack.name, attack.about));
        return Ok(true);
    }
    let more = options.values.map(|n| format!("--values={n}")).into_iter();
    let more: Vec<String> = more.chain([format!("--field={}", options.field)]).collect();
    let order = RunOptions { time, seed: options.seed, more };
    runner::run(&options.only, &options.skip, &order, options.shared)
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("siege: {error:#}");
            ExitCode::from(2)
        }
    }
}
