//! The conformance suite on the NIC `hw`, with our own library on `shm` as a RoCE card.

mod hw;

use std::net::IpAddr;

use hw::ends::{End, connect};
use hw::{OwnCard, common};
use nic_hw::HwConfig;

const CARD: OwnCard =
    OwnCard { device: "shm", kind: "hca", addr: "127.0.0.1:0", differences: &[hw::NO_EVENT] };

mod conformance {
    conformance::tests!(super::CARD, threads);
}

/// Goal: the chosen entry of the GID table is the address of connections and listeners; other indexes are refused with the
/// entries that exist.
#[test]
fn chosen_gid_is_the_address_of_connections() {
    let (host, config) = (host::real::host(), CARD.config());
    let open = |gid| nic_hw::open(&host, &HwConfig { gid: Some(gid), ..config.clone() });
    let (a, b) = (open(1).expect("the IPv4 entry"), open(1).expect("the IPv4 entry"));
    let loopback: IpAddr = [127, 0, 0, 1].into();
    assert_eq!(a.attr().port_addrs, [loopback]);
    let notes = a.attr().notes.join("; ");
    assert!(notes.contains("connections use GID 1 (127.0.0.1, RoCE v2)"), "{notes}");
    let (a, b) = (End::new(&a), End::new(&b));
    let listener = b.cm.listen("0.0.0.0:0".parse().expect("an address"), 8).expect("a listener");
    assert_eq!(listener.addr().ip(), loopback);
    drop(listener);
    let info = connect(&a, &b, "0.0.0.0:0".parse().expect("an address"));
    assert_eq!((info.local.ip(), info.peer.ip()), (loopback, loopback));
    b.post_recv(1);
    a.send(2);
    assert!(b.completion().is_ok_and(|wc| wc.is_ok()));
    let why =
        b.cm.listen("[::1]:0".parse().expect("an address"), 8).expect_err("another address").to_string();
    assert!(why.contains("chooses GID 1 (127.0.0.1, RoCE v2)"), "{why}");
    let why = open(9).expect_err("no such entry").to_string();
    assert!(why.contains("port 1 of card 'nicety0' has no GID 9; it has 0 (fe80::"), "{why}");
    assert!(why.contains(", 1 (127.0.0.1, RoCE v2)"), "{why}");
}

/// Set in a process whose libibverbs.so.1 is our library.
const CHILD: &str = "NICETY_TEST_OWN_LIBRARY";

/// Goal: programs under `nicety run` do not take our own devices for cards.
#[test]
fn own_library_as_the_systems_is_refused() {
    if std::env::var_os(CHILD).is_some() {
        let why = nic_hw::cards(&HwConfig::default()).expect_err("our own library").to_string();
        return assert!(why.contains("is our own library here") && why.contains("hw(lib=PATH)"), "{why}");
    }
    let (names, own) = (common::Names::new(), std::env::current_exe().expect("this test"));
    let mut command = names.command(own, CARD.device);
    command.args(["--exact", "own_library_as_the_systems_is_refused"]).env(CHILD, "1");
    common::finish(command.spawn().expect("it starts"), "this test with our library");
}

/// Goal: a program finds out what it has opened, and which ports exist.
#[test]
fn own_card_is_described_and_other_names_are_refused() {
    let config = CARD.config();
    let cards = nic_hw::cards(&config).expect("our own library, by its path");
    let card = cards.iter().find(|card| card.name == "nicety0").expect("its first device");
    assert!(card.is_usable && card.ports == Ok(vec!["port 1 active, Ethernet".to_owned()]), "{card:?}");
    let host = host::real::host();
    let device = nic_hw::open(&host, &config).expect("a device");
    let notes = device.attr().notes.join("; ");
    assert!(notes.contains("libnicety_verbs.so', which is our own"), "{notes}");
    for (card, port, hint) in [
        ("mlx5_0", None, "there is no card 'mlx5_0'; there is: nicety0"),
        ("nicety0", Some(2), "card 'nicety0' has no port 2"),
    ] {
        let wrong = HwConfig { card: Some(card.to_owned()), port, ..config.clone() };
        let why = nic_hw::open(&host, &wrong).expect_err(hint).to_string();
        assert!(why.contains(hint), "{why}");
    }
}
