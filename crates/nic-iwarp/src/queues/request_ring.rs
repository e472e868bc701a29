//! Data path: posting. Rings of requests, from posting until the completion has been polled.
//!
//! The rings allocate their memory at creation, but touch it only as they are used: with many connections, most
//! queues are never full.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Access, Buf, Data, Error, RecvWr, Result, SendFlags, SendOp, SendWr, Sge};

use crate::memory::place;
use crate::memory::regions::Domain;
use nic_util::sg_list::{SGE_MAX, SgList};

/// The SGEs of one request, copied.
#[derive(Debug)]
pub(crate) struct Sges {
    list: [Sge; SGE_MAX],
    count: usize,
}

impl Sges {
    pub(crate) const EMPTY: Self = Self { list: [Sge { addr: 0, length: 0, lkey: 0 }; SGE_MAX], count: 0 };

    /// Copies these SGEs; writes no more entries than there are.
    #[inline]
    fn set(&mut self, sges: &[Sge]) {
        self.count = sges.len().min(SGE_MAX);
        self.list[..self.count].copy_from_slice(&sges[..self.count]);
    }

    #[inline]
    pub(crate) fn as_slice(&self) -> &[Sge] {
        &self.list[..self.count]
    }

    pub(crate) fn total(&self) -> u64 {
        self.as_slice().iter().map(|sge| u64::from(sge.length)).sum()
    }
}

/// A send request as posted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendRequest {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    /// Length of the local data in bytes.
    pub(crate) len: u32,
    pub(crate) inline: bool,
    sges: usize,
}

impl SendRequest {
    /// Whether it completes locally: when TCP has accepted it, whether or not it has arrived.
    #[inline]
    pub(crate) fn is_local(&self) -> bool {
        self.flags.contains(SendFlags::LOCAL) && !self.op.fetches()
    }
}

#[cfg(test)]
impl SendRequest {
    /// A request that was not posted.
    pub(crate) fn new(wr_id: u64, op: SendOp, flags: SendFlags, len: u32) -> Self {
        Self { wr_id, op, flags, len, inline: false, sges: 0 }
    }
}

/// The send queue. Requests are numbered from 0 in the order of posting; the slot of a request is its number modulo
/// the depth.
pub(crate) struct SendQueue {
    /// Grows to the largest number ever used, at most `depth`.
    slots: Vec<SendRequest>,
    sges: Vec<Sge>,
    depth: usize,
    max_sge: usize,
    /// Inline data, one piece per slot. It is in a buffer because it is sent from there like other memory.
    inline: Option<Buf>,
    max_inline: usize,
    posted: u64,
    /// Number of completed requests, and so the number of the first open one.
    completed: u64,
}

impl SendQueue {
    pub(crate) fn new(depth: u32, max_sge: u32, max_inline: u32) -> Result<Self> {
        let (depth, max_sge, max_inline) = (depth as usize, max_sge as usize, max_inline as usize);
        Ok(Self {
            slots: Vec::with_capacity(depth),
            sges: Vec::with_capacity(depth * max_sge),
            depth,
            max_sge,
            inline: if max_inline > 0 { Some(Buf::alloc(depth * max_inline)?) } else { None },
            max_inline,
            posted: 0,
            completed: 0,
        })
    }

    #[inline]
    pub(crate) fn posted(&self) -> u64 {
        self.posted
    }

    /// Number of completed requests.
    #[inline]
    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// Marks the first open request as completed; returns its number and content.
    #[inline]
    pub(crate) fn complete_first(&mut self) -> (u64, SendRequest) {
        let number = self.completed;
        self.completed += 1;
        (number, *self.get(number))
    }

    #[inline]
    fn slot(&self, number: u64) -> usize {
        (number % self.depth as u64) as usize
    }

    /// Posts a request that has been checked, if there is a free slot.
    #[inline]
    pub(crate) fn post(&mut self, wr: &SendWr<'_>, reclaimed: &AtomicU64) -> Result<()> {
        let depth = self.depth;
        if self.posted - reclaimed.load(Ordering::Acquire) >= depth as u64 {
            return Err(Error::QueueFull { queue: "send", depth: depth as u32 });
        }
        let slot = self.slot(self.posted);
        let (len, inline, sges) = match wr.data {
            Data::Sges(sges) => {
                let at = slot * self.max_sge;
                if self.sges.len() < at + sges.len() {
                    // Within the capacity, so nothing is allocated.
                    self.sges.resize(at + self.max_sge, Sge::default());
                }
                self.sges[at..at + sges.len()].copy_from_slice(sges);
                (sges.iter().map(|sge| u64::from(sge.length)).sum::<u64>() as u32, false, sges.len())
            }
            Data::Inline(bytes) => {
                if let Some(inline) = &self.inline {
                    inline.write(slot * self.max_inline, bytes)?;
                }
                (bytes.len() as u32, true, 0)
            }
        };
        let request = SendRequest { wr_id: wr.wr_id, op: wr.op, flags: wr.flags, len, inline, sges };
        match self.slots.get_mut(slot) {
            Some(place) => *place = request,
            // In the first lap, slots are used in order.
            None => self.slots.push(request),
        }
        self.posted += 1;
        Ok(())
    }

    /// A posted request whose slot is still in use.
    #[inline]
    pub(crate) fn get(&self, number: u64) -> &SendRequest {
        &self.slots[self.slot(number)]
    }

    /// The SGEs of the request with this number.
    #[inline]
    fn sges(&self, number: u64) -> &[Sge] {
        let slot = self.slot(number);
        let at = slot * self.max_sge;
        match self.slots[slot].sges {
            // The slot's entries may not exist yet.
            0 => &[],
            count => &self.sges[at..at + count],
        }
    }

    /// The address of its inline data.
    #[inline]
    fn inline(&self, number: u64) -> *mut u8 {
        let at = self.slot(number) * self.max_inline;
        self.inline.as_ref().map_or(std::ptr::null_mut(), |inline| inline.as_ptr().wrapping_add(at))
    }

    /// Whether all of a request's local memory may be used.
    #[inline]
    pub(crate) fn may_use(&self, number: u64, domain: Domain<'_>, need: Access) -> bool {
        self.get(number).inline || domain.allows(self.sges(number), need)
    }

    /// Says why not all of a request's local memory may be used.
    #[cold]
    pub(crate) fn explain_local(&self, number: u64, domain: Domain<'_>, need: Access) -> String {
        let sges = self.sges(number);
        let used = sges.iter().enumerate().filter(|(_, sge)| sge.length != 0);
        let refused =
            used.clone().find(|(_, sge)| domain.find(sge.lkey, need, sge.addr, sge.length.into()).is_err());
        // All are registered: copying has met unmapped memory.
        match refused.or_else(|| used.clone().next()) {
            Some((at, sge)) => format!("sg_list[{at}]: {}", domain.explain(sge, need)),
            None => "the local memory of the request is not accessible; check its addresses".into(),
        }
    }

    /// The addresses of a part of a request's local data; `None` if a key, a range or a right does not allow it.
    pub(crate) fn local_addresses(
        &self,
        number: u64,
        domain: Domain<'_>,
        need: Access,
        from: u64,
        len: u64,
    ) -> Option<SgList> {
        if self.get(number).inline {
            let mut list = SgList::new();
            list.push(self.inline(number).wrapping_add(from as usize), len);
            return Some(list);
        }
        domain.local(self.sges(number), need, from, len)
    }

    /// Copies a part of the data that a request sends; `None` if a key or a range does not allow it, or the memory is
    /// unmapped.
    #[inline]
    pub(crate) fn append(
        &self,
        number: u64,
        domain: Domain<'_>,
        from: u32,
        len: u32,
        to: &mut Vec<u8>,
    ) -> Option<()> {
        if self.get(number).inline {
            let at = self.inline(number).wrapping_add(from as usize);
            return place::append(at, len as usize, to).ok();
        }
        match self.sges(number) {
            // Most requests have one SGE.
            [only] if from == 0 && len == only.length => {
                if len > 0 {
                    let at = domain.find(only.lkey, Access::empty(), only.addr, len.into()).ok()?;
                    place::append(at, len as usize, to).ok()?;
                }
            }
            sges => {
                for piece in domain.local(sges, Access::empty(), from.into(), len.into())?.as_slice() {
                    place::append(piece.iov_base.cast(), piece.iov_len, to).ok()?;
                }
            }
        }
        Some(())
    }
}

/// A receive that was taken from its queue.
#[derive(Debug)]
pub(crate) struct PostedReceive {
    pub(crate) wr_id: u64,
    pub(crate) sges: Sges,
}

impl PostedReceive {
    /// A copy of a receive, whose number of elements was checked.
    pub(crate) fn new(wr: &RecvWr<'_>) -> Self {
        let mut sges = Sges::EMPTY;
        sges.set(wr.sges);
        Self { wr_id: wr.wr_id, sges }
    }
}

impl Default for PostedReceive {
    fn default() -> Self {
        Self { wr_id: 0, sges: Sges::EMPTY }
    }
}

/// Initial number of slots of a receive queue.
const FIRST_LAP: usize = 16;

/// A queue of receives, a queue pair's own or a shared one.
///
/// Its ring of slots is as long as the largest number of receives that were queued at the same time, not as the
/// queue's depth. So a program that keeps few receives posted uses only a few cache lines.
pub(crate) struct ReceiveQueue {
    name: &'static str,
    /// Each slot has a head, with the receive's identifier as its address and the number of SGEs as its length,
    /// followed by the SGEs. They are adjacent, so a post to a deep queue loads one cache line instead of two.
    slots: Vec<Sge>,
    depth: usize,
    max_sge: usize,
    /// Number of slots in the ring.
    lap: usize,
    /// The slot of the next receive.
    first: usize,
    /// Number of queued receives.
    left: usize,
    posted: u64,
}

impl ReceiveQueue {
    pub(crate) fn new(name: &'static str, depth: u32, max_sge: u32) -> Self {
        let (depth, max_sge) = (depth as usize, max_sge as usize);
        let slots = Vec::with_capacity(depth * (1 + max_sge));
        Self { name, slots, depth, max_sge, lap: 0, first: 0, left: 0, posted: 0 }
    }

    /// The content of a slot.
    #[inline]
    fn slot(&mut self, number: usize) -> &mut [Sge] {
        let len = 1 + self.max_sge;
        &mut self.slots[number * len..][..len]
    }

    /// The slot `steps` after the first one.
    #[inline]
    fn slot_after_first(&self, steps: usize) -> usize {
        let number = self.first + steps;
        if number < self.lap { number } else { number - self.lap }
    }

    /// Posts a receive, if there is a free slot.
    #[inline]
    pub(crate) fn post(&mut self, wr: &RecvWr<'_>, reclaimed: &AtomicU64) -> Result<()> {
        Error::check_limit("the number of SGEs of the receive", wr.sges.len() as u64, self.max_sge as u64)?;
        let depth = self.depth;
        if self.posted - reclaimed.load(Ordering::Acquire) >= depth as u64 {
            return Err(Error::QueueFull { queue: self.name, depth: depth as u32 });
        }
        if self.left == self.lap {
            self.grow();
        }
        let number = self.slot_after_first(self.left);
        let slot = self.slot(number);
        slot[0] = Sge { addr: wr.wr_id, length: wr.sges.len() as u32, lkey: 0 };
        slot[1..][..wr.sges.len()].copy_from_slice(wr.sges);
        self.left += 1;
        self.posted += 1;
        Ok(())
    }

    /// Adds slots. They are within the capacity, so nothing is allocated.
    #[cold]
    fn grow(&mut self) {
        let len = 1 + self.max_sge;
        self.slots.rotate_left(self.first * len);
        self.first = 0;
        self.lap = (self.lap * 2).max(FIRST_LAP).min(self.depth);
        self.slots.resize(self.lap * len, Sge::default());
    }

    /// Takes the next receive; returns whether there was one.
    #[inline]
    pub(crate) fn take(&mut self, into: &mut PostedReceive) -> bool {
        if self.left == 0 {
            return false;
        }
        let slot = self.slot(self.first);
        let head = slot[0];
        into.wr_id = head.addr;
        into.sges.set(&slot[1..][..head.length as usize]);
        self.first = self.slot_after_first(1);
        self.left -= 1;
        true
    }

    /// Number of queued receives.
    pub(crate) fn len(&self) -> u64 {
        self.left as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sge(addr: u64) -> Sge {
        Sge { addr, length: 8, lkey: 1 }
    }

    #[test]
    fn sends_keep_what_was_posted_until_they_are_reclaimed() {
        let (mut queue, reclaimed) = (SendQueue::new(2, 3, 16).expect("memory"), AtomicU64::new(0));
        let sges = [sge(1), sge(2), sge(3)];
        queue.post(&SendWr::new(10, SendOp::Send, &sges), &reclaimed).expect("room");
        queue.post(&SendWr::inline(11, SendOp::Send, b"inline data"), &reclaimed).expect("room");
        let full = queue.post(&SendWr::new(12, SendOp::Send, &sges[..1]), &reclaimed);
        assert_eq!(full, Err(Error::QueueFull { queue: "send", depth: 2 }));
        assert_eq!((queue.get(0).wr_id, queue.get(0).len, queue.sges(0)), (10, 24, &sges[..]));
        assert_eq!((queue.get(1).wr_id, queue.get(1).len, queue.get(1).inline), (11, 11, true));
        let (number, request) = queue.complete_first();
        assert_eq!((number, request.wr_id), (0, 10));
        reclaimed.store(1, Ordering::Release);
        queue.post(&SendWr::new(12, SendOp::Send, &sges[..1]), &reclaimed).expect("room again");
        assert_eq!((queue.get(2).wr_id, queue.sges(2)), (12, &sges[..1]));
        assert_eq!((queue.posted(), queue.completed()), (3, 1));
    }

    #[test]
    fn receives_come_in_order_and_free_their_slots_late() {
        let (mut queue, reclaimed) = (ReceiveQueue::new("receive", 2, 2), AtomicU64::new(0));
        for id in [1, 2] {
            queue.post(&RecvWr::new(id, &[sge(id)]), &reclaimed).expect("room");
        }
        let mut receive = PostedReceive::default();
        assert!(queue.take(&mut receive) && receive.wr_id == 1);
        let full = Err(Error::QueueFull { queue: "receive", depth: 2 });
        assert_eq!(
            queue.post(&RecvWr::new(3, &[]), &reclaimed),
            full,
            "its completion has not been polled yet"
        );
        reclaimed.store(1, Ordering::Release);
        queue.post(&RecvWr::new(3, &[]), &reclaimed).expect("room again");
        assert!(matches!(queue.post(&RecvWr::new(4, &[sge(1); 3]), &reclaimed), Err(Error::Limit { .. })));
        for (wr_id, total) in [(2, 8), (3, 0)] {
            assert!(queue.take(&mut receive));
            assert_eq!((receive.wr_id, receive.sges.total()), (wr_id, total));
        }
        assert!(!queue.take(&mut receive) && queue.len() == 0);
    }

    /// Goal: the ring returns receives in order, however full it is and wherever it grows, and is no longer than
    /// necessary. Method: random posts and takes with a growing number of queued receives, compared with a plain
    /// queue.
    #[test]
    fn receive_ring_grows_with_queued_receives() {
        const DEPTH: usize = 100;
        let (mut queue, reclaimed) = (ReceiveQueue::new("receive", DEPTH as u32, 2), AtomicU64::new(0));
        let (mut plain, mut receive) = (std::collections::VecDeque::new(), PostedReceive::default());
        let (mut random, mut number) = (1_u64, 0);
        for step in 0..40_000 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Some laps for each fill level, from one up to the full depth.
            let most = 1 + step / 400;
            if random >> 63 == 0 && plain.len() < most {
                number += 1;
                let sges = &[sge(number), sge(number + 1)][..(number % 3) as usize];
                queue.post(&RecvWr::new(number, sges), &reclaimed).expect("room");
                plain.push_back((number, sges.len()));
            } else if let Some((wr_id, count)) = plain.pop_front() {
                assert!(queue.take(&mut receive));
                assert_eq!((receive.wr_id, receive.sges.as_slice().len()), (wr_id, count));
                assert!(receive.sges.as_slice().first().is_none_or(|sge| sge.addr == wr_id));
                reclaimed.fetch_add(1, Ordering::Relaxed);
            } else {
                assert!(!queue.take(&mut receive));
            }
            assert_eq!(queue.len(), plain.len() as u64);
            assert!(queue.lap <= (2 * most).clamp(FIRST_LAP, DEPTH), "{} slots for {most}", queue.lap);
        }
        assert!(queue.lap > DEPTH / 2, "it was filled");
    }
}
