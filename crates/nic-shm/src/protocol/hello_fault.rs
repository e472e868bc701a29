//! Fault injection into hello packets of this process (feature `lab`, never in released builds); `lab` lists
//! the faults.

use std::sync::Mutex;

use nic_util::sync::unpoisoned;

/// A pseudo-offset that selects the packet's length.
pub(crate) const LENGTH: u64 = u64::MAX;

/// Offset, width in bytes, and forged value.
static FAULT: Mutex<Option<(u64, u8, u64)>> = Mutex::new(None);

pub(crate) fn set(fault: Option<(u64, u8, u64)>) {
    *unpoisoned(&FAULT) = fault;
}

/// Applies the fault to a packet that is a hello.
pub(crate) fn apply(packet: &mut Vec<u8>) {
    let is_hello = packet.get(6).is_some_and(|kind| matches!(kind, 1 | 2));
    let Some((offset, width, value)) = unpoisoned(&FAULT).filter(|_| is_hello) else { return };
    if offset == LENGTH {
        return packet.resize(value as usize % 4096, 0);
    }
    let (at, width) = (offset as usize, usize::from(width));
    if let Some(field) = packet.get_mut(at..at + width) {
        field.copy_from_slice(&value.to_le_bytes()[..width]);
    }
}
