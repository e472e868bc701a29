//! Objects other than queue pairs and cards: regions, queues, channels, requests, listeners.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Weak;

use verbs::{Access, AsyncEvent, Buf, CmFailure, Wc};

use super::pair::ReceiveQueue;

/// An opened device: one of perhaps several users of a card.
pub(super) struct Context {
    pub(super) card: usize,
    /// The only port that it is, if it is not the whole card.
    pub(super) port: Option<usize>,
    pub(super) events: VecDeque<AsyncEvent>,
}

/// A memory region.
pub(super) struct Region {
    pub(super) domain: u32,
    pub(super) buf: Buf,
    /// The address of its first byte, as requests give it.
    pub(super) base: u64,
    pub(super) access: Access,
    /// A peer has taken its remote key away.
    pub(super) invalidated: bool,
}

/// A piece of NIC memory, alive as long as a handle is.
pub(super) struct Module {
    pub(super) context: u32,
    pub(super) card: usize,
    pub(super) len: u64,
    pub(super) owner: Weak<dyn Send + Sync>,
}

/// Slots of a queue that polling a completion frees.
#[derive(Clone, Copy, Debug)]
pub(super) enum Slots {
    Send(u32, u32),
    Receive(u32),
    SharedReceive(u32),
}

/// A completion with what belongs to it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) wc: Wc,
    pub(super) slots: Slots,
    pub(super) solicited: bool,
}

/// What a rank saw of completion queues.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looks {
    /// The queue where it looked in vain last, since it found something.
    pub(super) in_vain: Option<u32>,
    /// The context whose completion it found last.
    pub(super) context: Option<u32>,
}

/// A completion queue.
pub(super) struct Queue {
    pub(super) context: u32,
    pub(super) card: usize,
    pub(super) cqe: u32,
    /// Being written.
    pub(super) written: VecDeque<Entry>,
    /// To be polled.
    pub(super) entries: VecDeque<Entry>,
    pub(super) overrun: bool,
    pub(super) channel: Option<u32>,
    /// `Some(true)`: for solicited completions only.
    pub(super) armed: Option<bool>,
}

/// A completion channel: the queues that reported.
pub(super) struct Channel {
    pub(super) events: VecDeque<u32>,
}

/// A shared receive queue.
pub(super) struct Shared {
    pub(super) context: u32,
    pub(super) domain: u32,
    pub(super) max_wr: u32,
    pub(super) max_sge: u32,
    pub(super) limit: u32,
    pub(super) receives: ReceiveQueue,
}

/// A connection event as it waits.
#[derive(Debug)]
pub(crate) enum Told {
    Request(u32),
    Established(u32, Vec<u8>),
    Rejected(u32, Vec<u8>),
    Failed(u32, CmFailure),
    Disconnected(u32),
}

/// A channel of connection events.
pub(super) struct Manager {
    pub(super) card: usize,
    pub(super) events: VecDeque<Told>,
}

/// Who listens at an address.
pub(super) struct Listener {
    pub(super) manager: u32,
    pub(super) backlog: u32,
    /// Requests that wait to be answered.
    pub(super) waiting: u32,
}

/// A connect request.
pub(super) struct Request {
    /// The connecting queue pair, its card, and its address.
    pub(super) pair: u32,
    pub(super) from: usize,
    pub(super) peer: SocketAddr,
    /// Where it goes: node, and number of the card there; and the port of both ends.
    pub(super) to: (usize, usize),
    pub(super) port: usize,
    pub(super) addr: SocketAddr,
    pub(super) private_data: Vec<u8>,
    /// Reads that the connecting side will have under way, and those that it will answer.
    pub(super) reads: (u8, u8),
    /// Who listened, once it has arrived.
    pub(super) listener: Option<ListenerKey>,
    /// It is over for the connecting side: timed out, or its queue pair is gone.
    pub(super) closed: bool,
}

/// Card, port (or `None` for all), number.
pub(crate) type ListenerKey = (usize, Option<usize>, u16);
