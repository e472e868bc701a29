//! [`Gauge`]: a measurement that a process reports about itself.

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gauge {
    /// Posted receives without a message.
    PostedReceives,
    /// Unexpected messages without a receive.
    UnexpectedMessages,
    /// The maximum number of unexpected messages at a time.
    UnexpectedMost,
    /// Messages that arrived before their receive was posted.
    UnexpectedTotal,
    /// Entries of both queues that were examined.
    MatchProbes,
    /// Started operations whose status was not read yet.
    Operations,
    /// Connected processes.
    Connections,
    /// Messages and accesses that wait for a connection, for credits, or for space.
    WaitingRequests,
    /// Times that memory was covered by the global or a cached registration, so that nothing was registered.
    MemoryFound,
    /// Times that memory was registered for an operation.
    MemoryRegistered,
    /// Collective operations that used schedules of messages.
    CollectivesScheduled,
    /// Connect requests that were rejected for lack of a proof that they come from a known process.
    ConnectionsRefused,
}

impl Gauge {
    /// All gauges, in order.
    pub const ALL: [Self; 12] = [
        Self::PostedReceives,
        Self::UnexpectedMessages,
        Self::UnexpectedMost,
        Self::UnexpectedTotal,
        Self::MatchProbes,
        Self::Operations,
        Self::Connections,
        Self::WaitingRequests,
        Self::MemoryFound,
        Self::MemoryRegistered,
        Self::CollectivesScheduled,
        Self::ConnectionsRefused,
    ];

    /// Whether it is a counter of events, and not a current level.
    pub fn is_counter(self) -> bool {
        match self {
            Self::UnexpectedTotal
            | Self::MatchProbes
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
