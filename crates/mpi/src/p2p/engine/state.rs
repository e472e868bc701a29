//! [`Engine`]: all point-to-point state of a process, and the steps that every protocol takes on it: how operations begin, are counted,
//! and end.

use host::{Host, SlotKey};
use pmi::profile::Traffic;

use crate::coll::check::Ledger;
use crate::error::{Error, Result};
use crate::p2p::bsend_space::Spaces;
use crate::p2p::fragments::Fragments;
use crate::p2p::matching::{Matching, Wanted};
use crate::p2p::operation::{Body, Operation, Table, Work};
use crate::p2p::over_portals::{self, Portals, Started};
use crate::p2p::proto::Proto;
use crate::p2p::wire::{Called, Label};
use crate::peers::transport::Transport;
use crate::status::Status;
use crate::tool::{Happening, Watch};

/// How an operation has begun.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It has ended already.
    Over(Status),
    /// It is under way, and has this key.
    Under(SlotKey),
}

/// An operation in several steps, as a collective operation, or a pair of a send and a receive. Each step begins when the operations
/// of the one before have ended; the engine calls [`Task::advance`] whenever an operation has ended.
pub(crate) trait Task: Send {
    /// Goes on as far as possible. Returns its status when it has ended.
    fn advance(&mut self, engine: &mut Engine) -> Option<Status>;

    /// Whether a message that it waits for may never come, so that [`Task::doubt`] should ask for it.
    fn may_doubt(&self) -> bool {
        false
    }

    /// Asks the processes whose messages it has waited for a long time.
    fn doubt(&self, _engine: &mut Engine) {}

    /// A process reports that it has called something else in an operation, or has given up.
    fn refuse(&mut self, _engine: &mut Engine, _from: u32, _label: Label, _called: Called) {}
}

/// All point-to-point state of a process.
pub(crate) struct Engine {
    pub(crate) transport: Transport,
    /// Matches the messages of most contexts in place of this engine, if present. The transport then carries only the messages of the
    /// other contexts, and accesses to memory.
    pub(crate) portals: Option<Box<Portals>>,
    pub(super) host: Host,
    pub(super) rank: u32,
    pub(super) matching: Matching<SlotKey, Body>,
    /// Where the fragments of long messages go.
    pub(super) fragments: Fragments,
    pub(super) operations: Table<Operation>,
    pub(super) tasks: Vec<(SlotKey, Box<dyn Task>)>,
    /// A task may be able to go on.
    pub(super) stirred: bool,
    /// Where buffered sends are counted.
    pub(crate) spaces: Spaces,
    /// An operation has ended since [`Engine::take_news`] was last called.
    pub(super) news: bool,
    /// Messages that both sides copy, and that wait for room in a send queue.
    pub(super) stalled: Vec<SlotKey>,
    /// Long messages that this process sends, and that have not ended.
    pub(super) lent: u32,
    /// Messages from this process to itself.
    pub(super) own: Traffic,
    /// Entries of the matching queues that were compared.
    pub(super) looked: u64,
    /// Collective operations that were begun as schedules.
    pub(crate) scheduled: u64,
    /// Their calls.
    pub(super) ledger: Ledger,
    /// Sends of failed ones, which perhaps nobody receives.
    pub(super) abandoned: Vec<SlotKey>,
    /// Happenings, while a tool watches.
    pub(crate) watch: Option<Box<Watch>>,
    /// Receives that began with a poll of their source's stored messages, and of nothing else.
    pub(super) hasty: u32,
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

    /// Portals, if it matches the messages of a context.
    #[inline]
    pub(super) fn portals(&mut self, context: u64) -> Option<&mut Portals> {
        self.portals.as_deref_mut().filter(|_| over_portals::carries(context))
    }

    /// Makes an operation of what has begun over Portals, and ends the operations that have ended by that.
    pub(super) fn begun_by_portals(&mut self, started: Result<Started>) -> Result<Begun> {
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

    /// Ends the operations whose end Portals has reported.
    pub(super) fn end_of_portals(&mut self) {
        while let Some((key, status)) = self.portals.as_deref_mut().and_then(Portals::next_over) {
            self.end(key, status);
        }
    }

    /// Begins an operation, and removes it if it fails to begin.
    pub(super) fn started(
        &mut self,
        key: SlotKey,
        begin: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Begun> {
        match begin(self) {
            Ok(()) => Ok(Begun::Under(key)),
            Err(error) => {
                self.operations.remove(key);
                Err(error)
            }
        }
    }

    /// Messages and bytes from this process to itself.
    pub(crate) fn own(&self) -> &Traffic {
        &self.own
    }

    /// Whether an operation has ended since this was last called.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Notes a happening, while a tool watches.
    pub(super) fn note(&mut self, what: Happening) {
        if let Some(watch) = &mut self.watch {
            watch.note(self.host.now(), what);
        }
    }

    /// Counts a long message at the first answer to its RTS, by the protocol that the answer shows, or else by the one of the RTS.
    pub(super) fn count_long(&mut self, key: SlotKey, to: u32, shown: Option<Proto>) {
        if let Some(Operation { work: Work::Send { held: Some(held), .. }, .. }) =
            self.operations.get_mut(key)
            && let Some(proto) = held.uncounted.take()
        {
            self.transport.count(to, shown.unwrap_or(proto), held.buffer.len());
        }
    }

    /// Whether an operation is a send that an answer from this peer may end. Any other key is a lie of the peer's, and so is
    /// an answer before this side has copied its pieces; both are ignored.
    pub(super) fn awaits(&mut self, key: SlotKey, from: u32) -> bool {
        self.operations.get_mut(key).is_some_and(|operation| match &operation.work {
            Work::Send { to, answered: true, held } => {
                *to == from && !held.as_ref().is_some_and(|held| held.is_copied_from())
            }
            _ => false,
        })
    }

    /// The error of a lost source, from which no message comes any more.
    #[inline]
    pub(crate) fn lost(&self, wanted: &Wanted) -> Option<Error> {
        wanted.source.and_then(|source| self.transport.lost(source)).cloned()
    }

    /// Ends an operation with this status.
    #[inline]
    pub(super) fn end(&mut self, key: SlotKey, status: Status) {
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
