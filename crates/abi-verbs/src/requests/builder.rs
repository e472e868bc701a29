//! Requests built by calls (`ibv_wr_start(3)` to `ibv_wr_complete(3)`), and posted together by the last one.
//!
//! The thread that starts a batch also completes it, so batches are thread-local and need no lock.

use std::cell::RefCell;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

use rdma_abi::verbs::*;
use verbs::{Data, RemoteAddr, SendFlags, SendOp, SendWr, Sge};

use crate::answer::{self, Answer};
use crate::errno::{Errno, errno, missing};
use crate::objects::Qp;
use crate::requests::post;
use crate::resources::ah::Ah;
use crate::resources::mw;
use crate::slab::Handle;
use crate::ud::Destination;

/// The fields of a queue pair that C sees.
pub(crate) fn new_qp_ex(qp_base: ibv_qp) -> ibv_qp_ex {
    ibv_qp_ex {
        qp_base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: Some(atomic_cmp_swp),
        wr_atomic_fetch_add: Some(atomic_fetch_add),
        wr_bind_mw: Some(bind_mw),
        wr_local_inv: Some(local_inv),
        wr_rdma_read: Some(rdma_read),
        wr_rdma_write: Some(rdma_write),
        wr_rdma_write_imm: Some(rdma_write_imm),
        wr_send: Some(send),
        wr_send_imm: Some(send_imm),
        wr_send_inv: Some(send_inv),
        wr_send_tso: null_mut(),
        wr_set_ud_addr: Some(set_ud_addr),
        wr_set_xrc_srqn: null_mut(),
        wr_set_inline_data: Some(set_inline_data),
        wr_set_inline_data_list: Some(set_inline_data_list),
        wr_set_sge: Some(set_sge),
        wr_set_sge_list: Some(set_sge_list),
        wr_start: Some(start),
        wr_complete: Some(complete),
        wr_abort: Some(abort),
        wr_atomic_write: null_mut(),
    }
}

/// A request being built; its data are in the lists of the batch.
struct BuiltRequest {
    wr_id: u64,
    op: SendOp,
    flags: SendFlags,
    data: DataPosition,
    /// For a datagram.
    to: Option<Destination>,
}

/// Position of a request's data in the batch.
enum DataPosition {
    Sges(std::ops::Range<usize>),
    Inline(std::ops::Range<usize>),
}

/// The requests of one thread.
#[derive(Default)]
struct Batch {
    made: Vec<BuiltRequest>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    /// The first error, which completing the batch returns.
    wrong: Option<Errno>,
}

thread_local! {
    static BATCH: RefCell<Batch> = RefCell::default();
}

impl Batch {
    fn clear(&mut self) {
        self.made.clear();
        self.sges.clear();
        self.inline.clear();
        self.wrong = None;
    }
}

/// The error of data for no request.
#[cold]
fn not_begun() -> Errno {
    errno!(
        INVAL,
        "data or a destination were set before any request was begun; call ibv_wr_send or another of ibv_wr_*(3) first"
    )
}

fn with(change: impl FnOnce(&mut Batch) -> Answer) {
    answer::void("ibv_wr_*", || {
        BATCH.with_borrow_mut(|batch| {
            let changed = change(batch);
            batch.wrong = batch.wrong.or(changed.err());
            changed
        })
    });
}

fn begin(qp: *mut ibv_qp_ex, op: SendOp) {
    with(|batch| {
        let seen = Handle::<Qp>::from_ptr(qp).lookup()?.c_part();
        let data = DataPosition::Sges(batch.sges.len()..batch.sges.len());
        batch.made.push(BuiltRequest {
            wr_id: seen.wr_id,
            op,
            flags: post::flags(seen.wr_flags),
            data,
            to: None,
        });
        Ok(())
    });
}

extern "C" fn start(_qp: *mut ibv_qp_ex) {
    with(|batch| {
        batch.clear();
        Ok(())
    });
}

extern "C" fn abort(qp: *mut ibv_qp_ex) {
    start(qp);
}

extern "C" fn complete(qp: *mut ibv_qp_ex) -> c_int {
    answer::posts("ibv_wr_complete", || {
        BATCH.with_borrow_mut(|batch| {
            let posted = post_all(Handle::from_ptr(qp), batch);
            batch.clear();
            posted
        })
    })
}

/// Posts all requests or, if one is invalid, none. When the queue fills up, the requests before that stay posted, as in a chain.
fn post_all(qp: Handle<Qp>, batch: &Batch) -> Answer {
    let qp = qp.lookup()?;
    let wrong = |why: Errno| {
        why.because(format_args!(
            "an earlier call of the batch has failed, as the log says; nothing is posted"
        ))
    };
    batch.wrong.map_or(Ok(()), |why| Err(wrong(why)))?;
    post::check_state(qp)?;
    let wr = |made: &BuiltRequest| {
        let data = match &made.data {
            DataPosition::Sges(range) => batch.sges.get(range.clone()).map(Data::Sges),
            DataPosition::Inline(range) => batch.inline.get(range.clone()).map(Data::Inline),
        };
        Ok(SendWr {
            wr_id: made.wr_id,
            op: made.op,
            data: data.ok_or_else(|| errno!(INVAL, "the data of a request are outside of the batch"))?,
            flags: made.flags,
        })
    };
    let device_qp = qp.device_qp();
    if let Some(bridge) = &device_qp.bridge {
        let post = |made: &BuiltRequest| {
            post::post_to(
                qp,
                device_qp,
                bridge,
                &wr(made)?,
                made.to.ok_or_else(|| {
                    errno!(
                        INVAL,
                        "a request of a UD queue pair has no destination; call ibv_wr_set_ud_addr for each"
                    )
                })?,
            )
        };
        return batch.made.iter().try_for_each(post);
    }
    let room = qp.init.cap.max_send_wr;
    if let [made] = &batch.made[..] {
        return device_qp.gate.post_one(&device_qp.qp, &wr(made)?, room);
    }
    let wrs: Vec<SendWr<'_>> = batch.made.iter().map(wr).collect::<Answer<_>>()?;
    device_qp.gate.post(&device_qp.qp, &wrs, room).map_err(|(_, why)| why)
}

extern "C" fn send(qp: *mut ibv_qp_ex) {
    begin(qp, SendOp::Send);
}

extern "C" fn send_imm(qp: *mut ibv_qp_ex, imm: u32) {
    begin(qp, SendOp::SendImm(u32::from_be(imm)));
}

extern "C" fn send_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    begin(qp, SendOp::SendInv(rkey));
}

extern "C" fn rdma_write(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    begin(qp, SendOp::Write(RemoteAddr { addr, rkey }));
}

extern "C" fn rdma_write_imm(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, imm: u32) {
    begin(qp, SendOp::WriteImm(RemoteAddr { addr, rkey }, u32::from_be(imm)));
}

extern "C" fn rdma_read(qp: *mut ibv_qp_ex, rkey: u32, addr: u64) {
    begin(qp, SendOp::Read(RemoteAddr { addr, rkey }));
}

extern "C" fn atomic_cmp_swp(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, compare: u64, swap: u64) {
    begin(qp, SendOp::CompareSwap { remote: RemoteAddr { addr, rkey }, compare, swap });
}

extern "C" fn atomic_fetch_add(qp: *mut ibv_qp_ex, rkey: u32, addr: u64, add: u64) {
    begin(qp, SendOp::FetchAdd { remote: RemoteAddr { addr, rkey }, add });
}

extern "C" fn local_inv(qp: *mut ibv_qp_ex, rkey: u32) {
    begin(qp, SendOp::LocalInv(rkey));
}

extern "C" fn bind_mw(qp: *mut ibv_qp_ex, mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) {
    // SAFETY: a program passes NULL or a valid description. Test: `memory_windows_in_c_protect` in tests/programs.rs.
    match unsafe { info.as_ref() }
        .ok_or_else(|| missing("bind_info"))
        .and_then(|info| mw::type_2(mw, rkey, info))
    {
        Ok(op) => begin(qp, op),
        Err(why) => with(|_| Err(why)),
    }
}

extern "C" fn set_ud_addr(_qp: *mut ibv_qp_ex, ah: *mut ibv_ah, qp_num: u32, qkey: u32) {
    with(|batch| {
        let to = Handle::<Ah>::from_ptr(ah).lookup()?.destination(qp_num, qkey)?;
        batch.made.last_mut().ok_or_else(not_begun)?.to = Some(to);
        Ok(())
    });
}

fn set_sges(sges: &[Sge]) {
    with(|batch| {
        let at = batch.sges.len();
        batch.sges.extend_from_slice(sges);
        batch.made.last_mut().ok_or_else(not_begun)?.data = DataPosition::Sges(at..at + sges.len());
        Ok(())
    });
}

extern "C" fn set_sge(_qp: *mut ibv_qp_ex, lkey: u32, addr: u64, length: u32) {
    set_sges(&[Sge { addr, length, lkey }]);
}

extern "C" fn set_sge_list(_qp: *mut ibv_qp_ex, count: usize, list: *const ibv_sge) {
    let count = i32::try_from(count).unwrap_or(-1);
    match post::elements(list, count) {
        Ok(sges) => set_sges(sges),
        Err(why) => with(|_| Err(why)),
    }
}

extern "C" fn set_inline_data(_qp: *mut ibv_qp_ex, addr: *mut c_void, length: usize) {
    let buf = ibv_data_buf { addr, length };
    gather(std::iter::once(buf));
}

extern "C" fn set_inline_data_list(_qp: *mut ibv_qp_ex, count: usize, list: *const ibv_data_buf) {
    if list.is_null() {
        return with(|_| if count == 0 { Ok(()) } else { Err(missing("buf_list")) });
    }
    // SAFETY: the program passes as many pieces as it states. Test: `connected_pair_in_c_uses_rare_features` in tests/programs.rs.
    gather(unsafe { std::slice::from_raw_parts(list, count) }.iter().copied());
}

fn gather(pieces: impl Iterator<Item = ibv_data_buf>) {
    with(|batch| {
        let at = batch.inline.len();
        for piece in pieces.filter(|piece| piece.length != 0) {
            if piece.addr.is_null() {
                return Err(errno!(
                    INVAL,
                    "a piece of inline data has address NULL and {} bytes; pass the data",
                    piece.length
                ));
            }
            // SAFETY: the program's own bytes, copied during the call. Test: as above.
            let bytes = unsafe { std::slice::from_raw_parts(piece.addr.cast::<u8>(), piece.length) };
            batch.inline.extend_from_slice(bytes);
        }
        batch.made.last_mut().ok_or_else(not_begun)?.data = DataPosition::Inline(at..batch.inline.len());
        Ok(())
    });
}
