//! Memory that its program unmaps, protects or truncates while it is registered ([`verbs::Buf::from_program`]).
//!
//! No process may crash. A request that needs such memory fails, with the status of the side that owns the memory. A
//! NIC that pins the pages of registered memory, as cards do, executes the request instead, on bytes that no program
//! sees any more.

use std::ffi::c_void;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;

use host::Span;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap, mprotect, munmap};

use crate::Env;
use crate::harness::check::{expect_failure_among, expect_success};
use crate::harness::conn::{CAP, Conn, Endpoint, Setup, connect, rights};
use crate::operations::remote_violations::Op;
use verbs::{
    Access, Buf, Error, MemoryKind, Mr, RecvWr, SendFlags, SendOp, SendWr, SrqInit, Wc, WcOpcode, WcStatus,
};

const PAGE: usize = 4096;
/// Bytes of a mapping.
const LEN: usize = 48 * PAGE;

/// How memory is lost. The address range stays mapped: a hole could become another test's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// It cannot be accessed any more.
    Closed,
    /// It is read-only.
    ReadOnly,
    /// Its file has been truncated.
    Truncated,
}

/// The losses after which memory cannot be read, and those after which it cannot be written.
const LOSSES_FOR_READ: [Loss; 2] = [Loss::Closed, Loss::Truncated];
const LOSSES_FOR_WRITE: [Loss; 3] = [Loss::Closed, Loss::ReadOnly, Loss::Truncated];

/// A program's memory: a mapping of a file.
struct Memory {
    base: NonNull<c_void>,
    file: OwnedFd,
}

impl Memory {
    fn new() -> Self {
        let file = memfd_create("lost-memory", MemfdFlags::CLOEXEC).expect("a file");
        ftruncate(&file, LEN as u64).expect("room");
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe { mmap(std::ptr::null_mut(), LEN, rights, MapFlags::SHARED, &file, 0) };
        let base = NonNull::new(base.expect("memory")).expect("an address");
        Self { base, file }
    }

    fn register(&self, end: &Endpoint, access: Access) -> Mr {
        // SAFETY: no references to it are made.
        let buf = unsafe { Buf::from_program(self.base.cast(), LEN) };
        end.pd.reg_mr(&buf, access).expect("a region")
    }

    /// Makes all of it inaccessible.
    fn make_inaccessible(&self, loss: Loss) {
        self.protect(
            0,
            LEN,
            match loss {
                Loss::Closed => MprotectFlags::empty(),
                Loss::ReadOnly => MprotectFlags::READ,
                Loss::Truncated => return ftruncate(&self.file, 0).expect("the file can be truncated"),
            },
        );
    }

    fn protect(&self, at: usize, len: usize, rights: MprotectFlags) {
        // SAFETY: a part of this mapping, to which nothing refers.
        unsafe { mprotect(self.base.as_ptr().cast::<u8>().add(at).cast(), len, rights) }
            .expect("it is mapped");
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { munmap(self.base.as_ptr(), LEN) }.expect("it was mapped");
    }
}

/// Checks a completion of a request that needed lost memory: the failure, or success on a NIC that pins pages.
#[track_caller]
fn expect_failure_unless_pinned(wc: Wc, wr_id: u64, status: WcStatus) {
    expect_failure_among(wc, wr_id, &[status, WcStatus::Success]);
}

/// Registration reports memory that cannot be accessed, or not be written; the key of accessible memory works.
pub(crate) fn registering_checks_accessibility(env: &Env) {
    let c = Conn::new(env);
    let memory = Memory::new();
    memory.protect(PAGE, PAGE, MprotectFlags::READ);
    memory.protect(3 * PAGE, PAGE, MprotectFlags::empty());
    // SAFETY: no references to it are made.
    let buf = unsafe { Buf::from_program(memory.base.cast(), LEN) };
    let register = |pages: std::ops::Range<usize>, access| {
        c.a.pd.reg_mr_range(&buf, pages.start * PAGE..pages.end * PAGE, access)
    };
    let is_refused = |result| matches!(result, Err(Error::Memory { .. }));
    assert!(is_refused(register(0..2, Access::LOCAL_WRITE).map(drop)), "a page that may only be read");
    assert!(is_refused(register(2..4, Access::empty()).map(drop)), "a page that may not be accessed");
    assert!(is_refused(register(2..48, Access::empty()).map(drop)), "the same in a long range");
    let mr = register(1..3, Access::empty()).expect("it may be read");
    c.b.post_recv(1, &[c.b.host.sge(0, 64)]);
    c.a.post(&SendWr::new(2, SendOp::Send, &[mr.sge(0, 64)]));
    expect_success(c.a.next_sent(), 2, WcOpcode::Send);
    expect_success(c.b.next_received(), 1, WcOpcode::Recv);
    ftruncate(&memory.file, (10 * PAGE) as u64).expect("the file can be truncated");
    assert!(is_refused(register(9..11, Access::LOCAL_WRITE).map(drop)), "a page behind the end of its file");
}

/// A peer's request to lost memory fails as a request outside of the region does, for every operation.
pub(crate) fn peer_request_to_lost_memory_fails(env: &Env) {
    let access = rights(&env.b, MemoryKind::Host);
    for op in Op::supported(env, MemoryKind::Host) {
        let losses: &[_] = if op == Op::Read { &LOSSES_FOR_READ } else { &LOSSES_FOR_WRITE };
        let lens: &[u32] = if op.is_atomic() { &[8] } else { &[1, 8, 97, 5000, 100_000] };
        for (&loss, &len) in losses.iter().flat_map(|loss| lens.iter().map(move |len| (loss, len))) {
            let (c, memory) = (Conn::with_setup(env, &Setup { len: LEN, ..Setup::default() }), Memory::new());
            let mr = memory.register(&c.b, access);
            memory.make_inaccessible(loss);
            c.b.post_recv(9, &[]);
            c.a.post(&SendWr::new(1, op.to_send_op(mr.remote(0)), &[c.a.host.sge(0, len)]));
            expect_failure_unless_pinned(c.a.next_sent(), 1, WcStatus::RemAccessErr);
            mr.dereg().expect("no request uses it");
        }
    }
}

/// A request whose local source is lost fails as with a wrong key. Inline data have been copied before.
pub(crate) fn request_with_lost_source_fails(env: &Env) {
    for loss in LOSSES_FOR_READ {
        for len in [1, 8, 97, 5000, 100_000] {
            for form in 0..3 {
                let (c, memory) =
                    (Conn::with_setup(env, &Setup { len: LEN, ..Setup::default() }), Memory::new());
                let mr = memory.register(&c.a, Access::empty());
                memory.make_inaccessible(loss);
                c.b.post_recv(9, &[c.b.host.sge(0, LEN as u32)]);
                let op = [
                    SendOp::Send,
                    SendOp::Write(c.b.host.remote(0)),
                    SendOp::WriteImm(c.b.host.remote(0), 1),
                ];
                c.a.post(&SendWr::new(1, op[form], &[mr.sge(0, len)]));
                expect_failure_unless_pinned(c.a.next_sent(), 1, WcStatus::LocProtErr);
            }
        }
    }
}

/// A request whose result would be stored in lost memory fails as well.
pub(crate) fn result_into_lost_memory_fails(env: &Env) {
    for op in Op::supported(env, MemoryKind::Host).into_iter().filter(|op| *op == Op::Read || op.is_atomic())
    {
        for loss in LOSSES_FOR_WRITE {
            let lens: &[u32] = if op.is_atomic() { &[8] } else { &[1, 8, 97, 5000, 100_000] };
            for &len in lens {
                let (c, memory) =
                    (Conn::with_setup(env, &Setup { len: LEN, ..Setup::default() }), Memory::new());
                let mr = memory.register(&c.a, Access::LOCAL_WRITE);
                memory.make_inaccessible(loss);
                c.a.post(&SendWr::new(1, op.to_send_op(c.b.host.remote(0)), &[mr.sge(0, len)]));
                expect_failure_unless_pinned(c.a.next_sent(), 1, WcStatus::LocProtErr);
            }
        }
    }
}

/// A receive into lost memory fails, on a queue pair's own queue. Its sender may already have reported success.
pub(crate) fn receive_into_lost_memory_fails(env: &Env) {
    for loss in LOSSES_FOR_WRITE {
        for len in [1, 8, 97, 5000, 100_000] {
            let (c, memory) = (Conn::with_setup(env, &Setup { len: LEN, ..Setup::default() }), Memory::new());
            let mr = memory.register(&c.b, Access::LOCAL_WRITE);
            c.b.post_recv(1, &[mr.sge(0, LEN as u32)]);
            memory.make_inaccessible(loss);
            c.a.post(&SendWr::new(2, SendOp::Send, &[c.a.host.sge(0, len)]));
            expect_failure_unless_pinned(c.b.next_received(), 1, WcStatus::LocProtErr);
            expect_failure_unless_pinned(c.a.next_sent(), 2, WcStatus::RemOpErr);
        }
    }
}

/// A receive into lost memory fails on a shared queue, too.
pub(crate) fn shared_receive_into_lost_memory_fails(env: &Env) {
    if env.b.attr().max_srq == 0 {
        return;
    }
    for len in [8, 5000] {
        let pd = env.b.alloc_pd().expect("a protection domain");
        let srq = pd.create_srq(SrqInit { max_wr: 4, max_sge: 2 }).expect("a shared receive queue");
        let setup = Setup::default();
        let (a, b) =
            (Endpoint::new(env, &env.a, &setup), Endpoint::with_srq(env, &env.b, &setup, Some(&srq)));
        connect(env, &a, &b, &setup);
        let memory = Memory::new();
        let mr = memory.register(&b, Access::LOCAL_WRITE);
        srq.post_recv(&RecvWr::new(1, &[mr.sge(0, 8000)])).expect("a receive");
        memory.make_inaccessible(Loss::Closed);
        a.post(&SendWr::new(2, SendOp::Send, &[a.host.sge(0, len)]));
        expect_failure_unless_pinned(b.next_received(), 1, WcStatus::LocProtErr);
        expect_failure_unless_pinned(a.next_sent(), 2, WcStatus::RemOpErr);
    }
}

/// Only the connection that needs lost memory fails, and the remaining part keeps working.
pub(crate) fn other_connections_survive_lost_memory(env: &Env) {
    let (bad, good, memory) = (Conn::new(env), Conn::new(env), Memory::new());
    let near = memory.register(&good.b, rights(&env.b, MemoryKind::Host));
    let far = memory.register(&bad.b, rights(&env.b, MemoryKind::Host));
    memory.protect(LEN / 2, LEN / 2, MprotectFlags::empty());
    bad.a.post(&SendWr::new(1, SendOp::Write(far.remote(LEN as u64 / 2)), &[bad.a.host.sge(0, 64)]));
    expect_failure_unless_pinned(bad.a.next_sent(), 1, WcStatus::RemAccessErr);
    good.a.post(&SendWr::new(2, SendOp::Write(near.remote(0)), &[good.a.host.sge(0, 64)]));
    expect_success(good.a.next_sent(), 2, WcOpcode::Write);
    good.check_traffic();
}

/// Requests after a failed one are flushed, as after any other failure; earlier ones arrive.
pub(crate) fn failure_flushes_later_requests(env: &Env) {
    let (c, memory) = (Conn::with_setup(env, &Setup { cap: CAP, ..Setup::default() }), Memory::new());
    let mr = memory.register(&c.b, rights(&env.b, MemoryKind::Host));
    memory.make_inaccessible(Loss::Closed);
    let write = |wr_id, remote| {
        let source = [c.a.host.sge(0, 8)];
        c.a.post(&SendWr {
            flags: SendFlags::SIGNALED,
            ..SendWr::new(wr_id, SendOp::Write(remote), &source)
        });
    };
    write(1, c.b.host.remote(0));
    expect_success(c.a.next_sent(), 1, WcOpcode::Write);
    write(2, mr.remote(0));
    let wc = c.a.next_sent();
    if wc.status == WcStatus::Success {
        return;
    }
    expect_failure_unless_pinned(wc, 2, WcStatus::RemAccessErr);
    c.a.wait_for_error();
    write(3, c.b.host.remote(0));
    c.a.expect_sends_flushed([3]);
}

/// A read of lost memory fails although the same turn of the responder answers an earlier read. No thread polls at the
/// responder, and its time-out for connecting expires only after the test, so that no other event makes the responder
/// work on the connection.
pub(crate) fn a_read_behind_an_answered_one_fails(env: &Env) {
    let mut setup = Setup { len: LEN, ..Setup::default() };
    (setup.a.timeout, setup.b.timeout) = (Span::from_secs(3600), Span::from_secs(3600));
    for lens in [[8, 5000], [5000, 5000], [8, 100_000]] {
        let (c, memory) = (Conn::with_setup(env, &setup), Memory::new());
        let mr = memory.register(&c.b, rights(&env.b, MemoryKind::Host));
        memory.make_inaccessible(Loss::Closed);
        let sinks = [[c.a.host.sge(0, lens[0])], [c.a.host.sge(0, lens[1])]];
        let read = |wr_id, remote, sink| SendWr {
            flags: SendFlags::SIGNALED,
            ..SendWr::new(wr_id, SendOp::Read(remote), sink)
        };
        let reads = [read(1, c.b.host.remote(0), &sinks[0]), read(2, mr.remote(0), &sinks[1])];
        c.a.qp.post_sends(&reads).expect("two reads");
        if env.a.name().starts_with("rails") {
            // The rails answer independently, and a failure on one rail ends the connection (docs/limits.md).
            expect_failure_among(c.a.next_sent(), 1, &[WcStatus::Success, WcStatus::WrFlushErr]);
        } else {
            expect_success(c.a.next_sent(), 1, WcOpcode::Read);
        }
        expect_failure_unless_pinned(c.a.next_sent(), 2, WcStatus::RemAccessErr);
    }
}
