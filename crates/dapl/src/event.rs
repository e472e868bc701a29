//! [`Event`]: what comes out of an event dispatcher, with the standard's numbers.

use std::net::SocketAddr;
use std::sync::Arc;

use verbs::WcStatus;

use crate::attr::{AsyncKind, Label};
use crate::cr::Cr;

/// Something that happened (`DAT_EVENT`).
#[derive(Debug)]
pub enum Event {
    /// A data transfer ended.
    Dto(DtoEvent),
    /// A bind ended.
    RmrBind {
        /// The remote region.
        rmr: Label,
        /// The bind's own number.
        cookie: u64,
        /// How it ended.
        status: DtoStatus,
    },
    /// Somebody wants to connect.
    ConnectionRequest(Box<RequestEvent>),
    /// A connection came about, did not, or ended.
    Connection {
        /// The endpoint.
        ep: Label,
        /// What happened.
        kind: ConnectionKind,
        /// What the peer said with it.
        private_data: Arc<[u8]>,
    },
    /// An error outside of any request.
    Async {
        /// The object that has it.
        object: Label,
        /// Which.
        kind: AsyncKind,
        /// The object's own reason, by the standard's number.
        reason: i32,
    },
    /// The program's own.
    Software(u64),
}

/// The end of a data transfer (`DAT_DTO_COMPLETION_EVENT_DATA`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DtoEvent {
    /// The endpoint.
    pub ep: Label,
    /// The request's own number.
    pub cookie: u64,
    /// How it ended.
    pub status: DtoStatus,
    /// Bytes transferred.
    pub length: u32,
    /// What it was.
    pub operation: Dto,
    /// The region that a received send with invalidate took away here.
    pub invalidated: Option<u32>,
}

/// A wish to connect (`DAT_CR_ARRIVAL_EVENT_DATA`). Dropped unanswered, it is rejected.
#[derive(Debug)]
pub struct RequestEvent {
    /// The service point.
    pub sp: Label,
    /// The address that it came to.
    pub local: SocketAddr,
    /// The qualifier that the service point was made with.
    pub conn_qual: u64,
    /// What can be accepted or rejected.
    pub cr: Cr,
}

/// What a transfer is (`DAT_DTOS`).
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
    /// A receive that took a remote region's rights away.
    ReceiveWithInvalidate = 4,
}

impl Dto {
    /// What a request was posted as, by its number.
    pub(crate) fn from_bits(bits: u64) -> Self {
        const POSTED: [Dto; 4] = [Dto::Send, Dto::RdmaWrite, Dto::RdmaRead, Dto::Receive];
        POSTED[bits as usize & 3]
    }
}

/// How a transfer ended (`DAT_DTO_COMPLETION_STATUS`).
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

/// What became of a connection (`DAT_CONNECTION_EVENT_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ConnectionKind {
    /// It is there.
    Established = 0x04001,
    /// The peer's program said no.
    PeerRejected = 0x04002,
    /// Nobody listens there, or what listens is something else.
    NonPeerRejected = 0x04003,
    /// It was accepted, and the peer went away meanwhile.
    AcceptCompletionError = 0x04004,
    /// It was closed, by either side.
    Disconnected = 0x04005,
    /// It broke: a request had failed.
    Broken = 0x04006,
    /// The peer did not answer in time.
    TimedOut = 0x04007,
    /// There is no way to the address.
    Unreachable = 0x04008,
}
