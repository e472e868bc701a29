//! Memory windows (IBA 10.6.7; ibv_alloc_mw(3), ibv_bind_mw(3)): a key that gives peers a part of a region, with fewer rights.

use crate::Env;
use crate::harness::check::{Shadow, expect_failure, expect_success};
use crate::harness::conn::{Conn, Endpoint, Setup, connect_qps, region};
use verbs::{
    Access, Data, Error, MemoryKind, Mr, Mw, MwBind, MwKind, RemoteAddr, SendFlags, SendOp, SendWr, WcOpcode,
    WcStatus,
};

const LEN: usize = 256;
const READ_WRITE: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE);

/// Two connected ends, and a region of the second one to which windows may be bound.
struct Windowed {
    c: Conn,
    mr: Mr,
}

impl Windowed {
    /// `None` if the device has no windows; that is checked.
    #[track_caller]
    fn new(env: &Env, kind: MemoryKind) -> Option<Self> {
        let c = Conn::with_setup(env, &Setup::default());
        let made = c.b.pd.alloc_mw(MwKind::Type2);
        if env.b.attr().regions.max_mw == 0 {
            assert!(matches!(made, Err(Error::Unsupported { .. })), "{made:?}");
            let op = SendOp::LocalInv(1);
            let wr = SendWr { wr_id: 1, op, data: Data::NONE, flags: SendFlags::SIGNALED };
            let posted = c.b.qp.post_send(&wr);
            assert!(matches!(posted, Err(Error::Unsupported { .. })), "{posted:?}");
            return None;
        }
        made.expect("a window");
        let buf = env.alloc(&env.b, kind, LEN);
        // Peers have no rights to the region itself.
        let mr = c.b.pd.reg_mr(&buf, Access::LOCAL_WRITE | Access::BIND).expect("a region");
        Some(Self { c, mr })
    }

    /// The binding of bytes 64 to 128 with the next key of the window.
    fn middle(&self, key: u32, access: Access) -> MwBind {
        let rkey = key & 0xffff_ff00 | key.wrapping_add(1) & 0xff;
        MwBind { rkey, lkey: self.mr.lkey(), addr: self.mr.addr() + 64, len: 64, access }
    }

    #[track_caller]
    fn bound(&self, kind: MwKind, access: Access) -> (Mw, MwBind) {
        let mw = self.c.b.pd.alloc_mw(kind).expect("a window");
        let bind = self.middle(mw.rkey(), access);
        change(&self.c.b, SendOp::BindMw(bind), WcOpcode::BindMw);
        (mw, bind)
    }

    /// Writes eight bytes from offset `at` of the region, by this key.
    fn write(&self, rkey: u32, at: u64) {
        let to = self.mr.remote(at);
        let to = RemoteAddr { rkey, ..to };
        self.c.a.post(&SendWr::new(9, SendOp::Write(to), &[self.c.a.host.sge(0, 8)]));
    }

    #[track_caller]
    fn expect_write(&self, rkey: u32, at: u64) {
        self.write(rkey, at);
        expect_success(self.c.a.next_sent(), 9, WcOpcode::Write);
    }

    #[track_caller]
    fn expect_refusal(&self, rkey: u32, at: u64) {
        self.write(rkey, at);
        expect_failure(self.c.a.next_sent(), 9, WcStatus::RemAccessErr);
    }
}

fn request(op: SendOp) -> SendWr<'static> {
    SendWr { wr_id: 7, op, data: Data::NONE, flags: SendFlags::SIGNALED }
}

/// Carries out a request that changes a window.
#[track_caller]
fn change(end: &Endpoint, op: SendOp, opcode: WcOpcode) {
    end.post(&request(op));
    expect_success(end.next_sent(), 7, opcode);
}

/// A window gives access to its part of the region: its first and last byte, and none next to them.
pub(crate) fn window_covers_exactly_its_part(env: &Env) {
    for kind in env.kinds(&env.b) {
        for (at, want) in [(64, true), (120, true), (63, false), (121, false), (0, false), (u64::MAX, false)]
        {
            let Some(w) = Windowed::new(env, kind) else { return };
            let mut shadow = Shadow::new(&w.mr, 3);
            let (_mw, bind) = w.bound(MwKind::Type1, READ_WRITE);
            w.c.a.host.buf().fill(0x22);
            if want {
                w.expect_write(bind.rkey, at);
                shadow.expect(at as usize, &[0x22; 8]);
                w.c.a.post(&SendWr::new(
                    8,
                    SendOp::Read(RemoteAddr { addr: w.mr.addr() + at, rkey: bind.rkey }),
                    &[w.c.a.host.sge(16, 8)],
                ));
                expect_success(w.c.a.next_sent(), 8, WcOpcode::Read);
            } else {
                w.expect_refusal(bind.rkey, at);
            }
            shadow.check("around a window");
        }
    }
}

/// A window that was not bound, or is freed, gives access to nothing; neither does the key of its region.
pub(crate) fn unbound_and_freed_windows_give_no_access(env: &Env) {
    for case in 0..4 {
        let Some(w) = Windowed::new(env, MemoryKind::Host) else { return };
        let unbound = w.c.b.pd.alloc_mw(MwKind::Type1).expect("a window");
        let (mw, bind) = w.bound(MwKind::Type1, READ_WRITE);
        w.expect_write(bind.rkey, 64);
        match case {
            0 => w.expect_refusal(unbound.rkey(), 64),
            1 => w.expect_refusal(w.mr.rkey(), 64),
            2 => w.expect_refusal(mw.rkey(), 64),
            _ => {
                drop(mw);
                w.expect_refusal(bind.rkey, 64);
            }
        }
    }
}

/// A window has the rights of its binding only.
pub(crate) fn window_has_the_rights_of_its_binding(env: &Env) {
    let Some(w) = Windowed::new(env, MemoryKind::Host) else { return };
    let (_mw, bind) = w.bound(MwKind::Type2, Access::REMOTE_READ);
    let at = RemoteAddr { addr: w.mr.addr() + 64, rkey: bind.rkey };
    w.c.a.post(&SendWr::new(1, SendOp::Read(at), &[w.c.a.host.sge(0, 64)]));
    expect_success(w.c.a.next_sent(), 1, WcOpcode::Read);
    w.expect_refusal(bind.rkey, 64);
    let Some(w) = Windowed::new(env, MemoryKind::Host) else { return };
    let (_mw, bind) = w.bound(MwKind::Type2, Access::REMOTE_WRITE);
    w.expect_write(bind.rkey, 64);
    let at = RemoteAddr { addr: w.mr.addr() + 64, rkey: bind.rkey };
    w.c.a.post(&SendWr::new(1, SendOp::FetchAdd { remote: at, add: 1 }, &[w.c.a.host.sge(0, 8)]));
    expect_failure(w.c.a.next_sent(), 1, WcStatus::RemAccessErr);
}

/// Bindings that region, range, rights, domain or window do not allow fail, and leave everything as it was.
pub(crate) fn wrong_bindings_are_refused(env: &Env) {
    type Change = fn(&Windowed, &Mw, MwBind) -> (MwBind, Option<Mr>);
    let wrong: [Change; 9] = [
        |_, _, bind| (MwBind { lkey: 0, ..bind }, None),
        |_, _, bind| (MwBind { rkey: 0, ..bind }, None),
        |_, _, bind| (MwBind { rkey: bind.rkey ^ 0x100, ..bind }, None),
        |_, _, bind| (MwBind { len: LEN as u64, ..bind }, None),
        |_, _, bind| (MwBind { addr: bind.addr.wrapping_sub(65), ..bind }, None),
        |_, _, bind| (MwBind { addr: u64::MAX, ..bind }, None),
        |w, _, bind| {
            let plain = w.c.b.pd.reg_mr(w.mr.buf(), Access::ALL).expect("a region without BIND");
            (MwBind { lkey: plain.lkey(), ..bind }, Some(plain))
        },
        |w, _, bind| {
            let read_only = w.c.b.pd.reg_mr(w.mr.buf(), Access::BIND).expect("a region without local writes");
            (MwBind { lkey: read_only.lkey(), ..bind }, Some(read_only))
        },
        |w, _, bind| {
            let pd = w.c.b.device.alloc_pd().expect("a domain");
            let foreign = pd.reg_mr(w.mr.buf(), w.mr.access()).expect("a region of another domain");
            (MwBind { lkey: foreign.lkey(), ..bind }, Some(foreign))
        },
    ];
    for (case, change_of) in wrong.into_iter().enumerate() {
        let Some(w) = Windowed::new(env, MemoryKind::Host) else { return };
        let mw = w.c.b.pd.alloc_mw(MwKind::Type1).expect("a window");
        let (bind, _keep) = change_of(&w, &mw, w.middle(mw.rkey(), READ_WRITE));
        w.c.b.post(&request(SendOp::BindMw(bind)));
        let wc = w.c.b.next_sent();
        assert_eq!((wc.wr_id, wc.status), (7, WcStatus::MwBindErr), "case {case}");
        w.c.b.wait_for_error();
        assert!(!w.mr.has_windows());
    }
    // A window of another domain.
    let Some(w) = Windowed::new(env, MemoryKind::Host) else { return };
    let foreign = w.c.b.device.alloc_pd().expect("a domain").alloc_mw(MwKind::Type1).expect("a window");
    w.c.b.post(&request(SendOp::BindMw(w.middle(foreign.rkey(), READ_WRITE))));
    assert_eq!(w.c.b.next_sent().status, WcStatus::MwBindErr);
}

/// A window of type 1 may be bound again: its former key is refused. Bound to nothing, it gives no access.
pub(crate) fn type_1_is_bound_again_and_unbound(env: &Env) {
    for unbinds in [false, true] {
        let Some(w) = Windowed::new(env, MemoryKind::Host) else { return };
        let (_mw, first) = w.bound(MwKind::Type1, READ_WRITE);
        w.expect_write(first.rkey, 64);
        let mut second = w.middle(first.rkey, READ_WRITE);
        (second.addr, second.len) = (w.mr.addr(), if unbinds { 0 } else { 64 });
        change(&w.c.b, SendOp::BindMw(second), WcOpcode::BindMw);
        assert_eq!(w.mr.has_windows(), !unbinds);
        if !unbinds {
            w.expect_write(second.rkey, 0);
        }
        w.expect_refusal(if unbinds { second.rkey } else { first.rkey }, 0);
    }
}

/// A window of type 2 must be invalidated before it is bound again: by its owner, or by the peer.
pub(crate) fn type_2_is_invalidated_before_it_is_bound_again(env: &Env) {
    let Some(w) = Windowed::new(env, MemoryKind::Host) else { return };
    let (_mw, bind) = w.bound(MwKind::Type2, READ_WRITE);
    w.c.b.post(&request(SendOp::BindMw(w.middle(bind.rkey, READ_WRITE))));
    assert_eq!(w.c.b.next_sent().status, WcStatus::MwBindErr);
    for by_peer in [false, true] {
        for binds_again in [false, true] {
            let Some(w) = Windowed::new(env, MemoryKind::Host) else { return };
            let (_mw, bind) = w.bound(MwKind::Type2, READ_WRITE);
            w.expect_write(bind.rkey, 64);
            if by_peer {
                w.c.b.post_recv(1, &[]);
                w.c.a.post(&SendWr::new(2, SendOp::SendInv(bind.rkey), &[]));
                let wc = expect_success(w.c.b.next_received(), 1, WcOpcode::Recv);
                assert_eq!(wc.invalidated, Some(bind.rkey));
                expect_success(w.c.a.next_sent(), 2, WcOpcode::Send);
            } else {
                change(&w.c.b, SendOp::LocalInv(bind.rkey), WcOpcode::LocalInv);
            }
            assert!(!w.mr.has_windows());
            if binds_again {
                let again = w.middle(bind.rkey, READ_WRITE);
                change(&w.c.b, SendOp::BindMw(again), WcOpcode::BindMw);
                w.expect_write(again.rkey, 64);
            }
            w.expect_refusal(bind.rkey, 64);
        }
    }
}

/// A window of type 1 is not invalidated by peers or locally, nor a window of type 2 by another queue pair.
pub(crate) fn only_the_owner_invalidates(env: &Env) {
    for kind in [MwKind::Type1, MwKind::Type2] {
        let Some(w) = Windowed::new(env, MemoryKind::Host) else { return };
        let (other_a, other_b) = (w.c.a.another_qp(), w.c.b.another_qp());
        let (third_a, third_b) = (w.c.a.another_qp(), w.c.b.another_qp());
        let param = verbs::ConnParam::default();
        connect_qps(env, (&w.c.a.cm, &other_a, &param), (&w.c.b.cm, &other_b, &param));
        connect_qps(env, (&w.c.a.cm, &third_a, &param), (&w.c.b.cm, &third_b, &param));
        let (_mw, bind) = w.bound(kind, READ_WRITE);
        w.expect_write(bind.rkey, 64);
        other_b.post_send(&request(SendOp::LocalInv(bind.rkey))).expect("room");
        assert_eq!(w.c.b.next_sent().status, WcStatus::MwBindErr, "{kind:?}");
        w.expect_write(bind.rkey, 64);
        third_b.post_recv(&verbs::RecvWr::new(1, &[])).expect("room");
        third_a.post_send(&SendWr::new(2, SendOp::SendInv(bind.rkey), &[])).expect("room");
        expect_failure(w.c.a.next_sent(), 2, WcStatus::RemAccessErr);
        w.expect_write(bind.rkey, 64);
    }
}

/// A window of type 2 can be used by the queue pair that bound it only; one of type 1 by all of its domain.
pub(crate) fn windows_of_type_2_belong_to_a_queue_pair(env: &Env) {
    for kind in [MwKind::Type1, MwKind::Type2] {
        let Some(w) = Windowed::new(env, MemoryKind::Host) else { return };
        let (other_a, other_b) = (w.c.a.another_qp(), w.c.b.another_qp());
        let param = verbs::ConnParam::default();
        connect_qps(env, (&w.c.a.cm, &other_a, &param), (&w.c.b.cm, &other_b, &param));
        let (_mw, bind) = w.bound(kind, READ_WRITE);
        w.expect_write(bind.rkey, 64);
        let to = RemoteAddr { addr: w.mr.addr() + 64, rkey: bind.rkey };
        let sge = [w.c.a.host.sge(0, 8)];
        other_a.post_send(&SendWr::new(1, SendOp::Write(to), &sge)).expect("room");
        match kind {
            MwKind::Type1 => drop(expect_success(w.c.a.next_sent(), 1, WcOpcode::Write)),
            MwKind::Type2 => expect_failure(w.c.a.next_sent(), 1, WcStatus::RemAccessErr),
        }
        w.expect_write(bind.rkey, 64);
    }
}

/// The key of a window names no local memory.
pub(crate) fn window_is_no_local_key(env: &Env) {
    for receives in [false, true] {
        let Some(w) = Windowed::new(env, MemoryKind::Host) else { return };
        let (_mw, bind) = w.bound(MwKind::Type1, READ_WRITE);
        let sge = verbs::Sge { addr: bind.addr, length: 8, lkey: bind.rkey };
        if receives {
            w.c.b.post_recv(1, &[sge]);
            w.c.a.post(&SendWr::new(2, SendOp::Send, &[w.c.a.host.sge(0, 8)]));
            expect_failure(w.c.b.next_received(), 1, WcStatus::LocProtErr);
        } else {
            w.c.b.post(&SendWr::new(1, SendOp::Write(w.c.a.host.remote(0)), &[sge]));
            expect_failure(w.c.b.next_sent(), 1, WcStatus::LocProtErr);
        }
    }
}

/// A region knows its windows; when it ends, they give no access any more, and it cannot change meanwhile.
pub(crate) fn windows_end_with_their_region(env: &Env) {
    let Some(mut w) = Windowed::new(env, MemoryKind::Host) else { return };
    assert!(!w.mr.has_windows());
    let (_mw, bind) = w.bound(MwKind::Type2, READ_WRITE);
    assert!(w.mr.has_windows());
    let pd = w.c.b.pd.clone();
    let refusal = pd.rereg_mr(&mut w.mr, None, Some(Access::ALL));
    assert!(matches!(refusal, Err(Error::Invalid(_))), "{refusal:?}");
    w.expect_write(bind.rkey, 64);
    let (addr, keep) = (w.mr.addr(), w.mr.buf().clone());
    let other = region(env, &pd, MemoryKind::Host, LEN, Access::ALL);
    std::mem::replace(&mut w.mr, other).dereg().expect("no request uses it");
    let to = RemoteAddr { addr: addr + 64, rkey: bind.rkey };
    w.c.a.post(&SendWr::new(1, SendOp::Write(to), &[w.c.a.host.sge(0, 8)]));
    expect_failure(w.c.a.next_sent(), 1, WcStatus::RemAccessErr);
    drop(keep);
}

/// Windows that are created and freed use up no resources, and requests of windows complete in order with others.
pub(crate) fn windows_complete_in_order_and_leak_nothing(env: &Env) {
    let Some(w) = Windowed::new(env, MemoryKind::Host) else { return };
    for _ in 0..2000 {
        drop(w.c.b.pd.alloc_mw(MwKind::Type1).expect("a window"));
    }
    for _ in 0..200 {
        let mw = w.c.b.pd.alloc_mw(MwKind::Type2).expect("a window");
        let bind = w.middle(mw.rkey(), READ_WRITE);
        w.c.b.post(&SendWr::new(1, SendOp::Write(w.c.a.host.remote(0)), &[w.c.b.host.sge(0, 8)]));
        w.c.b.post(&request(SendOp::BindMw(bind)));
        w.c.b.post(&request(SendOp::LocalInv(bind.rkey)));
        w.c.b.post(&SendWr::new(2, SendOp::Write(w.c.a.host.remote(0)), &[w.c.b.host.sge(0, 8)]));
        expect_success(w.c.b.next_sent(), 1, WcOpcode::Write);
        expect_success(w.c.b.next_sent(), 7, WcOpcode::BindMw);
        expect_success(w.c.b.next_sent(), 7, WcOpcode::LocalInv);
        expect_success(w.c.b.next_sent(), 2, WcOpcode::Write);
    }
}
