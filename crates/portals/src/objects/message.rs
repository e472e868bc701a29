//! [`Request`] and [`Answer`]: headers of the messages between interfaces. `link` encodes them and
//! transports the data.

use crate::objects::atomic::{Datatype, Op, Operand};
use crate::objects::event::{Event, EventKind, Fail, List};
use crate::objects::process::Process;

/// The operation on the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the data of the request.
    Put,
    /// Read, and return the data with the answer.
    Get,
    /// Combine the data of the request with the memory.
    Atomic(Op, Datatype),
    /// As `Atomic`, and return the previous contents with the answer.
    FetchAtomic(Op, Datatype),
    /// Replace the memory by the data of the request, subject to the operand, and return the previous
    /// contents with the answer.
    Swap(Op, Datatype, Operand),
}

impl Action {
    /// The operation and type of an atomic action.
    #[must_use]
    pub const fn atomic(&self) -> Option<(Op, Datatype)> {
        match *self {
            Self::Put | Self::Get => None,
            Self::Atomic(op, datatype) | Self::FetchAtomic(op, datatype) | Self::Swap(op, datatype, _) => {
                Some((op, datatype))
            }
        }
    }

    /// Whether the request carries data.
    #[must_use]
    pub const fn brings(&self) -> bool {
        !matches!(self, Self::Get)
    }

    /// Whether the answer carries data.
    #[must_use]
    pub const fn fetches(&self) -> bool {
        matches!(self, Self::Get | Self::FetchAtomic(..) | Self::Swap(..))
    }

    /// The kind of its event at the target.
    pub(crate) const fn event(&self) -> EventKind {
        match self {
            Self::Put => EventKind::Put,
            Self::Get => EventKind::Get,
            Self::Atomic(..) => EventKind::Atomic,
            Self::FetchAtomic(..) | Self::Swap(..) => EventKind::FetchAtomic,
        }
    }
}

/// Which acknowledgement the initiator requests (`PTL_*ACK_REQ`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AckReq {
    /// None.
    #[default]
    None = 0,
    /// An event, and counted.
    Full = 1,
    /// Counted.
    Counting = 2,
    /// Counted when the target has completed the operation, whether or not it succeeded.
    Completed = 3,
}

/// An operation, as sent to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The initiator's number for it, repeated by the answer.
    pub operation: u64,
    /// What to do.
    pub action: Action,
    /// Which acknowledgement the initiator requests; fetching actions always get a full one.
    pub ack: AckReq,
    /// The process that sent it.
    pub initiator: Process,
    /// The initiator's user.
    pub uid: u32,
    /// The target's portal table entry.
    pub pt_index: u32,
    /// Match bits that select the list entry.
    pub match_bits: u64,
    /// Byte offset in the entry's memory, unless the target manages offsets.
    pub remote_offset: u64,
    /// Bytes.
    pub length: u64,
    /// Reported by the target's event.
    pub hdr_data: u64,
}

impl Request {
    /// Whether the initiator waits for an answer.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        self.action.fetches() || !matches!(self.ack, AckReq::None)
    }

    /// The event of its delivery, without the fields that the entry determines.
    pub(crate) const fn event(&self) -> Event {
        Event {
            hdr_data: self.hdr_data,
            match_bits: self.match_bits,
            rlength: self.length,
            remote_offset: self.remote_offset,
            initiator: self.initiator,
            uid: self.uid,
            pt_index: self.pt_index,
            atomic: self.action.atomic(),
            ..Event::new(self.action.event(), 0)
        }
    }
}

/// The result of an operation, as returned to the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The initiator's number for the operation.
    pub operation: u64,
    /// Whether and how it failed.
    pub fail: Fail,
    /// The entry suppresses acknowledgements: the initiator only releases the operation.
    pub is_quiet: bool,
    /// Which list matched it.
    pub list: List,
    /// Bytes moved.
    pub mlength: u64,
    /// The offset that was used in the entry's memory.
    pub offset: u64,
}
