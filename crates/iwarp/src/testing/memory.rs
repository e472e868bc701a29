//! Memory in which every byte outside the permitted ranges is a canary.

use std::ops::Range;

use bitflags::bitflags;

use crate::rx::AccessError;
use crate::wire::wraps;

/// Canary bytes around each buffer.
const GUARD: usize = 64;

bitflags! {
    /// The peer's rights to a buffer.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Rights: u8 {
        /// The peer may write.
        const WRITE = 1;
        /// The peer may read.
        const READ = 2;
        /// The peer may use atomics.
        const ATOMIC = 4;
        /// The peer may invalidate the tag.
        const INVALIDATE = 8;
    }
}

#[derive(Clone, Debug)]
struct Region {
    stag: u32,
    /// Offset of the first byte, as the peer counts.
    to: u64,
    bytes: Range<usize>,
    rights: Rights,
    valid: bool,
}

/// The memory of one endpoint.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    bytes: Vec<u8>,
    /// The content that the owner last wrote.
    original: Vec<u8>,
    /// Ranges that the peer may have written.
    permitted: Vec<Range<usize>>,
    regions: Vec<Region>,
}

impl Memory {
    /// Allocates a buffer that holds `content`, separate from all others.
    pub fn alloc(&mut self, content: &[u8]) -> Range<usize> {
        let begin = self.bytes.len() + GUARD;
        self.bytes.resize(begin, 0xa7);
        self.bytes.extend_from_slice(content);
        self.bytes.resize(begin + content.len() + GUARD, 0xa7);
        self.original.extend_from_slice(&self.bytes[self.original.len()..]);
        begin..begin + content.len()
    }

    /// Grants the peer access to a buffer under a tag; its first byte has offset `to`.
    pub fn register(&mut self, stag: u32, to: u64, bytes: Range<usize>, rights: Rights) {
        if rights.intersects(Rights::WRITE | Rights::ATOMIC) {
            self.permit(bytes.clone());
        }
        self.regions.push(Region { stag, to, bytes, rights, valid: true });
    }

    /// Excludes the range from the canary check: a receive buffer, or the sink of a read.
    pub fn permit(&mut self, range: Range<usize>) {
        self.permitted.push(range);
    }

    /// Makes a tag invalid.
    pub fn invalidate(&mut self, stag: u32) {
        for region in self.regions.iter_mut().filter(|region| region.stag == stag) {
            region.valid = false;
        }
    }

    /// The range of `[to, to + len)` of a tag, if the peer has all of `rights` to it.
    pub fn check_access(
        &self,
        stag: u32,
        to: u64,
        len: u32,
        rights: Rights,
    ) -> Result<Range<usize>, AccessError> {
        let region = self.region(stag)?;
        if !region.rights.contains(rights) {
            return Err(AccessError::Access);
        }
        let offset = to.checked_sub(region.to).ok_or(AccessError::Bounds)?;
        let size = region.bytes.len() as u64;
        if wraps(to, len) || offset > size || u64::from(len) > size - offset {
            return Err(AccessError::Bounds);
        }
        let begin = region.bytes.start + offset as usize;
        Ok(begin..begin + len as usize)
    }

    /// Checks whether the peer may invalidate a tag.
    pub fn may_invalidate(&self, stag: u32) -> Result<(), AccessError> {
        let region = self.region(stag)?;
        if region.rights.contains(Rights::INVALIDATE) { Ok(()) } else { Err(AccessError::CannotInvalidate) }
    }

    fn region(&self, stag: u32) -> Result<&Region, AccessError> {
        self.regions.iter().find(|region| region.stag == stag && region.valid).ok_or(AccessError::Invalid)
    }

    /// The bytes of a range.
    pub fn read(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// Places bytes for the peer without checking its rights; [`Self::damage`] finds violations later.
    pub fn place(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// The first byte that was changed without permission.
    pub fn damage(&self) -> Option<usize> {
        (0..self.bytes.len()).find(|&at| {
            self.bytes[at] != self.original[at] && !self.permitted.iter().any(|range| range.contains(&at))
        })
    }
}
