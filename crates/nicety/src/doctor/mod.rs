//! What would spoil a measurement on this machine: each check says what it found, why that matters and the remedy.
//!
//! A check warns only about what somebody can change or must know to read the numbers; the rest is part of `found`.

mod clock;
mod cores;
mod leftovers;
mod limits;
mod load;
mod memory;
pub(crate) mod network;
mod system;

use serde::Serialize;

pub(crate) use system::System;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Nothing to do.
    Ok,
    /// Numbers are weaker than they could be.
    Warn,
    /// Some measurement fails.
    Bad,
}

impl State {
    /// As in the output.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Bad => "bad",
        }
    }
}

/// One check's outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Check {
    /// Its name, the same in all versions.
    pub(crate) id: &'static str,
    /// How bad it is.
    pub(crate) state: State,
    /// What was found.
    pub(crate) found: String,
    /// Why that matters, if it is not ok.
    pub(crate) why: Option<String>,
    /// What to do, as a command where there is one.
    pub(crate) remedy: Option<String>,
}

impl Check {
    fn ok(id: &'static str, found: impl Into<String>) -> Self {
        Self { id, state: State::Ok, found: found.into(), why: None, remedy: None }
    }

    fn warn(id: &'static str, found: impl Into<String>, why: &str, remedy: impl Into<String>) -> Self {
        let (why, remedy) = (Some(why.to_owned()), Some(remedy.into()));
        Self { id, state: State::Warn, found: found.into(), why, remedy }
    }

    fn bad(id: &'static str, found: impl Into<String>, why: &str, remedy: impl Into<String>) -> Self {
        Self { state: State::Bad, ..Self::warn(id, found, why, remedy) }
    }
}

/// All checks, in the order in which one would go through them. Takes a third of a second: the load is watched.
pub(crate) fn examine(system: &System) -> Vec<Check> {
    let cores = host::real::allowed_cores();
    let mut checks = vec![
        cores::count(system, &cores),
        cores::pinning(&cores),
        cores::threads_of_a_core(system, &cores),
        clock::governor(system, &cores),
        clock::source(system),
        clock::hypervisor(system),
    ];
    checks.extend(load::watch(system, &cores));
    checks.extend([
        limits::memlock(),
        limits::files(),
        memory::available(system),
        memory::shared(system),
        memory::huge_pages(system),
        memory::process_access(system),
        network::addresses(system),
        network::buffers(system),
        network::crc(system),
        limits::kernel(),
        leftovers::other_processes(system),
    ]);
    checks
}
