//! Data path: [`Sender`], the direction from this end to the peer: pieces of the program's bytes become RDMA writes into the peer's
//! ring.

use std::sync::atomic::Ordering;

use verbs::{Data, RemoteAddr, SendFlags, SendOp, SendWr};

use crate::error::Result;
use crate::link::{CONTROLS_MAX, Counters, Link};
use crate::memory::{TABLE_ENTRIES, fill};
use crate::progress::SendId;
use crate::wire::{Message, RemoteBuf};

/// The first piece of a long call, so that the peer begins early; each further one is twice as long.
const PIECE_FIRST: usize = 2048;
/// The longest piece.
const PIECE_MAX: usize = 65_536;
/// Free bytes from which a socket counts as writable.
const LOW_WATER: u32 = 2048;

/// The position of this end's bytes.
#[derive(Debug)]
pub(crate) struct Sender {
    /// Bytes that have been copied into the ring.
    filled: u64,
    /// Requests for data that have been posted.
    posted: u32,
    /// Data messages that have been sent, modulo 2^16.
    messages: u16,
    /// The rest of the peer's current buffer.
    target: RemoteBuf,
    /// The entry of the table that has the next one.
    next_entry: u32,
    /// The version of the table in which that entry was empty.
    version_seen: u32,
    /// Whether there are I/O mappings that the peer does not know.
    pub(crate) has_unannounced: bool,
}

impl Sender {
    /// A direction that begins with this buffer of the peer.
    pub(crate) fn new(target: RemoteBuf) -> Self {
        Self {
            filled: 0,
            posted: 0,
            messages: 0,
            target,
            next_entry: 1,
            version_seen: 0,
            has_unannounced: false,
        }
    }

    /// Requests for data that have been posted.
    pub(crate) fn posted(&self) -> u32 {
        self.posted
    }

    /// Whether another piece can be sent.
    pub(crate) fn can_send(&mut self, link: &Link, counters: &Counters) -> bool {
        self.free(link, counters) > 0 && self.has_room(link, counters)
    }

    /// Whether a program that polls for it should send now.
    pub(crate) fn is_ready(&mut self, link: &Link, counters: &Counters) -> bool {
        let enough = LOW_WATER.min(link.config.send_buffer / 2);
        self.free(link, counters) >= u64::from(enough) && self.has_room(link, counters)
    }

    /// Free bytes of the ring.
    fn free(&self, link: &Link, counters: &Counters) -> u64 {
        let filled = self.filled - counters.sent.load(Ordering::Acquire);
        u64::from(link.config.send_buffer) - filled
    }

    /// Whether the send queue has room for a message, and the peer for the message and its bytes.
    fn has_room(&mut self, link: &Link, counters: &Counters) -> bool {
        self.has_requests(link, counters, link.requests_per_message())
            && self.has_credit(counters)
            && self.has_target(link, counters)
    }

    /// Whether the send queue has room for this number of requests.
    fn has_requests(&self, link: &Link, counters: &Counters, requests: u32) -> bool {
        let open = self.posted.wrapping_sub(counters.data_done.load(Ordering::Acquire));
        open + requests <= u32::from(link.config.send_queue) - CONTROLS_MAX
    }

    /// Whether a data message finds a receive at the peer.
    fn has_credit(&self, counters: &Counters) -> bool {
        self.messages != counters.credit_limit.load(Ordering::Relaxed)
    }

    /// Whether a buffer of the peer has room; takes the next one from the table.
    fn has_target(&mut self, link: &Link, counters: &Counters) -> bool {
        if self.target.length > 0 {
            return true;
        }
        let version = counters.table_version.load(Ordering::Acquire);
        if version == self.version_seen {
            return false;
        }
        let offset = self.next_entry as usize * RemoteBuf::BYTES;
        let table = link.memory.table.buf();
        let (Ok(first), Ok(second)) = (table.word(offset), table.word(offset + 8)) else { return false };
        // The peer may be writing the entry now. Its length is in the second word, so the first is complete if that is not 0.
        let second_word = second.load(Ordering::Acquire);
        let entry = RemoteBuf::from_words([first.load(Ordering::Acquire), second_word]);
        if entry.length == 0 {
            self.version_seen = version;
            return false;
        }
        // The peer writes it again only after all bytes of this buffer have been taken.
        second.store(0, Ordering::Release);
        self.target = entry;
        self.next_entry = (self.next_entry + 1) % TABLE_ENTRIES;
        true
    }

    /// Sends the first bytes of `rest`, of which the call has sent `done` before; returns their number. Only after
    /// [`Sender::can_send`].
    ///
    /// # Errors
    /// As [`verbs::Qp::post_send`].
    pub(crate) fn send_piece(
        &mut self,
        link: &Link,
        counters: &Counters,
        rest: &[u8],
        done: usize,
    ) -> Result<usize> {
        let longest = (PIECE_FIRST + done).next_power_of_two().min(PIECE_MAX);
        let free = usize::try_from(self.free(link, counters)).unwrap_or(usize::MAX);
        let len = rest.len().min(longest).min(free).min(self.target.length as usize);
        let piece = &rest[..len];
        let to = RemoteAddr { addr: self.target.addr, rkey: self.target.key };
        self.post(link, link.requests_per_message(), piece, |id, data| {
            link.post_write(id, data, to, Message::Data(len as u32))
        })?;
        self.messages = self.messages.wrapping_add(1);
        self.target.addr = self.target.addr.wrapping_add(len as u64);
        self.target.length -= len as u32;
        Ok(len)
    }

    /// Has `post` post `requests` requests for these bytes, with the number and the data that it is passed.
    ///
    /// # Errors
    /// Those of `post`.
    fn post(
        &mut self,
        link: &Link,
        requests: u32,
        bytes: &[u8],
        post: impl FnOnce(u64, Data<'_>) -> verbs::Result<()>,
    ) -> verbs::Result<()> {
        let id = |ring_bytes| SendId { requests: requests as u8, is_control: false, ring_bytes }.wr_id();
        if bytes.len() <= usize::from(link.config.inline) {
            post(id(0), Data::Inline(bytes))?;
        } else {
            let sges = fill(&link.memory.send, self.filled, bytes)?;
            let used = if sges[1].length == 0 { &sges[..1] } else { &sges[..] };
            post(id(bytes.len() as u32), Data::Sges(used))?;
            self.filled += bytes.len() as u64;
        }
        self.posted = self.posted.wrapping_add(requests);
        Ok(())
    }

    /// Writes an entry into the peer's table of I/O mappings. Returns whether that was possible now.
    ///
    /// # Errors
    /// As [`verbs::Qp::post_send`].
    pub(crate) fn send_mapping(
        &mut self,
        link: &Link,
        counters: &Counters,
        entry: &[u8],
        to: RemoteAddr,
        index: u16,
    ) -> Result<bool> {
        let requests = link.requests_per_message();
        if !self.has_requests(link, counters, requests) || !self.has_credit(counters) {
            return Ok(false);
        }
        self.post(link, requests, entry, |id, data| link.post_write(id, data, to, Message::IoMap(index)))?;
        self.messages = self.messages.wrapping_add(1);
        Ok(true)
    }

    /// Writes the first bytes of `bytes` into memory that the peer has mapped, without a message. Returns their number, which is 0 if
    /// nothing can be sent now.
    ///
    /// # Errors
    /// As [`verbs::Qp::post_send`].
    pub(crate) fn send_mapped(
        &mut self,
        link: &Link,
        counters: &Counters,
        bytes: &[u8],
        to: RemoteAddr,
    ) -> Result<usize> {
        let free = usize::try_from(self.free(link, counters)).unwrap_or(usize::MAX);
        if free == 0 || !self.has_requests(link, counters, 1) {
            return Ok(0);
        }
        let piece = &bytes[..bytes.len().min(PIECE_MAX).min(free)];
        self.post(link, 1, piece, |wr_id, data| {
            let flags = SendFlags::SIGNALED;
            link.qp.post_send(&SendWr { wr_id, op: SendOp::Write(to), data, flags })
        })?;
        Ok(piece.len())
    }
}
