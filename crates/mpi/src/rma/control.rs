//! [`Control`]: a block of words at each member of a window, which synchronizes the others: the window's lock, and the
//! accumulate lock. A [`WordChange`] of a word is executed by the processor, by a device, or by the member itself, which gets a request
//! message.

use std::sync::atomic::Ordering;

use verbs::{Buf, RemoteAddr, SendOp};

use crate::error::Result;

/// Offsets of the words: each has its own cache line. The directory of a dynamic window follows them.
pub(super) const LOCK: usize = 0;
pub(super) const ACCUMULATE_LOCK: usize = 64;
pub(super) const DIRECTORY: usize = 128;

/// An atomic change of a word, which returns the former value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WordChange {
    /// Wrapping addition.
    Add { word: usize, add: u64 },
    /// Replacement if the word has the expected value.
    Swap { word: usize, compare: u64, swap: u64 },
}

/// Bytes of a [`WordChange`] in a message: its kind, the word, and two operands.
pub(super) const CHANGE_LEN: usize = 32;
const ADD: u64 = 1;
const SWAP: u64 = 2;

impl WordChange {
    /// The change as a device's atomic operation on the block at an address.
    pub(super) fn send_op(&self, block: RemoteAddr) -> SendOp {
        match *self {
            Self::Add { word, add } => SendOp::FetchAdd { remote: block.offset(word as u64), add },
            Self::Swap { word, compare, swap } => {
                SendOp::CompareSwap { remote: block.offset(word as u64), compare, swap }
            }
        }
    }

    /// Executes the change by the processor.
    pub(super) fn execute(&self, block: &Buf) -> Result<u64> {
        let order = Ordering::SeqCst;
        Ok(match *self {
            Self::Add { word, add } => block.word(word)?.fetch_add(add, order),
            Self::Swap { word, compare, swap } => {
                block.word(word)?.compare_exchange(compare, swap, order, order).unwrap_or_else(|found| found)
            }
        })
    }

    /// The change encoded as a request.
    pub(super) fn bytes(&self) -> [u8; CHANGE_LEN] {
        let words = match *self {
            Self::Add { word, add } => [ADD, word as u64, 0, add],
            Self::Swap { word, compare, swap } => [SWAP, word as u64, compare, swap],
        };
        let mut bytes = [0; CHANGE_LEN];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_le_bytes()));
        bytes
    }

    /// Decodes a request; `None` if it is malformed.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; CHANGE_LEN] = bytes.try_into().ok()?;
        let word = |at: usize| bytes[at..at + 8].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let (kind, place, compare, operand) = (word(0), word(8) as usize, word(16), word(24));
        match kind {
            _ if ![LOCK, ACCUMULATE_LOCK].contains(&place) => None,
            ADD => Some(Self::Add { word: place, add: operand }),
            SWAP => Some(Self::Swap { word: place, compare, swap: operand }),
            _ => None,
        }
    }
}

/// The control block at its owner.
pub(super) struct Control {
    memory: Buf,
}

impl Control {
    /// Creates it in memory that is zero and aligned to words.
    pub(super) fn new(memory: Buf) -> Result<Self> {
        memory.word(LOCK)?;
        memory.word(ACCUMULATE_LOCK)?;
        Ok(Self { memory })
    }

    pub(super) fn buf(&self) -> &Buf {
        &self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn word_change_roundtrip_keeps_its_effect() {
        let block = Buf::alloc(DIRECTORY).expect("memory");
        let add = WordChange::Add { word: ACCUMULATE_LOCK, add: 5 };
        let swap = WordChange::Swap { word: ACCUMULATE_LOCK, compare: 5, swap: 9 };
        for (change, old) in [(add, 0), (swap, 5), (swap, 9), (add, 9)] {
            let origins = WordChange::parse(&change.bytes()).expect("a change");
            assert_eq!((origins, origins.execute(&block)), (change, Ok(old)));
        }
        for word in [8, DIRECTORY, usize::MAX] {
            assert_eq!(WordChange::parse(&WordChange::Add { word, add: 1 }.bytes()), None, "word {word}");
        }
        let mut malformed = add.bytes();
        malformed[0] = 3;
        assert_eq!((WordChange::parse(&malformed), WordChange::parse(&malformed[1..])), (None, None));
    }
}
