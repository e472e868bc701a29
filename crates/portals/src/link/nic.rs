//! How the device of a process's links is set up, and how operations register memory.

use std::net::IpAddr;
use std::sync::Arc;

use transport::{Nic, NicConfig, QueueSizes, Registration};
use verbs::{Access, Device, Result, Screen};

use crate::link::memory::{all_memory, register};

/// Messages of each way that a peer may send before it hears that some were taken.
pub(crate) const SLOTS: u32 = 16;
/// Bytes of a message with its data.
pub(crate) const SLOT_BYTES: usize = 8 << 10;
/// Bytes that go inline.
pub(crate) const INLINE: usize = 112;
/// Entries of the completion queue, where the device has as many.
const CQE: u32 = 32 << 10;
/// Slots are of both ways. The receives that need no credit are two grants of credits for each way, and one for good measure.
pub(crate) const SIZES: QueueSizes =
    QueueSizes { slots: 2 * SLOTS, spare: 5, accesses: 16, slot_bytes: SLOT_BYTES, ring_bytes: 64 << 10 };

/// Sets a device up, and listens at a port for requests that pass the screen; at any with port 0.
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
    };
    Nic::open(device, &config, &screen)
}

/// Makes memory of the user's reachable for an operation.
pub(crate) fn reach(nic: &Nic, address: u64, len: u64, access: Access) -> Result<Registration> {
    match nic.registrations.all(access) {
        Some(all) => Ok(all),
        None => Ok(Registration::Own(Arc::new(register(nic.pd(), address, len, access)?))),
    }
}
