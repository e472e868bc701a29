//! Both directions of one stream, and what they must tell each other.

use std::time::Duration;

use thiserror::Error;

use crate::mpa::{MULPDU_MAX, Negotiated, Role};
use crate::rx::{Event, Failure, Front, Lookup, Receive, Received, Receiver, ReceiverConfig};
use crate::terminate::{Terminate, TerminateCode};
use crate::tx::{Op, OpKind, PostError, Sender, SenderConfig, Transmit};

/// What a connection may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Operations that may wait to be sent.
    pub queue: usize,
    /// Bytes of a segment, at most; see [`crate::mpa::mulpdu_for`].
    pub mulpdu: u16,
    /// How long the first message of a peer-to-peer connection may take.
    pub rtr_timeout: Duration,
}

impl Default for Limits {
    /// 128 operations, the largest segments.
    fn default() -> Self {
        Self { queue: 128, mulpdu: MULPDU_MAX, rtr_timeout: Duration::from_secs(10) }
    }
}

/// How a stream may not end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the stream ended in the middle of a message")]
pub struct Cut;

/// A connection after its handshake.
///
/// Receive with [`Self::poll_receive`] as [`crate::rx`] describes, send with [`Self::poll_transmit`] as [`crate::tx`] does, in
/// any order; receiving may give something to send. After a [`Failure`], send what `poll_transmit` still has (it is the
/// Terminate), then close the stream.
///
/// A driver that wants to send and to receive under two locks can use [`Sender`] and [`Receiver`] themselves; what it must
/// carry from one to the other is what this type does.
#[derive(Debug)]
pub struct Connection {
    receiver: Receiver,
    sender: Sender,
    /// Until when the peer must have spoken.
    rtr_deadline: Option<Duration>,
    /// The peer may understand messages beyond the RFCs: receipts and limits of retries.
    has_extensions: bool,
}

impl Connection {
    /// Begins at `now`, counted from the epoch of the handshake.
    pub fn new(negotiated: &Negotiated, limits: &Limits, now: Duration) -> Self {
        let &Negotiated { role, crc, ird, ord, rtr, .. } = negotiated;
        let passive = role == Role::Responder;
        let receiver = Receiver::new(ReceiverConfig { crc, ird, ord, rtr: rtr.filter(|_| passive) });
        let sender = Sender::new(SenderConfig {
            crc,
            ird,
            ord,
            queue: limits.queue,
            mulpdu: limits.mulpdu,
            held: passive,
            rtr: rtr.filter(|_| !passive),
        });
        // In client and server fashion the client may stay silent as long as it likes.
        let rtr_deadline = (passive && rtr.is_some()).then(|| now.saturating_add(limits.rtr_timeout));
        Self { receiver, sender, rtr_deadline, has_extensions: negotiated.may_have_extensions() }
    }

    /// Queues an operation.
    #[inline]
    pub fn post(&mut self, op: Op) -> Result<(), PostError> {
        self.sender.post(op)
    }

    /// As [`Sender::write_at_once`].
    #[inline]
    pub fn write_at_once<E>(
        &mut self,
        kind: &OpKind,
        out: &mut Vec<u8>,
        payload: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        self.sender.write_at_once(kind, out, payload)
    }

    /// What is to be done next with the stream's bytes.
    pub fn poll_receive<L: Lookup + ?Sized>(&mut self, lookup: &mut L) -> Result<Receive, Failure> {
        let receive = match self.receiver.poll(lookup) {
            Ok(receive) => receive,
            Err(failure) => {
                self.rtr_deadline = None;
                self.terminate(failure.terminate);
                return Err(failure);
            }
        };
        if let Receive::Event(event) = receive {
            match event {
                Event::Ready => {
                    self.rtr_deadline = None;
                    self.sender.release();
                }
                Event::ReadRequest(request) => self.sender.answer_read(request),
                Event::AtomicRequest(request) => self.sender.answer_atomic(request),
                Event::ReadDone { .. } | Event::AtomicDone { .. } | Event::RtrDone => self.sender.answered(),
                // RFC 5040 section 5.4: a Terminate is not answered.
                Event::Terminated(_) => self.sender.close(),
                Event::Received(_) => {}
            }
        }
        Ok(receive)
    }

    /// As [`Receiver::feed`].
    #[inline]
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        self.receiver.feed(bytes)
    }

    /// As [`Receiver::space`].
    pub fn space(&mut self) -> &mut [u8] {
        self.receiver.space()
    }

    /// As [`Receiver::filled`].
    pub fn filled(&mut self, n: usize) {
        self.receiver.filled(n);
    }

    /// As [`Receiver::check`].
    #[inline]
    pub fn check(&mut self, bytes: &[u8]) {
        self.receiver.check(bytes);
    }

    /// As [`Receiver::take_write`].
    #[inline]
    pub fn take_write(
        &mut self,
        bytes: &[u8],
        place: impl FnOnce(u32, u64, &[u8]) -> bool,
    ) -> Option<(usize, Front)> {
        self.receiver.take_write(bytes, place)
    }

    /// As [`Receiver::take_send`].
    #[inline]
    pub fn take_send(
        &mut self,
        bytes: &[u8],
        place: impl FnOnce(&[u8]) -> bool,
    ) -> Option<(usize, Received)> {
        self.receiver.take_send(bytes, place)
    }

    /// As [`Receiver::placed`].
    #[inline]
    pub fn placed(&mut self, len: usize) {
        self.receiver.placed(len);
    }

    /// As [`Receiver::checks_crc`].
    #[inline]
    pub fn checks_crc(&self) -> bool {
        self.receiver.checks_crc()
    }

    /// As [`Receiver::begins_fpdu`].
    #[inline]
    pub fn begins_fpdu(&self) -> bool {
        self.receiver.begins_fpdu()
    }

    /// What is to be sent or done next; `None` until something changes.
    #[inline]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.sender.poll()?;
        if let Transmit::Fpdu(fpdu) = &transmit {
            if let Some(expected) = fpdu.expects {
                self.receiver.expect(expected);
            }
            if fpdu.last && fpdu.origin == crate::tx::Origin::Answer {
                self.receiver.served();
            }
        }
        Some(transmit)
    }

    /// The atomic that was yielded has been carried out; returns its answer, to be sent next.
    pub fn atomic_done(&mut self, original: u64) -> Option<crate::tx::Fpdu> {
        let fpdu = self.sender.atomic_done(original)?;
        self.receiver.served();
        Some(fpdu)
    }

    /// Changes the size of segments from now on.
    pub fn set_mulpdu(&mut self, mulpdu: u16) {
        self.sender.set_mulpdu(mulpdu);
    }

    /// Ends the stream from this side because of an error that the driver found, such as a buffer that has gone while the peer
    /// reads it. The Terminate is yielded next; nothing more is received.
    pub fn abort(&mut self, code: TerminateCode) {
        self.receiver.close();
        self.rtr_deadline = None;
        self.terminate(Terminate::new(code));
    }

    /// As [`Self::abort`], because the payload of the segment that is being received cannot be placed: the Terminate repeats its
    /// header, by which the peer knows which of its requests it is about.
    pub fn refuse(&mut self, code: TerminateCode) -> Failure {
        self.rtr_deadline = None;
        let failure = self.receiver.refuse(code);
        self.terminate(failure.terminate);
        failure
    }

    fn terminate(&mut self, terminate: Terminate) {
        if self.has_extensions
            && let Some(messages) = self.receiver.received()
        {
            self.sender.say_received(messages);
        }
        self.sender.terminate(terminate);
    }

    /// Ends the stream from this side in order, between two messages: a receipt is yielded next, then nothing. Nothing more is
    /// received. Call it when all that was received has also been delivered to the program, since the receipt covers that.
    pub fn finish(&mut self) {
        let received = self.has_extensions.then(|| self.receiver.delivered()).flatten();
        self.receiver.close();
        self.rtr_deadline = None;
        self.sender.finish(received);
    }

    /// As [`Receiver::receipt`].
    pub fn receipt(&self) -> Option<u32> {
        self.receiver.receipt()
    }

    /// As [`Receiver::rnr_limit`].
    pub fn rnr_limit(&self) -> Option<u8> {
        self.receiver.rnr_limit()
    }

    /// Whether the peer may understand a limit of retries ([`crate::rnr_limit`]). Announce none to others.
    pub fn may_announce_rnr_limit(&self) -> bool {
        self.has_extensions
    }

    /// The peer has closed its direction, or the stream is gone. What this side sends is not touched.
    pub fn handle_eof(&mut self) -> Result<(), Cut> {
        let whole = self.receiver.is_at_boundary();
        self.receiver.close();
        self.rtr_deadline = None;
        if whole { Ok(()) } else { Err(Cut) }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        self.rtr_deadline
    }

    /// Ends the stream if the peer's first message is overdue.
    pub fn handle_timeout(&mut self, now: Duration) -> Result<(), Failure> {
        match self.rtr_deadline {
            Some(deadline) if now >= deadline => {
                self.abort(TerminateCode::LLP_RTR);
                Err(Failure { terminate: Terminate::new(TerminateCode::LLP_RTR) })
            }
            _ => Ok(()),
        }
    }

    /// Whether everything that was queued has been yielded, so that the stream may be closed in order.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.sender.is_idle()
    }

    /// Whether nothing is sent any more.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Requests of this side that wait for their answers.
    #[inline]
    pub fn outstanding(&self) -> u16 {
        self.sender.outstanding()
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
