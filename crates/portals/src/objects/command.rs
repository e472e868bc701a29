//! [`Transfer`] and [`Command`]: operations that an interface starts when called or when a counter reaches a
//! threshold (Portals 4.3, sections 3.15 and 3.16).

use crate::objects::handles::{CtHandle, EntryHandle, MdHandle};
use crate::objects::message::{AckReq, Action};
use crate::objects::process::Process;

/// Memory of a descriptor, starting at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MdAddr {
    /// The descriptor.
    pub md: MdHandle,
    /// Byte offset in its memory.
    pub offset: u64,
}

/// An operation on a target's memory: `PtlPut`, `PtlGet`, `PtlAtomic`, `PtlFetchAtomic`, `PtlSwap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What to do at the target.
    pub action: Action,
    /// The source of outgoing data, if the action sends data.
    pub put: Option<MdAddr>,
    /// The destination of fetched data, if the action fetches data.
    pub get: Option<MdAddr>,
    /// Bytes.
    pub length: u64,
    /// Which acknowledgement the initiator requests; ignored by actions that fetch.
    pub ack: AckReq,
    /// The target process.
    pub target: Process,
    /// The target's portal table entry.
    pub pt_index: u32,
    /// Match bits that select the list entry.
    pub match_bits: u64,
    /// Byte offset in the entry's memory.
    pub remote_offset: u64,
    /// Reported by the initiator's events.
    pub user_ptr: u64,
    /// Reported by the target's event.
    pub hdr_data: u64,
}

/// The value of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CtEvent {
    /// Successful operations or bytes.
    pub success: u64,
    /// Failed operations.
    pub failure: u64,
}

/// An operation that a counter can trigger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `PtlTriggeredPut` and the like.
    Transfer(Transfer),
    /// `PtlTriggeredCTInc`.
    CtInc(CtHandle, CtEvent),
    /// `PtlTriggeredCTSet`.
    CtSet(CtHandle, CtEvent),
    /// `PtlTriggeredMEAppend`: the entry already has its handle; it is appended to its list.
    Append(EntryHandle),
    /// `PtlTriggeredMEUnlink`.
    Unlink(EntryHandle),
}
