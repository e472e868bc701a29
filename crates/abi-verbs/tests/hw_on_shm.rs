//! The conformance suite on the NIC `hw`, with our own library on `shm` as a RoCE card.

mod hw;

use hw::{OwnCard, common};
use nic_hw::HwConfig;

const CARD: OwnCard =
    OwnCard { device: "shm", kind: "hca", addr: "127.0.0.1:0", differences: &[hw::NO_EVENT] };

mod conformance {
    conformance::tests!(super::CARD, threads);
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
