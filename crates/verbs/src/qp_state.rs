//! [`QpState`]: the states of a queue pair.

/// The state of a queue pair (IBA 10.3.1). Connecting moves it from `Init` through `ReadyToReceive` to `ReadyToSend`;
/// any failure, and disconnecting, to `Error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Nothing may be posted.
    Reset,
    /// Receives may be posted; created in this state.
    Init,
    /// Messages are accepted, but none may be sent: the passive side until the peer confirms.
    ReadyToReceive,
    /// Fully working.
    ReadyToSend,
    /// Outstanding and new requests are flushed.
    Error,
}
