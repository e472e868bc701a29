//! The wire format of datagrams: sender, receiver, Q_Key and payload, in network byte order.

use rdma_abi::verbs::ibv_gid;

/// Maximum payload of a datagram: the MTU that a port reports.
pub(crate) const MTU: usize = 4096;

/// The header of a datagram on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) to: u32,
    pub(super) from: u32,
    pub(super) qkey: u32,
    pub(super) imm: Option<u32>,
    pub(super) sgid: ibv_gid,
}

const MAGIC: [u8; 4] = *b"NUD1";
/// Its size on the wire.
pub(super) const HEADER: usize = 40;
/// The size of the global route header that a receive begins with (IBA 8.3).
pub(super) const GRH: usize = 40;

impl Header {
    pub(super) fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let words = [
            u32::from_be_bytes(MAGIC),
            self.to,
            self.from,
            self.qkey,
            u32::from(self.imm.is_some()),
            self.imm.unwrap_or_default(),
        ];
        bytes
            .chunks_exact_mut(4)
            .zip(words)
            .for_each(|(place, word)| place.copy_from_slice(&word.to_be_bytes()));
        bytes[24..].copy_from_slice(&self.sgid.raw);
        bytes
    }

    /// The header and the payload; `None` if it is not in our format.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let (head, payload) = bytes.split_first_chunk::<HEADER>()?;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if head[..4] != MAGIC || word(16) > 1 {
            return None;
        }
        let mut sgid = ibv_gid::default();
        sgid.raw.copy_from_slice(&head[24..]);
        let imm = (word(16) == 1).then(|| word(20));
        Some((Self { to: word(4), from: word(8), qkey: word(12), imm, sgid }, payload))
    }
}

/// The global route header of a datagram with `payload` bytes.
pub(super) fn route_header(payload: usize, sgid: ibv_gid, dgid: ibv_gid) -> [u8; GRH] {
    const VERSION_6: u8 = 6 << 4;
    const IBA_TRANSPORT: u8 = 0x1b;
    const HOPS: u8 = 64;
    let mut bytes = [0; GRH];
    bytes[0] = VERSION_6;
    bytes[4..6].copy_from_slice(&u16::try_from(payload).unwrap_or(u16::MAX).to_be_bytes());
    (bytes[6], bytes[7]) = (IBA_TRANSPORT, HOPS);
    bytes[8..24].copy_from_slice(&sgid.raw);
    bytes[24..].copy_from_slice(&dgid.raw);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sent_frame_is_read_back_and_noise_is_not() {
        let sgid = ibv_gid { raw: std::array::from_fn(|at| at as u8) };
        for imm in [None, Some(0), Some(0x0102_0304)] {
            let header = Header { to: 7, from: 8, qkey: 0x1111_1111, imm, sgid };
            let mut bytes = header.encode().to_vec();
            assert_eq!(Header::decode(&bytes[..HEADER - 1]), None, "cut");
            bytes.extend(b"payload");
            assert_eq!(Header::decode(&bytes), Some((header, &b"payload"[..])));
            bytes[19] = 2;
            assert_eq!(Header::decode(&bytes), None, "a later version's");
            (bytes[19], bytes[0]) = (0, 0);
            assert_eq!(Header::decode(&bytes), None, "something else");
        }
    }
}
