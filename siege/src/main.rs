//! Attacks on the stack as repeatable programs. `cargo xtask siege` builds and runs this; by hand, `siege --list` names the
//! attacks and `siege --only NAME --minutes N` runs one attack.
//!
//! | file | what it holds |
//! |---|---|
//! | `attack` | what an attack is, its budget, and what it counts |
//! | `attacks` | one file an attack, and their list |
//! | `runner` | runs each attack in a separate process and watches it, so that a crash or a hang is a result |
//! | `child` | child processes of this program in a role, which communicate in lines |
//! | `programs` | C programs that attacks need, compiled against the libraries that cargo built with this program |
//! | `wiretap` | honest programs' TCP traffic, as an attacker on the network reads it |
//! | `end`, `storm` | an end of connections; traffic with every byte and every completion accounted for |
//! | `traces` | what a process holds and leaves behind |

mod attack;
mod attacks;
mod child;
mod end;
mod programs;
mod runner;
mod storm;
mod traces;
mod wiretap;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;

use attack::Budget;
use runner::Order;

/// Attack the stack, and count what it survived.
///
/// Examples:
///   siege --list
///   siege --minutes 60
///   siege --only kills --minutes 5 --seed 7
///   siege --only liars --values 1000
#[derive(Parser)]
#[command(name = "siege", verbatim_doc_comment)]
struct Options {
    /// How long all attacks together may take.
    #[arg(long, default_value_t = 1.0, value_name = "N")]
    minutes: f64,
    /// Run only these attacks; may be given more than once.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Leave out these attacks; may be given more than once.
    #[arg(long, value_name = "NAME")]
    skip: Vec<String>,
    /// What all chance begins with; printed, so that a run can be repeated.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// `liars`: try so many different values of each field, however long it takes, and print what became of each field.
    #[arg(long, value_name = "N")]
    values: Option<u64>,
    /// `liars`: only the fields whose names contain this.
    #[arg(long, value_name = "TEXT", default_value = "")]
    field: String,
    /// Others use this machine, too: tell how late things were noticed, but let only hangs, over a second, fail.
    #[arg(long)]
    shared: bool,
    /// Print the attacks and what each one does.
    #[arg(long)]
    list: bool,
    /// Carry out one attack in this process, and print what it counted.
    #[arg(long, hide = true, value_name = "NAME")]
    attack: Option<String>,
    /// Be a child in this role.
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
    let order = Order { time, seed: options.seed, more };
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
