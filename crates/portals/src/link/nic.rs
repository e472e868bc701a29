//! Configuration of the device for a process's links, and registration of memory for operations.

use std::net::IpAddr;
use std::sync::Arc;

use transport::{Nic, NicConfig, QueueSizes, Registration};
use verbs::{Access, Device, Result, Screen};

use crate::link::memory::{all_memory, register};

/// Credits of a virtual channel: messages that a peer may send before some are released.
pub(crate) const SLOTS: u32 = 16;
/// Bytes of a message including its data.
pub(crate) const SLOT_BYTES: usize = 8 << 10;
/// Maximum bytes that are sent inline.
pub(crate) const INLINE: usize = 112;
/// Entries of the completion queue, if the device supports as many.
const CQE: u32 = 32 << 10;
/// Slots serve both virtual channels. Receives for messages without credit: two grants for each channel, and
/// one to spare.
pub(crate) const SIZES: QueueSizes =
    QueueSizes { slots: 2 * SLOTS, spare: 5, accesses: 16, slot_bytes: SLOT_BYTES, ring_bytes: 64 << 10 };

/// Sets up a device, and listens at a port, or any with port 0, for connect requests that pass the screen.
pub(crate) fn open(device: &Device, (address, port): (IpAddr, u16), screen: Arc<dyn Screen>) -> Result<Nic> {
    let config = NicConfig {
        sizes: SIZES,
        inline: INLINE as u32,
        cqe: CQE,
        slab_connections: 1,
        listen_at: (&[address], port),
        backlog: 256,
        register_all: all_memory,
        caches: false,
        split_receives: false,
    };
    Nic::open(device, &config, &screen)
}

/// Registers user memory for an operation, or uses the registration of all memory.
pub(crate) fn reach(nic: &Nic, address: u64, len: u64, access: Access) -> Result<Registration> {
    match nic.registrations.all(access) {
        Some(all) => Ok(all),
        None => Ok(Registration::Own(Arc::new(register(nic.pd(), address, len, access)?))),
    }
}
