//! [`Message`]: the wire format between processes; the only code that parses a peer's bytes. Integers are
//! little-endian.
//!
//! A message begins with 16 bytes: kind, interface, credits for requests and for answers (1 byte each), flags
//! (1), then for a request action, operation and type, for an answer failure and list (3); the initiator's
//! number for the operation (8). A request continues with user, portal table entry, node and process of the
//! initiator (4 each); match bits, offset, length and header data (8 each); if its data are not inline, the
//! address (8) and key (4, and 4 unused) of their memory; and the operand (32), if there is one. An answer
//! continues with length and offset (8 each). Inline data follow.
//!
//! A request with inline data omits their length, which follows from the total length: so 8 bytes fit into one
//! cache line of a ring with their request. In a ring, the total length replaces the credits. On NICs that match
//! messages, data travel apart from their request, which has their length.

use crate::objects::atomic::{Datatype, ELEMENT_MAX, Op, Operand};
use crate::objects::event::{Fail, List};
use crate::objects::message::{AckReq, Action, Answer, Request};
use crate::objects::process::Process;
use transport::{Header, HeaderBytes, LINE_WORDS, LineMessage, Payload};
use verbs::RemoteAddr;

/// Bytes of the longest message without data.
pub(crate) const HEAD_MAX: usize = 64 + 16 + ELEMENT_MAX;

/// Words of a put in a ring before its inline data: 8 bytes of data fill the line.
const LINE_HEAD: usize = LINE_WORDS - 1;

/// Interfaces of a process: matching or not, logical or not.
pub(crate) const INTERFACES: usize = 4;

/// The virtual channel of a message. Each has its own credits, so that an answer can pass waiting requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum VirtualChannel {
    Request,
    Answer,
}

impl VirtualChannel {
    pub(crate) const ALL: [Self; 2] = [Self::Answer, Self::Request];
}

/// A message without its inline data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// An operation.
    Request {
        /// The target interface.
        interface: u8,
        /// Its header.
        request: Request,
        /// The memory of its data or its destination, if the data are not inline.
        exposed: Option<RemoteAddr>,
    },
    /// The result of an operation.
    Answer {
        /// The initiator's interface.
        interface: u8,
        /// Its header.
        answer: Answer,
        /// Whether the initiator requested an answer; otherwise it only learns that its memory may be reused.
        is_asked: bool,
    },
    /// Only credits.
    Credit,
}

const REQUEST: u8 = 1;
const ANSWER: u8 = 2;
const CREDIT: u8 = 3;

const EXPOSED: u8 = 1;
const OPERAND: u8 = 2;
const ACK_SHIFT: u32 = 2;
const ACK_BITS: u8 = 3 << ACK_SHIFT;
const UNSAID: u8 = 16;
const ASKED: u8 = 1;
const QUIET: u8 = 2;

/// Two 32-bit words as one of 64 bits.
const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Reads what `put` wrote.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    #[inline]
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (part, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*part)
    }

    #[inline]
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    #[inline]
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
    /// Its bytes for NICs that carry data apart from the message.
    pub(crate) fn bytes(&self) -> HeaderBytes {
        self.written(false)
    }

    #[inline]
    fn written(&self, has_data: bool) -> HeaderBytes {
        match self {
            Self::Request { interface, request, exposed } => {
                let says_length = !has_data || !request.action.brings() || exposed.is_some();
                let first = u64::from(REQUEST) | u64::from(*interface) << 8;
                request_bytes(first, request, (exposed.as_ref(), says_length))
            }
            Self::Answer { interface, answer, is_asked } => {
                let flags = if *is_asked { ASKED } else { 0 } | if answer.is_quiet { QUIET } else { 0 };
                let first = u64::from(ANSWER) | u64::from(*interface) << 8;
                let what = [flags, answer.fail as u8, answer.list as u8, 0];
                let first = first | pair(0, u32::from_le_bytes(what));
                HeaderBytes::from_words([first, answer.operation, answer.mlength, answer.offset])
            }
            Self::Credit => HeaderBytes::from_words([u64::from(CREDIT), 0]),
        }
    }

    /// Decodes a message; also returns the offset of its inline data: see [`Header::decode`].
    pub(crate) fn parse(bytes: &[u8], total: usize) -> Option<(Self, usize)> {
        let mut message = Self::Credit;
        let behind = message.decode(bytes, total)?;
        Some((message, behind))
    }
}

impl Header for Message {
    type Short = [u64; LINE_HEAD];

    /// A put with inline data; `None` for any other message.
    #[inline]
    fn encode_short(&self) -> Option<[u64; LINE_HEAD]> {
        let Self::Request { interface, request, exposed: None } = self else { return None };
        if request.action != Action::Put {
            return None;
        }
        let what = [(request.ack as u8) << ACK_SHIFT | UNSAID, 0, 0, 0];
        let first = u64::from(REQUEST) | u64::from(*interface) << 8 | pair(0, u32::from_le_bytes(what));
        let [uid_pt, from, bits, offset] = fixed(request);
        Some([first, request.operation, uid_pt, from, bits, offset, request.hdr_data])
    }

    #[inline]
    fn encode(&self) -> HeaderBytes {
        self.written(true)
    }

    #[inline]
    fn decode_short(&mut self, line: &[u64; LINE_WORDS], total: usize) -> Option<usize> {
        let [first, operation, uid_pt, from, bits, offset, hdr_data, _] = *line;
        let [kind, interface, _, _, flags, action, ..] = first.to_le_bytes();
        let behind = LINE_HEAD * size_of::<u64>();
        let is_put = kind == REQUEST && flags & !ACK_BITS == UNSAID && action == 0;
        if !is_put || usize::from(interface) >= INTERFACES || total < behind {
            return None;
        }
        let (action, ack) = (Action::Put, ack_of(flags));
        let said = RequestFields { operation, action, ack, length: (total - behind) as u64, hdr_data };
        *self = Self::Request { interface, request: said.with([uid_pt, from, bits, offset]), exposed: None };
        Some(behind)
    }

    #[inline]
    fn decode(&mut self, bytes: &[u8], total: usize) -> Option<usize> {
        let mut reader = Reader(bytes);
        let [kind, interface, _, _, what @ ..] = reader.take::<8>()?;
        let operation = reader.u64()?;
        if usize::from(interface) >= INTERFACES {
            return None;
        }
        let behind = total.checked_sub(bytes.len())?;
        *self = match kind {
            REQUEST => parse_request(&mut reader, interface, (what, operation), behind)?,
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
        Some(bytes.len() - reader.0.len())
    }
}

/// The acknowledgement request in a flag byte.
#[inline]
const fn ack_of(flags: u8) -> AckReq {
    match (flags & ACK_BITS) >> ACK_SHIFT {
        0 => AckReq::None,
        1 => AckReq::Full,
        2 => AckReq::Counting,
        _ => AckReq::Completed,
    }
}

/// The words that all requests have after the first two.
#[inline]
const fn fixed(request: &Request) -> [u64; 4] {
    let Request { uid, pt_index, initiator: Process { nid, pid }, match_bits, remote_offset, .. } = *request;
    [pair(uid, pt_index), pair(nid, pid), match_bits, remote_offset]
}

/// The fields of a request other than those words.
struct RequestFields {
    operation: u64,
    action: Action,
    ack: AckReq,
    length: u64,
    hdr_data: u64,
}

impl RequestFields {
    /// The request with those words.
    #[inline]
    const fn with(self, [uid_pt, from, match_bits, remote_offset]: [u64; 4]) -> Request {
        let Self { operation, action, ack, length, hdr_data } = self;
        Request {
            operation,
            action,
            ack,
            initiator: Process { nid: from as u32, pid: (from >> 32) as u32 },
            uid: uid_pt as u32,
            pt_index: (uid_pt >> 32) as u32,
            match_bits,
            remote_offset,
            length,
            hdr_data,
        }
    }
}

/// The bytes of a request; `first` holds kind and interface.
#[inline]
fn request_bytes(
    first: u64,
    request: &Request,
    (exposed, says_length): (Option<&RemoteAddr>, bool),
) -> HeaderBytes {
    let operand = match request.action {
        Action::Swap(op, _, operand) if op.has_operand() => Some(operand),
        _ => None,
    };
    let mut flags = (request.ack as u8) << ACK_SHIFT;
    flags |= if exposed.is_some() { EXPOSED } else { 0 } | if operand.is_some() { OPERAND } else { 0 };
    flags |= if says_length { 0 } else { UNSAID };
    let (op, datatype) = request.action.atomic().map_or((0, 0), |(op, datatype)| (op as u8, datatype as u8));
    let what = u32::from_le_bytes([flags, action_number(&request.action), op, datatype]);
    let (length, hdr_data) = (request.length, request.hdr_data);
    let [uid_pt, from, bits, offset] = fixed(request);
    let mut bytes = HeaderBytes::from_words([
        first | pair(0, what),
        request.operation,
        uid_pt,
        from,
        bits,
        offset,
        if says_length { length } else { hdr_data },
        hdr_data,
    ]);
    if !says_length {
        bytes.truncate(LINE_HEAD * size_of::<u64>());
    }
    if let Some(exposed) = exposed {
        bytes.push(&exposed.addr.to_le_bytes());
        bytes.push(&pair(exposed.rkey, 0).to_le_bytes());
    }
    if let Some(operand) = operand {
        bytes.push(&operand);
    }
    bytes
}

/// Parses a request whose first bytes were read already; `behind` bytes of data follow its header.
#[inline]
fn parse_request(
    reader: &mut Reader<'_>,
    interface: u8,
    (what, operation): ([u8; 4], u64),
    behind: usize,
) -> Option<Message> {
    let [flags, action, op, datatype] = what;
    let fixed = [reader.u64()?, reader.u64()?, reader.u64()?, reader.u64()?];
    let said = if flags & UNSAID == 0 { Some(reader.u64()?) } else { None };
    let hdr_data = reader.u64()?;
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
    if said.is_none() && (exposed.is_some() || !action.brings()) {
        return None;
    }
    let length = said.unwrap_or((behind + reader.0.len()) as u64);
    let said = RequestFields { operation, action, ack: ack_of(flags), length, hdr_data };
    Some(Message::Request { interface, request: said.with(fixed), exposed })
}

/// Maximum bytes of data in a line.
const LINE_MAX: usize = 8;

impl transport::Message for Message {
    const CREDIT: Self = Self::Credit;
    const LINE_PAYLOAD: usize = 2;

    #[inline]
    fn channel(&self) -> usize {
        match self {
            Self::Request { .. } => VirtualChannel::Request as usize,
            Self::Answer { .. } | Self::Credit => VirtualChannel::Answer as usize,
        }
    }

    fn channel_of(first: u8) -> Option<usize> {
        match first {
            CREDIT => None,
            REQUEST => Some(VirtualChannel::Request as usize),
            // Parsing detects an invalid kind.
            _ => Some(VirtualChannel::Answer as usize),
        }
    }

    #[inline]
    fn header_max(&self) -> usize {
        HEAD_MAX
    }

    /// Short puts without an event at their initiator.
    #[inline]
    fn fits_line(&self, payload: usize) -> bool {
        let Self::Request { request, exposed: None, .. } = self else { return false };
        let is_plain = request.action == Action::Put && request.ack == AckReq::None;
        let is_short = payload <= LINE_MAX && request.pt_index <= u32::from(u16::MAX);
        is_plain && is_short && request.hdr_data == 0 && request.remote_offset == 0
    }

    /// The words are the match bits, the initiator's node and user, and the data.
    #[inline]
    fn encode_line(&self, payload: &impl Payload, records: u16) -> Option<LineMessage> {
        let Self::Request { interface, request, .. } = self else { return None };
        let (len, mut data) = (payload.len(), [0; LINE_MAX]);
        payload.load(&mut data[..len]);
        let nid_uid = pair(request.initiator.nid, request.uid);
        let words = [request.match_bits, nid_uid, u64::from_ne_bytes(data)];
        Some(LineMessage { kind: *interface << 4 | len as u8, records, label: request.pt_index, words })
    }

    /// The length of the data is limited to the maximum.
    #[inline]
    fn decode_line(&mut self, line: &LineMessage) -> Option<usize> {
        let (interface, len) = (line.kind >> 4 & 3, usize::from(line.kind & 15).min(LINE_MAX));
        let [match_bits, nid_uid, _] = line.words;
        let request = Request {
            operation: 0,
            action: Action::Put,
            ack: AckReq::None,
            initiator: Process::rank(nid_uid as u32),
            uid: (nid_uid >> 32) as u32,
            pt_index: line.label & u32::from(u16::MAX),
            match_bits,
            remote_offset: 0,
            length: len as u64,
            hdr_data: 0,
        };
        *self = Self::Request { interface, request, exposed: None };
        Some(len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use host::Rng;
    use transport::Message as _;

    fn short_put(number: u64) -> Message {
        let request = Request {
            operation: 0,
            action: Action::Put,
            ack: AckReq::None,
            initiator: Process::rank(number as u32),
            uid: 7,
            pt_index: number as u32 % 1000,
            match_bits: number.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            remote_offset: 0,
            length: number % 9,
            hdr_data: 0,
        };
        Message::Request { interface: number as u8 % 4, request, exposed: None }
    }

    /// Goal: a line message is parsed as it was encoded, and whatever a peer stores, its data are inside the
    /// line.
    #[test]
    fn line_messages_are_parsed_as_made() {
        for number in 0..1000 {
            let (message, len) = (short_put(number), (number % 9) as usize);
            let data = vec![number as u8; len];
            let short = message.encode_line(&data.as_slice(), 3).expect("a request");
            assert!(message.fits_line(len) && short.records == 3 && short.kind < 128);
            let mut said = Message::Credit;
            assert_eq!((said.decode_line(&short), said), (Some(len), message));
            assert_eq!(short.words[Message::LINE_PAYLOAD].to_ne_bytes()[..len], data);
        }
        for kind in 0..128 {
            let mut message = Message::Credit;
            let short = LineMessage { kind, records: 0, label: u32::MAX, words: [u64::MAX; 3] };
            let len = message.decode_line(&short).expect("any is read");
            assert!(len <= LINE_MAX && message.fits_line(len));
        }
    }

    /// Goal: messages that a line cannot hold are left to the ring.
    #[test]
    fn messages_that_a_line_cannot_hold_are_left_to_the_ring() {
        assert!(short_put(8).fits_line(8) && !short_put(1).fits_line(9) && !Message::Credit.fits_line(0));
        let changed = |change: fn(&mut Request)| {
            let Message::Request { interface, mut request, .. } = short_put(1) else { return short_put(1) };
            change(&mut request);
            Message::Request { interface, request, exposed: None }
        };
        let changes: [fn(&mut Request); 5] = [
            |it| it.hdr_data = 1,
            |it| it.remote_offset = 1,
            |it| it.ack = AckReq::Full,
            |it| it.pt_index = 1 << 16,
            |it| it.action = Action::Get,
        ];
        assert!(changes.into_iter().all(|change| !changed(change).fits_line(1)));
    }

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
    fn messages_without_their_data_roundtrip() {
        for message in messages() {
            let bytes = message.bytes();
            let head = bytes.as_slice().len();
            assert_eq!(Message::parse(bytes.as_slice(), head), Some((message, head)));
        }
    }

    /// Goal: a message is parsed as it was encoded, with the length of its inline data; a put of 8 bytes is a
    /// cache line.
    #[test]
    fn messages_roundtrip() {
        for mut message in messages() {
            if let Message::Request { request, exposed: None, .. } = &mut message
                && request.action.brings()
            {
                request.length = 8;
            }
            let bytes = message.encode().as_slice().to_vec();
            let head = bytes.len();
            assert_eq!(bytes[2..4], [0; 2], "the transport's");
            assert!(![0, 0xff].contains(&bytes[0]) && head <= HEAD_MAX);
            let channel = (message != Message::Credit).then_some(message.channel());
            assert_eq!(Message::channel_of(bytes[0]), channel);
            assert_eq!(Message::parse(&bytes, head + 8), Some((message.clone(), head)));
            let is_put = |message: &Message| matches!(message, Message::Request { request, exposed: None, .. } if request.action == Action::Put);
            // A put also has a line encoding with the same meaning.
            let line: [u64; LINE_WORDS] = std::array::from_fn(|at| {
                bytes.as_chunks().0.get(at).map_or(0, |word| u64::from_le_bytes(*word))
            });
            let mut read = Message::Credit;
            assert_eq!(read.decode_short(&line, head + 8).is_some(), is_put(&message));
            assert_eq!(message.encode_short().is_some(), is_put(&message));
            if is_put(&message) {
                assert_eq!((head + 8, &read), (64, &message));
                assert_eq!(message.encode_short().as_ref(), line.first_chunk());
                assert!((0..head).all(|len| read.decode_short(&line, len).is_none()), "there is less");
            }
        }
    }

    /// Goal: any bytes are parsed or refused. Method: each message cut at each length, and with each byte
    /// changed.
    #[test]
    fn arbitrary_bytes_are_parsed_or_refused() {
        let (mut refused, mut tried) = (0, 0);
        for message in messages() {
            for bytes in [message.bytes(), message.encode()].map(|bytes| bytes.as_slice().to_vec()) {
                for len in 0..bytes.len() {
                    assert_eq!(Message::parse(&bytes[..len], len), None, "{len} bytes of {message:?}");
                }
                assert_eq!(Message::parse(&bytes, bytes.len() - 1), None, "there is less than there is");
                for at in 0..bytes.len() {
                    let mut changed = bytes.clone();
                    changed[at] ^= 0xff;
                    tried += 1;
                    refused += u32::from(Message::parse(&changed, bytes.len()).is_none());
                }
            }
        }
        assert!(refused > 100 && refused < tried, "{refused} of {tried}");
    }
}
