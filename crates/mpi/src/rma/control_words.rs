//! [`ControlWords`]: changes another member's control block, and implements the protocols of its words.
//!
//! A lock combines two counts in one word: the upper half is the exclusive holder's process number plus one, the lower half is the
//! number of sharers. A process that wants to share it adds itself first, and undoes that if the lock is held exclusively.

use std::sync::atomic::{AtomicU64, Ordering};

use host::{EventCount, Lock, Span};
use verbs::{Buf, RemoteAddr};

use crate::comm::group::Group;
use crate::core::Core;
use crate::error::{Class, Error, Result};
use crate::memory::Buffer;
use crate::p2p::engine::{Engine, Started};
use crate::p2p::operation::RdmaBuffer;
use crate::rma::control::{ACCUMULATE_LOCK, LOCK, WordChange};
use crate::rma::control_messages::ControlClient;
use crate::rma::epoch::LockKind;
use crate::status::Status;
use transport::Registration;

/// Access to a member's control block.
pub(super) enum ControlWords {
    /// In memory of this process, or mapped here; with the word of the accumulate lock in it.
    Mapped(Buf, verbs::Words),
    /// By atomics of the device. Their results are stored in buffers that are reused.
    Remote { process: u32, at: RemoteAddr, results: Lock<Vec<(Buf, Registration)>> },
    /// By request messages, where the device has no atomics.
    ByMessage(ControlClient),
}

/// Pauses between attempts: the shortest pause for the first `SHORT_PAUSES` attempts, then longer ones.
const SHORT_PAUSES: u32 = 32;
const PAUSE_MIN: Span = Span::from_us(1);
const PAUSE_MAX: Span = Span::from_us(200);

impl ControlWords {
    /// Words in a block of this process, or mapped here.
    pub(super) fn mapped(block: Buf) -> Result<Self> {
        let accumulate_lock = block.words(ACCUMULATE_LOCK, 1)?;
        Ok(Self::Mapped(block, accumulate_lock))
    }

    /// Words of a process, changed by its device.
    pub(super) fn remote(process: u32, at: RemoteAddr) -> Self {
        Self::Remote { process, at, results: Lock::default() }
    }

    /// Changes a word. Returns the former value.
    fn change(&self, core: &Core, change: &WordChange) -> Result<u64> {
        match self {
            Self::Mapped(block, _) => change.execute(block),
            Self::ByMessage(client) => client.change_word(core, change),
            Self::Remote { process, at, results } => {
                let known = results.lock(core.host()).pop();
                let (result, registration) = known.map_or_else(|| new_result(core, *process), Ok)?;
                let request = (change.send_op(*at), registration.sge(result.addr(), RESULT as u32));
                let started = core.with(|engine| engine.start_rdma(*process, &[request], None))?;
                core.finish("a word of a window", started).ok()?;
                let old = result.word(0)?.load(Ordering::Acquire);
                results.lock(core.host()).push((result, registration));
                Ok(old)
            }
        }
    }

    /// Takes the lock, and waits until it is available.
    ///
    /// # Errors
    /// [`Class::PROC_ABORTED`] when its holder is lost.
    pub(super) fn lock(&self, core: &Core, kind: LockKind, members: &Group) -> Result<()> {
        let me = core.bootstrap().rank();
        retry_until_acquired(core, "MPI_Win_lock", || {
            let old = match kind {
                LockKind::Exclusive => {
                    self.change(core, &WordChange::Swap { word: LOCK, compare: 0, swap: exclusive_word(me) })?
                }
                LockKind::Shared => self.change(core, &WordChange::Add { word: LOCK, add: 1 })?,
            };
            let (owner, sharers) = ((old >> 32) as u32, old as u32);
            if owner == 0 && (kind == LockKind::Shared || sharers == 0) {
                return Ok(LockAttempt::Acquired);
            }
            if kind == LockKind::Shared {
                self.change(core, &WordChange::Add { word: LOCK, add: 1_u64.wrapping_neg() })?;
            }
            // The identity of sharers is not recorded.
            Ok(LockAttempt::HeldBy(match owner {
                0 => members.members().to_vec(),
                owner => vec![owner - 1],
            }))
        })
    }

    /// Releases the lock, `times` times if it is shared.
    pub(super) fn unlock(&self, core: &Core, kind: LockKind, times: u32) -> Result<Started> {
        let less = match kind {
            LockKind::Exclusive => exclusive_word(core.bootstrap().rank()),
            LockKind::Shared => u64::from(times),
        };
        self.start_change(core, &WordChange::Add { word: LOCK, add: less.wrapping_neg() })
    }

    /// Waits until nobody else accumulates into this member's memory, and excludes others from it.
    pub(super) fn lock_accumulate(&self, core: &Core) -> Result<()> {
        let me = exclusive_word(core.bootstrap().rank());
        retry_until_acquired(core, "the accumulate lock", || {
            let old = self.change(core, &WordChange::Swap { word: ACCUMULATE_LOCK, compare: 0, swap: me })?;
            Ok(if old == 0 {
                LockAttempt::Acquired
            } else {
                LockAttempt::HeldBy(vec![((old >> 32) as u32).wrapping_sub(1)])
            })
        })
    }

    /// Takes the accumulate lock for a process without waiting, if it is free and this process has the word mapped.
    #[inline(always)]
    pub(super) fn try_lock_accumulate(&self, me: OwnerWord) -> Option<AccumulateLock<'_>> {
        let Self::Mapped(_, words) = self else { return None };
        let accumulate_lock = words.first()?;
        accumulate_lock.compare_exchange(0, me.0, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        Some(AccumulateLock(accumulate_lock))
    }

    /// Lets others accumulate again.
    pub(super) fn unlock_accumulate(&self, core: &Core) -> Result<Started> {
        let me = exclusive_word(core.bootstrap().rank());
        self.start_change(core, &WordChange::Swap { word: ACCUMULATE_LOCK, compare: me, swap: 0 })
    }

    /// Starts to change a word, after all earlier operations of the same device.
    fn start_change(&self, core: &Core, change: &WordChange) -> Result<Started> {
        let Self::Remote { process, at, .. } = self else {
            return self.change(core, change).map(|_| Started::Completed(Status::empty()));
        };
        let buffer = Buffer::from_bytes(&[0; RESULT])?;
        let (address, _) = buffer.contiguous_range().unwrap_or_default();
        core.with(|engine| {
            let registration = engine.transport.reach(*process, address, RESULT, false)?;
            let request = (change.send_op(*at), registration.sge(address as u64, RESULT as u32));
            let rdma_buffer =
                RdmaBuffer { buffer, staging: None, is_read: false, _registration: registration };
            engine.start_rdma(*process, &[request], Some(rdma_buffer))
        })
    }

    /// Whether a change is ordered after all earlier operations of the device at this member.
    pub(super) fn orders_after_rdma(&self) -> bool {
        matches!(self, Self::Remote { .. })
    }
}

/// The accumulate lock, taken by [`ControlWords::try_lock_accumulate`]; dropping it releases the lock.
pub(super) struct AccumulateLock<'a>(&'a AtomicU64);

impl AccumulateLock<'_> {
    /// Whether [`Drop`] also orders all earlier stores of this process before its later loads.
    pub(super) const ORDERS_STORES: bool = cfg!(target_arch = "x86_64");
}

impl Drop for AccumulateLock<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Nobody changes the word meanwhile: others wait for 0. Stores under the lock are ordered before this. Where an atomic
        // exchange is a full barrier, the next flush needs no fence of its own, and the loads of the next call do not wait for a
        // second one.
        if Self::ORDERS_STORES {
            self.0.swap(0, Ordering::SeqCst);
        } else {
            self.0.store(0, Ordering::Release);
        }
    }
}

/// The value that a process writes into a word that it holds exclusively.
#[derive(Clone, Copy)]
pub(super) struct OwnerWord(u64);

impl OwnerWord {
    /// The word of a process.
    pub(super) fn new(process: u32) -> Self {
        Self(exclusive_word(process))
    }
}

/// Bytes of an atomic's result.
const RESULT: usize = 8;

/// Memory for the result of an atomic at a process.
fn new_result(core: &Core, process: u32) -> Result<(Buf, Registration)> {
    let result = Buf::alloc(RESULT)?;
    let address = result.addr() as usize;
    let registration = core.with(|engine| engine.transport.reach(process, address, RESULT, false))?;
    Ok((result, registration))
}

/// The lock word of an exclusive holder.
fn exclusive_word(process: u32) -> u64 {
    u64::from(process + 1) << 32
}

/// The result of an attempt.
enum LockAttempt {
    Acquired,
    /// Another process holds it, one from this list.
    HeldBy(Vec<u32>),
}

/// Repeats an attempt until it succeeds, with pauses in which others' messages are served.
fn retry_until_acquired(
    core: &Core,
    call: &'static str,
    mut attempt: impl FnMut() -> Result<LockAttempt>,
) -> Result<()> {
    let (mut attempts, mut pause) = (0, PAUSE_MIN);
    loop {
        let LockAttempt::HeldBy(holders) = attempt()? else { return Ok(()) };
        let lost =
            |engine: &mut Engine| holders.iter().find_map(|holder| engine.transport.lost(*holder).cloned());
        if let Some(error) = core.with(lost) {
            return Err(error);
        }
        let until = core.host().now() + pause;
        core.host().wait(call, &EventCount::new(), Some(until), || {
            core.with(|engine| {
                engine.progress(false);
                None::<()>
            })
        });
        if core.host().now() < until {
            return Err(Error::new(Class::OTHER, format_args!("the world ended during {call}")));
        }
        attempts += 1;
        if attempts > SHORT_PAUSES {
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process's upper half of a lock is never 0, and never another's.
    #[test]
    fn owners_have_words_of_their_own() {
        for process in [0, 1, 7, u32::MAX - 1] {
            assert_eq!((exclusive_word(process) >> 32) as u32 - 1, process);
            assert_eq!(exclusive_word(process) as u32, 0);
        }
    }
}
