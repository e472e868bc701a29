//! Data path: NIC engine. Carries out send requests in the initiator's own thread: from the post, through both
//! protection tables and placement, to the completion at the peer; and, at the peer, takes that completion.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use verbs::{Access, Data, RNR_PAUSE, RemoteAddr, SendFlags, SendOp, SendWr, WcOpcode, WcStatus};

use super::atomic::Atomic;
use super::layout::{comp, recv, state};
use super::peer::{Link, Reach};
use super::place::{self, Fault, Pieces, Way};
use super::qp::{QpInner, SendSide};
use super::service::Job;
use super::table::Place;
use super::tlb::Tlb;
use crate::sync::guard::Busy;
use crate::sync::{ring, shared_queue};

/// What became of a request.
pub(super) enum Outcome {
    /// It is over: how, and the bytes that it fetched.
    Done(WcStatus, u32),
    /// It must wait for the peer; ask again.
    Wait,
}

/// Where this side stands in the peer's rings.
#[derive(Default)]
pub(super) struct Progress {
    /// Completions that this side has published to the peer.
    next_comp: u64,
    /// A receive claimed from the peer's shared queue, for the request that is waiting.
    claimed: Option<u16>,
    /// A copy that the peer's own thread is carrying out.
    pub(super) job: Option<Job>,
    /// How often it was asked to.
    pub(super) asks: u32,
    /// Turns taken at the peer's memory.
    pub(super) turns: u32,
    /// Whether the peer's queue knows that writes ring here.
    knocks: bool,
}

impl Progress {
    /// Forgets what was under way; the queue pair has failed.
    pub(super) fn abandon(&mut self) {
        self.job = None;
    }

    /// Wakes who sleeps on the queue that the peer's receives complete to, after a write.
    #[inline]
    pub(super) fn ring_peer(&mut self, link: &Link) {
        if !std::mem::replace(&mut self.knocks, true) {
            link.cq.knock.introduce();
        }
        crate::sync::fence::light();
        link.cq.bell.ring_after_fence();
    }
}

pub(super) const FLAG_IMM: u32 = 1;
pub(super) const FLAG_INVALIDATE: u32 = 2;
const FLAG_SOLICITED: u32 = 4;
pub(super) const FLAG_CARRIED: u32 = 8;

/// What a completion tells the receiver.
pub(super) struct News {
    opcode: WcOpcode,
    status: WcStatus,
    len: u64,
    pub(super) imm: Option<u32>,
    invalidate: Option<u32>,
    solicited: bool,
}

/// Why a request cannot go on now.
pub(super) enum Stop {
    Wait,
    Fail(WcStatus),
}

impl From<Fault> for Stop {
    fn from(fault: Fault) -> Self {
        Self::Fail(match fault {
            Fault::Access => WcStatus::RemAccessErr,
            Fault::Gone => WcStatus::RetryExcErr,
        })
    }
}

/// Inside the peer's memory, until dropped.
pub(super) struct Inside<'a>(&'a Busy);

impl<'a> Inside<'a> {
    #[inline]
    pub(super) fn enter(link: &'a Link) -> Self {
        let busy = &link.qp.peer.0.busy;
        busy.enter(link.peer.roll(), link.index);
        Self(busy)
    }
}

impl Drop for Inside<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl QpInner {
    /// Carries out a request, or as much as can be done now.
    #[inline]
    pub(super) fn execute(&self, side: &mut SendSide, wr: &SendWr<'_>) -> Outcome {
        let Some(link) = self.link.get() else { return Outcome::Done(WcStatus::WrFlushErr, 0) };
        match self.try_execute(side, link, wr) {
            Ok(bytes) => Outcome::Done(WcStatus::Success, bytes),
            Err(Stop::Wait) => Outcome::Wait,
            Err(Stop::Fail(_)) if self.state() == state::ERROR => Outcome::Done(WcStatus::WrFlushErr, 0),
            Err(Stop::Fail(status)) => Outcome::Done(status, 0),
        }
    }

    #[inline]
    fn try_execute(&self, side: &mut SendSide, link: &Link, wr: &SendWr<'_>) -> Result<u32, Stop> {
        let need = if wr.op.fetches() { Access::LOCAL_WRITE } else { Access::empty() };
        let mut local = Pieces::new();
        if !self.collect(&mut side.near, &wr.data, need, &mut local) {
            return Err(Stop::Fail(WcStatus::LocProtErr));
        }
        let _inside = Inside::enter(link);
        if !link.accepts() {
            return Err(Stop::Fail(WcStatus::RetryExcErr));
        }
        let solicited = wr.flags.contains(SendFlags::SOLICITED);
        match wr.op {
            SendOp::Write(remote) => {
                self.reach(side, link, &local, remote, Way::Out)?;
                if wr.flags.contains(SendFlags::RING) {
                    side.progress.ring_peer(link);
                }
                Ok(0)
            }
            SendOp::Read(remote) => {
                self.reach(side, link, &local, remote, Way::In).map(|()| local.total() as u32)
            }
            SendOp::WriteImm(remote, imm) => {
                self.next_receive(side, link)?;
                self.reach(side, link, &local, remote, Way::Out)?;
                let mut news = News::of(WcOpcode::RecvWriteImm, local.total(), solicited);
                news.imm = Some(imm);
                self.publish(side, link, &news, None);
                Ok(0)
            }
            SendOp::Send => self.send(side, link, &local, News::of(WcOpcode::Recv, local.total(), solicited)),
            SendOp::SendImm(imm) => {
                let news = News::of(WcOpcode::Recv, local.total(), solicited);
                self.send(side, link, &local, News { imm: Some(imm), ..news })
            }
            SendOp::SendInv(key) => {
                let news = News::of(WcOpcode::Recv, local.total(), solicited);
                self.send(side, link, &local, News { invalidate: Some(key), ..news })
            }
            SendOp::CompareSwap { remote, compare, swap } => {
                self.atomic(side, link, &local, remote, Atomic::CompareSwap(compare, swap))
            }
            SendOp::FetchAdd { remote, add } => {
                self.atomic(side, link, &local, remote, Atomic::FetchAdd(add))
            }
        }
    }

    /// Collects the local memory of a request; false if the protection table does not allow all of it.
    /// Into a place of the caller's, as the list is too long to be moved for every message.
    #[inline]
    fn collect(&self, near: &mut Tlb, data: &Data<'_>, need: Access, pieces: &mut Pieces) -> bool {
        match data {
            Data::Inline(bytes) => pieces.push(bytes.as_ptr().cast_mut(), bytes.len() as u64),
            Data::Sges(sges) => {
                for sge in *sges {
                    let len = u64::from(sge.length);
                    if len == 0 {
                        continue;
                    }
                    let at = match near.find(sge.lkey, need, sge.addr, len) {
                        Some(at) => at,
                        None => match self.own_memory(sge.lkey, need, sge.addr, len) {
                            Some(at) => {
                                near.learn(&self.device.table, sge.lkey);
                                at
                            }
                            None => return false,
                        },
                    };
                    pieces.push(at, len);
                }
            }
        }
        true
    }

    /// A range of this process's registered memory.
    #[inline]
    pub(super) fn own_memory(&self, key: u32, need: Access, addr: u64, len: u64) -> Option<*mut u8> {
        let table = &self.device.table;
        match table.check(key, self.pd, need, addr, len)? {
            Place::Nic(offset) => table.map.bytes(offset, len),
            Place::Private(at) | Place::Anywhere(at) => Some(at as *mut u8),
        }
    }

    /// RDMA: copies between local pieces and one range of the peer.
    #[inline]
    fn reach(
        &self,
        side: &mut SendSide,
        link: &Link,
        local: &Pieces,
        remote: RemoteAddr,
        way: Way,
    ) -> Result<(), Stop> {
        let len = local.total();
        if len == 0 {
            return Ok(());
        }
        let need = if way == Way::Out { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
        if let Some(at) = side.far.find(remote.rkey, need, remote.addr, len) {
            // SAFETY: as in `copy`.
            unsafe { move_mapped(local, at, way) };
            return Ok(());
        }
        let place = link.peer.table.check(remote.rkey, link.pd, need, remote.addr, len);
        let place = place.ok_or(Stop::Fail(WcStatus::RemAccessErr))?;
        if mapped(link, place, len).is_some() {
            side.far.learn(&link.peer.table, remote.rkey);
        }
        self.copy(side, link, local, place, remote.rkey, way)
    }

    /// Copies between local pieces and a checked place of the peer.
    fn copy(
        &self,
        side: &mut SendSide,
        link: &Link,
        local: &Pieces,
        place: Place,
        key: u32,
        way: Way,
    ) -> Result<(), Stop> {
        if let Some(at) = mapped(link, place, local.total()) {
            // SAFETY: both sides were checked against protection tables whose entries keep the memory mapped until
            // we have left ([`Inside`]; the send lock for our own). Test: the conformance suite; `violations` in it.
            unsafe { move_mapped(local, at, way) };
            return Ok(());
        }
        match (place, link.peer.reach) {
            (Place::Private(at) | Place::Anywhere(at), Reach::Kernel { pid })
            | (Place::Anywhere(at), Reach::Direct { pid }) => {
                let mut remote = Pieces::new();
                remote.push(at as *mut u8, local.total());
                Ok(place::across(pid, local, &remote, way)?)
            }
            (Place::Private(at) | Place::Anywhere(at), Reach::Service) => {
                match self.serve_copy(side, link, local, at, key, way) {
                    Some(result) => Ok(result?),
                    None => Err(Stop::Wait),
                }
            }
            // A peer's table that names memory outside its segment.
            _ => Err(Stop::Fail(WcStatus::RemAccessErr)),
        }
    }

    /// The peer's next receive: its slot's words. Waits if there is none.
    #[inline]
    fn next_receive<'l>(&self, side: &mut SendSide, link: &'l Link) -> Result<&'l [AtomicU64], Stop> {
        if let Some(slot) = self.find_receive(side, link) {
            side.rnr_deadline = None;
            return Ok(slot);
        }
        // Said once: whoever posts after that sees it and wakes us.
        if link.qp.starved.0.swap(1, Ordering::AcqRel) == 0 {
            link.name_starving();
            crate::sync::fence::heavy();
            if let Some(slot) = self.find_receive(side, link) {
                side.rnr_deadline = None;
                return Ok(slot);
            }
        }
        if link.rnr_retry < 7 {
            let now = self.device.host.now();
            let patience = RNR_PAUSE * u64::from(link.rnr_retry);
            if now >= *side.rnr_deadline.get_or_insert(now + patience) {
                return Err(Stop::Fail(WcStatus::RnrRetryExcErr));
            }
        }
        Err(Stop::Wait)
    }

    /// The peer's next receive, if it is there and of a queue of its own; nothing is claimed.
    #[inline]
    pub(super) fn waiting_receive<'l>(&self, link: &'l Link) -> Option<&'l [AtomicU64]> {
        let (recvs, next) = (link.recvs.as_ref()?, self.next_recv.load(Ordering::Relaxed));
        let slot = recvs.slot(next);
        ring::filled(&slot[recv::MARK], ring::lap(next, recvs.shift())).map(|_| slot)
    }

    /// Begins to fetch the receive that the next message will find: when one was sent, as the peer may have posted many, and
    /// when one came, as the peer posts a receive for the answer before it asks.
    #[inline]
    pub(super) fn fetch_next_receive(&self) {
        if let Some(recvs) = self.link.get().and_then(|link| link.recvs.as_ref()) {
            let next = self.next_recv.load(Ordering::Relaxed);
            place::fetch_soon(&recvs.slot(next)[recv::MARK]);
        }
    }

    #[inline]
    fn find_receive<'l>(&self, side: &mut SendSide, link: &'l Link) -> Option<&'l [AtomicU64]> {
        if link.recvs.is_some() {
            return self.waiting_receive(link);
        }
        let progress = &mut side.progress;
        let srq = link.srq.as_ref()?;
        if progress.claimed.is_none() {
            let taken = link.qp.taken.load(Ordering::Acquire);
            if progress.next_comp.wrapping_sub(taken) >> link.comps.shift() != 0 {
                return None;
            }
            let entry = |i| &srq.ring.slot(i)[0];
            let me = link.index as u16 + 1;
            progress.claimed = shared_queue::claim(&srq.shared.head.0, srq.ring.shift(), entry, me);
        }
        progress.claimed.map(|receive| srq.store.slot(receive.into()))
    }

    /// Delivers a message into the peer's next receive.
    #[inline]
    fn send(&self, side: &mut SendSide, link: &Link, local: &Pieces, mut news: News) -> Result<u32, Stop> {
        let slot = self.next_receive(side, link)?;
        let result = self.fill_receive(side, link, slot, local);
        if let Err(Stop::Wait) = result {
            return Err(Stop::Wait);
        }
        let result = result.and_then(|carried| match news.invalidate {
            Some(key) if !link.peer.table.invalidate(key, link.pd) => Err(Stop::Fail(WcStatus::RemAccessErr)),
            _ => Ok(carried),
        });
        match result {
            Ok(carried) => {
                self.publish(side, link, &news, carried.then_some(local));
                Ok(0)
            }
            Err(Stop::Fail(WcStatus::RetryExcErr)) => Err(Stop::Fail(WcStatus::RetryExcErr)),
            Err(stop) => {
                // What the receiver learns is its own side of the failure.
                let (own, theirs) = match stop {
                    Stop::Fail(WcStatus::RemInvReqErr) => (WcStatus::RemInvReqErr, WcStatus::LocLenErr),
                    Stop::Fail(WcStatus::RemAccessErr) => (WcStatus::RemAccessErr, WcStatus::LocProtErr),
                    _ => (WcStatus::RemOpErr, WcStatus::LocProtErr),
                };
                (news.status, news.imm, news.invalidate) = (theirs, None, None);
                self.publish(side, link, &news, None);
                Err(Stop::Fail(own))
            }
        }
    }

    /// Puts a message where the receive wants it; true if the completion is to carry it instead.
    #[inline]
    fn fill_receive(
        &self,
        side: &mut SendSide,
        link: &Link,
        slot: &[AtomicU64],
        local: &Pieces,
    ) -> Result<bool, Stop> {
        let total = local.total();
        let count = recv::pieces(slot);
        let sges = || {
            slot[recv::SGES..].chunks_exact(2).take(count).map(|words| {
                let length_key = words[1].load(Ordering::Relaxed);
                (words[0].load(Ordering::Relaxed), length_key >> 32, length_key as u32)
            })
        };
        if sges().map(|(_, len, _)| len).sum::<u64>() < total {
            return Err(Stop::Fail(WcStatus::RemInvReqErr));
        }
        let carried = total <= comp::INLINE_MAX as u64;
        let mut done = 0;
        for (addr, len, key) in sges() {
            let len = len.min(total - done);
            if len == 0 {
                continue;
            }
            let place = link.peer.table.check(key, link.pd, Access::LOCAL_WRITE, addr, len);
            let place = place.ok_or(Stop::Fail(WcStatus::RemOpErr))?;
            if !carried {
                let part = local.part(done, len);
                // A piece that was copied before the request had to wait is not copied twice.
                if !side.progress.job.as_ref().is_some_and(|job| job.is_behind(done)) {
                    self.copy_piece(side, link, &part, place, key, done)?;
                }
            }
            done += len;
        }
        side.progress.job = None;
        // The peer may change its receive between two looks, and then the message is not all there.
        if done < total { Err(Stop::Fail(WcStatus::RemInvReqErr)) } else { Ok(carried) }
    }

    fn copy_piece(
        &self,
        side: &mut SendSide,
        link: &Link,
        part: &Pieces,
        place: Place,
        key: u32,
        from: u64,
    ) -> Result<(), Stop> {
        if let (Some(at), Reach::Service) = (place.private(), link.peer.reach) {
            return match self.serve_piece(side, link, part, at, key, from) {
                Some(Ok(())) => Ok(()),
                Some(Err(_)) => Err(Stop::Fail(WcStatus::RemOpErr)),
                None => Err(Stop::Wait),
            };
        }
        self.copy(side, link, part, place, key, Way::Out).map_err(|stop| match stop {
            Stop::Fail(WcStatus::RemAccessErr) => Stop::Fail(WcStatus::RemOpErr),
            other => other,
        })
    }

    /// Publishes a completion at the peer and consumes the receive that it is about.
    #[inline]
    pub(super) fn publish(&self, side: &mut SendSide, link: &Link, news: &News, carried: Option<&Pieces>) {
        let progress = &mut side.progress;
        let (index, shift) = (progress.next_comp, link.comps.shift());
        let slot = link.comps.slot(index);
        let mut bytes = 0;
        let mut flags = 0;
        if let Some(local) = carried {
            bytes = local.total() as u32;
            flags |= FLAG_CARRIED;
            // SAFETY: the slot has INLINE_MAX bytes from this word on, and the total is at most that.
            unsafe { place::gather(local, slot[comp::BYTES].as_ptr().cast()) };
        }
        flags |= if news.imm.is_some() { FLAG_IMM } else { 0 };
        flags |= if news.invalidate.is_some() { FLAG_INVALIDATE } else { 0 };
        flags |= if news.solicited { FLAG_SOLICITED } else { 0 };
        let imm = news.imm.or(news.invalidate).unwrap_or(0);
        slot[comp::LEN_IMM].store(news.len << 32 | u64::from(imm), Ordering::Relaxed);
        slot[comp::RECEIVE].store(progress.claimed.take().unwrap_or(0).into(), Ordering::Relaxed);
        let kind = u32::from(news.opcode == WcOpcode::RecvWriteImm);
        let low = kind | status_number(news.status) << 8 | flags << 16 | bytes << 24;
        ring::publish(&slot[comp::MARK], ring::lap(index, shift), low);
        progress.next_comp += 1;
        self.next_recv.store(self.next_recv.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.fetch_next_receive();
        // Pairs with the fences of the bell's sleeper, of `req_notify` and of whoever sets `many`: the looks at these words
        // must not move before the mark that publishes the completion.
        fence(Ordering::SeqCst);
        if link.cq.many.load(Ordering::Relaxed) != 0 {
            link.cq.ready.add(link.index);
        }
        link.announce(news.solicited || news.status != WcStatus::Success);
    }
}

/// A pointer to a checked place of the peer, where there is one.
#[inline]
pub(super) fn mapped(link: &Link, place: Place, len: u64) -> Option<*mut u8> {
    match (place, link.peer.reach) {
        (Place::Nic(offset), _) => link.peer.table.map.bytes(offset, len),
        // Of this process, and so held against what was registered (`table`).
        (Place::Private(at), Reach::Direct { .. }) => Some(at as *mut u8),
        _ => None,
    }
}

/// Copies between local pieces and mapped memory.
///
/// # Safety
/// `at` must have room for all pieces, and everything must be mapped.
#[inline]
unsafe fn move_mapped(local: &Pieces, at: *mut u8, way: Way) {
    // SAFETY: the caller's contract.
    unsafe {
        match way {
            Way::Out => place::gather(local, at),
            Way::In => place::scatter(at, local),
        }
    }
}

impl News {
    #[inline]
    pub(super) fn of(opcode: WcOpcode, len: u64, solicited: bool) -> Self {
        Self { opcode, status: WcStatus::Success, len, imm: None, invalidate: None, solicited }
    }
}

fn status_number(status: WcStatus) -> u32 {
    match status {
        WcStatus::Success => 0,
        WcStatus::LocLenErr => 1,
        WcStatus::LocProtErr => 2,
        _ => 3,
    }
}
