//! [`Event`]: the events of a dispatcher, with the standard's numbers.

use std::net::SocketAddr;
use std::sync::Arc;

use verbs::WcStatus;

use crate::attr::{AsyncKind, Label};
use crate::cr::Cr;

/// An event (`DAT_EVENT`).
#[derive(Debug)]
pub enum Event {
    /// A data transfer completed.
    Dto(DtoEvent),
    /// A bind completed.
    RmrBind {
        /// The remote region.
        rmr: Label,
        /// The cookie of the bind.
        cookie: u64,
        /// Its status.
        status: DtoStatus,
    },
    /// A connection request arrived.
    ConnectionRequest(Box<RequestEvent>),
    /// A connection was established, failed, or ended.
    Connection {
        /// The endpoint.
        ep: Label,
        /// What happened.
        kind: ConnectionKind,
        /// The peer's private data.
        private_data: Arc<[u8]>,
    },
    /// An error outside of any request.
    Async {
        /// The object with the error.
        object: Label,
        /// The kind of error.
        kind: AsyncKind,
        /// The object's own reason, by the standard's number.
        reason: i32,
    },
    /// An event of the program itself.
    Software(u64),
}

/// The completion of a data transfer (`DAT_DTO_COMPLETION_EVENT_DATA`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DtoEvent {
    /// The endpoint.
    pub ep: Label,
    /// The cookie of the request.
    pub cookie: u64,
    /// Its status.
    pub status: DtoStatus,
    /// Bytes transferred.
    pub length: u32,
    /// The kind of transfer.
    pub operation: Dto,
    /// The region of this side that a received send with invalidate has invalidated.
    pub invalidated: Option<u32>,
}

/// A connection request (`DAT_CR_ARRIVAL_EVENT_DATA`). Dropped unanswered, it is rejected.
#[derive(Debug)]
pub struct RequestEvent {
    /// The service point.
    pub sp: Label,
    /// The address at which it arrived.
    pub local: SocketAddr,
    /// The qualifier of the service point.
    pub conn_qual: u64,
    /// The handle for accepting or rejecting it.
    pub cr: Cr,
}

/// The kind of a transfer (`DAT_DTOS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Dto {
    /// A send.
    Send = 0,
    /// An RDMA write.
    RdmaWrite = 1,
    /// An RDMA read.
    RdmaRead = 2,
    /// A receive.
    Receive = 3,
    /// A receive that invalidated a remote region.
    ReceiveWithInvalidate = 4,
}

impl Dto {
    /// The kind of a posted request, from its number.
    pub(crate) fn from_bits(bits: u64) -> Self {
        const POSTED: [Dto; 4] = [Dto::Send, Dto::RdmaWrite, Dto::RdmaRead, Dto::Receive];
        POSTED[bits as usize & 3]
    }
}

/// The status of a transfer (`DAT_DTO_COMPLETION_STATUS`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)] // the standard's names
pub enum DtoStatus {
    Success = 0,
    Flushed = 1,
    LocalLength = 2,
    LocalEp = 3,
    LocalProtection = 4,
    BadResponse = 5,
    RemoteAccess = 6,
    RemoteResponder = 7,
    Transport = 8,
    ReceiverNotReady = 9,
}

impl From<WcStatus> for DtoStatus {
    fn from(status: WcStatus) -> Self {
        match status {
            WcStatus::Success => Self::Success,
            WcStatus::WrFlushErr => Self::Flushed,
            WcStatus::LocLenErr => Self::LocalLength,
            WcStatus::LocQpOpErr => Self::LocalEp,
            WcStatus::LocProtErr => Self::LocalProtection,
            WcStatus::RemAccessErr => Self::RemoteAccess,
            WcStatus::RemInvReqErr | WcStatus::RemOpErr => Self::RemoteResponder,
            WcStatus::RnrRetryExcErr => Self::ReceiverNotReady,
            WcStatus::RetryExcErr => Self::Transport,
            _ => Self::BadResponse,
        }
    }
}

/// The kind of a connection event (`DAT_CONNECTION_EVENT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ConnectionKind {
    /// The connection is established.
    Established = 0x04001,
    /// The peer's program rejected it.
    PeerRejected = 0x04002,
    /// There is no listener at the address, or it is not a compatible one.
    NonPeerRejected = 0x04003,
    /// It was accepted, but the peer ended meanwhile.
    AcceptCompletionError = 0x04004,
    /// Either side closed it.
    Disconnected = 0x04005,
    /// It broke: a request has failed.
    Broken = 0x04006,
    /// The peer did not answer in time.
    TimedOut = 0x04007,
    /// The address cannot be reached.
    Unreachable = 0x04008,
}
