//! [`OwnRing`] and [`PeerRing`]: memory in which a member publishes long data chunk by chunk, while the others read earlier chunks.
//! A ring is longer than what one operation needs at a time: so the next operation begins with chunks that have left the caches of
//! their readers, and need not be taken from them. A member allocates its ring for its first long data.

use verbs::{Buf, Mr, RemoteAddr};

/// Bytes of a chunk, which together with the readers' copy of it stays in the second-level cache.
pub(super) const CHUNK: usize = 64 << 10;
/// Chunks of a ring.
const CHUNKS: u64 = 8;
/// Bytes of a ring.
pub(super) const RING_LEN: usize = CHUNK * CHUNKS as usize;

/// A member's own ring.
#[derive(Debug, Default)]
pub(super) struct OwnRing {
    memory: Option<Mr>,
    /// There is no memory for it.
    is_absent: bool,
    /// The number of the current operation's first chunk, and the one after its last. Numbers increase from lap to lap.
    first: u64,
    next: u64,
    /// For each chunk of the ring, the operation and the round that used it last.
    uses: [(u64, u64); CHUNKS as usize],
}

impl OwnRing {
    /// Whether this member has tried to allocate memory.
    pub(super) fn is_decided(&self) -> bool {
        self.memory.is_some() || self.is_absent
    }

    /// Uses this memory, if there is any.
    pub(super) fn set_memory(&mut self, memory: Option<Mr>) {
        (self.is_absent, self.memory) = (memory.is_none(), memory);
    }

    /// Begins an operation with the next chunk after those of the last one: returns the memory's address and the chunk's number.
    /// `None` if there is no memory.
    pub(super) fn begin(&mut self) -> Option<(RemoteAddr, u64)> {
        let at = self.memory.as_ref()?.remote(0);
        self.first = self.next;
        Some((at, self.first))
    }

    /// Takes the memory out of it, to keep it while others may read.
    pub(super) fn take_memory(&mut self) -> Option<Mr> {
        self.memory.take()
    }

    /// The memory, and the offset of a round's chunk in it. `None` before the first data.
    pub(super) fn chunk(&self, round: u64) -> Option<(&Buf, usize)> {
        Some((self.memory.as_ref()?.buf(), offset_of(self.first + round)))
    }

    /// The operation and the round after which the chunk of a round is free; zeros if it was never used.
    pub(super) fn last_use(&self, round: u64) -> (u64, u64) {
        self.uses[((self.first + round) % CHUNKS) as usize]
    }

    /// A round of an operation uses its chunk.
    pub(super) fn set_use(&mut self, number: u64, round: u64) {
        self.uses[((self.first + round) % CHUNKS) as usize] = (number, round);
        self.next = self.first + round + 1;
    }
}

/// Another member's ring.
#[derive(Debug)]
pub(super) struct PeerRing {
    at: RemoteAddr,
    /// Its memory, if this process can map it.
    memory: Option<Buf>,
}

impl PeerRing {
    /// A ring at an address, and its memory if this process can map it.
    pub(super) fn new(at: RemoteAddr, memory: Option<Buf>) -> Self {
        Self { at, memory }
    }

    /// The remote address of the ring, for reads by the device.
    pub(super) fn at(&self) -> RemoteAddr {
        self.at
    }

    /// The mapped memory, or else the remote address, of chunk number `chunk`.
    pub(super) fn chunk(&self, chunk: u64) -> std::result::Result<(&Buf, usize), RemoteAddr> {
        let offset = offset_of(chunk);
        self.memory.as_ref().map(|memory| (memory, offset)).ok_or(self.at.offset(offset as u64))
    }
}

fn offset_of(chunk: u64) -> usize {
    (chunk % CHUNKS) as usize * CHUNK
}
