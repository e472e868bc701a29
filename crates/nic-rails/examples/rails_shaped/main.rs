//! Measures devices of two rails over rate-limited links, and the cost of losing a rail.
//!
//! Run `cargo run --release -p nic-rails --example rails_shaped -- [rounds=N] [ms=N] [gib=N] [only=N]` as root: the
//! links are pairs of virtual Ethernet devices between two unnamed network namespaces, which disappear with this
//! process; tc(8) limits them by a token bucket. Cases alternate in each of `rounds`; printed values are medians over
//! the rounds, of `ms` milliseconds each. At the end `gib` GiB cross both rails, one of which is cut half-way. `only`
//! is the sum of the wanted parts: 1 for equal rails, 2 for latency, 4 for unequal rails, 8 for the cut.

#[path = "../../../nic-util/tests/support/netns.rs"]
#[allow(dead_code, reason = "tests use the rest")]
mod netns;

mod cut;
mod pair;

use std::process::ExitCode;
use std::time::Duration;

use netns::Spaces;
use nic_rails::Engine;
use pair::{MeasuredRails, Pair};

/// The part of a link's rate that is payload of a TCP segment: 1448 of 1514 bytes.
const PAYLOAD: f64 = 1448.0 / 1514.0;

/// The value of a `name=` argument on the command line.
fn number(name: &str, default: u64) -> u64 {
    let given = std::env::args().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('=')?.parse().ok());
    given.unwrap_or(default)
}

/// Limits both ends of a link.
fn limit_rate(spaces: &Spaces, rail: usize, mbit: u64) -> Result<(), String> {
    let [a, b] = spaces.rails()[rail];
    for (space, (link, _)) in [(&spaces.a, a), (&spaces.b, b)] {
        let line = format!("qdisc replace dev {link} root tbf rate {mbit}mbit burst 128kb latency 20ms");
        space.tool("tc", &line)?;
    }
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Runs each case once in each round; returns medians in the order of the cases.
fn medians_of_cases(cases: &[MeasuredRails], rounds: u64, one: impl Fn(MeasuredRails) -> f64) -> Vec<f64> {
    let mut found = vec![Vec::new(); cases.len()];
    for _ in 0..rounds {
        for (rails, found) in cases.iter().zip(&mut found) {
            found.push(one(*rails));
        }
    }
    found.into_iter().map(median).collect()
}

fn print_row(what: &str, bound: &str, value: f64, more: &str) {
    println!("| {what} | {bound} | {value:.2} | {more} |");
}

fn run() -> Result<(), String> {
    let (rounds, ms) = (number("rounds", 7), number("ms", 700));
    let span = Duration::from_millis(ms);
    let spaces = Spaces::new(1500)?;
    spaces.join_again(1500)?;
    let [one, threads] = [MeasuredRails::Both(Engine::Callers), MeasuredRails::Both(Engine::Threads)];
    let stream = |rails| Pair::connect(&spaces, rails).stream(span);
    let host = median((0..3).map(|_| stream(one)).collect());
    println!("both rails without limits, GB/s: {:.2}\n", host / 1e9);
    println!(
        "| what | wanted | found | in GB/s or us, and the bound N_r min(B_rail, B_host) |\n|---|---|---|---|"
    );

    (0..2).try_for_each(|rail| limit_rate(&spaces, rail, 1000))?;
    let only = number("only", 15);
    if only & 1 != 0 {
        measure_equal_rails(&[MeasuredRails::Alone(0), threads, one], rounds, host, stream);
    }
    if only & 2 != 0 {
        let pings = medians_of_cases(&[MeasuredRails::Alone(0), one, threads], rounds, |rails| {
            Pair::connect_with_echo(&spaces, rails).ping(span / 2)
        });
        let us = |ping: f64| format!("{:.1} / {:.1}", ping * 1e6, pings[0] * 1e6);
        print_row("8 B latency over rails / over one of them", "<= 1.10", pings[1] / pings[0], &us(pings[1]));
        print_row("the same, threaded", "", pings[2] / pings[0], &us(pings[2]));
    }
    if only & 4 != 0 {
        limit_rate(&spaces, 1, 250)?;
        let rates = medians_of_cases(&[MeasuredRails::Alone(0), one, threads], rounds, stream);
        let figures = |rate: f64| format!("{:.4} / {:.4}", rate / 1e9, rates[0] / 1e9);
        let unequal = "rails of 1 Gb/s and 250 Mb/s / the faster alone";
        print_row(unequal, ">= 1.20", rates[1] / rates[0], &figures(rates[1]));
        print_row(&format!("{unequal}, threaded"), "", rates[2] / rates[0], &figures(rates[2]));
        limit_rate(&spaces, 1, 1000)?;
    }
    if only & 8 != 0 { cut::run(&spaces, number("gib", 10)) } else { Ok(()) }
}

/// Two rails of the same rate, threaded and not, compared with one rail.
fn measure_equal_rails(
    cases: &[MeasuredRails],
    rounds: u64,
    host: f64,
    stream: impl Fn(MeasuredRails) -> f64,
) {
    let rates = medians_of_cases(cases, rounds, stream);
    let bound = 2.0 * (1e9 / 8.0 * PAYLOAD).min(host);
    let figures = |rate: f64| {
        let (alone, rate, bound) = (rates[0] / 1e9, rate / 1e9, bound / 1e9);
        format!("{rate:.4} / {alone:.4}; at most {bound:.4}")
    };
    let shaped = "two rails of 1 Gb/s, 1 MiB writes";
    print_row(&format!("{shaped}, threaded / one rail"), ">= 1.95", rates[1] / rates[0], &figures(rates[1]));
    print_row(
        &format!("{shaped}, non-threaded / one rail"),
        ">= 1.90",
        rates[2] / rates[0],
        &figures(rates[2]),
    );
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("rails_shaped: {why}");
            ExitCode::FAILURE
        }
    }
}
