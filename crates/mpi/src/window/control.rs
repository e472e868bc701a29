//! [`Control`]: a block of words that each member of a window has, by which others keep out of each other's way: the window's lock,
//! and whose turn it is to accumulate. [`Words`] is how a process changes them.
//!
//! A lock is two counts in one word: who has it alone, a process's number and one, in the upper half, and how many share it in the
//! lower one. Whoever wants it shared counts itself first, and takes that back where somebody has it alone.

use std::sync::atomic::Ordering;

use host::{Bell, Lock, Span};
use verbs::{Buf, RemoteAddr, SendOp};

use crate::core::Core;
use crate::error::{Class, Error, Result};
use crate::group::Group;
use crate::nic::Reach;
use crate::window::epoch::LockKind;

/// Where the words are: each in a cache line of its own. Behind them is the directory of a dynamic window.
const LOCK: usize = 0;
const TURN: usize = 64;
pub(super) const DIRECTORY: usize = 128;

/// The block, as its owner has it.
pub(super) struct Control {
    memory: Buf,
}

impl Control {
    /// A block in memory that is zero and aligned to words.
    pub(super) fn new(memory: Buf) -> Result<Self> {
        memory.word(LOCK)?;
        memory.word(TURN)?;
        Ok(Self { memory })
    }

    pub(super) fn buf(&self) -> &Buf {
        &self.memory
    }

    pub(super) fn words(&self) -> Words {
        Words::Near(self.memory.clone())
    }
}

/// A member's block, as another process reaches it.
pub(super) enum Words {
    /// In memory of this process, or mapped here.
    Near(Buf),
    /// By atomics of the device, whose results come into memory that is used again.
    Far { process: u32, at: RemoteAddr, results: Lock<Vec<(Buf, Reach)>> },
    /// Not at all: the device has no atomics.
    None,
}

/// How long the pauses between tries are: the least that many times, then longer and longer.
const TRIES: u32 = 32;
const PAUSE_LEAST: Span = Span::from_us(1);
const PAUSE_MOST: Span = Span::from_us(200);

impl Words {
    /// Those of a process, by its device.
    pub(super) fn far(process: u32, at: RemoteAddr) -> Self {
        Self::Far { process, at, results: Lock::default() }
    }

    /// Adds to a word; what it was.
    fn add(&self, core: &Core, word: usize, add: u64) -> Result<u64> {
        match self {
            Self::Near(block) => Ok(block.word(word)?.fetch_add(add, Ordering::SeqCst)),
            Self::Far { at, .. } => self.ask(core, SendOp::FetchAdd { remote: at.offset(word as u64), add }),
            Self::None => Err(no_atomics()),
        }
    }

    /// Replaces a word, if it is as expected; what it was.
    fn swap(&self, core: &Core, word: usize, compare: u64, swap: u64) -> Result<u64> {
        match self {
            Self::Near(block) => {
                let (found, order) = (block.word(word)?, Ordering::SeqCst);
                Ok(found.compare_exchange(compare, swap, order, order).unwrap_or_else(|found| found))
            }
            Self::Far { at, .. } => {
                let remote = at.offset(word as u64);
                self.ask(core, SendOp::CompareSwap { remote, compare, swap })
            }
            Self::None => Err(no_atomics()),
        }
    }

    /// Has the device change a word, and waits for what it was.
    fn ask(&self, core: &Core, op: SendOp) -> Result<u64> {
        let Self::Far { process, results, .. } = self else { return Err(no_atomics()) };
        let known = results.lock(core.host()).pop();
        let (result, reach) = match known {
            Some(known) => known,
            None => {
                let result = Buf::alloc(8)?;
                let reach = core.with(|engine| {
                    engine.transport.reach(*process, result.addr() as usize, result.len(), false)
                })?;
                (result, reach)
            }
        };
        let piece = reach.sge(result.addr(), 8);
        let begun = core.with(|engine| engine.access(*process, &[(op, piece)], None))?;
        core.finish("a word of a window", begun).ok()?;
        let was = result.word(0)?.load(Ordering::Acquire);
        results.lock(core.host()).push((result, reach));
        Ok(was)
    }

    /// Takes the lock when it is this process's turn.
    ///
    /// # Errors
    /// [`Class::PROC_ABORTED`] when whoever has it is lost.
    pub(super) fn lock(&self, core: &Core, kind: LockKind, members: &Group) -> Result<()> {
        let me = core.bootstrap().rank();
        patiently(core, "MPI_Win_lock", || {
            let was = match kind {
                LockKind::Exclusive => self.swap(core, LOCK, 0, alone(me))?,
                LockKind::Shared => self.add(core, LOCK, 1)?,
            };
            let (owner, sharers) = ((was >> 32) as u32, was as u32);
            if owner == 0 && (kind == LockKind::Shared || sharers == 0) {
                return Ok(Try::Done);
            }
            if kind == LockKind::Shared {
                self.add(core, LOCK, 1_u64.wrapping_neg())?;
            }
            // Of sharers nobody knows who they are.
            Ok(Try::Taken(match owner {
                0 => members.members().to_vec(),
                owner => vec![owner - 1],
            }))
        })
    }

    /// Gives the lock back, so many times if it is shared.
    pub(super) fn unlock(&self, core: &Core, kind: LockKind, times: u32) -> Result<()> {
        let less = match kind {
            LockKind::Exclusive => alone(core.bootstrap().rank()),
            LockKind::Shared => u64::from(times),
        };
        self.add(core, LOCK, less.wrapping_neg()).map(drop)
    }

    /// Does something while nobody else accumulates into this member's memory.
    pub(super) fn in_turn<T>(&self, core: &Core, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let me = alone(core.bootstrap().rank());
        patiently(core, "the turn to accumulate", || {
            let was = self.swap(core, TURN, 0, me)?;
            Ok(if was == 0 { Try::Done } else { Try::Taken(vec![((was >> 32) as u32).wrapping_sub(1)]) })
        })?;
        let done = act();
        self.swap(core, TURN, me, 0)?;
        done
    }
}

fn no_atomics() -> Error {
    let text = "the device has no atomics, and locks and accumulating operations on others' memory need them";
    Error::new(Class::UNSUPPORTED_OPERATION, text)
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
        let lost = |engine: &mut crate::engine::Engine| {
            holders.iter().find_map(|holder| engine.transport.lost(*holder).cloned())
        };
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
