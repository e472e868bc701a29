//! The conformance suite: tests that every NIC must pass, in real and in virtual time.
//!
//! A NIC implements [`Fixture`] (two opened devices that can connect to each other) and writes
//! `conformance::tests!(its_fixture);` in a test: cargo then shows one test per line of the table in `table.rs`, in a
//! module per group. A device need not support everything: operations that its attributes exclude must be *refused*
//! (with [`verbs::Error::Unsupported`] or [`verbs::Error::Limit`]), which the tests check instead. Where
//! implementations may legally differ, a test accepts the legal set and documents it.
//!
//! Bodies are single-threaded and drive both ends, so that they also run within one rank of virtual time; every wait
//! has a deadline and a name. Only the group `threads` spawns threads.
//!
//! | file | contents |
//! |---|---|
//! | `table` | the list of all tests and the macros that instantiate it; a new test is one line there |
//! | `harness/` | [`Env`], two connected ends, patterns and comparisons: helpers for tests |
//! | `operations/` | the effects of each operation on data, and forbidden operations |
//! | `regions/` | registered memory |
//! | `queues/` | queue pairs, completion queues, shared receive queues, completion channels |
//! | `connections/` | how connections are established, refused and ended |
//! | `firmware` | programs that the NIC runs |
//! | `threads` | concurrent use |
//! | `traffic`, `shared` | checked traffic for a device's own tests, which break something meanwhile; the same into a shared receive queue |
//! | `reference/` | (tests only) a simple NIC that passes, and variants with faults that do not |

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

// The groups of the table: the macros use these names.
use connections::{connect, disconnect, listen, pairing, peer_loss, ports, replaced_qp, screen};
use operations::{
    atomics, large, local_violations, order, placement, random, read, remote_violations, send_forms,
    send_recv, write,
};
use queues::{cq, limits, notify, objects, rnr, split, srq, states};
use regions::{lost_memory, map, memory, placed, reg_all, windows};

pub use harness::env::Env;

/// The body of a test.
pub type Body = fn(&Env);

/// The devices of a NIC under test.
pub trait Fixture {
    /// Opens the devices and runs `body` on them: in virtual time, inside a world.
    fn run(&self, body: Body);

    /// The reason why this NIC is known to fail `test` (`group::name`). Such a test is run and *must* fail, so that the
    /// list stays true.
    fn known_failure(&self, test: &str) -> Option<&'static str> {
        let _ = test;
        None
    }
}

/// One test of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// The file that contains it.
    pub group: &'static str,
    /// The name of the body.
    pub name: &'static str,
    /// The test itself; panics if the NIC fails.
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
    /// If the NIC fails it, or passes although it is listed as failing.
    pub fn run(&self, fixture: &impl Fixture) {
        let Some(why) = fixture.known_failure(&self.path()) else { return fixture.run(self.body) };
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| fixture.run(self.body)));
        assert!(outcome.is_err(), "{} passes, although this NIC is said to fail it: {why}", self.path());
        eprintln!("{} fails, as expected: {why}", self.path());
    }
}

static SINGLE: &[Test] = crate::__conformance_table!(__conformance_list);
static THREADED: &[Test] = crate::__conformance_threads!(__conformance_list);

/// All single-threaded tests, for programs that run them under many seeds.
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
/// If the NIC fails it, or there is no such test.
pub fn run(fixture: &impl Fixture, path: &str) {
    let test = all().iter().chain(threaded()).find(|t| t.path() == path);
    test.unwrap_or_else(|| panic!("there is no test {path}")).run(fixture);
}
