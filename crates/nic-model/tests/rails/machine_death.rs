//! A machine dies at any instant while it connects and sends: the connection events of the accepting side.
#![allow(clippy::unwrap_used, reason = "clippy allows it in tests only, and not in their helpers")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nic_model::Config;
use verbs::host::world::{self, World};
use verbs::host::{Host, Span, Time};
use verbs::{
    Access, Buf, CmEvent, CmFailure, ConnParam, Device, QpCap, QpInit, RecvWr, SendOp, SendWr, SrqInit,
};

use super::rails_support::open;

const PORT: u16 = 7000;
/// Messages of the machine that dies.
const MESSAGES: u64 = 4;
/// The first and the last instant of death around the connection, and the step between instants.
const BEFORE_NS: u64 = 400_000;
const AFTER_NS: u64 = 60_000;
const STEP_NS: u64 = 1_500;

/// The outcome of a connection.
#[derive(Debug, Default)]
struct ConnOutcome {
    /// When the connecting side got the event that it is connected.
    connected_ns: Option<u64>,
    /// Number of messages that it knew to be delivered.
    acknowledged: u64,
    /// The events of the accepting side, as one character each: `+` Established, `-` Disconnected, `!`
    /// ConnectFailed.
    events: String,
    why: Option<CmFailure>,
    /// Number of messages that it found after these events.
    messages: u64,
}

/// Connects, sends, and ends.
fn client(
    host: &Host,
    device: &Device,
    addr: SocketAddr,
    fate: &Mutex<ConnOutcome>,
    acknowledged: &AtomicU64,
) {
    let (pd, cq, cm) =
        (device.alloc_pd().unwrap(), device.create_cq(64).unwrap(), device.create_cm().unwrap());
    let buf = Buf::alloc(64).unwrap();
    let mr = pd.reg_mr(&buf, Access::LOCAL_WRITE).unwrap();
    let qp = pd.create_qp(&QpInit::new(&cq).cap(cap())).unwrap();
    cm.connect(&qp, addr, &ConnParam::default()).unwrap();
    let event = cm.get_event(host.after(Span::from_ms(50))).unwrap();
    assert!(matches!(event, CmEvent::Established { .. }), "{event:?}");
    fate.lock().unwrap().connected_ns = Some(host.now().since(Time::ZERO).as_ns());
    for number in 0..MESSAGES {
        qp.post_send(&SendWr::new(number, SendOp::Send, &[mr.sge(0, 8)])).unwrap();
    }
    for _ in 0..MESSAGES {
        assert!(cq.wait(None).unwrap().is_ok());
        acknowledged.fetch_add(1, Ordering::Relaxed);
    }
}

fn cap() -> QpCap {
    QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 }
}

/// Accepts, waits for the end without polling for messages, then counts them. `message_lane` selects their
/// lane.
fn server(host: &Host, device: &Device, message_lane: usize, shared: bool, fate: &Mutex<ConnOutcome>) {
    let (pd, cq, cm) =
        (device.alloc_pd().unwrap(), device.create_cq(64).unwrap(), device.create_cm().unwrap());
    let buf = Buf::alloc(64).unwrap();
    let mr = pd.reg_mr(&buf, Access::LOCAL_WRITE).unwrap();
    let listener = cm.listen(SocketAddr::new(device.attr().port_addrs[0], PORT), 8).unwrap();
    let srq = SrqInit { max_wr: 8, max_sge: 1 };
    // Lanes alternate in the order of creation: each queue, or queue pair of its own, gets the next one.
    let srqs: Vec<_> = (0..=message_lane).map(|_| pd.create_srq(srq).unwrap()).collect();
    let init = QpInit::new(&cq).cap(cap());
    let init = if shared { init.srq(srqs.last().unwrap()) } else { init };
    let qps: Vec<_> = (0..2).map(|_| pd.create_qp(&init).unwrap()).collect();
    let qp = &qps[1];
    for number in 0..MESSAGES {
        let (wr, room) = (number, [mr.sge(0, 8)]);
        let wr = RecvWr::new(wr, &room);
        if shared { srqs[message_lane].post_recv(&wr).unwrap() } else { qp.post_recv(&wr).unwrap() }
    }
    let mut events = String::new();
    // There is no request if the other side dies before sending it.
    while let Ok(event) = cm.get_event(host.after(Span::from_ms(80))) {
        match event {
            CmEvent::ConnectRequest(request) => cm.accept(request, qp, &ConnParam::default()).unwrap(),
            CmEvent::Established { .. } => events.push('+'),
            CmEvent::Disconnected { .. } => events.push('-'),
            CmEvent::ConnectFailed { why, .. } => {
                events.push('!');
                fate.lock().unwrap().why = Some(why);
            }
            other @ CmEvent::Rejected { .. } => panic!("{other:?}"),
        }
    }
    let mut fate = fate.lock().unwrap();
    while let Some(wc) = cq.poll_one().unwrap() {
        fate.messages += u64::from(wc.is_ok());
    }
    fate.events = events;
    drop(listener);
}

/// The faults and their times.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// When the connecting side dies.
    death_ns: Option<u64>,
    /// When the cable of its first rail is cut, which is earlier.
    cut_ns: Option<u64>,
}

fn connection(faults: Faults, message_lane: usize, shared: bool) -> ConnOutcome {
    let mut options =
        vec![("connection.lost_after_us", "300".to_owned()), ("faults.death_node", "1".to_owned())];
    let us = |at: u64| format!("{:.3}", at as f64 / 1e3);
    options.extend(faults.death_ns.map(|at| ("faults.death_us", us(at))));
    if let Some(at) = faults.cut_ns {
        options.extend([("faults.cut_node", "1".to_owned()), ("faults.cut_port", "1".to_owned())]);
        options.push(("faults.cut_us", us(at)));
    }
    let options: Vec<(&str, &str)> = options.iter().map(|(key, value)| (*key, value.as_str())).collect();
    let configs = [0, 1].map(|rail| Config::new(&format!("connectx-multihca@{rail}"), &options).unwrap());
    let mut world = World::new(world::Config { stack: 1 << 20, ..world::Config::default() });
    let (a, b) = (world.add_node("accepting"), world.add_node("connecting"));
    let (fate, acknowledged) = (Arc::new(Mutex::new(ConnOutcome::default())), Arc::new(AtomicU64::new(0)));
    let addr = Arc::new(Mutex::new(None));
    let (host, fate_of, mine, told_addr) = (a.host(), fate.clone(), configs.clone(), addr.clone());
    world
        .spawn("server", &[&a], move || {
            let device = open(&host, &mine, nic_rails::Engine::Callers);
            *told_addr.lock().unwrap() = Some(SocketAddr::new(device.attr().port_addrs[0], PORT));
            server(&host, &device, message_lane, shared, &fate_of);
        })
        .unwrap();
    let (host, fate_of, acknowledged_of) = (b.host(), fate.clone(), acknowledged.clone());
    world
        .spawn("client", &[&b], move || {
            let device = open(&host, &configs, nic_rails::Engine::Callers);
            // The other side is listening by then.
            host.poll("a while", host.after(Span::from_ms(1)), || None::<()>);
            let addr = addr.lock().unwrap().unwrap();
            client(&host, &device, addr, &fate_of, &acknowledged_of);
        })
        .unwrap();
    world.run().unwrap_or_else(|failure| panic!("{failure}"));
    let mut fate = std::mem::take(&mut *fate.lock().unwrap());
    fate.acknowledged = acknowledged.load(Ordering::Relaxed);
    fate
}

/// Goal: the accepting side gets Established and Disconnected if messages may have arrived, and ConnectFailed
/// only if none can have; all acknowledged messages are there at the end. Method: the connecting side dies at
/// each instant around the time when it connects and sends; messages use either lane, with receives of the
/// queue pair's own and shared ones. The survivor polls for messages only after the last event.
#[test]
fn peer_that_may_have_sent_is_reported_as_connected() {
    let (mut failed, mut late) = (0, 0);
    for (message_lane, shared) in [(0, false), (0, true), (1, true)] {
        let whole = connection(Faults::default(), message_lane, shared);
        assert_eq!((whole.events.as_str(), whole.messages), ("+-", MESSAGES), "{whole:?}");
        let connected = whole.connected_ns.unwrap();
        for at in (connected - BEFORE_NS..connected + AFTER_NS).step_by(STEP_NS as usize) {
            let faults = Faults { death_ns: Some(at), cut_ns: None };
            let fate = connection(faults, message_lane, shared);
            let what = format!(
                "lane {message_lane}, shared {shared}, dead at {at} ns, connected at {connected}: {fate:?}"
            );
            assert!(fate.events == "+-" || fate.events == "!", "{what}");
            assert!(fate.messages >= fate.acknowledged, "{what}");
            if fate.events == "!" {
                assert!(fate.connected_ns.is_none() && fate.messages == 0, "{what}");
                failed += 1;
            } else if fate.connected_ns.is_some() && fate.messages < MESSAGES {
                late += 1;
            }
        }
    }
    assert!(failed > 0 && late > 0, "both kinds of ends are met: {failed} and {late}");
}

/// Goal: the accepting side gets Established before Disconnected, also if it never got an event of the first
/// lane. Method: the first rail is cut at each instant around the time of that lane's event, and the
/// connecting side dies shortly after.
#[test]
fn disconnected_follows_established() {
    let connected = connection(Faults::default(), 0, false).connected_ns.unwrap();
    let mut met = 0;
    for at in (connected - BEFORE_NS..connected).step_by(2 * STEP_NS as usize) {
        for later in [10_000, 50_000, 200_000] {
            let fate = connection(Faults { death_ns: Some(at + later), cut_ns: Some(at) }, 0, false);
            let what = format!("cut at {at} ns, dead {later} later, connected at {connected}: {fate:?}");
            assert!(fate.events == "+-" || fate.events == "!", "{what}");
            assert!(fate.messages >= fate.acknowledged, "{what}");
            met += u32::from(fate.events == "+-");
        }
    }
    assert!(met > 0, "no end was met");
}
