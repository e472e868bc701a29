//! The conformance suite of `verbs` on the iWARP NIC, between two network namespaces that a virtual Ethernet joins.
//!
//! Everything is in one process: a device belongs to the namespace of the thread that opened it.

#[path = "../../nic-util/tests/support/mod.rs"]
mod support;

use std::net::SocketAddr;
use std::sync::OnceLock;

use conformance::{Body, Env, Fixture, Test};
use nic_iwarp::{FpduSize, IwarpConfig, Mpa, open};
use support::netns::Spaces;

/// The namespaces for either MTU, created once.
fn spaces(mtu: u32) -> Option<&'static Spaces> {
    static SMALL: OnceLock<Option<Spaces>> = OnceLock::new();
    static LARGE: OnceLock<Option<Spaces>> = OnceLock::new();
    let place = if mtu > 1500 { &LARGE } else { &SMALL };
    place.get_or_init(|| Spaces::try_new(mtu)).as_ref()
}

/// A device on each side of a link with this MTU.
struct NetnsFixture(u32, fn() -> IwarpConfig);

impl Fixture for NetnsFixture {
    fn run(&self, body: Body) {
        let Some(spaces) = spaces(self.0) else { return };
        let host = host::real::host();
        let open = || open(&host, &(self.1)()).expect("an iWARP device");
        let (a, b) = (spaces.a.within(open), spaces.b.within(open));
        // The other file tests a gibibyte over the loopback address.
        body(&Env::new(a, b, SocketAddr::new(spaces.b.ip, 0)).large_bytes(128 << 20));
    }

    fn known_failure(&self, test: &str) -> Option<&'static str> {
        spaces(self.0)?;
        let unchecked = "a write is checked segment by segment (RFC 5041 section 5.2)";
        match test {
            "remote_violations::long_message_is_checked_before_it_is_written"
            | "large::a_large_message_out_of_bounds" => Some(unchecked),
            _ => None,
        }
    }
}

/// The default configuration, at the usual MTU.
mod usual {
    conformance::tests!(super::NetnsFixture(1500, super::IwarpConfig::default), threads);
}

/// Tests that depend on how the stream is cut into segments.
const GROUPS: &[&str] = &[
    "send_recv",
    "send_forms",
    "write",
    "read",
    "atomics",
    "order",
    "remote_violations",
    "connect",
    "notify",
    "random",
];

#[track_caller]
fn run_groups(mtu: u32, config: fn() -> IwarpConfig) {
    let tests: Vec<&Test> = conformance::all().iter().filter(|test| GROUPS.contains(&test.group)).collect();
    assert!(tests.len() > 80, "{} tests", tests.len());
    for test in tests {
        println!("{}", test.path());
        test.run(&NetnsFixture(mtu, config));
    }
}

#[test]
fn groups_pass_with_segments_and_crcs() {
    run_groups(1500, || IwarpConfig { crc: true, fpdu: FpduSize::Segment, ..IwarpConfig::default() });
}

#[test]
fn groups_pass_with_jumbo_frames() {
    run_groups(9000, IwarpConfig::default);
}

#[test]
fn groups_pass_with_jumbo_segments_and_crcs() {
    run_groups(9000, || IwarpConfig { crc: true, fpdu: FpduSize::Segment, ..IwarpConfig::default() });
}

#[test]
fn groups_pass_with_jumbo_frames_of_revision_1() {
    run_groups(9000, || IwarpConfig { mpa: Mpa::V1, ..IwarpConfig::default() });
}
