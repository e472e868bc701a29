//! [`AsyncEvent`]: events of objects that do not belong to a request.

use std::sync::Arc;

/// An event of an object that does not belong to a request (`ibv_async_event`).
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
    /// The connection of this queue pair violated a rule of its protocol, or its peer reports so. No request caused it,
    /// so the cause is reported here (`IBV_EVENT_QP_FATAL`).
    QpFatal {
        /// [`crate::Qp::num`].
        qp_num: u32,
        /// The cause, in the protocol's terms.
        why: &'static str,
    },
    /// A shared receive queue fell below its limit; the limit is disarmed.
    SrqLimitReached {
        /// [`crate::Srq::id`].
        srq: u32,
    },
    /// A queue pair with a shared receive queue is in the error state, and all receives that it has taken are
    /// completed: the rest of its completions can be polled now (`IBV_EVENT_QP_LAST_WQE_REACHED`, IBA 11.6.3.1).
    /// Reported once; not for a queue pair that is destroyed first.
    LastWqeReached {
        /// [`crate::Qp::num`].
        qp_num: u32,
    },
    /// A port has lost its link (`IBV_EVENT_PORT_ERR`).
    PortError {
        /// The number of the port, from 1.
        port: u8,
    },
    /// The port has its link again (`IBV_EVENT_PORT_ACTIVE`).
    PortActive {
        /// The number of the port, from 1.
        port: u8,
    },
    /// The GID table of a port has changed, as an address of its interface came or went (`IBV_EVENT_GID_CHANGE`).
    GidChange {
        /// The number of the port, from 1.
        port: u8,
    },
    /// The device has failed, and its queue pairs with it (`IBV_EVENT_DEVICE_FATAL`).
    DeviceFatal,
    /// A queue pair of several rails (crate `nic-rails`) has lost a rail, and continues with the others.
    RailDown {
        /// [`crate::Qp::num`].
        qp_num: u32,
        /// [`crate::Device::name`] of the rail.
        rail: Arc<str>,
    },
    /// The queue pair uses the rail again.
    RailUp {
        /// [`crate::Qp::num`].
        qp_num: u32,
        /// [`crate::Device::name`] of the rail.
        rail: Arc<str>,
    },
}
