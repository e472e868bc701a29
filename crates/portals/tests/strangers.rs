//! Strangers connect by TCP: all are refused, none leaves memory behind, and a process with the key can
//! connect afterwards.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use auth::{Attempt, Challenge, Identity, Key, Nonces, Rejected};
use portals::{
    AckReq, Action, Engine, Entry, EntryOptions, EventKind, Limits, List, ListId, Matcher, MdAddr, MdOptions,
    MemoryDescriptor, Ni, NiKind, Node, PROTOCOL, PtOptions, Region, Transfer,
};
use verbs::host::Span;

const KIND: NiKind = NiKind { is_matching: true, is_logical: false };
const KEY: [u8; 16] = [1; 16];
/// Strangers before memory is measured, and strangers during the measurement.
const FIRST: usize = 500;
const COUNT: usize = 10_000;
/// The allowed growth of memory, in KiB.
const GROWTH: usize = 1024;

fn node() -> Node {
    let host = verbs::host::real::host();
    let device = fabric::open("iwarp", &host).expect("a device");
    let key = Key::from_bytes(KEY);
    // SAFETY: the only operations on it are puts of no bytes.
    unsafe { Node::open(&host, &device, Ipv4Addr::LOCALHOST, None, 7, Matcher::Caller, &key) }
        .expect("a node")
}

/// The memory of this process in KiB.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

/// A stranger that knows everything except the key.
struct Stranger {
    at: SocketAddr,
    ends: (Identity, Identity),
    nonces: Nonces,
}

impl Stranger {
    fn request(&mut self, challenge: Challenge) -> Attempt {
        let proofs = (challenge, self.nonces.next_nonce());
        Attempt::new(PROTOCOL, Key::from_bytes([2; 16]), self.ends, proofs, [0; auth::OFFER])
    }

    /// Connects and sends a request with private data (RFC 5044, section 7.1.1); returns the private data of
    /// the rejection.
    fn connect(&self, private: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.at).expect("somebody listens");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
        let len = (private.len() as u16).to_be_bytes();
        stream.write_all(&[b"MPA ID Req Frame\x40\x01", &len[..], private].concat()).expect("sent");
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).expect("it closes the connection");
        let (head, said) = reply.split_at(20);
        assert_eq!((&head[..16], head[16] & 0x20), (&b"MPA ID Rep Frame"[..], 0x20), "a rejection");
        said.to_vec()
    }

    /// Connects once, in one of five ways.
    fn come(&mut self, way: usize) {
        match way % 5 {
            0 => drop(TcpStream::connect(self.at).expect("somebody listens")),
            1 => drop(self.connect(b"")),
            // The private data of versions without proofs of identity.
            2 => drop(self.connect(b"ptl4-v3\0\x01\0\0\x7f\x03\0\0\0")),
            3 => drop(self.connect(&[0xff; 500])),
            _ => {
                let first = self.request(Challenge::UNKNOWN);
                let Rejected::Again(challenge) = first.rejected(&self.connect(&first.request())) else {
                    panic!("no challenge")
                };
                let second = self.request(challenge);
                let refused = second.rejected(&self.connect(&second.request()));
                assert_eq!(refused, Rejected::OtherKey);
            }
        }
    }
}

fn identity(node: &Node) -> Identity {
    let (me, mut bytes) = (node.me(), [0; auth::IDENTITY]);
    bytes[..4].copy_from_slice(&me.nid.to_le_bytes());
    bytes[4..8].copy_from_slice(&me.pid.to_le_bytes());
    Identity(bytes)
}

/// Puts zero bytes to a process and waits for the acknowledgement.
fn put(from: &Ni, to: &Node) {
    let begin = |engine: &mut Engine| {
        let eq = engine.eq_alloc(10).expect("room");
        let (region, options) = (Region::new(0, 0), MdOptions::empty());
        let md = engine.md_bind(MemoryDescriptor { region, options, eq: Some(eq), counter: None });
        let transfer = Transfer {
            action: Action::Put,
            put: Some(MdAddr { md: md.expect("room"), offset: 0 }),
            get: None,
            length: 0,
            ack: AckReq::Full,
            target: to.me(),
            pt_index: 0,
            match_bits: 0,
            remote_offset: 0,
            user_ptr: 0,
            hdr_data: 0,
        };
        engine.transfer(&transfer).expect("legal");
        eq
    };
    let eq = from.with_engine(begin).expect("open");
    let deadline = from.after(Span::from_secs(30));
    let kinds = [EventKind::Send, EventKind::Ack].map(|_| {
        let look = |engine: &mut Engine| engine.eq_get(eq).expect("a queue");
        from.wait("test", deadline, look).expect("an event in time").0.kind
    });
    assert_eq!(kinds, [EventKind::Send, EventKind::Ack]);
}

#[test]
fn strangers_are_refused_and_leave_no_memory() {
    let (node, friend) = (node(), node());
    let ni = node.interface(KIND, Limits::default());
    let open = |engine: &mut Engine| {
        engine.pt_alloc(PtOptions::empty(), None, Some(0)).expect("the first");
        let place = ListId { pt_index: 0, list: List::Priority };
        engine.append(place, Entry::taking_all(Region::new(0, 0), EntryOptions::OP_PUT), 0).expect("room");
    };
    ni.with_engine(open).expect("open");
    let from = friend.interface(KIND, Limits::default());
    put(&from, &node);
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::try_from(node.me().pid).expect("a port")));
    let ends = (identity(&friend), identity(&node));
    let mut stranger = Stranger { at, ends, nonces: Nonces::new(Key::from_bytes([3; 16])) };
    (0..FIRST).for_each(|way| stranger.come(way));
    let before = resident();
    (0..COUNT).for_each(|way| stranger.come(way));
    let growth = resident().saturating_sub(before);
    assert!(growth <= GROWTH, "{growth} KiB are left of {COUNT} strangers");
    put(&from, &node);
    put(&self::node().interface(KIND, Limits::default()), &node);
}
