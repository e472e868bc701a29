//! [`ReceiveQueue`]: posted receives of a queue pair, or shared; and [`SharedReceiveQueue`].

use host::Time;
use verbs::{Error, RecvWr, Result, Sge};

/// A posted receive.
#[derive(Clone, Debug, Default)]
struct Receive {
    wr_id: u64,
    sges: Vec<Sge>,
    /// When it was posted: a rank's clock may be ahead of the world's.
    at: Time,
}

/// Posted receives, oldest first.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    name: &'static str,
    depth: u32,
    max_sge: u32,
    slots: Vec<Receive>,
    head: u64,
    tail: u64,
    /// Slots in use until their completions are polled.
    used: u32,
}

impl ReceiveQueue {
    /// A queue for `depth` receives of at most `max_sge` SGEs; `name` is for errors.
    pub(super) fn new(name: &'static str, depth: u32, max_sge: u32) -> Self {
        Self { name, depth, max_sge, slots: Vec::new(), head: 0, tail: 0, used: 0 }
    }

    /// Maximum number of SGEs of a receive.
    pub(super) fn max_sge(&self) -> u32 {
        self.max_sge
    }

    /// Checks whether a receive may be posted.
    pub(super) fn check(&self, wr: &RecvWr<'_>) -> Result<()> {
        Error::check_limit("pieces", wr.sges.len() as u64, self.max_sge.into())?;
        match self.used >= self.depth {
            true => Err(Error::QueueFull { queue: self.name, depth: self.depth }),
            false => Ok(()),
        }
    }

    /// Adds a receive that has been checked.
    pub(super) fn post(&mut self, wr: &RecvWr<'_>, at: Time) {
        let index = (self.tail % u64::from(self.depth.max(1))) as usize;
        (self.tail, self.used) = (self.tail + 1, self.used + 1);
        if index == self.slots.len() {
            self.slots.push(Receive::default());
        }
        let slot = &mut self.slots[index];
        slot.sges.clear();
        // Jobs of thousands of ranks have many receives of one SGE each.
        slot.sges.reserve_exact(wr.sges.len());
        slot.sges.extend_from_slice(wr.sges);
        (slot.wr_id, slot.at) = (wr.wr_id, at);
    }

    /// Number of receives that no message has taken.
    pub(super) fn len(&self) -> u64 {
        self.tail - self.head
    }

    /// Takes the oldest receive if it was posted by `now`; exchanges its list of SGEs for one of `spare`.
    pub(super) fn take(&mut self, now: Time, spare: &mut Vec<Vec<Sge>>) -> Option<(u64, Vec<Sge>)> {
        let index = (self.head % u64::from(self.depth.max(1))) as usize;
        let slot = self.slots.get_mut(index).filter(|slot| self.head < self.tail && slot.at <= now)?;
        self.head += 1;
        Some((slot.wr_id, std::mem::replace(&mut slot.sges, spare.pop().unwrap_or_default())))
    }

    /// The completion of a receive was polled: frees its slot.
    pub(super) fn free(&mut self) {
        self.used -= 1;
    }

    /// Drops all receives of a destroyed queue pair.
    pub(super) fn clear(&mut self) {
        self.head = self.tail;
    }
}

/// A shared receive queue.
pub(super) struct SharedReceiveQueue {
    pub(super) context: u32,
    pub(super) card: usize,
    pub(super) domain: u32,
    pub(super) receives: ReceiveQueue,
    /// With fewer receives than this, one event is reported.
    limit: u32,
}

impl SharedReceiveQueue {
    /// An empty queue of a card.
    pub(super) fn new(context: u32, card: usize, domain: u32, receives: ReceiveQueue) -> Self {
        Self { context, card, domain, receives, limit: 0 }
    }

    /// Sets the limit below which an event is reported.
    pub(super) fn arm_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// The limit below which an event will be reported; 0 for none.
    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    /// Whether the limit was passed; true only once.
    pub(super) fn take_limit_passed(&mut self) -> bool {
        let passed = self.receives.len() < u64::from(self.limit);
        if passed {
            self.limit = 0;
        }
        passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLY: Time = Time::ZERO;

    fn queue(receives: u64) -> ReceiveQueue {
        let mut queue = ReceiveQueue::new("receive", 2, 1);
        (0..receives).for_each(|id| queue.post(&RecvWr::new(id, &[]), EARLY));
        queue
    }

    #[test]
    fn receives_are_taken_in_order_and_not_before_they_are_posted() {
        let (mut queue, late) = (queue(1), EARLY + host::Span::from_ns(1));
        queue.post(&RecvWr::new(1, &[]), late);
        let mut ids = |now| queue.take(now, &mut Vec::new()).map(|(id, _)| id);
        assert_eq!([ids(EARLY), ids(EARLY), ids(late), ids(late)], [Some(0), None, Some(1), None]);
    }

    #[test]
    fn slots_are_freed_with_completions() {
        let (mut queue, wr) = (queue(2), RecvWr::new(5, &[]));
        let full = Err(Error::QueueFull { queue: "receive", depth: 2 });
        assert_eq!(queue.check(&wr), full);
        queue.take(EARLY, &mut Vec::new());
        assert_eq!(queue.check(&wr), full, "taken and not completed");
        queue.free();
        assert_eq!(queue.check(&wr), Ok(()));
        let two = [Sge { addr: 0, length: 1, lkey: 0 }; 2];
        assert!(queue.check(&RecvWr::new(5, &two)).is_err());
    }

    #[test]
    fn srq_limit_is_reported_once() {
        let mut srq = SharedReceiveQueue::new(1, 0, 1, queue(2));
        srq.arm_limit(2);
        assert!(!srq.take_limit_passed());
        srq.receives.take(EARLY, &mut Vec::new());
        assert!(srq.take_limit_passed() && !srq.take_limit_passed());
    }
}
