//! [`Transfer`] and [`Command`]: what may be asked of an interface, at once or when a counter comes to a threshold.

use crate::objects::handles::{CtHandle, EntryHandle, MdHandle};
use crate::objects::message::{AckReq, Action};
use crate::objects::process::Process;

/// Memory of a descriptor, from an offset on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// The descriptor.
    pub md: MdHandle,
    /// Bytes before it.
    pub offset: u64,
}

/// An operation on a target's memory: `PtlPut`, `PtlGet`, `PtlAtomic`, `PtlFetchAtomic`, `PtlSwap`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What to do there.
    pub action: Action,
    /// Where the data come from, for what brings some.
    pub put: Option<Local>,
    /// Where data go, for what fetches some.
    pub get: Option<Local>,
    /// Bytes.
    pub length: u64,
    /// What the initiator is told, of what fetches nothing.
    pub ack: AckReq,
    /// At whom.
    pub target: Process,
    /// In which portal table entry.
    pub pt_index: u32,
    /// By which an entry is chosen.
    pub match_bits: u64,
    /// Where in the entry's memory.
    pub remote_offset: u64,
    /// For events at the initiator.
    pub user_ptr: u64,
    /// For the event at the target.
    pub hdr_data: u64,
}

/// The value of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// What succeeded.
    pub success: u64,
    /// What failed.
    pub failure: u64,
}

/// What a counter may set off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    /// `PtlTriggeredPut` and the like.
    Transfer(Transfer),
    /// `PtlTriggeredCTInc`.
    CtInc(CtHandle, Count),
    /// `PtlTriggeredCTSet`.
    CtSet(CtHandle, Count),
    /// `PtlTriggeredMEAppend`: the entry has its handle already, and is put into its list.
    Append(EntryHandle),
    /// `PtlTriggeredMEUnlink`.
    Unlink(EntryHandle),
}
