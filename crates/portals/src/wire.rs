//! [`Message`]: what processes say to each other, as bytes; all that looks at bytes of a peer's. Integers are little-endian.
//!
//! A message begins with 16 bytes: kind, interface, credits (2 bytes), flags, and for a request action, operation and type, for an
//! answer failure and list (3 bytes); the initiator's number for the operation (8). A request goes on with user, portal table entry,
//! node and process of the initiator (4 each), bits, offset, length and data for the event (8 each); with the address (8) and key (4,
//! and 4 unused) of memory where the data lie or go, if they do not come along; with an operand (32), if there is one. An answer goes
//! on with length and offset (8 each). Data follow.

use crate::atomic::{Datatype, ELEMENT_MAX, Op, Operand};
use crate::event::{Fail, List};
use crate::message::{AckReq, Action, Answer, Request};
use crate::process::Process;
use verbs::RemoteAddr;

/// Bytes of the longest message without data.
pub(crate) const HEAD_MAX: usize = 64 + 16 + ELEMENT_MAX;

/// One of a process's interfaces: whether it matches, and whether it is logical.
pub(crate) const INTERFACES: usize = 4;

/// What is said, but for data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// An operation.
    Request {
        /// To which interface.
        interface: u8,
        /// What it is.
        request: Request,
        /// Where its data lie, or go, if they do not come along.
        exposed: Option<RemoteAddr>,
    },
    /// What became of one.
    Answer {
        /// To which interface.
        interface: u8,
        /// What it is.
        answer: Answer,
        /// Whether the initiator's program wants to know; otherwise only that its memory is free.
        is_asked: bool,
    },
    /// Nothing but credits.
    Credit,
}

const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
const CREDIT: u8 = 3;

const EXPOSED: u8 = 1;
const OPERAND: u8 = 2;
const ACK_SHIFT: u32 = 2;
const ASKED: u8 = 1;
const QUIET: u8 = 2;

/// A message without data as bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    bytes: [u8; HEAD_MAX],
    len: usize,
}

impl Bytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    fn put(&mut self, part: &[u8]) {
        self.bytes[self.len..self.len + part.len()].copy_from_slice(part);
        self.len += part.len();
    }
}

/// Reads what `put` wrote.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (part, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*part)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take().map(u8::from_le_bytes)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

fn action_number(action: &Action) -> u8 {
    match action {
        Action::Put => 0,
        Action::Get => 1,
        Action::Atomic(..) => 2,
        Action::FetchAtomic(..) => 3,
        Action::Swap(..) => 4,
    }
}

impl Message {
    /// Its bytes, with credits for the peer.
    pub(crate) fn bytes(&self, credits: u16) -> Bytes {
        let mut bytes = Bytes { bytes: [0; HEAD_MAX], len: 0 };
        match self {
            Self::Request { interface, request, exposed } => {
                put_request(&mut bytes, *interface, credits, request, exposed.as_ref());
            }
            Self::Answer { interface, answer, is_asked } => {
                let flags = if *is_asked { ASKED } else { 0 } | if answer.is_quiet { QUIET } else { 0 };
                bytes.put(&[ANSWER, *interface]);
                bytes.put(&credits.to_le_bytes());
                bytes.put(&[flags, answer.fail as u8, answer.list as u8, 0]);
                bytes.put(&answer.operation.to_le_bytes());
                bytes.put(&answer.mlength.to_le_bytes());
                bytes.put(&answer.offset.to_le_bytes());
            }
            Self::Credit => {
                bytes.put(&[CREDIT, 0]);
                bytes.put(&credits.to_le_bytes());
                bytes.put(&[0; 12]);
            }
        }
        bytes
    }

    /// The message that bytes begin with, the credits that came with it, and its data. `None` for what no process says.
    pub(crate) fn parse(bytes: &[u8]) -> Option<(Self, u16, &[u8])> {
        let mut reader = Reader(bytes);
        let (kind, interface, credits) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let what = reader.take::<4>()?;
        let operation = reader.u64()?;
        if usize::from(interface) >= INTERFACES {
            return None;
        }
        let message = match kind {
            REQUEST => parse_request(&mut reader, interface, what, operation)?,
            ANSWER => {
                let [flags, fail, list, _] = what;
                let list = if list == 0 { List::Priority } else { List::Overflow };
                let (fail, is_quiet) = (Fail::from_number(fail)?, flags & QUIET != 0);
                let (mlength, offset) = (reader.u64()?, reader.u64()?);
                let answer = Answer { operation, fail, is_quiet, list, mlength, offset };
                Self::Answer { interface, answer, is_asked: flags & ASKED != 0 }
            }
            CREDIT => Self::Credit,
            _ => return None,
        };
        Some((message, credits, reader.0))
    }
}

fn put_request(
    bytes: &mut Bytes,
    interface: u8,
    credits: u16,
    request: &Request,
    exposed: Option<&RemoteAddr>,
) {
    let operand = match request.action {
        Action::Swap(op, _, operand) if op.has_operand() => Some(operand),
        _ => None,
    };
    let mut flags = (request.ack as u8) << ACK_SHIFT;
    flags |= if exposed.is_some() { EXPOSED } else { 0 } | if operand.is_some() { OPERAND } else { 0 };
    let (op, datatype) = request.action.atomic().map_or((0, 0), |(op, datatype)| (op as u8, datatype as u8));
    bytes.put(&[REQUEST, interface]);
    bytes.put(&credits.to_le_bytes());
    bytes.put(&[flags, action_number(&request.action), op, datatype]);
    bytes.put(&request.operation.to_le_bytes());
    let Process { nid, pid } = request.initiator;
    [request.uid, request.pt_index, nid, pid].iter().for_each(|word| bytes.put(&word.to_le_bytes()));
    let words = [request.match_bits, request.remote_offset, request.length, request.hdr_data];
    words.iter().for_each(|word| bytes.put(&word.to_le_bytes()));
    if let Some(exposed) = exposed {
        bytes.put(&exposed.addr.to_le_bytes());
        bytes.put(&exposed.rkey.to_le_bytes());
        bytes.put(&[0; 4]);
    }
    if let Some(operand) = operand {
        bytes.put(&operand);
    }
}

fn parse_request(reader: &mut Reader<'_>, interface: u8, what: [u8; 4], operation: u64) -> Option<Message> {
    let [flags, action, op, datatype] = what;
    let (uid, pt_index) = (reader.u32()?, reader.u32()?);
    let initiator = Process { nid: reader.u32()?, pid: reader.u32()? };
    let (match_bits, remote_offset) = (reader.u64()?, reader.u64()?);
    let (length, hdr_data) = (reader.u64()?, reader.u64()?);
    let mut exposed = None;
    if flags & EXPOSED != 0 {
        exposed = Some(RemoteAddr { addr: reader.u64()?, rkey: reader.u32()? });
        reader.u32()?;
    }
    let operand: Operand = if flags & OPERAND != 0 { reader.take()? } else { [0; ELEMENT_MAX] };
    let atomic = || {
        let (op, datatype) = (Op::from_number(op)?, Datatype::from_number(datatype)?);
        op.takes(datatype).then_some((op, datatype))
    };
    let action = match action {
        0 => Action::Put,
        1 => Action::Get,
        2 => atomic().filter(|(op, _)| !op.is_swap()).map(|(op, datatype)| Action::Atomic(op, datatype))?,
        3 => atomic()
            .filter(|(op, _)| !op.is_swap())
            .map(|(op, datatype)| Action::FetchAtomic(op, datatype))?,
        4 => atomic()
            .filter(|(op, _)| op.is_swap())
            .map(|(op, datatype)| Action::Swap(op, datatype, operand))?,
        _ => return None,
    };
    let ack = match flags >> ACK_SHIFT & 3 {
        0 => AckReq::None,
        1 => AckReq::Full,
        2 => AckReq::Counting,
        _ => AckReq::Completed,
    };
    let request = Request {
        operation,
        action,
        ack,
        initiator,
        uid,
        pt_index,
        match_bits,
        remote_offset,
        length,
        hdr_data,
    };
    Some(Message::Request { interface, request, exposed })
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Rng;

    fn messages() -> Vec<Message> {
        let mut rng = Rng::new(1);
        let mut messages = vec![Message::Credit];
        for (n, op) in Op::ALL.iter().enumerate() {
            let datatype = Datatype::Int32;
            let mut operand = [0; ELEMENT_MAX];
            if op.has_operand() {
                operand[..4].copy_from_slice(&rng.bytes(4));
            }
            let atomic = if op.is_swap() {
                Action::Swap(*op, datatype, operand)
            } else {
                Action::Atomic(*op, datatype)
            };
            let actions = [Action::Put, Action::Get, atomic, Action::FetchAtomic(Op::Sum, Datatype::Double)];
            for (action, ack) in
                actions.into_iter().zip([AckReq::None, AckReq::Full, AckReq::Counting, AckReq::Completed])
            {
                let initiator = Process::physical(rng.next_u64() as u32, rng.next_u64() as u32);
                let request = Request {
                    operation: rng.next_u64(),
                    action,
                    ack,
                    initiator,
                    uid: rng.next_u64() as u32,
                    pt_index: rng.next_u64() as u32,
                    match_bits: rng.next_u64(),
                    remote_offset: rng.next_u64(),
                    length: rng.next_u64(),
                    hdr_data: rng.next_u64(),
                };
                let exposed =
                    rng.one_in(2).then(|| RemoteAddr { addr: rng.next_u64(), rkey: rng.next_u64() as u32 });
                messages.push(Message::Request { interface: n as u8 % 4, request, exposed });
            }
        }
        for number in 0..8 {
            let answer = Answer {
                operation: rng.next_u64(),
                fail: Fail::from_number(number).expect("one of eight"),
                is_quiet: number % 2 == 0,
                list: if number % 3 == 0 { List::Overflow } else { List::Priority },
                mlength: rng.next_u64(),
                offset: rng.next_u64(),
            };
            messages.push(Message::Answer { interface: number % 4, answer, is_asked: number > 3 });
        }
        messages
    }

    #[test]
    fn what_is_said_is_understood() {
        for message in messages() {
            let mut bytes = message.bytes(517).as_slice().to_vec();
            assert!(bytes.len() <= HEAD_MAX);
            bytes.extend(b"data");
            assert_eq!(Message::parse(&bytes), Some((message, 517, &b"data"[..])));
        }
    }

    /// Goal: whatever comes is understood or refused. Method: each message cut at each length, and with each byte changed.
    #[test]
    fn nonsense_is_refused() {
        let (mut refused, mut tried) = (0, 0);
        for message in messages() {
            let bytes = message.bytes(0).as_slice().to_vec();
            for len in 0..bytes.len() {
                assert_eq!(Message::parse(&bytes[..len]), None, "{len} bytes of {message:?}");
            }
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 0xff;
                tried += 1;
                refused += u32::from(Message::parse(&changed).is_none());
            }
        }
        assert!(refused > 100 && refused < tried, "{refused} of {tried}");
    }
}
