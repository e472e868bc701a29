//! Data path: [`Progress`], the completions of a connection: arrivals, completed sends, and what this end grants the peer.
//!
//! Everything that the peer sends is checked: a message that the protocol does not have, or more bytes than were granted, ends the
//! connection.

use std::sync::atomic::Ordering;

use verbs::{Data, RemoteAddr, Wc};

use crate::link::{CONTROLS_MAX, Counters, Flags, Link};
use crate::memory::MESSAGE_BYTES;
use crate::wire::{ConnData, Message, RemoteBuf};

/// Completions that are taken in one poll.
const BATCH: usize = 16;

/// What a send request was for, in the number of its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendId {
    /// Requests that complete with it.
    pub(crate) requests: u8,
    /// Whether it carried a control message.
    pub(crate) is_control: bool,
    /// Bytes of the send ring that are free afterwards.
    pub(crate) ring_bytes: u32,
}

const CONTROL_BIT: u64 = 1 << 40;

impl SendId {
    pub(crate) fn wr_id(self) -> u64 {
        let control = if self.is_control { CONTROL_BIT } else { 0 };
        u64::from(self.ring_bytes) | u64::from(self.requests) << 32 | control
    }

    fn from_wr_id(wr_id: u64) -> Self {
        Self { requests: (wr_id >> 32) as u8, is_control: wr_id & CONTROL_BIT != 0, ring_bytes: wr_id as u32 }
    }
}

/// The state of the completions.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Whether the completion queue reports its next completion to the channel.
    pub(crate) is_armed: bool,
    /// How the peer has violated the protocol.
    pub(crate) violation: Option<String>,
    /// Data messages that have arrived, modulo 2^16.
    messages: u16,
    /// The value of `messages` when the peer got its last credits.
    announced: u16,
    /// Halves of the receive ring that were granted after the first.
    halves: u64,
}

impl Progress {
    /// Takes all completions, replaces the receives that were used, and grants buffers and credits that are due.
    ///
    /// # Errors
    /// As [`verbs::Cq::poll`] and [`verbs::Qp::post_recv`].
    pub(crate) fn poll(&mut self, link: &Link, counters: &Counters, peer: &ConnData) -> verbs::Result<()> {
        let (mut wcs, mut total) = ([Wc::default(); BATCH], 0);
        loop {
            let count = link.cq.poll(&mut wcs)?;
            total += count;
            for wc in &wcs[..count] {
                if !wc.opcode.is_recv() {
                    on_sent(counters, wc);
                } else if wc.is_ok() {
                    self.on_message(link, counters, wc)?;
                } else {
                    counters.set(Flags::BROKEN);
                }
            }
            if count < BATCH {
                break;
            }
        }
        if total > 0 { self.grant(link, counters, peer) } else { Ok(()) }
    }

    fn on_message(&mut self, link: &Link, counters: &Counters, wc: &Wc) -> verbs::Result<()> {
        let Some(bits) = message_bits(link, wc) else {
            self.violated(link, counters, format!("a message of {} bytes", wc.byte_len));
            return Ok(());
        };
        match Message::decode(bits) {
            Some(Message::Data(bytes)) => {
                let arrived = counters.arrived.load(Ordering::Relaxed) + u64::from(bytes);
                let granted = counters.granted.load(Ordering::Relaxed);
                if arrived > granted {
                    let extra = arrived - granted;
                    self.violated(link, counters, format!("{extra} bytes more than were granted to it"));
                    return Ok(());
                }
                self.messages = self.messages.wrapping_add(1);
                counters.arrived.store(arrived, Ordering::Release);
            }
            Some(Message::Credits(limit)) => {
                counters.credit_limit.store(limit, Ordering::Relaxed);
                counters.table_version.fetch_add(1, Ordering::Release);
            }
            // The peer has spent a credit for it.
            Some(Message::IoMap(_)) => self.messages = self.messages.wrapping_add(1),
            Some(Message::Disconnect) => drop(counters.set(Flags::PEER_GONE | Flags::PEER_SHUT)),
            Some(Message::Shutdown) => drop(counters.set(Flags::PEER_SHUT)),
            Some(Message::KeepAlive) => {}
            None => {
                self.violated(link, counters, format!("message {bits:#x}"));
                return Ok(());
            }
        }
        if counters.flags().intersects(Flags::PEER_GONE | Flags::BROKEN) {
            return Ok(());
        }
        link.post_receive(wc.wr_id as u32)
    }

    #[cold]
    fn violated(&mut self, link: &Link, counters: &Counters, what: String) {
        self.violation.get_or_insert(what);
        counters.set(Flags::VIOLATED | Flags::BROKEN);
        link.qp.to_error();
    }

    /// Grants the peer a half of the ring whose bytes the program has taken, and credits, if either is due.
    ///
    /// # Errors
    /// As [`verbs::Qp::post_send`].
    pub(crate) fn grant(&mut self, link: &Link, counters: &Counters, peer: &ConnData) -> verbs::Result<()> {
        let half = u64::from(link.config.recv_buffer / 2);
        loop {
            if counters.flags().intersects(Flags::PEER_SHUT | Flags::BROKEN | Flags::DISCONNECTING) {
                return Ok(());
            }
            let granted = counters.granted.load(Ordering::Relaxed);
            let has_half = granted - counters.taken.load(Ordering::Acquire) <= half;
            let spent = self.messages.wrapping_sub(self.announced);
            if !has_half && spent < link.config.recv_queue / 2 {
                return Ok(());
            }
            let posted = counters.control_posted.load(Ordering::Relaxed);
            let open = posted.wrapping_sub(counters.control_done.load(Ordering::Relaxed));
            if open + link.requests_per_message() > CONTROLS_MAX {
                return Ok(());
            }
            self.announced = self.messages;
            let message = Message::Credits(self.messages.wrapping_add(link.config.recv_queue));
            if has_half {
                self.grant_half(link, counters, peer, message, half)?;
            } else {
                post_control(link, counters, message)?;
            }
        }
    }

    /// Writes the next half of the ring into the peer's table.
    fn grant_half(
        &mut self,
        link: &Link,
        counters: &Counters,
        peer: &ConnData,
        message: Message,
        half: u64,
    ) -> verbs::Result<()> {
        // The peer began with the first half, and with the first entry of its table.
        self.halves += 1;
        let (mr, entry) = (&link.memory.recv, self.halves % u64::from(peer.table.length));
        let offset = self.halves % 2 * half;
        let granted = RemoteBuf { addr: mr.addr().wrapping_add(offset), key: mr.rkey(), length: half as u32 };
        let bytes = granted.encode(peer.big_endian);
        let to = RemoteAddr { addr: peer.table.addr, rkey: peer.table.key }
            .offset(entry * RemoteBuf::BYTES as u64);
        counters.granted.fetch_add(half, Ordering::Relaxed);
        let requests = link.requests_per_message();
        counters.control_posted.fetch_add(requests, Ordering::Relaxed);
        link.post_write(control_id(requests), Data::Inline(&bytes), to, message)
    }

    /// Posts the message that ends a direction. Requests are reserved for it.
    ///
    /// # Errors
    /// As [`verbs::Qp::post_send`].
    pub(crate) fn post_end(
        &mut self,
        link: &Link,
        counters: &Counters,
        message: Message,
    ) -> verbs::Result<()> {
        post_control(link, counters, message)
    }
}

fn control_id(requests: u32) -> u64 {
    SendId { requests: requests as u8, is_control: true, ring_bytes: 0 }.wr_id()
}

fn post_control(link: &Link, counters: &Counters, message: Message) -> verbs::Result<()> {
    counters.control_posted.fetch_add(1, Ordering::Relaxed);
    link.post_message(control_id(1), message)
}

fn on_sent(counters: &Counters, wc: &Wc) {
    let SendId { requests, is_control, ring_bytes } = SendId::from_wr_id(wc.wr_id);
    if !wc.is_ok() {
        counters.set(Flags::BROKEN);
    }
    if is_control {
        counters.control_done.fetch_add(requests.into(), Ordering::Release);
    } else {
        counters.sent.fetch_add(ring_bytes.into(), Ordering::Release);
        counters.data_done.fetch_add(requests.into(), Ordering::Release);
    }
}

/// The message of a completed receive; `None` if it has none.
fn message_bits(link: &Link, wc: &Wc) -> Option<u32> {
    let Some(slots) = &link.memory.messages else { return wc.imm };
    let (mut bytes, slot) = ([0; MESSAGE_BYTES as usize], wc.wr_id as usize);
    slots.buf().read(slot * bytes.len(), &mut bytes).ok()?;
    // The writer has used the order of this processor.
    (wc.byte_len == MESSAGE_BYTES).then(|| u32::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::SendId;

    #[test]
    fn numbers_of_requests_survive_a_completion() {
        for (requests, is_control, ring_bytes) in [(1, false, u32::MAX), (2, true, 0), (2, false, 17)] {
            let id = SendId { requests, is_control, ring_bytes };
            assert_eq!(SendId::from_wr_id(id.wr_id()), id);
        }
    }
}
