//! [`AsyncEvent`]: what happens to an object outside of any request.

use std::sync::Arc;

/// Something that happened to an object outside of any request (`ibv_async_event`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue overran.
    CqError {
        /// [`crate::Cq::id`].
        cq: u32,
    },
    /// A peer's request made this queue pair fail.
    QpAccessError {
        /// [`crate::Qp::num`].
        qp_num: u32,
    },
    /// The connection of this queue pair broke a rule of its protocol, or its peer says so; no request is to blame, so this
    /// is where the cause stands (`IBV_EVENT_QP_FATAL`).
    QpFatal {
        /// [`crate::Qp::num`].
        qp_num: u32,
        /// In the protocol's words.
        why: &'static str,
    },
    /// A shared receive queue fell below its limit; the limit is disarmed.
    SrqLimitReached {
        /// [`crate::Srq::id`].
        srq: u32,
    },
    /// A queue pair with a shared receive queue is in the error state, and every receive that it has taken is completed: the rest of
    /// its completions can be polled now (`IBV_EVENT_QP_LAST_WQE_REACHED`, IBA 11.6.3.1). Reported once; not for a queue pair that is
    /// destroyed first.
    LastWqeReached {
        /// [`crate::Qp::num`].
        qp_num: u32,
    },
    /// A queue pair of several rails (crate `nic-rails`) has lost one, and goes on with the others.
    RailDown {
        /// [`crate::Qp::num`].
        qp_num: u32,
        /// [`crate::Device::name`] of the rail.
        rail: Arc<str>,
    },
    /// It has the rail back, and uses it again.
    RailUp {
        /// [`crate::Qp::num`].
        qp_num: u32,
        /// [`crate::Device::name`] of the rail.
        rail: Arc<str>,
    },
}
