//! [`Gauge`]: a number that a process can tell of itself.

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
