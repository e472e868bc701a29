//! [`Request`] and [`Answer`]: what interfaces say to each other, but for the data. Who carries them gives them bytes.

use crate::objects::atomic::{Datatype, Op, Operand};
use crate::objects::event::{Event, EventKind, Fail, List};
use crate::objects::process::Process;

/// What is to be done with the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the data that come with the request.
    Put,
    /// Read, and bring what was read with the answer.
    Get,
    /// Combine the data that come with what is there.
    Atomic(Op, Datatype),
    /// The former, and bring what was there before with the answer.
    FetchAtomic(Op, Datatype),
    /// Put the data that come in the place of what is there, as the operand says, and bring that with the answer.
    Swap(Op, Datatype, Operand),
}

impl Action {
    /// The operation and type of an atomic one.
    #[must_use]
    pub const fn atomic(&self) -> Option<(Op, Datatype)> {
        match *self {
            Self::Put | Self::Get => None,
            Self::Atomic(op, datatype) | Self::FetchAtomic(op, datatype) | Self::Swap(op, datatype, _) => {
                Some((op, datatype))
            }
        }
    }

    /// Whether data come with the request.
    #[must_use]
    pub const fn brings(&self) -> bool {
        !matches!(self, Self::Get)
    }

    /// Whether data go back with the answer.
    #[must_use]
    pub const fn fetches(&self) -> bool {
        matches!(self, Self::Get | Self::FetchAtomic(..) | Self::Swap(..))
    }

    /// What tells the target of it.
    pub(crate) const fn event(&self) -> EventKind {
        match self {
            Self::Put => EventKind::Put,
            Self::Get => EventKind::Get,
            Self::Atomic(..) => EventKind::Atomic,
            Self::FetchAtomic(..) | Self::Swap(..) => EventKind::FetchAtomic,
        }
    }
}

/// What the initiator wants to be told (`PTL_*ACK_REQ`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum AckReq {
    /// Nothing.
    #[default]
    None = 0,
    /// By an event, and counted.
    Full = 1,
    /// Counted.
    Counting = 2,
    /// Counted when the target has done with it, whatever that came to.
    Completed = 3,
}

/// An operation, as it goes to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The initiator's number for it, for the answer.
    pub operation: u64,
    /// What to do.
    pub action: Action,
    /// What the initiator wants to be told; of what fetches, everything.
    pub ack: AckReq,
    /// Who asks.
    pub initiator: Process,
    /// For which user.
    pub uid: u32,
    /// Of which portal table entry.
    pub pt_index: u32,
    /// By which an entry is chosen.
    pub match_bits: u64,
    /// Where in the entry's memory, if the initiator chooses.
    pub remote_offset: u64,
    /// Bytes.
    pub length: u64,
    /// For the target's event.
    pub hdr_data: u64,
}

impl Request {
    /// Whether the initiator waits for an answer.
    #[must_use]
    pub const fn is_answered(&self) -> bool {
        self.action.fetches() || !matches!(self.ack, AckReq::None)
    }

    /// The event of its delivery, without what the entry says.
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

/// What became of an operation, as it goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The initiator's number for it.
    pub operation: u64,
    /// Whether it failed.
    pub fail: Fail,
    /// The entry acknowledges nothing: the initiator is only to forget the operation.
    pub is_quiet: bool,
    /// Which list took it.
    pub list: List,
    /// Bytes moved.
    pub mlength: u64,
    /// Where in the entry's memory.
    pub offset: u64,
}
