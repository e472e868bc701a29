//! What a NIC implements. Each trait is one object of the API; its methods are called with arguments that the
//! API has checked against [`DeviceAttr`]. What a NIC does not override, it does not offer.
//!
//! Objects of the API come back as arguments ([`QpInit`] holds queues): a NIC finds its own behind them with
//! [`own`], which refuses those of another NIC.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{Host, Span, Wake};

pub use crate::numbers::Numbers;
use crate::{
    Access, AsyncEvent, Buf, CmEvent, CompChannel, ConnInfo, ConnParam, DeviceAttr, Error, Firmware, Pd, Qp,
    QpInit, QpState, RecvWr, RemoteAddr, Result, Screen, ScreenRequest, SendWr, SrqInit, Verdict, Wc,
};

/// An opened NIC.
pub trait DeviceOps: Any + Send + Sync {
    /// The name that opens it.
    fn name(&self) -> &str;
    /// The machine that it is part of.
    fn host(&self) -> &Host;
    /// What it can do; constant.
    fn attr(&self) -> &DeviceAttr;
    /// Whether this process may use it: [`Error::Forked`] in a child that inherited it.
    fn check(&self) -> Result<()> {
        Ok(())
    }
    /// See [`crate::Device::alloc_pd`].
    fn alloc_pd(&self) -> Result<Arc<dyn PdOps>>;
    /// See [`crate::Device::create_cq`].
    fn create_cq(&self, cqe: u32, channel: Option<&CompChannel>) -> Result<Arc<dyn CqOps>>;
    /// See [`crate::Device::create_cm`].
    fn create_cm(&self) -> Result<Arc<dyn CmOps>>;
    /// See [`crate::Device::create_comp_channel`].
    fn create_comp_channel(&self) -> Result<Arc<dyn CompChannelOps>> {
        Err(unsupported(self.name(), "completion channels"))
    }
    /// See [`crate::Device::alloc_dm`].
    fn alloc_dm(&self, _len: usize) -> Result<Buf> {
        Err(unsupported(self.name(), "NIC memory"))
    }
    /// Whether a connection's packets can have at most so many bytes of data ([`QpInit::mtu`]).
    fn check_mtu(&self, _mtu: u32) -> Result<()> {
        Err(unsupported(self.name(), "an MTU of a connection's own"))
    }
    /// See [`crate::Device::load`]; the domain is this device's, and [`DeviceAttr::firmware`] not `None`.
    fn load(&self, _pd: &Pd, _addr: SocketAddr, _firmware: Box<dyn Firmware>) -> Result<Box<dyn ProgramOps>> {
        Err(unsupported(self.name(), "code that the NIC runs"))
    }
    /// See [`crate::Device::poll_async_event`].
    fn poll_async_event(&self) -> Option<AsyncEvent> {
        None
    }
    /// As [`CqOps::prepare_wait`], for asynchronous events. Whoever waits for those of a device that gives nothing looks again
    /// every millisecond.
    fn prepare_wait(&self) -> Option<Wake<'_>> {
        None
    }
    /// See [`crate::Device::async_fd`].
    fn async_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// NIC memory that the processor cannot load from and store to ([`crate::DmAccess::Copy`]); [`Buf::by_copies`] makes a buffer
/// of it, and has checked the range.
pub trait DmOps: Send + Sync {
    /// Copies bytes in, to the NIC's own address `at` (`ibv_memcpy_to_dm(3)`).
    fn write(&self, at: u64, bytes: &[u8]);
    /// Copies bytes out (`ibv_memcpy_from_dm(3)`).
    fn read(&self, at: u64, bytes: &mut [u8]);
}

/// A protection domain.
pub trait PdOps: Any + Send + Sync {
    /// Registers all of `buf`.
    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>>;
    /// See [`crate::Pd::reg_all`], whose contract the caller keeps; `access` is within [`DeviceAttr::implicit_mr`]. The region's
    /// address is 0.
    fn reg_all(&self, _access: Access) -> Result<Box<dyn MrOps>> {
        Err(unsupported("the device", "regions of all memory"))
    }
    /// See [`crate::Pd::create_qp`].
    fn create_qp(&self, init: &QpInit) -> Result<Arc<dyn QpOps>>;
    /// See [`crate::Pd::create_srq`].
    fn create_srq(&self, _init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        Err(unsupported("the device", "shared receive queues"))
    }
}

/// A memory region; dropping it deregisters. Its keys and its address never change: they are asked for once.
pub trait MrOps: Any + Send + Sync {
    /// See [`crate::Mr::lkey`].
    fn lkey(&self) -> u32;
    /// See [`crate::Mr::rkey`].
    fn rkey(&self) -> u32;
    /// See [`crate::Mr::addr`].
    fn addr(&self) -> u64;
    /// See [`crate::Mr::dereg`].
    fn dereg(self: Box<Self>) -> Result<()>;
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
    /// Has every completion from now on, and every write that rings, wake whoever sleeps on what is returned. A NIC with a bell
    /// says [`Wake::by`] and rings it after publishing; hardware is armed here and gives its descriptor.
    fn prepare_wait(&self) -> Wake<'_>;
    /// As [`host::Source::stirs`].
    fn stirs(&self) -> u64 {
        0
    }
}

/// A completion channel.
pub trait CompChannelOps: Any + Send + Sync {
    /// See [`CompChannel::fd`].
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// See [`CompChannel::poll_event`].
    fn poll_event(&self) -> Option<u32>;
    /// As [`CqOps::prepare_wait`], for every event.
    fn prepare_wait(&self) -> Wake<'_>;
}

/// A queue pair; dropping the last reference that the API holds destroys it.
pub trait QpOps: Any + Send + Sync {
    /// See [`Qp::num`].
    fn num(&self) -> u32;
    /// See [`Qp::state`].
    fn state(&self) -> QpState;
    /// See [`Qp::post_send`].
    fn post_send(&self, wr: &SendWr<'_>) -> Result<()>;
    /// See [`Qp::post_sends`].
    fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        wrs.iter().enumerate().try_for_each(|(posted, wr)| self.post_send(wr).map_err(|e| (posted, e)))
    }
    /// See [`Qp::post_recv`].
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()>;
    /// See [`Qp::to_error`].
    fn to_error(&self);
    /// See [`Qp::has_completed`].
    fn has_completed(&self) -> bool {
        false
    }
    /// See [`Qp::set_rnr_retry`]; `retries` is within the limit.
    fn set_rnr_retry(&self, _retries: u8) -> Result<()> {
        Err(unsupported("the device", "a limit of retries"))
    }
    /// See [`Qp::set_rnr_pause`]; `pause` is within the limit.
    fn set_rnr_pause(&self, _pause: Span) -> Result<()> {
        Err(unsupported("the device", "a pause between retries"))
    }
    /// See [`Qp::map`]; `len` is not 0.
    fn map(&self, _remote: RemoteAddr, _len: usize) -> Result<Buf> {
        Err(unsupported("the device", "load and store on a peer's memory"))
    }
    /// See [`Qp::ring`].
    fn ring(&self) -> Result<()> {
        Err(unsupported("the device", "ringing without a write"))
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

/// A channel of connection events.
pub trait CmOps: Any + Send + Sync {
    /// See [`crate::Cm::listen`] and [`crate::Cm::listen_screened`]. Where the NIC would queue a request, it first calls [`screen`].
    fn listen(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>>;
    /// See [`crate::Cm::connect`].
    fn connect(&self, qp: &Qp, addr: SocketAddr, param: &ConnParam) -> Result<()>;
    /// See [`crate::Cm::bind`].
    fn bind(&self, _addr: SocketAddr) -> Result<Box<dyn PortOps>> {
        Err(unsupported("the device", "addresses that are held"))
    }
    /// See [`crate::Cm::listen_at`].
    fn listen_at(&self, _port: &dyn PortOps, _backlog: u32) -> Result<Box<dyn ListenerOps>> {
        Err(unsupported("the device", "addresses that are held"))
    }
    /// See [`crate::Cm::connect_from`].
    fn connect_from(
        &self,
        _port: &dyn PortOps,
        _qp: &Qp,
        _addr: SocketAddr,
        _param: &ConnParam,
    ) -> Result<()> {
        Err(unsupported("the device", "addresses that are held"))
    }
    /// See [`crate::Cm::disconnect`].
    fn disconnect(&self, qp: &Qp) -> Result<()>;
    /// See [`crate::Cm::poll_event`].
    fn poll_event(&self) -> Option<CmEvent>;
    /// As [`CqOps::prepare_wait`], for every event.
    fn prepare_wait(&self) -> Wake<'_>;
    /// See [`crate::Cm::fd`].
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// A listener; dropping it stops listening.
pub trait ListenerOps: Any + Send + Sync {
    /// See [`crate::Listener::addr`].
    fn addr(&self) -> SocketAddr;
}

/// An address that is held; dropping it lets it go.
pub trait PortOps: Any + Send + Sync {
    /// See [`crate::Port::addr`].
    fn addr(&self) -> SocketAddr;
}

/// A connect request that waits for its answer.
pub trait RequestOps: Any + Send {
    /// Says yes; later events go to `cm`. See [`crate::Cm::accept`].
    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Qp, param: &ConnParam) -> Result<()>;
    /// See [`crate::ConnectRequest::is_alive`].
    fn is_alive(&self) -> bool;
    /// Says no. See [`crate::ConnectRequest::reject`].
    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()>;
}

/// A program that the NIC runs; dropping it unloads the program, which no call of is under way when that returns.
pub trait ProgramOps: Any + Send + Sync {
    /// See [`crate::Program::addr`].
    fn addr(&self) -> SocketAddr;
    /// See [`crate::Program::command`]; the length has been checked.
    fn command(&self, command: &[u8]) -> Result<()>;
    /// As [`CqOps::prepare_wait`], for every interrupt.
    fn prepare_wait(&self) -> Wake<'_>;
}

/// The NIC's own object behind one of the API.
///
/// # Errors
/// [`Error::Foreign`] that names `what`, for another NIC's.
pub fn own<T: Any + Send + Sync>(object: Arc<dyn Any + Send + Sync>, what: &'static str) -> Result<Arc<T>> {
    object.downcast().map_err(|_| Error::Foreign { what })
}

/// What a listener's screen found in a request that passes, if there is a screen.
///
/// # Errors
/// The private data with which the request is rejected: of `max` bytes at most, or none.
pub fn screen(
    screen: Option<&Arc<dyn Screen>>,
    private_data: &[u8],
    info: ConnInfo,
    max: usize,
) -> Result<Option<Box<dyn Any + Send>>, Vec<u8>> {
    match screen.map(|screen| screen.screen(&ScreenRequest { private_data, info })) {
        None => Ok(None),
        Some(Verdict::Pass(found)) => Ok(Some(found)),
        Some(Verdict::Reject(words)) => Err(if words.len() <= max { words } else { Vec::new() }),
    }
}

fn unsupported(device: &str, what: &'static str) -> Error {
    Error::Unsupported { device: device.into(), what }
}
