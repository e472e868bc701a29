//! Rails that do not match or are missing yield errors that say so.

use std::net::{Ipv4Addr, SocketAddr};

use nic_rails::RailsConfig;
use verbs::host::{self, Span};
use verbs::{CmEvent, CmFailure, ConnParam, Device, QpInit};

use crate::sockets::listening;
use crate::{one_at_a_time, rail};

fn open(rails: Vec<Device>) -> verbs::Result<Device> {
    nic_rails::open(rails, &RailsConfig::default())
}

/// Why a device cannot be connected to another, at this address.
fn failure(near: &Device, far: &Device, ip: Ipv4Addr) -> CmFailure {
    let (cm, listening) = (near.create_cm().expect("a channel"), far.create_cm().expect("a channel"));
    let listener = listening.listen(SocketAddr::from((ip, 0)), 1).expect("a listener");
    let cq = near.create_cq(64).expect("a queue");
    let qp = near.alloc_pd().expect("a domain").create_qp(&QpInit::new(&cq)).expect("a queue pair");
    let param = ConnParam { timeout: Span::from_secs(5), ..ConnParam::default() };
    cm.connect(&qp, listener.addr(), &param).expect("asked");
    match cm.get_event(near.host().after(Span::from_secs(20))) {
        Ok(CmEvent::ConnectFailed { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

/// Goal: ends with different numbers of rails report that. Method: two to three, and three to two.
#[test]
fn connect_with_unequal_numbers_of_rails_reports_both() {
    let two = open(vec![rail(4, 1), rail(4, 2)]).expect("rails");
    let three = open(vec![rail(5, 1), rail(5, 2), rail(5, 3)]).expect("rails");
    let why = failure(&two, &three, Ipv4Addr::new(127, 0, 5, 1)).to_string();
    assert!(why.contains("it has 3 rails, and this side 2"), "{why}");
    let why = failure(&three, &two, Ipv4Addr::new(127, 0, 4, 1)).to_string();
    assert!(why.contains("it has 2 rails, and this side 3"), "{why}");
}

/// Goal: invalid sets of rails are refused when the device is opened.
#[test]
fn invalid_rails_are_refused() {
    let why = |rails| open(rails).expect_err("refused").to_string();
    let one = rail(6, 1);
    assert!(why(Vec::new()).contains("0 rails"));
    assert!(why(vec![one.clone(), one]).contains("given twice"));
    let nine = (1..10).map(|side| rail(6, side)).collect();
    assert!(why(nine).contains("9 rails"));
    let shm = nic_shm::open(&host::real::host(), &nic_shm::ShmConfig::default()).expect("a device");
    let weights = RailsConfig { weights: vec![1.0, 0.0], ..RailsConfig::default() };
    let error = nic_rails::open(vec![shm, rail(6, 2)], &weights).expect_err("refused").to_string();
    assert!(error.contains("positive"), "{error}");
}

/// Goal: rails without an address of their own are reached at the address where the peer has connected, and listen
/// nowhere else. Method: list the sockets of this process while a connection is made.
#[test]
fn rails_without_an_address_listen_where_the_peer_has_connected() {
    let _gate = one_at_a_time();
    let iwarp =
        || nic_iwarp::open(&host::real::host(), &nic_iwarp::IwarpConfig::default()).expect("a device");
    let (near, far) =
        (open(vec![iwarp(), iwarp()]).expect("rails"), open(vec![iwarp(), iwarp()]).expect("rails"));
    let (cm, channel) = (near.create_cm().expect("a channel"), far.create_cm().expect("a channel"));
    let listener = channel.listen("127.0.6.9:0".parse().expect("an address"), 1).expect("a listener");
    let qp = |device: &Device| {
        let cq = device.create_cq(64).expect("a queue");
        device.alloc_pd().expect("a domain").create_qp(&QpInit::new(&cq)).expect("a queue pair")
    };
    let (connecting, accepting) = (qp(&near), qp(&far));
    cm.connect(&connecting, listener.addr(), &ConnParam::default()).expect("asked");
    let Ok(CmEvent::ConnectRequest(request)) = channel.get_event(far.host().after(Span::from_secs(20)))
    else {
        panic!("no request")
    };
    channel.accept(request, &accepting, &ConnParam::default()).expect("accepted");
    for cm in [&cm, &channel] {
        let event = cm.get_event(near.host().after(Span::from_secs(20)));
        assert!(matches!(event, Ok(CmEvent::Established { .. })), "{event:?}");
    }
    let all: Vec<_> = listening().into_iter().map(|addr| addr.ip()).collect();
    let here = all.iter().filter(|ip| **ip == listener.addr().ip()).count();
    assert_eq!(here, 3, "the program's listener, and one of each rail: {all:?}");
    assert!(!all.iter().any(|ip| ip.is_unspecified()), "{all:?}");
}
