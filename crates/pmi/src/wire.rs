//! Messages on the wire: reads and writes PMI-1's lines and PMI-2's packets, within limits.
//!
//! A line is `cmd=NAME key=value key=value` and a newline. A packet is six characters with the length of the rest, right aligned,
//! then `cmd=NAME;key=value;key=value;`. Unknown keys are ignored, as both protocols demand.

use std::collections::VecDeque;
use std::fmt::{Display, Write};
use std::str::FromStr;
use thiserror::Error;

/// The longest message accepted from a peer, in bytes, without newline or length. Values have at most 1023 bytes; arguments of
/// programs may be longer.
pub const MESSAGE_LEN_MAX: usize = 8 * 1024;
/// The longest command that is sent, in bytes, newline included: older servers read into a buffer of that size.
pub const COMMAND_LEN_MAX: usize = 1024;
/// Maximum number of keys in a message.
pub const PAIRS_MAX: usize = 64;
/// Bytes of a packet's length field.
const LENGTH_LEN: usize = 6;
/// Maximum characters of a peer's text that are quoted in an error.
const EXCERPT_CHARS: usize = 48;

/// Why the bytes of a message are invalid.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WireError {
    /// No end within [`MESSAGE_LEN_MAX`].
    #[error("the message is longer than {MESSAGE_LEN_MAX} bytes")]
    TooLong,
    /// Bytes that are not UTF-8 text.
    #[error("the message is no UTF-8 text")]
    NotText,
    /// A packet with an invalid length field.
    #[error("a packet's length is expected where there is '{0}': the peer uses another protocol")]
    Length(String),
    /// A message that does not start with its name.
    #[error("the message does not begin with cmd=NAME: '{0}'")]
    NoName(String),
    /// More keys than [`PAIRS_MAX`].
    #[error("the message '{0}' has more than {PAIRS_MAX} keys")]
    TooManyPairs(String),
    /// A required key is missing.
    #[error("the message '{message}' lacks {key}=")]
    Missing {
        /// The message's name.
        message: String,
        /// The key.
        key: &'static str,
    },
    /// A number that is invalid, or out of range.
    #[error("in the message '{message}', {key}= is no number that could stand there: '{value}'")]
    Number {
        /// The message's name.
        message: String,
        /// The key.
        key: &'static str,
        /// The invalid value.
        value: String,
    },
}

/// The start of a peer's text, in printable form.
pub(crate) fn excerpt(text: &str) -> String {
    let mut short: String = text.chars().take(EXCERPT_CHARS).collect();
    if short.len() < text.len() {
        short.push_str("...");
    }
    short
}

/// How messages are delimited.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Framing {
    /// PMI-1, and the first message of PMI-2.
    #[default]
    Lines,
    /// PMI-2.
    Packets,
}

impl Framing {
    /// The separator between keys.
    const fn separator(self) -> char {
        match self {
            Self::Lines => ' ',
            Self::Packets => ';',
        }
    }
}

/// Collects a peer's bytes until a message is complete; it holds at most one message.
#[derive(Debug, Default)]
pub struct Inbox {
    framing: Framing,
    partial: Vec<u8>,
}

impl Inbox {
    /// Changes the framing from the next message on.
    pub fn set_framing(&mut self, framing: Framing) {
        self.framing = framing;
    }

    /// Takes bytes up to the end of a message, and returns the message once it is complete.
    ///
    /// # Errors
    /// If it is no message; later messages can then not be delimited either.
    pub fn take(&mut self, bytes: &mut &[u8]) -> Result<Option<String>, WireError> {
        let is_whole = match self.framing {
            Framing::Lines => self.take_line(bytes)?,
            Framing::Packets => self.take_packet(bytes)?,
        };
        if !is_whole {
            return Ok(None);
        }
        let mut message = std::mem::take(&mut self.partial);
        if self.framing == Framing::Packets {
            message.drain(..LENGTH_LEN);
        }
        String::from_utf8(message).map(Some).map_err(|_| WireError::NotText)
    }

    fn take_line(&mut self, bytes: &mut &[u8]) -> Result<bool, WireError> {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let n = end.unwrap_or(bytes.len());
        if self.partial.len() + n > MESSAGE_LEN_MAX {
            return Err(WireError::TooLong);
        }
        self.fill(bytes, n);
        if end.is_some() {
            *bytes = &bytes[1..];
        }
        Ok(end.is_some())
    }

    fn take_packet(&mut self, bytes: &mut &[u8]) -> Result<bool, WireError> {
        self.fill(bytes, LENGTH_LEN.saturating_sub(self.partial.len()));
        let Some(header) = self.partial.get(..LENGTH_LEN) else { return Ok(false) };
        let len =
            length(header).ok_or_else(|| WireError::Length(excerpt(&String::from_utf8_lossy(header))))?;
        if len > MESSAGE_LEN_MAX {
            return Err(WireError::TooLong);
        }
        self.fill(bytes, LENGTH_LEN + len - self.partial.len());
        Ok(self.partial.len() == LENGTH_LEN + len)
    }

    /// Takes up to `n` bytes.
    fn fill(&mut self, bytes: &mut &[u8], n: usize) {
        let (now, rest) = bytes.split_at(n.min(bytes.len()));
        self.partial.extend_from_slice(now);
        *bytes = rest;
    }
}

/// The length in a packet's header.
fn length(header: &[u8]) -> Option<usize> {
    let digits = std::str::from_utf8(header).ok()?.trim_start_matches(' ');
    if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse().ok() } else { None }
}

/// A parsed message of a peer.
#[derive(Debug)]
pub struct Message<'a> {
    name: &'a str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Message<'a> {
    /// Parses a message.
    ///
    /// # Errors
    /// If it has no name, or too many keys.
    pub fn parse(text: &'a str, framing: Framing) -> Result<Self, WireError> {
        let mut words = text.split(framing.separator()).filter(|word| !word.is_empty());
        let name = words.next().and_then(|word| word.strip_prefix("cmd=")).filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| WireError::NoName(excerpt(text)))?;
        let pairs: Vec<_> =
            words.take(PAIRS_MAX + 1).map(|word| word.split_once('=').unwrap_or((word, ""))).collect();
        if pairs.len() > PAIRS_MAX {
            return Err(WireError::TooManyPairs(excerpt(name)));
        }
        Ok(Self { name, pairs })
    }

    /// The message's name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// The value of a key, the first if there are several.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.pairs.iter().find(|(found, _)| *found == key).map(|(_, value)| *value)
    }

    /// The value of a required key.
    ///
    /// # Errors
    /// If it is missing.
    pub fn need(&self, key: &'static str) -> Result<&'a str, WireError> {
        self.get(key).ok_or_else(|| WireError::Missing { message: excerpt(self.name), key })
    }

    /// A number, if the key is present.
    ///
    /// # Errors
    /// If the value is not a number.
    pub fn number<T: FromStr>(&self, key: &'static str) -> Result<Option<T>, WireError> {
        let parse = |value: &str| {
            let wrong = |_| WireError::Number { message: excerpt(self.name), key, value: excerpt(value) };
            value.parse().map_err(|_| ()).map_err(wrong)
        };
        self.get(key).map(parse).transpose()
    }

    /// A required number.
    ///
    /// # Errors
    /// If it is missing or not a number.
    pub fn need_number<T: FromStr>(&self, key: &'static str) -> Result<T, WireError> {
        self.need(key)?;
        self.number(key)?.ok_or_else(|| WireError::Missing { message: excerpt(self.name), key })
    }
}

/// A message under construction.
#[derive(Debug)]
pub(crate) struct Draft {
    framing: Framing,
    text: String,
}

impl Draft {
    /// Starts a message of this name.
    pub(crate) fn new(framing: Framing, name: &str) -> Self {
        Self { framing, text: format!("cmd={name}") }
    }

    /// Adds a key and its value, which must be valid for the framing.
    pub(crate) fn with(mut self, key: impl Display, value: impl Display) -> Self {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{}{key}={value}", self.framing.separator());
        self
    }

    /// The bytes to send.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        match self.framing {
            Framing::Lines => self.text.push('\n'),
            Framing::Packets => self.text = format!("{:6}{};", self.text.len() + 1, self.text),
        }
        self.text.into_bytes()
    }
}

/// Queued messages, each sent in its own write, because some servers treat every read as one command.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    messages: VecDeque<Vec<u8>>,
    /// Bytes already sent of the first message.
    sent: usize,
}

impl Outbox {
    pub(crate) fn push(&mut self, message: Vec<u8>) {
        self.messages.push_back(message);
    }

    /// The next bytes to send; empty if all are sent.
    pub(crate) fn front(&self) -> &[u8] {
        self.messages.front().map_or(&[], |message| &message[self.sent..])
    }

    /// Records that `n` bytes of [`Self::front`] were sent.
    pub(crate) fn sent(&mut self, n: usize) {
        let len = self.messages.front().map_or(0, Vec::len);
        self.sent = len.min(self.sent.saturating_add(n));
        if self.sent == len {
            self.messages.pop_front();
            self.sent = 0;
        }
    }

    /// Number of queued messages.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All messages in the bytes, which arrive in pieces of `step`.
    fn all(framing: Framing, bytes: &[u8], step: usize) -> Result<Vec<String>, WireError> {
        let mut inbox = Inbox { framing, ..Inbox::default() };
        let mut found = Vec::new();
        for mut piece in bytes.chunks(step) {
            while !piece.is_empty() {
                found.extend(inbox.take(&mut piece)?);
            }
        }
        Ok(found)
    }

    #[test]
    fn messages_are_found_in_any_fragments() {
        let lines = b"cmd=maxes rc=0\n\ncmd=appnum appnum=0\ncmd=half";
        let packets = b"    14cmd=job-getid;    28cmd=kvs-fence-response;rc=0;     0    14cmd=";
        for step in 1..lines.len() {
            assert_eq!(
                all(Framing::Lines, lines, step).expect("lines"),
                ["cmd=maxes rc=0", "", "cmd=appnum appnum=0"]
            );
            assert_eq!(
                all(Framing::Packets, packets, step).expect("packets"),
                ["cmd=job-getid;", "cmd=kvs-fence-response;rc=0;", ""]
            );
        }
    }

    #[test]
    fn the_first_line_of_pmi_2_is_followed_by_packets() {
        let mut inbox = Inbox::default();
        let mut bytes: &[u8] = b"cmd=a\n     2b;";
        assert_eq!(inbox.take(&mut bytes), Ok(Some("cmd=a".into())));
        inbox.set_framing(Framing::Packets);
        assert_eq!(inbox.take(&mut bytes), Ok(Some("b;".into())));
    }

    /// Goal: a message may have the maximum length, and no more. Method: both framings at the limit and beyond, in pieces.
    #[test]
    fn messages_have_a_limit() {
        for step in [1, 1000, usize::MAX] {
            for (over, expected) in [(0, Ok(1)), (1, Err(WireError::TooLong))] {
                let mut line = vec![b'x'; MESSAGE_LEN_MAX + over];
                line.push(b'\n');
                assert_eq!(all(Framing::Lines, &line, step).map(|found| found.len()), expected);
            }
            let packet = |len: usize| [format!("{len:6}").into_bytes(), vec![b'x'; len]].concat();
            let found = all(Framing::Packets, &packet(MESSAGE_LEN_MAX), step);
            assert_eq!(found.map(|found| found.len()), Ok(1));
            assert_eq!(all(Framing::Packets, &packet(MESSAGE_LEN_MAX + 1), step), Err(WireError::TooLong));
        }
    }

    #[test]
    fn malformed_messages_are_refused() {
        for header in
            [&b"cmd=kv"[..], b"     -", b"    +1", b"1    1", b"      ", b"\xff\xff\xff\xff\xff\xff"]
        {
            assert!(matches!(all(Framing::Packets, header, 6), Err(WireError::Length(_))), "{header:?}");
        }
        assert_eq!(all(Framing::Lines, b"\xff\n", 6), Err(WireError::NotText));
        for text in ["", " ", "cmd", "cmd=", "rc=0 cmd=a", "CMD=a", "mcmd=spawn"] {
            let found = Message::parse(text, Framing::Lines).map(|message| message.name().to_owned());
            assert_eq!(found, Err(WireError::NoName(text.into())));
        }
    }

    #[test]
    fn a_message_is_split_into_pairs() {
        let line = "cmd=get_result rc=-1 msg=no_key  value=a=b;c flag rc=7";
        let message = Message::parse(line, Framing::Lines).expect("a message");
        assert_eq!((message.name(), message.number("rc")), ("get_result", Ok(Some(-1))));
        assert_eq!(
            (message.get("value"), message.get("flag"), message.get("none")),
            (Some("a=b;c"), Some(""), None)
        );
        let missing = WireError::Missing { message: "get_result".into(), key: "size" };
        assert_eq!(message.need_number::<u32>("size"), Err(missing));
        assert!(matches!(message.number::<u32>("rc"), Err(WireError::Number { key: "rc", .. })));
        let packet = Message::parse("cmd=kvs-get-response;rc=0;found=TRUE;value=V=x y;", Framing::Packets);
        assert_eq!(packet.expect("a message").get("value"), Some("V=x y"));
    }

    #[test]
    fn keys_have_a_limit() {
        let with = |n: usize| format!("cmd=a{}", " k=v".repeat(n));
        assert!(Message::parse(&with(PAIRS_MAX), Framing::Lines).is_ok());
        let found = Message::parse(&with(PAIRS_MAX + 1), Framing::Lines).map(|message| message.pairs.len());
        assert_eq!(found, Err(WireError::TooManyPairs("a".into())));
    }

    #[test]
    fn written_messages_are_read_back() {
        let draft = |framing| Draft::new(framing, "put").with("key", "A").with("n", 3).finish();
        assert_eq!(draft(Framing::Lines), b"cmd=put key=A n=3\n");
        assert_eq!(draft(Framing::Packets), b"    18cmd=put;key=A;n=3;");
    }

    #[test]
    fn each_message_is_a_separate_write() {
        let mut outbox = Outbox::default();
        outbox.push(b"one\n".to_vec());
        outbox.push(b"two\n".to_vec());
        assert_eq!((outbox.front(), outbox.len()), (&b"one\n"[..], 2));
        outbox.sent(1);
        assert_eq!(outbox.front(), b"ne\n");
        outbox.sent(usize::MAX);
        assert_eq!(outbox.front(), b"two\n");
        outbox.sent(4);
        outbox.sent(1);
        assert_eq!((outbox.front(), outbox.len()), (&b""[..], 0));
    }
}
