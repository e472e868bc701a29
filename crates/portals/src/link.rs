//! [`Link`]: a queue pair to or from another process, and its flow control. Messages arrive in order, and nobody sends what the peer has
//! no room for.
//!
//! Each side begins with a credit for each of the peer's slots; a message takes one, and the peer gives it back when the slot is free:
//! with its own messages, or in one of their own for every half of the slots. Such a grant needs no credit, as never more than two of
//! them wait and there are receives for them.

use std::collections::VecDeque;

use verbs::{Data, Mr, Qp, RecvWr, RemoteAddr, Result, SendFlags, SendOp, SendWr, Sge, Wc};

use crate::memory;
use crate::nic::{INLINE, Nic, RECEIVE_DEPTH, SEND_DEPTH, SLOT_BYTES, SLOTS};
use crate::process::Process;
use crate::region::Region;
use crate::wire::{HEAD_MAX, Message};

/// Bytes of data that come along with a message at most; others are fetched.
pub const EAGER_MAX: u64 = (SLOT_BYTES - HEAD_MAX) as u64;

/// Data that go with a message.
#[derive(Debug)]
pub(crate) enum Payload {
    /// A copy, or nothing.
    Bytes(Vec<u8>),
    /// The user's, from an offset on, so many bytes: they stay as they are until the message has left.
    User(Region, u64, u64),
}

impl Payload {
    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::User(_, _, len) => *len as usize,
        }
    }
}

/// What waits for a connection, for credits, or for room.
#[derive(Debug)]
pub(crate) enum Task {
    /// A message. `told` comes back when it has left.
    Say {
        /// What is said.
        message: Message,
        /// The data.
        payload: Payload,
        /// The interface and the operation whose memory is free then.
        told: Option<(u8, u64)>,
    },
    /// A read of the peer's memory, or a write.
    Move {
        /// Whether it is a write.
        is_write: bool,
        /// Where in the peer's memory.
        remote: RemoteAddr,
        /// Where in this process's.
        local: Sge,
        /// What comes back when it is over.
        key: u64,
    },
}

/// The bit of a work request's number that says that it is a receive.
const RECEIVE: u64 = 1 << 31;

/// Which link a completion is for, and which slot, if it is a receive.
pub(crate) fn of_completion(wc: &Wc) -> (usize, Option<u32>) {
    let slot = (wc.wr_id & RECEIVE != 0).then_some((wc.wr_id & (RECEIVE - 1)) as u32);
    ((wc.wr_id >> 32) as usize, slot)
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Link {
    /// The process at the other end.
    pub(crate) peer: Process,
    /// Whether this process asked for it, and so makes requests by it; the other one answers.
    pub(crate) is_active: bool,
    pub(crate) qp: Qp,
    slots: Mr,
    number: u64,
    inline_max: usize,
    is_open: bool,
    /// Requests that were posted to the send queue, and those of them known to be over.
    posted: u64,
    completed: u64,
    /// Those that signal: their places in the order of posting, and what comes back.
    signalled: VecDeque<(u64, Option<u64>)>,
    /// Messages sent that took a credit: the next one's slot.
    messages: u64,
    credits: u32,
    /// Slots given back that the peer has not been told of.
    owed: u32,
    queue: VecDeque<Task>,
}

impl Link {
    /// A queue pair with its receives posted. `number` is its own for ever.
    pub(crate) fn new(nic: &mut Nic, number: usize, peer: Process, is_active: bool) -> Result<Self> {
        let (qp, slots) = nic.create_qp()?;
        let link = Self {
            peer,
            is_active,
            qp,
            slots,
            number: (number as u64) << 32,
            inline_max: nic.inline_max(),
            is_open: false,
            posted: 0,
            completed: 0,
            signalled: VecDeque::new(),
            messages: 0,
            credits: SLOTS,
            owed: 0,
            queue: VecDeque::new(),
        };
        (0..RECEIVE_DEPTH).try_for_each(|slot| link.post_receive(slot))?;
        Ok(link)
    }

    /// Messages may be sent from now on.
    pub(crate) fn opened(&mut self) -> Result<()> {
        self.is_open = true;
        self.grant()
    }

    /// Has something wait for its turn.
    pub(crate) fn push(&mut self, task: Task) {
        self.queue.push_back(task);
    }

    /// Sends what waits, as far as it goes; what has left that somebody is told of.
    pub(crate) fn pump(&mut self, told: &mut Vec<(u8, u64)>) -> Result<()> {
        while let Some(task) = self.queue.front() {
            let is_message = matches!(task, Task::Say { .. });
            // One entry is kept for a grant.
            let has_room = self.posted - self.completed + 1 < u64::from(SEND_DEPTH);
            if !self.is_open || !has_room || (is_message && self.credits == 0) {
                break;
            }
            match self.queue.pop_front() {
                Some(Task::Say { message, payload, told: whose }) => {
                    let slot = (self.messages % u64::from(SLOTS)) as usize;
                    (self.messages, self.credits) = (self.messages + 1, self.credits - 1);
                    self.post_message(&message, &payload, slot, false)?;
                    told.extend(whose);
                }
                Some(Task::Move { is_write, remote, local, key }) => {
                    let op = if is_write { SendOp::Write(remote) } else { SendOp::Read(remote) };
                    self.post(op, Data::Sges(&[local]), Some(Some(key)))?;
                }
                None => {}
            }
        }
        Ok(())
    }

    fn post_message(
        &mut self,
        message: &Message,
        payload: &Payload,
        slot: usize,
        signal: bool,
    ) -> Result<()> {
        let head = message.bytes(std::mem::take(&mut self.owed) as u16);
        let (head, len) = (head.as_slice(), payload.len());
        let total = head.len() + len;
        let signal = signal.then_some(None);
        if total <= self.inline_max {
            let mut bytes = [0; INLINE];
            bytes[..head.len()].copy_from_slice(head);
            match payload {
                Payload::Bytes(data) => bytes[head.len()..total].copy_from_slice(data),
                Payload::User(region, offset, _) => {
                    memory::load(region, *offset, &mut bytes[head.len()..total])
                }
            }
            return self.post(SendOp::Send, Data::Inline(&bytes[..total]), signal);
        }
        let at = (RECEIVE_DEPTH as usize + slot) * SLOT_BYTES;
        self.slots.buf().write(at, head)?;
        match payload {
            Payload::Bytes(data) => self.slots.buf().write(at + head.len(), data)?,
            Payload::User(region, offset, _) => {
                let mut bytes = vec![0; len];
                memory::load(region, *offset, &mut bytes);
                self.slots.buf().write(at + head.len(), &bytes)?;
            }
        }
        let sge = [self.slots.sge(at as u64, total as u32)];
        self.post(SendOp::Send, Data::Sges(&sge), signal)
    }

    /// Posts to the send queue. Every half of the slots' requests one signals, so that room is found again.
    fn post(&mut self, op: SendOp, data: Data<'_>, signal: Option<Option<u64>>) -> Result<()> {
        let step = u64::from(SLOTS / 2);
        let signal = signal.or_else(|| (self.posted % step == step - 1).then_some(None));
        let flags = if signal.is_some() { SendFlags::SIGNALED } else { SendFlags::empty() };
        if let Some(key) = signal {
            self.signalled.push_back((self.posted, key));
        }
        self.posted += 1;
        self.qp.post_send(&SendWr { wr_id: self.number, op, data, flags })
    }

    /// A request of the send queue is over: what comes back.
    pub(crate) fn sent(&mut self) -> Result<Option<u64>> {
        let Some((place, key)) = self.signalled.pop_front() else { return Ok(None) };
        self.completed = place + 1;
        self.grant()?;
        Ok(key)
    }

    /// A message has come into a slot: its bytes, and room for another. What it says is `None` for what no process says.
    pub(crate) fn received(&mut self, slot: u32, len: u32, into: &mut Vec<u8>) -> Result<()> {
        into.resize(len as usize, 0);
        self.slots.buf().read(slot as usize * SLOT_BYTES, into)?;
        self.post_receive(slot)
    }

    /// What a message that has come says of credits; false for what no process says.
    pub(crate) fn credited(&mut self, credits: u16, is_grant: bool) -> Result<bool> {
        self.credits += u32::from(credits);
        if !is_grant {
            self.owed += 1;
            self.grant()?;
        }
        Ok(self.credits <= SLOTS)
    }

    /// Tells the peer of slots given back, if half of them are. Where the send queue is full, that waits for the next completion.
    fn grant(&mut self) -> Result<()> {
        let is_full = self.posted - self.completed >= u64::from(SEND_DEPTH);
        if self.owed < SLOTS / 2 || !self.is_open || is_full {
            return Ok(());
        }
        self.post_message(&Message::Credit, &Payload::Bytes(Vec::new()), 0, false)
    }

    /// Asks to hear when everything that was sent has arrived.
    pub(crate) fn ask_idle(&mut self) -> Result<()> {
        if self.is_open && self.posted > 0 {
            self.post_message(&Message::Credit, &Payload::Bytes(Vec::new()), 0, true)?;
        }
        Ok(())
    }

    /// Whether nothing waits to be sent.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether all that was asked for is over.
    pub(crate) fn is_idle(&self) -> bool {
        self.signalled.is_empty()
    }

    fn post_receive(&self, slot: u32) -> Result<()> {
        let sges = [self.slots.sge(slot as u64 * SLOT_BYTES as u64, SLOT_BYTES as u32)];
        self.qp.post_recv(&RecvWr::new(self.number | RECEIVE | u64::from(slot), &sges))
    }
}
