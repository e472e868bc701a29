//! [`Event`]: what an event queue tells, with the reference's numbers.

use crate::objects::atomic::{Datatype, Op};
use crate::objects::process::Process;

/// What happened (`PTL_EVENT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum EventKind {
    /// A get has read this memory.
    Get = 0,
    /// An entry was appended that a get before it matches.
    GetOverflow = 1,
    /// A put has written here.
    Put = 2,
    /// An entry was appended that a put before it matches.
    PutOverflow = 3,
    /// An atomic operation has worked here.
    Atomic = 4,
    /// An entry was appended that an atomic operation before it matches.
    AtomicOverflow = 5,
    /// An atomic operation has worked here and fetched what was there.
    FetchAtomic = 6,
    /// An entry was appended that a fetching atomic operation before it matches.
    FetchAtomicOverflow = 7,
    /// At the initiator: what was fetched is here.
    Reply = 8,
    /// At the initiator: the memory of the message may be used again.
    Send = 9,
    /// At the initiator: the target has done it.
    Ack = 10,
    /// Flow control has disabled a portal table entry.
    PtDisabled = 11,
    /// An entry is in its list.
    Link = 12,
    /// An entry has left its list by itself; no message uses it any more.
    AutoUnlink = 13,
    /// No header is left of the messages of an overflow entry that has left its list by itself.
    AutoFree = 14,
    /// A search has found something, or nothing.
    Search = 15,
}

impl EventKind {
    /// The one with this number.
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

    /// What tells that a message of this kind came before its entry.
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
    /// It did not.
    #[default]
    Ok = 0,
    /// The target cannot be reached (any more).
    Undeliverable = 1,
    /// No entry of the target's took it, or there was no room for it.
    Dropped = 2,
    /// The portal table entry at the target is disabled.
    PtDisabled = 3,
    /// The entry is not for this user.
    PermViolation = 4,
    /// The entry does not take this operation.
    OpViolation = 5,
    /// A search has found nothing.
    NoMatch = 6,
    /// The memory cannot be accessed.
    Segv = 7,
}

impl Fail {
    /// The one with this number.
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
    /// That of entries that wait for their messages.
    #[default]
    Priority = 0,
    /// That of entries for messages that no entry waits for.
    Overflow = 1,
}

/// An event. Which fields mean something depends on its kind, as the standard has it; others are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// Whether it failed.
    pub fail: Fail,
    /// Which list took the message.
    pub list: List,
    /// The address at which the message lies.
    pub start: u64,
    /// What the user gave with the entry or the operation.
    pub user_ptr: u64,
    /// What came with the message.
    pub hdr_data: u64,
    /// The message's bits.
    pub match_bits: u64,
    /// Bytes asked for.
    pub rlength: u64,
    /// Bytes moved.
    pub mlength: u64,
    /// The offset at the other side: at the target the one asked for, at the initiator the one used.
    pub remote_offset: u64,
    /// Who sent the message.
    pub initiator: Process,
    /// For which user.
    pub uid: u32,
    /// The portal table entry.
    pub pt_index: u32,
    /// What an atomic operation did.
    pub atomic: Option<(Op, Datatype)>,
}

impl Event {
    /// An event of a kind; all else is zero.
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
