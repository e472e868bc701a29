//! [`Effect`]: what a fault does, and where it can do it.

use host::Span;
use verbs::WcStatus;

use crate::operation::Operation;

/// What happens when a rule fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The request or receive ends with this status, and its queue pair goes to the error state.
    Status(WcStatus),
    /// The call fails with this error number of errno(3).
    Error(i32),
    /// An asynchronous event is reported; some also end queue pairs.
    Event(Injected),
    /// The connect request, or the event of a connection, is lost.
    Lose,
    /// The connect request is rejected.
    Reject,
    /// The request, the receive or the event of a connection waits for this long, and a random part of the second span.
    Delay(Span, Span),
    /// The process ends without a word to anybody (SIGKILL), so that its peers see it vanish.
    Vanish,
}

/// An asynchronous event that a fault reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injected {
    /// Port 1 has lost its link.
    PortError,
    /// Port 1 has its link again.
    PortActive,
    /// The GID of port 1's address vanishes from its table, or comes back.
    GidChange,
    /// The device has failed with all of its queue pairs. Nothing can be created afterwards.
    DeviceFatal,
    /// The queue pair fails, and the program gets the event.
    QpFatal,
    /// A queue pair with a shared receive queue fails, and the program gets the event after its receives.
    LastWqeReached,
    /// A shared receive queue with a limit reports that it has fallen below the limit.
    SrqLimit,
}

/// The statuses that a request can end with, by their names in C without `IBV_WC_`.
pub(crate) const STATUSES: [(&str, WcStatus); 10] = [
    ("LOC_LEN_ERR", WcStatus::LocLenErr),
    ("LOC_QP_OP_ERR", WcStatus::LocQpOpErr),
    ("LOC_PROT_ERR", WcStatus::LocProtErr),
    ("WR_FLUSH_ERR", WcStatus::WrFlushErr),
    ("REM_INV_REQ_ERR", WcStatus::RemInvReqErr),
    ("REM_ACCESS_ERR", WcStatus::RemAccessErr),
    ("REM_OP_ERR", WcStatus::RemOpErr),
    ("RETRY_EXC_ERR", WcStatus::RetryExcErr),
    ("RNR_RETRY_EXC_ERR", WcStatus::RnrRetryExcErr),
    ("GENERAL_ERR", WcStatus::GeneralErr),
];

/// The error numbers that a call can fail with.
pub(crate) const ERRORS: [(&str, i32); 6] = [
    ("ENOMEM", rustix::io::Errno::NOMEM.raw_os_error()),
    ("EAGAIN", rustix::io::Errno::AGAIN.raw_os_error()),
    ("EINVAL", rustix::io::Errno::INVAL.raw_os_error()),
    ("EIO", rustix::io::Errno::IO.raw_os_error()),
    ("EPERM", rustix::io::Errno::PERM.raw_os_error()),
    ("EMFILE", rustix::io::Errno::MFILE.raw_os_error()),
];

/// The events, by their names in C without `IBV_EVENT_`.
pub(crate) const EVENTS: [(&str, Injected); 7] = [
    ("PORT_ERR", Injected::PortError),
    ("PORT_ACTIVE", Injected::PortActive),
    ("GID_CHANGE", Injected::GidChange),
    ("DEVICE_FATAL", Injected::DeviceFatal),
    ("QP_FATAL", Injected::QpFatal),
    ("LAST_WQE_REACHED", Injected::LastWqeReached),
    ("SRQ_LIMIT", Injected::SrqLimit),
];

/// The units of time in rules, with their nanoseconds, the longest first.
const UNITS: [(&str, u64); 4] = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1000), ("ns", 1)];

/// A span of time as rules write it, such as `50us`.
pub(crate) fn span_text(span: Span) -> String {
    let ns = span.as_ns();
    let unit = UNITS.into_iter().find(|(_, unit)| ns.is_multiple_of(*unit)).filter(|_| ns != 0);
    let (name, unit) = unit.unwrap_or(("s", UNITS[0].1));
    format!("{}{name}", ns / unit)
}

/// Parses a span of time: a whole number and a unit. `None` for anything else, and for more than a day.
#[must_use]
pub fn parse_span(text: &str) -> Option<Span> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let (_, ns) = UNITS.into_iter().find(|(name, _)| *name == unit.trim())?;
    let ns = number.parse::<u64>().ok()?.checked_mul(ns)?;
    (ns <= 86_400 * UNITS[0].1).then(|| Span::from_ns(ns))
}

/// The name of a value in one of the tables.
fn name_in<T: PartialEq>(table: &[(&'static str, T)], value: &T) -> &'static str {
    table.iter().find(|(_, own)| own == value).map_or("?", |(name, _)| name)
}

impl Effect {
    /// Whether a rule on this operation can have it; else which operations can.
    pub(crate) fn check(self, on: Operation) -> Result<(), &'static str> {
        let (possible, can) = match self {
            Self::Status(WcStatus::RnrRetryExcErr | WcStatus::RetryExcErr) => {
                (on.is_request(), "this status needs on = send, write, read, atomic or request")
            }
            Self::Status(_) => {
                (on.is_post(), "a status needs on = send, write, read, atomic, request or recv")
            }
            Self::Error(_) => (
                on.creates() || on.is_post() || on == Operation::Connect,
                "an error needs an operation that is a call, such as reg_mr or create_qp",
            ),
            Self::Event(Injected::QpFatal | Injected::LastWqeReached) => (
                on.is_request() || on == Operation::Time,
                "an event of a queue pair needs on = send, write, read, atomic, request or time",
            ),
            Self::Event(_) => {
                (on.is_post() || on == Operation::Time, "an event needs a request, a receive or on = time")
            }
            Self::Lose => (
                on.is_cm_event() || on == Operation::Connect,
                "'lose' needs on = connect, connect_request, established or disconnected",
            ),
            Self::Reject => (
                matches!(on, Operation::Connect | Operation::ConnectRequest),
                "'reject' needs on = connect or connect_request",
            ),
            Self::Delay(..) => (
                on.is_post() || on.is_cm_event(),
                "a delay needs a request, a receive, connect_request, established or disconnected",
            ),
            Self::Vanish => (true, ""),
        };
        if possible { Ok(()) } else { Err(can) }
    }
}

impl std::fmt::Display for Effect {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Status(status) => write!(f, "status={}", name_in(&STATUSES, status)),
            Self::Error(errno) => write!(f, "error={}", name_in(&ERRORS, errno)),
            Self::Event(event) => write!(f, "event={}", name_in(&EVENTS, event)),
            Self::Lose => f.write_str("action=lose"),
            Self::Reject => f.write_str("action=reject"),
            Self::Vanish => f.write_str("action=vanish"),
            Self::Delay(span, jitter) if *jitter == Span::ZERO => write!(f, "delay={}", span_text(*span)),
            Self::Delay(span, jitter) => {
                write!(f, "delay={} jitter={}", span_text(*span), span_text(*jitter))
            }
        }
    }
}
