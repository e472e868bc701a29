//! I/O mappings: memory that the peer's program may write directly, at an offset on which both programs agree (`riomap`, `riowrite`).
//!
//! A mapping is an entry of a table at the peer, which its owner writes by RDMA. It is announced before any later bytes of the stream.

use std::sync::atomic::Ordering;

use ffi::lock;
use verbs::{Access, Buf, RemoteAddr};

use crate::error::{Error, Result};
use crate::link::Flags;
use crate::mapping::OwnMapping;
use crate::memory::TABLE_ENTRIES;
use crate::stream::Stream;
use crate::wire::{IoMapping, RemoteBuf};

impl Stream {
    /// Maps `memory` at this offset, for the peer's [`Stream::write_at`]. Without `is_writable` it is only registered.
    ///
    /// # Errors
    /// [`Error::NoIoMapEntry`], [`Error::Device`].
    pub fn map(&self, memory: &Buf, offset: u64, is_writable: bool) -> Result<()> {
        let access =
            if is_writable { Access::LOCAL_WRITE | Access::REMOTE_WRITE } else { Access::LOCAL_WRITE };
        let mut sender = lock(&self.sender);
        let mut all = lock(&self.mappings);
        let mut free =
            (0..self.peer.iomap_size).filter(|index| all.iter().all(|known| known.index != Some(*index)));
        let index = if is_writable { Some(free.next().ok_or(Error::NoIoMapEntry)?) } else { None };
        let mr = self.link.qp.pd().reg_mr(memory, access)?;
        all.push(OwnMapping { mr, offset, index, is_announced: index.is_none() });
        sender.has_unannounced = true;
        self.announce_mappings(&mut sender, &mut all).map(drop)
    }

    /// Ends the mapping of this range. The peer's later writes to it fail, and with them the connection.
    ///
    /// # Errors
    /// [`Error::NotMapped`].
    pub fn unmap(&self, addr: u64, len: usize) -> Result<()> {
        let mut all = lock(&self.mappings);
        let is_it = |known: &OwnMapping| (known.mr.buf().addr(), known.mr.buf().len()) == (addr, len);
        let at = all.iter().position(is_it).ok_or(Error::NotMapped)?;
        drop(all.swap_remove(at));
        Ok(())
    }

    /// Writes as many of the bytes as is possible now into memory that the peer has mapped at this offset, and returns their number;
    /// `None` if the caller has to wait. The peer learns nothing of it, except that bytes which are sent later arrive later.
    ///
    /// # Errors
    /// [`Error::NoMapping`]; as [`Stream::send`].
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> Result<Option<usize>> {
        self.check_sending()?;
        let mut sender = lock(&self.sender);
        if bytes.is_empty() {
            return Ok(Some(0));
        }
        let mapping = match self.peer_mapping(offset) {
            Some(mapping) => mapping,
            // Its announcement may have arrived.
            None => self.poll().map(|()| self.peer_mapping(offset))?.ok_or(Error::NoMapping(offset))?,
        };
        let within = offset - mapping.offset;
        let room = u64::from(mapping.memory.length) - within;
        let len = bytes.len().min(usize::try_from(room).unwrap_or(usize::MAX));
        let to = RemoteAddr { addr: mapping.memory.addr, rkey: mapping.memory.key }.offset(within);
        if !self.announce_pending(&mut sender)? {
            self.poll()?;
            return Ok(None);
        }
        let mut sent = sender.send_mapped(&self.link, &self.counters, &bytes[..len], to)?;
        if sent == 0 {
            self.poll()?;
            sent = sender.send_mapped(&self.link, &self.counters, &bytes[..len], to)?;
        }
        Ok((sent > 0).then_some(sent))
    }

    /// The peer's mapping that contains an offset. The peer may write the table at any time, so an entry is copied once.
    fn peer_mapping(&self, offset: u64) -> Option<IoMapping> {
        if self.counters.flags().contains(Flags::BROKEN) {
            return None;
        }
        let table = self.link.memory.table.buf();
        let start = TABLE_ENTRIES as usize * RemoteBuf::BYTES;
        let entry = |index: u16| {
            let at = start + usize::from(index) * IoMapping::BYTES;
            let word = |part: usize| Some(table.word(at + 8 * part).ok()?.load(Ordering::Acquire));
            // The last word first: the peer writes it last.
            let last = word(2)?;
            Some(IoMapping::from_words([word(0)?, word(1)?, last]))
        };
        (0..self.link.config.iomap_size).filter_map(entry).find(|mapping| mapping.contains(offset))
    }
}
