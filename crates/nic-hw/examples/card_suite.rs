//! The conformance suite on a card, for machines on which no test can be compiled:
//!
//! ```text
//! card_suite list
//! card_suite CARD ADDRESS TEST...
//! ```
//!
//! `ADDRESS` is an address of the card. For each test it prints `begin TEST`, and then `ok TEST` or `FAILED TEST: WHY`. If
//! the last line is `begin`, the test has ended the process, or the caller has ended it.

use std::net::IpAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use conformance::{Env, Test, all, threaded};
use nic_hw::HwConfig;

/// Bytes of the largest messages: emulated machines are slow.
const LARGE: u64 = 4 << 20;
/// The factor by which deadlines are longer than on a machine that is not emulated.
const SLOW: u32 = 3;
/// Characters of a failure that are printed.
const WHY_MAX: usize = 300;

fn tests() -> impl Iterator<Item = &'static Test> {
    all().iter().chain(threaded())
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["list"] => {
            tests().for_each(|test| println!("{}", test.path()));
            ExitCode::SUCCESS
        }
        [card, addr, names @ ..] if !names.is_empty() => {
            let addr: IpAddr = addr.parse().expect("an IP address");
            let failed = names.iter().filter(|name| !passes(card, addr, name)).count();
            if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        _ => {
            eprintln!("usage: card_suite list | card_suite CARD ADDRESS TEST...");
            ExitCode::FAILURE
        }
    }
}

/// Runs one test, and prints its result.
fn passes(card: &str, addr: IpAddr, name: &str) -> bool {
    println!("begin {name}");
    let outcome = catch_unwind(AssertUnwindSafe(|| run(card, addr, name)));
    let Err(why) = outcome else {
        println!("ok {name}");
        return true;
    };
    let text = why.downcast_ref::<String>().map(String::as_str).or(why.downcast_ref::<&str>().copied());
    let line = text.unwrap_or("no message").replace('\n', " ");
    println!("FAILED {name}: {}", line.chars().take(WHY_MAX).collect::<String>());
    false
}

fn run(card: &str, addr: IpAddr, name: &str) {
    let test = tests().find(|test| test.path() == name).unwrap_or_else(|| panic!("there is no such test"));
    let config = HwConfig { card: Some(card.to_owned()), ..HwConfig::default() };
    let host = host::real::host();
    let open = || nic_hw::open(&host, &config).unwrap_or_else(|why| panic!("{why}"));
    (test.body)(&Env::new(open(), open(), (addr, 0).into()).large_bytes(LARGE).slow(SLOW));
}
