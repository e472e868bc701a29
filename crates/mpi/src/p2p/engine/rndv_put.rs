//! Long messages that the sender writes to the memory that the receiver's CTS names.

use host::Step;
use verbs::{Buf, RemoteAddr, SendOp};

use super::{Engine, Started};
use crate::error::Result;
use crate::memory::{Buffer, Piece};
use crate::p2p::matching::Envelope;
use crate::p2p::operation::{LongReceive, LongSend, OpState, Operation, PutSend, Receive, RtsInfo};
use crate::p2p::proto::Proto;
use crate::p2p::wire::{MatchKey, Message, RemoteMemory};
use crate::peers::connection::Payload;
use host::SlotKey;

/// Bytes of the longest write.
const WRITE_MAX: u64 = 1 << 30;

impl Engine {
    /// Sends an RTS for contiguous data of the program, followed by the first fragment, so that data are in flight while the two
    /// processes agree on the rest: a read by the receiver would take one more message.
    pub(super) fn send_rndv_put(&mut self, to: u32, match_key: MatchKey, buffer: &Buffer) -> Result<Started> {
        let whole = buffer.piece().unwrap_or(Piece::empty());
        let (addr, len) = whole.addr_len();
        self.host.charge_step(Step::Request, 1);
        let registration =
            self.transport.register_in(to, (addr as usize, len as usize), buffer.memory(), false)?;
        // The receiver answers, so at least half waits for the CTS.
        let fragment = self.transport.fragment_to(to)?.min(len as usize / 2);
        let [first, rest] = whole.split(fragment);
        let begin = registration.sge(addr, first.len() as u32);
        let mut long_send = LongSend::new(registration, buffer.clone(), Some(Proto::RndvPut));
        long_send.writing = Some(PutSend { rest, in_flight: 0 });
        let key = self.operations.insert(Operation::new(OpState::Send {
            to,
            awaits_fin: true,
            long_send: Some(Box::new(long_send)),
        }));
        let id = key.number();
        let at = RemoteMemory { addr: 0, rkey: 0, length: len };
        let message = Message::Rts { match_key, id, at, frag_bytes: first.len() as u32, put: true };
        let started = self.start_or_remove(key, |engine| {
            engine.transport.send(to, message, Payload::None, None)?;
            engine.post_fragments(to, Message::Frag { id }, (first, begin), None)
        })?;
        self.long_sends += 1;
        Ok(started)
    }

    /// Sends the CTS of a message, with the address for the rest of its data, if the receive wants any.
    pub(super) fn send_cts(
        &mut self,
        key: SlotKey,
        receive: Receive,
        (envelope, rts): (Envelope, RtsInfo),
        (addr, staging): (u64, Option<Buf>),
    ) -> Result<()> {
        let (from, wanted) = (envelope.source, rts.at.length.min(receive.buffer.len()));
        let (rest, at) = (rts.bytes_after_fragments(wanted), addr + u64::from(rts.frag_bytes));
        let registration = match rest {
            0 => self.transport.reach(from, addr as usize, wanted as usize, false)?,
            _ => self.transport.register_for_writes(from, (at as usize, rest as usize))?,
        };
        let remote = registration.remote(at);
        let mut long_receive = LongReceive::new(receive, (envelope, rts), registration, (addr, staging));
        (long_receive.awaits_write, long_receive.left) =
            (rest > 0, u64::from(rest > 0) + u64::from(rts.frag_bytes > 0));
        if let Some(operation) = self.operations.get_mut(key) {
            operation.state = OpState::LongReceive(Box::new(long_receive));
        }
        if rest == 0 {
            return Ok(());
        }
        let (id, place) = (rts.id, key.slot());
        let at = RemoteMemory { addr: remote.addr, rkey: remote.rkey, length: rest };
        self.transport.send(from, Message::Cts { id, at, place }, Payload::None, None)
    }

    /// A CTS has arrived: writes the rest of this process's message.
    pub(super) fn handle_cts(&mut self, to: u32, id: SlotKey, at: RemoteMemory, place: u32) {
        let Some(Operation { state: OpState::Send { to: known, long_send: Some(sending), .. }, .. }) =
            self.operations.get_mut(id)
        else {
            return;
        };
        let LongSend { writing: Some(writing), registration, .. } = &mut **sending else { return };
        let (from, len) = writing.rest.addr_len();
        if *known != to || writing.in_flight > 0 || at.length == 0 || at.length > len {
            return;
        }
        let begins = (0..at.length).step_by(WRITE_MAX as usize);
        writing.in_flight = at.length.div_ceil(WRITE_MAX) as u32;
        let writes = begins.map(|begin| {
            let target = RemoteAddr { addr: at.addr + begin, rkey: at.rkey };
            let step = (at.length - begin).min(WRITE_MAX);
            let op = match begin + step == at.length {
                true => SendOp::WriteImm(target, place),
                false => SendOp::Write(target),
            };
            (op, registration.sge(from + begin, step as u32))
        });
        let writes: Vec<_> = writes.collect();
        self.count_long(id, to, None);
        for (op, piece) in writes {
            // An error means that the peer is lost, which an event reports.
            drop(self.transport.access(to, op, piece, id));
        }
    }

    /// The rest of a message has been written to this process.
    pub(super) fn handle_write_imm(&mut self, from: u32, place: u32) {
        let Some(key) = self.operations.key_at(place) else { return };
        if let Some(Operation { state: OpState::LongReceive(long_receive), .. }) =
            self.operations.get_mut(key)
            && long_receive.envelope.source == from
            && std::mem::take(&mut long_receive.awaits_write)
        {
            long_receive.left -= 1;
            if long_receive.is_complete() {
                self.finish_long_receive(key);
            }
        }
    }
}
