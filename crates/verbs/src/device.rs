//! [`Device`]: an opened NIC, and where everything begins.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{Host, Source, Time, Wakes};

use crate::provider::DeviceOps;
use crate::{Buf, Cm, CompChannel, Cq, DeviceAttr, Error, Pd, Result};

/// Something that happened to an object outside of any request (`ibv_async_event`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A completion queue overran.
    CqError {
        /// [`Cq::id`].
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
    /// A queue pair of several rails ([`crate::rails`]) has lost one, and goes on with the others.
    RailDown {
        /// [`crate::Qp::num`].
        qp_num: u32,
        /// [`Device::name`] of the rail.
        rail: Arc<str>,
    },
    /// It has the rail back, and uses it again.
    RailUp {
        /// [`crate::Qp::num`].
        qp_num: u32,
        /// [`Device::name`] of the rail.
        rail: Arc<str>,
    },
}

/// An opened NIC (`ibv_context`); cheap to clone, closed with its last object.
#[derive(Clone)]
pub struct Device {
    ops: Arc<dyn DeviceOps>,
    name: Arc<str>,
}

impl std::fmt::Debug for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Device({})", self.name())
    }
}

impl Device {
    /// The device that `ops` implements; called by `fabric`.
    pub fn new(ops: Arc<dyn DeviceOps>) -> Self {
        let name = ops.name().into();
        Self { ops, name }
    }

    /// This device under the name by which it was opened, with its options; called by `fabric`.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Its name, as one would give it to open it again.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The machine that it is part of.
    pub fn host(&self) -> &Host {
        self.ops.host()
    }

    /// What it can do.
    pub fn attr(&self) -> &DeviceAttr {
        self.ops.attr()
    }

    /// A new protection domain (`ibv_alloc_pd`).
    ///
    /// # Errors
    /// [`Error::Limit`] when there are too many.
    pub fn alloc_pd(&self) -> Result<Pd> {
        Ok(Pd::new(self.ops.alloc_pd()?, self.clone()))
    }

    /// `len` bytes of NIC memory, zeroed (`ibv_alloc_dm`), freed with the last handle or region.
    ///
    /// # Errors
    /// [`Error::Limit`] beyond what is left, [`Error::Unsupported`] where there is none.
    pub fn alloc_dm(&self, len: usize) -> Result<Buf> {
        self.ops.alloc_dm(len)
    }

    /// A completion queue of at least `cqe` entries (`ibv_create_cq`).
    ///
    /// # Errors
    /// [`Error::Limit`] or [`Error::Invalid`] for a size that is too large or zero.
    pub fn create_cq(&self, cqe: u32) -> Result<Cq> {
        self.check_cqe(cqe)?;
        Ok(Cq::new(self.ops.create_cq(cqe, None)?, self.clone()))
    }

    /// A completion queue that reports to `channel` once armed by [`Cq::req_notify`].
    ///
    /// # Errors
    /// As [`Device::create_cq`]; [`Error::Foreign`] for another device's channel.
    pub fn create_cq_with(&self, cqe: u32, channel: &CompChannel) -> Result<Cq> {
        self.check_cqe(cqe)?;
        self.check_own(channel.device(), "the completion channel")?;
        Ok(Cq::new(self.ops.create_cq(cqe, Some(channel))?, self.clone()))
    }

    pub(crate) fn check_cqe(&self, cqe: u32) -> Result<()> {
        if cqe == 0 {
            return Err(Error::Invalid("a completion queue needs at least one entry".into()));
        }
        Error::check_limit("entries of the completion queue", cqe.into(), self.attr().max_cqe.into())
    }

    /// Refuses `what` if it is another device's.
    pub(crate) fn check_own(&self, other: &Self, what: &'static str) -> Result<()> {
        if Arc::ptr_eq(&self.ops, &other.ops) { Ok(()) } else { Err(Error::Foreign { what }) }
    }

    /// A channel on which one can sleep for completions (`ibv_create_comp_channel`).
    ///
    /// # Errors
    /// [`Error::System`] when no file descriptor can be had.
    pub fn create_comp_channel(&self) -> Result<CompChannel> {
        Ok(CompChannel::new(self.ops.create_comp_channel()?, self.clone()))
    }

    /// A channel for connections (`rdma_create_event_channel`).
    ///
    /// # Errors
    /// [`Error::System`] when no file descriptor can be had.
    pub fn create_cm(&self) -> Result<Cm> {
        Ok(Cm::new(self.ops.create_cm()?, self.clone()))
    }

    /// The next asynchronous event, if there is one (`ibv_get_async_event`, not blocking).
    pub fn poll_async_event(&self) -> Option<AsyncEvent> {
        self.ops.poll_async_event()
    }

    /// Waits for an asynchronous event (`ibv_get_async_event`). What only whoever polls or asks finds out, such as an overrun on
    /// some devices, is not waited for: another thread polls, or nobody learns of it.
    ///
    /// # Errors
    /// [`Error::TimedOut`] when `deadline` passes first; [`Error::Forked`].
    pub fn get_async_event(&self, deadline: Option<Time>) -> Result<AsyncEvent> {
        self.ops.check()?;
        self.host()
            .wait("Device::get_async_event", self, deadline, || self.ops.poll_async_event())
            .ok_or(Error::TimedOut { call: "Device::get_async_event" })
    }

    /// A descriptor that is readable while an asynchronous event is pending; `None` in virtual time, and where the device has
    /// none.
    pub fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        self.ops.async_fd()
    }

    /// The implementation, for its own crate.
    pub fn ops(&self) -> &Arc<dyn DeviceOps> {
        &self.ops
    }

    /// The answer of a device that does not offer `what`.
    pub fn unsupported<T>(&self, what: &'static str) -> Result<T> {
        Err(Error::Unsupported { device: self.name().into(), what })
    }
}

/// Its asynchronous events.
impl Source for Device {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.ops.prepare_wait().into_iter().for_each(|wake| wakes.push(wake));
    }
}
