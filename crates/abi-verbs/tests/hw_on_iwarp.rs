//! The conformance suite on the NIC `hw`, with our own library on `iwarp` as an RNIC.

mod hw;

use hw::OwnCard;

const CARD: OwnCard = OwnCard {
    device: "iwarp@127.0.0.1",
    kind: "rnic",
    addr: "127.0.0.1:0",
    differences: &[
        hw::NO_EVENT,
        ("large::a_large_message_out_of_bounds", SEGMENTS),
        ("remote_violations::long_message_is_checked_before_it_is_written", SEGMENTS),
    ],
};

/// Goal: a GID cannot be chosen where it is no address.
#[test]
fn gid_is_refused_on_iwarp() {
    let config = nic_hw::HwConfig { gid: Some(0), ..CARD.config() };
    let why = nic_hw::open(&host::real::host(), &config).expect_err("no RoCE").to_string();
    assert!(why.contains("leave gid= out"), "{why}");
}

const SEGMENTS: &str = "iWARP checks a message segment by segment";

mod conformance {
    conformance::tests!(super::CARD, threads);
}
