//! Polling completions, in arrays (`ibv_poll_cq(3)`) or one by one (`ibv_start_poll(3)`).
//!
//! Data path: converts our completions to C.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use ffi::{Out, catch_panic, lock};
use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use verbs::{Wc, WcOpcode, WcStatus};

use crate::answer;
use crate::errno::{Errno, errno, missing};
use crate::objects::{Channel, Cq};
use crate::qp::peer_gone::remove_withheld;
use crate::slab::{Handle, Held};
use crate::ud::Datagrams;

/// Completions taken at a time: a few first, because clearing more room would cost more than an empty poll; then many.
const FEW: usize = 4;
const MANY: usize = 16;

/// Takes up to `count` completions; returns their number, or a negative error number.
#[inline]
pub(crate) fn poll(cq: Handle<Cq>, count: c_int, place: *mut ibv_wc) -> c_int {
    let taken = catch_panic(|| take_completions(cq, count, place)).unwrap_or(Err(Errno::IO));
    taken.unwrap_or_else(|why| {
        why.report("ibv_poll_cq");
        -why.0
    })
}

#[inline]
fn take_completions(cq: Handle<Cq>, count: c_int, place: *mut ibv_wc) -> Result<c_int, Errno> {
    let (cq, count) = (
        cq.lookup()?,
        usize::try_from(count).map_err(|_| errno!(INVAL, "num_entries is {count}; pass the length of wc"))?,
    );
    // SAFETY: a program passes room for as many as it states. Test: `perftest_measures_each_operation` in tests/programs.rs.
    let place = unsafe { Out::new(place) };
    if count == 1 {
        return Ok(take_some::<1>(cq, 1, place)? as c_int);
    }
    let wanted = FEW.min(count);
    let mut taken = take_some::<FEW>(cq, wanted, place)?;
    let mut is_all = taken < wanted;
    while !is_all && taken < count {
        let wanted = MANY.min(count - taken);
        let found = take_some::<MANY>(cq, wanted, place.element(taken))?;
        is_all = found < wanted;
        taken += found;
    }
    Ok(taken as c_int)
}

/// Takes up to `wanted` completions, at most `N`.
#[inline]
fn take_some<const N: usize>(cq: Held<Cq>, wanted: usize, place: Out<ibv_wc>) -> Result<usize, Errno> {
    let mut wcs = [Wc::default(); N];
    let wcs = &mut wcs[..wanted];
    if let Some(datagrams) = cq.datagrams.get() {
        return take_datagrams(cq, datagrams, wcs, place);
    }
    let found = fetch(cq, wcs)?;
    write_completions(&wcs[..found], place, |_| None)
}

/// Copies completions to the program's array, with the senders' queue pair numbers.
#[inline]
fn write_completions(
    wcs: &[Wc],
    place: Out<ibv_wc>,
    source: impl Fn(&Wc) -> Option<u32>,
) -> Result<usize, Errno> {
    if wcs.is_empty() {
        return Ok(0);
    }
    place.required_or(|| missing("wc"))?;
    wcs.iter().enumerate().for_each(|(at, wc)| place.element(at).set(completion(wc, source(wc))));
    Ok(wcs.len())
}

/// Takes completions of a queue that UD queue pairs use too.
#[cold]
#[inline(never)]
fn take_datagrams(
    cq: Held<Cq>,
    datagrams: &Datagrams,
    wcs: &mut [Wc],
    place: Out<ibv_wc>,
) -> Result<usize, Errno> {
    datagrams.progress();
    // The lock keeps completions and their senders in the same order.
    let _turn = lock(&cq.current);
    let found = fetch(cq, wcs)?;
    write_completions(&wcs[..found], place, |wc| source(datagrams, wc))
}

/// Takes completions that the program may see: first delayed ones, then those of the device that are not withheld.
#[inline(always)]
fn fetch(cq: Held<Cq>, place: &mut [Wc]) -> Result<usize, Errno> {
    loop {
        let delayed = cq.delayed.take(place);
        if delayed != 0 {
            return Ok(delayed);
        }
        let found = cq.cq.poll(place)?;
        let kept = match &mut place[..found] {
            all if all.iter().all(Wc::is_ok) => return Ok(found),
            some => remove_withheld(cq, some),
        };
        if kept != 0 {
            return Ok(kept);
        }
    }
}

/// The sender's queue pair number, for a received datagram.
#[cold]
fn source(datagrams: &Datagrams, wc: &Wc) -> Option<u32> {
    let is_receive = wc.is_ok() && wc.opcode == WcOpcode::Recv;
    if is_receive { datagrams.source(wc.qp_num) } else { None }
}

/// A completion in C's layout.
#[inline]
fn completion(wc: &Wc, from: Option<u32>) -> ibv_wc {
    ibv_wc {
        wr_id: wc.wr_id,
        status: status(wc.status) as c_int,
        opcode: opcode(wc.opcode) as c_int,
        vendor_err: 0,
        byte_len: wc.byte_len,
        imm_data: immediate(wc),
        qp_num: wc.qp_num,
        src_qp: from.unwrap_or_default(),
        wc_flags: flags(wc, from),
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    }
}

/// Immediate data in network byte order, or the invalidated key.
#[inline]
fn immediate(wc: &Wc) -> u32 {
    wc.invalidated.or(wc.imm.map(u32::to_be)).unwrap_or_default()
}

#[inline]
fn flags(wc: &Wc, from: Option<u32>) -> c_uint {
    let imm = if wc.imm.is_some() { n::IBV_WC_WITH_IMM } else { 0 };
    let invalidated = if wc.invalidated.is_some() { n::IBV_WC_WITH_INV } else { 0 };
    // Only datagrams carry their sender and a global route header.
    let grh = if from.is_some() { n::IBV_WC_GRH } else { 0 };
    imm | invalidated | grh
}

#[inline]
fn status(status: WcStatus) -> u32 {
    if status == WcStatus::Success { n::IBV_WC_SUCCESS } else { failure(status) }
}

#[cold]
fn failure(status: WcStatus) -> u32 {
    match status {
        WcStatus::LocLenErr => n::IBV_WC_LOC_LEN_ERR,
        WcStatus::LocQpOpErr => n::IBV_WC_LOC_QP_OP_ERR,
        WcStatus::LocProtErr => n::IBV_WC_LOC_PROT_ERR,
        WcStatus::WrFlushErr => n::IBV_WC_WR_FLUSH_ERR,
        WcStatus::MwBindErr => n::IBV_WC_MW_BIND_ERR,
        WcStatus::RemInvReqErr => n::IBV_WC_REM_INV_REQ_ERR,
        WcStatus::RemAccessErr => n::IBV_WC_REM_ACCESS_ERR,
        WcStatus::RemOpErr => n::IBV_WC_REM_OP_ERR,
        WcStatus::RetryExcErr => n::IBV_WC_RETRY_EXC_ERR,
        WcStatus::RnrRetryExcErr => n::IBV_WC_RNR_RETRY_EXC_ERR,
        _ => n::IBV_WC_GENERAL_ERR,
    }
}

/// C's opcodes in the order of ours: a table, because a chain of comparisons takes as long as the rest of a completion.
const OPCODES: [u32; 9] = {
    let mut opcodes = [n::IBV_WC_SEND; 9];
    opcodes[WcOpcode::Write as usize] = n::IBV_WC_RDMA_WRITE;
    opcodes[WcOpcode::Read as usize] = n::IBV_WC_RDMA_READ;
    opcodes[WcOpcode::CompareSwap as usize] = n::IBV_WC_COMP_SWAP;
    opcodes[WcOpcode::FetchAdd as usize] = n::IBV_WC_FETCH_ADD;
    opcodes[WcOpcode::BindMw as usize] = n::IBV_WC_BIND_MW;
    opcodes[WcOpcode::LocalInv as usize] = n::IBV_WC_LOCAL_INV;
    opcodes[WcOpcode::Recv as usize] = n::IBV_WC_RECV;
    opcodes[WcOpcode::RecvWriteImm as usize] = n::IBV_WC_RECV_RDMA_WITH_IMM;
    opcodes
};

#[inline]
fn opcode(opcode: WcOpcode) -> u32 {
    // Opcodes that are added later are sends.
    OPCODES.get(opcode as usize).copied().unwrap_or(n::IBV_WC_SEND)
}

/// The fields of a completion queue that C sees.
pub(crate) fn new_cq_ex(
    context: *mut ibv_context,
    channel: Option<Handle<Channel>>,
    cq_context: *mut c_void,
    cqe: c_int,
) -> ibv_cq_ex {
    ibv_cq_ex {
        context,
        channel: channel.unwrap_or(Handle::NULL).cast(),
        cq_context,
        handle: 0,
        cqe,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        comp_events_completed: 0,
        async_events_completed: 0,
        comp_mask: 0,
        status: 0,
        wr_id: 0,
        start_poll: Some(start_poll),
        next_poll: Some(next_poll),
        end_poll: Some(end_poll),
        read_opcode: Some(read_opcode),
        read_vendor_err: Some(read_none),
        read_byte_len: Some(read_byte_len),
        read_imm_data: Some(read_imm_data),
        read_qp_num: Some(read_qp_num),
        read_src_qp: Some(read_src_qp),
        read_wc_flags: Some(read_wc_flags),
        read_slid: Some(read_none),
        read_sl: Some(read_no_byte),
        read_dlid_path_bits: Some(read_no_byte),
        read_completion_ts: None,
        read_cvlan: None,
        read_flow_tag: None,
        read_tm_info: null_mut(),
        read_completion_wallclock_ns: None,
    }
}

/// Takes the next completion; returns ENOENT if there is none.
fn next(cq: *mut ibv_cq_ex) -> c_int {
    let step = || {
        let cq = Handle::<Cq>::from_ptr(cq).lookup()?;
        let mut wc = [Wc::default()];
        cq.datagrams.get().into_iter().for_each(|datagrams| datagrams.progress());
        let mut current = lock(&cq.current);
        if fetch(cq, &mut wc)? == 0 {
            return Err(Errno(libc::ENOENT));
        }
        let [wc] = wc;
        *current = (wc, cq.datagrams.get().and_then(|datagrams| source(datagrams, &wc)));
        cq.update_c(|seen| (seen.wr_id, seen.status) = (wc.wr_id, status(wc.status) as c_int));
        Ok(())
    };
    catch_panic(step).unwrap_or(Err(Errno::IO)).map_or_else(|why: Errno| why.0, |()| 0)
}

extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: a program passes NULL or attributes. Test: as above.
    let asked = unsafe { Out::new(attr) }.get().map_or(0, |attr| attr.comp_mask);
    match asked {
        0 => next(cq),
        asked => answer::errno("ibv_start_poll", || {
            Err(errno!(INVAL, "attr.comp_mask is {asked:#x}, of which no bit is known; pass 0"))
        }),
    }
}

extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    next(cq)
}

extern "C" fn end_poll(_cq: *mut ibv_cq_ex) {}

/// Reads a field of the completion taken last.
fn read<T: Default>(cq: *mut ibv_cq_ex, what: impl FnOnce(&Wc, Option<u32>) -> T) -> T {
    answer::value(|| {
        Handle::<Cq>::from_ptr(cq).lookup().map_or(T::default(), |cq: Held<Cq>| {
            let current = lock(&cq.current);
            what(&current.0, current.1)
        })
    })
}

extern "C" fn read_opcode(cq: *mut ibv_cq_ex) -> c_int {
    read(cq, |wc, _| opcode(wc.opcode) as c_int)
}

extern "C" fn read_byte_len(cq: *mut ibv_cq_ex) -> u32 {
    read(cq, |wc, _| wc.byte_len)
}

extern "C" fn read_imm_data(cq: *mut ibv_cq_ex) -> u32 {
    read(cq, |wc, _| immediate(wc))
}

extern "C" fn read_qp_num(cq: *mut ibv_cq_ex) -> u32 {
    read(cq, |wc, _| wc.qp_num)
}

extern "C" fn read_wc_flags(cq: *mut ibv_cq_ex) -> c_uint {
    read(cq, flags)
}

extern "C" fn read_src_qp(cq: *mut ibv_cq_ex) -> u32 {
    read(cq, |_, from| from.unwrap_or_default())
}

extern "C" fn read_none(_cq: *mut ibv_cq_ex) -> u32 {
    0
}

extern "C" fn read_no_byte(_cq: *mut ibv_cq_ex) -> u8 {
    0
}
