//! [`Memory`]: the registered memory of a connection.

use verbs::{Access, Buf, Device, Mr, Pd, Result, Sge};

use crate::config::{Carrier, Config};
use crate::wire::{ConnData, IoMapping, RemoteBuf};

/// Entries of the table of the peer's receive buffers. The protocol fixes it.
pub(crate) const TABLE_ENTRIES: u32 = 2;

/// Bytes of a message that travels as a send.
pub(crate) const MESSAGE_BYTES: u32 = 4;

/// The registered memory of a connection.
pub(crate) struct Memory {
    /// Data on their way to the peer, used as a ring.
    pub(crate) send: Mr,
    /// Data that the peer writes, used as a ring of two halves.
    pub(crate) recv: Mr,
    /// The table of the peer's receive buffers, then that of its I/O mappings. The peer writes both.
    pub(crate) table: Mr,
    /// A slot for each receive, if messages travel as sends.
    pub(crate) messages: Option<Mr>,
}

impl Memory {
    /// Allocates and registers memory for these sizes.
    ///
    /// # Errors
    /// As [`Buf::alloc`] and [`Pd::reg_mr`].
    pub(crate) fn new(pd: &Pd, config: &Config, carrier: Carrier, receives: u32) -> Result<Self> {
        let device = pd.device();
        let writable = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let table =
            TABLE_ENTRIES as usize * RemoteBuf::BYTES + usize::from(config.iomap_size) * IoMapping::BYTES;
        let messages = match carrier {
            Carrier::Immediate => None,
            Carrier::Send => {
                Some(pd.reg_mr(&Buf::alloc((receives * MESSAGE_BYTES) as usize)?, Access::LOCAL_WRITE)?)
            }
        };
        Ok(Self {
            send: pd.reg_mr(&alloc(device, config.send_buffer as usize)?, Access::empty())?,
            recv: pd.reg_mr(&alloc(device, config.recv_buffer as usize)?, writable)?,
            table: pd.reg_mr(&alloc(device, table)?, writable)?,
            messages,
        })
    }

    /// What the peer needs to know of this end.
    pub(crate) fn conn_data(&self, config: &Config) -> ConnData {
        let part = |mr: &Mr, length| RemoteBuf { addr: mr.addr(), key: mr.rkey(), length };
        ConnData {
            big_endian: cfg!(target_endian = "big"),
            credits: config.recv_queue,
            iomap_size: config.iomap_size,
            table: part(&self.table, TABLE_ENTRIES),
            buffer: part(&self.recv, config.recv_buffer / 2),
        }
    }
}

/// NIC memory, if the peer can map it and enough is left; else private memory.
fn alloc(device: &Device, len: usize) -> Result<Buf> {
    if device.attr().maps_peers
        && let Ok(memory) = device.alloc_dm(len)
    {
        return Ok(memory);
    }
    Buf::alloc(len)
}

/// The one or two parts of a ring of `size` bytes that hold `len` bytes from position `at` of a stream on: offset and length of each.
pub(crate) fn parts(at: u64, len: usize, size: usize) -> [(usize, usize); 2] {
    let start = (at % size as u64) as usize;
    let first = len.min(size - start);
    [(start, first), (0, len - first)]
}

/// Copies bytes into a ring, and returns the elements that describe them; the second has length 0 if one is enough.
pub(crate) fn fill(ring: &Mr, at: u64, bytes: &[u8]) -> Result<[Sge; 2]> {
    let both = parts(at, bytes.len(), ring.buf().len());
    let (first, second) = bytes.split_at(both[0].1);
    ring.buf().write(both[0].0, first)?;
    if !second.is_empty() {
        ring.buf().write(0, second)?;
    }
    Ok(both.map(|(offset, len)| ring.sge(offset as u64, len as u32)))
}

/// Copies bytes out of a ring.
pub(crate) fn drain(ring: &Mr, at: u64, bytes: &mut [u8]) -> Result<()> {
    let both = parts(at, bytes.len(), ring.buf().len());
    let (first, second) = bytes.split_at_mut(both[0].1);
    ring.buf().read(both[0].0, first)?;
    if second.is_empty() { Ok(()) } else { ring.buf().read(0, second) }
}

#[cfg(test)]
mod tests {
    use super::parts;

    #[test]
    fn parts_of_a_ring_wrap_at_its_end() {
        assert_eq!(parts(0, 10, 10), [(0, 10), (0, 0)]);
        assert_eq!(parts(25, 5, 10), [(5, 5), (0, 0)]);
        assert_eq!(parts(27, 5, 10), [(7, 3), (0, 2)]);
        assert_eq!(parts(9, 1, 10), [(9, 1), (0, 0)]);
    }
}
