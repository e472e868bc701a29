//! [`Event`]: an entry of an event queue, with the reference's numbers (Portals 4.3, section 3.13).

use crate::objects::atomic::{Datatype, Op};
use crate::objects::process::Process;

/// What happened (`PTL_EVENT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// A get read this memory.
    Get = 0,
    /// An earlier get matches an entry that was appended now.
    GetOverflow = 1,
    /// A put wrote to this memory.
    Put = 2,
    /// An earlier put matches an entry that was appended now.
    PutOverflow = 3,
    /// An atomic operation changed this memory.
    Atomic = 4,
    /// An earlier atomic operation matches an entry that was appended now.
    AtomicOverflow = 5,
    /// An atomic operation changed this memory and fetched its previous contents.
    FetchAtomic = 6,
    /// An earlier fetching atomic operation matches an entry that was appended now.
    FetchAtomicOverflow = 7,
    /// At the initiator: the fetched data have arrived.
    Reply = 8,
    /// At the initiator: the message's memory may be reused.
    Send = 9,
    /// At the initiator: the target has completed the operation.
    Ack = 10,
    /// Flow control disabled a portal table entry.
    PtDisabled = 11,
    /// An entry was linked into its list.
    Link = 12,
    /// An entry was unlinked automatically; no message uses it any more.
    AutoUnlink = 13,
    /// An automatically unlinked overflow entry has no unexpected headers left.
    AutoFree = 14,
    /// A search has finished, with or without a match.
    Search = 15,
}

impl EventKind {
    /// The kind with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        let all = [
            Self::Get,
            Self::GetOverflow,
            Self::Put,
            Self::PutOverflow,
            Self::Atomic,
            Self::AtomicOverflow,
            Self::FetchAtomic,
            Self::FetchAtomicOverflow,
            Self::Reply,
            Self::Send,
            Self::Ack,
            Self::PtDisabled,
            Self::Link,
            Self::AutoUnlink,
            Self::AutoFree,
            Self::Search,
        ];
        all.get(usize::from(number)).copied()
    }

    /// The event kind for a message of this kind that arrived before its entry.
    #[must_use]
    pub const fn overflow(self) -> Self {
        match self {
            Self::Get => Self::GetOverflow,
            Self::Put => Self::PutOverflow,
            Self::Atomic => Self::AtomicOverflow,
            Self::FetchAtomic => Self::FetchAtomicOverflow,
            other => other,
        }
    }
}

/// Whether an operation failed, and how (`PTL_NI_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Fail {
    /// No failure.
    #[default]
    Ok = 0,
    /// The target is not reachable (any more).
    Undeliverable = 1,
    /// No entry of the target accepted it, or there was no room for it.
    Dropped = 2,
    /// The portal table entry at the target is disabled.
    PtDisabled = 3,
    /// The entry does not admit this user.
    PermViolation = 4,
    /// The entry does not permit this operation.
    OpViolation = 5,
    /// A search found nothing.
    NoMatch = 6,
    /// The memory cannot be accessed.
    Segv = 7,
}

impl Fail {
    /// The failure with this number.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        let all = [Self::Ok, Self::Undeliverable, Self::Dropped, Self::PtDisabled];
        let more = [Self::PermViolation, Self::OpViolation, Self::NoMatch, Self::Segv];
        all.into_iter().chain(more).find(|fail| *fail as u8 == number)
    }
}

/// One of the two lists of a portal table entry (`PTL_*_LIST`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum List {
    /// The entries that expect messages.
    #[default]
    Priority = 0,
    /// The entries for messages that match no priority entry.
    Overflow = 1,
}

/// An event. Its kind determines which fields are valid, as in the standard; the others are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Whether and how it failed.
    pub fail: Fail,
    /// Which list matched the message.
    pub list: List,
    /// The address of the message's data.
    pub start: u64,
    /// The user pointer given with the entry or the operation.
    pub user_ptr: u64,
    /// The header data sent with the message.
    pub hdr_data: u64,
    /// The match bits of the message.
    pub match_bits: u64,
    /// Bytes requested.
    pub rlength: u64,
    /// Bytes moved.
    pub mlength: u64,
    /// The offset at the peer: at the target the requested one, at the initiator the actual one.
    pub remote_offset: u64,
    /// The process that sent the message.
    pub initiator: Process,
    /// The initiator's user.
    pub uid: u32,
    /// The portal table entry.
    pub pt_index: u32,
    /// The operation and type of an atomic operation.
    pub atomic: Option<(Op, Datatype)>,
}

impl Event {
    /// An event of a kind; all other fields are zero.
    #[must_use]
    pub const fn new(kind: EventKind, user_ptr: u64) -> Self {
        Self {
            kind,
            fail: Fail::Ok,
            list: List::Priority,
            start: 0,
            user_ptr,
            hdr_data: 0,
            match_bits: 0,
            rlength: 0,
            mlength: 0,
            remote_offset: 0,
            initiator: Process { nid: 0, pid: 0 },
            uid: 0,
            pt_index: 0,
            atomic: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_have_their_numbers() {
        assert!((0..8).all(|n| Fail::from_number(n).is_some_and(|fail| fail as u8 == n)));
        assert_eq!(Fail::from_number(8), None);
        assert!((0..16).all(|n| EventKind::from_number(n).is_some_and(|kind| kind as u8 == n)));
        assert_eq!(EventKind::from_number(16), None);
    }
}
