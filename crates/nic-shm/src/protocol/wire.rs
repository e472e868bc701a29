//! The messages of the connection protocol, one packet each on a Unix seqpacket socket.
//!
//! A packet is parsed once, completely, before it is used. Descriptors are sent along with `Request` and
//! `Reply`: the segment, the NIC thread's wake socket, and the receive channel's wake socket if any.

use verbs::{Depths, RNR_RETRY_FOREVER};

/// Maximum size of private data in a packet.
pub(crate) const PRIVATE_MAX: usize = 512;
/// Maximum size of a packet.
pub(crate) const PACKET_MAX: usize = HELLO_LEN + 8 + PRIVATE_MAX;

const MAGIC: u32 = u32::from_le_bytes(*b"nSHM");
const VERSION: u16 = 2;
const HEAD_LEN: usize = 8;
const HELLO_LEN: usize = 40;

/// One side's description of its queue pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    /// The device's random token.
    pub(crate) token: u64,
    /// The process's random token, which is also stored at `probe_addr` in its private memory.
    pub(crate) process: u64,
    pub(crate) probe_addr: u64,
    pub(crate) qp_index: u32,
    pub(crate) generation: u32,
    pub(crate) qp_num: u32,
    /// Whether expedited memory barriers reach the process.
    pub(crate) barriers: bool,
    /// Number of reads and atomics that the program serves, and that it will have outstanding.
    pub(crate) depths: Depths,
    /// The retry limit for messages that find no receive here, at most [`RNR_RETRY_FOREVER`].
    pub(crate) rnr_retry: u8,
    pub(crate) private_data: Vec<u8>,
}

/// A message of the connection protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// From the active side: requests a connection.
    Request(Hello),
    /// From the passive side: accepts.
    Reply(Hello),
    /// From the active side: has processed the reply.
    Ready,
    /// From the passive side: rejects, with private data.
    Reject(Vec<u8>),
    /// From the passive side: the port is held, but nobody listens there.
    NoListener,
    /// From either side: the connection has ended.
    Disconnect,
    /// From either side, instead of connecting: a resource has run out.
    Refuse(Shortage),
}

/// The resource that a side lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// Descriptors: the other side's descriptors could not be received.
    Descriptors,
    /// Memory or address space: the other side's segment could not be mapped.
    Memory,
}

impl Shortage {
    /// The explanation for a program, on the side that lacks the resource or on the other one.
    pub(crate) fn explanation(self, whose: &str) -> String {
        match self {
            Self::Descriptors => {
                format!("{whose} has no descriptors left for a connection; raise its limit with ulimit -n")
            }
            Self::Memory => {
                format!("{whose} cannot map the peer's memory; raise its address space limit with ulimit -v")
            }
        }
    }
}

/// Why a packet is not a valid message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Malformed {
    Magic,
    Version(u16),
    Kind(u8),
    Length,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Magic => write!(f, "it did not use the shared-memory protocol"),
            Self::Version(v) => write!(f, "it uses version {v} of the protocol, this side version {VERSION}"),
            Self::Kind(k) => write!(f, "it sent a message of the unknown kind {k}"),
            Self::Length => write!(f, "it sent a message of a wrong length"),
        }
    }
}

impl Message {
    /// Encodes the message as a packet.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let (kind, hello, private): (u8, Option<&Hello>, &[u8]) = match self {
            Self::Request(h) => (1, Some(h), &h.private_data),
            Self::Reply(h) => (2, Some(h), &h.private_data),
            Self::Ready => (3, None, &[]),
            Self::Reject(p) => (4, None, p),
            Self::Disconnect => (5, None, &[]),
            Self::Refuse(Shortage::Descriptors) => (6, None, &[1]),
            Self::Refuse(Shortage::Memory) => (6, None, &[2]),
            Self::NoListener => (7, None, &[]),
        };
        let mut out = Vec::with_capacity(PACKET_MAX);
        out.extend(MAGIC.to_le_bytes());
        out.extend(VERSION.to_le_bytes());
        out.push(kind);
        out.push(hello.is_some_and(|h| h.barriers).into());
        if let Some(h) = hello {
            for word in [h.token, h.process, h.probe_addr] {
                out.extend(word.to_le_bytes());
            }
            let Depths { responder_resources, initiator_depth } = h.depths;
            let depths = u32::from_le_bytes([responder_resources, initiator_depth, h.rnr_retry, 0]);
            for word in [h.qp_index, h.generation, h.qp_num, depths] {
                out.extend(word.to_le_bytes());
            }
        }
        out.extend(private);
        out
    }

    /// Decodes a packet.
    pub(crate) fn parse(packet: &[u8]) -> Result<Self, Malformed> {
        let (head, body) = packet.split_at_checked(HEAD_LEN).ok_or(Malformed::Magic)?;
        if head[..4] != MAGIC.to_le_bytes() {
            return Err(Malformed::Magic);
        }
        let version = u16::from_le_bytes([head[4], head[5]]);
        if version != VERSION {
            return Err(Malformed::Version(version));
        }
        let barriers = head[7] != 0;
        match head[6] {
            1 => Ok(Self::Request(Hello::parse(body, barriers)?)),
            2 => Ok(Self::Reply(Hello::parse(body, barriers)?)),
            3 if body.is_empty() => Ok(Self::Ready),
            4 if body.len() <= PRIVATE_MAX => Ok(Self::Reject(body.to_vec())),
            5 if body.is_empty() => Ok(Self::Disconnect),
            6 if body == [1] => Ok(Self::Refuse(Shortage::Descriptors)),
            6 if body == [2] => Ok(Self::Refuse(Shortage::Memory)),
            7 if body.is_empty() => Ok(Self::NoListener),
            3..=7 => Err(Malformed::Length),
            kind => Err(Malformed::Kind(kind)),
        }
    }
}

impl Hello {
    fn parse(body: &[u8], barriers: bool) -> Result<Self, Malformed> {
        let (words, private) = body.split_at_checked(HELLO_LEN).ok_or(Malformed::Length)?;
        if private.len() > PRIVATE_MAX {
            return Err(Malformed::Length);
        }
        let long = |i: usize| u64::from_le_bytes(std::array::from_fn(|k| words[i * 8 + k]));
        let short = |i: usize| u32::from_le_bytes(std::array::from_fn(|k| words[24 + i * 4 + k]));
        Ok(Self {
            token: long(0),
            process: long(1),
            probe_addr: long(2),
            qp_index: short(0),
            generation: short(1),
            qp_num: short(2),
            barriers,
            depths: Depths { responder_resources: words[36], initiator_depth: words[37] },
            rnr_retry: words[38].min(RNR_RETRY_FOREVER),
            private_data: private.to_vec(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(private: usize) -> Hello {
        Hello {
            token: 1,
            process: u64::MAX,
            probe_addr: 0x1234_5678_9abc,
            qp_index: 7,
            generation: 8,
            qp_num: 9,
            barriers: true,
            depths: Depths { responder_resources: 5, initiator_depth: 255 },
            rnr_retry: 3,
            private_data: vec![3; private],
        }
    }

    fn samples() -> Vec<Message> {
        vec![
            Message::Request(hello(0)),
            Message::Reply(hello(PRIVATE_MAX)),
            Message::Ready,
            Message::Reject(vec![1, 2, 3]),
            Message::Disconnect,
            Message::Refuse(Shortage::Descriptors),
            Message::Refuse(Shortage::Memory),
            Message::NoListener,
        ]
    }

    #[test]
    fn emitted_messages_parse_back() {
        for message in samples() {
            let packet = message.emit();
            assert!(packet.len() <= PACKET_MAX);
            assert_eq!(Message::parse(&packet), Ok(message));
        }
    }

    #[test]
    fn truncated_and_corrupted_packets_never_panic() {
        for message in samples() {
            let packet = message.emit();
            for cut in 0..packet.len() {
                if let Ok(m) = Message::parse(&packet[..cut]) {
                    assert_eq!(m.emit(), packet[..cut]);
                }
            }
            for at in 0..packet.len() {
                let mut bad = packet.clone();
                bad[at] ^= 0xff;
                let _ = Message::parse(&bad);
            }
            assert!(Message::parse(&[packet.as_slice(), &[0; PACKET_MAX]].concat()).is_err());
        }
        assert_eq!(Message::parse(b"GET / HTTP/1.1\r\n\r\n"), Err(Malformed::Magic));
    }
}
