//! A card that fails in use: its port loses the link or the address, or all of it fails. The card is our own library on a
//! device of faults, in a process for each test, as a fault concerns all devices of a process.

mod hw;

use std::thread;

use hw::ends::{End, connect};
use hw::{OwnCard, common};
use nic_hw::HwConfig;
use verbs::{AsyncEvent, Error, QpState, WcStatus};

const CARD: OwnCard = OwnCard { device: "faults(shm)", kind: "hca", addr: "127.0.0.1:0", differences: &[] };

/// Set in the process of a test.
const CHILD: &str = "NICETY_TEST_CARD_FAILS";

/// Runs a test in a process of its own.
fn alone(test: &str, body: impl FnOnce(HwConfig)) {
    if std::env::var_os(CHILD).is_some() {
        return body(CARD.config());
    }
    let names = common::Names::new();
    let mut command = names.command(std::env::current_exe().expect("this test"), CARD.device);
    // Found by its path, not as the system's.
    command.env_remove("LD_LIBRARY_PATH").args(["--exact", test]).env(CHILD, "1");
    common::finish(command.spawn().expect("it starts"), test);
}

/// Reports an event on the device of the library.
fn inject(event: &str) {
    let rule = format!("on=time event={event}");
    fabric::fault_request(std::process::id().cast_signed(), &rule)
        .unwrap_or_else(|why| panic!("{rule}: {why}"));
}

/// Two connected ends on two opened cards.
fn pair(config: &HwConfig) -> (End, End) {
    let host = host::real::host();
    let open = |config: &HwConfig| End::new(&nic_hw::open(&host, config).expect("a card"));
    // The end that gives the port up first decides what the other one sees: it is always `a`.
    let patient = HwConfig { patience: host::Span::from_secs(3600), ..config.clone() };
    let (a, b) = (open(config), open(&patient));
    connect(&a, &b, CARD.addr.parse().expect("an address"));
    (a, b)
}

/// A message from `a` to `b`.
fn exchange(a: &End, b: &End) {
    b.post_recv(1);
    a.send(2);
    assert!(a.completion().is_ok_and(|wc| wc.is_ok()) && b.completion().is_ok_and(|wc| wc.is_ok()));
}

/// Both ends get the event and the end of the connection, and `a` the failure of its queue pair with these words; a thread
/// that waits for a receive is woken.
fn ends_with(a: &End, b: &End, event: &str, reported: &AsyncEvent, words: &[&str]) {
    a.post_recv(7);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| a.completion());
        inject(event);
        assert_eq!(b.async_event(), *reported);
        assert_eq!(a.async_event(), *reported);
        let AsyncEvent::QpFatal { qp_num, why } = a.async_event() else { panic!("expected QpFatal") };
        assert_eq!(qp_num, a.qp.num());
        assert!(words.iter().all(|word| why.contains(word)), "{why}");
        a.until_disconnected();
        assert_eq!(a.qp.state(), QpState::Error);
        assert_eq!(a.qp.failure().as_deref(), Some(why));
        b.until_disconnected();
        match waiter.join().expect("no panic") {
            Ok(wc) => assert_eq!((wc.wr_id, wc.status), (7, WcStatus::WrFlushErr)),
            Err(why) => assert!(matches!(why, Error::DeviceGone { .. }), "{why}"),
        }
    });
}

#[test]
fn lost_link_ends_connections_with_the_remedy() {
    alone("lost_link_ends_connections_with_the_remedy", |config| {
        let (a, b) = pair(&config);
        exchange(&a, &b);
        ends_with(
            &a,
            &b,
            "PORT_ERR",
            &AsyncEvent::PortError { port: 1 },
            &["lost its link", "ip link set dev"],
        );
        let why = nic_hw::open(&host::real::host(), &config).expect_err("no active port").to_string();
        assert!(why.contains("it is down (is the cable plugged in"), "{why}");
        inject("PORT_ACTIVE");
        assert_eq!(a.async_event(), AsyncEvent::PortActive { port: 1 });
        let (a, b) = pair(&config);
        exchange(&a, &b);
    });
}

#[test]
fn connections_wait_for_a_link_that_comes_back() {
    alone("connections_wait_for_a_link_that_comes_back", |config| {
        let (a, b) = pair(&HwConfig { patience: host::Span::from_secs(3600), ..config });
        inject("PORT_ERR");
        assert_eq!(a.async_event(), AsyncEvent::PortError { port: 1 });
        inject("PORT_ACTIVE");
        assert_eq!(a.async_event(), AsyncEvent::PortActive { port: 1 });
        exchange(&a, &b);
    });
}

#[test]
fn vanished_gid_ends_connections_with_the_remedy() {
    alone("vanished_gid_ends_connections_with_the_remedy", |config| {
        let (a, b) = pair(&config);
        ends_with(&a, &b, "GID_CHANGE", &AsyncEvent::GidChange { port: 1 }, &["GID", "ip addr add"]);
        let chosen = HwConfig { gid: Some(1), ..config.clone() };
        let why = nic_hw::open(&host::real::host(), &chosen).expect_err("no such GID").to_string();
        assert!(why.contains("has no GID 1; it has 0 (fe80::"), "{why}");
        inject("GID_CHANGE");
        let (a, b) = pair(&chosen);
        exchange(&a, &b);
        // The GID of this connection stays where another one changes.
        assert_eq!(a.qp.state(), QpState::ReadyToSend);
    });
}

#[test]
fn failed_card_ends_everything_with_the_remedy() {
    alone("failed_card_ends_everything_with_the_remedy", |config| {
        let (a, b) = pair(&config);
        ends_with(
            &a,
            &b,
            "DEVICE_FATAL",
            &AsyncEvent::DeviceFatal,
            &["the card has failed", "open it again"],
        );
        while a.completion().is_ok() {}
        let why = a.completion().expect_err("the card is gone").to_string();
        assert!(why.contains("card 'nicety0'") && why.contains("open it again"), "{why}");
    });
}
