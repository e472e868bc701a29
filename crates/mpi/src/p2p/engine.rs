//! [`Engine`]: MPI's point-to-point operations. It matches messages with receives, and moves data: short messages bring them
//! along, long ones are read by the receiver from the sender's memory.

mod cancel;
mod eager;
mod fragments;
mod operations;
mod receive;
mod rndv_get;
mod rndv_put;
mod rndv_shm;
mod send;
mod tasks;

use host::{Host, SlotKey, Step};
use pmi::profile::Traffic;
use verbs::{SendOp, Sge};

use crate::coll::check::Ledger;
use crate::error::{Error, Result};
use crate::p2p::bsend_space::Spaces;
use crate::p2p::fragments::Fragments;
use crate::p2p::matching::{Envelope, Matching, Wanted};
use crate::p2p::operation::{Access, Announced, Answer, Body, Brought, Lent, Names, Operation, Table, Work};
use crate::p2p::over_portals::{self, Portals, Started};
use crate::p2p::proto::Proto;
use crate::p2p::shm_copy::Share;
use crate::p2p::wire::Message;
use crate::peers::connection::Received;
use crate::peers::transport::{Event, HeldAt, Transport};
use crate::status::Status;
use crate::tool::{Gauge, Happening, Watch};

pub(crate) use receive::{Claimed, Stored};
pub use send::Mode;
pub(crate) use tasks::Task;

/// How an operation has begun.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It is over already.
    Over(Status),
    /// It goes by this name.
    Under(SlotKey),
}

/// All point-to-point state of a process.
pub(crate) struct Engine {
    pub(crate) transport: Transport,
    /// What matches the messages of most contexts, if not this engine: then the transport is for the others, and for memory.
    pub(crate) portals: Option<Box<Portals>>,
    host: Host,
    rank: u32,
    matching: Matching<SlotKey, Body>,
    /// The first parts of long messages, which come by themselves.
    fragments: Fragments,
    operations: Table<Operation>,
    tasks: Vec<(SlotKey, Box<dyn Task>)>,
    /// A task may be able to go on.
    stirred: bool,
    /// Where buffered sends are counted.
    pub(crate) spaces: Spaces,
    /// An operation has come to its end since somebody last asked.
    news: bool,
    /// Messages that both sides copy, and for whose next piece a send queue had no room.
    stalled: Vec<SlotKey>,
    /// Long messages of this process's whose receivers have not told that they have them.
    lent: u32,
    /// What this process has sent to itself.
    own: Traffic,
    /// Entries of the matching queues that were looked at.
    looked: u64,
    /// Collective operations that were begun as schedules.
    pub(crate) scheduled: u64,
    /// What those were.
    ledger: Ledger,
    /// Sends of such that have failed, which perhaps nobody receives.
    abandoned: Vec<SlotKey>,
    /// What has happened, while a tool wants to hear of it.
    pub(crate) watch: Option<Box<Watch>>,
    /// Receives that began with a look at what their source has stored, and at nothing else.
    hasty: u32,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({:?})", self.transport)
    }
}

impl Engine {
    /// An engine of process `rank`.
    pub(crate) fn new(host: &Host, rank: u32, transport: Transport, portals: Option<Portals>) -> Self {
        Self {
            transport,
            portals: portals.map(Box::new),
            host: host.clone(),
            rank,
            matching: Matching::default(),
            fragments: Fragments::default(),
            operations: Table::default(),
            tasks: Vec::new(),
            stirred: false,
            spaces: Spaces::default(),
            news: false,
            stalled: Vec::new(),
            lent: 0,
            own: Traffic::default(),
            looked: 0,
            scheduled: 0,
            ledger: Ledger::default(),
            abandoned: Vec::new(),
            watch: None,
            hasty: 0,
        }
    }

    /// The machine that it runs on.
    pub(crate) fn host(&self) -> &Host {
        &self.host
    }

    /// What matches messages of a context, if not this engine.
    #[inline]
    fn portals(&mut self, context: u64) -> Option<&mut Portals> {
        self.portals.as_deref_mut().filter(|_| over_portals::carries(context))
    }

    /// Names what has begun over Portals, and ends what has come to its end by that.
    fn begun_by_portals(&mut self, started: Result<Started>) -> Result<Begun> {
        let begun = match started? {
            Started::Over(status) => Begun::Over(status.ok()?),
            Started::Under(name) => {
                let key = self.operations.insert(Operation::new(Work::Portals(name)));
                if let Some(portals) = &mut self.portals {
                    portals.belongs(name, key);
                }
                Begun::Under(key)
            }
        };
        self.end_of_portals();
        Ok(begun)
    }

    /// Ends what Portals has told the end of.
    fn end_of_portals(&mut self) {
        while let Some((key, status)) = self.portals.as_deref_mut().and_then(Portals::next_over) {
            self.end(key, status);
        }
    }

    /// Ends an operation that could not begin.
    fn started(&mut self, key: SlotKey, begin: impl FnOnce(&mut Self) -> Result<()>) -> Result<Begun> {
        match begin(self) {
            Ok(()) => Ok(Begun::Under(key)),
            Err(error) => {
                self.operations.remove(key);
                Err(error)
            }
        }
    }

    /// What this process has sent to itself.
    pub(crate) fn own(&self) -> &Traffic {
        &self.own
    }

    /// What a gauge shows now.
    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        let ((receives, messages), (kept, most)) = (self.matching.waiting(), self.matching.kept());
        match gauge {
            Gauge::PostedReceives => receives as u64,
            Gauge::UnexpectedMessages => messages as u64,
            Gauge::UnexpectedMost => most as u64,
            Gauge::UnexpectedTotal => kept,
            Gauge::MatchLooks => self.looked,
            Gauge::Operations => self.operations.iter().count() as u64,
            Gauge::Connections => self.transport.open() as u64,
            Gauge::WaitingRequests => self.transport.waiting() as u64,
            Gauge::MemoryFound => self.transport.reached[0],
            Gauge::MemoryRegistered => self.transport.reached[1],
            Gauge::CollectivesScheduled => self.scheduled,
            Gauge::ConnectionsRefused => self.transport.door().refused(),
        }
    }

    /// Messages of a communicator that is no more are of no use.
    pub(crate) fn forget(&mut self, context: u64) {
        match self.portals(context) {
            Some(portals) => portals.forget(context),
            None => {
                for (envelope, body) in self.matching.forget(context) {
                    if let Body::Announced(rts) = body {
                        self.fragments.give_up(envelope.source, rts.id);
                    }
                }
            }
        }
    }

    /// Whether an operation has come to its end since this was last asked.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Does all that can be done now; with `brief` what is likely, and all of it once in a while.
    pub(crate) fn progress(&mut self, brief: bool) {
        self.transport.poll(brief);
        if let Some(portals) = &mut self.portals {
            portals.poll();
        }
        self.react();
        // What tasks begin can end at once; nobody may go to sleep on that.
        while self.advance_tasks() {
            self.react();
        }
        let looked = self.matching.looked();
        if looked > 0 {
            self.looked += looked;
            self.host.charge_step(Step::Match, looked);
        }
    }

    fn react(&mut self) {
        self.end_of_portals();
        loop {
            while let Some(event) = self.transport.next_event() {
                match event {
                    Event::Received { from, what, place } => {
                        self.host.charge_step(Step::Event, 1);
                        self.received(from, &what, place);
                        self.transport.release(place, &what.message);
                    }
                    Event::Sent(key) => self.end(key, Status::empty()),
                    Event::Landed { from, place } => self.landed(from, place),
                    Event::Accessed(key) => {
                        self.accessed(key);
                        self.resume();
                    }
                    Event::Lost { process, error } => self.lose(process, &error),
                    Event::Left { process, error } => self.left(process, &error),
                }
            }
            let Some(number) = self.transport.next_stored_to() else { return };
            self.take_stored(number);
            self.transport.pump_stored(number);
        }
    }

    /// Something has happened that a tool may want to hear of.
    fn note(&mut self, what: Happening) {
        if let Some(watch) = &mut self.watch {
            watch.note(self.host.now(), what);
        }
    }

    fn received(&mut self, from: u32, what: &Received, place: HeldAt) {
        match what.message {
            Message::Eager { label, answer } => {
                let envelope = Envelope { source: from, label };
                let (buf, range) = self.transport.payload(what, place);
                let brought = Brought::Slot(buf, range.start, range.len());
                self.host.charge_copy(range.len() as u64);
                let answer = answer.map(Answer::Peer);
                if let Some(key) = self.matching.arrive(&envelope) {
                    let operation = self.operations.get_mut(key);
                    let status = operation.and_then(|operation| operation.take(&envelope, brought));
                    status.into_iter().for_each(|status| self.end(key, status));
                    self.answer(from, answer);
                } else if let Ok(bytes) = brought.to_vec() {
                    self.keep(envelope, Body::Here { bytes, answer });
                }
            }
            Message::Rts { label, id, at, frag_bytes, put } => {
                let (envelope, rts) =
                    (Envelope { source: from, label }, Announced { id, at, frag_bytes, put });
                if frag_bytes > 0 {
                    self.fragments.expect(from, id, frag_bytes);
                }
                match self.matching.arrive(&envelope) {
                    Some(key) => self.fetch(key, envelope, rts),
                    None => self.keep(envelope, Body::Announced(rts)),
                }
                if what.len > 0 {
                    self.fragment(from, id, what, place);
                }
            }
            Message::Frag { id } => self.fragment(from, id, what, place),
            Message::Cts { id, at, place } => self.cts(from, SlotKey::from_number(id), at, place),
            Message::Fin { id, ok } => {
                let key = SlotKey::from_number(id);
                if self.awaits(key, from) {
                    self.count_long(key, from, None);
                    let failed = || Status::failed(Error::lost(from, "it could not read the message"));
                    self.end(key, if ok { Status::empty() } else { failed() });
                }
            }
            Message::CancelReq { id } => self.give_back(from, id),
            Message::CancelRsp { id } => self.given_back(from, SlotKey::from_number(id)),
            Message::ShmCts { id, key, at, place, turn } => {
                let share = Share { place, turn, length: at.length };
                self.help(from, SlotKey::from_number(id), key, share, at);
            }
            Message::ShmFin { key, pieces } => self.copied(from, SlotKey::from_number(key), pieces),
            Message::CollCheck { label, called } => self.asked(from, label, called),
            Message::CollMismatch { label, called } => self.refused(from, label, called),
            // The transport handles these.
            Message::Credit | Message::Leave => {}
        }
    }

    /// Counts a long message at the first answer to its RTS, by the protocol that the answer shows, or else by the one of the RTS.
    fn count_long(&mut self, key: SlotKey, to: u32, shown: Option<Proto>) {
        if let Some(Operation { work: Work::Send { held: Some(held), .. }, .. }) =
            self.operations.get_mut(key)
            && let Some(proto) = held.uncounted.take()
        {
            self.transport.count(to, shown.unwrap_or(proto), held.buffer.len());
        }
    }

    /// Whether an operation is a send that a peer's answer ends. A name that is not that of a send to this peer is a lie, and means
    /// nothing; so is an end before this side's pieces are there.
    fn awaits(&mut self, key: SlotKey, from: u32) -> bool {
        self.operations.get_mut(key).is_some_and(|operation| match &operation.work {
            Work::Send { to, answered: true, held } => {
                *to == from && !held.as_ref().is_some_and(|held| held.is_copied_from())
            }
            _ => false,
        })
    }

    /// Begins to read or change a peer's memory by these requests.
    ///
    /// # Errors
    /// The process is lost, or cannot be reached.
    pub(crate) fn access(
        &mut self,
        process: u32,
        requests: &[(SendOp, Sge)],
        lent: Option<Lent>,
    ) -> Result<Begun> {
        self.host.charge_step(Step::Request, 1);
        let access = Access { process, left: requests.len(), lent };
        let key = self.operations.insert(Operation::new(Work::Access(Box::new(access))));
        self.started(key, |engine| {
            requests.iter().try_for_each(|(op, piece)| engine.transport.access(process, *op, *piece, key))
        })
    }

    /// One of the requests of an access is over, or one of the reads of a receive.
    fn accessed(&mut self, key: SlotKey) {
        let Some(Operation { work: Work::Access(access), .. }) = self.operations.get_mut(key) else {
            return self.fetched(key);
        };
        access.left -= 1;
        if access.left > 0 {
            return;
        }
        let mut status = Status::empty();
        if let Some(Lent { buffer, staging: Some(staging), is_read: true, .. }) = &access.lent {
            self.host.charge_copy(staging.len() as u64);
            if let Err(error) = buffer.store_from(staging, 0, staging.len()) {
                status = Status::failed(error.into());
            }
        }
        self.end(key, status);
    }

    /// Why nothing comes any more that is wanted, if so.
    #[inline]
    pub(crate) fn lost(&self, wanted: &Wanted) -> Option<Error> {
        wanted.source.and_then(|source| self.transport.lost(source)).cloned()
    }

    /// A process is lost: operations that name it fail, and receives from any source that it could have matched.
    fn lose(&mut self, process: u32, error: &Error) {
        self.note(Happening::Lost { process });
        self.give_up(process, error, |_, names| names.contain(process));
    }

    /// A process has left in order: operations that name it fail. Receives from any source fail when no other member is left.
    fn left(&mut self, process: u32, error: &Error) {
        self.give_up(process, error, |engine, names| {
            let is_gone = |other: u32| other != engine.rank && engine.transport.lost(other).is_some();
            names.contain(process) && names.all(is_gone)
        });
    }

    /// Ends operations that name a process, and receives from any source whose group is `hopeless`.
    fn give_up(&mut self, process: u32, error: &Error, hopeless: impl Fn(&Self, &Names) -> bool) {
        self.fragments.lose(process);
        let stuck = self.operations.iter().filter(|(_, operation)| operation.needs(process));
        let mut stuck: Vec<SlotKey> = stuck.map(|(key, _)| key).collect();
        let mut matching = std::mem::take(&mut self.matching);
        stuck.extend(matching.give_up(|wanted, key| {
            match wanted.source {
                Some(source) => source == process,
                None => self
                    .operations
                    .get_mut(*key)
                    .and_then(|operation| operation.names())
                    .is_some_and(|names| hopeless(self, &names)),
            }
        }));
        self.matching = matching;
        stuck.into_iter().for_each(|key| self.end(key, Status::failed(error.clone())));
    }

    /// An operation has come to its end.
    #[inline]
    fn end(&mut self, key: SlotKey, status: Status) {
        let Some(operation) = self.operations.get_mut(key) else { return };
        if let Work::Send { held: Some(_), .. } = operation.work {
            self.lent -= 1;
        }
        operation.work = Work::Over(status);
        (self.news, self.stirred) = (true, true);
        if let Some(share) = operation.buffered.take() {
            self.spaces.give_back(*share);
        }
        if operation.free {
            self.operations.remove(key);
        }
    }
}
