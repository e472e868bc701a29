//! Long messages, once they have met their receive: it reads them from the sender's memory, or has the rest of them written.

use host::SlotKey;
use verbs::{Buf, RemoteAddr, SendOp};

use super::Engine;
use crate::error::Result;
use crate::p2p::matching::Envelope;
use crate::p2p::operation::{Announced, Brought, LongReceive, LongSend, Operation, Receive, Work};
use crate::p2p::wire::{Exposed, Message};
use crate::peers::connection::{Payload, Received};
use crate::peers::transport::HeldAt;
use crate::status::Status;

/// Bytes of the longest write.
const WRITE_MAX: u64 = 1 << 30;

impl Engine {
    /// Begins to read the data of a message that a receive has matched.
    pub(super) fn fetch(&mut self, key: SlotKey, envelope: Envelope, rts: Announced) {
        let operation = self.operations.get_mut(key);
        let Some(receive) = operation.and_then(|operation| operation.receive(&envelope)) else { return };
        let (from, id) = (envelope.source, rts.id);
        if rts.at.length.min(receive.buffer.len()) == 0 && rts.frag_bytes == 0 {
            self.tell(from, id, true);
            return self.end(key, receive.status(&envelope, rts.at.length));
        }
        let here = self.fragments.take(from, id, key);
        if let Err(error) = self.read(key, receive, envelope, rts) {
            self.fragments.give_up(from, id);
            self.tell(from, id, false);
            return self.end(key, Status::failed(error));
        }
        if !here.is_empty()
            && let Some(operation) = self.operations.get_mut(key)
        {
            let is_there = operation.take_part(Brought::Bytes(&here));
            self.took(key, is_there);
        }
        // Of a message that was kept, parts may be missing that come no more.
        if let Some(error) = self.transport.lost(from).cloned()
            && let Some(Operation { work: Work::LongReceive(_), .. }) = self.operations.get_mut(key)
        {
            self.end(key, Status::failed(error));
        }
    }

    /// The next part of a long message has come.
    pub(super) fn part(&mut self, from: u32, id: u64, what: &Received, place: HeldAt) {
        let (buf, range) = self.transport.payload(what, place);
        let brought = Brought::Slot(buf, range.start, range.len());
        self.host.charge_copy(range.len() as u64);
        if let Some(key) = self.fragments.arrive(from, id, brought)
            && let Some(operation) = self.operations.get_mut(key)
        {
            let is_there = operation.take_part(brought);
            self.took(key, is_there);
        }
    }

    /// A receive has got a part of its message, if it could take it, and perhaps all of it.
    fn took(&mut self, key: SlotKey, is_there: verbs::Result<bool>) {
        match is_there {
            Ok(false) => {}
            Ok(true) => self.finish_reading(key),
            Err(error) => self.end(key, Status::failed(error.into())),
        }
    }

    /// Tells the sender of a message where the rest of it goes, if any is wanted.
    fn ask_for_rest(
        &mut self,
        key: SlotKey,
        receive: Receive,
        (envelope, rts): (Envelope, Announced),
        (addr, staging): (u64, Option<Buf>),
    ) -> Result<()> {
        let (from, wanted) = (envelope.source, rts.at.length.min(receive.buffer.len()));
        let (rest, at) = (rts.rest(wanted), addr + u64::from(rts.frag_bytes));
        let reach = match rest {
            0 => self.transport.reach(from, addr as usize, wanted as usize, false)?,
            _ => self.transport.let_in(from, (at as usize, rest as usize))?,
        };
        let remote = reach.remote(at);
        let mut reading = LongReceive::new(receive, (envelope, rts), reach, (addr, staging));
        (reading.is_open, reading.left) = (rest > 0, u64::from(rest > 0) + u64::from(rts.frag_bytes > 0));
        if let Some(operation) = self.operations.get_mut(key) {
            operation.work = Work::LongReceive(Box::new(reading));
        }
        if rest == 0 {
            return Ok(());
        }
        let (id, place) = (rts.id, key.slot());
        let at = Exposed { addr: remote.addr, rkey: remote.rkey, length: rest };
        self.transport.send(from, Message::Cts { id, at, place }, Payload::None, None)
    }

    fn read(&mut self, key: SlotKey, receive: Receive, envelope: Envelope, rts: Announced) -> Result<()> {
        let (from, wanted) = (envelope.source, rts.at.length.min(receive.buffer.len()));
        let (addr, staging) = match receive.buffer.one_piece() {
            Some((addr, _)) => (addr as u64, None),
            None if wanted == 0 => (0, None),
            None => {
                let staging = Buf::alloc(wanted as usize)?;
                (staging.addr(), Some(staging))
            }
        };
        if rts.put {
            return self.ask_for_rest(key, receive, (envelope, rts), (addr, staging));
        }
        let step = self.transport.nic_of(from)?.shared.access_max();
        let memory = if staging.is_none() { receive.buffer.memory() } else { None };
        let reach = self.transport.reach_in(from, (addr as usize, wanted as usize), memory, false)?;
        // Whoever sends, too, is in an exchange, where the other one has as much to read: with each other's messages both would only
        // move memory between caches.
        if self.lent == 0 && rts.frag_bytes == 0 && self.transport.may_share(from, wanted) {
            let mut reading = LongReceive::new(receive, (envelope, rts), reach, (addr, staging));
            reading.left = wanted;
            if let Some(operation) = self.operations.get_mut(key) {
                operation.work = Work::LongReceive(Box::new(reading));
            }
            self.transport.await_share(from, key, wanted);
            self.share_on(from);
            return Ok(());
        }
        let (at, first) = (rts.at, u64::from(rts.frag_bytes).min(wanted));
        let pieces = (first..wanted).step_by(step as usize).map(|begin| {
            let piece = Exposed { addr: at.addr + begin, ..at };
            (piece, reach.sge(addr + begin, (wanted - begin).min(step) as u32))
        });
        let pieces: Vec<_> = pieces.collect();
        let under_way = pieces.len() as u64;
        let mut reading = LongReceive::new(receive, (envelope, rts), reach, (addr, staging));
        (reading.left, reading.under_way) = (under_way + u64::from(rts.frag_bytes > 0), under_way);
        if let Some(operation) = self.operations.get_mut(key) {
            operation.work = Work::LongReceive(Box::new(reading));
        }
        pieces.into_iter().try_for_each(|(piece, into)| self.transport.read(from, piece, into, key))
    }

    /// Writes the rest of a message of this process's where its receiver wants it.
    pub(super) fn write(&mut self, to: u32, id: SlotKey, at: Exposed, place: u32) {
        let Some(Operation { work: Work::Send { to: known, held: Some(sending), .. }, .. }) =
            self.operations.get_mut(id)
        else {
            return;
        };
        let LongSend { writing: Some(writing), reach, .. } = &mut **sending else { return };
        let (from, len) = writing.rest.place();
        if *known != to || writing.under_way > 0 || at.length == 0 || at.length > len {
            return;
        }
        let begins = (0..at.length).step_by(WRITE_MAX as usize);
        writing.under_way = at.length.div_ceil(WRITE_MAX) as u32;
        let writes = begins.map(|begin| {
            let there = RemoteAddr { addr: at.addr + begin, rkey: at.rkey };
            let step = (at.length - begin).min(WRITE_MAX);
            let op = match begin + step == at.length {
                true => SendOp::WriteImm(there, place),
                false => SendOp::Write(there),
            };
            (op, reach.sge(from + begin, step as u32))
        });
        let writes: Vec<_> = writes.collect();
        for (op, piece) in writes {
            // An error is a loss, of which an event tells.
            drop(self.transport.access(to, op, piece, id));
        }
    }

    /// The rest of a message has been written to this process.
    pub(super) fn landed(&mut self, from: u32, place: u32) {
        let Some(key) = self.operations.key_at(place) else { return };
        if let Some(Operation { work: Work::LongReceive(reading), .. }) = self.operations.get_mut(key)
            && reading.envelope.source == from
            && std::mem::take(&mut reading.is_open)
        {
            reading.left -= 1;
            if reading.is_whole() {
                self.finish_reading(key);
            }
        }
    }

    /// A piece is copied.
    pub(super) fn fetched(&mut self, key: SlotKey) {
        match self.operations.get_mut(key).map(|operation| &mut operation.work) {
            Some(Work::LongReceive(reading)) => {
                reading.left = reading.left.saturating_sub(1);
                reading.under_way = reading.under_way.saturating_sub(1);
                if reading.is_whole() {
                    self.finish_reading(key);
                } else {
                    // An error is a loss, of which an event tells.
                    drop(self.copy_on(key));
                }
            }
            Some(Work::Send { answered: false, .. }) => self.end(key, Status::empty()),
            Some(Work::Send { held: Some(sending), .. }) => {
                if let Some(writing) = &mut sending.writing {
                    writing.under_way = writing.under_way.saturating_sub(1);
                    if writing.under_way == 0 {
                        self.end(key, Status::empty());
                    }
                    return;
                }
                if let Some(helping) = &mut sending.helping {
                    (helping.under_way, helping.copied) =
                        (helping.under_way.saturating_sub(1), helping.copied + 1);
                    self.help_on(key);
                }
            }
            _ => {}
        }
    }

    /// All pieces of a message are there.
    pub(super) fn finish_reading(&mut self, key: SlotKey) {
        let Some(Operation { work: Work::LongReceive(reading), .. }) = self.operations.get_mut(key) else {
            return;
        };
        let (from, rts) = (reading.envelope.source, reading.rts);
        if let Some(copying) = &reading.copying {
            self.transport.end_share(from, &copying.share);
        }
        let written = rts.put && rts.rest(rts.at.length.min(reading.receive.buffer.len())) > 0;
        let mut status = reading.receive.status(&reading.envelope, rts.at.length);
        if let Some(staging) = &reading.staging {
            self.host.charge_copy(staging.len() as u64);
            if let Err(error) = reading.receive.buffer.store_from(staging, 0, staging.len()) {
                status = Status::failed(error.into());
            }
        }
        // Who has written it, or has sent all of it, knows.
        if !written && u64::from(rts.frag_bytes) < rts.at.length {
            self.tell(from, rts.id, true);
        }
        self.end(key, status);
        self.share_on(from);
    }
}
