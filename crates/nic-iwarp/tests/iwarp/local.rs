//! Requests with local completion (`LOCAL`).

use verbs::{Data, MemoryKind, SendFlags, SendOp, SendWr};

use crate::raw::{connect_ends, device};
use crate::support::endpoint::Endpoint;
use crate::support::one_at_a_time;

/// Short enough that TCP accepts it all while the peer receives nothing.
const LEN: u32 = 4000;

fn post(end: &Endpoint, wr_id: u64, op: SendOp, flags: SendFlags) {
    let sge = [end.host.sge(0, LEN)];
    end.qp.post_send(&SendWr { wr_id, op, data: Data::Sges(&sge), flags }).expect("posted");
}

/// Goal: a local request completes without a response, together with unsignaled requests before it, but not with
/// signaled ones; all messages arrive. Method: sends to a peer that posts no receive until they have completed; the
/// last ones follow a request whose arrival is signaled.
#[test]
fn local_request_completes_without_response() {
    let _gate = one_at_a_time();
    let (mut near, mut far) = (Endpoint::on(&device(), LEN as usize), Endpoint::on(&device(), LEN as usize));
    connect_ends(&mut near, &mut far);
    let signaled = SendFlags::SIGNALED;
    for (wr_id, op, flags) in [
        (1, SendOp::Write(near.peer.host), SendFlags::empty()),
        (2, SendOp::Send, SendFlags::empty()),
        (3, SendOp::Send, signaled | SendFlags::LOCAL),
        (4, SendOp::WriteImm(near.peer.host, 5), signaled | SendFlags::LOCAL),
    ] {
        post(&near, wr_id, op, flags);
    }
    near.sent_ok(3);
    near.sent_ok(4);
    post(&near, 5, SendOp::Send, signaled);
    post(&near, 6, SendOp::Send, signaled | SendFlags::LOCAL);
    assert!(near.send_cq.poll_one().expect("no overrun").is_none(), "the fifth has no receive");
    for wr_id in 0..5 {
        far.post_recv(wr_id, MemoryKind::Host, 0, LEN);
    }
    for wr_id in 0..5 {
        let wc = far.received();
        assert_eq!((wc.is_ok(), wc.wr_id, wc.byte_len), (true, wr_id, LEN), "{wc:?}");
    }
    near.sent_ok(5);
    near.sent_ok(6);
    near.check_canaries();
    far.check_canaries();
}
