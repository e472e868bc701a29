//! Sends and receives: data, completions, and bytes that must not change.

use crate::Env;
use crate::harness::check::{Shadow, assert_same_bytes, expect_failure, expect_success};
use crate::harness::conn::{Conn, Setup};
use host::Span;
use verbs::{Error, SendOp, SendWr, Sge, WcOpcode, WcStatus};

/// Sizes around every boundary that an implementation may have.
pub(crate) const SIZES: [usize; 16] =
    [0, 1, 7, 8, 63, 64, 65, 255, 256, 257, 4095, 4096, 4097, 65535, 65536, 65537];
/// A region that holds the largest of [`SIZES`] at any small offset.
pub(crate) const ROOM: usize = 72 << 10;

fn check_send_in_new_conn(env: &Env, len: usize, near_at: usize, far_at: usize, room: usize) {
    let c = Conn::with_setup(env, &Setup { len: room, ..Setup::default() });
    check_send(&c, len, near_at, far_at);
}

fn check_send(c: &Conn, len: usize, near_at: usize, far_at: usize) {
    let near = Shadow::new(&c.a.host, 1);
    let mut far = Shadow::new(&c.b.host, 2);
    c.b.post_recv(7, &[c.b.host.sge(far_at as u64, len as u32)]);
    c.a.post(&SendWr::new(8, SendOp::Send, &[c.a.host.sge(near_at as u64, len as u32)]));
    let wc = expect_success(c.b.next_received(), 7, WcOpcode::Recv);
    assert_eq!((wc.byte_len as usize, wc.qp_num), (len, c.b.qp.num()));
    assert_eq!((wc.imm, wc.invalidated), (None, None), "neither was sent");
    let wc = expect_success(c.a.next_sent(), 8, WcOpcode::Send);
    assert_eq!(wc.qp_num, c.a.qp.num());
    far.expect(far_at, &near.bytes(near_at, len));
    far.check("the receiver's memory");
    near.check("the sender's memory");
}

/// Goal: every size arrives completely, and no surrounding byte changes. Method: compare all of both regions.
pub(crate) fn every_size_arrives(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: ROOM, ..Setup::default() });
    for len in SIZES {
        check_send(&c, len, 64, 128);
    }
}

/// A send arrives from and at odd addresses.
pub(crate) fn odd_addresses_arrive(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: ROOM, ..Setup::default() });
    for (i, len) in SIZES.into_iter().enumerate() {
        check_send(&c, len, 1 + i % 9, 3 + i % 13);
    }
}

/// 1 MiB, and one byte less and more.
pub(crate) fn a_mebibyte_arrives(env: &Env) {
    for len in [(1 << 20) - 1, 1 << 20, (1 << 20) + 1] {
        check_send_in_new_conn(env, len, 5, 11, (1 << 20) + 64);
    }
}

/// 16 MiB, aligned and not.
pub(crate) fn sixteen_mebibytes_arrive(env: &Env) {
    let c = Conn::with_setup(env, &Setup { len: (16 << 20) + 64, ..Setup::default() });
    check_send(&c, 16 << 20, 0, 0);
    check_send(&c, (16 << 20) - 3, 1, 6);
}

/// The accepting side can send, too.
pub(crate) fn accepting_side_can_send(env: &Env) {
    let c = Conn::new(env);
    c.check_traffic();
    c.check_traffic();
}

/// A message shorter than its receive leaves the rest of it untouched (IBA 9.7.5.1).
pub(crate) fn longer_receive_keeps_its_rest(env: &Env) {
    let c = Conn::new(env);
    let near = Shadow::new(&c.a.host, 3);
    let mut far = Shadow::new(&c.b.host, 4);
    for (id, len) in [(1, 0), (2, 1), (3, 100), (4, 1023)] {
        c.b.post_recv(id, &[c.b.host.sge(1000, 1024)]);
        c.a.post(&SendWr::new(id, SendOp::Send, &[c.a.host.sge(0, len)]));
        assert_eq!(expect_success(c.b.next_received(), id, WcOpcode::Recv).byte_len, len);
        expect_success(c.a.next_sent(), id, WcOpcode::Send);
        far.expect(1000, &near.bytes(0, len as usize));
        far.check("a receive of 1024 bytes");
    }
}

/// A short message fits a receive of several elements: it ends inside an element, at its end, or before it.
pub(crate) fn short_message_may_end_in_any_piece(env: &Env) {
    let c = Conn::new(env);
    let near = Shadow::new(&c.a.host, 3);
    let mut far = Shadow::new(&c.b.host, 4);
    for len in [0_u32, 9, 10, 11, 29, 30, 31, 59, 60] {
        let to = [c.b.host.sge(100, 10), c.b.host.sge(300, 20), c.b.host.sge(200, 30)];
        c.b.post_recv(1, &to);
        c.a.post(&SendWr::new(2, SendOp::Send, &[c.a.host.sge(0, len)]));
        assert_eq!(expect_success(c.b.next_received(), 1, WcOpcode::Recv).byte_len, len);
        expect_success(c.a.next_sent(), 2, WcOpcode::Send);
        let bytes = near.bytes(0, len as usize);
        let (first, rest) = bytes.split_at(bytes.len().min(10));
        let (second, third) = rest.split_at(rest.len().min(20));
        far.expect(100, first);
        far.expect(300, second);
        far.expect(200, third);
        far.check("three pieces");
    }
}

/// A message is longer than its receive: the receive fails with a length error, the send as an invalid request, and
/// both queue pairs are in the error state (IBA 9.9.3, class C at the responder; 11.6.2).
pub(crate) fn too_long_message_fails_both_ends(env: &Env) {
    for (receive, message) in [(64, 65), (0, 1), (4096, 8192)] {
        let c = Conn::new(env);
        c.b.post_recv(1, &[c.b.host.sge(1024, receive)]);
        c.b.post_recv(2, &[c.b.host.sge(0, 8192)]);
        c.a.post(&SendWr::new(3, SendOp::Send, &[c.a.host.sge(0, message)]));
        expect_failure(c.b.next_received(), 1, WcStatus::LocLenErr);
        c.b.expect_receives_flushed([2]);
        expect_failure(c.a.next_sent(), 3, WcStatus::RemInvReqErr);
        c.a.wait_for_error();
        c.b.wait_for_error();
    }
}

/// Bytes after the receive's end stay unchanged, even if the message was too long for it. Bytes inside may or may not
/// have been written: IBA leaves that open.
pub(crate) fn too_long_message_writes_nothing_outside(env: &Env) {
    let c = Conn::new(env);
    let far = Shadow::new(&c.b.host, 6);
    c.b.post_recv(1, &[c.b.host.sge(1000, 100)]);
    c.a.post(&SendWr::new(2, SendOp::Send, &[c.a.host.sge(0, 4000)]));
    expect_failure(c.b.next_received(), 1, WcStatus::LocLenErr);
    expect_failure(c.a.next_sent(), 2, WcStatus::RemInvReqErr);
    let got = c.b.host.buf().to_vec(0..16384).expect("inside");
    assert_same_bytes("before the receive", &got[..1000], &far.bytes(0, 1000));
    assert_same_bytes("after the receive", &got[1100..], &far.bytes(1100, 16384 - 1100));
}

/// Receives are consumed in the order of posting, whatever their sizes.
pub(crate) fn receives_are_consumed_in_order(env: &Env) {
    let c = Conn::new(env);
    for i in 0..32 {
        c.b.post_recv(100 + i, &[c.b.host.sge(i * 256, 256 - i as u32)]);
    }
    let near = Shadow::new(&c.a.host, 5);
    for i in 0..32 {
        c.a.post(&SendWr::new(i, SendOp::Send, &[c.a.host.sge(i * 11, i as u32 * 7)]));
    }
    for i in 0..32 {
        assert_eq!(u64::from(expect_success(c.b.next_received(), 100 + i, WcOpcode::Recv).byte_len), i * 7);
        expect_success(c.a.next_sent(), i, WcOpcode::Send);
        let got = c.b.host.buf().to_vec(i as usize * 256..i as usize * 256 + i as usize * 7).expect("inside");
        assert_same_bytes("a message in order", &got, &near.bytes(i as usize * 11, i as usize * 7));
    }
}

/// Sends a message gathered from `pieces`, receives it scattered to `into` (offsets and lengths), and checks all bytes.
fn gather(c: &Conn, pieces: &[(u64, u32)], into: &[(u64, u32)]) {
    let near = Shadow::new(&c.a.host, 8);
    let mut far = Shadow::new(&c.b.host, 9);
    let from: Vec<Sge> = pieces.iter().map(|&(at, len)| c.a.host.sge(at, len)).collect();
    let to: Vec<Sge> = into.iter().map(|&(at, len)| c.b.host.sge(at, len)).collect();
    let message: Vec<u8> =
        pieces.iter().flat_map(|&(at, len)| near.bytes(at as usize, len as usize)).collect();
    c.b.post_recv(1, &to);
    c.a.post(&SendWr::new(2, SendOp::Send, &from));
    assert_eq!(expect_success(c.b.next_received(), 1, WcOpcode::Recv).byte_len as usize, message.len());
    expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    let mut rest = &message[..];
    for &(at, len) in into {
        let (now, later) = rest.split_at(rest.len().min(len as usize));
        far.expect(at as usize, now);
        rest = later;
    }
    far.check("gathered and scattered");
}

/// Elements are gathered and scattered in order, across each other's boundaries, including zero-length ones.
pub(crate) fn pieces_are_gathered_and_scattered(env: &Env) {
    let c = Conn::new(env);
    let sge = env.a.attr().max_sge.min(env.b.attr().max_sge).min(4) as usize;
    let from = [(1, 3), (1000, 257), (500, 0), (77, 64)];
    let to = [(2001, 100), (9, 0), (5003, 1), (3000, 500)];
    gather(&c, &from[..sge], &[(64, 4000)]);
    gather(&c, &[(64, 500)], &to[sge - 1..]);
    gather(&c, &from[..sge], if sge == 4 { &to } else { &to[3..] });
    gather(&c, &[(0, 0), (3, 0)][..sge.min(2)], &[(0, 0), (5, 10)][..sge.min(2)]);
}

/// A byte may be gathered twice; elements may overlap (reading is harmless).
pub(crate) fn overlapping_pieces_may_be_gathered(env: &Env) {
    let c = Conn::new(env);
    if env.a.attr().max_sge < 3 {
        let wr = [c.a.host.sge(0, 8); 3];
        c.a.qp.post_send(&SendWr::new(1, SendOp::Send, &wr)).expect_err("more pieces than there may be");
        return;
    }
    gather(&c, &[(100, 50), (110, 50), (100, 50)], &[(0, 150)]);
}

/// Neither the key nor the address of a zero-length element is checked (ibv_post_send(3): an element of length zero
/// contributes nothing).
pub(crate) fn empty_pieces_are_not_checked(env: &Env) {
    let c = Conn::new(env);
    let nonsense = Sge { addr: u64::MAX, length: 0, lkey: 0xdead_beef };
    c.b.post_recv(1, &[nonsense]);
    c.a.post(&SendWr::new(2, SendOp::Send, &[nonsense]));
    assert_eq!(expect_success(c.b.next_received(), 1, WcOpcode::Recv).byte_len, 0);
    expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    c.check_traffic();
}

/// An element whose key names nothing.
fn sge_with_bad_lkey(length: u32) -> Sge {
    Sge { addr: u64::MAX - 4096, length, lkey: 0xdead_beef }
}

/// Empty elements contribute nothing, whatever their keys, in every kind of request.
pub(crate) fn send_empty_pieces_ignore_bad_lkey(env: &Env) {
    if env.a.attr().max_sge < 2 {
        return;
    }
    let c = Conn::new(env);
    let remote = c.b.host.remote(0);
    let ops = [
        SendOp::Send,
        SendOp::SendImm(7),
        SendOp::Write(remote),
        SendOp::WriteImm(remote, 8),
        SendOp::Read(remote),
    ];
    for (op, id) in ops.into_iter().zip(0..) {
        for pieces in
            [[sge_with_bad_lkey(0), c.a.host.sge(64, 8)], [c.a.host.sge(64, 8), sge_with_bad_lkey(0)]]
        {
            let needs_receive = !matches!(op, SendOp::Write(_) | SendOp::Read(_));
            if needs_receive {
                c.b.post_recv(id, &[c.b.host.sge(1000, 64)]);
            }
            c.a.post(&SendWr::new(id, op, &pieces));
            expect_success(c.a.next_sent(), id, op.opcode());
            if needs_receive {
                assert_eq!(c.b.next_received().byte_len, 8, "{op:?}");
            }
        }
    }
}

/// A receive's memory is checked only where bytes are written, as on cards: a message of zero bytes may consume a
/// receive whose key names nothing.
pub(crate) fn recv_zero_bytes_ignores_bad_lkey(env: &Env) {
    let c = Conn::new(env);
    let spare = c.b.pd.reg_mr(c.b.host.buf(), c.b.host.access()).expect("a region to invalidate");
    for (op, id) in [SendOp::Send, SendOp::SendImm(7), SendOp::SendInv(spare.rkey())].into_iter().zip(0..) {
        c.b.post_recv(id, &[sge_with_bad_lkey(64)]);
        c.a.post(&SendWr::new(10 + id, op, &[]));
        assert_eq!(expect_success(c.b.next_received(), id, WcOpcode::Recv).byte_len, 0);
        expect_success(c.a.next_sent(), 10 + id, WcOpcode::Send);
    }
    c.check_traffic();
}

/// A request that first needs something of the peer (rails read the entry of a key that they meet for the first time) completes while
/// nobody polls the sender's queue, also when an event of an earlier completion is just being handled.
pub(crate) fn send_inv_right_behind_a_wait_completes(env: &Env) {
    let c = Conn::new(env);
    for id in 0..60 {
        let spare = c.b.pd.reg_mr(c.b.host.buf(), c.b.host.access()).expect("a region to invalidate");
        // Long enough to sleep, so that the next completion raises an event.
        let until = c.a.device.host().after(Span::from_ms(1));
        assert!(matches!(c.a.send_cq.wait(until), Err(Error::TimedOut { .. })));
        for (op, id) in [(SendOp::Send, 2 * id), (SendOp::SendInv(spare.rkey()), 2 * id + 1)] {
            c.b.post_recv(id, &[]);
            c.a.post(&SendWr::new(id, op, &[]));
            expect_success(c.b.next_received(), id, WcOpcode::Recv);
            expect_success(c.a.next_sent(), id, WcOpcode::Send);
        }
    }
}

/// Elements beyond the message's end are not checked: after a first element that is filled partly or exactly, of any
/// size.
pub(crate) fn recv_pieces_behind_the_end_ignore_bad_lkey(env: &Env) {
    if env.b.attr().max_sge < 2 {
        return;
    }
    let c = Conn::new(env);
    let near = Shadow::new(&c.a.host, 3);
    for (len, room) in [(1, 64), (8, 8), (64, 64), (100, 101), (5000, 5000), (9000, 10_000)] {
        let mut far = Shadow::new(&c.b.host, 4);
        c.b.post_recv(1, &[c.b.host.sge(16, room), sge_with_bad_lkey(64)]);
        c.a.post(&SendWr::new(2, SendOp::Send, &[c.a.host.sge(0, len)]));
        assert_eq!(expect_success(c.b.next_received(), 1, WcOpcode::Recv).byte_len, len);
        expect_success(c.a.next_sent(), 2, WcOpcode::Send);
        far.expect(16, &near.bytes(0, len as usize));
        far.check("a message before a forbidden piece");
    }
}

/// A message that extends into a forbidden element fails, even by a single byte; bytes before that element may have
/// been written.
pub(crate) fn recv_one_byte_into_bad_lkey_fails(env: &Env) {
    if env.b.attr().max_sge < 2 {
        return;
    }
    for room in [8, 64, 5000] {
        let c = Conn::new(env);
        let far = Shadow::new(&c.b.host, 4);
        c.b.post_recv(1, &[c.b.host.sge(16, room), sge_with_bad_lkey(64)]);
        c.a.post(&SendWr::new(2, SendOp::Send, &[c.a.host.sge(0, room + 1)]));
        expect_failure(c.b.next_received(), 1, WcStatus::LocProtErr);
        expect_failure(c.a.next_sent(), 2, WcStatus::RemOpErr);
        let end = 16 + room as usize;
        let got = c.b.host.buf().to_vec(end..16 << 10).expect("inside");
        assert_same_bytes("behind the good piece", &got, &far.bytes(end, (16 << 10) - end));
    }
}

/// A message and a receive without elements: zero bytes, and a receive is consumed.
pub(crate) fn message_without_pieces_is_empty(env: &Env) {
    let c = Conn::new(env);
    c.b.post_recv(1, &[]);
    c.b.post_recv(2, &[c.b.host.sge(0, 10)]);
    c.a.post(&SendWr::new(3, SendOp::Send, &[]));
    c.a.post(&SendWr::new(4, SendOp::Send, &[]));
    for (recv, send) in [(1, 3), (2, 4)] {
        assert_eq!(expect_success(c.b.next_received(), recv, WcOpcode::Recv).byte_len, 0);
        expect_success(c.a.next_sent(), send, WcOpcode::Send);
    }
}

/// Many small messages, more than any queue holds: counted, in order, none lost.
pub(crate) fn ten_thousand_messages_in_order(env: &Env) {
    let c = Conn::new(env);
    let depth = 64;
    for i in 0..depth {
        c.b.post_recv(i, &[c.b.host.sge(i * 8, 8)]);
    }
    let total = 10_000_u64;
    for i in 0..total {
        c.a.post(&SendWr::inline(i, SendOp::Send, &host::mix(i).to_le_bytes()[..inline(env)]));
        expect_success(c.a.next_sent(), i, WcOpcode::Send);
        let slot = (i % depth) * 8;
        let wc = expect_success(c.b.next_received(), i, WcOpcode::Recv);
        let got = c.b.host.buf().to_vec(slot as usize..slot as usize + wc.byte_len as usize).expect("inside");
        assert_same_bytes("a small message", &got, &host::mix(i).to_le_bytes()[..inline(env)]);
        c.b.post_recv(i + depth, &[c.b.host.sge(slot, 8)]);
    }
}

fn inline(env: &Env) -> usize {
    env.a.attr().max_inline.min(8) as usize
}
