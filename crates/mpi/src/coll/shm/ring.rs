//! [`OwnRing`] and [`PeerRing`]: memory in which a member publishes long data chunk by chunk, while the others read earlier chunks.
//! A ring is longer than what one operation needs at a time: so the next operation begins with chunks that have left the caches of
//! their readers, and need not be taken from them. A member allocates its ring for its first long data.

use transport::{StoreMeter, Stores};
use verbs::{Buf, Mr, RemoteAddr};

use crate::memory::Buffer;

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
    /// The costs of stores to it.
    meter: StoreMeter,
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

    /// Copies data to an offset in a round's chunk: by the stores that cost less, unless the ring `is_shared` by members that share
    /// processors, where no time says what a store costs. Does nothing without memory.
    ///
    /// # Errors
    /// Those of the memory.
    pub(super) fn store(
        &mut self,
        round: u64,
        offset: usize,
        data: &Buffer,
        is_shared: bool,
    ) -> verbs::Result<()> {
        let Some(memory) = self.memory.as_ref().map(Mr::buf) else { return Ok(()) };
        let (chunk, len) = (self.first + round, data.len() as usize);
        let at = offset_of(chunk) + offset;
        // In the first lap, pages of the ring appear in this process, which costs more than stores do.
        if is_shared || chunk < CHUNKS {
            return data.load_for_peer(memory, at, false);
        }
        self.meter.store(len, |stores| data.load_for_peer(memory, at, stores == Stores::Bypassing))
    }

    /// The operation and the round after which the chunk of a round is free; zeros if it was never used.
    pub(super) fn last_use(&self, round: u64) -> (u64, u64) {
        self.uses[((self.first + round) % CHUNKS) as usize]
    }

    /// Whether plain stores to it cost less than others, as [`StoreMeter::is_near`] says.
    pub(super) fn is_near(&mut self) -> bool {
        self.meter.is_near()
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
