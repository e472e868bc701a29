//! [`Epochs`]: which operations a window's epochs allow: between fences, from start to complete, under locks (MPI 5.0, section
//! 12.5).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Class, Error, Result};

/// How a member's memory is locked (`MPI_Win_lock`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Only one process holds the lock.
    Exclusive,
    /// Any number of processes share the lock.
    Shared,
}

/// The assertions of a synchronization call, as a sum of the standard ABI's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Assert(i32);

impl Assert {
    /// No other process does anything that this call would have to wait for.
    pub const NOCHECK: Self = Self(1024);
    /// No operation of this process precedes the call.
    pub const NOPRECEDE: Self = Self(2048);
    /// No other process puts into this process's memory after the call.
    pub const NOPUT: Self = Self(4096);
    /// This process has not stored into its memory before the call.
    pub const NOSTORE: Self = Self(8192);
    /// No operation of this process follows the call.
    pub const NOSUCCEED: Self = Self(16384);

    /// Checks a program's assertions against those that the call accepts.
    ///
    /// # Errors
    /// [`Class::ASSERT`] for others.
    pub fn new(number: i32, known: &[Self]) -> Result<Self> {
        let all = known.iter().fold(0, |all, one| all | one.0);
        if number & !all != 0 {
            return Err(Error::new(
                Class::ASSERT,
                format_args!("{number} has assertions that this call does not accept"),
            ));
        }
        Ok(Self(number))
    }

    /// Whether it includes this assertion.
    pub fn has(self, one: Self) -> bool {
        self.0 & one.0 != 0
    }
}

/// The epoch in which this process may access others' memory.
#[derive(Debug, Default)]
enum AccessEpoch {
    #[default]
    None,
    /// After a fence; whether an operation was started since.
    Fence { is_used: bool },
    /// On these ranks, after `MPI_Win_start`.
    Start(Vec<i32>),
    /// On locked ranks. `None` means that no lock was taken, because the program asserted `MPI_MODE_NOCHECK`.
    Locks(BTreeMap<i32, Option<LockKind>>),
    /// On all ranks. Each is locked before the first operation on it; `held` counts the shared locks.
    All { is_checked: bool, held: BTreeMap<i32, u32> },
}

/// A process's open epochs: its access to others' memory, and others' access to its own.
#[derive(Debug, Default)]
pub(super) struct Epochs {
    access: AccessEpoch,
    /// Others may access this process's memory, between post and wait.
    exposed: bool,
}

/// The current access epoch's number, for fast checks: an operation allowed once in an epoch is allowed until it ends. The lowest
/// bit is set in a lock epoch.
#[derive(Debug, Default)]
pub(super) struct EpochNumber(AtomicU64);

/// The number of the last epoch in which an operation on a member was allowed, and its memory was mapped here.
#[derive(Debug)]
pub(super) struct AccessGrant(AtomicU64);

const PASSIVE: u64 = 1;

impl Default for AccessGrant {
    fn default() -> Self {
        Self(AtomicU64::new(u64::MAX))
    }
}

impl EpochNumber {
    /// The number that a new grant gets.
    #[inline]
    pub(super) fn current(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Starts the next number when an epoch begins or ends. Called under the lock of the epochs.
    pub(super) fn advance(&self, epochs: &Epochs) {
        let passive = if epochs.check_passive().is_ok() { PASSIVE } else { 0 };
        self.0.store((self.current() | PASSIVE) + 1 + passive, Ordering::Relaxed);
    }

    /// Whether the grant is valid in the current epoch.
    #[inline]
    pub(super) fn is_granted(&self, grant: &AccessGrant) -> bool {
        grant.0.load(Ordering::Relaxed) == self.current()
    }

    /// Whether the grant is valid, and the epoch is a lock epoch.
    #[inline]
    pub(super) fn is_granted_in_lock_epoch(&self, grant: &AccessGrant) -> bool {
        self.is_granted(grant) && self.current() & PASSIVE != 0
    }
}

impl AccessGrant {
    /// Makes the grant valid in the epoch of this number.
    pub(super) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Relaxed);
    }
}

/// What must happen before an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BeforeOp {
    Nothing,
    /// The target's shared lock must be taken first.
    TakeLock,
}

fn sync_error(text: &str) -> Error {
    Error::new(Class::RMA_SYNC, text)
}

impl Epochs {
    /// Checks an operation on a rank, and records it.
    pub(super) fn check_operation(&mut self, rank: i32) -> Result<BeforeOp> {
        match &mut self.access {
            AccessEpoch::Fence { is_used } => {
                *is_used = true;
                Ok(BeforeOp::Nothing)
            }
            AccessEpoch::Start(ranks) if ranks.contains(&rank) => Ok(BeforeOp::Nothing),
            AccessEpoch::Locks(locks) if locks.contains_key(&rank) => Ok(BeforeOp::Nothing),
            AccessEpoch::All { is_checked, held } => Ok(if *is_checked && !held.contains_key(&rank) {
                BeforeOp::TakeLock
            } else {
                BeforeOp::Nothing
            }),
            AccessEpoch::None => {
                Err(sync_error("no epoch is open; call MPI_Win_fence, MPI_Win_start or MPI_Win_lock first"))
            }
            AccessEpoch::Start(_) => Err(sync_error("the target is not in the group of MPI_Win_start")),
            AccessEpoch::Locks(_) => Err(sync_error("the target is not locked")),
        }
    }

    /// As [`Epochs::check_operation`], for operations that are allowed only in lock epochs.
    pub(super) fn check_lock_epoch_operation(&mut self, rank: i32) -> Result<BeforeOp> {
        self.check_passive()?;
        self.check_operation(rank)
    }

    /// Checks a flush, which is allowed only in lock epochs. A given rank must be locked.
    pub(super) fn check_flush(&self, rank: Option<i32>) -> Result<()> {
        self.check_passive()?;
        match (&self.access, rank) {
            (AccessEpoch::Locks(locks), Some(rank)) if !locks.contains_key(&rank) => {
                Err(sync_error("the target is not locked"))
            }
            _ => Ok(()),
        }
    }

    fn check_passive(&self) -> Result<()> {
        match self.access {
            AccessEpoch::Locks(_) | AccessEpoch::All { .. } => Ok(()),
            _ => Err(sync_error("this call needs an epoch of MPI_Win_lock or MPI_Win_lock_all")),
        }
    }

    /// Records that a rank was locked because [`Epochs::check_operation`] returned [`BeforeOp::TakeLock`].
    pub(super) fn record_lazy_lock(&mut self, rank: i32) {
        if let AccessEpoch::All { held, .. } = &mut self.access {
            *held.entry(rank).or_default() += 1;
        }
    }

    /// Records a fence; `succeeds` if operations follow it.
    pub(super) fn fence(&mut self, succeeds: bool) -> Result<()> {
        match self.access {
            AccessEpoch::None | AccessEpoch::Fence { .. } if !self.exposed => {
                self.access =
                    if succeeds { AccessEpoch::Fence { is_used: false } } else { AccessEpoch::None };
                Ok(())
            }
            _ => Err(sync_error("MPI_Win_fence is not allowed before the end of a start, a post or a lock")),
        }
    }

    /// Checks that no epoch is open, except a fence epoch without operations.
    fn check_idle(&self) -> Result<()> {
        match self.access {
            AccessEpoch::None | AccessEpoch::Fence { is_used: false } => Ok(()),
            AccessEpoch::Fence { .. } => Err(sync_error(
                "the operations since the last fence must be completed by another fence first",
            )),
            _ => Err(sync_error("another epoch is open; end it first")),
        }
    }

    /// Opens an epoch on these ranks.
    pub(super) fn start(&mut self, ranks: Vec<i32>) -> Result<()> {
        self.check_idle()?;
        self.access = AccessEpoch::Start(ranks);
        Ok(())
    }

    /// Whether the open epoch was opened by a start.
    pub(super) fn is_started(&self) -> bool {
        matches!(self.access, AccessEpoch::Start(_))
    }

    /// Closes the epoch of a start. Returns its ranks.
    pub(super) fn complete(&mut self) -> Result<Vec<i32>> {
        match std::mem::take(&mut self.access) {
            AccessEpoch::Start(ranks) => Ok(ranks),
            other => {
                self.access = other;
                Err(sync_error("MPI_Win_start was not called"))
            }
        }
    }

    /// Exposes this process's memory to others.
    pub(super) fn post(&mut self) -> Result<()> {
        if self.exposed {
            return Err(sync_error("MPI_Win_wait was not called for the last MPI_Win_post"));
        }
        self.exposed = true;
        Ok(())
    }

    /// Checks that the memory is exposed.
    pub(super) fn check_posted(&self) -> Result<()> {
        if self.exposed { Ok(()) } else { Err(sync_error("MPI_Win_post was not called")) }
    }

    /// Ends the exposure.
    pub(super) fn end_exposure(&mut self) {
        self.exposed = false;
    }

    /// Checks that a rank may be locked.
    pub(super) fn check_lock(&self, rank: i32) -> Result<()> {
        match &self.access {
            AccessEpoch::Locks(locks) if locks.contains_key(&rank) => {
                Err(sync_error("the target is locked already"))
            }
            AccessEpoch::Locks(_) => Ok(()),
            _ => self.check_idle(),
        }
    }

    /// Records that a rank was locked.
    pub(super) fn record_lock(&mut self, rank: i32, kind: Option<LockKind>) {
        match &mut self.access {
            AccessEpoch::Locks(locks) => {
                locks.insert(rank, kind);
            }
            access => *access = AccessEpoch::Locks(BTreeMap::from([(rank, kind)])),
        }
    }

    /// Checks that a rank is locked.
    pub(super) fn check_unlock(&self, rank: i32) -> Result<()> {
        match &self.access {
            AccessEpoch::Locks(locks) if locks.contains_key(&rank) => Ok(()),
            _ => Err(sync_error("the target is not locked")),
        }
    }

    /// Records that a rank was unlocked. Returns the kind of its lock.
    pub(super) fn unlock(&mut self, rank: i32) -> Option<LockKind> {
        let AccessEpoch::Locks(locks) = &mut self.access else { return None };
        let kind = locks.remove(&rank).flatten();
        if locks.is_empty() {
            self.access = AccessEpoch::None;
        }
        kind
    }

    /// Opens an epoch in which ranks are locked on first use.
    pub(super) fn lock_all(&mut self, is_checked: bool) -> Result<()> {
        self.check_idle()?;
        self.access = AccessEpoch::All { is_checked, held: BTreeMap::new() };
        Ok(())
    }

    /// Checks that this epoch is open.
    pub(super) fn check_unlock_all(&self) -> Result<()> {
        match self.access {
            AccessEpoch::All { .. } => Ok(()),
            _ => Err(sync_error("MPI_Win_lock_all was not called")),
        }
    }

    /// Closes this epoch. Returns the locked ranks, and how often each was locked.
    pub(super) fn unlock_all(&mut self) -> BTreeMap<i32, u32> {
        match std::mem::take(&mut self.access) {
            AccessEpoch::All { held, .. } => held,
            other => {
                self.access = other;
                BTreeMap::new()
            }
        }
    }

    /// Checks that the window may be freed: no epoch is open, except a fence epoch.
    pub(super) fn check_free(&self) -> Result<()> {
        match self.access {
            AccessEpoch::None | AccessEpoch::Fence { .. } if !self.exposed => Ok(()),
            _ => Err(sync_error("an epoch is open; end it before the window is freed")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(result: Result<impl Sized>) -> Class {
        result.err().map_or(Class::SUCCESS, |error| error.class)
    }

    #[test]
    fn operations_outside_of_their_epoch_are_errors() {
        let mut epochs = Epochs::default();
        assert_eq!(class(epochs.check_operation(0)), Class::RMA_SYNC);
        epochs.fence(true).expect("at any time");
        assert_eq!(epochs.check_operation(3), Ok(BeforeOp::Nothing));
        assert_eq!(class(epochs.check_lock_epoch_operation(3)), Class::RMA_SYNC);
        assert_eq!(class(epochs.check_lock(1)), Class::RMA_SYNC, "it has operated since the fence");
        epochs.fence(true).expect("again");
        epochs.start(vec![1, 2]).expect("nothing happened behind the fence");
        assert_eq!(
            (epochs.check_operation(1), class(epochs.check_operation(0))),
            (Ok(BeforeOp::Nothing), Class::RMA_SYNC)
        );
        assert_eq!(class(epochs.fence(true)), Class::RMA_SYNC);
        assert_eq!(class(epochs.lock_all(true)), Class::RMA_SYNC);
        assert_eq!(epochs.complete(), Ok(vec![1, 2]));
        assert_eq!(class(epochs.complete()), Class::RMA_SYNC);
        epochs.fence(false).expect("at any time");
        assert_eq!(class(epochs.check_operation(0)), Class::RMA_SYNC, "nothing succeeds");
    }

    #[test]
    fn locks_are_per_target_or_of_all() {
        let mut epochs = Epochs::default();
        epochs.check_lock(1).expect("free");
        epochs.record_lock(1, Some(LockKind::Exclusive));
        assert_eq!(class(epochs.check_lock(1)), Class::RMA_SYNC);
        epochs.check_lock(2).expect("another one");
        epochs.record_lock(2, None);
        assert_eq!(
            (epochs.check_operation(2), class(epochs.check_operation(0))),
            (Ok(BeforeOp::Nothing), Class::RMA_SYNC)
        );
        assert_eq!(
            (class(epochs.check_flush(Some(0))), epochs.check_flush(Some(1)), epochs.check_flush(None)),
            (Class::RMA_SYNC, Ok(()), Ok(()))
        );
        assert_eq!(class(epochs.check_free()), Class::RMA_SYNC);
        assert_eq!(class(epochs.check_unlock(0)), Class::RMA_SYNC);
        assert_eq!((epochs.unlock(1), epochs.unlock(2)), (Some(LockKind::Exclusive), None));
        assert_eq!(class(epochs.check_flush(None)), Class::RMA_SYNC);
        epochs.lock_all(true).expect("free again");
        assert_eq!(epochs.check_operation(5), Ok(BeforeOp::TakeLock));
        epochs.record_lazy_lock(5);
        assert_eq!(epochs.check_lock_epoch_operation(5), Ok(BeforeOp::Nothing));
        assert_eq!(class(epochs.check_unlock(5)), Class::RMA_SYNC);
        assert_eq!(epochs.unlock_all(), BTreeMap::from([(5, 1)]));
        assert_eq!(class(epochs.check_unlock_all()), Class::RMA_SYNC);
        epochs.lock_all(false).expect("free again");
        assert_eq!(epochs.check_operation(5), Ok(BeforeOp::Nothing), "no check is needed");
    }

    #[test]
    fn second_post_before_wait_is_an_error() {
        let mut epochs = Epochs::default();
        assert_eq!(class(epochs.check_posted()), Class::RMA_SYNC);
        epochs.post().expect("the first");
        assert_eq!(class(epochs.post()), Class::RMA_SYNC);
        assert_eq!(
            (class(epochs.fence(true)), class(epochs.check_free())),
            (Class::RMA_SYNC, Class::RMA_SYNC)
        );
        epochs.start(vec![0]).expect("both may be open");
        epochs.end_exposure();
        epochs.complete().expect("started");
        epochs.check_free().expect("all has ended");
    }

    #[test]
    fn grants_end_with_their_epoch() {
        let (mut epochs, number, grant) = (Epochs::default(), EpochNumber::default(), AccessGrant::default());
        assert!(!number.is_granted(&grant), "nothing was granted yet");
        for is_passive in [false, true, true, false, false] {
            epochs = Epochs::default();
            if is_passive {
                epochs.lock_all(true).expect("no epoch is open");
            }
            number.advance(&epochs);
            assert!(!number.is_granted(&grant), "granted in the epoch before");
            grant.set(number.current());
            assert!(number.is_granted(&grant));
            assert_eq!(number.is_granted_in_lock_epoch(&grant), is_passive);
        }
        assert_eq!(class(epochs.check_operation(0)), Class::RMA_SYNC, "and the epochs say so, too");
    }

    #[test]
    fn unknown_assertions_are_errors() {
        let known = [Assert::NOCHECK, Assert::NOPUT];
        let both = Assert::new(1024 + 4096, &known).expect("known");
        assert!(both.has(Assert::NOCHECK) && both.has(Assert::NOPUT) && !both.has(Assert::NOSTORE));
        assert_eq!(class(Assert::new(1, &known)), Class::ASSERT);
        assert_eq!(class(Assert::new(8192, &known)), Class::ASSERT);
    }
}
