//! [`Words`]: changes another member's control block, and implements the protocols of its words.
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
use crate::p2p::engine::{Begun, Engine};
use crate::p2p::operation::Lent;
use crate::rma::control::{Change, LOCK, TURN};
use crate::rma::epoch::LockKind;
use crate::rma::served::Asking;
use crate::status::Status;
use transport::Registration;

/// Access to a member's control block.
pub(super) enum Words {
    /// In memory of this process, or mapped here; with the word of the turn in it.
    Near(Buf, verbs::Words),
    /// By atomics of the device. Their results are stored in buffers that are reused.
    Far { process: u32, at: RemoteAddr, results: Lock<Vec<(Buf, Registration)>> },
    /// By request messages, where the device has no atomics.
    Asked(Asking),
}

/// Pauses between attempts: the shortest pause for the first `TRIES` attempts, then longer ones.
const TRIES: u32 = 32;
const PAUSE_LEAST: Span = Span::from_us(1);
const PAUSE_MOST: Span = Span::from_us(200);

impl Words {
    /// Words in a block of this process, or mapped here.
    pub(super) fn near(block: Buf) -> Result<Self> {
        let turn = block.words(TURN, 1)?;
        Ok(Self::Near(block, turn))
    }

    /// Words of a process, changed by its device.
    pub(super) fn far(process: u32, at: RemoteAddr) -> Self {
        Self::Far { process, at, results: Lock::default() }
    }

    /// Changes a word. Returns the former value.
    fn change(&self, core: &Core, change: &Change) -> Result<u64> {
        match self {
            Self::Near(block, _) => change.carry_out(block),
            Self::Asked(asking) => asking.ask(core, change),
            Self::Far { process, at, results } => {
                let known = results.lock(core.host()).pop();
                let (result, reach) = known.map_or_else(|| new_result(core, *process), Ok)?;
                let request = (change.op(*at), reach.sge(result.addr(), RESULT as u32));
                let begun = core.with(|engine| engine.access(*process, &[request], None))?;
                core.finish("a word of a window", begun).ok()?;
                let was = result.word(0)?.load(Ordering::Acquire);
                results.lock(core.host()).push((result, reach));
                Ok(was)
            }
        }
    }

    /// Takes the lock, and waits until it is available.
    ///
    /// # Errors
    /// [`Class::PROC_ABORTED`] when its holder is lost.
    pub(super) fn lock(&self, core: &Core, kind: LockKind, members: &Group) -> Result<()> {
        let me = core.bootstrap().rank();
        patiently(core, "MPI_Win_lock", || {
            let was = match kind {
                LockKind::Exclusive => {
                    self.change(core, &Change::Swap { word: LOCK, compare: 0, swap: alone(me) })?
                }
                LockKind::Shared => self.change(core, &Change::Add { word: LOCK, add: 1 })?,
            };
            let (owner, sharers) = ((was >> 32) as u32, was as u32);
            if owner == 0 && (kind == LockKind::Shared || sharers == 0) {
                return Ok(Try::Done);
            }
            if kind == LockKind::Shared {
                self.change(core, &Change::Add { word: LOCK, add: 1_u64.wrapping_neg() })?;
            }
            // The identity of sharers is not recorded.
            Ok(Try::Taken(match owner {
                0 => members.members().to_vec(),
                owner => vec![owner - 1],
            }))
        })
    }

    /// Releases the lock, `times` times if it is shared.
    pub(super) fn unlock(&self, core: &Core, kind: LockKind, times: u32) -> Result<Begun> {
        let less = match kind {
            LockKind::Exclusive => alone(core.bootstrap().rank()),
            LockKind::Shared => u64::from(times),
        };
        self.begin(core, &Change::Add { word: LOCK, add: less.wrapping_neg() })
    }

    /// Waits until nobody else accumulates into this member's memory, and excludes others from it.
    pub(super) fn take_turn(&self, core: &Core) -> Result<()> {
        let me = alone(core.bootstrap().rank());
        patiently(core, "the turn to accumulate", || {
            let was = self.change(core, &Change::Swap { word: TURN, compare: 0, swap: me })?;
            Ok(if was == 0 { Try::Done } else { Try::Taken(vec![((was >> 32) as u32).wrapping_sub(1)]) })
        })
    }

    /// Takes the turn for a process without waiting, if it is free and this process has the word mapped.
    #[inline(always)]
    pub(super) fn turn_at_once(&self, me: Mark) -> Option<Turn<'_>> {
        let Self::Near(_, words) = self else { return None };
        let turn = words.first()?;
        turn.compare_exchange(0, me.0, Ordering::SeqCst, Ordering::Relaxed).ok()?;
        Some(Turn(turn))
    }

    /// Lets others accumulate again.
    pub(super) fn end_turn(&self, core: &Core) -> Result<Begun> {
        let me = alone(core.bootstrap().rank());
        self.begin(core, &Change::Swap { word: TURN, compare: me, swap: 0 })
    }

    /// Starts to change a word, after all earlier operations of the same device.
    fn begin(&self, core: &Core, change: &Change) -> Result<Begun> {
        let Self::Far { process, at, .. } = self else {
            return self.change(core, change).map(|_| Begun::Over(Status::empty()));
        };
        let buffer = Buffer::own(&[0; RESULT])?;
        let (address, _) = buffer.one_piece().unwrap_or_default();
        core.with(|engine| {
            let reach = engine.transport.reach(*process, address, RESULT, false)?;
            let request = (change.op(*at), reach.sge(address as u64, RESULT as u32));
            let lent = Lent { buffer, staging: None, is_read: false, _reach: reach };
            engine.access(*process, &[request], Some(lent))
        })
    }

    /// Whether a change is ordered after all earlier operations of the device at this member.
    pub(super) fn is_behind(&self) -> bool {
        matches!(self, Self::Far { .. })
    }
}

/// A turn taken by [`Words::turn_at_once`]; dropping it ends the turn.
pub(super) struct Turn<'a>(&'a AtomicU64);

impl Turn<'_> {
    /// Whether [`Drop`] also orders all earlier stores of this process before its later loads.
    pub(super) const ORDERS: bool = cfg!(target_arch = "x86_64");
}

impl Drop for Turn<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Nobody changes the word meanwhile: others wait for 0. Stores of the turn are ordered before this. Where an atomic
        // exchange is a full barrier, the next flush needs no fence of its own, and the loads of the next call do not wait for a
        // second one.
        if Self::ORDERS {
            self.0.swap(0, Ordering::SeqCst);
        } else {
            self.0.store(0, Ordering::Release);
        }
    }
}

/// The value that a process writes into a word that it holds exclusively.
#[derive(Clone, Copy)]
pub(super) struct Mark(u64);

impl Mark {
    /// The mark of a process.
    pub(super) fn of(process: u32) -> Self {
        Self(alone(process))
    }
}

/// Bytes of an atomic's result.
const RESULT: usize = 8;

/// Memory for the result of an atomic at a process.
fn new_result(core: &Core, process: u32) -> Result<(Buf, Registration)> {
    let result = Buf::alloc(RESULT)?;
    let address = result.addr() as usize;
    let reach = core.with(|engine| engine.transport.reach(process, address, RESULT, false))?;
    Ok((result, reach))
}

/// The lock word of an exclusive holder.
fn alone(process: u32) -> u64 {
    u64::from(process + 1) << 32
}

/// The result of an attempt.
enum Try {
    Done,
    /// Another process holds it, one from this list.
    Taken(Vec<u32>),
}

/// Repeats an attempt until it succeeds, with pauses in which others' messages are served.
fn patiently(core: &Core, call: &'static str, mut attempt: impl FnMut() -> Result<Try>) -> Result<()> {
    let (mut tries, mut pause) = (0, PAUSE_LEAST);
    loop {
        let Try::Taken(holders) = attempt()? else { return Ok(()) };
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
        tries += 1;
        if tries > TRIES {
            pause = (pause * 2).min(PAUSE_MOST);
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
            assert_eq!((alone(process) >> 32) as u32 - 1, process);
            assert_eq!(alone(process) as u32, 0);
        }
    }
}
