//! Listeners that accept connections only from some networks.

use std::net::IpAddr;

use nic_iwarp::{IwarpConfig, open};
use verbs::{CmEvent, CmFailure, Device};

use crate::raw::{connect_ends, connect_with_request, read_to_end};
use crate::support::endpoint::{Endpoint, deadline};
use crate::support::{PATIENCE, one_at_a_time};

fn device(config: &IwarpConfig) -> Device {
    open(&host::real::host(), config).expect("an iWARP device")
}

/// A device that accepts connections from these networks.
fn device_that_allows(networks: &[&str]) -> Device {
    let allow = networks.iter().map(|text| text.parse().expect("a network")).collect();
    device(&IwarpConfig { allow, ..IwarpConfig::default() })
}

/// An endpoint on a device that connects from this address.
fn end_at(address: [u8; 4]) -> Endpoint {
    Endpoint::on(&device(&IwarpConfig { bind: Some(IpAddr::from(address)), ..IwarpConfig::default() }), 4096)
}

/// Goal: hosts of allowed networks connect, and others are refused before they have sent anything. Method: loopback
/// addresses.
#[test]
fn listeners_accept_from_allowed_networks_alone() {
    let _gate = one_at_a_time();
    let far_device = device_that_allows(&["127.0.9.0/24", "127.0.10.1"]);
    for allowed in [[127, 0, 9, 1], [127, 0, 9, 255], [127, 0, 10, 1]] {
        connect_ends(&mut end_at(allowed), &mut Endpoint::on(&far_device, 4096));
    }
    let far = Endpoint::on(&far_device, 4096);
    let listener = far.listen();
    for refused in [[127, 0, 8, 1], [127, 0, 10, 2], [127, 0, 0, 1]] {
        let near = end_at(refused);
        near.cm.connect(&near.qp, listener.addr(), &near.param()).expect("connecting");
        let event = near.cm.get_event(deadline());
        assert!(
            matches!(
                event,
                Ok(CmEvent::ConnectFailed { why: CmFailure::PeerGone | CmFailure::Unreachable(..), .. })
            ),
            "{refused:?}: {event:?}"
        );
    }
    assert_eq!(
        far.cm.poll_event().map(|event| format!("{event:?}")),
        None,
        "the program is not notified of them"
    );
}

/// A peer that is not allowed receives no byte, whatever it sends.
#[test]
fn peer_outside_allowed_networks_gets_no_answer() {
    let _gate = one_at_a_time();
    let far = Endpoint::on(&device_that_allows(&["10.0.0.0/8", "::/0"]), 4096);
    let listener = far.listen();
    let mut stream = connect_with_request(listener.addr());
    assert_eq!(read_to_end(&mut stream, PATIENCE), (Vec::new(), true));
}

/// A network of one address family allows no address of the other.
#[test]
fn ipv6_peer_is_refused_by_ipv4_networks() {
    let _gate = one_at_a_time();
    for (networks, is_allowed) in [(&["127.0.0.0/8", "::1"][..], true), (&["0.0.0.0/0"], false)] {
        let far = Endpoint::on(&device_that_allows(networks), 4096);
        let Ok(listener) = far.cm.listen("[::1]:0".parse().expect("an address"), 4) else {
            eprintln!("SKIPPED: no IPv6 here");
            return;
        };
        let mut stream = connect_with_request(listener.addr());
        if is_allowed {
            let event = far.cm.get_event(deadline());
            assert!(matches!(event, Ok(CmEvent::ConnectRequest(_))), "{event:?}");
        } else {
            assert_eq!(read_to_end(&mut stream, PATIENCE), (Vec::new(), true));
        }
    }
}
