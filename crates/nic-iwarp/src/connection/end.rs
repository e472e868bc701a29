//! Why a connection ends, and what that means to the program.

use iwarp::rx::Failure;
use iwarp::terminate::{Terminate, TerminateCode};
use rustix::io::Errno;
use verbs::{AsyncEvent, CmFailure, WcStatus};

/// Why a connection ends.
#[derive(Clone, Debug)]
pub(crate) enum End {
    /// This side's program wants it.
    Asked,
    /// The peer has closed it in order.
    Closed,
    /// The peer has closed it in the middle, or it broke.
    Broken(Errno),
    /// The peer tells why.
    Terminated(Terminate),
    /// The peer broke a rule; it is told by the machine.
    Violation(Failure),
    /// The receive that a message of the peer took cannot be used.
    BadReceive,
    /// The memory that this request fetches into cannot be used. The peer has answered, so what stood before it has arrived.
    BadSink(u64),
    /// A request of this side cannot be carried out, for a reason of this side.
    Local(u64, WcStatus),
    /// The peer does not begin.
    Overdue,
    /// The completion queue overran.
    Overrun,
}

impl End {
    /// Whether the peer is to hear of it, and of what, if the machine does not know yet.
    pub(crate) fn last_words(&self) -> Option<Option<TerminateCode>> {
        match self {
            // Nobody hears it.
            Self::Closed | Self::Broken(_) | Self::Terminated(_) => None,
            Self::BadReceive => Some(Some(TerminateCode::STREAM_CATASTROPHIC)),
            Self::BadSink(_) | Self::Local(..) | Self::Overrun => {
                Some(Some(TerminateCode::RDMAP_CATASTROPHIC))
            }
            Self::Asked | Self::Violation(_) | Self::Overdue => Some(None),
        }
    }

    /// What the completion of the receive says that the message under way has taken.
    pub(crate) fn of_receive(&self) -> WcStatus {
        match self {
            Self::BadReceive => WcStatus::LocProtErr,
            Self::Violation(Failure { terminate }) if terminate.code == TerminateCode::UNTAGGED_TOO_LONG => {
                WcStatus::LocLenErr
            }
            _ => WcStatus::WrFlushErr,
        }
    }

    /// What the program is told beside the completions.
    pub(crate) fn async_event(&self, qp_num: u32) -> Option<AsyncEvent> {
        match self {
            Self::Violation(Failure { terminate }) if terminate.code.is_protection() => {
                Some(AsyncEvent::QpAccessError { qp_num })
            }
            Self::Violation(Failure { terminate }) | Self::Terminated(terminate) => {
                Some(AsyncEvent::QpFatal { qp_num, why: terminate.code.name() })
            }
            _ => None,
        }
    }

    /// Why it ended, for a connection that the program has not been told of.
    pub(crate) fn before_it_began(&self) -> CmFailure {
        match self {
            Self::Overdue => CmFailure::TimedOut,
            Self::Violation(failure) => CmFailure::Protocol(failure.to_string()),
            Self::Terminated(terminate) => CmFailure::Protocol(terminate.code.to_string()),
            _ => CmFailure::PeerGone,
        }
    }
}
