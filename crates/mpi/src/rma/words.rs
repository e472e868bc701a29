//! [`Words`]: a member's control block, as another process changes it; and the protocols of its words.
//!
//! A lock is two counts in one word: who has it alone, a process's number and one, in the upper half, and how many share it in the
//! lower one. Whoever wants it shared counts itself first, and takes that back where somebody has it alone.

use std::sync::atomic::{AtomicU64, Ordering};

use host::{Bell, Lock, Span};
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

/// A member's block, as this process reaches it.
pub(super) enum Words {
    /// In memory of this process, or mapped here; and the word of the turn in it.
    Near(Buf, verbs::Words),
    /// By atomics of the device, whose results come into memory that is used again.
    Far { process: u32, at: RemoteAddr, results: Lock<Vec<(Buf, Registration)>> },
    /// By questions, where the device has no atomics.
    Asked(Asking),
}

/// How long the pauses between tries are: the least that many times, then longer and longer.
const TRIES: u32 = 32;
const PAUSE_LEAST: Span = Span::from_us(1);
const PAUSE_MOST: Span = Span::from_us(200);

impl Words {
    /// Those in a block of this process's, or mapped here.
    pub(super) fn near(block: Buf) -> Result<Self> {
        let turn = block.words(TURN, 1)?;
        Ok(Self::Near(block, turn))
    }

    /// Those of a process, by its device.
    pub(super) fn far(process: u32, at: RemoteAddr) -> Self {
        Self::Far { process, at, results: Lock::default() }
    }

    /// Changes a word; what it was.
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

    /// Takes the lock when it is this process's turn.
    ///
    /// # Errors
    /// [`Class::PROC_ABORTED`] when whoever has it is lost.
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
            // Of sharers nobody knows who they are.
            Ok(Try::Taken(match owner {
                0 => members.members().to_vec(),
                owner => vec![owner - 1],
            }))
        })
    }

    /// Gives the lock back, so many times if it is shared.
    pub(super) fn unlock(&self, core: &Core, kind: LockKind, times: u32) -> Result<Begun> {
        let less = match kind {
            LockKind::Exclusive => alone(core.bootstrap().rank()),
            LockKind::Shared => u64::from(times),
        };
        self.begin(core, &Change::Add { word: LOCK, add: less.wrapping_neg() })
    }

    /// Waits until nobody else accumulates into this member's memory, and keeps others from it.
    pub(super) fn take_turn(&self, core: &Core) -> Result<()> {
        let me = alone(core.bootstrap().rank());
        patiently(core, "the turn to accumulate", || {
            let was = self.change(core, &Change::Swap { word: TURN, compare: 0, swap: me })?;
            Ok(if was == 0 { Try::Done } else { Try::Taken(vec![((was >> 32) as u32).wrapping_sub(1)]) })
        })
    }

    /// Takes the turn for a process at once, where it is free and this process reaches the word.
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

    /// Begins to change a word; behind all that was begun by the same device before.
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

    /// Whether a change comes behind all that the device was asked for at this member before.
    pub(super) fn is_behind(&self) -> bool {
        matches!(self, Self::Far { .. })
    }
}

/// A turn that [`Words::turn_at_once`] took; it ends when this is dropped.
pub(super) struct Turn<'a>(&'a AtomicU64);

impl Turn<'_> {
    /// Whether [`Drop`] also orders all that this process stores before with what it loads behind.
    pub(super) const ORDERS: bool = cfg!(target_arch = "x86_64");
}

impl Drop for Turn<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        // Nobody changes it meanwhile: others wait for 0. What was stored in the turn comes before. Where a word that is exchanged
        // orders all memory, the flush behind it needs no fence of its own, and the loads of the next call wait for no second one.
        if Self::ORDERS {
            self.0.swap(0, Ordering::SeqCst);
        } else {
            self.0.store(0, Ordering::Release);
        }
    }
}

/// What a process writes into a word that it has alone.
#[derive(Clone, Copy)]
pub(super) struct Mark(u64);

impl Mark {
    /// That of a process.
    pub(super) fn of(process: u32) -> Self {
        Self(alone(process))
    }
}

/// Bytes that an atomic brings.
const RESULT: usize = 8;

/// Memory for what an atomic at a process brings.
fn new_result(core: &Core, process: u32) -> Result<(Buf, Registration)> {
    let result = Buf::alloc(RESULT)?;
    let address = result.addr() as usize;
    let reach = core.with(|engine| engine.transport.reach(process, address, RESULT, false))?;
    Ok((result, reach))
}

/// The upper half of a lock that a process has alone.
fn alone(process: u32) -> u64 {
    u64::from(process + 1) << 32
}

/// What came of a try.
enum Try {
    Done,
    /// One of these has it.
    Taken(Vec<u32>),
}

/// Tries until it is done, with pauses in which others' messages are answered.
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
        core.host().wait(call, &Bell::new(), Some(until), || {
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
