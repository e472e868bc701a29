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
//! | `harness/` | [`Env`], two connected ends, patterns and comparisons: what tests are written with |
//! | `operations/` | what each operation does to data, and what it must not do |
//! | `regions/` | registered memory |
//! | `queues/` | queue pairs, completion queues, shared receive queues, completion channels |
//! | `connections/` | how connections begin, are refused and end |
//! | `firmware` | programs that the NIC runs |
//! | `threads` | concurrent use |
//! | `traffic`, `shared` | checked traffic for tests of a device's own, while they break something; the same into a shared receive queue |
//! | `reference/` | (tests only) a simple NIC that passes, and broken ones that do not |

#![deny(unsafe_code)]

mod connections;
mod firmware;
mod harness;
mod operations;
mod queues;
#[cfg(test)]
mod reference;
mod regions;
pub mod shared;
mod table;
mod threads;
pub mod traffic;

// The groups of the table: the macros name their tests by these.
use connections::{connect, disconnect, listen, pairing, ports, screen, stand_in, vanish};
use operations::{
    atomics, large, local_violations, order, placement, random, read, remote_violations, send_forms,
    send_recv, write,
};
use queues::{cq, limits, notify, objects, rnr, srq, states};
use regions::{lost_memory, map, memory, reg_all};

pub use harness::env::Env;

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
