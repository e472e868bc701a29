//! [`Responder`]: the receiving half of a queue pair. It accepts the peer's packets in order, finds and
//! checks the destination of their data, and holds what it owes the peer: responses, and the reason of a
//! failure.
//!
//! Like the requester it knows nothing of cards and wires: its calls return what other modules have to do.

use std::collections::VecDeque;

use host::Time;
use verbs::{Access, RemoteAddr, SendOp, Sge, WcStatus};

use super::completions::Slots;
use super::packet::{Body, Outgoing, Packet, Source};
use super::protection::{Extent, Protection};

/// One of this many packets of a long message is acknowledged separately, so that the requester does not time
/// out.
const ACK_EVERY: u64 = 16;
/// Results of atomics that are kept for retransmitted requests.
const ATOMICS_KEPT: usize = 128;

/// How a request failed at the responder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestError {
    /// The status for the peer.
    pub(super) status: WcStatus,
    /// The status of the receive that it took, if it took one.
    pub(super) receive: Option<WcStatus>,
    /// Whether the peer violated access rights, which is reported to this side's program.
    pub(super) is_access_violation: bool,
}

impl RequestError {
    /// The peer violated access rights.
    pub(super) fn access_violation(status: WcStatus) -> Self {
        Self { status, receive: None, is_access_violation: true }
    }

    /// The receive that the request took is unusable.
    fn of_receive(receive: WcStatus, status: WcStatus) -> Self {
        Self { status, receive: Some(receive), is_access_violation: false }
    }

    /// The peer tried to invalidate a key without permission.
    pub(super) fn of_invalidation() -> Self {
        Self { receive: Some(WcStatus::LocProtErr), ..Self::access_violation(WcStatus::RemAccessErr) }
    }
}

/// A receive that a message has taken.
#[derive(Debug)]
pub(super) struct TakenReceive {
    pub(super) wr_id: u64,
    pub(super) sges: Vec<Sge>,
    pub(super) slots: Slots,
    /// The protection domain of its keys.
    pub(super) domain: u32,
}

/// A packet that the peer will get in its turn.
#[derive(Clone, Copy, Debug)]
struct OwedPacket {
    /// The number of its next packet.
    psn: u64,
    what: OwedKind,
}

/// Kinds of packets owed to the peer.
#[derive(Clone, Copy, Debug)]
enum OwedKind {
    /// Memory from here on; `offset` is its position in a response of `total` bytes.
    Memory { remote: RemoteAddr, offset: u64, total: u64 },
    /// The value that an atomic found.
    Atomic(u64),
    /// The request failed.
    RequestError(RequestError),
}

/// How to react to a packet out of sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutOfOrder {
    /// Do nothing.
    Ignore,
    /// Report that this packet is missing.
    Missing(u64),
    /// Repeat that packets below this number are placed.
    Acknowledge(u64),
    /// Send a response again.
    Respond,
}

/// How a placed packet is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledgement {
    /// Its response acknowledges it.
    Response,
    /// A packet acknowledges all packets below this number.
    Packet(u64),
    /// The acknowledgement is piggybacked on other packets.
    Along,
}

/// The receiving half of a queue pair.
#[derive(Default)]
pub(super) struct Responder {
    /// The number of the next packet.
    expected: u64,
    /// A packet is missing, and the peer was notified.
    gap: bool,
    /// Packets below this are placed.
    done: u64,
    /// Packets are placed in order: the earliest start and the earliest end of the next placement.
    place_from: Time,
    placed_at: Time,
    /// Receives taken and not completed; the number of the first.
    taken: VecDeque<TakenReceive>,
    taken_first: u64,
    owed: VecDeque<OwedPacket>,
    /// Results of the latest atomics by packet number, for retransmitted requests.
    atomics: VecDeque<(u64, u64)>,
    /// A request failed while earlier responses are unsent: no more packets are accepted.
    refusing: bool,
    /// Why the connection failed here, in case the peer missed it.
    nak: Option<(u64, WcStatus)>,
}

/// Acceptance of packets.
impl Responder {
    /// Whether no more packets are accepted.
    pub(super) fn is_refusing(&self) -> bool {
        self.refusing
    }

    /// Whether a packet is the next in sequence.
    pub(super) fn expects(&self, psn: u64) -> bool {
        psn == self.expected
    }

    /// A packet is out of sequence: an earlier one is missing, or it is a duplicate.
    pub(super) fn out_of_order(&mut self, packet: &Packet, op: SendOp) -> OutOfOrder {
        let &Packet { psn, last, offset, total, .. } = packet;
        if psn > self.expected {
            let is_reported = std::mem::replace(&mut self.gap, true);
            return if is_reported { OutOfOrder::Ignore } else { OutOfOrder::Missing(self.expected) };
        }
        match op {
            _ if psn >= self.done => OutOfOrder::Ignore,
            SendOp::Read(remote) => {
                // The peer continues from here, and will request everything else again.
                self.owed.clear();
                let what = OwedKind::Memory { remote: remote.offset(offset), offset, total };
                self.owed.push_back(OwedPacket { psn, what });
                OutOfOrder::Respond
            }
            op if op.is_atomic() => match self.atomics.iter().find(|(known, _)| *known == psn) {
                Some(&(_, old)) => {
                    self.owed.push_back(OwedPacket { psn, what: OwedKind::Atomic(old) });
                    OutOfOrder::Respond
                }
                None => OutOfOrder::Ignore,
            },
            _ if last => OutOfOrder::Acknowledge(self.done),
            _ => OutOfOrder::Ignore,
        }
    }

    /// The next packet finds no receive: the peer will retry it.
    pub(super) fn not_ready(&mut self) {
        self.gap = true;
    }

    /// A message takes this receive.
    pub(super) fn take_receive(&mut self, receive: TakenReceive) {
        self.taken.push_back(receive);
    }

    /// Accepts the next packet, which also stands for the numbers of its response's packets. Returns the
    /// number of the receive that its message took last.
    pub(super) fn accept(&mut self, packet: &Packet, op: SendOp, mtu: u64) -> u64 {
        self.gap = false;
        self.expected += packets_of(packet, op, mtu);
        (self.taken_first + self.taken.len() as u64).saturating_sub(1)
    }

    /// A packet can be placed from `ready` on; returns when its turn is.
    pub(super) fn place_from(&mut self, ready: Time) -> Time {
        self.place_from = self.place_from.max(ready);
        self.place_from
    }

    /// A packet would be in memory at `seen`; returns when it is, after all earlier ones.
    pub(super) fn placed_at(&mut self, seen: Time) -> Time {
        self.placed_at = self.placed_at.max(seen);
        self.placed_at
    }
}

/// Placement of data.
impl Responder {
    /// The receive that a packet's message has taken.
    fn receive_of(&self, packet: &Packet) -> Option<&TakenReceive> {
        self.taken.get(packet.receive.checked_sub(self.taken_first)? as usize)
    }

    /// Finds the destination of the data of a request's packet; returns whether all of it is accessible.
    pub(super) fn target_extents(
        &self,
        packet: &Packet,
        op: SendOp,
        (protection, domain): (&Protection, u32),
        out: &mut Vec<Extent>,
    ) -> bool {
        match op {
            SendOp::Write(remote) | SendOp::WriteImm(remote, _) => {
                let remote = remote.offset(packet.offset);
                protection.peer_extents(domain, remote, packet.len, Access::REMOTE_WRITE, out)
            }
            SendOp::CompareSwap { remote, .. } | SendOp::FetchAdd { remote, .. } => {
                protection.peer_extents(domain, remote, 8, Access::REMOTE_ATOMIC, out)
            }
            SendOp::Send | SendOp::SendImm(_) | SendOp::SendInv(_) => {
                let (range, need) = ((packet.offset, packet.len), Access::LOCAL_WRITE);
                let taken = self.receive_of(packet);
                taken.is_some_and(|t| protection.own_extents(t.domain, &t.sges, range, need, out))
            }
            SendOp::Read(_) => true,
            // No card of a model has windows.
            SendOp::BindMw(_) | SendOp::LocalInv(_) => false,
        }
    }

    /// Checks a whole message at its first packet: no byte of an invalid one is written.
    pub(super) fn check_message(
        &self,
        packet: &Packet,
        op: SendOp,
        (protection, domain): (&Protection, u32),
    ) -> Result<(), RequestError> {
        if !packet.first {
            return Ok(());
        }
        if let SendOp::Write(remote) | SendOp::WriteImm(remote, _) = op {
            let allowed = protection.peer_may_use(domain, remote, packet.total, Access::REMOTE_WRITE);
            return if allowed {
                Ok(())
            } else {
                Err(RequestError::access_violation(WcStatus::RemAccessErr))
            };
        }
        let index = packet.receive.saturating_sub(self.taken_first) as usize;
        let Some(taken) = self.taken.get(index) else { return Ok(()) };
        let room: u64 = taken.sges.iter().map(|sge| u64::from(sge.length)).sum();
        if packet.total > room {
            return Err(RequestError::of_receive(WcStatus::LocLenErr, WcStatus::RemInvReqErr));
        }
        if !protection.may_use_first(taken.domain, &taken.sges, packet.total, Access::LOCAL_WRITE) {
            return Err(RequestError::of_receive(WcStatus::LocProtErr, WcStatus::RemOpErr));
        }
        Ok(())
    }

    /// The memory of a message was deregistered after the check.
    pub(super) fn target_is_gone(op: SendOp) -> RequestError {
        match op {
            SendOp::Write(_) | SendOp::WriteImm(..) => RequestError::access_violation(WcStatus::RemAccessErr),
            _ => RequestError::of_receive(WcStatus::LocProtErr, WcStatus::RemOpErr),
        }
    }

    /// A packet's request was executed; returns how it is acknowledged.
    pub(super) fn on_executed(&mut self, packet: &Packet, op: SendOp, mtu: u64) -> Acknowledgement {
        self.done = self.done.max(packet.psn + packets_of(packet, op, mtu));
        match op {
            SendOp::Read(_) => Acknowledgement::Response,
            op if op.is_atomic() => Acknowledgement::Response,
            _ if packet.last || packet.psn % ACK_EVERY == ACK_EVERY - 1 => Acknowledgement::Packet(self.done),
            _ => Acknowledgement::Along,
        }
    }

    /// Removes the oldest receive that a message has taken, to complete it.
    pub(super) fn complete(&mut self) -> Option<TakenReceive> {
        let taken = self.taken.pop_front()?;
        self.taken_first += 1;
        Some(taken)
    }
}

/// Responses owed to the peer.
impl Responder {
    /// Queues the response of a read: the memory that its packet names.
    pub(super) fn queue_read_response(&mut self, packet: &Packet, remote: RemoteAddr) {
        let what = OwedKind::Memory { remote, offset: packet.offset, total: packet.total };
        self.owed.push_back(OwedPacket { psn: packet.psn, what });
    }

    /// Queues an atomic's response, and keeps it for a retransmitted request.
    pub(super) fn queue_atomic_response(&mut self, psn: u64, old: u64) {
        if self.atomics.len() == ATOMICS_KEPT {
            self.atomics.pop_front();
        }
        self.atomics.push_back((psn, old));
        self.owed.push_back(OwedPacket { psn, what: OwedKind::Atomic(old) });
    }

    /// Queues the failure of a request after the responses to earlier requests, if there are any.
    pub(super) fn queue_refusal(&mut self, psn: u64, refusal: RequestError) -> bool {
        self.refusing = !self.owed.is_empty();
        if self.refusing {
            self.owed.push_back(OwedPacket { psn, what: OwedKind::RequestError(refusal) });
        }
        self.refusing
    }

    /// The next owed packet, based on `base`, which precedes this side's own requests: a packet of a
    /// response, or the failure of the request with this packet.
    pub(super) fn next_packet(
        &mut self,
        base: Packet,
        mtu: u64,
    ) -> Option<Result<Outgoing, (u64, RequestError)>> {
        let OwedPacket { psn, what } = self.owed.pop_front()?;
        let base = Packet { psn, ..base };
        Some(Ok(match what {
            OwedKind::RequestError(refusal) => return Some(Err((psn, refusal))),
            OwedKind::Atomic(old) => {
                let body = Body::AtomicResponse(old);
                let packet = Packet { body, first: true, last: true, len: 8, total: 8, ..base };
                Outgoing { packet, source: Source::Nowhere, ends: true }
            }
            OwedKind::Memory { remote, offset, total } => {
                let len = mtu.min(total - offset);
                let (first, last) = (offset == 0, offset + len == total);
                if !last {
                    let (remote, offset) = (remote.offset(len), offset + len);
                    let what = OwedKind::Memory { remote, offset, total };
                    self.owed.push_front(OwedPacket { psn: psn + 1, what });
                }
                let packet = Packet { body: Body::ReadResponse, offset, len, total, first, last, ..base };
                Outgoing { packet, source: Source::Peer(remote), ends: last }
            }
        }))
    }

    /// The connection fails because of the request with this packet.
    pub(super) fn failed(&mut self, psn: u64, status: WcStatus) {
        self.nak = Some((psn, status));
    }

    /// The connection has ended: drops everything owed. Returns why it failed here, if it did.
    pub(super) fn close(&mut self) -> Option<(u64, WcStatus)> {
        self.owed.clear();
        self.nak
    }

    /// Drops the receives that messages of a destroyed queue pair have taken.
    pub(super) fn clear(&mut self) {
        self.taken.clear();
    }
}

/// Packet numbers that a request's packet uses: a read uses one for each packet of its response.
fn packets_of(packet: &Packet, op: SendOp, mtu: u64) -> u64 {
    match op {
        SendOp::Read(_) => (packet.total - packet.offset).div_ceil(mtu).max(1),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::Buf;

    const MTU: u64 = 2048;
    const REMOTE: RemoteAddr = RemoteAddr { addr: 4096, rkey: 9 };

    fn packet(psn: u64, total: u64) -> Packet {
        Packet { psn, total, first: true, last: true, ..Packet::default() }
    }

    #[test]
    fn gap_is_reported_once_and_duplicates_are_acknowledged_again() {
        let (mut responder, op) = (Responder::default(), SendOp::Write(REMOTE));
        assert_eq!(responder.out_of_order(&packet(2, 8), op), OutOfOrder::Missing(0));
        assert_eq!(responder.out_of_order(&packet(3, 8), op), OutOfOrder::Ignore);
        assert!(responder.expects(0));
        responder.accept(&packet(0, 8), op, MTU);
        assert_eq!(responder.out_of_order(&packet(0, 8), op), OutOfOrder::Ignore, "it is not placed yet");
        assert_eq!(responder.on_executed(&packet(0, 8), op, MTU), Acknowledgement::Packet(1));
        assert_eq!(responder.out_of_order(&packet(0, 8), op), OutOfOrder::Acknowledge(1));
        assert_eq!(responder.out_of_order(&packet(2, 8), op), OutOfOrder::Missing(1), "another gap");
    }

    #[test]
    fn long_messages_are_acknowledged_periodically() {
        let (mut responder, op) = (Responder::default(), SendOp::Send);
        let part = |psn| Packet { last: false, ..packet(psn, 1 << 20) };
        let acks = (0..32)
            .filter(|&psn| responder.on_executed(&part(psn), op, MTU) == Acknowledgement::Packet(psn + 1));
        assert_eq!(acks.collect::<Vec<_>>(), [15, 31]);
    }

    #[test]
    fn a_read_takes_a_number_for_each_packet_of_its_response() {
        let (mut responder, op, read) = (Responder::default(), SendOp::Read(REMOTE), packet(0, 5000));
        responder.accept(&read, op, MTU);
        assert!(responder.expects(3));
        responder.queue_read_response(&read, REMOTE);
        let due = std::iter::from_fn(|| match responder.next_packet(Packet::default(), MTU)? {
            Ok(Outgoing { packet, ends, .. }) => Some((packet.psn, packet.len, ends)),
            Err(_) => None,
        });
        assert_eq!(due.collect::<Vec<_>>(), [(0, 2048, false), (1, 2048, false), (2, 904, true)]);
    }

    #[test]
    fn repeated_atomic_is_answered_without_executing_again() {
        let op = SendOp::FetchAdd { remote: REMOTE, add: 1 };
        let mut responder = Responder::default();
        responder.accept(&packet(0, 8), op, MTU);
        responder.queue_atomic_response(0, 77);
        assert_eq!(responder.on_executed(&packet(0, 8), op, MTU), Acknowledgement::Response);
        let mut answer = || match responder.next_packet(Packet::default(), MTU) {
            Some(Ok(outgoing)) => outgoing.packet.body,
            other => panic!("{other:?}"),
        };
        assert_eq!(answer(), Body::AtomicResponse(77));
        assert_eq!(responder.out_of_order(&packet(0, 8), op), OutOfOrder::Respond);
        assert!(matches!(responder.next_packet(Packet::default(), MTU), Some(Ok(_))));
    }

    #[test]
    fn refusal_follows_earlier_responses() {
        let refusal = RequestError::access_violation(WcStatus::RemAccessErr);
        assert!(!Responder::default().queue_refusal(0, refusal), "nothing stands before it");
        let mut responder = Responder::default();
        responder.queue_atomic_response(0, 7);
        assert!(responder.queue_refusal(1, refusal) && responder.is_refusing());
        assert!(matches!(responder.next_packet(Packet::default(), MTU), Some(Ok(_))));
        assert!(matches!(responder.next_packet(Packet::default(), MTU), Some(Err((1, _)))));
        responder.failed(1, WcStatus::RemAccessErr);
        assert_eq!(responder.close(), Some((1, WcStatus::RemAccessErr)));
    }

    #[test]
    fn message_is_checked_completely_before_it_is_written() {
        let (mut table, buf) =
            (Protection::new(0, crate::config::Payload::Bytes), Buf::alloc(4096).expect("memory"));
        let (lkey, addr) = table.register((1, 0), 1, &buf, Access::LOCAL_WRITE).expect("a region");
        let mut responder = Responder::default();
        let sges = vec![Sge { addr, length: 100, lkey }];
        responder.take_receive(TakenReceive { wr_id: 1, sges, slots: Slots::Receive(1), domain: 1 });
        let check = |total, op| responder.check_message(&packet(0, total), op, (&table, 1));
        assert_eq!(check(100, SendOp::Send), Ok(()));
        let long = check(101, SendOp::Send).expect_err("it is too long");
        assert_eq!((long.receive, long.is_access_violation), (Some(WcStatus::LocLenErr), false));
        let write =
            check(1, SendOp::Write(RemoteAddr { addr, rkey: lkey })).expect_err("it is not open to peers");
        assert_eq!((write.receive, write.is_access_violation), (None, true));
    }
}
