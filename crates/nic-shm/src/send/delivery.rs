//! Data path: messages. Finds the peer's next receive, copies a message to it, and publishes its completion,
//! which consumes the receive.

use std::sync::atomic::{AtomicU64, Ordering};

use host::Time;
use verbs::{Access, RemoteAddr, WcOpcode, WcStatus};

use crate::copy::place::{self, CopyDirection, SgList};
use crate::memory::layout::{comp, recv};
use crate::peer::queue_pair::PeerQp;
use crate::send::transfer::{StopReason, Transfer};
use nic_util::sync::{ring, shared_queue};

/// The content of a receive completion.
pub(crate) struct RecvCompletion {
    opcode: WcOpcode,
    status: WcStatus,
    len: u64,
    imm: Option<u32>,
    invalidate: Option<u32>,
    solicited: bool,
}

impl RecvCompletion {
    #[inline]
    pub(crate) fn new(opcode: WcOpcode, len: u64, solicited: bool) -> Self {
        Self { opcode, status: WcStatus::Success, len, imm: None, invalidate: None, solicited }
    }

    /// Adds immediate data.
    #[inline]
    pub(crate) fn imm(self, imm: u32) -> Self {
        Self { imm: Some(imm), ..self }
    }

    /// Adds a key of the receiver that the message invalidates.
    #[inline]
    pub(crate) fn invalidate(self, key: u32) -> Self {
        Self { invalidate: Some(key), ..self }
    }
}

/// The state of a waiting message.
#[derive(Default)]
pub(crate) struct Delivery {
    /// A receive claimed from the peer's shared receive queue for the waiting message.
    claimed: Option<u16>,
    /// When the message fails without a receive (RNR); `None` while not waiting for one.
    rnr_deadline: Option<Time>,
    /// A message waits for a receive.
    pub(crate) is_waiting: bool,
    /// Posting a receive must notify the NIC thread: no thread polls.
    pub(crate) needs_rnr_notify: bool,
}

impl Delivery {
    /// The slot of the peer's next receive. Fails with `StopReason::Wait` if there is none.
    #[inline]
    pub(crate) fn next_receive<'l>(
        &mut self,
        link: &'l PeerQp,
        now: impl FnOnce() -> Time,
    ) -> Result<&'l [AtomicU64], StopReason> {
        self.is_waiting = false;
        if let Some(slot) = self.find_receive(link) {
            self.rnr_deadline = None;
            return Ok(slot);
        }
        // Set once: a thread that posts afterwards sees it and wakes us.
        if self.needs_rnr_notify && link.qp.rnr.0.swap(1, Ordering::AcqRel) == 0 {
            link.announce_rnr_wait();
            nic_util::sync::fence::heavy();
            if let Some(slot) = self.find_receive(link) {
                self.rnr_deadline = None;
                return Ok(slot);
            }
        }
        self.is_waiting = true;
        if self.is_comp_ring_full(link) {
            // The peer may have posted receives, but has not polled its completions.
            self.rnr_deadline = None;
        } else if let Some(patience) = link.patience() {
            let now = now();
            if now >= *self.rnr_deadline.get_or_insert(now + patience) {
                return Err(StopReason::Fail(WcStatus::RnrRetryExcErr));
            }
        }
        Err(StopReason::Wait)
    }

    #[inline]
    fn find_receive<'l>(&mut self, link: &'l PeerQp) -> Option<&'l [AtomicU64]> {
        if link.recvs.is_some() {
            return link.waiting_receive();
        }
        let srq = link.srq.as_ref()?;
        if self.claimed.is_none() {
            if self.is_comp_ring_full(link) {
                return None;
            }
            let entry = |i| &srq.ring.slot(i)[0];
            let me = link.index as u16 + 1;
            self.claimed = shared_queue::claim(&srq.shared.head.0, srq.ring.shift(), entry, me);
        }
        self.claimed.map(|receive| srq.store.slot(receive.into()))
    }

    /// Whether no receive of a shared receive queue can be used because unpolled completions fill the peer's
    /// completion ring.
    fn is_comp_ring_full(&self, link: &PeerQp) -> bool {
        let taken = link.qp.taken.load(Ordering::Acquire);
        link.srq.is_some() && link.delivered().wrapping_sub(taken) >> link.comps.shift() != 0
    }

    /// Delivers a message into the peer's next receive.
    #[inline]
    pub(crate) fn send(
        &mut self,
        transfer: &mut Transfer,
        link: &PeerQp,
        local: &SgList,
        mut completion: RecvCompletion,
        now: impl FnOnce() -> Time,
    ) -> Result<(), StopReason> {
        let slot = self.next_receive(link, now)?;
        let result = fill_receive(transfer, link, slot, local);
        if let Err(StopReason::Wait) = result {
            return Err(StopReason::Wait);
        }
        let result = result.and_then(|is_inline| match completion.invalidate {
            Some(key) if !link.peer.table.invalidate(key, link.domain()) => {
                Err(StopReason::Fail(WcStatus::RemAccessErr))
            }
            _ => Ok(is_inline),
        });
        match result {
            Ok(is_inline) => {
                self.publish(link, &completion, is_inline.then_some(local.total() as u32));
                Ok(())
            }
            // An error of this side only: the receive stays posted.
            Err(StopReason::Fail(own @ (WcStatus::RetryExcErr | WcStatus::LocProtErr))) => {
                Err(StopReason::Fail(own))
            }
            Err(stop) => {
                // The receiver's completion reports its own side of the failure.
                let (own, theirs) = match stop {
                    StopReason::Fail(WcStatus::RemInvReqErr) => (WcStatus::RemInvReqErr, WcStatus::LocLenErr),
                    StopReason::Fail(WcStatus::RemAccessErr) => {
                        (WcStatus::RemAccessErr, WcStatus::LocProtErr)
                    }
                    _ => (WcStatus::RemOpErr, WcStatus::LocProtErr),
                };
                (completion.status, completion.imm, completion.invalidate) = (theirs, None, None);
                self.publish(link, &completion, None);
                Err(StopReason::Fail(own))
            }
        }
    }

    /// Publishes a completion at the peer and consumes its receive. If the message is inline, `inline_len` is
    /// its number of bytes, which are already in the slot.
    pub(crate) fn publish(&mut self, link: &PeerQp, completion: &RecvCompletion, inline_len: Option<u32>) {
        let slot = link.comps.slot(link.delivered());
        let bytes = inline_len.unwrap_or(0);
        let mut flags = if inline_len.is_some() { comp::INLINE } else { 0 };
        flags |= if completion.imm.is_some() { comp::IMM } else { 0 };
        flags |= if completion.invalidate.is_some() { comp::INVALIDATE } else { 0 };
        flags |= if completion.solicited { comp::SOLICITED } else { 0 };
        let imm = completion.imm.or(completion.invalidate).unwrap_or(0);
        slot[comp::LEN_IMM].store(completion.len << 32 | u64::from(imm), Ordering::Relaxed);
        slot[comp::RECEIVE].store(self.claimed.take().unwrap_or(0).into(), Ordering::Relaxed);
        let kind = u32::from(completion.opcode == WcOpcode::RecvWriteImm);
        let low = kind | comp::status_number(completion.status) << 8 | flags << 16 | bytes << 24;
        deliver(link, slot, low, completion.solicited || completion.status != WcStatus::Success);
    }
}

/// Publishes the completion of a message of `len` inline bytes for a receive of the peer's own ring. Returns
/// false if the source could not be read; then nothing has happened.
///
/// # Safety
/// `src` must have `len` bytes, which are at most [`comp::INLINE_MAX`].
#[inline]
pub(crate) unsafe fn publish_plain(
    link: &PeerQp,
    src: *const u8,
    len: u32,
    imm: Option<u32>,
    solicited: bool,
) -> bool {
    let slot = link.comps.slot(link.delivered());
    let [_, len_imm, _, _, bytes, ..] = slot else { return false };
    // SAFETY: the slot has INLINE_MAX bytes from this word on. Test: `traffic` of the conformance suite.
    if unsafe { place::copy_last_byte_last(bytes.as_ptr().cast(), src, len as usize) }.is_err() {
        return false;
    }
    len_imm.store(u64::from(len) << 32 | u64::from(imm.unwrap_or(0)), Ordering::Relaxed);
    let imm = if imm.is_some() { comp::IMM } else { 0 };
    let flags = comp::INLINE | imm | if solicited { comp::SOLICITED } else { 0 };
    deliver(link, slot, flags << 16 | len << 24, solicited);
    true
}

/// Marks the slot of the next message as filled and notifies the peer.
#[inline]
fn deliver(link: &PeerQp, slot: &[AtomicU64], low: u32, solicited: bool) {
    ring::publish(&slot[comp::MARK], ring::lap(link.delivered(), link.comps.shift()), low);
    link.count_delivery();
    link.fetch_next_receive();
    if link.cq.must_notify() {
        link.notify_after_fence(solicited);
    }
}

/// Copies a message to its receive, or inline into the completion; returns whether it is inline.
#[inline]
fn fill_receive(
    transfer: &mut Transfer,
    link: &PeerQp,
    slot: &[AtomicU64],
    local: &SgList,
) -> Result<bool, StopReason> {
    let total = local.total();
    let count = recv::sges(slot);
    let sges = || {
        slot[recv::SGES..].chunks_exact(2).take(count).map(|words| {
            let length_key = words[1].load(Ordering::Relaxed);
            (words[0].load(Ordering::Relaxed), length_key >> 32, length_key as u32)
        })
    };
    if sges().map(|(_, len, _)| len).sum::<u64>() < total {
        return Err(StopReason::Fail(WcStatus::RemInvReqErr));
    }
    let is_inline = total <= comp::INLINE_MAX as u64;
    let mut done = 0;
    for (addr, len, key) in sges() {
        let len = len.min(total - done);
        if len == 0 {
            continue;
        }
        let place = link.peer.table.check(key, link.pd, Access::LOCAL_WRITE, addr, len);
        let place = place.ok_or(StopReason::Fail(WcStatus::RemOpErr))?;
        // A piece that was copied before the request had to wait is not copied again.
        if !is_inline && !transfer.service.has_copied(done) {
            transfer.deliver(link, &local.part(done, len), place, RemoteAddr { addr, rkey: key }, done)?;
        }
        done += len;
    }
    transfer.service.finish();
    // The peer may change its receive between the two reads; then the message is incomplete.
    if done < total {
        return Err(StopReason::Fail(WcStatus::RemInvReqErr));
    }
    if is_inline {
        let bytes = link.comps.slot(link.delivered())[comp::BYTES].as_ptr().cast();
        // SAFETY: the slot has INLINE_MAX bytes from this word on, and the total is at most that. Test: `traffic` of the
        // conformance suite.
        unsafe { place::copy_mapped(local, bytes, CopyDirection::Out) }?;
    }
    Ok(is_inline)
}
