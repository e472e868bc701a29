//! Places and sizes in a trace file, and the encoding of records.
//!
//! All numbers are little-endian words of 64 bits. The file has a header of [`HEADER_BYTES`], a table of [`TABLE_BYTES`], and a
//! ring whose number of records is a power of two.
//!
//! Data path: a record is eight words.

/// The first word of each file, with the version of the format.
pub const MAGIC: u64 = u64::from_le_bytes(*b"nictrc\x00\x01");

/// Bytes of the header.
pub const HEADER_BYTES: usize = 4096;
/// Bytes of the table.
pub const TABLE_BYTES: usize = 1 << 20;
/// Words of a record.
pub const RECORD_WORDS: usize = 8;
/// Bytes of a record.
pub const RECORD_BYTES: usize = 8 * RECORD_WORDS;
/// The fewest records of a ring.
pub const RECORDS_MIN: u64 = 1 << 10;
/// The most records of a ring: 4 GiB.
pub const RECORDS_MAX: u64 = 1 << 26;

/// Words of the header, by their number.
pub mod header {
    /// [`super::MAGIC`].
    pub const MAGIC: usize = 0;
    /// Records of the ring.
    pub const RECORDS: usize = 1;
    /// The number of the process.
    pub const PID: usize = 2;
    /// Whether times are those of a simulation.
    pub const IS_VIRTUAL: usize = 3;
    /// The time at the start, in picoseconds of the process's clock.
    pub const START_PS: usize = 4;
    /// The time at the start, in nanoseconds since 1970.
    pub const START_UNIX_NS: usize = 5;
    /// The time at the start, in nanoseconds of the clock that all processes of the host share.
    pub const START_HOST_NS: usize = 6;
    /// A later time, in picoseconds of the process's clock: of the latest comparison of both clocks.
    pub const LATE_PS: usize = 7;
    /// The later time, in nanoseconds of the clock that all processes of the host share.
    pub const LATE_HOST_NS: usize = 8;
    /// A number of the host, the same until its next start.
    pub const HOST: usize = 9;
    /// The records that were written; the ring has the latest.
    pub const WRITTEN: usize = 10;
    /// Bytes of the table that are in use.
    pub const TABLE_USED: usize = 11;
    /// Entries that found no place in the table.
    pub const TABLE_LOST: usize = 12;
    /// 1 plus the rank in `MPI_COMM_WORLD`; 0 without.
    pub const RANK: usize = 13;
    /// Whether the process has ended in order.
    pub const ENDED: usize = 14;
}

/// Kinds of entries of the table. An entry begins with a word: its kind (16 bits), the number of its words (16), and the bytes of
/// its text (32). Its words follow, then its text in UTF-8, up to the next multiple of eight.
pub mod entry {
    /// A text that records name by the entry's place, in words from the start of the table.
    pub const TEXT: u16 = 1;
    /// A thread: its number in records, its number for the system; the text is its name.
    pub const THREAD: u16 = 2;
    /// An object: its number in records and its class (in the upper half), its device, the time of its creation, and
    /// four words that depend on the class; the text is a name.
    pub const OBJECT: u16 = 3;
    /// Words of an object.
    pub const OBJECT_WORDS: usize = 7;
}

/// Kinds of records.
pub mod kind {
    /// A call that has returned.
    pub const CALL: u8 = 1;
    /// A request that is posted to a send queue.
    pub const SEND: u8 = 2;
    /// A receive that is posted.
    pub const RECV: u8 = 3;
    /// A completion that the program has polled.
    pub const COMPLETION: u8 = 4;
    /// A thread is about to sleep until an event.
    pub const WAIT: u8 = 5;
    /// An event that the program has got.
    pub const EVENT: u8 = 6;
    /// A call of the interface above the devices, such as `MPI_Send`.
    pub const INTERFACE: u8 = 7;
}

/// Flags of posted requests and of completions.
pub mod flag {
    /// The request gives a completion on success, too.
    pub const SIGNALED: u8 = 1;
    /// The request counts as solicited at the receiver.
    pub const SOLICITED: u8 = 2;
    /// The request waits for earlier reads and atomics.
    pub const FENCE: u8 = 4;
    /// The write wakes waiters of the peer.
    pub const NOTIFY: u8 = 8;
    /// The request completes when its memory may be used again.
    pub const LOCAL: u8 = 16;
    /// The data were copied while the request was posted.
    pub const INLINE: u8 = 32;
    /// It has immediate data.
    pub const IMM: u8 = 64;
    /// It invalidates a key.
    pub const INVALIDATE: u8 = 128;
}

/// The eight words of a record, except for the number of its place, which the writer adds.
///
/// | word | contents |
/// |---|---|
/// | 0 | the time in picoseconds |
/// | 1 | the number of its place plus 1 (32 bits), kind (8), code (8), flags (8), scatter/gather elements (8) |
/// | 2 | object (32), thread (16), result (16): 0 for success |
/// | 3 | `wr_id`; of a call, its end in picoseconds |
/// | 4 | bytes (32), and a key, the number of a queue pair, or a second object (32) |
/// | 5 | an address of the peer |
/// | 6 | an address here; of a call, bytes |
/// | 7 | a local key (32), and immediate data or the place of a text (32) |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encoded(pub [u64; RECORD_WORDS]);

/// Fields of a record that a writer fills.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fields {
    /// The time in picoseconds.
    pub time_ps: u64,
    /// Of [`kind`].
    pub kind: u8,
    /// What exactly: of [`crate::names`].
    pub code: u8,
    /// Of [`flag`].
    pub flags: u8,
    /// Scatter/gather elements, at most 255.
    pub elements: u8,
    /// The object.
    pub object: u32,
    /// The thread.
    pub thread: u16,
    /// 0 for success.
    pub result: u16,
    /// Word 3.
    pub id: u64,
    /// Bytes.
    pub bytes: u32,
    /// The upper half of word 4.
    pub other: u32,
    /// Word 5.
    pub remote: u64,
    /// Word 6.
    pub local: u64,
    /// The lower half of word 7.
    pub key: u32,
    /// The upper half of word 7.
    pub extra: u32,
}

impl Fields {
    /// The eight words of the record.
    #[inline]
    #[must_use]
    pub fn encode(&self) -> Encoded {
        let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let bytes = [self.kind, self.code, self.flags, self.elements];
        Encoded([
            self.time_ps,
            two(0, u32::from_le_bytes(bytes)),
            two(self.object, u32::from(self.thread) | u32::from(self.result) << 16),
            self.id,
            two(self.bytes, self.other),
            self.remote,
            self.local,
            two(self.key, self.extra),
        ])
    }
}

impl Encoded {
    /// The fields, and the number of the record's place plus 1.
    #[must_use]
    pub fn decode(&self) -> (Fields, u32) {
        let low = |word: u64| word as u32;
        let high = |word: u64| (word >> 32) as u32;
        let words = &self.0;
        let [kind, code, flags, elements] = high(words[1]).to_le_bytes();
        let fields = Fields {
            time_ps: words[0],
            kind,
            code,
            flags,
            elements,
            object: low(words[2]),
            thread: high(words[2]) as u16,
            result: (high(words[2]) >> 16) as u16,
            id: words[3],
            bytes: low(words[4]),
            other: high(words[4]),
            remote: words[5],
            local: words[6],
            key: low(words[7]),
            extra: high(words[7]),
        };
        (fields, low(words[1]))
    }
}

/// The number that a record at this place begins with: never 0, which an unwritten record has.
#[inline]
#[must_use]
pub fn mark(place: u64) -> u32 {
    (place as u32) | 1 << 31
}

/// Bytes of a file whose ring has this number of records.
#[must_use]
pub fn file_bytes(records: u64) -> u64 {
    (HEADER_BYTES + TABLE_BYTES) as u64 + records * RECORD_BYTES as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_survive_the_encoding() {
        let fields = Fields {
            time_ps: u64::MAX - 1,
            kind: 2,
            code: 3,
            flags: 0x81,
            elements: 255,
            object: 0xdead_beef,
            thread: 0xfffe,
            result: 0xabcd,
            id: 7 << 40,
            bytes: u32::MAX,
            other: 0x1234_5678,
            remote: 1 << 63,
            local: 9,
            key: 10,
            extra: u32::MAX - 3,
        };
        assert_eq!(fields.encode().decode(), (fields, 0));
    }

    #[test]
    fn marks_are_never_zero_and_differ_between_laps() {
        assert!((0..4).all(|lap| mark(lap << 31) != 0));
        assert_ne!(mark(5), mark(5 + RECORDS_MIN));
    }
}
