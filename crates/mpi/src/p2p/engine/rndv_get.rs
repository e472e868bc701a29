//! Long messages that the receiver reads from the sender's memory; and how the receive of any long message starts and completes.

use host::Step;
use verbs::Buf;

use super::{Engine, Started};
use crate::error::Result;
use crate::memory::Buffer;
use crate::p2p::matching::Envelope;
use crate::p2p::operation::{LongReceive, LongSend, OpState, Operation, Receive, RtsInfo};
use crate::p2p::proto::Proto;
use crate::p2p::wire::{MatchKey, Message, RemoteMemory};
use crate::peers::connection::Payload;
use crate::status::Status;
use host::SlotKey;

impl Engine {
    /// Sends an RTS with the address of the data. A copy, and data in several pieces, are staged in memory of the operation. The
    /// receiver reads them, or invites this process to copy pieces too (`rndv_shm`).
    pub(super) fn send_rndv_get(
        &mut self,
        to: u32,
        match_key: MatchKey,
        buffer: &Buffer,
        copy: Option<Vec<u8>>,
    ) -> Result<Started> {
        let len = buffer.len() as usize;
        let (addr, staging) = self.contiguous_data(buffer, copy)?;
        self.host.charge_step(Step::Request, 1);
        let memory = if staging.is_none() { buffer.memory() } else { None };
        let registration = self.transport.register_in(to, (addr, len), memory, true)?;
        let remote = registration.remote(addr as u64);
        let at = RemoteMemory { addr: remote.addr, rkey: remote.rkey, length: len as u64 };
        let mut long_send = LongSend::new(registration, buffer.clone(), Some(Proto::RndvGet));
        long_send.staging = staging;
        let key = self.operations.insert(Operation::new(OpState::Send {
            to,
            awaits_fin: true,
            long_send: Some(Box::new(long_send)),
        }));
        let message = Message::Rts { match_key, id: key.number(), at };
        let started =
            self.start_or_remove(key, |engine| engine.transport.send(to, message, Payload::None, None))?;
        self.long_sends += 1;
        Ok(started)
    }

    /// Returns the address of a buffer's bytes as one piece: in the program's memory, or in a staging copy.
    fn contiguous_data(&self, buffer: &Buffer, copy: Option<Vec<u8>>) -> Result<(usize, Option<Buf>)> {
        if let (Some((addr, _)), None) = (buffer.contiguous_range(), &copy) {
            return Ok((addr, None));
        }
        let staging = Buf::alloc(buffer.len() as usize)?;
        match copy {
            Some(bytes) => staging.write(0, &bytes)?,
            None => buffer.load_to(&staging, 0)?,
        }
        self.host.charge_copy(buffer.len());
        Ok((staging.addr() as usize, Some(staging)))
    }

    /// Starts to fetch the data of a message that a receive has matched.
    pub(super) fn start_long_receive(&mut self, key: SlotKey, envelope: Envelope, rts: RtsInfo) {
        let operation = self.operations.get_mut(key);
        let Some(receive) = operation.and_then(|operation| operation.receive(&envelope)) else { return };
        let (from, id) = (envelope.source, rts.id);
        if rts.at.length.min(receive.buffer.len()) == 0 {
            self.send_fin(from, id);
            return self.complete(key, receive.status(&envelope, rts.at.length));
        }
        if let Err(error) = self.start_transfer(key, receive, envelope, rts) {
            self.send_failed_fin(from, id);
            self.complete(key, Status::failed(error));
        }
    }

    fn start_transfer(
        &mut self,
        key: SlotKey,
        receive: Receive,
        envelope: Envelope,
        rts: RtsInfo,
    ) -> Result<()> {
        let (from, wanted) = (envelope.source, rts.at.length.min(receive.buffer.len()));
        let (addr, staging) = match receive.buffer.contiguous_range() {
            Some((addr, _)) => (addr as u64, None),
            None if wanted == 0 => (0, None),
            None => {
                let staging = Buf::alloc(wanted as usize)?;
                (staging.addr(), Some(staging))
            }
        };
        let step = self.transport.nic_of(from)?.shared.access_max();
        let memory = if staging.is_none() { receive.buffer.memory() } else { None };
        let registration =
            self.transport.register_in(from, (addr as usize, wanted as usize), memory, false)?;
        // A process that also sends a long message takes part in an exchange, where its peer has as much to read: if both also
        // copied each other's pieces, that would only move memory between caches.
        if self.long_sends == 0 && self.transport.may_share(from, wanted) {
            let mut long_receive = LongReceive::new(receive, (envelope, rts), registration, (addr, staging));
            long_receive.left = wanted;
            if let Some(operation) = self.operations.get_mut(key) {
                operation.state = OpState::LongReceive(Box::new(long_receive));
            }
            self.transport.await_share(from, key, wanted);
            self.start_shared_copies(from);
            return Ok(());
        }
        let at = rts.at;
        let pieces = (0..wanted).step_by(step as usize).map(|begin| {
            let piece = RemoteMemory { addr: at.addr + begin, ..at };
            (piece, registration.sge(addr + begin, (wanted - begin).min(step) as u32))
        });
        let pieces: Vec<_> = pieces.collect();
        let in_flight = pieces.len() as u64;
        let mut long_receive = LongReceive::new(receive, (envelope, rts), registration, (addr, staging));
        (long_receive.left, long_receive.in_flight) = (in_flight, in_flight);
        if let Some(operation) = self.operations.get_mut(key) {
            operation.state = OpState::LongReceive(Box::new(long_receive));
        }
        pieces.into_iter().try_for_each(|(piece, into)| self.transport.read(from, piece, into, key))
    }

    /// A piece has been copied.
    pub(super) fn piece_completed(&mut self, key: SlotKey) {
        match self.operations.get_mut(key).map(|operation| &mut operation.state) {
            Some(OpState::LongReceive(long_receive)) => {
                long_receive.left = long_receive.left.saturating_sub(1);
                long_receive.in_flight = long_receive.in_flight.saturating_sub(1);
                if long_receive.is_complete() {
                    self.finish_long_receive(key);
                } else {
                    // An error means that the peer is lost, which an event reports.
                    drop(self.continue_receiver_copy(key));
                }
            }
            Some(OpState::Send { awaits_fin: false, .. }) => self.complete(key, Status::empty()),
            Some(OpState::Send { long_send: Some(sending), .. }) => {
                if let Some(sender_copy) = &mut sending.sender_copy {
                    (sender_copy.in_flight, sender_copy.copied) =
                        (sender_copy.in_flight.saturating_sub(1), sender_copy.copied + 1);
                    self.continue_sender_copy(key);
                }
            }
            _ => {}
        }
    }

    /// All pieces of a message have arrived.
    pub(super) fn finish_long_receive(&mut self, key: SlotKey) {
        let Some(Operation { state: OpState::LongReceive(long_receive), .. }) = self.operations.get_mut(key)
        else {
            return;
        };
        let (from, rts) = (long_receive.envelope.source, long_receive.rts);
        if let Some(copying) = &long_receive.copying {
            self.transport.end_share(from, &copying.share);
        }
        let mut status = long_receive.receive.status(&long_receive.envelope, rts.at.length);
        if let Some(staging) = &long_receive.staging {
            self.host.charge_copy(staging.len() as u64);
            if let Err(error) = long_receive.receive.buffer.store_from(staging, 0, staging.len()) {
                status = Status::failed(error.into());
            }
        }
        self.send_fin(from, rts.id);
        self.complete(key, status);
        self.start_shared_copies(from);
    }
}
