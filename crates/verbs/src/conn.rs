//! Parameters of connections, information about both ends, and reasons for failure.

use std::net::SocketAddr;

use host::Span;

use crate::attr::RNR_RETRY_FOREVER;

/// Parameters that the two ends exchange (`rdma_conn_param`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnParam {
    /// Private data for the peer, up to [`crate::DeviceAttr::max_private_data`] bytes.
    pub private_data: Vec<u8>,
    /// The limit of retries for the peer's messages that find no receive posted here, 0 to 7; [`RNR_RETRY_FOREVER`]
    /// means no limit. The peer's program may set another limit by [`crate::Qp::set_rnr_retry`].
    pub rnr_retry: u8,
    /// How long the peer may take to answer.
    pub timeout: Span,
    /// Reads and atomics that the peer may have outstanding here.
    pub responder_resources: u8,
    /// Reads and atomics that this side will have outstanding at the peer.
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

/// Reads and atomics that a side serves, and that it will have outstanding: the values of its program's [`ConnParam`].
/// If the protocol transmits only the negotiated values: what this side may have outstanding, and what it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depths {
    /// [`ConnParam::responder_resources`].
    pub responder_resources: u8,
    /// [`ConnParam::initiator_depth`].
    pub initiator_depth: u8,
}

impl Depths {
    /// The depths of these parameters.
    pub fn of(param: &ConnParam) -> Self {
        let ConnParam { responder_resources, initiator_depth, .. } = *param;
        Self { responder_resources, initiator_depth }
    }
}

/// The two ends of a connection (`rdma_get_local_addr(3)`, `rdma_get_peer_addr(3)`), and the parameters received from
/// the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnInfo {
    /// The address of this end; on the passive side the address that was connected to.
    pub local: SocketAddr,
    /// The address of the peer; on the active side the address that was connected to. On the passive side its port
    /// distinguishes connections and cannot be connected to; it is 0 if none was free.
    pub peer: SocketAddr,
    /// The peer's depths, if the protocol transmits them.
    pub depths: Option<Depths>,
    /// The number of the peer's queue pair, if the protocol transmits it.
    pub qp_num: Option<u32>,
    /// The peer's [`ConnParam::rnr_retry`], if the protocol transmits it; at most [`RNR_RETRY_FOREVER`].
    pub rnr_retry: Option<u8>,
}

impl ConnInfo {
    /// The two addresses, without parameters of the peer.
    pub fn of_ends(local: SocketAddr, peer: SocketAddr) -> Self {
        Self { local, peer, depths: None, qp_num: None, rnr_retry: None }
    }
}

/// Why a connection was not established.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CmFailure {
    /// The address has no listener.
    #[error("{0} has no listener; is the peer running, and is the port right?")]
    Refused(SocketAddr),
    /// The address cannot be reached.
    #[error("{0} cannot be reached: {1}")]
    Unreachable(SocketAddr, String),
    /// The peer did not answer in time.
    #[error("the peer did not answer within the time-out")]
    TimedOut,
    /// The peer violated the connection protocol, or uses another version of it.
    #[error("the peer does not speak this protocol: {0}")]
    Protocol(String),
    /// The peer disappeared during the set-up.
    #[error("the peer went away during the set-up")]
    PeerGone,
    /// One of the sides lacks a resource, such as descriptors.
    #[error("{0}")]
    Shortage(String),
}
