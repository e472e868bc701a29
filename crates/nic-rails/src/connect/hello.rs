//! Handshake data that the ends of a lane exchange when it is connected, in front of the program's private data.
//!
//! All fields are big-endian. A request and the answer to it begin with the same [`Hello`]. The answer on lane 0
//! continues with an address for each further lane, to which the connecting side connects it. Both sides of a further
//! lane continue with [`LaneHello`], and the answer on lane 1 also with the address at which lane 0 is connected again
//! after a failure.

use std::net::{IpAddr, SocketAddr};

use crate::RAILS_MAX;

/// The first bytes; the last one is the version.
const MAGIC: [u8; 3] = [0x4e, 0x52, 1];
/// Bytes of a [`Hello`].
pub(crate) const LEN: usize = 29;
/// Bytes of an IPv6 address and of an IPv4 address, each with its port.
const ADDR_LONG: usize = 19;
const ADDR_SHORT: usize = 7;

/// The purpose of a connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestKind {
    /// A new queue pair, on lane 0.
    New,
    /// A further lane of the queue pair with this token.
    Join,
}

/// The data that each side sends on each lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) kind: RequestKind,
    /// Number of rails of the device.
    pub(crate) rails: u8,
    pub(crate) lane: u8,
    /// The lane on which this side receives messages.
    pub(crate) recv_lane: u8,
    /// Identifies the connection of a lane; chosen by the accepting side.
    pub(crate) token: u64,
    /// Address and key of this side's key table, on this lane.
    pub(crate) table: (u64, u32),
    /// A key of this lane without any access rights.
    pub(crate) invalid_key: u32,
}

impl Hello {
    pub(crate) fn write(&self, rest: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LEN + rest.len());
        bytes.extend(MAGIC);
        bytes.push(if self.kind == RequestKind::New { 0 } else { 0x80 } | self.rails);
        bytes.push(self.recv_lane << 4 | self.lane);
        bytes.extend(self.token.to_be_bytes());
        bytes.extend(self.table.0.to_be_bytes());
        bytes.extend(self.table.1.to_be_bytes());
        bytes.extend(self.invalid_key.to_be_bytes());
        bytes.extend(rest);
        bytes
    }

    /// Parses `bytes`; returns the rest as well. `None` for anything that `write` does not produce.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(LEN)?;
        if head[..3] != MAGIC {
            return None;
        }
        let kind = if head[3] & 0x80 == 0 { RequestKind::New } else { RequestKind::Join };
        let (rails, recv_lane, lane) = (head[3] & 0x7f, head[4] >> 4, head[4] & 0xf);
        if rails as usize > RAILS_MAX || recv_lane >= rails || lane >= rails {
            return None;
        }
        let (token, table) = (word(&head[5..13]), (word(&head[13..21]), word(&head[21..25]) as u32));
        Some((
            Self { kind, rails, lane, recv_lane, token, table, invalid_key: word(&head[25..29]) as u32 },
            rest,
        ))
    }
}

/// The answer of a device with this many rails to a peer with which it cannot be connected.
pub(crate) fn refusal(rails: usize) -> Vec<u8> {
    [&MAGIC[..], &[rails as u8], b"rails"].concat()
}

/// The number of rails in such an answer.
pub(crate) fn read_refusal(bytes: &[u8]) -> Option<u8> {
    let rails = *bytes.get(MAGIC.len())?;
    (bytes == refusal(rails.into())).then_some(rails)
}

/// The data that follow the hello of a further lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneHello {
    /// The number of the attempt to connect this lane, from 0.
    pub(crate) generation: u32,
    /// The address of this side's report buffer.
    pub(crate) report_buffer: u64,
    /// The report buffer's keys on this lane and on lane 0.
    pub(crate) keys: (u32, u32),
}

/// Bytes of a [`LaneHello`].
const LANE_HELLO_LEN: usize = 20;

impl LaneHello {
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.generation.to_be_bytes());
        out.extend(self.report_buffer.to_be_bytes());
        out.extend(self.keys.0.to_be_bytes());
        out.extend(self.keys.1.to_be_bytes());
    }

    /// Parses `bytes`; returns the rest as well.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, rest) = bytes.split_at_checked(LANE_HELLO_LEN)?;
        let (generation, report_buffer) = (word(&head[..4]) as u32, word(&head[4..12]));
        let keys = (word(&head[12..16]) as u32, word(&head[16..20]) as u32);
        Some((Self { generation, report_buffer, keys }, rest))
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// Maximum number of bytes of the addresses of `lanes` further lanes, if private data have `room` in all: IPv6
/// addresses where there is enough.
pub(crate) fn addrs_room(lanes: usize, room: usize) -> usize {
    lanes * if room >= 128 { ADDR_LONG } else { ADDR_SHORT }
}

/// Appends addresses to a hello.
pub(crate) fn write_addrs(addrs: &[SocketAddr], out: &mut Vec<u8>) {
    for addr in addrs {
        match addr.ip() {
            IpAddr::V4(ip) => {
                out.push(4);
                out.extend(ip.octets());
            }
            IpAddr::V6(ip) => {
                out.push(16);
                out.extend(ip.octets());
            }
        }
        out.extend(addr.port().to_be_bytes());
    }
}

/// Reads `count` addresses from the front; `None` if there are fewer.
pub(crate) fn read_addrs(mut bytes: &[u8], count: usize) -> Option<(Vec<SocketAddr>, &[u8])> {
    let mut addrs = Vec::with_capacity(count);
    for _ in 0..count {
        let (&len, rest) = bytes.split_first()?;
        let (ip, rest) = rest.split_at_checked(len.into())?;
        let (port, rest) = rest.split_at_checked(2)?;
        let ip: IpAddr = match len {
            4 => <[u8; 4]>::try_from(ip).ok()?.into(),
            16 => <[u8; 16]>::try_from(ip).ok()?.into(),
            _ => return None,
        };
        addrs.push(SocketAddr::new(ip, u16::from_be_bytes([port[0], port[1]])));
        bytes = rest;
    }
    Some((addrs, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            kind: RequestKind::Join,
            rails: 3,
            lane: 2,
            recv_lane: 1,
            token: 0x0102_0304_0506_0708,
            table: (0x7fff_1234_5678_0000, 0xdead_beef),
            invalid_key: 7,
        }
    }

    #[test]
    fn handshake_round_trips() {
        let bytes = hello().write(b"rest");
        assert_eq!(Hello::read(&bytes), Some((hello(), &b"rest"[..])));
        let addrs = ["10.1.0.1:80".parse().expect("v4"), "[fd00::1]:65535".parse().expect("v6")];
        let mut bytes = Vec::new();
        write_addrs(&addrs, &mut bytes);
        assert!(bytes.len() <= addrs_room(2, 128));
        bytes.push(9);
        assert_eq!(read_addrs(&bytes, 2), Some((addrs.to_vec(), &[9_u8][..])));
        let lane_hello = LaneHello { generation: 3, report_buffer: 0x7fff_0000_1234_0000, keys: (5, !0) };
        let mut bytes = Vec::new();
        lane_hello.write(&mut bytes);
        assert_eq!(bytes.len(), LANE_HELLO_LEN);
        assert_eq!(LaneHello::read(&bytes), Some((lane_hello, &[][..])));
        assert_eq!(LaneHello::read(&bytes[1..]), None);
        assert_eq!(read_refusal(&refusal(3)), Some(3));
        assert_eq!(read_refusal(&refusal(3)[..8]), None);
    }

    #[test]
    fn invalid_handshake_is_refused() {
        let good = hello().write(&[]);
        assert_eq!(good.len(), LEN);
        for at in 0..LEN {
            assert_eq!(Hello::read(&good[..at]), None, "cut at {at}");
        }
        for (at, byte) in [(0, 0), (2, 9), (3, 0x80 | 9), (3, 0), (4, 0x31), (4, 0x13)] {
            let mut bad = good.clone();
            bad[at] = byte;
            assert_eq!(Hello::read(&bad), None, "byte {at} as {byte:#x}");
        }
        for bad in [&[4_u8, 1, 2, 3][..], &[5, 1, 2, 3, 4, 5, 0, 1], &[4, 1, 2, 3, 4, 0], &[]] {
            assert_eq!(read_addrs(bad, 1), None, "{bad:?}");
        }
    }
}
