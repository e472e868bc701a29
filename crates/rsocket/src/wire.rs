//! The bytes of the protocol: the private data of a connection, the 32-bit messages, and the entries that are written into tables of
//! the peer. No I/O.
//!
//! The protocol is rdma-core's (`librdmacm/docs/rsocket`), version 1. A message travels as the immediate data of an RDMA write; on
//! iWARP, which has none, as a send of four bytes after the write.

/// The version of the protocol.
const VERSION: u8 = 1;

/// Flag of [`ConnData`]: the sender's processor is big-endian.
const FLAG_BIG_ENDIAN: u8 = 1;
/// Flag of [`ConnData`]: the sender knows I/O mappings.
const FLAG_IOMAP: u8 = 2;

/// Memory that the peer may write, as the protocol describes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteBuf {
    /// The address for RDMA writes.
    pub addr: u64,
    /// The remote key.
    pub key: u32,
    /// The length: bytes, or entries of a table.
    pub length: u32,
}

impl RemoteBuf {
    /// The size of an entry of a table.
    pub const BYTES: usize = 16;

    /// An entry in the byte order of its reader.
    pub(crate) fn encode(self, big_endian: bool) -> [u8; Self::BYTES] {
        let Self { addr, key, length } = self;
        let mut bytes = [0; Self::BYTES];
        let (addr, key, length) = if big_endian {
            (addr.to_be_bytes(), key.to_be_bytes(), length.to_be_bytes())
        } else {
            (addr.to_le_bytes(), key.to_le_bytes(), length.to_le_bytes())
        };
        bytes[..8].copy_from_slice(&addr);
        bytes[8..12].copy_from_slice(&key);
        bytes[12..].copy_from_slice(&length);
        bytes
    }

    /// An entry in this host's byte order, as two words of memory.
    pub(crate) fn from_words([first, second]: [u64; 2]) -> Self {
        let ([a, b, c, d, e, f, g, h], addr) = (second.to_ne_bytes(), first);
        Self { addr, key: u32::from_ne_bytes([a, b, c, d]), length: u32::from_ne_bytes([e, f, g, h]) }
    }

    fn decode_be(bytes: [u8; Self::BYTES]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = bytes;
        Self {
            addr: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            key: u32::from_be_bytes([i, j, k, l]),
            length: u32::from_be_bytes([m, n, o, p]),
        }
    }
}

/// An entry of a table of I/O mappings: memory of the peer at an offset that both programs know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IoMapping {
    pub(crate) offset: u64,
    pub(crate) memory: RemoteBuf,
}

impl IoMapping {
    pub(crate) const BYTES: usize = 8 + RemoteBuf::BYTES;

    pub(crate) fn encode(self, big_endian: bool) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let offset = if big_endian { self.offset.to_be_bytes() } else { self.offset.to_le_bytes() };
        bytes[..8].copy_from_slice(&offset);
        bytes[8..].copy_from_slice(&self.memory.encode(big_endian));
        bytes
    }

    pub(crate) fn from_words([offset, first, second]: [u64; 3]) -> Self {
        Self { offset, memory: RemoteBuf::from_words([first, second]) }
    }

    /// Whether it contains this offset.
    pub(crate) fn contains(&self, offset: u64) -> bool {
        offset.checked_sub(self.offset).is_some_and(|within| within < self.memory.length.into())
    }
}

/// What both ends exchange while they connect, as private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnData {
    /// Whether the sender's processor is big-endian: entries that it reads are written in that order.
    pub big_endian: bool,
    /// Data messages that it can receive at first.
    pub credits: u16,
    /// Entries of its table of I/O mappings.
    pub iomap_size: u16,
    /// Its table of receive buffers, with the number of entries as its length.
    pub table: RemoteBuf,
    /// Its first receive buffer.
    pub buffer: RemoteBuf,
}

impl ConnData {
    /// The size of the private data.
    pub const BYTES: usize = 40;

    /// The private data.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = VERSION;
        bytes[1] = FLAG_IOMAP | if self.big_endian { FLAG_BIG_ENDIAN } else { 0 };
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        bytes[7] = to_scale(self.iomap_size);
        bytes[8..24].copy_from_slice(&self.table.encode(true));
        bytes[24..40].copy_from_slice(&self.buffer.encode(true));
        bytes
    }

    /// Reads private data of a peer, which may be longer: some protocols fill it up.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn decode(bytes: &[u8]) -> Result<Self, String> {
        let bytes: &[u8; Self::BYTES] = bytes.first_chunk().ok_or_else(|| {
            format!("its private data has {} bytes, but an rsocket sends {}", bytes.len(), Self::BYTES)
        })?;
        if bytes[0] != VERSION {
            return Err(format!("it speaks version {} of the rsocket protocol, not {VERSION}", bytes[0]));
        }
        let entry = |at: usize| RemoteBuf::decode_be(std::array::from_fn(|byte| bytes[at + byte]));
        let (table, buffer) = (entry(8), entry(24));
        if table.length < 2 {
            return Err(format!(
                "its table of receive buffers has {} entries, but 2 are needed",
                table.length
            ));
        }
        let iomap_size = if bytes[1] & FLAG_IOMAP == 0 { 0 } else { from_scale(bytes[7]) };
        let credits = u16::from_be_bytes([bytes[2], bytes[3]]);
        Ok(Self { big_endian: bytes[1] & FLAG_BIG_ENDIAN != 0, credits, iomap_size, table, buffer })
    }

    /// The address of entry `index` of its table of I/O mappings, which follows the table of receive buffers.
    pub(crate) fn iomap_entry(&self, index: u16) -> u64 {
        let table = u64::from(self.table.length) * RemoteBuf::BYTES as u64;
        self.table.addr.wrapping_add(table).wrapping_add(u64::from(index) * IoMapping::BYTES as u64)
    }
}

/// A number of entries in eight bits: up to 128 as it is, more in units of 256, rounded down.
fn to_scale(value: u16) -> u8 {
    if value <= 128 { value as u8 } else { 128 | (value >> 8).min(127) as u8 }
}

/// The number that [`to_scale`] has encoded.
fn from_scale(value: u8) -> u16 {
    if value <= 128 { value.into() } else { u16::from(value & 127) << 8 }
}

/// Rounds a number of I/O mappings to a number that the protocol can express.
pub(crate) fn round_iomap_size(value: u16) -> u16 {
    from_scale(to_scale(value))
}

/// A message: three bits of kind and 29 bits of value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// This number of bytes has been written behind the previous ones.
    Data(u32),
    /// Data messages may be sent up to this number, modulo 2^16; the table of receive buffers may have changed.
    Credits(u16),
    /// Entry of the table of I/O mappings that has changed.
    IoMap(u16),
    /// The sender neither sends nor receives any more.
    Disconnect,
    /// A message without meaning, which shows that the sender is alive.
    KeepAlive,
    /// The sender sends nothing more.
    Shutdown,
}

const KIND_SHIFT: u32 = 29;
const VALUE: u32 = (1 << KIND_SHIFT) - 1;

const DATA: u32 = 0;
const CREDITS: u32 = 4;
const IO_MAP: u32 = 6;
const CONTROL: u32 = 7;

const CONTROL_DISCONNECT: u32 = 0;
const CONTROL_KEEP_ALIVE: u32 = 1;
const CONTROL_SHUTDOWN: u32 = 2;

impl Message {
    pub(crate) fn encode(self) -> u32 {
        let (kind, value) = match self {
            Self::Data(bytes) => (DATA, bytes & VALUE),
            Self::Credits(limit) => (CREDITS, limit.into()),
            Self::IoMap(index) => (IO_MAP, index.into()),
            Self::Disconnect => (CONTROL, CONTROL_DISCONNECT),
            Self::KeepAlive => (CONTROL, CONTROL_KEEP_ALIVE),
            Self::Shutdown => (CONTROL, CONTROL_SHUTDOWN),
        };
        kind << KIND_SHIFT | value
    }

    /// The message, or `None` if the protocol has no such message.
    pub(crate) fn decode(bits: u32) -> Option<Self> {
        let value = bits & VALUE;
        match (bits >> KIND_SHIFT, value) {
            (DATA, bytes) => Some(Self::Data(bytes)),
            // Senders add to a count of 16 bits without reducing it.
            (CREDITS, limit) => Some(Self::Credits(limit as u16)),
            (IO_MAP, index) => Some(Self::IoMap(index as u16)),
            (CONTROL, CONTROL_DISCONNECT) => Some(Self::Disconnect),
            (CONTROL, CONTROL_KEEP_ALIVE) => Some(Self::KeepAlive),
            (CONTROL, CONTROL_SHUTDOWN) => Some(Self::Shutdown),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: ConnData = ConnData {
        big_endian: false,
        credits: 384,
        iomap_size: 16,
        table: RemoteBuf { addr: 0x1122_3344_5566_7788, key: 0xa1b2_c3d4, length: 2 },
        buffer: RemoteBuf { addr: 0x99, key: 7, length: 65_536 },
    };

    /// The layout of `struct rs_conn_data`: all numbers in network byte order.
    #[test]
    fn connection_data_has_the_layout_of_rdma_core() {
        let bytes = PEER.encode();
        assert_eq!(bytes[..8], [1, 2, 1, 0x80, 0, 0, 0, 16]);
        assert_eq!(bytes[8..16], [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]);
        assert_eq!(bytes[16..24], [0xa1, 0xb2, 0xc3, 0xd4, 0, 0, 0, 2]);
        assert_eq!(bytes[24..], [0, 0, 0, 0, 0, 0, 0, 0x99, 0, 0, 0, 7, 0, 1, 0, 0]);
        assert_eq!(ConnData::decode(&bytes), Ok(PEER));
        let mut padded = bytes.to_vec();
        padded.resize(196, 0);
        assert_eq!(ConnData::decode(&padded), Ok(PEER));
    }

    #[test]
    fn wrong_connection_data_are_refused() {
        let bytes = PEER.encode();
        assert!(ConnData::decode(&bytes[..39]).is_err_and(|why| why.contains("39 bytes")));
        assert!(ConnData::decode(&[]).is_err());
        let mut other = bytes;
        other[0] = 2;
        assert!(ConnData::decode(&other).is_err_and(|why| why.contains("version 2")));
        let narrow = ConnData { table: RemoteBuf { length: 1, ..PEER.table }, ..PEER };
        assert!(ConnData::decode(&narrow.encode()).is_err_and(|why| why.contains("1 entries")));
        let mut plain = bytes;
        plain[1] = 0;
        assert_eq!(ConnData::decode(&plain).map(|data| data.iomap_size), Ok(0));
    }

    #[test]
    fn entries_are_written_in_the_byte_order_of_their_reader() {
        let entry = RemoteBuf { addr: 0x0102, key: 3, length: 4 };
        let own = entry.encode(cfg!(target_endian = "big"));
        let (words, _) = own.as_chunks::<8>();
        assert_eq!(RemoteBuf::from_words([words[0], words[1]].map(u64::from_ne_bytes)), entry);
        assert_eq!(RemoteBuf::decode_be(entry.encode(true)), entry);
        assert_eq!(entry.encode(false)[..2], [2, 1]);
        let mapping = IoMapping { offset: 100, memory: RemoteBuf { length: 10, ..entry } };
        assert_eq!([99, 100, 109, 110].map(|offset| mapping.contains(offset)), [false, true, true, false]);
    }

    #[test]
    fn messages_survive_encoding() {
        let all = [
            Message::Data(1),
            Message::Data(VALUE),
            Message::Credits(65_535),
            Message::IoMap(9),
            Message::Disconnect,
            Message::KeepAlive,
            Message::Shutdown,
        ];
        for message in all {
            assert_eq!(Message::decode(message.encode()), Some(message));
        }
        for kind in [1, 2, 3, 5] {
            assert_eq!(Message::decode(kind << KIND_SHIFT), None);
        }
        assert_eq!(Message::decode(CONTROL << KIND_SHIFT | 3), None);
        assert_eq!(Message::decode(CREDITS << KIND_SHIFT | 0x1_0005), Some(Message::Credits(5)));
    }

    #[test]
    fn numbers_of_mappings_are_rounded_to_what_eight_bits_hold() {
        for (given, rounded) in [(0, 0), (128, 128), (129, 128), (512, 512), (700, 512), (65_535, 32_512)] {
            assert_eq!(round_iomap_size(given), rounded, "{given}");
        }
    }
}
