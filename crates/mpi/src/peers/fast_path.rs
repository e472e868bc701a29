//! [`FastPath`]: messages by RDMA writes into memory of the receiver's, who looks there: no receive is taken, and no completion
//! waited for. For devices that write the last byte of a write last, and whose memory peers cannot map; those use the ring of [`transport`].
//!
//! Each side has a ring of lines for the other's messages, and a copy of the other's ring, which it writes from. Before the ring is a
//! line in whose first word the peer says how many lines it is done with. A message is a record, in one write: its head, its payload,
//! and at the end of its last line a word that is not 0. Where a record can begin or end the receiver leaves zeros when it gives
//! lines back: so whoever finds two words that are not 0 has all of the record. One that does not fit in front of the ring's end
//! begins at the ring's begin, where a mark leads.

use std::sync::atomic::{AtomicU64, Ordering};

use transport::{Offer, Payload as _};
use verbs::{Access, Buf, Mr, Pd, RemoteAddr, Sge};

use crate::error::{Class, Error, Result};
use crate::p2p::wire::{HEAD_MAX, MARK, Message, length_of};
use crate::peers::connection::{Payload, Received};

const LINE: usize = 64;
const WORD: usize = 8;
/// The receiver tells whenever it is done with one of so many parts of the ring.
const PARTS: u64 = 4;
/// Lines reserved for the last record of a connection ([`Message::Leave`]), so that it never waits for room.
const LAST: u64 = 1;
/// What ends a record.
const END: u64 = 1;

/// Lines of a record of so many bytes.
fn lines(len: usize) -> u64 {
    (len + WORD).div_ceil(LINE) as u64
}

#[cold]
fn nonsense() -> Error {
    Error::new(Class::OTHER, "the peer wrote what no process of this version writes")
}

/// A word at a place of this file's.
fn word(memory: &Buf, at: usize) -> &AtomicU64 {
    memory.word(at).expect("all lines are in the memory, whose begin is aligned")
}

/// What is to be written for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stores {
    /// Where the mark that leads to the ring's begin goes first, if it is needed.
    pub(crate) mark: Option<usize>,
    /// The record.
    pub(crate) at: usize,
    pub(crate) len: usize,
}

/// Both directions of a connection's fast path.
#[derive(Debug)]
pub(crate) struct FastPath {
    inbox: Mr,
    copy: Mr,
    /// The peer's ring, once it is known.
    peer: Option<RemoteAddr>,
    /// Lines of a ring: a power of two.
    count: u64,
    /// The next record to receive, the lines that are done with, and those that the peer was told of.
    next: u64,
    done: u64,
    told: u64,
    /// Where the next record to send goes, and the lines that the peer is done with, as far as is known.
    put: u64,
    free: u64,
}

impl FastPath {
    /// Rings of so many bytes, a power of two, which have room for records of `longest`.
    pub(crate) fn new(pd: &Pd, ring: usize, longest: usize) -> Result<Self> {
        let count = (ring / LINE) as u64;
        debug_assert!(count.is_power_of_two() && count / PARTS > lines(longest));
        let inbox = pd.reg_mr(&Buf::alloc(LINE + ring)?, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        let copy = pd.reg_mr(&Buf::alloc(LINE + ring)?, Access::LOCAL_WRITE)?;
        Ok(Self { inbox, copy, peer: None, count, next: 0, done: 0, told: 0, put: 0, free: 0 })
    }

    /// What the peer needs to write to it.
    pub(crate) fn offer(&self) -> Offer {
        Offer { at: self.inbox.remote(0), len: self.inbox.buf().len() as u32 }
    }

    /// The peer offers its own; whether it is one.
    pub(crate) fn open(&mut self, offer: Offer) -> bool {
        self.peer = Some(offer.at);
        offer.len as usize == self.inbox.buf().len()
    }

    /// The memory that payloads lie in.
    pub(crate) fn buf(&self) -> &Buf {
        self.inbox.buf()
    }

    /// Where a line is in the memory; lines are counted on, lap by lap.
    fn at(&self, line: u64) -> usize {
        LINE + (line & (self.count - 1)) as usize * LINE
    }

    /// Lines between a place and the ring's end.
    fn ahead(&self, line: u64) -> u64 {
        self.count - (line & (self.count - 1))
    }

    fn first_word(&self) -> u64 {
        word(self.buf(), self.at(self.next)).load(Ordering::Acquire)
    }

    /// Whether there is another message, or nonsense.
    pub(crate) fn has_news(&mut self) -> bool {
        let mut first = self.first_word();
        if first == MARK {
            self.next += self.ahead(self.next);
            first = self.first_word();
        }
        if first == 0 {
            return false;
        }
        let lines = lines(usize::from((u64::from_le(first) >> 16) as u16));
        let end = self.at(self.next) + lines as usize * LINE - WORD;
        lines > self.ahead(self.next) || word(self.buf(), end).load(Ordering::Acquire) != 0
    }

    /// The next message, if it [`FastPath::has_news`], and up to which line it goes. It lies there until that is
    /// [`FastPath::release`]d.
    ///
    /// # Errors
    /// [`Class::OTHER`] for what no process says.
    pub(crate) fn take(&mut self) -> Result<(Received, u64)> {
        let at = self.at(self.next);
        let mut head = [0; HEAD_MAX];
        let known = HEAD_MAX.min(self.buf().len() - at);
        self.buf().read(at, &mut head[..known])?;
        let len = length_of(&head);
        let (message, _) = Message::parse(&head, len).ok_or_else(nonsense)?;
        if lines(len) > self.ahead(self.next) {
            return Err(nonsense());
        }
        self.next += lines(len);
        let head_len = message.head_len();
        Ok((Received { message, at: at + head_len, len: len - head_len }, self.next))
    }

    /// The lines before this one are free again; whether the peer is to be [told](FastPath::tell).
    pub(crate) fn release(&mut self, upto: u64) -> bool {
        for line in self.done..upto {
            let at = self.at(line);
            word(self.buf(), at).store(0, Ordering::Relaxed);
            word(self.buf(), at + LINE - WORD).store(0, Ordering::Relaxed);
        }
        self.done = upto;
        self.done - self.told >= self.count / PARTS
    }

    /// Whether the peer waits to hear of lines, what to tell it, and where.
    pub(crate) fn tell(&mut self) -> Option<(RemoteAddr, [u8; WORD])> {
        let peer = self.peer.filter(|_| self.done - self.told >= self.count / PARTS)?;
        self.told = self.done;
        Some((peer, self.done.to_le_bytes()))
    }

    /// Whether there is room for a record of `len` bytes and the last record of the connection.
    pub(crate) fn has_room(&mut self, len: usize) -> bool {
        let (lines, ahead) = (lines(len), self.ahead(self.put));
        let wanted = self.put + lines + LAST + if lines > ahead { ahead } else { 0 };
        if wanted > self.free + self.count {
            let told = u64::from_le(word(self.buf(), 0).load(Ordering::Acquire));
            // What a peer says that lies harms nobody else.
            self.free = told.clamp(self.free, self.put);
        }
        wanted <= self.free + self.count
    }

    /// Makes a record of a message. There must be [room](FastPath::has_room), unless it is the connection's last. The payload may be used again
    /// when this returns.
    pub(crate) fn put(&mut self, message: &Message, payload: &Payload<'_>) -> Result<Stores> {
        let len = message.head_len() + payload.len();
        let (lines, ahead) = (lines(len), self.ahead(self.put));
        let mark = (lines > ahead).then(|| self.at(self.put));
        self.put += if mark.is_some() { ahead } else { 0 };
        let (at, bytes) = (self.at(self.put), lines as usize * LINE);
        let (head, copy) = (message.bytes(len as u16), self.copy.buf());
        copy.write(at, head.as_slice())?;
        payload.copy_to(copy, at + head.as_slice().len())?;
        word(copy, at + bytes - WORD).store(END, Ordering::Relaxed);
        self.put += lines;
        Ok(Stores { mark, at, len: bytes })
    }

    /// The peer's place of this one.
    pub(crate) fn remote(&self, at: usize) -> Option<RemoteAddr> {
        self.peer.map(|peer| peer.offset(at as u64))
    }

    /// A record, for a work request.
    pub(crate) fn sge(&self, stores: Stores) -> Sge {
        self.copy.sge(stores.at as u64, stores.len as u32)
    }

    /// A record's bytes, for a work request that has them in it.
    pub(crate) fn load(&self, stores: Stores, into: &mut [u8]) -> Result<()> {
        Ok(self.copy.buf().read(stores.at, into)?)
    }
}
