//! Long messages that sender and receiver copy together, piece by piece: each claims pieces that the other has not started.

use host::SlotKey;
use verbs::Buf;

use super::Engine;
use crate::error::Result;
use crate::p2p::operation::{OpState, Operation, SenderCopy};
use crate::p2p::proto::Proto;
use crate::p2p::shm_copy::{Copying, SharedMessage};
use crate::p2p::wire::{Message, RemoteMemory};
use crate::peers::connection::Payload;

impl Engine {
    /// Starts to copy queued messages of a process together with it, while claim words are free: reading one alone would take
    /// longer than waiting for those before it.
    pub(super) fn start_shared_copies(&mut self, from: u32) {
        while let Some((key, share)) = self.transport.next_share(from) {
            let Some(Operation { state: OpState::LongReceive(long_receive), .. }) =
                self.operations.get_mut(key)
            else {
                self.transport.end_share(from, &share);
                continue;
            };
            let id = long_receive.rts.id;
            let rkey = long_receive.registration.remote(long_receive.addr).rkey;
            let into = RemoteMemory { addr: long_receive.addr, rkey, length: share.length };
            long_receive.copying = Some(Copying::new(
                share,
                true,
                long_receive.addr,
                &long_receive.registration,
                long_receive.rts.at,
            ));
            long_receive.left = share.piece_count();
            let (word, sequence) = (share.word, share.sequence);
            let message = Message::ShmCts { id, key: key.number(), at: into, word, sequence };
            // An error means that the peer is lost, which an event reports.
            if self.transport.send(from, message, Payload::None, None).is_ok() {
                drop(self.continue_receiver_copy(key));
            }
        }
    }

    /// Continues to copy a message at the receiver.
    pub(super) fn continue_receiver_copy(&mut self, key: SlotKey) -> Result<()> {
        if let Some(Operation { state: OpState::LongReceive(long_receive), .. }) =
            self.operations.get_mut(key)
            && let Some(copying) = &long_receive.copying
        {
            let (copies, is_stalled) = self.transport.copy(long_receive.envelope.source, copying, key)?;
            long_receive.in_flight += u64::from(copies);
            if is_stalled {
                self.stall(key);
            }
        }
        Ok(())
    }

    /// Copies pieces of a message of this process, on the receiver's invitation.
    pub(super) fn start_sender_copy(
        &mut self,
        to: u32,
        id: SlotKey,
        key: u64,
        share: SharedMessage,
        at: RemoteMemory,
    ) {
        let Some(Operation { state: OpState::Send { to: known, long_send: Some(sending), .. }, .. }) =
            self.operations.get_mut(id)
        else {
            return;
        };
        let staged = sending.staging.as_ref().map(Buf::addr);
        let local = staged.or_else(|| sending.buffer.contiguous_range().map(|(addr, _)| addr as u64));
        let Some(local) = local.filter(|_| *known == to && at.length <= sending.buffer.len()) else { return };
        if sending.sender_copy.is_some() {
            // A receiver invites only once; this message is ignored.
            return;
        }
        let copying = Copying::new(share, false, local, &sending.registration, at);
        sending.sender_copy = Some(SenderCopy { copying, key, in_flight: 0, copied: 0 });
        self.count_long(id, to, Some(Proto::RndvShm));
        self.continue_sender_copy(id);
    }

    fn stall(&mut self, key: SlotKey) {
        if !self.stalled.contains(&key) {
            self.stalled.push(key);
        }
    }

    /// Continues all messages that waited for room in a send queue.
    pub(super) fn resume_stalled(&mut self) {
        for key in std::mem::take(&mut self.stalled) {
            // An error means that the peer is lost, which an event reports.
            drop(self.continue_receiver_copy(key));
            self.continue_sender_copy(key);
        }
    }

    /// Continues to copy a message at the sender.
    pub(super) fn continue_sender_copy(&mut self, id: SlotKey) {
        let Some(Operation { state: OpState::Send { to, long_send: Some(sending), .. }, .. }) =
            self.operations.get_mut(id)
        else {
            return;
        };
        let (to, Some(sender_copy)) = (*to, &mut sending.sender_copy) else { return };
        // For a lost peer nothing is copied.
        let (copies, is_stalled) = self.transport.copy(to, &sender_copy.copying, id).unwrap_or_default();
        sender_copy.in_flight += copies;
        if is_stalled {
            return self.stall(id);
        }
        if sender_copy.in_flight > 0 {
            return;
        }
        let (key, pieces) = (sender_copy.key, sender_copy.copied);
        sending.sender_copy = None;
        if pieces > 0 {
            drop(self.transport.send(to, Message::ShmFin { key, pieces }, Payload::None, None));
        }
    }

    /// The sender has finished its pieces of a message that both copy.
    pub(super) fn handle_shm_fin(&mut self, from: u32, key: SlotKey, pieces: u32) {
        if let Some(Operation { state: OpState::LongReceive(long_receive), .. }) =
            self.operations.get_mut(key)
            && long_receive.envelope.source == from
            && long_receive.copying.is_some()
        {
            long_receive.left = long_receive.left.saturating_sub(pieces.into());
            if long_receive.is_complete() {
                self.finish_long_receive(key);
            }
        }
    }
}
