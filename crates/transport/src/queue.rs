//! [`MessageQueue`]: messages that are sent by a queue pair, with credits, so that nobody sends what the peer has no slot for.
//!
//! Messages go by one or two channels, each with slots of its own at the peer, so that what waits in one does not hold up the other. Each side
//! begins with a credit for each of the peer's slots. A message takes a credit, and the peer returns it when the slot is free: with
//! its own messages, in bits 16 to 31 of their first word, or in a message of no other content for every half of a channel's slots.
//!
//! Such a grant takes no credit. Between two that a side has not yet taken, it has sent half of its slots' messages. So no more than two
//! of them wait for each channel, and there is a spare receive for each. Two sides that both wait for credits get them, whatever else is
//! queued.

use std::collections::VecDeque;

use verbs::{Buf, Data, Qp, RecvWr, Result, SendFlags, SendOp, SendWr, Wc};

use crate::header::{HeaderBytes, Payload};
use crate::nic::{Nic, QueueSizes, Slots};
use crate::ring::Malformed;

/// The bit of a work request's number that says that it is a receive. The bits below are its slot, those above 32 the connection.
const RECEIVE: u64 = 1 << 31;

/// The number of the connection that a completion is for, and the slot, if it is a receive.
#[inline]
pub fn of_completion(wc: &Wc) -> (u32, Option<u32>) {
    let slot = (wc.wr_id & RECEIVE != 0).then_some((wc.wr_id & (RECEIVE - 1)) as u32);
    ((wc.wr_id >> 32) as u32, slot)
}

/// When a work request of the send queue signals its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal<K> {
    /// One request for every half of the slots does, so that room is found again.
    Sometimes,
    /// This one does.
    Always,
    /// This one does, and [`MessageQueue::sent`] returns the key.
    Key(K),
}

/// The flow control of a channel.
#[derive(Clone, Copy, Debug)]
struct Credits {
    /// Messages that took a credit: the next one's slot.
    messages: u64,
    left: u32,
    /// Slots that were freed and that the peer has not heard of.
    owed: u32,
}

/// A queue pair, slots, and credits for `CHANNELS` channels: 1 or 2. At most `INLINE` bytes go inline. Keys come back with completions.
#[derive(Debug)]
pub struct MessageQueue<K, const CHANNELS: usize, const INLINE: usize> {
    qp: Qp,
    slots: Slots,
    sizes: QueueSizes,
    inline: usize,
    number: u64,
    /// Requests that were posted to the send queue, and those of them known to have completed.
    posted: u64,
    completed: u64,
    /// Those that signal: their places in the order of posting, and their keys.
    signalled: VecDeque<(u64, Option<K>)>,
    credits: [Credits; CHANNELS],
}

impl<K, const CHANNELS: usize, const INLINE: usize> MessageQueue<K, CHANNELS, INLINE> {
    /// A queue pair with all receives posted, to be connected. `number` names it in completions. A message is sent from up to `send_sges` pieces.
    ///
    /// # Errors
    /// As [`Nic::create_qp`], and those of posting.
    pub fn new(nic: &mut Nic, number: u32, send_sges: u32) -> Result<Self> {
        const { assert!(CHANNELS == 1 || CHANNELS == 2) };
        let (qp, slots) = nic.create_qp(send_sges)?;
        let sizes = nic.sizes();
        let credits = Credits { messages: 0, left: sizes.slots / CHANNELS as u32, owed: 0 };
        let queue = Self {
            qp,
            slots,
            sizes,
            inline: nic.inline_max().min(INLINE),
            number: u64::from(number) << 32,
            posted: 0,
            completed: 0,
            signalled: VecDeque::new(),
            credits: [credits; CHANNELS],
        };
        (0..sizes.receive_depth()).try_for_each(|slot| queue.post_receive(slot))?;
        Ok(queue)
    }

    /// The queue pair.
    #[inline]
    pub fn qp(&self) -> &Qp {
        &self.qp
    }

    /// The memory of the slots.
    #[inline]
    pub fn buf(&self) -> &Buf {
        self.slots.buf()
    }

    /// Where a received message begins in [`MessageQueue::buf`].
    #[inline]
    pub fn received_at(&self, slot: u32) -> usize {
        self.slots.receive(slot)
    }

    /// Destroys the queue pair; returns the slots, for [`Nic::give_memory_back`].
    pub fn into_slots(self) -> Slots {
        self.slots
    }

    /// Slots of a channel.
    #[inline]
    fn channel_slots(&self) -> u32 {
        self.sizes.slots / CHANNELS as u32
    }

    /// Whether the send queue has room for so many requests, and then one for a grant.
    #[inline]
    pub fn has_room_for(&self, requests: u64) -> bool {
        self.posted - self.completed + requests < u64::from(self.sizes.send_depth())
    }

    /// Whether the send queue has no room at all.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.posted - self.completed >= u64::from(self.sizes.send_depth())
    }

    /// Whether the peer has a slot of a channel for another message.
    #[inline]
    pub fn has_credit(&self, channel: usize) -> bool {
        self.credits[channel].left > 0
    }

    /// Whether a message of a channel can be sent now.
    #[inline]
    pub fn may_send(&self, channel: usize) -> bool {
        self.has_credit(channel) && self.has_room_for(1)
    }

    /// Whether all requests that signal have completed.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.signalled.is_empty()
    }

    /// The number of requests that were posted: the place of the next one.
    #[inline]
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Whether the request at a place in the order of posting is known to have completed.
    #[inline]
    pub fn has_completed(&self, place: u64) -> bool {
        self.completed > place
    }

    /// Takes a credit for a request of the user's own that uses a receive of the peer's. Returns the slot to send from.
    #[inline]
    pub fn take_credit(&mut self, channel: usize) -> u32 {
        let slots = self.channel_slots();
        let credits = &mut self.credits[channel];
        let slot = channel as u32 * slots + (credits.messages % u64::from(slots)) as u32;
        (credits.messages, credits.left) = (credits.messages + 1, credits.left - 1);
        slot
    }

    /// Sends a message of a channel, if [`MessageQueue::may_send`]. The payload may be used again when this returns, unless it is
    /// sent from [where it is](Payload::sge). `copied` is called with the bytes that were copied into a slot, before the message is posted.
    ///
    /// # Errors
    /// Those of the payload and of posting.
    #[inline]
    pub fn send(
        &mut self,
        channel: usize,
        header: HeaderBytes,
        payload: &impl Payload,
        options: (SendFlags, Signal<K>),
        copied: impl FnOnce(u64),
    ) -> Result<()> {
        let slot = self.take_credit(channel);
        self.send_from(slot, header, payload, options, copied)
    }

    /// Sends a message without payload that takes no credit. The peer must have a spare receive for it.
    ///
    /// # Errors
    /// Those of posting.
    pub fn send_spare(&mut self, header: HeaderBytes, options: (SendFlags, Signal<K>)) -> Result<()> {
        self.send_from(0, header, &[].as_slice(), options, |_| ())
    }

    fn send_from(
        &mut self,
        slot: u32,
        mut header: HeaderBytes,
        payload: &impl Payload,
        (flags, signal): (SendFlags, Signal<K>),
        copied: impl FnOnce(u64),
    ) -> Result<()> {
        header.set_spare_bits(self.take_owed());
        let (head, len) = (header.as_slice(), payload.len());
        let total = head.len() + len;
        if total <= self.inline {
            let mut bytes = [0; INLINE];
            bytes[..head.len()].copy_from_slice(head);
            payload.load(&mut bytes[head.len()..total]);
            return self.post(SendOp::Send, Data::Inline(&bytes[..total]), flags, signal);
        }
        let at = self.slots.send(slot);
        self.slots.buf().write(at, head)?;
        if let Some(from) = payload.sge() {
            let sges = [self.slots.sge(at, head.len()), from];
            return self.post(SendOp::Send, Data::Sges(&sges), flags, signal);
        }
        payload.copy_to(self.slots.buf(), at + head.len())?;
        copied(len as u64);
        let sge = [self.slots.sge(at, total)];
        self.post(SendOp::Send, Data::Sges(&sge), flags, signal)
    }

    /// Posts to the send queue.
    ///
    /// # Errors
    /// Those of the device.
    #[inline]
    pub fn post(&mut self, op: SendOp, data: Data<'_>, flags: SendFlags, signal: Signal<K>) -> Result<()> {
        let step = u64::from(self.channel_slots() / 2);
        let (signals, key) = match signal {
            Signal::Sometimes => (self.posted % step == step - 1, None),
            Signal::Always => (true, None),
            Signal::Key(key) => (true, Some(key)),
        };
        let flags = if signals { flags | SendFlags::SIGNALED } else { flags };
        if signals {
            self.signalled.push_back((self.posted, key));
        }
        self.posted += 1;
        self.qp.post_send(&SendWr { wr_id: self.number, op, data, flags })
    }

    /// A request of the send queue has completed; returns its key.
    #[inline]
    pub fn sent(&mut self) -> Option<K> {
        let (place, key) = self.signalled.pop_front()?;
        self.completed = place + 1;
        key
    }

    /// Takes the credits that a received message brought: its spare bits.
    ///
    /// # Errors
    /// [`Malformed`] for more credits than there are slots.
    #[inline]
    pub fn take_credits(&mut self, bits: u16) -> Result<(), Malformed> {
        let slots = self.channel_slots();
        let mut is_right = true;
        for (channel, credits) in self.credits.iter_mut().enumerate() {
            credits.left += u32::from(bits >> (channel as u32 * Self::BITS) & Self::MASK);
            is_right &= credits.left <= slots;
        }
        if is_right { Ok(()) } else { Err(Malformed) }
    }

    /// Bits of a channel's credits in a message.
    const BITS: u32 = u16::BITS / CHANNELS as u32;
    const MASK: u16 = u16::MAX >> (u16::BITS - Self::BITS);

    /// The credits that the peer has not heard of, as spare bits of a message.
    #[inline]
    fn take_owed(&mut self) -> u16 {
        let channels = self.credits.iter_mut().enumerate();
        let bits = |(channel, credits): (usize, &mut Credits)| {
            (std::mem::take(&mut credits.owed) as u16 & Self::MASK) << (channel as u32 * Self::BITS)
        };
        channels.map(bits).fold(0, |all, bits| all | bits)
    }

    /// The slot of a message that took a credit is free again. [`MessageQueue::owes_grant`] says whether the peer is to hear of it at once.
    ///
    /// # Errors
    /// Those of posting.
    #[inline]
    pub fn release(&mut self, slot: u32, channel: usize) -> Result<()> {
        self.post_receive(slot)?;
        self.credits[channel].owed += 1;
        Ok(())
    }

    /// Whether a grant is due, and there is room to [send](MessageQueue::send_spare) it: half of a channel's slots are owed. Where the send queue is full, the
    /// grant waits for the next completion.
    #[inline]
    pub fn owes_grant(&self) -> bool {
        let half = self.channel_slots() / 2;
        self.credits.iter().any(|credits| credits.owed >= half) && !self.is_full()
    }

    /// Posts the receive of a slot again whose message took no credit.
    ///
    /// # Errors
    /// Those of posting.
    pub fn post_receive(&self, slot: u32) -> Result<()> {
        let sges = [self.slots.sge(self.slots.receive(slot), self.sizes.slot_bytes)];
        self.qp.post_recv(&RecvWr::new(self.number | RECEIVE | u64::from(slot), &sges))
    }
}
