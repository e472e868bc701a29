//! Checks this machine for what would spoil a measurement; each check reports its finding, why it matters, and a remedy.
//!
//! A check warns only about what the user can change or must know to interpret the numbers; everything else is part of `found`.

mod card;
mod card_report;
mod check;
mod clock;
mod copies;
mod cores;
mod exchange;
mod leftovers;
mod limits;
mod load;
mod memory;
pub(crate) mod network;
mod noise;
mod redact;
mod system;

use std::time::Duration;

use noise::ThrottleCounters;

pub(crate) use card_report::{ReportedCard, describe as describe_cards};
pub(crate) use check::{Check, Severity};
pub(crate) use system::System;

/// How long load and noise are watched.
const LOAD: Duration = Duration::from_millis(300);
const NOISE: Duration = Duration::from_secs(1);
/// How long load is watched before a run, which measures noise itself; ticks of 10 ms need at least this long.
const LOAD_BEFORE_RUN: Duration = Duration::from_millis(200);

/// Runs all checks, in the order in which a person would. Takes about 1.3 s, as load and noise are watched.
pub(crate) fn examine(system: &System) -> Vec<Check> {
    let cores = host::real::allowed_cores();
    let mut checks = vec![
        cores::count(system, &cores),
        cores::pinning(&cores),
        cores::threads_of_a_core(system, &cores),
        exchange::lines(&cores),
        clock::governor(system, &cores),
        clock::source(system),
        clock::hypervisor(system),
    ];
    let before = ThrottleCounters::read(system, &cores);
    checks.extend(load::watch(system, &cores, LOAD));
    checks.push(noise::watch(&cores, NOISE));
    checks.push(ThrottleCounters::read(system, &cores).since(before, system, &cores));
    checks.extend([
        limits::processor_time(),
        limits::processes(system),
        limits::memlock(),
        limits::files(),
        memory::available(system),
        memory::shared(system),
        memory::huge_pages(system),
        memory::process_access(system),
        copies::offsets(),
        network::addresses(system),
        network::buffers(system),
        network::crc(system),
        limits::kernel(),
        card::present(system),
        leftovers::other_processes(system),
    ]);
    checks
}

/// Runs the checks of real cards. `listed` is each card that libibverbs lists, with its ports, or why it lists none.
pub(crate) fn examine_cards(system: &System, listed: &Result<Vec<String>, String>) -> Vec<Check> {
    let cores = host::real::allowed_cores();
    let mut checks = vec![card::library(listed)];
    checks.extend(card::names(system).iter().flat_map(|name| card::of_card(system, name, &cores)));
    checks.push(card::locked_memory());
    checks.extend(card::sleep_states(system));
    checks.extend([clock::governor(system, &cores), memory::huge_pages(system)]);
    checks
}

/// The worst problem for a run as one line, if there is one; takes 0.2 s.
pub(crate) fn worst(system: &System) -> Option<String> {
    let cores = host::real::allowed_cores();
    let before = ThrottleCounters::read(system, &cores);
    let [load, stolen] = load::watch(system, &cores, LOAD_BEFORE_RUN);
    // In the order of their effect on measurements.
    let checks = vec![
        cores::count(system, &cores),
        load,
        stolen,
        leftovers::other_processes(system),
        ThrottleCounters::read(system, &cores).since(before, system, &cores),
        memory::available(system),
        limits::processor_time(),
        limits::files(),
        limits::processes(system),
        cores::threads_of_a_core(system, &cores),
        clock::governor(system, &cores),
        clock::source(system),
    ];
    warning_line(&checks)
}

fn warning_line(checks: &[Check]) -> Option<String> {
    let wrong = |state: Severity| checks.iter().filter(move |check| check.state == state);
    let first = wrong(Severity::Bad).chain(wrong(Severity::Warn)).next()?;
    let more = match wrong(Severity::Bad).chain(wrong(Severity::Warn)).count() - 1 {
        0 => String::new(),
        n => format!(", and {}", report::number::plural(n, "more warning")),
    };
    Some(format!(
        "this machine makes numbers less reliable: {}: {}{more}; see `nicety doctor`",
        first.id, first.found
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_comes_first_and_the_others_are_counted() {
        let ok = Check::ok("cores", "2 usable");
        let warn = |id| Check::warn(id, "something", "why", "do");
        assert_eq!(warning_line(std::slice::from_ref(&ok)), None);
        let one = warning_line(&[ok.clone(), warn("load")]).expect("a line");
        assert_eq!(one, "this machine makes numbers less reliable: load: something; see `nicety doctor`");
        let bad = warning_line(&[
            ok,
            warn("load"),
            Check::bad("open-files", "3 may be open", "why", "do"),
            warn("clock"),
        ]);
        let bad = bad.expect("a line");
        assert!(bad.contains("open-files: 3 may be open, and 2 more warnings"), "{bad}");
    }

    /// The result is at most one line on any machine.
    #[test]
    fn warning_line_of_this_machine_has_one_line() {
        assert!(worst(&System::real()).is_none_or(|line| !line.contains('\n')));
    }
}
