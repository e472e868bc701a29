//! Operations that complete immediately: on contiguous elements in memory that is mapped here, at a member on which an operation
//! was already allowed in the same epoch. All other operations take the general path, which also reports errors.

use std::sync::atomic::{Ordering, fence};

use datatypes::{Basic, BasicKind, Op, Operator};

use crate::memory::{Buffer, Piece};
use crate::rma::control_words::{AccumulateLock, ControlWords};
use crate::rma::object::Window;
use crate::rma::target::TargetRange;

/// Every this many flushes with nothing to wait for, one makes progress: a process that polls for others' stores calls flush in its
/// loop, and others may wait for its replies.
const FLUSHES_WITHOUT_PROGRESS: u32 = 64;

/// Bytes of the largest element that is changed immediately.
const ELEMENT: usize = 16;

impl Window {
    /// Does a put if it can complete immediately. Returns whether it did.
    #[inline]
    pub(super) fn put_mapped(&self, origin: &Buffer, at: &TargetRange) -> bool {
        let Some(mapped) = self.mapped_elements(origin.len(), at) else { return false };
        self.0.is_ordered.store(false, Ordering::Relaxed);
        // SAFETY: within the member's part, which is mapped here until the window is freed. Test: puts_and_gets_move_elements.
        let is_done = unsafe { origin.copy_to(mapped.address) };
        self.charge_done(origin, is_done);
        // The program may next store a flag that another process polls.
        fence(Ordering::Release);
        is_done
    }

    /// Does a get if it can complete immediately. Returns whether it did.
    #[inline]
    pub(super) fn get_mapped(&self, origin: &Buffer, at: &TargetRange) -> bool {
        let Some(mapped) = self.mapped_elements(origin.len(), at) else { return false };
        // SAFETY: as above.
        let is_done = unsafe { origin.copy_from(mapped.address) };
        self.charge_done(origin, is_done);
        is_done
    }

    /// Charges a completed copy. The general path charges its own.
    #[inline]
    fn charge_done(&self, origin: &Buffer, is_done: bool) {
        if is_done {
            self.core().host().charge_copy(origin.len());
        }
    }

    /// Changes one element of a member by a predefined operator, and returns its former value in `result`, if there is one. Returns
    /// whether it did.
    pub(super) fn accumulate_mapped(
        &self,
        origin: &Buffer,
        result: Option<&Buffer>,
        at: &TargetRange,
        op: &Op,
    ) -> Option<()> {
        let is_read = matches!(op, Op::Predefined(Operator::NoOp));
        let len = result.unwrap_or(origin).len();
        let mapped = self.mapped_elements(len, at)?;
        let is_one = at.count == 1 && at.datatype.basic().is_some() && len as usize <= ELEMENT;
        let is_fitting = origin.count() == 1 && origin.datatype().is_same_object(&at.datatype);
        let is_legal = matches!(op, Op::Predefined(_)) && op.check(&at.datatype).is_ok();
        if !is_one || !(is_read || is_fitting && is_legal) {
            return None;
        }
        // SAFETY: within the member's part, which is mapped here until the window is freed. Test: accumulating_is_atomic.
        let element = unsafe { Buffer::new(mapped.address, 1, at.datatype.clone()) }.ok()?;
        let (mut operand, mut bytes) = ([0; ELEMENT], [0; ELEMENT]);
        let (operand, bytes) = (&mut operand[..len as usize], &mut bytes[..len as usize]);
        self.core().host().charge_copy(len);
        self.0.is_ordered.store(false, Ordering::Relaxed);
        let _accumulate_lock = mapped.words.try_lock_accumulate(self.0.owner_word)?;
        element.load(bytes);
        result.iter().for_each(|result| result.store(bytes));
        if !is_read {
            origin.load(operand);
            op.apply(operand, bytes, 1, &at.datatype).ok()?;
            element.store(bytes);
        }
        Some(())
    }

    /// Whether a rank's operations are known to be complete at both sides, without any check, so that a flush has nothing to do.
    #[inline]
    pub fn is_flushed(&self, rank: i32) -> bool {
        if !self.is_idle(rank) {
            return false;
        }
        if self.order().is_multiple_of(FLUSHES_WITHOUT_PROGRESS) {
            return false;
        }
        self.core().host().charge_poll();
        true
    }

    /// As [`Window::is_flushed`], for bindings in real time of programs whose calls are sequential: it omits redundant fences.
    #[inline(always)]
    pub fn try_flush(&self, rank: i32) -> bool {
        if !self.is_idle(rank) {
            return false;
        }
        let flushes = if self.0.is_ordered.load(Ordering::Relaxed) {
            // A get may have read a flag: later gets must not read older memory. No instruction where loads stay in order.
            fence(Ordering::Acquire);
            let flushes = self.0.flushes.load(Ordering::Relaxed);
            self.0.flushes.store(flushes.wrapping_add(1), Ordering::Relaxed);
            flushes
        } else {
            self.0.is_ordered.store(true, Ordering::Relaxed);
            self.order()
        };
        !flushes.is_multiple_of(FLUSHES_WITHOUT_PROGRESS)
    }

    /// Whether this process may flush a rank, and no operation is pending.
    #[inline(always)]
    fn is_idle(&self, rank: i32) -> bool {
        let target = usize::try_from(rank).ok().and_then(|rank| self.0.targets.get(rank));
        let is_granted = target.is_some_and(|target| self.0.epoch.is_granted_in_lock_epoch(&target.grant));
        is_granted && !self.0.is_pending.load(Ordering::Relaxed)
    }

    /// Orders earlier puts before later loads. Where an atomic read-modify-write is a full barrier, it costs half of a fence.
    /// Returns the number of earlier flushes.
    #[inline(always)]
    fn order(&self) -> u32 {
        let flushes = self.0.flushes.fetch_add(1, Ordering::SeqCst);
        if cfg!(not(target_arch = "x86_64")) {
            fence(Ordering::SeqCst);
        }
        flushes
    }

    /// Elements of this size in bytes, if they can be accessed immediately.
    #[inline]
    pub(super) fn mapped_elements(&self, bytes: u64, at: &TargetRange) -> Option<MappedElements<'_>> {
        let size = u64::try_from(at.datatype.contiguous_size().checked_mul(at.count)?).ok()?;
        if size == bytes { self.mapped_bytes(size, at.rank, at.displacement) } else { None }
    }

    /// Bytes of a member's part, if they can be accessed immediately.
    #[inline(always)]
    fn mapped_bytes(&self, bytes: u64, rank: i32, displacement: i64) -> Option<MappedElements<'_>> {
        let target = self.0.targets.get(usize::try_from(rank).ok()?)?;
        if !self.0.epoch.is_granted(&target.grant) {
            return None;
        }
        let begin = u64::try_from(displacement).ok()?.checked_mul(target.desc.unit)?;
        let is_inside = begin.checked_add(bytes)? <= target.desc.size;
        if bytes == 0 || !is_inside {
            return None;
        }
        let (address, words) = target.mapped_part()?;
        Some(MappedElements { address: address + begin as usize, words })
    }

    /// Writes bytes into a member's memory as [`Window::put`] does, if it can complete immediately. Returns whether it did; if not,
    /// nothing was changed. For bindings in real time: nothing is charged.
    #[inline(always)]
    pub fn try_put(&self, from: Piece, rank: i32, displacement: i64) -> bool {
        let Some(mapped) = self.mapped_bytes(from.len() as u64, rank, displacement) else { return false };
        self.0.is_ordered.store(false, Ordering::Relaxed);
        // SAFETY: within the member's part, which is mapped here until the window is freed. Test: puts_and_gets_move_elements.
        unsafe { from.copy_to(mapped.address) };
        // The program may next store a flag that another process polls.
        fence(Ordering::Release);
        true
    }

    /// Reads bytes of a member's memory as [`Window::get`] does, if it can complete immediately. Returns whether
    /// it did, as [`Window::try_put`] does.
    #[inline(always)]
    pub fn try_get(&self, into: Piece, rank: i32, displacement: i64) -> bool {
        let Some(mapped) = self.mapped_bytes(into.len() as u64, rank, displacement) else { return false };
        // SAFETY: as above.
        unsafe { into.copy_from(mapped.address) };
        true
    }

    /// Changes an integer of a member by one of this process's, and returns the former value if `into` is given, as
    /// [`Window::get_accumulate`] and [`Window::accumulate`] do. All have `len` bytes, 4 or 8. Returns false, and changes nothing, if it
    /// cannot complete immediately, as [`Window::try_put`] does.
    #[inline(always)]
    pub fn try_integer_op(
        &self,
        op: IntegerOp,
        (from, into): (Option<Piece>, Option<Piece>),
        len: usize,
        rank: i32,
        displacement: i64,
    ) -> bool {
        self.with_accumulate_lock(len, rank, displacement, |target| {
            // Pieces of up to 16 bytes are two words; these integers use the first word.
            let old = target.words();
            let operand = from.map_or(0, |from| from.words()[0]);
            if let Some(into) = into {
                into.put_words(old, len);
            }
            if let Some(new) = op.apply(old[0], operand) {
                target.put_words([new, 0], len);
            }
            true
        })
    }

    /// Reduces elements of a predefined type into a member's in place, and returns the former values if `into` is given, as
    /// [`Window::accumulate`] and [`Window::get_accumulate`] do. All have the same size; without an origin nothing changes. Returns
    /// false, and changes nothing, if it cannot complete immediately, as [`Window::try_put`] does, if the operator does not reduce
    /// the type, or if operands overlap.
    pub fn try_accumulate(
        &self,
        (operator, basic): (Operator, Basic),
        (from, into): (Option<Piece>, Option<Piece>),
        rank: i32,
        displacement: i64,
    ) -> bool {
        let Some(len) = into.or(from).map(Piece::len) else { return false };
        let is_legal = basic.kind() != BasicKind::Pair && basic.is_reduced_by(operator);
        if !is_legal || from.is_some_and(|from| from.len() != len) {
            return false;
        }
        self.with_accumulate_lock(len, rank, displacement, |target| {
            let pairs = [(from, into), (from, Some(target)), (into, Some(target))];
            if pairs.iter().any(|pair| matches!(pair, (Some(one), Some(other)) if one.overlaps(*other))) {
                return false;
            }
            if let Some(into) = into {
                into.copy_data_from(target);
            }
            if let Some(from) = from {
                target.reduce(from, operator, basic);
            }
            true
        })
    }

    /// Replaces an integer of a member by one of this process's if it equals `compare`, and returns the former value, as
    /// [`Window::compare_and_swap`] does. Returns false, and changes nothing, if it cannot complete immediately, as
    /// [`Window::try_put`] does.
    #[inline(always)]
    pub fn try_compare_and_swap(
        &self,
        (from, compare, into): (Piece, Piece, Piece),
        rank: i32,
        displacement: i64,
    ) -> bool {
        let len = into.len();
        self.with_accumulate_lock(len, rank, displacement, |target| {
            let (old, expected, new) = (target.words(), compare.words(), from.words());
            into.put_words(old, len);
            if old == expected {
                target.put_words(new, len);
            }
            true
        })
    }

    /// Calls `act` with bytes of a member while nobody else accumulates there, if that is possible immediately. Returns whether it
    /// was done.
    #[inline(always)]
    fn with_accumulate_lock(
        &self,
        len: usize,
        rank: i32,
        displacement: i64,
        act: impl FnOnce(Piece) -> bool,
    ) -> bool {
        let Some(mapped) = self.mapped_bytes(len as u64, rank, displacement) else { return false };
        let Some(accumulate_lock) = mapped.words.try_lock_accumulate(self.0.owner_word) else { return false };
        // SAFETY: within the member's part, which is mapped here until the window is freed; for as long as this call takes. Test:
        // accumulating_is_atomic.
        let is_done = act(unsafe { Piece::new(mapped.address, len) });
        drop(accumulate_lock);
        self.0.is_ordered.store(AccumulateLock::ORDERS_STORES, Ordering::Relaxed);
        is_done
    }
}

/// An immediate change of an integer, signed or unsigned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IntegerOp {
    /// No change (`MPI_NO_OP`).
    None,
    /// Replacement by the operand.
    Replace,
    /// Addition.
    Add,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
}

impl IntegerOp {
    /// The new value. Of a shorter integer only the lower bytes count, which come first on little-endian hosts.
    #[inline(always)]
    fn apply(self, old: u64, operand: u64) -> Option<u64> {
        Some(match self {
            Self::None => return None,
            Self::Replace => operand,
            Self::Add => old.wrapping_add(operand),
            Self::And => old & operand,
            Self::Or => old | operand,
            Self::Xor => old ^ operand,
        })
    }
}

/// Elements in mapped memory.
pub(super) struct MappedElements<'a> {
    pub(super) address: usize,
    pub(super) words: &'a ControlWords,
}
