//! Why a connection ends, and how the program learns of it.

use iwarp::rx::ProtocolViolation;
use iwarp::terminate::{Terminate, TerminateCode};
use rustix::io::Errno;
use verbs::{AsyncEvent, CmFailure, WcStatus};

/// Why a connection ends.
#[derive(Clone, Debug)]
pub(crate) enum EndReason {
    /// This side's program disconnects.
    Disconnected,
    /// The peer closed it in order.
    Closed,
    /// The peer closed it inside a message, or it broke.
    Broken(Errno),
    /// The peer sent a Terminate.
    Terminated(Terminate),
    /// The peer violated the protocol; the state machine sends it a Terminate.
    Violation(ProtocolViolation),
    /// The memory of the receive for the current message cannot be used.
    BadReceive,
    /// The memory that this request fetches into cannot be used. The peer has responded, so all earlier requests have
    /// arrived.
    BadSink(u64),
    /// A request of this side cannot be executed, for a local reason.
    Local(u64, WcStatus),
    /// The peer did not send its first message in time.
    FirstMessageTimeout,
    /// The completion queue overran.
    Overrun,
}

impl EndReason {
    /// Whether to send the peer a reason, and its code if the state machine has none yet.
    pub(crate) fn terminate_to_send(&self) -> Option<Option<TerminateCode>> {
        match self {
            // The peer does not read any more.
            Self::Closed | Self::Broken(_) | Self::Terminated(_) => None,
            Self::BadReceive => Some(Some(TerminateCode::STREAM_CATASTROPHIC)),
            Self::BadSink(_) | Self::Local(..) | Self::Overrun => {
                Some(Some(TerminateCode::RDMAP_CATASTROPHIC))
            }
            Self::Disconnected | Self::Violation(_) | Self::FirstMessageTimeout => Some(None),
        }
    }

    /// The completion status of the receive that the current message has consumed.
    pub(crate) fn receive_status(&self) -> WcStatus {
        match self {
            Self::BadReceive => WcStatus::LocProtErr,
            Self::Violation(ProtocolViolation { terminate })
                if terminate.code == TerminateCode::UNTAGGED_TOO_LONG =>
            {
                WcStatus::LocLenErr
            }
            _ => WcStatus::WrFlushErr,
        }
    }

    /// The asynchronous event that the program gets in addition to completions.
    pub(crate) fn async_event(&self, qp_num: u32) -> Option<AsyncEvent> {
        match self {
            Self::Violation(ProtocolViolation { terminate }) if terminate.code.is_protection() => {
                Some(AsyncEvent::QpAccessError { qp_num })
            }
            Self::Violation(ProtocolViolation { terminate }) | Self::Terminated(terminate) => {
                Some(AsyncEvent::QpFatal { qp_num, why: terminate.code.name() })
            }
            _ => None,
        }
    }

    /// The error for a connection whose establishment has not been reported to the program yet.
    pub(crate) fn connect_failure(&self) -> CmFailure {
        match self {
            Self::FirstMessageTimeout => CmFailure::TimedOut,
            Self::Violation(failure) => CmFailure::Protocol(failure.to_string()),
            Self::Terminated(terminate) => CmFailure::Protocol(terminate.code.to_string()),
            _ => CmFailure::PeerGone,
        }
    }
}
