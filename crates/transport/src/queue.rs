//! [`MessageQueue`]: messages that are sent by a queue pair, with credits, so that no message is sent without a free slot at the
//! peer.
//!
//! Messages use one or two channels. Each channel has slots of its own at the peer, so that a message that waits in one does not
//! hold up the other. Each side begins with a credit for each of the peer's slots. A message takes a credit, and the peer returns
//! it when the slot is free: in bits 16 to 31 of the first word of its own messages, or, for every half of a channel's slots, in a
//! message without other content.
//!
//! Such a grant takes no credit. Between two grants that a side has not yet received, it has sent messages for half of the slots.
//! So at most two grants wait for each channel, and each has a spare receive. If both sides wait for credits, both get them,
//! whatever else is queued.

use std::collections::VecDeque;

use verbs::{Buf, Data, Error, Qp, RecvWr, Result, SendFlags, SendOp, SendWr, Sge, Wc};

use crate::header::{HeaderBytes, Payload};
use crate::nic::{Nic, QueueSizes, Slots};
use crate::ring::Malformed;

/// The bit of a work request's number that marks a receive. The bits below are its slot, those above 32 the connection.
const RECEIVE: u64 = 1 << 31;

/// The number of a completion's connection, and the slot, if it is a receive.
#[inline]
pub fn of_completion(wc: &Wc) -> (u32, Option<u32>) {
    let slot = (wc.wr_id & RECEIVE != 0).then_some((wc.wr_id & (RECEIVE - 1)) as u32);
    ((wc.wr_id >> 32) as u32, slot)
}

/// Whether a work request of the send queue is signaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal<K> {
    /// One request for every half of the slots is signaled, so that completions free room.
    Sometimes,
    /// This request is signaled.
    Always,
    /// This request is signaled, and [`MessageQueue::sent`] returns the key.
    Key(K),
}

/// The flow control of a channel.
#[derive(Clone, Copy, Debug)]
struct Credits {
    /// The number of messages that took a credit, which determines the next slot.
    messages: u64,
    left: u32,
    /// Freed slots for which the peer has not received a credit.
    owed: u32,
}

/// A queue pair, slots, and credits for `CHANNELS` channels: 1 or 2. At most `INLINE` bytes are sent inline. Keys are returned with
/// completions.
#[derive(Debug)]
pub struct MessageQueue<K, const CHANNELS: usize, const INLINE: usize> {
    qp: Qp,
    slots: Slots,
    sizes: QueueSizes,
    inline: usize,
    number: u64,
    /// Requests that were posted to the send queue, and the number of requests known to have completed.
    posted: u64,
    completed: u64,
    /// Signaled requests: their numbers in the order of posting, and their keys.
    signalled: VecDeque<(u64, Option<K>)>,
    credits: [Credits; CHANNELS],
}

impl<K, const CHANNELS: usize, const INLINE: usize> MessageQueue<K, CHANNELS, INLINE> {
    /// Creates a queue pair with all receives posted, for the caller to connect. `number` identifies it in completions. A message
    /// has up to `send_sges` scatter/gather elements.
    ///
    /// # Errors
    /// As [`Nic::create_qp`], and those of posting; [`Error::Invalid`] for sizes that leave a channel without a slot.
    pub fn new(nic: &mut Nic, number: u32, send_sges: u32) -> Result<Self> {
        const { assert!(CHANNELS == 1 || CHANNELS == 2) };
        let sizes = nic.sizes();
        if (sizes.slots as usize) < CHANNELS {
            return Err(Error::Invalid("each channel of a connection needs a slot".into()));
        }
        let (qp, slots) = nic.create_qp(send_sges)?;
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

    /// The offset of a received message in [`MessageQueue::buf`].
    #[inline]
    pub fn received_at(&self, slot: u32) -> usize {
        self.slots.receive(slot)
    }

    /// Destroys the queue pair; returns the slots, for [`Nic::give_memory_back`].
    pub(crate) fn into_slots(self) -> Slots {
        self.slots
    }

    /// The number of slots of a channel.
    #[inline]
    fn channel_slots(&self) -> u32 {
        self.sizes.slots / CHANNELS as u32
    }

    /// The number of messages after which a channel's credits are granted, and a request is signaled: half of its slots.
    #[inline]
    fn half(&self) -> u32 {
        (self.channel_slots() / 2).max(1)
    }

    /// Whether the send queue has room for this number of requests and a grant.
    #[inline]
    pub fn has_room_for(&self, requests: u64) -> bool {
        self.posted - self.completed + requests < u64::from(self.sizes.send_depth())
    }

    /// Whether the send queue has no room at all.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.posted - self.completed >= u64::from(self.sizes.send_depth())
    }

    /// Whether the peer has a free slot of a channel.
    #[inline]
    pub fn has_credit(&self, channel: usize) -> bool {
        self.credits[channel].left > 0
    }

    /// Whether a message of a channel can be sent now.
    #[inline]
    pub fn may_send(&self, channel: usize) -> bool {
        self.has_credit(channel) && self.has_room_for(1)
    }

    /// Whether all signaled requests have completed.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.signalled.is_empty()
    }

    /// The number of requests that were posted, which is the number of the next one.
    #[inline]
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Whether the request with a number in the order of posting is known to have completed.
    #[inline]
    pub fn has_completed(&self, place: u64) -> bool {
        self.completed > place
    }

    /// Takes a credit for a request of the caller that uses one of the peer's receives. Returns the slot to send from.
    #[inline]
    pub fn take_credit(&mut self, channel: usize) -> u32 {
        let slots = self.channel_slots();
        let credits = &mut self.credits[channel];
        let slot = channel as u32 * slots + (credits.messages % u64::from(slots)) as u32;
        (credits.messages, credits.left) = (credits.messages + 1, credits.left - 1);
        slot
    }

    /// Sends a message of a channel; the caller has checked [`MessageQueue::may_send`]. The payload may be reused when this
    /// returns, unless it is sent [without a copy](Payload::sge). `copied` is called with the number of bytes copied into a slot,
    /// before the message is posted.
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
        let step = u64::from(self.half());
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

    /// Takes the credits from a received message: its spare bits.
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

    /// Returns the credits that the peer has not received, as spare bits of a message.
    #[inline]
    fn take_owed(&mut self) -> u16 {
        let channels = self.credits.iter_mut().enumerate();
        let bits = |(channel, credits): (usize, &mut Credits)| {
            (std::mem::take(&mut credits.owed) as u16 & Self::MASK) << (channel as u32 * Self::BITS)
        };
        channels.map(bits).fold(0, |all, bits| all | bits)
    }

    /// Frees the slot of a message that took a credit. [`MessageQueue::owes_grant`] returns whether a grant must be sent now.
    ///
    /// # Errors
    /// Those of posting.
    #[inline]
    pub fn release(&mut self, slot: u32, channel: usize) -> Result<()> {
        self.post_receive(slot)?;
        self.credits[channel].owed += 1;
        Ok(())
    }

    /// Whether half of a channel's slots are owed and there is room to [send](MessageQueue::send_spare) the grant. If the send
    /// queue is full, the grant waits for the next completion.
    #[inline]
    pub fn owes_grant(&self) -> bool {
        let half = self.half();
        self.credits.iter().any(|credits| credits.owed >= half) && !self.is_full()
    }

    /// Names memory for the rest of the message whose beginning has arrived in a slot. [`verbs::WcOpcode::RecvRest`] reports
    /// its arrival.
    ///
    /// # Errors
    /// Those of posting.
    #[inline]
    pub fn post_rest(&self, rest: Sge) -> Result<()> {
        self.qp.post_rest(&RecvWr::new(self.number | RECEIVE, &[rest]))
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use host::{Host, Rng};
    use verbs::{Cm, CmEvent, ConnParam, Screen, ScreenRequest, Verdict};

    use super::*;
    use crate::nic::NicConfig;

    const SLOTS: u32 = 4;
    const SIZES: QueueSizes =
        QueueSizes { slots: 2 * SLOTS, spare: 5, accesses: 0, slot_bytes: 512, ring_bytes: 4096 };
    const HEAD: usize = 16;
    const LONGEST: usize = SIZES.slot_bytes - HEAD;
    const MESSAGE: u64 = 1;
    const CREDIT: u64 = 2;
    const OPTIONS: (SendFlags, Signal<u64>) = (SendFlags::empty(), Signal::Sometimes);

    struct All;

    impl Screen for All {
        fn screen(&self, _request: &ScreenRequest<'_>) -> Verdict {
            Verdict::Pass(Box::new(()))
        }
    }

    fn nic(host: &Host, sizes: QueueSizes) -> Nic {
        let device = fabric::open("iwarp", host).expect("a device");
        let config = NicConfig {
            sizes,
            inline: 64,
            cqe: sizes.completions(),
            slab_connections: 1,
            listen_at: (&[Ipv4Addr::LOCALHOST.into()], 0),
            backlog: 1,
            register_all: |_| Ok(None),
            caches: false,
            split_receives: false,
        };
        let screen: Arc<dyn Screen> = Arc::new(All);
        Nic::open(&device, &config, &screen).expect("a port")
    }

    /// One end of a connection; received messages wait until the test releases them.
    struct End {
        nic: Nic,
        queue: MessageQueue<u64, 2, 64>,
        /// Slots of each channel that hold messages.
        arrived: [VecDeque<(u32, usize)>; 2],
        /// The number of the next message of each channel.
        sent: [u64; 2],
        received: [u64; 2],
    }

    impl End {
        fn new(host: &Host, sizes: QueueSizes) -> Self {
            let mut nic = nic(host, sizes);
            let queue = MessageQueue::new(&mut nic, 7, 1).expect("room for one connection");
            assert!(
                MessageQueue::<u64, 2, 64>::new(&mut nic, 8, 1).is_err(),
                "there is no room for a second"
            );
            Self { nic, queue, arrived: Default::default(), sent: [0; 2], received: [0; 2] }
        }

        fn event(&self, host: &Host) -> CmEvent {
            let cm: &Cm = &self.nic.cm;
            host.wait("test", cm, None, || cm.poll_event()).expect("there is no deadline")
        }

        /// The bytes of a channel's message.
        fn payload(channel: usize, number: u64) -> Vec<u8> {
            vec![number as u8; (number as usize * 37 + channel) % LONGEST]
        }

        fn send(&mut self, channel: usize) -> bool {
            let may = self.queue.may_send(channel);
            if may {
                let number = self.sent[channel];
                let header = HeaderBytes::from_words([MESSAGE | (channel as u64) << 8, number]);
                let payload = Self::payload(channel, number);
                self.queue.send(channel, header, &payload.as_slice(), OPTIONS, |_| ()).expect("posted");
                self.sent[channel] += 1;
            }
            may
        }

        fn poll(&mut self) {
            while let Some(wc) = self.nic.cq.poll_one().expect("a queue") {
                assert!(wc.is_ok(), "{:?}", wc.status);
                let (number, slot) = of_completion(&wc);
                assert_eq!(number, 7);
                let Some(slot) = slot else {
                    assert_eq!(self.queue.sent(), None);
                    continue;
                };
                let mut first = [0; 4];
                self.queue.buf().read(self.queue.received_at(slot), &mut first).expect("inside");
                self.queue
                    .take_credits(u16::from_le_bytes([first[2], first[3]]))
                    .expect("no more than there are");
                match u64::from(first[0]) {
                    MESSAGE => self.arrived[usize::from(first[1])].push_back((slot, wc.byte_len as usize)),
                    _ => self.queue.post_receive(slot).expect("posted"),
                }
            }
            self.grant();
        }

        fn grant(&mut self) {
            if self.queue.owes_grant() {
                self.queue.send_spare(HeaderBytes::from_words([CREDIT, 0]), OPTIONS).expect("posted");
            }
        }

        /// Takes and checks the next message of a channel; returns whether there was one.
        fn take(&mut self, channel: usize) -> bool {
            let Some((slot, len)) = self.arrived[channel].pop_front() else { return false };
            let at = self.queue.received_at(slot);
            let bytes = self.queue.buf().to_vec(at..at + len).expect("inside");
            let number = self.received[channel];
            assert_eq!(bytes[8..HEAD], number.to_le_bytes());
            assert_eq!(bytes[HEAD..], Self::payload(channel, number));
            self.received[channel] += 1;
            self.queue.release(slot, channel).expect("posted");
            self.grant();
            true
        }
    }

    fn pair() -> [End; 2] {
        pair_of(SIZES)
    }

    fn pair_of(sizes: QueueSizes) -> [End; 2] {
        let host = host::real::host();
        let [one, other] = [0; 2].map(|_| End::new(&host, sizes));
        one.nic.cm.connect(one.queue.qp(), other.nic.addr(), &ConnParam::default()).expect("a request");
        let CmEvent::ConnectRequest(request) = other.event(&host) else { panic!("no request") };
        other.nic.cm.accept(request, other.queue.qp(), &ConnParam::default()).expect("an answer");
        for end in [&one, &other] {
            assert!(matches!(end.event(&host), CmEvent::Established { .. }));
        }
        [one, other]
    }

    /// Goal: messages of both channels arrive whole and in order. Method: random turns; a missing receive would end the connection.
    #[test]
    fn messages_of_two_channels_arrive_in_order_and_credits_come_back() {
        let (mut ends, mut rng) = (pair(), Rng::new(11));
        let (mut refused, target) = (0, 500);
        while ends.iter().any(|end| end.received != [target; 2]) {
            let (end, channel) = (&mut ends[rng.next_u64() as usize % 2], rng.next_u64() as usize % 2);
            for _ in 0..rng.next_u64() % 6 {
                refused += u32::from(end.sent[channel] < target && !end.send(channel));
            }
            if rng.one_in(2) {
                end.poll();
                while rng.one_in(2) && end.take(channel) {}
            }
        }
        assert!(refused > 100, "{refused}");
    }

    /// Goal: a full channel does not hold up the other, and a side sends no more messages than there are slots.
    #[test]
    fn full_channel_does_not_hold_up_the_other() {
        let [mut from, mut to] = pair();
        assert_eq!((0..2 * SLOTS).filter(|_| from.send(0)).count(), SLOTS as usize);
        while to.received[1] < 50 {
            from.poll();
            from.send(1);
            to.poll();
            to.take(1);
        }
        assert!(!from.send(0) && to.arrived[0].len() == SLOTS as usize);
        while !from.send(0) {
            to.take(0);
            to.poll();
            from.poll();
        }
    }

    /// Goal: with one slot a channel, each message waits for the grant of the one before, and all arrive.
    #[test]
    fn channels_of_one_slot_carry_one_message_after_the_other() {
        let [mut from, mut to] = pair_of(QueueSizes { slots: 2, ..SIZES });
        while to.received[0] < 50 {
            let sent = (from.send(0), from.send(0));
            assert!(!sent.1, "there is one slot");
            from.poll();
            to.poll();
            to.take(0);
        }
    }

    #[test]
    fn channel_without_a_slot_is_an_error() {
        let mut nic = nic(&host::real::host(), QueueSizes { slots: 1, ..SIZES });
        assert!(matches!(MessageQueue::<u64, 2, 64>::new(&mut nic, 7, 1), Err(Error::Invalid(_))));
    }

    #[test]
    fn more_credits_than_slots_are_refused() {
        let [mut end, _peer] = pair();
        assert_eq!(end.queue.take_credits(1), Err(Malformed));
        let [mut end, _peer] = pair();
        assert!(end.send(1));
        assert_eq!(end.queue.take_credits(1 << 8), Ok(()));
        assert_eq!(end.queue.take_credits(1 << 8), Err(Malformed));
    }
}
