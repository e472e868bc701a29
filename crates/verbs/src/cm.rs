//! [`Cm`]: connections, with the semantics of RDMA-CM. Calls start operations; events report their results.
//!
//! Active side: [`Cm::connect`], then `Established`, `Rejected` or `ConnectFailed`. Passive side: [`Cm::listen`], then
//! a `ConnectRequest`, [`Cm::accept`] or [`ConnectRequest::reject`], then `Established` or `ConnectFailed`. Either
//! side: `Disconnected` once, when the peer disconnects, destroys its queue pair, or dies; also after a local
//! [`Cm::disconnect`].
//!
//! A connection that only exchanges private data, such as identities and addresses, needs no queue pair of the program:
//! [`CmId`].

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{Source, Time, Wakes};

use crate::provider::{BoundAddrOps, CmOps, ListenerOps};
use crate::{CmEvent, ConnParam, ConnectRequest, Device, Error, Qp, QpCap, QpInit, Result, Screen};

/// An address that accepts connections, until dropped.
pub struct Listener {
    ops: Box<dyn ListenerOps>,
}

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Listener({})", self.addr())
    }
}

impl Listener {
    /// The address; its port was chosen by the device if 0 was requested.
    pub fn addr(&self) -> SocketAddr {
        self.ops.addr()
    }
}

/// A reserved address, for listening or connecting (`rdma_bind_addr(3)`): no other user gets it until this is dropped.
pub struct BoundAddr {
    ops: Box<dyn BoundAddrOps>,
}

impl std::fmt::Debug for BoundAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BoundAddr({})", self.addr())
    }
}

impl BoundAddr {
    /// The address; its port was chosen by the device if 0 was requested.
    pub fn addr(&self) -> SocketAddr {
        self.ops.addr()
    }
}

/// A connection without a queue pair of the program (an `rdma_cm_id` whose `qp` is null). During set-up it carries
/// private data both ways; it identifies the peer ([`crate::ConnInfo`]), and reports when the peer disconnects.
/// Dropping it disconnects, and the peer gets `Disconnected`. Events contain [`CmId::num`] where they contain
/// [`Qp::num`] for others; the numbers of a device are distinct.
///
/// It works on every device, as it uses a queue pair of minimum size, with that queue pair's cost in time, memory and
/// [`crate::DeviceAttr::max_qp`]: a connection of iWARP *is* the stream of a queue pair (RFC 5044, section 7.1), and
/// Linux does not connect without one there either. The program cannot use this queue pair, so messages of a peer that
/// has a queue pair find no receive. Nor can a queue pair be bound to the connection later: that one connects by
/// itself. Numbers of queue pairs belong into the private data, since not every protocol has a field for them.
///
/// `rdma_establish(3)` has no counterpart: the connection is established when the peer has accepted.
pub struct CmId {
    qp: Qp,
}

impl std::fmt::Debug for CmId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CmId({})", self.num())
    }
}

impl CmId {
    fn new(device: &Device) -> Result<Self> {
        let cap = QpCap { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        // Two entries: nothing is posted, and every device gives room for both queues.
        let qp = device.alloc_pd()?.create_qp(&QpInit::new(&device.create_cq(2)?).cap(cap))?;
        Ok(Self { qp })
    }

    /// The number that events carry.
    pub fn num(&self) -> u32 {
        self.qp.num()
    }
}

/// A channel of connection events (`rdma_event_channel`); cheap to clone.
#[derive(Clone)]
pub struct Cm {
    ops: Arc<dyn CmOps>,
    device: Device,
}

impl std::fmt::Debug for Cm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cm({:?})", self.device)
    }
}

impl Cm {
    pub(crate) fn new(ops: Arc<dyn CmOps>, device: Device) -> Self {
        Self { ops, device }
    }

    /// Accepts connections at `addr`; for port 0 the device chooses one. At most `backlog` requests wait for an answer.
    ///
    /// # Errors
    /// [`Error::Address`] if the address is taken or does not belong to this device.
    pub fn listen(&self, addr: SocketAddr, backlog: u32) -> Result<Listener> {
        Ok(Listener { ops: self.ops.listen(addr, backlog.max(1), None)? })
    }

    /// As [`Cm::listen`], for requests that pass a screen: the NIC rejects the others itself, without an event. These
    /// occupy no entry of the backlog and do not wake the program.
    ///
    /// # Errors
    /// As [`Cm::listen`].
    pub fn listen_screened(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Arc<dyn Screen>,
    ) -> Result<Listener> {
        Ok(Listener { ops: self.ops.listen(addr, backlog.max(1), Some(screen))? })
    }

    /// Reserves an address of the device; for port 0 the device chooses one.
    ///
    /// # Errors
    /// [`Error::Address`] if the address is taken or does not belong to this device; [`Error::Unsupported`] by devices
    /// that cannot reserve addresses.
    pub fn bind(&self, addr: SocketAddr) -> Result<BoundAddr> {
        Ok(BoundAddr { ops: self.ops.bind(addr)? })
    }

    /// As [`Cm::listen`], at a reserved address. It stays reserved when the listener is dropped.
    ///
    /// # Errors
    /// [`Error::Busy`] while the address is in use for listening or connecting; [`Error::Foreign`] for another device's
    /// port.
    pub fn listen_at(&self, port: &BoundAddr, backlog: u32) -> Result<Listener> {
        Ok(Listener { ops: self.ops.listen_at(&*port.ops, backlog.max(1))? })
    }

    /// As [`Cm::connect`], from a reserved address: the peer sees it as the address of this end
    /// ([`crate::ConnInfo::peer`]). A port serves one connection; after a failed attempt it can be used again.
    ///
    /// # Errors
    /// As [`Cm::connect`] and [`Cm::listen_at`].
    pub fn connect_from(&self, port: &BoundAddr, qp: &Qp, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        self.check_private_data(param)?;
        self.check_own(qp)?;
        self.ops.connect_from(&*port.ops, qp.ops(), addr, param)
    }

    /// Starts connecting `qp` to the listener at `addr`; its events come to this channel from now on.
    ///
    /// # Errors
    /// [`Error::WrongState`] unless the queue pair is in `Init`; [`Error::Limit`] for too much private data;
    /// [`Error::Address`] for an address that is not one of this kind of device; [`Error::Foreign`].
    pub fn connect(&self, qp: &Qp, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        self.check_private_data(param)?;
        self.check_own(qp)?;
        self.ops.connect(qp.ops(), addr, param)
    }

    /// Accepts a request with `qp`; its events come to this channel from now on. Receives posted before this
    /// are ready for the peer's first message.
    ///
    /// # Errors
    /// As [`Cm::connect`]; the request is rejected then.
    pub fn accept(&self, mut request: ConnectRequest, qp: &Qp, param: &ConnParam) -> Result<()> {
        self.check_private_data(param)?;
        self.check_own(qp)?;
        match request.take_ops() {
            Some(ops) => ops.accept(&*self.ops, qp.ops(), param),
            None => Err(Error::Invalid("the connect request has already been answered".into())),
        }
    }

    /// Starts connecting to the listener at `addr` without a queue pair; its events come to this channel, as those of
    /// [`Cm::connect`]. After `Rejected` and `ConnectFailed` it cannot be used again.
    ///
    /// ```no_run
    /// # fn hello(cm: &verbs::Cm, addr: std::net::SocketAddr) -> verbs::Result<()> {
    /// use verbs::{CmEvent, ConnParam};
    ///
    /// let id = cm.connect_without_qp(addr, &ConnParam::with_private_data(*b"who are you?"))?;
    /// if let CmEvent::Established { qp_num, private_data, info } = cm.get_event(None)? {
    ///     assert_eq!(qp_num, id.num());
    ///     println!("{} says {private_data:?}", info.peer);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Device::create_cq`], [`crate::Pd::create_qp`] and [`Cm::connect`].
    pub fn connect_without_qp(&self, addr: SocketAddr, param: &ConnParam) -> Result<CmId> {
        self.check_private_data(param)?;
        let id = CmId::new(&self.device)?;
        self.ops.connect(id.qp.ops(), addr, param)?;
        Ok(id)
    }

    /// As [`Cm::connect_without_qp`], from a reserved address.
    ///
    /// # Errors
    /// As [`Cm::connect_without_qp`] and [`Cm::connect_from`].
    pub fn connect_without_qp_from(
        &self,
        port: &BoundAddr,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<CmId> {
        self.check_private_data(param)?;
        let id = CmId::new(&self.device)?;
        self.ops.connect_from(&*port.ops, id.qp.ops(), addr, param)?;
        Ok(id)
    }

    /// Accepts a request without a queue pair, whether or not the peer has one; its events come to this channel from
    /// now on.
    ///
    /// # Errors
    /// As [`Cm::connect_without_qp`]; the request is rejected then.
    pub fn accept_without_qp(&self, request: ConnectRequest, param: &ConnParam) -> Result<CmId> {
        let id = CmId::new(&self.device)?;
        self.accept(request, &id.qp, param)?;
        Ok(id)
    }

    /// Ends a connection without a queue pair: both sides get `Disconnected` (`rdma_disconnect(3)`).
    ///
    /// # Errors
    /// As [`Cm::disconnect`].
    pub fn disconnect_id(&self, id: &CmId) -> Result<()> {
        self.disconnect(&id.qp)
    }

    /// Ends the connection of `qp`: the requests of both sides are flushed, and both get `Disconnected`.
    ///
    /// # Errors
    /// [`Error::WrongState`] if it was never connected; [`Error::Foreign`].
    pub fn disconnect(&self, qp: &Qp) -> Result<()> {
        self.check_own(qp)?;
        self.ops.disconnect(qp.ops())
    }

    /// The next event, if any.
    pub fn poll_event(&self) -> Option<CmEvent> {
        self.ops.poll_event()
    }

    /// Waits for the next event (`rdma_get_cm_event`).
    ///
    /// # Errors
    /// [`Error::TimedOut`] if `deadline` passes first; [`Error::Forked`].
    pub fn get_event(&self, deadline: Option<Time>) -> Result<CmEvent> {
        self.device.ops().check()?;
        self.device
            .host()
            .wait("Cm::get_event", self, deadline, || self.ops.poll_event())
            .ok_or(Error::TimedOut { call: "Cm::get_event" })
    }

    /// A descriptor that is readable while an event is pending; `None` in virtual time.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.ops.fd()
    }

    /// The implementation, for the NIC's crate.
    pub fn ops(&self) -> &Arc<dyn CmOps> {
        &self.ops
    }

    fn check_own(&self, qp: &Qp) -> Result<()> {
        self.device.check_own(qp.pd().device(), "the queue pair")
    }

    fn check_private_data(&self, param: &ConnParam) -> Result<()> {
        let limit = self.device.attr().max_private_data;
        Error::check_limit("bytes of private data", param.private_data.len() as u64, limit.into())
    }
}

impl Source for Cm {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        wakes.push(self.ops.prepare_wait());
    }
}

impl Device {
    /// Creates a channel for connections (`rdma_create_event_channel`).
    ///
    /// # Errors
    /// [`Error::System`] if no file descriptor is available.
    pub fn create_cm(&self) -> Result<Cm> {
        Ok(Cm::new(self.ops().create_cm()?, self.clone()))
    }
}
