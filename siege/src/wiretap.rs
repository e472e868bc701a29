//! [`Wiretap`]: records what other programs send to a TCP port of this host, as an attacker on the network does.
//!
//! Reading packets needs CAP_NET_RAW (packet(7)), which root has.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RecvFlags, SocketFlags, SocketType, recv, socket_with, sockopt};

/// `ETH_P_IP` of `linux/if_ether.h`, in network byte order. A socket of this kind gets each packet of the loopback once.
const IP: Option<NonZero<u32>> = NonZero::new(0x0800_u16.to_be() as u32);
/// TCP's number in an IP header.
const TCP: u8 = 6;
/// The size of the receive buffer, in bytes: other programs use the loopback, too.
const ROOM: usize = 64 << 20;
/// The most bytes that are recorded of a connection.
const LEN_MAX: usize = 4096;
/// The longest time for reading packets of a busy loopback.
const PATIENCE: Duration = Duration::from_secs(1);

/// A socket that receives all packets since it was made.
pub(crate) struct Wiretap {
    socket: OwnedFd,
    port: u16,
}

/// The bytes that one connection sent.
struct Stream {
    bytes: Vec<u8>,
    /// The sequence number of the next byte.
    next: u32,
}

impl Wiretap {
    /// Starts to record. Users without CAP_NET_RAW get an error.
    pub(crate) fn new(port: u16) -> Result<Self, Errno> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = IP.map(Protocol::from_raw);
        let socket = socket_with(AddressFamily::PACKET, SocketType::DGRAM, flags, protocol)?;
        sockopt::set_socket_recv_buffer_size_force(&socket, ROOM)?;
        Ok(Self { socket, port })
    }

    /// The first bytes of each connection to the port. Connections without data are left out.
    pub(crate) fn recorded(self) -> Result<Vec<Vec<u8>>, Errno> {
        let (mut packet, mut streams) = (vec![0; 1 << 16], BTreeMap::new());
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            match recv(&self.socket, &mut packet[..], RecvFlags::DONTWAIT) {
                Ok((len, _)) => {
                    if let Some(segment) = Segment::parse(&packet[..len], self.port) {
                        append(&mut streams, &segment);
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(why) => return Err(why),
            }
        }
        Ok(streams.into_values().map(|stream| stream.bytes).filter(|bytes| !bytes.is_empty()).collect())
    }
}

/// A TCP segment.
struct Segment<'a> {
    from: u16,
    sequence: u32,
    /// It begins a connection.
    is_first: bool,
    data: &'a [u8],
}

impl<'a> Segment<'a> {
    /// The segment in a packet, if it is one to this port (RFC 791 section 3.1, RFC 9293 section 3.1).
    fn parse(packet: &'a [u8], port: u16) -> Option<Self> {
        let word = |bytes: &[u8], at: usize| Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
        let (header, total) = (4 * usize::from(packet.first()? & 0xf), usize::from(word(packet, 2)?));
        let segment = packet.get(header..total)?;
        if *packet.get(9)? != TCP || word(segment, 2)? != port {
            return None;
        }
        Some(Self {
            from: word(segment, 0)?,
            sequence: u32::from_be_bytes(*segment.get(4..)?.first_chunk()?),
            is_first: segment.get(13)? & 2 != 0,
            data: segment.get(4 * usize::from(segment.get(12)? >> 4)..)?,
        })
    }
}

/// Appends a segment to its stream, if it is the next one there.
fn append(streams: &mut BTreeMap<u16, Stream>, segment: &Segment<'_>) {
    let Segment { from, sequence, is_first, data } = *segment;
    if is_first {
        streams.insert(from, Stream { bytes: Vec::new(), next: sequence.wrapping_add(1) });
    } else if let Some(stream) = streams.get_mut(&from).filter(|stream| stream.next == sequence) {
        stream.next = sequence.wrapping_add(data.len() as u32);
        stream.bytes.extend(data.iter().take(LEN_MAX.saturating_sub(stream.bytes.len())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SYN: u8 = 2;
    const ACK: u8 = 16;

    /// A packet of TCP without options.
    fn packet(port: u16, sequence: u32, flags: u8, data: &[u8]) -> Vec<u8> {
        let mut packet = vec![0; 40];
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(40 + data.len() as u16).to_be_bytes());
        packet[9] = TCP;
        packet[20..22].copy_from_slice(&5555_u16.to_be_bytes());
        packet[22..24].copy_from_slice(&port.to_be_bytes());
        packet[24..28].copy_from_slice(&sequence.to_be_bytes());
        (packet[32], packet[33]) = (0x50, flags);
        [&packet, data].concat()
    }

    fn recorded(packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let mut streams = BTreeMap::new();
        let segments = packets.iter().filter_map(|packet| Segment::parse(packet, 7));
        segments.for_each(|segment| append(&mut streams, &segment));
        streams.into_values().map(|stream| stream.bytes).collect()
    }

    #[test]
    fn segments_repeated_or_missing_keep_the_order() {
        let to_us = |sequence, flags, data: &[u8]| packet(7, sequence, flags, data);
        let packets = [
            to_us(u32::MAX, SYN, b""),
            to_us(0, ACK, b"ab"),
            to_us(0, ACK, b"ab"),
            packet(8, 2, ACK, b"other"),
            to_us(3, ACK, b"late"),
            to_us(2, ACK, b"c"),
        ];
        assert_eq!(recorded(&packets), [b"abc"]);
        assert!(recorded(&packets[1..]).is_empty(), "it began before");
    }

    #[test]
    fn cut_packets_are_not_recorded() {
        let whole = packet(7, 1, ACK, b"abc");
        for len in 0..whole.len() {
            assert_eq!(recorded(&[packet(7, 0, SYN, b""), whole[..len].to_vec()]), [b""], "{len} bytes");
        }
    }
}
