//! The wire format between processes: the only place that parses a peer's bytes. All integers are little-endian.
//!
//! A message begins with 16 bytes: kind, flags (0), credits or length (2 bytes), tag (4), context (8). The rest depends on the
//! kind. In a ring the length of the whole message replaces the credits.

use transport::{HEADER_MAX, Header, HeaderBytes, LINE_WORDS, LineMessage};

/// Bytes of the header that every message begins with.
pub(crate) const HEAD: usize = 16;
/// Bytes of the longest header, and of the longest message without payload.
pub(crate) const HEAD_MAX: usize = HEAD + 32;

/// What a receive matches besides the source: the communicator's context and the sender's tag. The connection identifies the
/// sender.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MatchKey {
    /// The communicator's context.
    pub(crate) context: u64,
    /// The message's tag.
    pub(crate) tag: i32,
}

/// The parameters of a collective operation on which all members must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CollCall {
    /// The kind of operation.
    pub(crate) kind: u8,
    /// The root's rank; -1 where the root is not compared.
    pub(crate) root: i32,
    /// The number of bytes from which all members choose an algorithm.
    pub(crate) bytes: u64,
}

/// Memory of the sender that the receiver reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RemoteMemory {
    /// Its address.
    pub(crate) addr: u64,
    /// The key for it.
    pub(crate) rkey: u32,
    /// Its length in bytes.
    pub(crate) length: u64,
}

/// A message without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The payload follows.
    Eager {
        /// Its context and tag.
        match_key: MatchKey,
        /// The sender's number for its request, if it waits for a [`Message::Fin`] that reports a match (`MPI_Ssend`).
        answer: Option<u64>,
    },
    /// Ready to send: announces a long message.
    Rts {
        /// Its context and tag.
        match_key: MatchKey,
        /// The sender's number for its request.
        id: u64,
        /// The payload in the sender's memory, which the receiver reads.
        at: RemoteMemory,
    },
    /// A long payload follows: a part of it in this message. The rest is read by the receiver's device, or follows in
    /// [`Message::Frag`]s.
    Begin {
        /// Its context and tag.
        match_key: MatchKey,
        /// Its length in bytes.
        length: u64,
    },
    /// A fragment: the next bytes of the message that a [`Message::Begin`] has begun.
    Frag,
    /// Clear to send for a message that both sides copy (`shm_copy`): the receiver has started, and the sender may copy pieces,
    /// too.
    ShmCts {
        /// The sender's number for its request.
        id: u64,
        /// The receiver's number for its own.
        key: u64,
        /// The receiver's memory for the payload.
        at: RemoteMemory,
        /// The index of the word from which both sides claim pieces.
        word: u32,
        /// The sequence number of this message among all that have used that word.
        sequence: u32,
    },
    /// The sender has copied its pieces of a message that both sides copy.
    ShmFin {
        /// The receiver's number for its request.
        key: u64,
        /// The number of pieces.
        pieces: u32,
    },
    /// A receive has matched a message, or has read all of it: the sender's request is complete.
    Fin {
        /// The sender's number for its request.
        id: u64,
        /// False if the receiver could not read it.
        ok: bool,
    },
    /// The sender cancels a message, if no receive has matched it.
    CancelReq {
        /// The sender's number for its request.
        id: u64,
    },
    /// The receiver has dropped a cancelled message.
    CancelRsp {
        /// The sender's number for its request.
        id: u64,
    },
    /// The sender waits for the receiver in a collective operation, and asks whether the receiver has called the same operation.
    CollCheck {
        /// The operation's context and tag.
        match_key: MatchKey,
        /// The operation that the sender has called.
        called: CollCall,
    },
    /// The receiver of a [`Message::CollCheck`] has called a different operation, or has given up.
    CollMismatch {
        /// The operation's context and tag.
        match_key: MatchKey,
        /// The operation that the sender of this message has called.
        called: CollCall,
    },
    /// Nothing but credits.
    Credit,
    /// The sender's last message: it needs nothing more from the receiver, and will close the connection.
    Leave,
}

const EAGER: u8 = 1;
const EAGER_SYNC: u8 = 2;
const RTS: u8 = 3;
const FIN: u8 = 4;
const CREDIT: u8 = 5;
const SHM_CTS: u8 = 7;
const SHM_FIN: u8 = 8;
const COLL_CHECK: u8 = 9;
const COLL_MISMATCH: u8 = 10;
const BEGIN: u8 = 11;
const FRAG: u8 = 12;
const CANCEL_REQ: u8 = 13;
const CANCEL_RSP: u8 = 14;
const LEAVE: u8 = 15;

/// Encodes the first two words of a short message with payload, as stored in a ring; `len` is the length of the whole message.
#[inline]
pub(crate) fn eager_words(match_key: MatchKey, len: u16) -> [u64; 2] {
    let first = u64::from(EAGER) | u64::from(len) << 16 | u64::from(match_key.tag as u32) << 32;
    [first.to_le(), match_key.context.to_le()]
}

/// Whether a first word belongs to a short message with payload.
#[inline]
pub(crate) fn is_eager(first: u64) -> bool {
    u64::from_le(first) as u8 == EAGER
}

/// Whether a first word belongs to the beginning of a long message.
#[inline]
pub(crate) fn is_begin(first: u64) -> bool {
    u64::from_le(first) as u8 == BEGIN
}

/// Decodes the words of [`eager_words`]; `None` if they are not valid.
#[inline]
pub(crate) fn parse_eager([first, context]: [u64; 2]) -> Option<(MatchKey, usize)> {
    let first = u64::from_le(first);
    let (len, tag) = (usize::from((first >> 16) as u16), (first >> 32) as i32);
    (is_eager(first.to_le()) && len >= HEAD && tag >= 0)
        .then(|| (MatchKey { context: u64::from_le(context), tag }, len))
}

impl Message {
    /// Bytes of the header before the payload.
    pub(crate) fn head_len(&self) -> usize {
        match self {
            Self::Eager { answer: None, .. } | Self::Frag | Self::Credit | Self::Leave => HEAD,
            Self::Eager { answer: Some(_), .. }
            | Self::Fin { .. }
            | Self::ShmFin { .. }
            | Self::Begin { .. }
            | Self::CancelReq { .. }
            | Self::CancelRsp { .. } => HEAD + 8,
            Self::CollCheck { .. } | Self::CollMismatch { .. } => HEAD + 16,
            Self::Rts { .. } | Self::ShmCts { .. } => HEAD_MAX,
        }
    }

    /// Encodes the header of this message, with `credits` for the peer, or with its length.
    #[inline]
    pub(crate) fn bytes(&self, credits: u16) -> HeaderBytes {
        let mut bytes = [0; HEADER_MAX];
        let mut store = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        let (kind, match_key) = match *self {
            Self::Eager { match_key, answer: None } => (EAGER, match_key),
            Self::Eager { match_key, answer: Some(id) } => {
                store(HEAD, &id.to_le_bytes());
                (EAGER_SYNC, match_key)
            }
            Self::Rts { match_key, id, at } => {
                store(HEAD, &id.to_le_bytes());
                store(HEAD + 8, &at.length.to_le_bytes());
                store(HEAD + 16, &at.addr.to_le_bytes());
                store(HEAD + 24, &at.rkey.to_le_bytes());
                (RTS, match_key)
            }
            Self::Begin { match_key, length } => {
                store(HEAD, &length.to_le_bytes());
                (BEGIN, match_key)
            }
            Self::CancelReq { id } | Self::CancelRsp { id } => {
                store(HEAD, &id.to_le_bytes());
                let kind = if matches!(self, Self::CancelReq { .. }) { CANCEL_REQ } else { CANCEL_RSP };
                (kind, MatchKey::default())
            }
            Self::ShmCts { id, key, at, word, sequence } => {
                store(HEAD, &id.to_le_bytes());
                store(HEAD + 8, &at.length.to_le_bytes());
                store(HEAD + 16, &at.addr.to_le_bytes());
                store(HEAD + 24, &at.rkey.to_le_bytes());
                store(HEAD + 28, &sequence.to_le_bytes());
                (SHM_CTS, MatchKey { context: key, tag: word as i32 })
            }
            Self::ShmFin { key, pieces } => {
                store(HEAD, &key.to_le_bytes());
                (SHM_FIN, MatchKey { context: 0, tag: pieces as i32 })
            }
            Self::Fin { id, ok } => {
                store(HEAD, &id.to_le_bytes());
                (FIN, MatchKey { context: 0, tag: i32::from(!ok) })
            }
            Self::CollCheck { match_key, called } | Self::CollMismatch { match_key, called } => {
                store(HEAD, &called.bytes.to_le_bytes());
                store(HEAD + 8, &called.root.to_le_bytes());
                store(HEAD + 12, &[called.kind]);
                (if matches!(self, Self::CollCheck { .. }) { COLL_CHECK } else { COLL_MISMATCH }, match_key)
            }
            Self::Frag => (FRAG, MatchKey::default()),
            Self::Credit => (CREDIT, MatchKey::default()),
            Self::Leave => (LEAVE, MatchKey::default()),
        };
        store(0, &[kind]);
        store(2, &credits.to_le_bytes());
        store(4, &match_key.tag.to_le_bytes());
        store(8, &match_key.context.to_le_bytes());
        HeaderBytes::new(bytes, self.head_len())
    }

    /// Decodes the header at the start of `bytes`, of a message of `len` bytes in all, and the credits with it; `None` if it is not
    /// valid.
    pub(crate) fn parse(bytes: &[u8; HEAD_MAX], len: usize) -> Option<(Self, u16)> {
        let match_key = MatchKey { context: u64_at(bytes, 8), tag: i32::from_le_bytes(part(bytes, 4)) };
        let id = u64_at(bytes, HEAD);
        let message = match bytes[0] {
            EAGER => Self::Eager { match_key, answer: None },
            EAGER_SYNC => Self::Eager { match_key, answer: Some(id) },
            RTS => Self::Rts { match_key, id, at: remote_memory(bytes)? },
            FRAG => Self::Frag,
            BEGIN => Self::Begin { match_key, length: id },
            SHM_CTS => {
                let sequence = u32::from_le_bytes(part(bytes, HEAD + 28));
                Self::ShmCts {
                    id,
                    key: match_key.context,
                    at: remote_memory(bytes)?,
                    word: match_key.tag as u32,
                    sequence,
                }
            }
            SHM_FIN => Self::ShmFin { key: id, pieces: match_key.tag as u32 },
            FIN => Self::Fin { id, ok: match_key.tag == 0 },
            CANCEL_REQ => Self::CancelReq { id },
            CANCEL_RSP => Self::CancelRsp { id },
            COLL_CHECK | COLL_MISMATCH => {
                let (kind, root) = (bytes[HEAD + 12], i32::from_le_bytes(part(bytes, HEAD + 8)));
                let called = CollCall { kind, root, bytes: id };
                if bytes[0] == COLL_CHECK {
                    Self::CollCheck { match_key, called }
                } else {
                    Self::CollMismatch { match_key, called }
                }
            }
            CREDIT => Self::Credit,
            LEAVE => Self::Leave,
            _ => return None,
        };
        let payload = len.checked_sub(message.head_len())?;
        let whole = match message {
            Self::Eager { .. } | Self::Frag => true,
            Self::Begin { length, .. } => payload as u64 <= length,
            _ => payload == 0,
        };
        let is_matched = matches!(message, Self::Eager { .. } | Self::Rts { .. } | Self::Begin { .. });
        let named = match_key.tag >= 0 || !is_matched;
        (whole && named).then_some((message, u16::from_le_bytes(part(bytes, 2))))
    }
}

impl Header for Message {
    type Short = [u64; 2];

    /// Encodes messages with payload that need no answer.
    #[inline]
    fn encode_short(&self) -> Option<[u64; 2]> {
        if let Self::Eager { match_key, answer: None } = self {
            Some(eager_words(*match_key, 0))
        } else {
            None
        }
    }

    #[inline]
    fn encode(&self) -> HeaderBytes {
        self.bytes(0)
    }

    #[inline]
    fn decode_short(&mut self, line: &[u64; LINE_WORDS], _: usize) -> Option<usize> {
        let (match_key, _) = parse_eager([line[0], line[1]])?;
        *self = Self::Eager { match_key, answer: None };
        Some(HEAD)
    }

    fn decode(&mut self, bytes: &[u8], total: usize) -> Option<usize> {
        let mut head = [0; HEAD_MAX];
        let known = bytes.len().min(HEAD_MAX);
        head[..known].copy_from_slice(&bytes[..known]);
        (*self, _) = Self::parse(&head, total)?;
        Some(self.head_len())
    }
}

impl transport::Message for Message {
    const CREDIT: Self = Self::Credit;
    const LINE_PAYLOAD: usize = LINE_PAYLOAD;

    #[inline]
    fn channel(&self) -> usize {
        0
    }

    fn channel_of(first: u8) -> Option<usize> {
        (first != CREDIT).then_some(0)
    }

    #[inline]
    fn header_max(&self) -> usize {
        self.head_len()
    }

    /// Messages with payload that need no answer.
    #[inline]
    fn fits_line(&self, payload: usize) -> bool {
        matches!(self, Self::Eager { answer: None, .. }) && payload <= LINE_MAX
    }

    #[inline]
    fn encode_line(&self, payload: &impl transport::Payload, records: u16) -> Option<LineMessage> {
        let Self::Eager { match_key, .. } = self else { return None };
        let mut bytes = [0; LINE_MAX];
        payload.load(&mut bytes[..payload.len()]);
        let word = |part: Option<&[u8; 8]>| part.map_or(0, |part| u64::from_ne_bytes(*part));
        let words = [word(bytes.first_chunk()), word(bytes.last_chunk())];
        Some(line_message(*match_key, words, payload.len(), records))
    }

    #[inline]
    fn decode_line(&mut self, line: &LineMessage) -> Option<usize> {
        let (match_key, len) = parse_line(line)?;
        *self = Self::Eager { match_key, answer: None };
        Some(len)
    }
}

/// Bytes of the longest payload that a line carries.
pub(crate) const LINE_MAX: usize = 16;
/// The first word of a line's message that holds payload.
pub(crate) const LINE_PAYLOAD: usize = 1;

/// Encodes a short message for a [line](transport::DuplexLine). The length of the payload is the kind; the payload fills two words.
#[inline]
pub(crate) fn line_message(match_key: MatchKey, payload: [u64; 2], len: usize, records: u16) -> LineMessage {
    let words = [match_key.context, payload[0], payload[1]];
    LineMessage { kind: len as u8, records, label: match_key.tag as u32, words }
}

/// Decodes a message of a line: its key, and the length of its payload; `None` for what no process of this version sends.
#[inline]
pub(crate) fn parse_line(message: &LineMessage) -> Option<(MatchKey, usize)> {
    let (match_key, len) =
        (MatchKey { context: message.words[0], tag: message.label as i32 }, usize::from(message.kind));
    (match_key.tag >= 0 && len <= LINE_MAX).then_some((match_key, len))
}

/// The memory that an RTS or CTS names; `None` if it wraps around the end of the address space.
fn remote_memory(bytes: &[u8; HEAD_MAX]) -> Option<RemoteMemory> {
    let (length, addr) = (u64_at(bytes, HEAD + 8), u64_at(bytes, HEAD + 16));
    addr.checked_add(length)?;
    Some(RemoteMemory { addr, rkey: u32::from_le_bytes(part(bytes, HEAD + 24)), length })
}

fn part<const N: usize>(bytes: &[u8; HEAD_MAX], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

fn u64_at(bytes: &[u8; HEAD_MAX], at: usize) -> u64 {
    u64::from_le_bytes(part(bytes, at))
}

/// Reason of a rejection: a connection exists already, or the process is not known.
pub(crate) const STRANGER: &[u8] = b"stranger";
/// Reason of a rejection: the process leaves the job and accepts no more connections.
pub(crate) const LEFT: &[u8] = b"left";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn messages() -> impl Strategy<Value = Message> {
        let match_key = (any::<u64>(), 0..=i32::MAX).prop_map(|(context, tag)| MatchKey { context, tag });
        let at = (0..u64::MAX / 2, any::<u32>(), 0..u64::MAX / 2)
            .prop_map(|(addr, rkey, length)| RemoteMemory { addr, rkey, length });
        prop_oneof![
            (match_key.clone(), any::<Option<u64>>())
                .prop_map(|(match_key, answer)| Message::Eager { match_key, answer }),
            (match_key.clone(), any::<u64>(), at.clone()).prop_map(|(match_key, id, at)| Message::Rts {
                match_key,
                id,
                at
            }),
            (match_key, any::<u64>()).prop_map(|(match_key, length)| Message::Begin { match_key, length }),
            (any::<(u64, u64, u32, u32)>(), at).prop_map(|((id, key, word, sequence), at)| Message::ShmCts {
                id,
                key,
                at,
                word,
                sequence,
            }),
            any::<(u64, u32)>().prop_map(|(key, pieces)| Message::ShmFin { key, pieces }),
            any::<(u64, bool)>().prop_map(|(id, ok)| Message::Fin { id, ok }),
            any::<u64>().prop_map(|id| Message::CancelReq { id }),
            any::<u64>().prop_map(|id| Message::CancelRsp { id }),
            (any::<(u64, i32, u64, u8)>(), any::<(i32, bool)>()).prop_map(
                |((context, tag, bytes, kind), (root, asks))| {
                    let (match_key, called) = (MatchKey { context, tag }, CollCall { kind, root, bytes });
                    if asks {
                        Message::CollCheck { match_key, called }
                    } else {
                        Message::CollMismatch { match_key, called }
                    }
                }
            ),
            Just(Message::Credit),
            Just(Message::Leave),
        ]
    }

    /// The length in the first bytes of a record.
    fn length_of(head: &[u8; HEAD_MAX]) -> usize {
        u16::from_le_bytes(part(head, 2)).into()
    }

    fn padded(bytes: &[u8]) -> [u8; HEAD_MAX] {
        let mut all = [0; HEAD_MAX];
        all[..bytes.len()].copy_from_slice(bytes);
        all
    }

    proptest! {
        #[test]
        fn messages_parse_as_encoded(message in messages(), credits in any::<u16>()) {
            let bytes = message.bytes(credits);
            let len = bytes.as_slice().len();
            prop_assert_eq!(Message::parse(&padded(bytes.as_slice()), len), Some((message, credits)));
            prop_assert_eq!(Message::parse(&padded(bytes.as_slice()), len - 1), None);
            let longer = Message::parse(&padded(bytes.as_slice()), len + 1);
            let carries = match message {
                Message::Eager { .. } | Message::Frag => true,
                Message::Begin { length, .. } => length > 0,
                _ => false,
            };
            prop_assert_eq!(longer.is_some(), carries);
        }

        /// No input panics, and whatever is accepted is encoded to the same bytes again.
        #[test]
        fn random_bytes_are_rejected_or_encode_equally(bytes in any::<[u8; 32]>(), more in any::<[u8; 16]>(), len in 0..100_usize) {
            let mut all = [0; HEAD_MAX];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&more);
            if let Some((message, credits)) = Message::parse(&all, len) {
                prop_assert!(len >= message.head_len());
                let again = message.bytes(credits);
                prop_assert_eq!(Message::parse(&padded(again.as_slice()), again.as_slice().len()), Some((message, credits)));
            }
        }

        /// The short encoder and parser agree with the general ones.
        #[test]
        fn short_encoding_equals_the_general_one(match_key in any::<(u64, i32)>(), words in any::<[u64; 2]>(), len in any::<u16>(), is_said in any::<bool>()) {
            let match_key = MatchKey { context: match_key.0, tag: match_key.1 };
            let said = eager_words(match_key, len);
            let bytes = Message::Eager { match_key, answer: None }.bytes(len);
            let (first, second) = bytes.as_slice().split_at(8);
            prop_assert_eq!(said, [first, second].map(|word| u64::from_ne_bytes(word.try_into().expect("eight"))));
            let words = if is_said { said } else { words };
            let mut all = [0; HEAD_MAX];
            all[..8].copy_from_slice(&words[0].to_ne_bytes());
            all[8..16].copy_from_slice(&words[1].to_ne_bytes());
            let long = Message::parse(&all, length_of(&all)).filter(|_| is_eager(words[0]));
            let short = parse_eager(words);
            let short = short.map(|(match_key, len)| (Message::Eager { match_key, answer: None }, len as u16));
            prop_assert_eq!(short, long);
        }

        #[test]
        fn line_messages_are_parsed_as_made(tag in 0..=i32::MAX, context in any::<u64>(), payload in any::<[u64; 2]>(), len in 0..128_usize) {
            let match_key = MatchKey { context, tag };
            let message = line_message(match_key, payload, len, 5);
            prop_assert_eq!(parse_line(&message), (len <= LINE_MAX).then_some((match_key, len)));
            prop_assert_eq!(&message.words[LINE_PAYLOAD..], &payload[..]);
            prop_assert_eq!(parse_line(&line_message(MatchKey { tag: -1 - tag, ..match_key }, payload, 8, 5)), None);
        }

        #[test]
        fn first_byte_is_never_empty_or_a_mark(message in messages(), len in any::<u16>()) {
            let bytes = message.bytes(len);
            prop_assert!(![0, 0xff].contains(&bytes.as_slice()[0]));
            prop_assert_eq!(length_of(&padded(bytes.as_slice())), usize::from(len));
        }
    }

    /// A message that names memory beyond the end of the address space is rejected.
    #[test]
    fn exposed_memory_does_not_wrap() {
        let at = RemoteMemory { addr: u64::MAX - 3, rkey: 1, length: 8 };
        let bytes = Message::Rts { match_key: MatchKey::default(), id: 1, at }.bytes(0);
        assert_eq!(Message::parse(&padded(bytes.as_slice()), HEAD_MAX), None);
    }
}
