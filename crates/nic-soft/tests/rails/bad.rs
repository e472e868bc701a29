//! Rails that do not fit together, or are not there: errors that say so.

use std::net::{Ipv4Addr, SocketAddr};

use nic_soft::shm;
use verbs::host::{self, Span};
use verbs::rails::{self, RailsConfig};
use verbs::{CmEvent, CmFailure, ConnParam, Device, QpInit};

use crate::rail;

fn open(rails: Vec<Device>) -> verbs::Result<Device> {
    rails::open(rails, &RailsConfig::default())
}

/// Why a device cannot be connected to another, at this address of it.
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

/// Goal: ends with unequal numbers of rails learn of it. Method: two to three, and three to two.
#[test]
fn unequal_numbers_of_rails() {
    let two = open(vec![rail(4, 1), rail(4, 2)]).expect("rails");
    let three = open(vec![rail(5, 1), rail(5, 2), rail(5, 3)]).expect("rails");
    let why = failure(&two, &three, Ipv4Addr::new(127, 0, 5, 1)).to_string();
    assert!(why.contains("it has 3 rails, and this side 2"), "{why}");
    let why = failure(&three, &two, Ipv4Addr::new(127, 0, 4, 1)).to_string();
    assert!(why.contains("it has 2 rails, and this side 3"), "{why}");
}

/// Goal: what cannot be a device of rails is refused when it is made.
#[test]
fn rails_that_cannot_be() {
    let why = |rails| open(rails).expect_err("refused").to_string();
    let one = rail(6, 1);
    assert!(why(Vec::new()).contains("0 rails"));
    assert!(why(vec![one.clone(), one]).contains("given twice"));
    let nine = (1..10).map(|side| rail(6, side)).collect();
    assert!(why(nine).contains("9 rails"));
    let shm = shm::open(&host::real::host(), &shm::ShmConfig::default()).expect("a device");
    let weights = RailsConfig { weights: vec![1.0, 0.0], ..RailsConfig::default() };
    let error = rails::open(vec![shm, rail(6, 2)], &weights).expect_err("refused").to_string();
    assert!(error.contains("positive"), "{error}");
}
