//! Posting chains of requests (`ibv_post_send(3)`, `ibv_post_recv(3)`).
//!
//! Data path: requests are converted on the stack; element lists are passed on without a copy.

use ffi::{In, Out};
use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use verbs::{Data, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge};

use crate::answer::Answer;
use crate::errno::{Errno, errno, missing};
use crate::objects::{Qp, Srq};
use crate::qp::device_qp::DeviceQp;
use crate::qp::states;
use crate::resources::ah::Ah;
use crate::resources::mw::{self, Mw};
use crate::slab::{Handle, Held};
use crate::ud::{Bridge, Destination, MTU};

/// The number of requests that are posted together.
const BATCH: usize = 16;

/// Posts a chain; on an error, stores the first request that was not posted.
#[inline]
pub(crate) fn send(qp: Handle<Qp>, first: *mut ibv_send_wr, bad: *mut *mut ibv_send_wr) -> Answer {
    let mut next = first;
    let posted = qp.lookup().and_then(|qp| send_all(qp, &mut next));
    if posted.is_err() {
        // SAFETY: a program passes NULL or a valid place. Test: `nonsense_is_answered` in tests/programs.rs.
        unsafe { Out::new(bad) }.set(next);
    }
    posted
}

/// Posts a chain, and advances `next` past the posted requests.
#[inline]
fn send_all(qp: Held<Qp>, next: &mut *mut ibv_send_wr) -> Answer {
    let device_qp = qp.device_qp();
    // SAFETY: a program passes NULL or requests that stay valid during the call. Test: `perftest_measures_each_operation` in
    // tests/programs.rs.
    if let (Some(wr), None) = (unsafe { (*next).as_ref() }, &device_qp.bridge)
        && wr.next.is_null()
        && !is_scattered_inline(wr)
    {
        send_one(qp, device_qp, wr)?;
        *next = wr.next;
        return Ok(());
    }
    while !next.is_null() {
        match &device_qp.bridge {
            None => send_batch(qp, device_qp, next)?,
            Some(bridge) => send_to(qp, device_qp, bridge, next)?,
        }
    }
    Ok(())
}

/// Posts a single request, the most frequent case.
#[inline]
fn send_one(qp: Held<Qp>, device_qp: &DeviceQp, wr: &ibv_send_wr) -> Answer {
    check_state(qp)?;
    let wr = SendWr { wr_id: wr.wr_id, op: operation(wr)?, data: data(wr)?, flags: flags(wr.send_flags) };
    device_qp.gate.post_one(&device_qp.qp, &wr, qp.init.cap.max_send_wr)
}

/// Posts the binding of a window of type 1, whose key changes.
pub(crate) fn bind(qp: Handle<Qp>, mw: Handle<Mw>, bind: In<ibv_mw_bind>) -> Answer {
    let (qp, mw, bind) = (qp.lookup()?, mw.lookup()?, bind.required_or(|| missing("mw_bind"))?);
    if qp.is_datagram() {
        return Err(errno!(INVAL, "the queue pair is UD, whose peers have no access to windows; use RC"));
    }
    check_state(qp)?;
    let (op, rkey) = mw::type_1(mw, &bind.bind_info)?;
    let wr = SendWr { wr_id: bind.wr_id, op, data: Data::NONE, flags: flags(bind.send_flags) };
    let device_qp = qp.device_qp();
    device_qp.gate.post_one(&device_qp.qp, &wr, qp.init.cap.max_send_wr)?;
    mw.update_c(|seen| seen.rkey = rkey);
    Ok(())
}

/// Posts the next datagram of a chain, and advances `next` past it.
fn send_to(qp: Held<Qp>, device_qp: &DeviceQp, bridge: &Bridge, next: &mut *mut ibv_send_wr) -> Answer {
    check_state(qp)?;
    // SAFETY: as in `send_all`; for a datagram the union contains an address, which is checked, and numbers. Test:
    // `datagrams_in_c_arrive_or_are_dropped` in tests/programs.rs.
    let (wr, ud) = unsafe { (&**next, (**next).wr.ud) };
    let to = Handle::<Ah>::from_ptr(ud.ah).lookup()?.destination(ud.remote_qpn, ud.remote_qkey)?;
    let mut gathered = Vec::new();
    post_to(qp, device_qp, bridge, &request(wr, &mut gathered)?, to)?;
    *next = wr.next;
    Ok(())
}

/// Posts a datagram.
pub(crate) fn post_to(
    qp: Held<Qp>,
    device_qp: &DeviceQp,
    bridge: &Bridge,
    wr: &SendWr<'_>,
    to: Destination,
) -> Answer {
    if !matches!(wr.op, SendOp::Send | SendOp::SendImm(_)) {
        return Err(errno!(
            INVAL,
            "wr.opcode is none of IBV_WR_SEND and IBV_WR_SEND_WITH_IMM, but the queue pair is UD; use RC"
        ));
    }
    let len = match wr.data {
        Data::Sges(sges) => sges.iter().map(|sge| sge.length as usize).sum(),
        Data::Inline(bytes) => bytes.len(),
    };
    if len > MTU {
        return Err(errno!(
            INVAL,
            "the elements of wr.sg_list have {len} bytes, but a datagram holds {MTU}; send several"
        ));
    }
    let room = qp.init.cap.max_send_wr;
    bridge.post(to, || device_qp.gate.post_one(&device_qp.qp, wr, room))?;
    qp.send_cq.datagrams.get().into_iter().for_each(|datagrams| datagrams.progress());
    Ok(())
}

/// Posts the next requests of a chain, and advances `next` past the posted ones.
fn send_batch(qp: Held<Qp>, device_qp: &DeviceQp, next: &mut *mut ibv_send_wr) -> Answer {
    check_state(qp)?;
    let room = qp.init.cap.max_send_wr;
    let mut chain = [*next; BATCH];
    let mut count = 0;
    let mut at = *next;
    while count < BATCH && !at.is_null() {
        chain[count] = at;
        count += 1;
        // SAFETY: as in `send_all`.
        at = unsafe { (*at).next };
    }
    let mut gathered = [const { Vec::new() }; BATCH];
    let mut wrs = [SendWr::new(0, SendOp::Send, &[]); BATCH];
    let (mut ready, mut wrong) = (0, None);
    for ((wr, place), gathered) in chain[..count].iter().zip(&mut wrs).zip(&mut gathered) {
        // SAFETY: as in `send_all`.
        match request(unsafe { &**wr }, gathered) {
            Ok(request) => *place = request,
            Err(why) => {
                wrong = Some(why);
                break;
            }
        }
        ready += 1;
    }
    let posted = device_qp.gate.post(&device_qp.qp, &wrs[..ready], room);
    let done = posted.map_or_else(|(posted, _)| posted, |()| ready);
    *next = if done == count { at } else { chain[done] };
    posted.map_err(|(_, why)| why)?;
    wrong.map_or(Ok(()), Err)
}

/// A program may send only in RTS. A queue pair in the error state accepts requests, and flushes them.
#[inline]
pub(crate) fn check_state(qp: Held<Qp>) -> Answer {
    let state = qp.state.load(std::sync::atomic::Ordering::Relaxed).cast_unsigned();
    let may_send = matches!(state, n::IBV_QPS_RTS | n::IBV_QPS_ERR);
    if may_send || qp.state_now() == n::IBV_QPS_ERR { Ok(()) } else { Err(wrong_state(qp)) }
}

/// The error of a request for a queue pair in a state that does not allow it.
#[cold]
#[inline(never)]
fn wrong_state(qp: Held<Qp>) -> Errno {
    let (number, state) = (qp.verbs().reported_qp_num(), qp.state_now());
    let (name, what) =
        (states::name(state), if state == n::IBV_QPS_RESET { "nothing" } else { "receives only" });
    errno!(
        INVAL,
        "qp {number:#x} is in state {name}, in which {what} may be posted; move it to RTS first (RESET, INIT, RTR, RTS by \
         ibv_modify_qp, or by connecting its rdma_cm_id)"
    )
}

/// Whether inline data in several pieces must be gathered before posting.
#[inline]
fn is_scattered_inline(wr: &ibv_send_wr) -> bool {
    wr.send_flags & n::IBV_SEND_INLINE != 0 && wr.num_sge > 1
}

/// The data of a request that is not scattered inline.
#[inline]
fn data(wr: &ibv_send_wr) -> Answer<Data<'_>> {
    let sges = elements(wr.sg_list, wr.num_sge)?;
    match sges {
        _ if wr.send_flags & n::IBV_SEND_INLINE == 0 => Ok(Data::Sges(sges)),
        [one] => bytes(one).map(Data::Inline),
        _ => Ok(Data::Inline(&[])),
    }
}

/// Converts a request; inline data in several pieces are gathered in `gathered`.
fn request<'a>(wr: &'a ibv_send_wr, gathered: &'a mut Vec<u8>) -> Answer<SendWr<'a>> {
    let data = if is_scattered_inline(wr) {
        for piece in elements(wr.sg_list, wr.num_sge)? {
            gathered.extend_from_slice(bytes(piece)?);
        }
        Data::Inline(gathered)
    } else {
        data(wr)?
    };
    Ok(SendWr { wr_id: wr.wr_id, op: operation(wr)?, data, flags: flags(wr.send_flags) })
}

/// Converts an opcode of C to an operation.
#[inline]
fn operation(wr: &ibv_send_wr) -> Answer<SendOp> {
    // SAFETY: all variants of the union are numbers; the opcode selects the variant. Test: as above.
    let (rdma, atomic) = unsafe { (wr.wr.rdma, wr.wr.atomic) };
    let remote = RemoteAddr { addr: rdma.remote_addr, rkey: rdma.rkey };
    let word = RemoteAddr { addr: atomic.remote_addr, rkey: atomic.rkey };
    Ok(match wr.opcode as u32 {
        n::IBV_WR_RDMA_WRITE => SendOp::Write(remote),
        n::IBV_WR_RDMA_WRITE_WITH_IMM => SendOp::WriteImm(remote, u32::from_be(wr.imm_data)),
        n::IBV_WR_SEND => SendOp::Send,
        n::IBV_WR_SEND_WITH_IMM => SendOp::SendImm(u32::from_be(wr.imm_data)),
        n::IBV_WR_SEND_WITH_INV => SendOp::SendInv(wr.imm_data),
        n::IBV_WR_RDMA_READ => SendOp::Read(remote),
        n::IBV_WR_ATOMIC_CMP_AND_SWP => {
            SendOp::CompareSwap { remote: word, compare: atomic.compare_add, swap: atomic.swap }
        }
        n::IBV_WR_ATOMIC_FETCH_AND_ADD => SendOp::FetchAdd { remote: word, add: atomic.compare_add },
        n::IBV_WR_LOCAL_INV => SendOp::LocalInv(wr.imm_data),
        n::IBV_WR_BIND_MW => return mw::type_2(wr.bind_mw.mw, wr.bind_mw.rkey, &wr.bind_mw.bind_info),
        _ => {
            return Err(errno!(
                OPNOTSUPP,
                "wr.opcode is {}; docs/reference/support.md lists what there is",
                wr.opcode
            ));
        }
    })
}

/// Converts the send flags: two neighbouring bits move together, and one alone.
#[inline]
pub(crate) fn flags(flags: u32) -> SendFlags {
    const PAIR: u32 = n::IBV_SEND_SIGNALED | n::IBV_SEND_SOLICITED;
    const {
        assert!(n::IBV_SEND_SIGNALED == (SendFlags::SIGNALED.bits() as u32) << 1);
        assert!(n::IBV_SEND_SOLICITED == (SendFlags::SOLICITED.bits() as u32) << 1);
        assert!(n::IBV_SEND_FENCE << 2 == SendFlags::FENCE.bits() as u32);
    }
    SendFlags::from_bits_truncate(((flags & PAIR) >> 1 | (flags & n::IBV_SEND_FENCE) << 2) as u8)
}

/// A program's element list: `Sge` has the same layout.
#[inline]
pub(crate) fn elements<'a>(list: *const ibv_sge, count: i32) -> Answer<&'a [Sge]> {
    let count = usize::try_from(count)
        .map_err(|_| errno!(INVAL, "wr.num_sge is {count}; pass the length of wr.sg_list"))?;
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(errno!(INVAL, "wr.sg_list is NULL, but wr.num_sge is {count}; pass the elements, or 0"));
    }
    // SAFETY: a program passes as many elements as it states, valid during the call; `Sge` has the layout of `ibv_sge`. Test: as above.
    Ok(unsafe { std::slice::from_raw_parts(list.cast::<Sge>(), count) })
}

/// The bytes of an inline element.
#[inline]
fn bytes<'a>(piece: &Sge) -> Answer<&'a [u8]> {
    let first: *const u8 = std::ptr::with_exposed_provenance(piece.addr as usize);
    if piece.length == 0 {
        return Ok(&[]);
    }
    if first.is_null() {
        return Err(errno!(
            INVAL,
            "an element of inline data has address NULL and {} bytes; pass the data",
            piece.length
        ));
    }
    // SAFETY: the program's own bytes, read during the call. Test: as above.
    Ok(unsafe { std::slice::from_raw_parts(first, piece.length as usize) })
}

#[inline]
pub(crate) fn recv(qp: Handle<Qp>, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> Answer {
    let qp = qp.lookup();
    // SAFETY: a program passes NULL or receives that stay valid during the call. Test: as above.
    if let (Ok(qp), Some(wr)) = (&qp, unsafe { first.as_ref() })
        && wr.next.is_null()
    {
        let posted = recv_one(*qp, wr);
        if posted.is_err() {
            // SAFETY: a program passes NULL or a valid place. Test: as above.
            unsafe { Out::new(bad) }.set(first);
        }
        return posted;
    }
    receives(first, bad, |wr| recv_one(*qp.as_ref().map_err(|why| *why)?, wr))
}

/// Posts a receive.
#[inline(always)]
fn recv_one(qp: Held<Qp>, wr: &ibv_recv_wr) -> Answer {
    // A queue pair in the error state accepts receives, and flushes them.
    if qp.state.load(std::sync::atomic::Ordering::Relaxed).cast_unsigned() == n::IBV_QPS_RESET
        && qp.state_now() == n::IBV_QPS_RESET
    {
        return Err(wrong_state(qp));
    }
    let sges = elements(wr.sg_list, wr.num_sge)?;
    let device_qp = qp.device_qp();
    let post = || Ok(device_qp.qp.post_recv(&RecvWr::new(wr.wr_id, sges))?);
    match &device_qp.bridge {
        Some(bridge) => bridge.expect(sges.iter().map(|sge| u64::from(sge.length)).sum(), post),
        None => post(),
    }
}

pub(crate) fn srq_recv(srq: Handle<Srq>, first: *mut ibv_recv_wr, bad: *mut *mut ibv_recv_wr) -> Answer {
    let srq = srq.lookup();
    receives(first, bad, |wr| {
        let wr = RecvWr::new(wr.wr_id, elements(wr.sg_list, wr.num_sge)?);
        Ok(srq.as_ref().map_err(|why| *why)?.srq.post_recv(&wr)?)
    })
}

/// Posts a chain of receives; on an error, stores the first receive that was not posted.
#[inline]
fn receives(
    first: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
    mut post: impl FnMut(&ibv_recv_wr) -> Answer,
) -> Answer {
    let mut next = first;
    while !next.is_null() {
        // SAFETY: a program passes receives that stay valid during the call. Test: as above.
        let wr = unsafe { &*next };
        let posted = post(wr);
        if posted.is_err() {
            // SAFETY: a program passes NULL or a valid place. Test: as above.
            unsafe { Out::new(bad) }.set(next);
            return posted;
        }
        next = wr.next;
    }
    Ok(())
}
