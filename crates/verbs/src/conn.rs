//! Parameters of connections, what is known of their two ends, and why they did not come about.

use std::net::SocketAddr;

use host::Span;

use crate::attr::RNR_RETRY_FOREVER;

/// What the two ends agree on (`rdma_conn_param`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnParam {
    /// For the peer's eyes, up to [`crate::DeviceAttr::max_private_data`] bytes.
    pub private_data: Vec<u8>,
    /// The limit of retries for the peer's messages that find no receive posted here, 0 to 7; [`RNR_RETRY_FOREVER`] means none. The peer's
    /// program may set another limit by [`crate::Qp::set_rnr_retry`].
    pub rnr_retry: u8,
    /// How long the peer may take to answer.
    pub timeout: Span,
    /// Reads and atomics that the peer may have outstanding here.
    pub responder_resources: u8,
    /// Reads and atomics that this side will have outstanding there.
    pub initiator_depth: u8,
}

impl Default for ConnParam {
    /// No private data, retries for ever, 10 s, 16 reads each way.
    fn default() -> Self {
        Self {
            private_data: Vec::new(),
            rnr_retry: RNR_RETRY_FOREVER,
            timeout: Span::from_secs(10),
            responder_resources: 16,
            initiator_depth: 16,
        }
    }
}

impl ConnParam {
    /// The default with private data.
    pub fn with_private_data(bytes: impl Into<Vec<u8>>) -> Self {
        Self { private_data: bytes.into(), ..Self::default() }
    }
}

/// Reads and atomics that a side serves, and that it will have outstanding: what its program said in its [`ConnParam`], or, where
/// the protocol tells only that, what the two sides agreed on: what this side may use there, and what it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// [`ConnParam::responder_resources`].
    pub responder_resources: u8,
    /// [`ConnParam::initiator_depth`].
    pub initiator_depth: u8,
}

impl Depths {
    /// What these parameters say.
    pub fn of(param: &ConnParam) -> Self {
        let ConnParam { responder_resources, initiator_depth, .. } = *param;
        Self { responder_resources, initiator_depth }
    }
}

/// The two ends of a connection (`rdma_get_local_addr(3)`, `rdma_get_peer_addr(3)`), and what the other one said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnInfo {
    /// This end's address: on the passive side the one that was connected to.
    pub local: SocketAddr,
    /// The other end's: on the active side the one that was connected to. On the passive side its port tells connections apart,
    /// and is none to connect to; it is 0 where none was free.
    pub peer: SocketAddr,
    /// The other end's depths, where the protocol tells them.
    pub depths: Option<Depths>,
    /// The number of the other end's queue pair, where the protocol carries it.
    pub qp_num: Option<u32>,
    /// The other end's [`ConnParam::rnr_retry`], where the protocol carries it; at most [`RNR_RETRY_FOREVER`].
    pub rnr_retry: Option<u8>,
}

impl ConnInfo {
    /// The two addresses, without anything that the other end has sent.
    pub fn of_ends(local: SocketAddr, peer: SocketAddr) -> Self {
        Self { local, peer, depths: None, qp_num: None, rnr_retry: None }
    }
}

/// Why a connection did not come about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CmFailure {
    /// Nobody listens at the address.
    #[error("nobody listens at {0}; is the peer running, and is the port right?")]
    Refused(SocketAddr),
    /// The address cannot be reached.
    #[error("{0} cannot be reached: {1}")]
    Unreachable(SocketAddr, String),
    /// The peer did not answer in time.
    #[error("the peer did not answer within the time-out")]
    TimedOut,
    /// The peer broke the connection protocol, or speaks another version of it.
    #[error("the peer does not speak this protocol: {0}")]
    Protocol(String),
    /// The peer went away in the middle.
    #[error("the peer went away during the set-up")]
    PeerGone,
    /// One of the sides has not enough of something, such as descriptors.
    #[error("{0}")]
    Shortage(String),
}
