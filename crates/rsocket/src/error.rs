//! [`Error`]: why a call on a socket failed.

use verbs::CmFailure;

/// The result of a call on a socket.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no connection (ENOTCONN).
    #[error("the socket is not connected; connect it first")]
    NotConnected,
    /// The socket is in a state that does not allow the call (EINVAL).
    #[error("the socket {0}")]
    WrongState(&'static str),
    /// The peer is gone without having ended the connection, or has ended it while there was something to send (ECONNRESET).
    #[error("the peer has ended the connection, or is gone")]
    Reset,
    /// This end has said that it sends nothing more (EPIPE).
    #[error("the socket was shut down for sending")]
    ShutDown,
    /// The peer violates the protocol (EPROTO).
    #[error("the peer violates the rsocket protocol: {0}")]
    Protocol(String),
    /// The peer has rejected the connection (ECONNREFUSED).
    #[error("the peer has rejected the connection")]
    Rejected,
    /// The connection was not established.
    #[error("{0}")]
    Unconnected(CmFailure),
    /// No mapping of the peer contains the offset (EFAULT).
    #[error("no mapping of the peer contains offset {0:#x}; the peer maps memory by riomap")]
    NoMapping(u64),
    /// All entries of the peer's table of mappings are in use (ENOMEM).
    #[error("the peer has no room for another mapping; it sets the number by RDMA_IOMAPSIZE")]
    NoIoMapEntry,
    /// The range was not mapped (EINVAL).
    #[error("this range was not mapped; pass the address and the length that were mapped")]
    NotMapped,
    /// The device refused something.
    #[error(transparent)]
    Device(#[from] verbs::Error),
}
