//! Domains, regions, queues and queue pairs, as a NIC implements them.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{Span, Wake};

use crate::access::Access;
use crate::attr::{QpCap, SrqInit};
use crate::binding::MwKind;
use crate::error::{Error, Result};
use crate::memory::Buf;
use crate::qp_state::QpState;
use crate::wc::Wc;
use crate::wr::{RecvWr, RemoteAddr, SendWr};

/// A protection domain.
pub trait PdOps: Any + Send + Sync {
    /// Registers all of `buf`.
    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>>;
    /// See [`crate::Pd::reg_mr_at`].
    fn reg_mr_at(&self, _buf: &Buf, _addr: u64, _access: Access) -> Result<Box<dyn MrOps>> {
        Err(unsupported("the device", "regions at other addresses than those of their memory"))
    }
    /// See [`crate::Pd::reg_all`], whose contract the caller fulfils; `access` is within
    /// [`crate::DeviceAttr::implicit_mr`]. The region's address is 0.
    fn reg_all(&self, _access: Access) -> Result<Box<dyn MrOps>> {
        Err(unsupported("the device", "regions of all memory"))
    }
    /// See [`crate::Pd::alloc_mw`].
    fn alloc_mw(&self, _kind: MwKind) -> Result<Box<dyn MwOps>> {
        Err(no_windows("the device"))
    }
    /// See [`crate::Pd::create_qp`].
    fn create_qp(&self, parts: &QpParts) -> Result<Arc<dyn QpOps>>;
    /// See [`crate::Pd::create_srq`].
    fn create_srq(&self, _init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        Err(unsupported("the device", "shared receive queues"))
    }
}

/// A memory region; dropping it deregisters. Its keys never change, and its address only by [`MrOps::rereg`]: they are
/// queried once.
pub trait MrOps: Any + Send + Sync {
    /// See [`crate::Mr::lkey`].
    fn lkey(&self) -> u32;
    /// See [`crate::Mr::rkey`].
    fn rkey(&self) -> u32;
    /// See [`crate::Mr::addr`].
    fn addr(&self) -> u64;
    /// See [`crate::Pd::rereg_mr`]. Without a buffer, memory and address stay; with one, the address becomes the buffer's own. The
    /// domain may be another device's.
    fn rereg(&mut self, _pd: &Arc<dyn PdOps>, _buf: Option<&Buf>, _access: Access) -> Result<()> {
        Err(unsupported("the device", "regions that change"))
    }
    /// See [`crate::Mr::has_windows`].
    fn has_windows(&self) -> bool {
        false
    }
    /// See [`crate::Mr::dereg`].
    fn dereg(self: Box<Self>) -> Result<()>;
}

/// A memory window; dropping it ends all access by it.
pub trait MwOps: Any + Send + Sync {
    /// See [`crate::Mw::rkey`].
    fn rkey(&self) -> u32;
}

/// A completion queue.
pub trait CqOps: Any + Send + Sync {
    /// See [`crate::Cq::id`].
    fn id(&self) -> u32;
    /// See [`crate::Cq::cqe`].
    fn cqe(&self) -> u32;
    /// See [`crate::Cq::resize`]; within the device's limits.
    fn resize(&self, _cqe: u32) -> Result<()> {
        Err(unsupported("the device", "completion queues of another size"))
    }
    /// See [`crate::Cq::poll`].
    fn poll(&self, wcs: &mut [Wc]) -> Result<usize>;
    /// See [`crate::Cq::req_notify`].
    fn req_notify(&self, solicited_only: bool) -> Result<()>;
    /// Arranges that every completion from now on, and every write with [`crate::SendFlags::NOTIFY`], wakes a sleeper
    /// on the returned value. A NIC with an event count returns [`Wake::by`] and notifies it after publishing; hardware
    /// is armed here and returns its descriptor.
    fn prepare_wait(&self) -> Wake<'_>;
    /// As [`host::Source::progress_count`].
    fn progress_count(&self) -> u64 {
        0
    }
    /// As [`host::Source::begin_polling`]: threads that poll this queue.
    fn begin_polling(&self) {}
    /// As [`host::Source::end_polling`].
    fn end_polling(&self) {}
}

/// A completion channel.
pub trait CompChannelOps: Any + Send + Sync {
    /// See [`crate::CompChannel::fd`].
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// See [`crate::CompChannel::poll_event`].
    fn poll_event(&self) -> Option<u32>;
    /// As [`CqOps::prepare_wait`], for every event.
    fn prepare_wait(&self) -> Wake<'_>;
}

/// A queue pair; dropping the last reference that the API holds destroys it.
pub trait QpOps: Any + Send + Sync {
    /// See [`crate::Qp::num`].
    fn num(&self) -> u32;
    /// See [`crate::Qp::state`].
    fn state(&self) -> QpState;
    /// See [`crate::Qp::post_send`].
    fn post_send(&self, wr: &SendWr<'_>) -> Result<()>;
    /// See [`crate::Qp::post_sends`].
    fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        wrs.iter().enumerate().try_for_each(|(posted, wr)| self.post_send(wr).map_err(|e| (posted, e)))
    }
    /// See [`crate::Qp::post_recv`].
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()>;
    /// See [`crate::Qp::post_rest`].
    fn post_rest(&self, _wr: &RecvWr<'_>) -> Result<()> {
        Err(unsupported("the device", "receives of the beginning of a message"))
    }
    /// See [`crate::Qp::to_error`].
    fn to_error(&self);
    /// See [`crate::Qp::failure`].
    fn failure(&self) -> Option<String> {
        None
    }
    /// See [`crate::Qp::has_completed`].
    fn has_completed(&self) -> bool {
        false
    }
    /// See [`crate::Qp::set_rnr_retry`]; `retries` is within the limit.
    fn set_rnr_retry(&self, _retries: u8) -> Result<()> {
        Err(unsupported("the device", "a limit of retries"))
    }
    /// See [`crate::Qp::set_rnr_pause`]; `pause` is within the limit.
    fn set_rnr_pause(&self, _pause: Span) -> Result<()> {
        Err(unsupported("the device", "a pause between retries"))
    }
    /// See [`crate::Qp::map`]; `len` is not 0.
    fn map(&self, _remote: RemoteAddr, _len: usize) -> Result<Buf> {
        Err(unsupported("the device", "load and store on a peer's memory"))
    }
    /// See [`crate::Qp::notify`].
    fn notify(&self) -> Result<()> {
        Err(unsupported("the device", "notifying without a write"))
    }
}

/// A shared receive queue.
pub trait SrqOps: Any + Send + Sync {
    /// See [`crate::Srq::id`].
    fn id(&self) -> u32;
    /// See [`crate::Srq::post_recv`].
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()>;
    /// See [`crate::Srq::arm_limit`].
    fn arm_limit(&self, limit: u32) -> Result<()>;
    /// See [`crate::Srq::limit`].
    fn limit(&self) -> u32;
}

/// Parameters of a queue pair ([`crate::QpInit`]), with the NIC's own queues.
#[derive(Clone)]
pub struct QpParts {
    /// The completion queue of its send requests.
    pub send_cq: Arc<dyn CqOps>,
    /// The completion queue of its receives; may be the same.
    pub recv_cq: Arc<dyn CqOps>,
    /// Where it takes receives from, if given, instead of from a queue of its own.
    pub srq: Option<Arc<dyn SrqOps>>,
    /// Sizes.
    pub cap: QpCap,
    /// Whether every send request is signaled, regardless of its flags.
    pub sq_sig_all: bool,
    /// See [`crate::QpInit::mtu`].
    pub mtu: Option<u32>,
    /// See [`crate::QpInit::reported_qp_num`].
    pub reported_qp_num: Option<u32>,
    /// See [`crate::QpInit::split_receives`]; only if the device supports it.
    pub split_receives: bool,
}

/// Downcasts an object of the API to the NIC's own type.
///
/// # Errors
/// [`Error::Foreign`] that names `what`, for an object of another NIC.
pub fn downcast<T: Any + Send + Sync>(
    object: Arc<dyn Any + Send + Sync>,
    what: &'static str,
) -> Result<Arc<T>> {
    object.downcast().map_err(|_| Error::Foreign { what })
}

/// The error of a request that only devices with memory windows carry out, for a NIC without any.
#[cold]
pub fn no_windows(device: &str) -> Error {
    unsupported(device, "memory windows")
}

pub(crate) fn unsupported(device: &str, what: &'static str) -> Error {
    Error::Unsupported { device: device.into(), what }
}
