//! Hosts that vanish, and hosts that are only slow, between network namespaces.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use host::Span;
use nic_iwarp::{IwarpConfig, open};
use verbs::{CmEvent, CmFailure, ConnParam, Device, MemoryKind, QpState, SendOp, WcStatus};

use crate::support::endpoint::{Endpoint, deadline, within};
use crate::support::netns::{Space, Spaces};
use crate::support::one_at_a_time;

/// The smallest `silence` for which idle connections detect a vanished host in time.
const SILENCE: Duration = Duration::from_secs(2);
/// Tolerance for a busy machine.
const SLACK: Duration = Duration::from_secs(3);

fn device(space: &Space) -> Device {
    let config = IwarpConfig { silence: Span::from_ms(SILENCE.as_millis() as u64), ..IwarpConfig::default() };
    space.within(|| open(&host::real::host(), &config).expect("a device"))
}

fn connected_ends(spaces: &Spaces, len: usize) -> (Endpoint, Endpoint) {
    let (mut near, mut far) = (Endpoint::on(&device(&spaces.a), len), Endpoint::on(&device(&spaces.b), len));
    let listener = far.cm.listen(SocketAddr::new(spaces.b.ip, 0), 4).expect("a listener");
    near.cm.connect(&near.qp, listener.addr(), &near.param()).expect("asked");
    far.accept();
    match near.cm.get_event(deadline()) {
        Ok(CmEvent::Established { private_data, .. }) => near.set_peer_regions(&private_data),
        other => panic!("{other:?}"),
    }
    (near, far)
}

/// Goal: when the peer's host vanishes, open requests fail and the connection ends within one and a half times the
/// configured silence; so does an idle connection. Method: takes the link down, with a silence of 2 s.
#[test]
fn vanished_host_is_detected_within_silence() {
    let _gate = one_at_a_time();
    let Some(spaces) = Spaces::try_new(1500) else { return };
    let (busy, _busy_far) = connected_ends(&spaces, 4096);
    let (idle, idle_far) = connected_ends(&spaces, 4096);
    busy.post(0, SendOp::Write(busy.peer.host), MemoryKind::Host, 0, 64);
    busy.sent_ok(0);
    spaces.b.ip("link set nic-b down").expect("a link");
    let began = Instant::now();
    for id in 1..4 {
        busy.post(id, SendOp::Write(busy.peer.host), MemoryKind::Host, 0, 64);
    }
    for end in [&busy, &idle, &idle_far] {
        end.disconnected();
        assert_eq!(end.qp.state(), QpState::Error);
        let took = began.elapsed();
        println!("given up after {took:?}");
        assert!(took > SILENCE / 2 && took < SILENCE * 3 / 2 + SLACK, "{took:?}");
    }
    for (id, status) in [(1, WcStatus::RetryExcErr), (2, WcStatus::WrFlushErr), (3, WcStatus::WrFlushErr)] {
        let wc = busy.sent();
        assert_eq!((wc.wr_id, wc.status), (id, status));
    }
}

/// Goal: a host that acknowledges may accept no data for any length of time: when receives are posted late,
/// everything arrives. Method: more messages than the sockets hold wait for three times the silence.
#[test]
fn slow_program_is_not_taken_for_vanished() {
    let _gate = one_at_a_time();
    let Some(spaces) = Spaces::try_new(9000) else { return };
    let (near, far) = connected_ends(&spaces, 1 << 20);
    for id in 0..24 {
        near.post(id, SendOp::Send, MemoryKind::Host, 0, 1 << 20);
    }
    assert!(near.cm.get_event(within(SILENCE * 3)).is_err(), "the connection ended");
    assert!(near.send_cq.poll_one().expect("no overrun").is_none(), "a message completed without a receive");
    for id in 0..24 {
        far.post_recv(id, MemoryKind::Host, 0, 1 << 20);
        let wc = far.received();
        assert!(wc.is_ok() && wc.wr_id == id && wc.byte_len == 1 << 20, "{wc:?}");
    }
    for id in 0..24 {
        near.sent_ok(id);
    }
}

/// Goal: unreachable hosts and networks are reported within the time-out.
#[test]
fn unreachable_hosts_are_reported() {
    let _gate = one_at_a_time();
    let Some(spaces) = Spaces::try_new(1500) else { return };
    let end = Endpoint::on(&device(&spaces.a), 64);
    let connect = |addr: &str, ms: u64| {
        let (addr, timeout): (SocketAddr, _) = (addr.parse().expect("an address"), Span::from_ms(ms));
        let began = Instant::now();
        end.cm.connect(&end.qp, addr, &ConnParam { timeout, ..ConnParam::default() }).expect("asked");
        match end.cm.get_event(deadline()) {
            Ok(CmEvent::ConnectFailed { why, .. }) => (why, began.elapsed()),
            other => panic!("{other:?}"),
        }
    };
    let (no_route, _) = connect("203.0.113.1:7", 10_000);
    assert!(no_route.to_string().contains("there is no route"), "{no_route}");
    let (no_host, took) = connect("10.77.0.99:7", 10_000);
    assert!(no_host.to_string().contains("does not answer"), "{no_host}");
    println!("an absent host is reported after {took:?}");
    let (late, took) = connect("10.77.0.98:7", 500);
    assert!(late == CmFailure::TimedOut && took < Duration::from_millis(500) + SLACK, "{late} {took:?}");
    let (refused, _) = connect("10.77.0.2:7", 10_000);
    assert!(matches!(refused, CmFailure::Refused(_)), "{refused}");
}
