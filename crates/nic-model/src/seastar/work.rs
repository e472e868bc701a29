//! What is under way: letters between programs, work for the processors, what will be seen in memory.

use std::collections::VecDeque;
use std::sync::Arc;

use host::{Bell, Span, Time};

use super::path::Path;
use crate::net::protection::Extent;

/// A program: its card and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) node: usize,
    pub(super) pid: u16,
}

/// A message between programs.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) from: Address,
    pub(super) to: Address,
    pub(super) header: Arc<[u8]>,
    /// Where its data lie, and how many bytes there are.
    pub(super) extents: Arc<[Extent]>,
    pub(super) len: u64,
    /// The data, or what of it really moves.
    pub(super) data: Vec<u8>,
    /// Which one it is of its sender to its target, with flow control.
    pub(super) number: u64,
    /// When its last byte arrives.
    pub(super) tail: Time,
    pub(super) path: Path,
}

/// What a card says to another beside letters: of that one's letters between two programs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Note {
    /// Who sent the letters.
    pub(super) from: Address,
    pub(super) to: Address,
    /// All before this number have been taken.
    pub(super) next: u64,
    /// The letter of this number was refused.
    pub(super) refused: bool,
}

impl Note {
    /// A letter has been taken.
    pub(super) fn taken(letter: &Letter) -> Self {
        Self { from: letter.from, to: letter.to, next: letter.number + 1, refused: false }
    }
}

/// What a program tells in a call, to be carried out one after the other.
#[derive(Debug)]
pub(super) enum Step {
    Charge(Span),
    Send(Box<Letter>),
    /// Bytes of the letter that the call is about, from an offset on.
    Deposit {
        offset: u64,
        extents: Arc<[Extent]>,
        len: u64,
        ticket: u64,
    },
    Event {
        extents: Arc<[Extent]>,
        record: Vec<u8>,
        ticket: u64,
    },
    Interrupt {
        bell: Arc<Bell>,
        ticket: u64,
    },
}

/// The rest of a call: what still has to be carried out.
#[derive(Debug)]
pub(super) struct Chain {
    pub(super) at: Address,
    pub(super) steps: VecDeque<Step>,
    /// The letter that it is about.
    pub(super) letter: Option<Box<Letter>>,
    pub(super) path: Path,
}

/// What a program's processor has to do.
#[derive(Debug)]
pub(super) enum Work {
    Command(Vec<u8>),
    Message(Box<Letter>),
    Turn,
    /// A transfer of this chain is over.
    Resume(u32),
    /// Between kernels.
    Note(Note),
}

/// What the card's processor has to do.
#[derive(Debug)]
pub(super) enum Task {
    /// A program's work, where the card runs programs.
    Program(u16, Work),
    /// A message that the kernel is to be told of.
    Header(Box<Letter>),
    /// The kernel has a letter sent, and waits for its end with this chain.
    Transmit(Box<Letter>, Option<u32>),
    /// The kernel says where a letter's data go.
    Deposit(u32),
    /// A transfer is over: the kernel is to be told.
    Done(u32),
    /// What another card says.
    Note(Note),
    /// Letters are to be sent again.
    Again(Note),
    /// The kernel has a note sent.
    Say(Note),
}

/// What will be seen in the host's memory.
#[derive(Debug)]
pub(super) enum Effect {
    Data { extents: Arc<[Extent]>, total: u64, data: Vec<u8> },
    Record { extents: Arc<[Extent]>, record: Vec<u8>, path: Path },
    Ring(Arc<Bell>),
}

/// What happens at some time.
#[derive(Debug)]
pub(super) enum Event {
    /// Work comes to a card's processor.
    Card {
        node: usize,
        task: Task,
        path: Path,
    },
    /// Work comes to a kernel: by an interrupt.
    Kernel {
        at: Address,
        work: Work,
        path: Path,
    },
    /// A letter is read from its sender's memory.
    Departure(Box<Letter>),
    /// Its header comes to its target.
    Arrival(Box<Letter>),
    Seen {
        at: Address,
        effect: Effect,
    },
}
