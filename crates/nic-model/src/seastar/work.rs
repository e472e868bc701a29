//! Everything in flight: messages between programs, work for the processors, and pending writes to memory.

use std::collections::VecDeque;
use std::sync::Arc;

use host::{EventCount, Span, Time};

use super::transfer_time::TransferTime;
use crate::net::protection::Extent;

/// A program: its card and its number on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Address {
    pub(super) node: usize,
    pub(super) pid: u16,
}

/// A message between programs.
#[derive(Clone, Debug)]
pub(super) struct FirmwareMessage {
    pub(super) from: Address,
    pub(super) to: Address,
    pub(super) header: Arc<[u8]>,
    /// The memory of its data, and their length in bytes.
    pub(super) extents: Arc<[Extent]>,
    pub(super) len: u64,
    /// The data, or the part that is copied.
    pub(super) data: Vec<u8>,
    /// Its sequence number from its sender to its target, with flow control.
    pub(super) number: u64,
    /// When its last byte arrives.
    pub(super) tail: Time,
    pub(super) timing: TransferTime,
}

/// A control message between cards about the messages of one program to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct ControlMessage {
    /// The program that sent the messages.
    pub(super) from: Address,
    pub(super) to: Address,
    /// All messages before this number were accepted.
    pub(super) next: u64,
    /// The message with this number was refused.
    pub(super) refused: bool,
}

impl ControlMessage {
    /// A message was accepted.
    pub(super) fn accepted(message: &FirmwareMessage) -> Self {
        Self { from: message.from, to: message.to, next: message.number + 1, refused: false }
    }
}

/// The program's requests during a call, executed in order.
#[derive(Debug)]
pub(super) enum Step {
    Charge(Span),
    Send(Box<FirmwareMessage>),
    /// Deposit a part of the message that the call handles.
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
        wakeup: Arc<EventCount>,
        ticket: u64,
    },
}

/// The steps of a call that are not executed yet.
#[derive(Debug)]
pub(super) struct PendingSteps {
    pub(super) at: Address,
    pub(super) steps: VecDeque<Step>,
    /// The message that it handles.
    pub(super) message: Option<Box<FirmwareMessage>>,
    pub(super) timing: TransferTime,
}

/// Work for the processor that runs a program.
#[derive(Debug)]
pub(super) enum Work {
    Command(Vec<u8>),
    Message(Box<FirmwareMessage>),
    Turn,
    /// A transfer of this chain has completed.
    Resume(u32),
    /// A control message between kernels.
    Control(ControlMessage),
}

/// A task for the card's processor.
#[derive(Debug)]
pub(super) enum Task {
    /// A program's work, if the card runs programs.
    Program(u16, Work),
    /// A message that the kernel has to handle.
    Header(Box<FirmwareMessage>),
    /// The kernel sends a message, and this chain waits for it.
    Transmit(Box<FirmwareMessage>, Option<u32>),
    /// The kernel has specified the destination of a message's data.
    Deposit(u32),
    /// A transfer has completed: interrupts the kernel.
    Done(u32),
    /// A control message from another card.
    Control(ControlMessage),
    /// Retransmits messages.
    Retransmit(ControlMessage),
    /// The kernel sends a control message.
    SendControl(ControlMessage),
}

/// A write that will become visible in the host's memory.
#[derive(Debug)]
pub(super) enum HostWrite {
    Data { extents: Arc<[Extent]>, total: u64, data: Vec<u8> },
    Record { extents: Arc<[Extent]>, record: Vec<u8>, timing: TransferTime },
    Notify(Arc<EventCount>),
}

/// A scheduled event.
#[derive(Debug)]
pub(super) enum Event {
    /// A task reaches a card's processor.
    Card {
        node: usize,
        task: Task,
        timing: TransferTime,
    },
    /// Work reaches a kernel by an interrupt.
    Kernel {
        at: Address,
        work: Work,
        timing: TransferTime,
    },
    /// A message is read from its sender's memory.
    Departure(Box<FirmwareMessage>),
    /// Its header reaches its target.
    Arrival(Box<FirmwareMessage>),
    Visible {
        at: Address,
        effect: HostWrite,
    },
}
