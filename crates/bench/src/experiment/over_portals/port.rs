//! [`Port`]: what a small MPI needs of Portals: posted receives, eager sends, and messages that arrive before their
//! receive.
//!
//! Sends are puts from a region that is bound once. Receives are use-once entries; a message without a matching
//! receive is stored in the overflow list, and is copied when its receive is posted.

use std::collections::BTreeSet;

use portals::{
    AckReq, Action, Entry, EntryOptions, Event, EventKind, Fail, Limits, List, ListId, MdAddr, MdHandle,
    MdOptions, Offload, Process, PtOptions, Region, Source, Transfer,
};
use verbs::Buf;
use verbs::host::{Host, Step, Time};

use super::super::{Fault, Session};

/// The process of each node, and its portal table entry.
const PID: u16 = 1;
const PT: u32 = 0;
/// Events of the queue.
const SLOTS: usize = 512;
/// Overflow entries, and messages of the largest size for which each has room.
const OVERFLOWS: u64 = 2;
const ROOM: u64 = 16;
const ROOM_MIN: u64 = 64 << 10;
/// Distinguishes events of overflow entries from receive events.
const OVERFLOW: u64 = 1 << 63;

/// A process with its Portals interface and its posted receives.
pub(super) struct Port {
    pub(super) host: Host,
    pub(super) offload: Offload,
    memory: Buf,
    md: MdHandle,
    /// Node of rank 0.
    first: u32,
    /// The bytes before the overflow entries.
    bytes: u64,
    room: u64,
    largest: u64,
    /// Completed receives.
    done: BTreeSet<u64>,
    /// Messages that arrived before their receive.
    pub(super) unexpected: u64,
}

/// No room, or a handle that is wrong: a mistake of the experiment's.
pub(super) fn refused(error: portals::Error) -> Fault {
    Fault::Machine(format!("Portals: {error}"))
}

impl Port {
    /// Opens a process with `bytes` bytes for messages of up to `largest`; collective over all ranks.
    pub(super) fn open(
        session: &mut Session<'_>,
        ranks: u32,
        bytes: u64,
        largest: u64,
    ) -> Result<Self, Fault> {
        let room = (ROOM * largest).max(ROOM_MIN);
        let memory = Buf::alloc((bytes + OVERFLOWS * room) as usize)?;
        let own = std::slice::from_ref(&memory);
        let mut offload = Offload::open(session.device, PID, own, Limits::default(), SLOTS)?;
        offload.pt_alloc(PtOptions::empty(), Some(PT)).map_err(refused)?;
        let region = Region::new(memory.addr(), memory.len() as u64);
        let md = offload.md_bind(&region, MdOptions::EVENT_SEND_DISABLE).map_err(refused)?;
        let first = first_node(session, offload.process(), ranks)?;
        let host = session.host.clone();
        let (done, unexpected) = (BTreeSet::new(), 0);
        let mut port = Self { host, offload, memory, md, first, bytes, room, largest, done, unexpected };
        (0..OVERFLOWS).try_for_each(|which| port.append_overflow(which))?;
        Ok(port)
    }

    fn append_overflow(&mut self, which: u64) -> Result<(), Fault> {
        let region = Region::new(self.memory.addr() + self.bytes + which * self.room, self.room);
        let options = EntryOptions::OP_PUT | EntryOptions::MANAGE_LOCAL | EntryOptions::EVENT_LINK_DISABLE;
        let entry = Entry { min_free: self.largest, ..Entry::taking_all(region, options) };
        let place = ListId { pt_index: PT, list: List::Overflow };
        self.offload.append(place, &entry, OVERFLOW | which).map(drop).map_err(refused)
    }

    /// The entry of a receive into memory at an offset.
    pub(super) fn receive_entry(&self, at: u64, len: u64, bits: u64) -> Entry {
        let options = EntryOptions::OP_PUT
            | EntryOptions::USE_ONCE
            | EntryOptions::EVENT_LINK_DISABLE
            | EntryOptions::EVENT_UNLINK_DISABLE;
        let region = Region::new(self.memory.addr() + at, len);
        Entry { source: Source::ANY, match_bits: bits, ignore_bits: 0, ..Entry::taking_all(region, options) }
    }

    /// The list to which receives are appended.
    pub(super) const RECEIVES: ListId = ListId { pt_index: PT, list: List::Priority };

    /// Posts a receive with that name (`MPI_Irecv`), in one call (`PtlPost`).
    pub(super) fn post(&mut self, at: u64, len: u64, bits: u64, name: u64) -> Result<(), Fault> {
        self.enter();
        let entry = self.receive_entry(at, len, bits);
        self.offload.append(Self::RECEIVES, &entry, name).map(drop).map_err(refused)
    }

    /// Posts a receive in the three calls of Portals 3.3; the last is refused while there are unread events.
    pub(super) fn post_by_parts(&mut self, at: u64, len: u64, bits: u64, name: u64) -> Result<(), Fault> {
        self.enter();
        let entry = self.receive_entry(at, len, bits);
        let draft = self.offload.me_attach(Self::RECEIVES, &entry).map_err(refused)?;
        self.offload.md_attach(draft, &entry.region, name).map_err(refused)?;
        while self.offload.md_update(draft).map_err(refused)?.is_none() {
            while let Some((event, _)) = self.offload.eq_get() {
                self.heed(&event)?;
            }
        }
        Ok(())
    }

    /// Sends bytes at an offset to a rank (`MPI_Send`).
    pub(super) fn send(&mut self, to: u32, at: u64, len: u64, bits: u64) -> Result<(), Fault> {
        self.enter();
        self.put_ready(to, at, len, bits)
    }

    /// The put of a send from memory that was bound at the beginning.
    pub(super) fn put_ready(&mut self, to: u32, at: u64, len: u64, bits: u64) -> Result<(), Fault> {
        self.put(self.md, to, at, len, bits)
    }

    /// Releases a memory descriptor when its last send has left.
    pub(super) fn release(&mut self, md: MdHandle) -> Result<(), Fault> {
        let release = || match self.offload.md_release(md) {
            Err(portals::Error::InUse) => None,
            other => Some(other),
        };
        self.host.clone().poll("PtlMDRelease", None, release).unwrap_or(Ok(())).map_err(refused)
    }

    /// The put of a send from bound memory.
    pub(super) fn put(&mut self, md: MdHandle, to: u32, at: u64, len: u64, bits: u64) -> Result<(), Fault> {
        let transfer = Transfer {
            action: Action::Put,
            put: Some(MdAddr { md, offset: at }),
            get: None,
            length: len,
            ack: AckReq::None,
            target: Process::physical(self.first + to, PID.into()),
            pt_index: PT,
            match_bits: bits,
            remote_offset: 0,
            user_ptr: 0,
            hdr_data: 0,
        };
        self.offload.transfer(&transfer).map_err(refused)
    }

    /// Charges the time of an MPI call and its request.
    fn enter(&self) {
        self.host.charge_step(Step::Call, 1);
        self.host.charge_step(Step::Request, 1);
    }

    /// Waits until a receive has completed (`MPI_Wait`); returns the time at which its event was seen.
    pub(super) fn wait(&mut self, name: u64, deadline: Option<Time>) -> Result<Time, Fault> {
        loop {
            if self.done.remove(&name) {
                let seen = self.host.now();
                self.enter();
                return Ok(seen);
            }
            let (event, lost) = self.offload.eq_wait(deadline).ok_or(Fault::TimedOut("a message"))?;
            if lost || event.fail != Fail::Ok {
                return Err(Fault::Machine(format!("an event was lost, or says {:?}", event.fail)));
            }
            self.heed(&event)?;
        }
    }

    fn heed(&mut self, event: &Event) -> Result<(), Fault> {
        match event.kind {
            EventKind::Put if event.user_ptr & OVERFLOW == 0 => {
                self.done.insert(event.user_ptr);
            }
            EventKind::PutOverflow => {
                // The contents, which may have holes, are not checked; only the time of the copy is charged.
                self.host.charge_copy(event.mlength);
                self.unexpected += 1;
                self.done.insert(event.user_ptr);
            }
            EventKind::AutoFree => self.append_overflow(event.user_ptr & !OVERFLOW)?,
            _ => {}
        }
        Ok(())
    }
}

/// The node of rank 0, which sends it to the others; their nodes follow. Ranks of a simulated job are on consecutive
/// nodes.
fn first_node(session: &mut Session<'_>, own: Process, ranks: u32) -> Result<u32, Fault> {
    if session.is_client() {
        (1..ranks as usize).try_for_each(|rank| session.send_info_to(rank, &own.nid))?;
        return Ok(own.nid);
    }
    let first: u32 = session.receive_info()?;
    if first.checked_add(session.rank) != Some(own.nid) {
        return Err(Fault::Meaningless("a job on nodes that do not follow each other".into()));
    }
    Ok(first)
}
