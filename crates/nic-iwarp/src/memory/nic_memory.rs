//! NIC memory: private memory of this process with its own accounting and its own addresses.

use std::sync::{Mutex, Weak};

use verbs::{Buf, Error, MemoryKind, Result};

use nic_util::sync::unpoisoned;

const PAGE: u64 = 4096;

/// Keeps a piece mapped.
type Owner = Weak<dyn Send + Sync>;

struct Piece {
    owner: Owner,
    offset: u64,
    len: u64,
}

/// The NIC memory of a device.
pub(crate) struct NicMemory {
    size: u64,
    pieces: Mutex<Pieces>,
}

#[derive(Default)]
struct Pieces {
    list: Vec<Piece>,
    next_offset: u64,
}

impl NicMemory {
    pub(crate) fn new(size: u64) -> Self {
        Self { size, pieces: Mutex::new(Pieces::default()) }
    }

    pub(crate) fn alloc(&self, len: usize) -> Result<Buf> {
        if len == 0 {
            return Err(Error::Invalid("NIC memory needs at least one byte".into()));
        }
        let rounded = (len as u64).checked_next_multiple_of(PAGE).unwrap_or(u64::MAX);
        let mut pieces = unpoisoned(&self.pieces);
        pieces.list.retain(|piece| piece.owner.strong_count() > 0);
        let used: u64 = pieces.list.iter().map(|piece| piece.len).sum();
        Error::check_limit("bytes of NIC memory", used.saturating_add(rounded), self.size)?;
        let offset = pieces.next_offset;
        let buf = Buf::alloc_nic(len, offset)?;
        // Addresses are never reused; 64 bits last long enough.
        pieces.next_offset += rounded;
        pieces.list.push(Piece { owner: std::sync::Arc::downgrade(&buf.owner()), offset, len: rounded });
        Ok(buf)
    }

    /// Whether a piece of NIC memory belongs to this device.
    pub(crate) fn owns(&self, buf: &Buf) -> bool {
        let owner = std::sync::Arc::downgrade(&buf.owner());
        buf.kind() == MemoryKind::Nic
            && unpoisoned(&self.pieces).list.iter().any(|piece| {
                piece.owner.ptr_eq(&owner)
                    && (piece.offset..piece.offset + piece.len).contains(&buf.nic_offset())
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nic_memory_is_counted_and_freed() {
        let memory = NicMemory::new(2 * PAGE);
        let first = memory.alloc(1).expect("a page");
        let second = memory.alloc(PAGE as usize).expect("a second piece");
        assert!(matches!(memory.alloc(1), Err(Error::Limit { .. })), "at the limit");
        assert_ne!(first.nic_offset(), second.nic_offset());
        drop(first);
        let third = memory.alloc(100).expect("what was freed");
        assert!(memory.owns(&third) && memory.owns(&second.slice(5..9).expect("inside")));
        assert!(!NicMemory::new(PAGE).owns(&third) && !memory.owns(&Buf::alloc(1).expect("memory")));
    }
}
