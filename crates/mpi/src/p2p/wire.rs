//! What processes say to each other: the one place that looks at bytes of a peer's. All integers are little-endian.
//!
//! A message begins with 16 bytes: kind, flags (0), credits or length (2 bytes), tag (4), context (8). What follows depends on the
//! kind. In a ring the length of the whole is in the place of the credits.

use transport::{HEADER_MAX, Header, HeaderBytes, LINE_WORDS, LineMessage};

/// Bytes that every message begins with.
pub(crate) const HEAD: usize = 16;
/// Bytes of the longest message without payload, and more than payload ever begins behind.
pub(crate) const HEAD_MAX: usize = HEAD + 32;

/// Which messages a receive may match: the communicator's context and the sender's tag. The sender is who is connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Label {
    /// The communicator's context.
    pub(crate) context: u64,
    /// The message's tag.
    pub(crate) tag: i32,
}

/// What a member has called in a collective operation, as far as all must call alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Called {
    /// Which kind of operation.
    pub(crate) kind: u8,
    /// The root's rank; -1 where that is not what tells it.
    pub(crate) root: i32,
    /// Bytes by which all choose an algorithm.
    pub(crate) bytes: u64,
}

/// Memory of the sender's that the receiver is to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exposed {
    /// Its address.
    pub(crate) addr: u64,
    /// The key for it.
    pub(crate) rkey: u32,
    /// Its length in bytes.
    pub(crate) length: u64,
}

/// A message, but for its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// The payload follows. With an answer, the sender wants to know when a receive has matched.
    Eager {
        /// What it matches.
        label: Label,
        /// The sender's name for its request, if it wants an acknowledgement.
        answer: Option<u64>,
    },
    /// The payload lies in the sender's memory, for the receiver to read, or to have it written.
    Request {
        /// What it matches.
        label: Label,
        /// The sender's name for its request.
        id: u64,
        /// Where the payload lies.
        at: Exposed,
        /// Bytes of it that come by themselves, with this and in [`Message::Part`]s behind it.
        brings: u32,
        /// The sender waits: it writes the rest where the receiver says by a [`Message::Clear`], and there is nothing to read.
        waits: bool,
    },
    /// The next of the bytes that come by themselves.
    Part {
        /// The sender's name for its request.
        id: u64,
    },
    /// The rest of the payload of such a request is to be written.
    Clear {
        /// The sender's name for its request.
        id: u64,
        /// Where the rest goes.
        at: Exposed,
        /// The number by which the sender tells that all is written.
        place: u32,
    },
    /// The receiver copies the payload of such a request, and the sender may copy pieces of it, too (`share`).
    Share {
        /// The sender's name for its request.
        id: u64,
        /// The receiver's name for its own.
        key: u64,
        /// Where the payload goes.
        at: Exposed,
        /// The word by which pieces are claimed, and which of its messages this is.
        place: u32,
        turn: u32,
    },
    /// The sender has copied pieces of a payload that both copy.
    Copied {
        /// The receiver's name for its request.
        key: u64,
        /// How many.
        pieces: u32,
    },
    /// A receive has matched a message, or has read one: the sender's request is over.
    Done {
        /// The sender's name for its request.
        id: u64,
        /// Whether all went well.
        ok: bool,
    },
    /// The sender takes a message back, if no receive has matched it.
    Withdraw {
        /// Its name for its request.
        id: u64,
    },
    /// None has, and none will.
    Withdrawn {
        /// The sender's name for its request.
        id: u64,
    },
    /// The sender waits for the receiver in a collective operation: has that called the same?
    Ask {
        /// The operation's.
        label: Label,
        /// What the sender has called.
        called: Called,
    },
    /// It has called something else, or has given up.
    Differs {
        /// The operation's.
        label: Label,
        /// What the sender of this has called.
        called: Called,
    },
    /// Nothing but credits.
    Credit,
    /// The sender leaves: this is its last message, it needs nothing from the receiver any more, and will end the connection.
    Leave,
}

const EAGER: u8 = 1;
const EAGER_ANSWERED: u8 = 2;
const REQUEST: u8 = 3;
const DONE: u8 = 4;
const CREDIT: u8 = 5;
const SHARE: u8 = 7;
const COPIED: u8 = 8;
const ASK: u8 = 9;
const DIFFERS: u8 = 10;
const PART: u8 = 11;
const CLEAR: u8 = 12;
const WITHDRAW: u8 = 13;
const WITHDRAWN: u8 = 14;
const LEAVE: u8 = 15;

/// The bit that says that the sender of a request waits; the others are the bytes that it brings.
const WAITS: u32 = 1 << 31;

/// Where messages are written by RDMA, the first word where the next record is not, but at the ring's begin. It is no message's.
pub(crate) const MARK: u64 = 6;

/// The first two words of a short message whose payload follows, as they lie in a ring; `len` is the whole's.
#[inline]
pub(crate) fn eager_words(label: Label, len: u16) -> [u64; 2] {
    let first = u64::from(EAGER) | u64::from(len) << 16 | u64::from(label.tag as u32) << 32;
    [first.to_le(), label.context.to_le()]
}

/// Whether a first word is that of a short message whose payload follows.
#[inline]
pub(crate) fn is_eager(first: u64) -> bool {
    u64::from_le(first) as u8 == EAGER
}

/// What [`eager_words`] say; `None` for what nobody says.
#[inline]
pub(crate) fn parse_eager([first, context]: [u64; 2]) -> Option<(Label, usize)> {
    let first = u64::from_le(first);
    let (len, tag) = (usize::from((first >> 16) as u16), (first >> 32) as i32);
    (is_eager(first.to_le()) && len >= HEAD && tag >= 0)
        .then(|| (Label { context: u64::from_le(context), tag }, len))
}

impl Message {
    /// Bytes before the payload.
    pub(crate) fn head_len(&self) -> usize {
        match self {
            Self::Eager { answer: None, .. } | Self::Credit | Self::Leave => HEAD,
            Self::Eager { answer: Some(_), .. }
            | Self::Done { .. }
            | Self::Copied { .. }
            | Self::Part { .. }
            | Self::Withdraw { .. }
            | Self::Withdrawn { .. } => HEAD + 8,
            Self::Ask { .. } | Self::Differs { .. } => HEAD + 16,
            Self::Request { .. } | Self::Share { .. } | Self::Clear { .. } => HEAD_MAX,
        }
    }

    /// The bytes of this message with `credits` for the peer, or its length.
    #[inline]
    pub(crate) fn bytes(&self, credits: u16) -> HeaderBytes {
        let mut bytes = [0; HEADER_MAX];
        let mut put = |at: usize, part: &[u8]| bytes[at..at + part.len()].copy_from_slice(part);
        let (kind, label) = match *self {
            Self::Eager { label, answer: None } => (EAGER, label),
            Self::Eager { label, answer: Some(id) } => {
                put(HEAD, &id.to_le_bytes());
                (EAGER_ANSWERED, label)
            }
            Self::Request { label, id, at, brings, waits } => {
                let more = brings | if waits { WAITS } else { 0 };
                put(HEAD, &id.to_le_bytes());
                put(HEAD + 8, &at.length.to_le_bytes());
                put(HEAD + 16, &at.addr.to_le_bytes());
                put(HEAD + 24, &at.rkey.to_le_bytes());
                put(HEAD + 28, &more.to_le_bytes());
                (REQUEST, label)
            }
            Self::Part { id } | Self::Withdraw { id } | Self::Withdrawn { id } => {
                put(HEAD, &id.to_le_bytes());
                let kind = match self {
                    Self::Withdraw { .. } => WITHDRAW,
                    Self::Withdrawn { .. } => WITHDRAWN,
                    _ => PART,
                };
                (kind, Label::default())
            }
            Self::Clear { id, at, place } => {
                put(HEAD, &id.to_le_bytes());
                put(HEAD + 8, &at.length.to_le_bytes());
                put(HEAD + 16, &at.addr.to_le_bytes());
                put(HEAD + 24, &at.rkey.to_le_bytes());
                put(HEAD + 28, &place.to_le_bytes());
                (CLEAR, Label::default())
            }
            Self::Share { id, key, at, place, turn } => {
                put(HEAD, &id.to_le_bytes());
                put(HEAD + 8, &at.length.to_le_bytes());
                put(HEAD + 16, &at.addr.to_le_bytes());
                put(HEAD + 24, &at.rkey.to_le_bytes());
                put(HEAD + 28, &turn.to_le_bytes());
                (SHARE, Label { context: key, tag: place as i32 })
            }
            Self::Copied { key, pieces } => {
                put(HEAD, &key.to_le_bytes());
                (COPIED, Label { context: 0, tag: pieces as i32 })
            }
            Self::Done { id, ok } => {
                put(HEAD, &id.to_le_bytes());
                (DONE, Label { context: 0, tag: i32::from(!ok) })
            }
            Self::Ask { label, called } | Self::Differs { label, called } => {
                put(HEAD, &called.bytes.to_le_bytes());
                put(HEAD + 8, &called.root.to_le_bytes());
                put(HEAD + 12, &[called.kind]);
                (if matches!(self, Self::Ask { .. }) { ASK } else { DIFFERS }, label)
            }
            Self::Credit => (CREDIT, Label::default()),
            Self::Leave => (LEAVE, Label::default()),
        };
        put(0, &[kind]);
        put(2, &credits.to_le_bytes());
        put(4, &label.tag.to_le_bytes());
        put(8, &label.context.to_le_bytes());
        HeaderBytes::new(bytes, self.head_len())
    }

    /// The message that `bytes` begin with, of a whole of `len` bytes, and the credits with it. `None` for what nobody says.
    pub(crate) fn parse(bytes: &[u8; HEAD_MAX], len: usize) -> Option<(Self, u16)> {
        let label = Label { context: u64_at(bytes, 8), tag: i32::from_le_bytes(part(bytes, 4)) };
        let id = u64_at(bytes, HEAD);
        let message = match bytes[0] {
            EAGER => Self::Eager { label, answer: None },
            EAGER_ANSWERED => Self::Eager { label, answer: Some(id) },
            REQUEST => {
                let more = u32::from_le_bytes(part(bytes, HEAD + 28));
                let (at, brings, waits) = (exposed(bytes)?, more & !WAITS, more & WAITS != 0);
                if u64::from(brings) > at.length {
                    return None;
                }
                Self::Request { label, id, at, brings, waits }
            }
            PART => Self::Part { id },
            CLEAR => {
                Self::Clear { id, at: exposed(bytes)?, place: u32::from_le_bytes(part(bytes, HEAD + 28)) }
            }
            SHARE => {
                let turn = u32::from_le_bytes(part(bytes, HEAD + 28));
                Self::Share { id, key: label.context, at: exposed(bytes)?, place: label.tag as u32, turn }
            }
            COPIED => Self::Copied { key: id, pieces: label.tag as u32 },
            DONE => Self::Done { id, ok: label.tag == 0 },
            WITHDRAW => Self::Withdraw { id },
            WITHDRAWN => Self::Withdrawn { id },
            ASK | DIFFERS => {
                let (kind, root) = (bytes[HEAD + 12], i32::from_le_bytes(part(bytes, HEAD + 8)));
                let called = Called { kind, root, bytes: id };
                if bytes[0] == ASK { Self::Ask { label, called } } else { Self::Differs { label, called } }
            }
            CREDIT => Self::Credit,
            LEAVE => Self::Leave,
            _ => return None,
        };
        let payload = len.checked_sub(message.head_len())?;
        let whole = match message {
            Self::Eager { .. } | Self::Part { .. } => true,
            Self::Request { brings, .. } => payload <= brings as usize,
            _ => payload == 0,
        };
        let named = label.tag >= 0 || !matches!(message, Self::Eager { .. } | Self::Request { .. });
        (whole && named).then_some((message, u16::from_le_bytes(part(bytes, 2))))
    }
}

impl Header for Message {
    type Short = [u64; 2];

    /// A message whose payload follows, and that asks for no answer.
    #[inline]
    fn encode_short(&self) -> Option<[u64; 2]> {
        if let Self::Eager { label, answer: None } = self { Some(eager_words(*label, 0)) } else { None }
    }

    #[inline]
    fn encode(&self) -> HeaderBytes {
        self.bytes(0)
    }

    #[inline]
    fn decode_short(&mut self, line: &[u64; LINE_WORDS], _: usize) -> Option<usize> {
        let (label, _) = parse_eager([line[0], line[1]])?;
        *self = Self::Eager { label, answer: None };
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

/// Bytes of the longest payload that goes by a line.
pub(crate) const LINE_MAX: usize = 16;
/// The first word of a line's message that has payload.
pub(crate) const LINE_PAYLOAD: usize = 1;

/// A short message as one of a [line](transport::DuplexLine). Its kind is the length of the payload, which is in two words.
#[inline]
pub(crate) fn line_message(label: Label, payload: [u64; 2], len: usize, records: u16) -> LineMessage {
    let words = [label.context, payload[0], payload[1]];
    LineMessage { kind: len as u8, records, label: label.tag as u32, words }
}

/// Parses a message of a line: its label, and the length of its payload; `None` for what no process of this version sends.
#[inline]
pub(crate) fn parse_line(message: &LineMessage) -> Option<(Label, usize)> {
    let (label, len) =
        (Label { context: message.words[0], tag: message.label as i32 }, usize::from(message.kind));
    (label.tag >= 0 && len <= LINE_MAX).then_some((label, len))
}

/// The length of the whole that a record begins with.
#[inline]
pub(crate) fn length_of(head: &[u8; HEAD_MAX]) -> usize {
    u16::from_le_bytes(part(head, 2)).into()
}

/// The memory that a message of the longest kind names; `None` for more than there are addresses.
fn exposed(bytes: &[u8; HEAD_MAX]) -> Option<Exposed> {
    let (length, addr) = (u64_at(bytes, HEAD + 8), u64_at(bytes, HEAD + 16));
    addr.checked_add(length)?;
    Some(Exposed { addr, rkey: u32::from_le_bytes(part(bytes, HEAD + 24)), length })
}

fn part<const N: usize>(bytes: &[u8; HEAD_MAX], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

fn u64_at(bytes: &[u8; HEAD_MAX], at: usize) -> u64 {
    u64::from_le_bytes(part(bytes, at))
}

/// Why a connection is refused, as private data of the refusal: both connect, and the other one's attempt counts.
pub(crate) const CROSSED: &[u8] = b"crossed";
/// Why a connection is refused: there is one already, or the process is not known.
pub(crate) const STRANGER: &[u8] = b"stranger";
/// Why a connection is refused: the process has just started and does not have the job's key yet. The peer asks again.
pub(crate) const NOT_YET: &[u8] = b"not yet";
/// Reason of a rejection: the process leaves the job and accepts no connection any more.
pub(crate) const LEFT: &[u8] = b"left";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn messages() -> impl Strategy<Value = Message> {
        let label = (any::<u64>(), 0..=i32::MAX).prop_map(|(context, tag)| Label { context, tag });
        let at = (0..u64::MAX / 2, any::<u32>(), 0..u64::MAX / 2).prop_map(|(addr, rkey, length)| Exposed {
            addr,
            rkey,
            length,
        });
        prop_oneof![
            (label.clone(), any::<Option<u64>>())
                .prop_map(|(label, answer)| Message::Eager { label, answer }),
            (label, any::<u64>(), at.clone(), any::<u32>(), any::<bool>()).prop_map(
                |(label, id, at, brings, waits)| {
                    let brings = (u64::from(brings & !WAITS)).min(at.length) as u32;
                    Message::Request { label, id, at, brings, waits }
                }
            ),
            any::<u64>().prop_map(|id| Message::Part { id }),
            (any::<u64>(), at.clone(), any::<u32>()).prop_map(|(id, at, place)| Message::Clear {
                id,
                at,
                place
            }),
            (any::<(u64, u64, u32, u32)>(), at).prop_map(|((id, key, place, turn), at)| Message::Share {
                id,
                key,
                at,
                place,
                turn
            }),
            any::<(u64, u32)>().prop_map(|(key, pieces)| Message::Copied { key, pieces }),
            any::<(u64, bool)>().prop_map(|(id, ok)| Message::Done { id, ok }),
            any::<u64>().prop_map(|id| Message::Withdraw { id }),
            any::<u64>().prop_map(|id| Message::Withdrawn { id }),
            (any::<(u64, i32, u64, u8)>(), any::<(i32, bool)>()).prop_map(
                |((context, tag, bytes, kind), (root, asks))| {
                    let (label, called) = (Label { context, tag }, Called { kind, root, bytes });
                    if asks { Message::Ask { label, called } } else { Message::Differs { label, called } }
                }
            ),
            Just(Message::Credit),
            Just(Message::Leave),
        ]
    }

    fn padded(bytes: &[u8]) -> [u8; HEAD_MAX] {
        let mut all = [0; HEAD_MAX];
        all[..bytes.len()].copy_from_slice(bytes);
        all
    }

    proptest! {
        #[test]
        fn what_is_said_is_understood(message in messages(), credits in any::<u16>()) {
            let bytes = message.bytes(credits);
            let len = bytes.as_slice().len();
            prop_assert_eq!(Message::parse(&padded(bytes.as_slice()), len), Some((message, credits)));
            prop_assert_eq!(Message::parse(&padded(bytes.as_slice()), len - 1), None);
            let longer = Message::parse(&padded(bytes.as_slice()), len + 1);
            let carries = match message {
                Message::Eager { .. } | Message::Part { .. } => true,
                Message::Request { brings, .. } => brings > 0,
                _ => false,
            };
            prop_assert_eq!(longer.is_some(), carries);
        }

        /// Whatever comes, nothing panics, and what is understood would be said in the same way.
        #[test]
        fn nonsense_is_refused_or_means_something(bytes in any::<[u8; 32]>(), more in any::<[u8; 16]>(), len in 0..100_usize) {
            let mut all = [0; HEAD_MAX];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&more);
            if let Some((message, credits)) = Message::parse(&all, len) {
                prop_assert!(len >= message.head_len());
                let again = message.bytes(credits);
                prop_assert_eq!(Message::parse(&padded(again.as_slice()), again.as_slice().len()), Some((message, credits)));
            }
        }

        /// The short way says what the long one does, and understands what it does.
        #[test]
        fn words_of_short_messages_are_the_bytes(label in any::<(u64, i32)>(), words in any::<[u64; 2]>(), len in any::<u16>(), is_said in any::<bool>()) {
            let label = Label { context: label.0, tag: label.1 };
            let said = eager_words(label, len);
            let bytes = Message::Eager { label, answer: None }.bytes(len);
            let (first, second) = bytes.as_slice().split_at(8);
            prop_assert_eq!(said, [first, second].map(|word| u64::from_ne_bytes(word.try_into().expect("eight"))));
            let words = if is_said { said } else { words };
            let mut all = [0; HEAD_MAX];
            all[..8].copy_from_slice(&words[0].to_ne_bytes());
            all[8..16].copy_from_slice(&words[1].to_ne_bytes());
            let long = Message::parse(&all, length_of(&all)).filter(|_| is_eager(words[0]));
            let short = parse_eager(words);
            let short = short.map(|(label, len)| (Message::Eager { label, answer: None }, len as u16));
            prop_assert_eq!(short, long);
        }

        #[test]
        fn line_messages_are_parsed_as_made(tag in 0..=i32::MAX, context in any::<u64>(), payload in any::<[u64; 2]>(), len in 0..128_usize) {
            let label = Label { context, tag };
            let message = line_message(label, payload, len, 5);
            prop_assert_eq!(parse_line(&message), (len <= LINE_MAX).then_some((label, len)));
            prop_assert_eq!(&message.words[LINE_PAYLOAD..], &payload[..]);
            prop_assert_eq!(parse_line(&line_message(Label { tag: -1 - tag, ..label }, payload, 8, 5)), None);
        }

        #[test]
        fn no_message_is_an_empty_place_or_a_mark(message in messages(), len in any::<u16>()) {
            let bytes = message.bytes(len);
            prop_assert!(![0, MARK, 0xff].contains(&u64::from_le_bytes(*bytes.as_slice().first_chunk().expect("a word"))));
            prop_assert_eq!(length_of(&padded(bytes.as_slice())), usize::from(len));
        }
    }

    /// A request for memory that wraps around the end of all addresses is nonsense.
    #[test]
    fn exposed_memory_does_not_wrap() {
        let at = Exposed { addr: u64::MAX - 3, rkey: 1, length: 8 };
        let bytes = Message::Request { label: Label::default(), id: 1, at, brings: 0, waits: false }.bytes(0);
        assert_eq!(Message::parse(&padded(bytes.as_slice()), HEAD_MAX), None);
    }
}
