//! Long messages that are sent as one, from the program's memory. Their beginning arrives in a slot with the header, and the device
//! reads the rest into the memory that this side names for it.

use host::Step;

use super::{Engine, Started};
use crate::error::Result;
use crate::memory::{Buffer, Piece};
use crate::p2p::operation::{LongSend, OpState, Operation};
use crate::p2p::wire::{MatchKey, Message};
use crate::peers::connection::Payload;

impl Engine {
    /// Sends contiguous data of the program with their header.
    pub(super) fn send_direct(&mut self, to: u32, match_key: MatchKey, buffer: &Buffer) -> Result<Started> {
        self.host.charge_step(Step::Request, 1);
        let bytes = buffer.piece().unwrap_or(Piece::empty());
        let (address, length) = bytes.addr_len();
        let registration = self.transport.reach(to, address as usize, length as usize, false)?;
        let from = registration.sge(address, length as u32);
        let long_send = Some(Box::new(LongSend::new(registration, buffer.clone(), None)));
        let state = OpState::Send { to, awaits_fin: false, long_send };
        let key = self.operations.insert(Operation::new(state));
        let payload = Payload::Zcopy { bytes, from, key: Some(key) };
        let message = Message::Begin { match_key, length };
        let started =
            self.start_or_remove(key, |engine| engine.transport.send(to, message, payload, None))?;
        self.long_sends += 1;
        Ok(started)
    }

    /// The device has read the rest of the message that a process has begun to send.
    pub(super) fn handle_rest(&mut self, from: u32, len: u32) {
        match self.rests.remove(&from) {
            Some(rest) if rest.left == u64::from(len) => self.finish_rest(rest.sink),
            Some(_) => self.transport.refuse(from),
            None => {}
        }
    }
}
