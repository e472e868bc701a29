//! Faults on the wire: what an iWARP device does with `delay`, `jitter`, `rate`, `reset` and `flip`.

mod support;

use std::net::{Ipv4Addr, SocketAddr};

use conformance::{Body, Env, Fixture};
use nic_iwarp::{IwarpConfig, WireFaults};
use support::{End, pair};
use verbs::host::{self, Span};
use verbs::{Access, Buf, Device, SendOp, SendWr, WcStatus};

fn open(wire: WireFaults, crc: bool) -> Device {
    nic_iwarp::open(&host::real::host(), &IwarpConfig { wire, crc, ..IwarpConfig::default() })
        .expect("a device")
}

/// Two connected ends; the first has the faults.
fn connected(wire: WireFaults, crc: bool) -> (End, std::sync::Arc<End>) {
    let plain = open(WireFaults::default(), crc);
    pair(&open(wire, crc), &plain, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

fn write(end: &End, peer: &End, wr_id: u64) {
    end.post(&SendWr::new(wr_id, SendOp::Write(peer.mr.remote(0)), &[end.mr.sge(0, 4096)]));
}

#[test]
fn delayed_bytes_arrive_later_and_complete() {
    let (a, b) = connected(WireFaults { delay: Span::from_ms(30), ..WireFaults::default() }, false);
    a.mr.buf().fill(7);
    let begin = a.device.host().now();
    write(&a, &b, 1);
    assert_eq!(a.send_done().status, WcStatus::Success);
    assert!(a.device.host().now().since(begin) >= Span::from_ms(30), "too early");
    assert_eq!(b.mr.buf().to_vec(0..4096).expect("memory"), vec![7; 4096]);
    a.qp.to_error();
    b.until_disconnected();
}

#[test]
fn rate_limits_a_large_write() {
    let (a, b) = connected(WireFaults { rate: 80_000_000, ..WireFaults::default() }, false);
    let bytes = 1 << 20;
    let from = a.pd.reg_mr(&Buf::alloc(bytes).expect("memory"), Access::LOCAL_WRITE).expect("a region");
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let to = b.pd.reg_mr(&Buf::alloc(bytes).expect("memory"), rights).expect("a region");
    from.buf().fill(9);
    let begin = a.device.host().now();
    a.post(&SendWr::new(1, SendOp::Write(to.remote(0)), &[from.sge(0, bytes as u32)]));
    assert_eq!(a.send_done().status, WcStatus::Success);
    // One megabyte at ten megabytes per second.
    assert!(a.device.host().now().since(begin) >= Span::from_ms(100), "too early");
    assert_eq!(to.buf().to_vec(0..bytes).expect("memory"), vec![9; bytes]);
}

#[test]
fn reset_ends_the_connection_at_both_ends() {
    let (a, b) = connected(WireFaults { reset: 0.05, seed: 3, ..WireFaults::default() }, false);
    for wr_id in 0..10_000 {
        write(&a, &b, wr_id);
        let wc = a.send_done();
        if !wc.is_ok() {
            a.until_disconnected();
            b.until_disconnected();
            return;
        }
    }
    panic!("no reset in 10,000 writes");
}

/// Goal: a changed byte never reaches a program unnoticed, if there are CRCs.
#[test]
fn changed_byte_ends_a_connection_with_crcs() {
    for seed in 0..8 {
        let wire = WireFaults { flip: 2e-5, seed, ..WireFaults::default() };
        let (a, b) = connected(wire, true);
        let mut ended = false;
        for wr_id in 0..10_000 {
            a.mr.buf().fill(wr_id as u8 | 1);
            write(&a, &b, wr_id);
            if !a.send_done().is_ok() {
                ended = true;
                break;
            }
            assert_eq!(
                b.mr.buf().to_vec(0..4096).expect("memory"),
                vec![wr_id as u8 | 1; 4096],
                "seed {seed}"
            );
        }
        assert!(ended, "seed {seed}: no byte was changed");
        a.until_disconnected();
        b.until_disconnected();
    }
}

/// Two devices with a slow and unsteady network between them.
struct Unsteady;

impl Fixture for Unsteady {
    fn run(&self, body: Body) {
        let wire = WireFaults {
            delay: Span::from_us(200),
            jitter: Span::from_us(300),
            rate: 2_000_000_000,
            ..WireFaults::default()
        };
        let (a, b) = (open(wire, false), open(wire, false));
        body(&Env::new(a, b, SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).slow(3).large_bytes(8 << 20));
    }
}

/// Goal: a late network changes nothing but the time.
#[test]
fn conformance_suite_passes_over_an_unsteady_network() {
    let groups = [
        "send_recv",
        "send_forms",
        "write",
        "read",
        "atomics",
        "order",
        "rnr",
        "srq",
        "disconnect",
        "peer_loss",
    ];
    let mut count = 0;
    for test in conformance::all().iter().filter(|test| groups.contains(&test.group)) {
        test.run(&Unsteady);
        count += 1;
    }
    assert!(count > 50, "{count}");
}
