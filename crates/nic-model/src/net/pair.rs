//! [`Pair`]: a queue pair as the card knows it: requests under way, packets expected, receives taken.

use std::collections::VecDeque;

use host::Time;
use verbs::{QpCap, QpState, RecvWr, RemoteAddr, SendOp, Sge, WcStatus};

use super::tables::Slots;

/// A queue pair.
pub(super) struct Pair {
    pub(super) context: u32,
    pub(super) card: usize,
    pub(super) domain: u32,
    pub(super) send_cq: u32,
    pub(super) recv_cq: u32,
    pub(super) srq: Option<u32>,
    pub(super) cap: QpCap,
    pub(super) sig_all: bool,
    /// Data in a packet at most; once connected the same at both ends.
    pub(super) mtu: u64,
    pub(super) state: QpState,
    /// Its channel has been told `Established`.
    pub(super) established: bool,
    pub(super) peer: Option<Peer>,
    /// The port of its connection.
    pub(super) port: usize,
    /// The channel that hears of it.
    pub(super) manager: Option<u32>,
    /// The connect request that it waits for.
    pub(super) request: Option<u32>,
    pub(super) rnr_retry: u8,
    /// Reads and atomics that may be under way.
    pub(super) reads_max: usize,
    pub(super) send: SendQueue,
    pub(super) receives: ReceiveQueue,
    pub(super) responder: Responder,
    /// It is among its port's flows.
    pub(super) flows: bool,
    /// It is among those whose descriptors are to be fetched.
    pub(super) fetches: bool,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer {
    pub(super) qp: u32,
    pub(super) card: usize,
}

impl Pair {
    /// Whether packets for it are taken.
    pub(super) fn accepts(&self) -> bool {
        matches!(self.state, QpState::ReadyToReceive | QpState::ReadyToSend)
    }
}

/// A posted send request.
#[derive(Clone, Debug, Default)]
pub(super) struct Wqe {
    pub(super) wr_id: u64,
    pub(super) op: Option<SendOp>,
    pub(super) sges: Vec<Sge>,
    pub(super) inline: Vec<u8>,
    pub(super) signalled: bool,
    pub(super) solicited: bool,
    pub(super) fence: bool,
    /// Bytes of the message.
    pub(super) len: u64,
    /// Packets of the message, or of the answer.
    pub(super) packets: u64,
    /// The number of its first packet, once it has begun.
    pub(super) psn: Option<u64>,
    /// Packets of the answer that have arrived.
    pub(super) arrived: u64,
    /// The answer is placed.
    pub(super) answered: bool,
    /// How often its receiver was not ready.
    pub(super) not_ready: u8,
    /// How it failed, if so.
    pub(super) failed: Option<WcStatus>,
}

impl Wqe {
    /// Whether it waits for an answer with data.
    pub(super) fn fetches(&self) -> bool {
        matches!(self.op, Some(SendOp::Read(_) | SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }))
    }

    /// Whether nothing of it has to be sent (again), when packets below `acked` are acknowledged.
    pub(super) fn is_through(&self, acked: u64) -> bool {
        match self.psn {
            None => false,
            Some(_) if self.fetches() => self.arrived == self.packets,
            Some(psn) => psn + self.packets <= acked,
        }
    }

    /// Whether it is done.
    pub(super) fn is_done(&self, acked: u64) -> bool {
        if self.fetches() { self.answered } else { self.is_through(acked) }
    }
}

/// The send queue. Requests are numbered from 0; the place of one is its number modulo the depth.
#[derive(Default)]
pub(super) struct SendQueue {
    slots: Vec<Wqe>,
    /// The oldest request that is not completed.
    pub(super) head: u64,
    /// Requests posted.
    pub(super) tail: u64,
    /// Requests that the card knows of.
    pub(super) rung: u64,
    /// Requests whose descriptors it has asked for.
    pub(super) asked: u64,
    /// Requests whose descriptors it has.
    pub(super) fetched: u64,
    /// The request to send next, and the packet of it.
    pub(super) next: u64,
    pub(super) packet: u64,
    /// The number of the next new packet.
    pub(super) psn: u64,
    /// Packets below this are acknowledged.
    pub(super) acked: u64,
    /// Slots taken, until their completions are polled.
    pub(super) used: u32,
    /// Silent requests that are done, whose slots the next completion frees.
    pub(super) silent: u32,
    /// Reads and atomics whose answers have not all arrived.
    pub(super) reads: VecDeque<u64>,
    /// An answer's packet is missing, and has been asked for.
    pub(super) gap: bool,
    /// The peer was not ready: nothing is sent.
    pub(super) held: bool,
    /// A request failed: nothing behind it is sent.
    pub(super) halted: bool,
    /// An [`super::event::Event::Overdue`] is in the queue.
    pub(super) timed: bool,
    /// When something was sent or answered last.
    pub(super) progress: Time,
    /// Retries without any progress.
    pub(super) retries: u32,
}

impl SendQueue {
    /// The place of a new request, which is to be filled.
    pub(super) fn push(&mut self, depth: u32) -> &mut Wqe {
        let place = (self.tail % u64::from(depth)) as usize;
        self.tail += 1;
        if place == self.slots.len() {
            self.slots.push(Wqe::default());
        }
        &mut self.slots[place]
    }

    /// A request that is not completed.
    pub(super) fn at(&self, number: u64, depth: u32) -> &Wqe {
        &self.slots[(number % u64::from(depth)) as usize]
    }

    pub(super) fn at_mut(&mut self, number: u64, depth: u32) -> &mut Wqe {
        &mut self.slots[(number % u64::from(depth)) as usize]
    }
}

/// A posted receive.
#[derive(Clone, Debug, Default)]
pub(super) struct Receive {
    pub(super) wr_id: u64,
    pub(super) sges: Vec<Sge>,
    /// When it was posted: a rank's clock may be ahead of the world's.
    pub(super) at: Time,
}

/// A receive queue, of a queue pair or shared.
#[derive(Debug, Default)]
pub(super) struct ReceiveQueue {
    slots: Vec<Receive>,
    depth: u64,
    head: u64,
    tail: u64,
    /// Slots taken, until their completions are polled.
    pub(super) used: u32,
}

impl ReceiveQueue {
    pub(super) fn new(depth: u32) -> Self {
        Self { depth: u64::from(depth), ..Self::default() }
    }

    /// Adds a receive; the caller has checked that there is room.
    pub(super) fn push(&mut self, wr: &RecvWr<'_>, at: Time) {
        let place = (self.tail % self.depth) as usize;
        (self.tail, self.used) = (self.tail + 1, self.used + 1);
        if place == self.slots.len() {
            self.slots.push(Receive::default());
        }
        let slot = &mut self.slots[place];
        slot.sges.clear();
        slot.sges.extend_from_slice(wr.sges);
        (slot.wr_id, slot.at) = (wr.wr_id, at);
    }

    pub(super) fn len(&self) -> u64 {
        self.tail - self.head
    }

    /// Whether there is a receive that was posted by `now`.
    pub(super) fn has_one(&self, now: Time) -> bool {
        self.head < self.tail && self.slots[(self.head % self.depth) as usize].at <= now
    }

    /// Takes the oldest receive; its pieces are swapped against `spare`.
    pub(super) fn pop(&mut self, mut spare: Vec<Sge>) -> Option<(u64, Vec<Sge>)> {
        if self.head == self.tail {
            return None;
        }
        let slot = &mut self.slots[(self.head % self.depth) as usize];
        self.head += 1;
        std::mem::swap(&mut slot.sges, &mut spare);
        Some((slot.wr_id, spare))
    }
}

/// A receive that a message has taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) wr_id: u64,
    pub(super) sges: Vec<Sge>,
    pub(super) slots: Slots,
    /// The domain that its keys belong to.
    pub(super) domain: u32,
}

/// Something to be sent in answer to a read or an atomic.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// The number of its next packet.
    pub(super) psn: u64,
    pub(super) what: AnswerKind,
}

/// Kinds of answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnswerKind {
    /// Memory from here on; `offset` is its place in an answer of `total` bytes.
    Memory { remote: RemoteAddr, offset: u64, total: u64 },
    /// What an atomic found.
    Old(u64),
    /// The request failed; whether that is the peer's fault.
    Refusal { status: WcStatus, forbidden: bool },
}

/// What a queue pair knows of its peer's requests.
#[derive(Default)]
pub(super) struct Responder {
    /// The number of the packet that is next.
    pub(super) expected: u64,
    /// One is missing, and the peer has been told.
    pub(super) gap: bool,
    /// Packets below this are placed.
    pub(super) done: u64,
    /// Packets are placed in order: none begins before this, none ends before that.
    pub(super) place_from: Time,
    pub(super) placed_at: Time,
    /// Receives taken and not completed; the number of the first.
    pub(super) taken: VecDeque<Taken>,
    pub(super) taken_first: u64,
    pub(super) answers: VecDeque<Answer>,
    /// What the last atomics found, by their packets' numbers, for those that are asked again.
    pub(super) atomics: VecDeque<(u64, u64)>,
    /// A request failed, and answers to those before it are still to be sent: nothing else is taken.
    pub(super) refusing: bool,
    /// Why the connection failed here, for a peer that missed it.
    pub(super) nak: Option<(u64, WcStatus)>,
}
