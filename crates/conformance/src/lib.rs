//! The conformance suite: one body of tests that every NIC passes, in real and in virtual time.
//!
//! A NIC implements [`Fixture`] (two opened devices that reach each other) and writes
//! `conformance::tests!(its_fixture);` in a test: cargo then shows one test per line of the table in
//! `table.rs`, in a module per group. A device need not offer everything: what its attributes deny must be
//! *refused* (as [`verbs::Error::Unsupported`] or [`verbs::Error::Limit`]), which the tests check instead.
//! Where implementations may legally differ, a test accepts the legal set and says so.
//!
//! Bodies are single-threaded and drive both ends, so that they also run within one rank of virtual time;
//! every wait has a deadline and a name. Only the group `threads` spawns.
//!
//! | file | what it holds |
//! |---|---|
//! | `table` | the list of all tests and the macros that instantiate it; a new test is one line there |
//! | `env` | [`Env`]: the devices, deadlines, and waits that name themselves |
//! | `conn` | two connected ends with queues and memory, and odd set-ups |
//! | `check` | patterns, comparisons that print what differs, memory with canaries |
//! | `objects`, `memory`, `reg_all` | life of objects, registration |
//! | `lost_memory` | registered memory that its program unmaps |
//! | `map` | load and store on a peer's NIC memory |
//! | `send_recv`, `send_forms`, `write`, `read`, `atomics`, `placement` | what each operation does |
//! | `remote_violations`, `local_violations` | what it must not do |
//! | `order`, `limits`, `states`, `rnr`, `srq`, `cq`, `notify` | queues |
//! | `connect`, `pairing`, `stand_in`, `listen`, `screen`, `ports`, `disconnect`, `vanish` | connections |
//! | `firmware` | programs that the NIC runs |
//! | `large`, `random`, `threads` | 1 GiB messages, a seeded comparison with a model, concurrent use |
//! | `traffic` | checked traffic for tests of a device's own, while they break something |
//! | `reference` | (tests only) a simple NIC that passes, and broken ones that do not |

#![deny(unsafe_code)]

mod check;
mod conn;
mod env;
#[cfg(test)]
mod reference;
mod table;

mod atomics;
mod connect;
mod cq;
mod disconnect;
mod firmware;
mod large;
mod limits;
mod listen;
mod local_violations;
#[allow(unsafe_code, reason = "a program's memory is mapped, protected and unmapped")]
mod lost_memory;
mod map;
mod memory;
mod notify;
mod objects;
mod order;
mod pairing;
mod placement;
mod ports;
mod random;
mod read;
#[allow(unsafe_code, reason = "who registers all memory promises what the compiler cannot see")]
mod reg_all;
mod remote_violations;
mod rnr;
mod screen;
mod send_forms;
mod send_recv;
pub mod shared;
mod srq;
mod stand_in;
mod states;
mod threads;
pub mod traffic;
mod vanish;
mod write;

pub use env::Env;

/// A test's body.
pub type Body = fn(&Env);

/// What a NIC brings along to be tested.
pub trait Fixture {
    /// Opens the devices and runs `body` on them: in virtual time, inside a world.
    fn run(&self, body: Body);

    /// Why this NIC is known to fail `test` (`group::name`). Such a test is run and *must* fail, so that the
    /// list stays true.
    fn departs(&self, test: &str) -> Option<&'static str> {
        let _ = test;
        None
    }
}

/// One test of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// The file that it stands in.
    pub group: &'static str,
    /// The body's name.
    pub name: &'static str,
    /// What it does; panics when the NIC fails.
    pub body: Body,
}

impl Test {
    /// `group::name`.
    pub fn path(&self) -> String {
        format!("{}::{}", self.group, self.name)
    }

    /// Runs the test with this fixture.
    ///
    /// # Panics
    /// When the NIC fails it, or passes although it is said to depart from it.
    pub fn run(&self, fixture: &impl Fixture) {
        let Some(why) = fixture.departs(&self.path()) else { return fixture.run(self.body) };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fixture.run(self.body)));
        assert!(outcome.is_err(), "{} passes, although this NIC is said to fail it: {why}", self.path());
        eprintln!("{} fails, as expected: {why}", self.path());
    }
}

static SINGLE: &[Test] = crate::__conformance_table!(__conformance_list);
static THREADED: &[Test] = crate::__conformance_threads!(__conformance_list);

/// All single-threaded tests, for drivers that run them under many seeds.
pub fn all() -> &'static [Test] {
    SINGLE
}

/// The tests that spawn threads.
pub fn threaded() -> &'static [Test] {
    THREADED
}

/// Runs the test with this path; for [`crate::tests!`].
///
/// # Panics
/// When the NIC fails it, or there is no such test.
pub fn run(fixture: &impl Fixture, path: &str) {
    let test = all().iter().chain(threaded()).find(|t| t.path() == path);
    test.unwrap_or_else(|| panic!("there is no test {path}")).run(fixture);
}
