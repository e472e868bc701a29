//! Peers that are killed while they send and receive.

use std::time::{Duration, Instant};

use verbs::{MemoryKind, QpState, SendOp, WcStatus};

use crate::raw::{UndisturbedConn, device};
use crate::support::child::{Child, recv_line, send_line};
use crate::support::endpoint::{Endpoint, within};
use crate::support::{Rng, one_at_a_time, traces, until};

const LEN: usize = 256 << 10;
const SENDS: u64 = 24;
const RECEIVES: u64 = 24;

/// Child: performs all kinds of operations on its peer until it is killed.
pub(crate) fn busy_peer_role() {
    let port = recv_line().expect("a port").parse().expect("a number");
    let mut end = Endpoint::on(&device(), LEN);
    (0..RECEIVES).for_each(|id| end.post_recv(id, MemoryKind::Host, 0, LEN as u32));
    end.connect(port);
    send_line("connected");
    for id in 0.. {
        let op = [SendOp::Write(end.peer.host), SendOp::Read(end.peer.nic), SendOp::Send][id as usize % 3];
        end.post(id, op, MemoryKind::Nic, 0, if id % 3 == 2 { 64 } else { LEN as u32 });
        end.sent_ok(id);
        while let Some(wc) = end.recv_cq.poll_one().expect("no overrun") {
            end.post_recv(wc.wr_id, MemoryKind::Host, 0, LEN as u32);
        }
    }
}

/// The kinds of requests that are open when the child dies.
fn post_all(end: &Endpoint, rng: &mut Rng) {
    for id in 0..SENDS {
        let op = match rng.below(4) {
            0 => SendOp::Send,
            1 => SendOp::Read(end.peer.host),
            _ => SendOp::Write(end.peer.host),
        };
        let len = [8, 3000, LEN as u32][rng.below(3) as usize];
        end.post(id, op, MemoryKind::Nic, 0, len);
    }
}

/// Goal: if a peer is killed with SIGKILL during traffic in both directions, the survivor soon gets a completion for
/// everything posted, in order, and one `Disconnected`; its other connections keep working, and nothing leaks.
/// Method: kills a child at a seeded random time, 25 times.
#[test]
fn peers_are_killed_in_the_middle_of_traffic() {
    let _gate = one_at_a_time();
    let device = device();
    let undisturbed = UndisturbedConn::start(&device);
    let before = traces::descriptors();
    let mut rng = Rng::new(41);
    let mut longest = Duration::ZERO;
    for round in 0..25 {
        let mut end = Endpoint::on(&device, LEN);
        (0..RECEIVES).for_each(|id| end.post_recv(id, MemoryKind::Host, 0, LEN as u32));
        let listener = end.listen();
        let mut child = Child::start("busy_peer");
        child.send_line(listener.addr().port());
        end.accept();
        assert_eq!(child.recv_line(), "connected");
        std::thread::sleep(Duration::from_micros(rng.below(4000)));
        post_all(&end, &mut rng);
        std::thread::sleep(Duration::from_micros(rng.below(3000)));
        let killed = child.kill();
        end.disconnected();
        let mut failed = false;
        for id in 0..SENDS {
            let wc = end.send_cq.wait(within(Duration::from_secs(5))).expect("a completion for each");
            assert_eq!(wc.wr_id, id, "round {round}: {wc:?}");
            assert!(wc.is_ok() || failed || wc.status != WcStatus::GeneralErr, "{wc:?}");
            assert!(!(failed && wc.is_ok()), "round {round}: a success after a failure");
            failed |= !wc.is_ok();
        }
        for id in 0..RECEIVES {
            let wc = end.recv_cq.wait(within(Duration::from_secs(5))).expect("a completion for each");
            assert_eq!(wc.wr_id, id, "round {round}: {wc:?}");
        }
        longest = longest.max(Instant::now().duration_since(killed));
        assert!(end.cm.poll_event().is_none(), "one event");
        assert!(end.send_cq.poll_one().expect("no overrun").is_none(), "no completion more");
        assert_eq!(end.qp.state(), QpState::Error);
        end.check_canaries();
        undisturbed.check();
    }
    println!("25 peers killed: the survivor had everything after {longest:?} at most");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    until("return of all descriptors", || (traces::descriptors() <= before).then_some(()));
    undisturbed.end();
}
