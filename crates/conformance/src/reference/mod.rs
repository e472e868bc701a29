//! The reference NIC: one lock, no optimisation, a direct implementation of the API. It shows that the suite can be
//! passed; its [`Fault`]s show that the suite detects errors.
//!
//! | file | contents |
//! |---|---|
//! | `state` | the state of the NIC, and the entries of its tables |
//! | `engine` | executing, completing and flushing requests |
//! | `copy_only_memory` | NIC memory without load and store |
//! | `objects` | devices, domains, regions, queues: the provider traits over the state |
//! | `connections` | the connection manager |
//! | `firmware` | programs that the NIC runs |

mod connections;
mod copy_only_memory;
mod engine;
mod firmware;
mod objects;
mod state;

use std::net::{Ipv4Addr, SocketAddr};

use super::{Body, Env, Fixture};
use host::{Host, Span, world};
use state::{Fault, World};
use verbs::DmAccess;

/// Two devices of one reference world.
struct Reference(Fault);

/// The reference NIC in virtual time, as far as it supports that: the programs that it runs.
struct ReferenceInVirtualTime;

/// The reference NIC with NIC memory that is accessed by copies only.
struct CopyOnly;

fn run(host: Host, fault: Fault, dm_access: DmAccess, body: Body) {
    let world = World::new(host, fault, dm_access);
    let (a, b) = (objects::device(&world, 0), objects::device(&world, 1));
    let env = Env::new(a, b, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let patience = if matches!(fault, Fault::None) { Span::from_secs(20) } else { Span::from_ms(200) };
    body(&env.patience(patience).large_bytes(64 << 20));
}

impl Fixture for Reference {
    fn run(&self, body: Body) {
        run(host::real::host(), self.0, DmAccess::Coherent, body);
    }
}

impl Fixture for CopyOnly {
    fn run(&self, body: Body) {
        run(host::real::host(), Fault::None, DmAccess::Copy, body);
    }
}

impl Fixture for ReferenceInVirtualTime {
    fn run(&self, body: Body) {
        let mut world = world::World::new(world::Config::default());
        let node = world.add_node("host");
        let host = node.host();
        world
            .spawn("suite", &[&node], move || run(host, Fault::None, DmAccess::Coherent, body))
            .expect("a fiber");
        world.run().unwrap_or_else(|failure| panic!("{failure}"));
    }
}

/// Programs run in virtual time, too, on a processor of the NIC.
#[test]
fn programs_run_in_virtual_time() {
    let of_programs = super::all().iter().filter(|test| test.group == "firmware");
    assert!(of_programs.inspect(|test| test.run(&ReferenceInVirtualTime)).count() > 0);
}

mod suite {
    use super::*;

    crate::tests!(Reference(Fault::None), threads);
}

mod copy_only_memory_suite {
    use super::*;

    crate::tests!(CopyOnly, threads);
}

mod broken {
    use super::*;

    /// Goal: each fault is detected. Method: a NIC with one fault must fail the test for it, and pass a test that does
    /// not concern it.
    #[test]
    fn each_fault_is_found() {
        let cases = [
            (Fault::OneByteTooFar, "remote_violations::access_one_byte_past_the_end_fails"),
            (Fault::IgnoresRights, "remote_violations::missing_right_fails"),
            (Fault::IgnoresRights, "local_violations::results_need_local_write"),
            (Fault::IgnoresDomains, "remote_violations::key_of_other_domain_fails"),
            (Fault::IgnoresDomains, "local_violations::receive_with_key_of_other_domain_fails"),
            (Fault::ForgetsImmediate, "send_forms::immediate_data_arrives"),
            (Fault::LastReceiveFirst, "send_recv::receives_are_consumed_in_order"),
            (Fault::FlushesSilently, "order::unsignaled_requests_are_flushed_with_entries"),
            (Fault::FreesSlotsEarly, "limits::polling_frees_slots"),
            (Fault::StaysArmed, "notify::one_event_per_arming"),
            (Fault::DropsLastByte, "write::every_size_arrives"),
            (Fault::DropsLastByte, "random::one_long_random_sequence"),
            (Fault::KeepsKeys, "remote_violations::deregistered_region_fails"),
            (Fault::IgnoresRights, "firmware::program_memory_access_is_checked"),
            (Fault::IgnoresDomains, "firmware::program_memory_access_is_checked"),
            (Fault::LosesDeposits, "firmware::messages_carry_header_and_payload"),
            (Fault::SilentInterrupt, "threads::interrupts_wake_sleepers"),
            (Fault::SilentEnd, "peer_loss::waiting_sends_end_with_errors"),
        ];
        for (fault, path) in cases {
            let found = std::panic::catch_unwind(|| crate::run(&Reference(fault), path));
            assert!(found.is_err(), "{path} does not notice {fault:?}");
            crate::run(&Reference(fault), "states::init_takes_receives_only");
        }
    }

    /// A NIC that passes a test which it is listed to fail is reported.
    #[test]
    fn passing_test_listed_as_known_failure_is_reported() {
        struct WronglyListed;
        impl Fixture for WronglyListed {
            fn run(&self, body: Body) {
                Reference(Fault::None).run(body);
            }
            fn known_failure(&self, _: &str) -> Option<&'static str> {
                Some("nothing works")
            }
        }
        let outcome =
            std::panic::catch_unwind(|| crate::run(&WronglyListed, "cq::cq_ring_wraps_without_loss"));
        assert!(outcome.is_err());
    }
}

/// The table names every test once, and contains the required number of tests.
#[test]
fn the_table_is_complete() {
    let mut paths: Vec<String> =
        super::all().iter().chain(super::threaded()).map(super::Test::path).collect();
    let count = paths.len();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), count, "a test is listed twice");
    assert!(count >= 100, "{count} tests");
}
