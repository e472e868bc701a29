//! Operations that go at once: on elements without gaps in memory that is mapped here, at a member on which one was allowed before in
//! the same epoch. Whatever is not so goes the long way, which also says what is wrong.

use std::sync::atomic::{Ordering, fence};

use datatypes::{Op, Operator};

use crate::memory::Buffer;
use crate::window::object::Window;
use crate::window::target::{At, Target};

/// So many flushes with nothing to wait for make progress once: who waits for others' stores in a loop of its own flushes in it, and
/// others may wait for its answers.
const FLUSHES_WITHOUT_PROGRESS: u32 = 16;

/// Bytes of the largest element that is changed at once.
const ELEMENT: usize = 16;

impl Window {
    /// Whether a put was done.
    #[inline]
    pub(super) fn put_at_once(&self, origin: &Buffer, at: &At) -> bool {
        let Some(there) = self.near(origin.len(), at) else { return false };
        // SAFETY: within the member's part, which is mapped here until the window is freed. Test: puts_and_gets_move_elements.
        let is_done = unsafe { origin.copy_to(there.address) };
        self.charge_done(origin, is_done);
        // Behind it a program may store a flag that another process looks at.
        fence(Ordering::Release);
        is_done
    }

    /// Whether a get was done.
    #[inline]
    pub(super) fn get_at_once(&self, origin: &Buffer, at: &At) -> bool {
        let Some(there) = self.near(origin.len(), at) else { return false };
        // SAFETY: as above.
        let is_done = unsafe { origin.copy_from(there.address) };
        self.charge_done(origin, is_done);
        is_done
    }

    /// What the long way does it charges for itself.
    #[inline]
    fn charge_done(&self, origin: &Buffer, is_done: bool) {
        if is_done {
            self.core().host().charge_copy(origin.len());
        }
    }

    /// Whether one element of a member's was changed by a predefined operator, and brought as it was to where that is wanted.
    pub(super) fn change_at_once(
        &self,
        origin: &Buffer,
        result: Option<&Buffer>,
        at: &At,
        op: &Op,
    ) -> Option<()> {
        let is_read = matches!(op, Op::Predefined(Operator::NoOp));
        let len = result.unwrap_or(origin).len();
        let near = self.near(len, at)?;
        let is_one = at.count == 1 && at.datatype.basic().is_some() && len as usize <= ELEMENT;
        let is_fitting = origin.count() == 1 && origin.datatype().same(&at.datatype);
        let is_legal = matches!(op, Op::Predefined(_)) && op.check(&at.datatype).is_ok();
        if !is_one || !(is_read || is_fitting && is_legal) {
            return None;
        }
        // SAFETY: within the member's part, which is mapped here until the window is freed. Test: accumulating_is_atomic.
        let there = unsafe { Buffer::new(near.address, 1, at.datatype.clone()) }.ok()?;
        let (mut with, mut bytes) = ([0; ELEMENT], [0; ELEMENT]);
        let (with, bytes) = (&mut with[..len as usize], &mut bytes[..len as usize]);
        self.core().host().charge_copy(len);
        let _turn = near.target.known_words()?.turn_at_once(self.core())?;
        there.load(bytes);
        result.iter().for_each(|result| result.store(bytes));
        if !is_read {
            origin.load(with);
            op.apply(with, bytes, 1, &at.datatype).ok()?;
            there.store(bytes);
        }
        Some(())
    }

    /// Whether a rank's operations are over without a look at anything.
    #[inline]
    pub(super) fn is_flushed(&self, rank: i32) -> bool {
        let target = usize::try_from(rank).ok().and_then(|rank| self.0.targets.get(rank));
        let is_granted = target.is_some_and(|target| self.0.epoch.has_passively(&target.grant));
        if !is_granted || self.0.is_pending.load(Ordering::Relaxed) {
            return false;
        }
        let flushes = self.0.flushes.load(Ordering::Relaxed).wrapping_add(1);
        self.0.flushes.store(flushes, Ordering::Relaxed);
        if flushes.is_multiple_of(FLUSHES_WITHOUT_PROGRESS) {
            return false;
        }
        fence(Ordering::SeqCst);
        self.core().host().glance();
        true
    }

    /// Elements of so many bytes that may be reached at once.
    #[inline]
    pub(super) fn near(&self, bytes: u64, at: &At) -> Option<Near<'_>> {
        let target = self.0.targets.get(usize::try_from(at.rank).ok()?)?;
        if !self.0.epoch.has(&target.grant) {
            return None;
        }
        let size = u64::try_from(at.datatype.dense().checked_mul(at.count)?).ok()?;
        let begin = u64::try_from(at.displacement).ok()?.checked_mul(target.card.unit)?;
        let is_inside = begin.checked_add(size)? <= target.card.size;
        if size == 0 || size != bytes || !is_inside {
            return None;
        }
        Some(Near { target, address: target.near_address()? + begin as usize })
    }
}

/// Elements in memory of this process.
pub(super) struct Near<'a> {
    pub(super) target: &'a Target,
    pub(super) address: usize,
}
