//! Both directions of one stream, and the state that one direction passes to the other.

use std::time::Duration;

use thiserror::Error;

use crate::mpa::{MULPDU_MAX, Negotiated, Role};
use crate::rx::{
    Event, FpduKind, Lookup, ProtocolViolation, Received, Receiver, ReceiverConfig, ReceiverStep,
};
use crate::terminate::{Terminate, TerminateCode};
use crate::tx::{Op, OpKind, PostError, Sender, SenderConfig, Transmit};

/// Limits of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Operations that may be queued for sending.
    pub queue: usize,
    /// Maximum size of a segment in bytes; see [`crate::mpa::mulpdu_for`].
    pub mulpdu: u16,
    /// How long a responder waits for the first message of a peer-to-peer connection.
    pub rtr_timeout: Duration,
}

impl Default for Limits {
    /// 128 operations, the largest segments.
    fn default() -> Self {
        Self { queue: 128, mulpdu: MULPDU_MAX, rtr_timeout: Duration::from_secs(10) }
    }
}

/// The peer closed the stream at a place where it may not end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("the stream ended inside a message")]
pub struct UnexpectedEof;

/// A connection after its handshake.
///
/// Receive with [`Self::poll_receive`] as [`crate::rx`] describes and send with [`Self::poll_transmit`] as
/// [`crate::tx`] describes, in any order. Receiving may queue something to send. After a [`ProtocolViolation`], send what
/// `poll_transmit` still yields (the Terminate), then close the stream.
///
/// A driver that sends and receives under two separate locks can use [`Sender`] and [`Receiver`] directly. It must
/// then pass the same state from one to the other as this type does.
#[derive(Debug)]
pub struct Connection {
    receiver: Receiver,
    sender: Sender,
    /// The peer must have sent its first message by this time.
    rtr_deadline: Option<Duration>,
    /// The peer may understand messages that no RFC defines: receipts and RNR retry limits.
    has_extensions: bool,
}

impl Connection {
    /// Starts at `now`, counted from the same epoch as the handshake.
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
        // In a client-server connection the client may stay silent for as long as it likes.
        let rtr_deadline = (passive && rtr.is_some()).then(|| now.saturating_add(limits.rtr_timeout));
        Self { receiver, sender, rtr_deadline, has_extensions: negotiated.may_have_extensions() }
    }

    /// Queues an operation.
    #[inline]
    pub fn post(&mut self, op: Op) -> Result<(), PostError> {
        self.sender.post(op)
    }

    /// See [`Sender::write_single`].
    #[inline]
    pub fn write_single<E>(
        &mut self,
        kind: &OpKind,
        out: &mut Vec<u8>,
        payload: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Option<Result<(), E>> {
        self.sender.write_single(kind, out, payload)
    }

    /// Returns the next thing to do with the bytes of the stream.
    pub fn poll_receive<L: Lookup + ?Sized>(
        &mut self,
        lookup: &mut L,
    ) -> Result<ReceiverStep, ProtocolViolation> {
        let receive = match self.receiver.poll(lookup) {
            Ok(receive) => receive,
            Err(failure) => {
                self.rtr_deadline = None;
                self.terminate(failure.terminate);
                return Err(failure);
            }
        };
        if let ReceiverStep::Event(event) = receive {
            match event {
                Event::Ready => {
                    self.rtr_deadline = None;
                    self.sender.release();
                }
                Event::ReadRequest(request) => self.sender.answer_read(request),
                Event::AtomicRequest(request) => self.sender.answer_atomic(request),
                Event::ReadDone { .. } | Event::AtomicDone { .. } | Event::RtrDone => {
                    self.sender.request_answered()
                }
                // RFC 5040 section 5.4: a Terminate is not answered.
                Event::Terminated(_) => self.sender.close(),
                Event::Received(_) => {}
            }
        }
        Ok(receive)
    }

    /// See [`Receiver::feed`].
    #[inline]
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        self.receiver.feed(bytes)
    }

    /// See [`Receiver::space`].
    pub fn space(&mut self) -> &mut [u8] {
        self.receiver.space()
    }

    /// See [`Receiver::filled`].
    pub fn filled(&mut self, n: usize) {
        self.receiver.filled(n);
    }

    /// See [`Receiver::check`].
    #[inline]
    pub fn check(&mut self, bytes: &[u8]) {
        self.receiver.check(bytes);
    }

    /// See [`Receiver::take_write`].
    #[inline]
    pub fn take_write(
        &mut self,
        bytes: &[u8],
        place: impl FnOnce(u32, u64, &[u8]) -> bool,
    ) -> Option<(usize, FpduKind)> {
        self.receiver.take_write(bytes, place)
    }

    /// See [`Receiver::take_send`].
    #[inline]
    pub fn take_send(
        &mut self,
        bytes: &[u8],
        place: impl FnOnce(&[u8]) -> bool,
    ) -> Option<(usize, Received)> {
        self.receiver.take_send(bytes, place)
    }

    /// See [`Receiver::placed`].
    #[inline]
    pub fn placed(&mut self, len: usize) {
        self.receiver.placed(len);
    }

    /// See [`Receiver::continued_segment`].
    #[inline]
    pub fn continued_segment(&self) -> Option<usize> {
        self.receiver.continued_segment()
    }

    /// See [`Receiver::is_continued_by`].
    #[inline]
    pub fn is_continued_by(&self, gap: &[u8], len: usize) -> bool {
        self.receiver.is_continued_by(gap, len)
    }

    /// See [`Receiver::checks_crc`].
    #[inline]
    pub fn checks_crc(&self) -> bool {
        self.receiver.checks_crc()
    }

    /// See [`Receiver::begins_fpdu`].
    #[inline]
    pub fn begins_fpdu(&self) -> bool {
        self.receiver.begins_fpdu()
    }

    /// Returns the next thing to send or to do; `None` until something changes.
    #[inline]
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        let transmit = self.sender.poll()?;
        if let Transmit::Fpdu(fpdu) = &transmit {
            if let Some(expected) = fpdu.expects {
                self.receiver.expect(expected);
            }
            if fpdu.last && fpdu.origin == crate::tx::Origin::Response {
                self.receiver.served();
            }
        }
        Some(transmit)
    }

    /// Reports that the atomic just yielded has been executed, and returns its response, which must be sent next.
    pub fn atomic_done(&mut self, original: u64) -> Option<crate::tx::Fpdu> {
        let fpdu = self.sender.atomic_done(original)?;
        self.receiver.served();
        Some(fpdu)
    }

    /// Changes the size of segments from now on.
    pub fn set_mulpdu(&mut self, mulpdu: u16) {
        self.sender.set_mulpdu(mulpdu);
    }

    /// Ends the stream from this side because of an error that the driver found, such as a buffer deregistered while
    /// the peer reads it. The Terminate is yielded next; nothing more is received.
    pub fn abort(&mut self, code: TerminateCode) {
        self.receiver.close();
        self.rtr_deadline = None;
        self.terminate(Terminate::new(code));
    }

    /// Ends the stream because the payload of the segment being received cannot be placed. Unlike [`Self::abort`],
    /// the Terminate repeats the segment's header, so the peer knows which of its requests failed.
    pub fn refuse(&mut self, code: TerminateCode) -> ProtocolViolation {
        self.rtr_deadline = None;
        let failure = self.receiver.refuse(code);
        self.terminate(failure.terminate);
        failure
    }

    fn terminate(&mut self, terminate: Terminate) {
        if self.has_extensions
            && let Some(messages) = self.receiver.received()
        {
            self.sender.set_receipt(messages);
        }
        self.sender.terminate(terminate);
    }

    /// Ends the stream from this side in order, between two messages: a receipt is yielded next, then nothing.
    /// Nothing more is received. Call it when everything received has also been delivered to the program, because the
    /// receipt covers it.
    pub fn finish(&mut self) {
        let received = self.has_extensions.then(|| self.receiver.delivered()).flatten();
        self.receiver.close();
        self.rtr_deadline = None;
        self.sender.finish(received);
    }

    /// See [`Receiver::receipt`].
    pub fn receipt(&self) -> Option<u32> {
        self.receiver.receipt()
    }

    /// See [`Receiver::rnr_limit`].
    pub fn rnr_limit(&self) -> Option<u8> {
        self.receiver.rnr_limit()
    }

    /// Whether the peer may understand an RNR retry limit ([`crate::rnr_limit`]). Do not announce a limit to other
    /// peers.
    pub fn may_announce_rnr_limit(&self) -> bool {
        self.has_extensions
    }

    /// The peer closed its direction, or the stream broke. The sending direction is not changed.
    pub fn handle_eof(&mut self) -> Result<(), UnexpectedEof> {
        let whole = self.receiver.is_at_boundary();
        self.receiver.close();
        self.rtr_deadline = None;
        if whole { Ok(()) } else { Err(UnexpectedEof) }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        self.rtr_deadline
    }

    /// Ends the stream if the peer's first message is overdue.
    pub fn handle_timeout(&mut self, now: Duration) -> Result<(), ProtocolViolation> {
        match self.rtr_deadline {
            Some(deadline) if now >= deadline => {
                self.abort(TerminateCode::LLP_RTR);
                Err(ProtocolViolation { terminate: Terminate::new(TerminateCode::LLP_RTR) })
            }
            _ => Ok(()),
        }
    }

    /// Whether everything that was queued has been yielded, so that the stream may be closed in order.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.sender.is_idle()
    }

    /// Whether nothing more will be sent.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Number of this side's requests that wait for their responses.
    #[inline]
    pub fn outstanding(&self) -> u16 {
        self.sender.outstanding()
    }
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
