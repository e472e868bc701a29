//! [`Flow`]: sequence numbers of messages between two programs, and the messages kept until the target has
//! accepted them.

use std::collections::{BTreeMap, VecDeque};

use super::work::{Address, Letter, Note};

/// A message that may have to be retransmitted.
#[derive(Debug)]
struct Kept {
    letter: Letter,
    /// The chain to resume when it is accepted.
    chain: Option<u32>,
}

/// Messages of one program to another.
#[derive(Debug, Default)]
struct Outgoing {
    next: u64,
    kept: VecDeque<Kept>,
}

/// Both halves of a card's flow control.
#[derive(Debug, Default)]
pub(super) struct Flow {
    outgoing: BTreeMap<(Address, Address), Outgoing>,
    /// The expected number of the next message.
    incoming: BTreeMap<(Address, Address), u64>,
}

impl Flow {
    /// Assigns the number of a message and keeps a copy.
    pub(super) fn keep(&mut self, letter: &mut Letter, chain: Option<u32>) {
        let outgoing = self.outgoing.entry((letter.from, letter.to)).or_default();
        letter.number = outgoing.next;
        outgoing.next += 1;
        outgoing.kept.push_back(Kept { letter: letter.clone(), chain });
    }

    /// Whether a message is the next one of its sender.
    pub(super) fn is_next(&self, letter: &Letter) -> bool {
        self.incoming.get(&(letter.from, letter.to)).copied().unwrap_or(0) == letter.number
    }

    /// Accepts a message.
    pub(super) fn take(&mut self, letter: &Letter) {
        self.incoming.insert((letter.from, letter.to), letter.number + 1);
    }

    /// Drops accepted messages; returns the chains that waited for them.
    pub(super) fn taken(&mut self, note: &Note) -> Vec<u32> {
        let Some(outgoing) = self.outgoing.get_mut(&(note.from, note.to)) else { return Vec::new() };
        let mut chains = Vec::new();
        while outgoing.kept.front().is_some_and(|kept| kept.letter.number < note.next) {
            chains.extend(outgoing.kept.pop_front().and_then(|kept| kept.chain));
        }
        chains
    }

    /// The messages to retransmit, in order.
    pub(super) fn again(&self, note: &Note) -> Vec<Letter> {
        let kept = self.outgoing.get(&(note.from, note.to)).into_iter().flat_map(|outgoing| &outgoing.kept);
        kept.filter(|kept| kept.letter.number >= note.next).map(|kept| kept.letter.clone()).collect()
    }
}
