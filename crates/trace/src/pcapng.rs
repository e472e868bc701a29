//! Captures in the format pcapng, as Wireshark reads it: blocks, and IP packets with TCP and UDP headers.
//!
//! Packets begin with the IP header (link type 101, LINKTYPE_RAW). The format is that of draft-ietf-opsawg-pcapng.

use std::net::{IpAddr, SocketAddr};

/// The link type of packets that begin with an IP header.
const LINKTYPE_RAW: u16 = 101;
/// The protocol numbers of IP.
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Bytes of an IP packet without its header that are surely allowed.
pub const PAYLOAD_MAX: usize = 32 << 10;

/// Flags of a TCP segment (RFC 9293, section 3.1).
pub mod tcp_flag {
    /// No more data follow.
    pub const FIN: u8 = 1;
    /// The first segment of a direction.
    pub const SYN: u8 = 2;
    /// The data are to be given to the program.
    pub const PSH: u8 = 8;
    /// The acknowledgement number is valid.
    pub const ACK: u8 = 16;
}

/// A block: its type, and its content up to a multiple of four bytes between two lengths.
fn block(kind: u32, content: &[u8]) -> Vec<u8> {
    let padded = content.len().next_multiple_of(4);
    let len = (padded + 12) as u32;
    let mut block = Vec::with_capacity(padded + 12);
    block.extend_from_slice(&kind.to_le_bytes());
    block.extend_from_slice(&len.to_le_bytes());
    block.extend_from_slice(content);
    block.resize(padded + 8, 0);
    block.extend_from_slice(&len.to_le_bytes());
    block
}

fn option(content: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(1000)];
    content.extend_from_slice(&code.to_le_bytes());
    content.extend_from_slice(&(value.len() as u16).to_le_bytes());
    content.extend_from_slice(value);
    content.resize(content.len().next_multiple_of(4), 0);
}

/// The beginning of a file: a section with a comment, and one interface.
#[must_use]
pub fn header(comment: &str, interface: &str) -> Vec<u8> {
    let mut section = Vec::new();
    section.extend_from_slice(&0x1a2b_3c4d_u32.to_le_bytes());
    section.extend_from_slice(&[1, 0, 0, 0]);
    section.extend_from_slice(&u64::MAX.to_le_bytes());
    option(&mut section, 1, comment.as_bytes());
    option(&mut section, 4, b"nicety");
    option(&mut section, 0, &[]);
    let mut description = Vec::new();
    description.extend_from_slice(&LINKTYPE_RAW.to_le_bytes());
    description.extend_from_slice(&[0; 6]);
    option(&mut description, 2, interface.as_bytes());
    // Times are in nanoseconds.
    option(&mut description, 9, &[9]);
    option(&mut description, 0, &[]);
    [block(0x0a0d_0d0a, &section), block(1, &description)].concat()
}

/// A packet at a time in nanoseconds since 1970.
#[must_use]
pub fn packet(unix_ns: u64, bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::with_capacity(bytes.len() + 24);
    content.extend_from_slice(&0_u32.to_le_bytes());
    content.extend_from_slice(&((unix_ns >> 32) as u32).to_le_bytes());
    content.extend_from_slice(&(unix_ns as u32).to_le_bytes());
    // All bytes that were sent are in the file.
    content.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    content.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    content.extend_from_slice(bytes);
    block(6, &content)
}

/// The sum of 16-bit words of IP checksums (RFC 1071), not yet folded.
fn sum(bytes: &[u8]) -> u32 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let last = rest.first().map_or(0, |byte| u32::from(*byte) << 8);
    pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum::<u32>() + last
}

fn checksum(sums: u32) -> u16 {
    let mut sum = sums;
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// An IP packet with this content, and its sum over both addresses and the protocol, for the checksum of the content.
fn ip(from: IpAddr, to: IpAddr, protocol: u8, content_len: usize) -> (Vec<u8>, u32) {
    let len = content_len as u16;
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            packet[2..4].copy_from_slice(&(len + 20).to_be_bytes());
            packet.extend_from_slice(&from.octets());
            packet.extend_from_slice(&to.octets());
            let own = checksum(sum(&packet));
            packet[10..12].copy_from_slice(&own.to_be_bytes());
            let addresses = sum(&packet[12..20]);
            (packet, addresses + u32::from(protocol) + u32::from(len))
        }
        (from, to) => {
            let octets = |address: IpAddr| match address {
                IpAddr::V4(four) => four.to_ipv6_mapped().octets(),
                IpAddr::V6(six) => six.octets(),
            };
            let mut packet = vec![0x60, 0, 0, 0, 0, 0, protocol, 64];
            packet[4..6].copy_from_slice(&len.to_be_bytes());
            packet.extend_from_slice(&octets(from));
            packet.extend_from_slice(&octets(to));
            let addresses = sum(&packet[8..40]);
            (packet, addresses + u32::from(protocol) + u32::from(len))
        }
    }
}

/// A TCP segment in an IP packet. At most [`PAYLOAD_MAX`] bytes.
#[must_use]
pub fn tcp(from: SocketAddr, to: SocketAddr, seq: u32, ack: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    let (mut packet, sums) = ip(from.ip(), to.ip(), TCP, 20 + payload.len());
    let start = packet.len();
    packet.extend_from_slice(&from.port().to_be_bytes());
    packet.extend_from_slice(&to.port().to_be_bytes());
    packet.extend_from_slice(&seq.to_be_bytes());
    packet.extend_from_slice(&ack.to_be_bytes());
    packet.extend_from_slice(&[5 << 4, flags, 0xff, 0xff, 0, 0, 0, 0]);
    packet.extend_from_slice(payload);
    let own = checksum(sums + sum(&packet[start..]));
    packet[start + 16..start + 18].copy_from_slice(&own.to_be_bytes());
    packet
}

/// A UDP datagram in an IP packet, without checksum.
#[must_use]
pub fn udp(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Vec<u8> {
    let len = 8 + payload.len();
    let (mut packet, _) = ip(from.ip(), to.ip(), UDP, len);
    packet.extend_from_slice(&from.port().to_be_bytes());
    packet.extend_from_slice(&to.port().to_be_bytes());
    packet.extend_from_slice(&(len as u16).to_be_bytes());
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(payload);
    packet
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The packets of a file: time and bytes.
    pub(crate) fn packets(file: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let (mut at, mut found) = (0, Vec::new());
        while at < file.len() {
            if word(file, at) == 6 {
                let time = u64::from(word(file, at + 12)) << 32 | u64::from(word(file, at + 16));
                let bytes = file[at + 28..at + 28 + word(file, at + 20) as usize].to_vec();
                found.push((time, bytes));
            }
            at += word(file, at + 4) as usize;
        }
        found
    }

    fn word(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
    }

    #[test]
    fn blocks_have_equal_lengths_at_both_ends() {
        let mut file = header("a comment", "iwarp");
        file.extend(packet(1 << 33 | 5, &[1, 2, 3]));
        let (mut at, mut kinds) = (0, Vec::new());
        while at < file.len() {
            let len = word(&file, at + 4) as usize;
            assert_eq!((len % 4, word(&file, at + len - 4)), (0, len as u32));
            kinds.push(word(&file, at));
            at += len;
        }
        assert_eq!(kinds, [0x0a0d_0d0a, 1, 6]);
        let last = file.len() - word(&file, file.len() - 4) as usize;
        let fields: Vec<u32> = (2..7).map(|number| word(&file, last + 4 * number)).collect();
        assert_eq!(fields, [0, 2, 5, 3, 3], "interface, time, and both lengths");
    }

    /// Goal: receivers accept the packets. Method: the checksums of whole packets are those of RFC 1071: 0 with themselves.
    #[test]
    fn checksums_are_correct() {
        for (from, to, header) in [("10.0.0.1:7", "10.0.0.2:9", 20), ("[::1]:7", "[fe80::2]:9", 40)] {
            let [from, to]: [SocketAddr; 2] = [from, to].map(|text| text.parse().expect("an address"));
            let packet = tcp(from, to, 1000, 2000, tcp_flag::ACK, b"hello");
            assert_eq!(packet.len(), header + 20 + 5);
            let addresses = if header == 20 { &packet[12..20] } else { &packet[8..40] };
            let all = sum(addresses) + u32::from(TCP) + 25 + sum(&packet[header..]);
            assert_eq!(checksum(all), 0);
            assert!(header == 40 || checksum(sum(&packet[..20])) == 0);
            let datagram = udp(from, to, b"abc");
            assert_eq!(&datagram[header + 4..header + 6], &[0, 11]);
        }
    }
}
