//! [`Gauge`]: a number that a process can tell of itself.

use crate::comm::communicator::Comm;
use crate::p2p::engine::Engine;
use crate::process::Process;
use crate::tool::{Carried, Traffic};

/// Something that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gauge {
    /// Receives that wait for a message.
    PostedReceives,
    /// Messages that wait for a receive.
    UnexpectedMessages,
    /// The most of them that there were at a time.
    UnexpectedMost,
    /// Messages that came before their receive.
    UnexpectedTotal,
    /// Entries of both queues that were looked at.
    MatchLooks,
    /// Operations that have begun and were not asked for yet.
    Operations,
    /// Processes that there is a connection to.
    Connections,
    /// Messages and accesses that wait for a connection, for credits, or for room.
    WaitingRequests,
    /// Times that memory was reached by the region of all memory or a kept one, so that nothing was registered.
    MemoryFound,
    /// Times that memory was registered for an operation.
    MemoryRegistered,
    /// Collective operations that were carried out by schedules of messages.
    CollectivesScheduled,
    /// Connect requests that were refused for want of a proof that they come from a known process.
    ConnectionsRefused,
}

impl Gauge {
    /// All of them.
    pub const ALL: [Self; 12] = [
        Self::PostedReceives,
        Self::UnexpectedMessages,
        Self::UnexpectedMost,
        Self::UnexpectedTotal,
        Self::MatchLooks,
        Self::Operations,
        Self::Connections,
        Self::WaitingRequests,
        Self::MemoryFound,
        Self::MemoryRegistered,
        Self::CollectivesScheduled,
        Self::ConnectionsRefused,
    ];

    /// Whether it counts what has happened, and does not measure what is.
    pub fn counts(self) -> bool {
        match self {
            Self::UnexpectedTotal
            | Self::MatchLooks
            | Self::MemoryFound
            | Self::MemoryRegistered
            | Self::CollectivesScheduled
            | Self::ConnectionsRefused => true,
            Self::PostedReceives
            | Self::UnexpectedMessages
            | Self::UnexpectedMost
            | Self::Operations
            | Self::Connections
            | Self::WaitingRequests => false,
        }
    }
}

impl Process {
    /// What a gauge shows now.
    pub fn gauge(&self, gauge: Gauge) -> u64 {
        self.core().with(|engine| engine.gauge(gauge))
    }

    /// What has left this process by now, to all others and itself.
    pub fn traffic(&self) -> Traffic {
        self.core().with(|engine| {
            let mut all = *engine.own();
            engine.transport.traffic().for_each(|(_, traffic)| all.add(traffic));
            all
        })
    }
}

impl Comm {
    /// What has left this process to each of its members, or of the other side's of an intercommunicator, by now and in all communicators.
    pub fn sent(&self) -> Vec<Carried> {
        self.traffic().iter().map(Traffic::all).collect()
    }

    /// What [`Comm::sent`] says, by protocol.
    pub fn traffic(&self) -> Vec<Traffic> {
        let rank = self.core().bootstrap().rank();
        let mut to = vec![Traffic::default(); self.peers().size() as usize];
        self.core().with(|engine: &mut Engine| {
            let own = (rank, engine.own());
            for (process, traffic) in engine.transport.traffic().chain([own]) {
                let member = self.peers().rank_of(process).and_then(|rank| to.get_mut(rank as usize));
                member.into_iter().for_each(|member| member.add(traffic));
            }
        });
        to
    }
}
