//! [`Capture`]: what the connections of a device send and receive, as a file that Wireshark reads.
//!
//! The kernel's packets are not visible without privileges. The packets of the file are made from the bytes of the streams: each
//! piece that is sent or received at a time becomes TCP segments with the connection's addresses and the place of the bytes in the
//! stream. The opening packets and acknowledgements are made up. A stream whose two ends are in this process is written once.
//!
//! The handshake is recorded where it happens; the rest by the relay of [`super::impaired`], so that the path of data has no code for
//! it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use nic_util::fork::ForkSafeFd;
use nic_util::process_file;
use nic_util::sync::unpoisoned;
use rustix::net::{getpeername, getsockname};
use trace::pcapng::{self, PAYLOAD_MAX, tcp_flag};
use verbs::{Error, Result};

/// The largest file; then nothing more is written.
const BYTES_MAX: u64 = 4 << 30;
/// The sequence number of the first byte of each stream.
const FIRST_SEQ: u32 = 1;

const COMMENT: &str = "Written by nicety from the byte streams of the device iwarp. Bytes, addresses and their order are real; the \
                       division into TCP segments, the opening packets and the acknowledgements are made up.";

/// Which way bytes go, from this side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Out,
    In,
}

/// The bytes of one direction of a connection that were seen.
#[derive(Default)]
struct Stream {
    /// By the sender and by the receiver, if they are in this process.
    seen: [u64; 2],
}

impl Stream {
    fn written(&self) -> u64 {
        self.seen[0].max(self.seen[1])
    }
}

struct Output {
    file: File,
    written: u64,
    streams: BTreeMap<(SocketAddr, SocketAddr), Stream>,
}

/// The capture of a device.
pub(crate) struct Capture(Mutex<Output>);

impl Capture {
    /// Creates the file ([`process_file::create`]).
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let failed = |path: &Path, why: std::io::Error| {
            Error::system(format!("cannot write the capture {}; name another file", path.display()), why)
        };
        let (path, mut file) = process_file::create(path).map_err(|(path, why)| failed(&path, why))?;
        let header = pcapng::header(COMMENT, "iwarp");
        file.write_all(&header).map_err(|why| failed(&path, why))?;
        Ok(Self(Mutex::new(Output { file, written: header.len() as u64, streams: BTreeMap::new() })))
    }

    /// The addresses of a connection: the local one, and the peer's.
    pub(crate) fn addresses(socket: &ForkSafeFd) -> Option<(SocketAddr, SocketAddr)> {
        let local = getsockname(socket).ok().and_then(|address| SocketAddr::try_from(address).ok())?;
        let peer =
            getpeername(socket).ok().flatten().and_then(|address| SocketAddr::try_from(address).ok())?;
        Some((local, peer))
    }

    /// Records bytes of a connection.
    pub(crate) fn add(&self, socket: &ForkSafeFd, way: Way, bytes: &[u8]) {
        if let Some(ends) = Self::addresses(socket) {
            self.add_between(ends, way, bytes);
        }
    }

    /// As [`Capture::add`], for a connection with these addresses.
    pub(crate) fn add_between(&self, (local, peer): (SocketAddr, SocketAddr), way: Way, bytes: &[u8]) {
        let (from, to) = if way == Way::Out { (local, peer) } else { (peer, local) };
        let mut output = unpoisoned(&self.0);
        let output = &mut *output;
        if !output.streams.contains_key(&(from, to)) && !output.streams.contains_key(&(to, from)) {
            // The side that connects sends first.
            output.segment(from, to, FIRST_SEQ - 1, 0, tcp_flag::SYN, &[]);
            output.segment(to, from, FIRST_SEQ - 1, FIRST_SEQ, tcp_flag::SYN | tcp_flag::ACK, &[]);
            output.segment(from, to, FIRST_SEQ, FIRST_SEQ, tcp_flag::ACK, &[]);
        }
        let back = output.streams.get(&(to, from)).map_or(0, Stream::written);
        let stream = output.streams.entry((from, to)).or_default();
        let before = stream.written();
        let seen = &mut stream.seen[usize::from(way == Way::In)];
        let start = *seen;
        *seen += bytes.len() as u64;
        // The other end has reported the first bytes already.
        let known = usize::try_from(before.saturating_sub(start)).unwrap_or(usize::MAX);
        let Some(new) = bytes.get(known..) else { return };
        let mut at = start + known as u64;
        for piece in new.chunks(PAYLOAD_MAX) {
            // Sequence numbers wrap.
            let (seq, ack) = (FIRST_SEQ.wrapping_add(at as u32), FIRST_SEQ.wrapping_add(back as u32));
            output.segment(from, to, seq, ack, tcp_flag::PSH | tcp_flag::ACK, piece);
            at += piece.len() as u64;
        }
    }

    /// Records that this side has closed the connection.
    pub(crate) fn end(&self, (local, peer): (SocketAddr, SocketAddr)) {
        let mut output = unpoisoned(&self.0);
        let Some(out) = output.streams.remove(&(local, peer)).map(|stream| stream.written()) else { return };
        let back = output.streams.get(&(peer, local)).map_or(0, Stream::written);
        let (seq, ack) = (FIRST_SEQ.wrapping_add(out as u32), FIRST_SEQ.wrapping_add(back as u32));
        output.segment(local, peer, seq, ack, tcp_flag::FIN | tcp_flag::ACK, &[]);
    }
}

impl Output {
    fn segment(&mut self, from: SocketAddr, to: SocketAddr, seq: u32, ack: u32, flags: u8, payload: &[u8]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_nanos() as u64);
        let block = pcapng::packet(now, &pcapng::tcp(from, to, seq, ack, flags, payload));
        if self.written > BYTES_MAX {
            return;
        }
        self.written += block.len() as u64;
        let failed = self.file.write_all(&block).err().map(|why| why.to_string());
        let full = (self.written > BYTES_MAX).then(|| format!("it has reached {} GiB", BYTES_MAX >> 30));
        if let Some(why) = failed.or(full) {
            self.written = BYTES_MAX + 1;
            host::real::remark(format_args!("the capture of iwarp ends here: {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The payloads of the TCP segments in a file, with their sequence numbers.
    fn segments(file: &[u8]) -> Vec<(u16, u32, Vec<u8>)> {
        let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four bytes")) as usize;
        let (mut at, mut found) = (0, Vec::new());
        while at < file.len() {
            if word(at) == 6 {
                let packet = &file[at + 28..at + 28 + word(at + 20)];
                let port = u16::from_be_bytes([packet[20], packet[21]]);
                let seq = u32::from_be_bytes(packet[24..28].try_into().expect("four bytes"));
                found.push((port, seq, packet[40..].to_vec()));
            }
            at += word(at + 4);
        }
        found
    }

    /// Goal: a stream is complete, in order, and written once, also when both ends are here. Method: both ends report their
    /// bytes in pieces of different sizes.
    #[test]
    fn stream_with_both_ends_is_written_once() {
        let folder = std::env::temp_dir().join(format!("nicety-capture-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("a.pcapng");
        let capture = Capture::create(&path).expect("a file");
        let [a, b]: [SocketAddr; 2] =
            ["10.0.0.1:1", "10.0.0.2:2"].map(|text| text.parse().expect("an address"));
        capture.add_between((a, b), Way::Out, b"hello");
        capture.add_between((b, a), Way::In, b"hel");
        capture.add_between((b, a), Way::In, b"lo world");
        capture.add_between((a, b), Way::Out, b" wor");
        capture.add_between((a, b), Way::Out, b"ld!");
        capture.add_between((b, a), Way::Out, b"answer");
        capture.end((a, b));
        let found = segments(&std::fs::read(&path).expect("a file"));
        std::fs::remove_dir_all(&folder).expect("the folder");
        let data: Vec<_> = found.iter().filter(|(.., bytes)| !bytes.is_empty()).collect();
        let expected = [(1, 1, &b"hello"[..]), (1, 6, b" world"), (1, 12, b"!"), (2, 1, b"answer")];
        assert!(
            data.iter().zip(&expected).all(|(found, (port, seq, bytes))| {
                (found.0, found.1, &found.2[..]) == (*port, *seq, *bytes)
            }),
            "{found:?}"
        );
        assert_eq!((data.len(), found.len()), (4, 8), "three opening packets, four of data, one at the end");
    }
}
