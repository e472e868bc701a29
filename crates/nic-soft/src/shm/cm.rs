//! The connection manager: channels of events, listeners, and the calls that start things; `conns` carries them on.
//!
//! A listener is a socket with an abstract name, which the kernel removes with its process: nothing is left in a
//! file system.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use host::Wake;
use rustix::io::Errno;
use rustix::net::{connect, listen};
use verbs::provider::{CmOps, ListenerOps, QpOps, RequestOps, own};
use verbs::{CmEvent, CmFailure, ConnParam, Error, Qp, Result};

use super::conns::{Conn, Phase};
use super::device::{Inner, unpoisoned};
use super::layout::state;
use super::qp::{QpHandle, QpInner, state_of};
use super::socket::{address, bind_client, bind_port, check_local, new_socket, same_user, send};
use super::wire::Message;
use crate::events::Events;
use crate::fork::Fd;

/// A channel of events.
pub(super) struct CmInner {
    device: Arc<Inner>,
    events: Events<CmEvent>,
}

impl CmInner {
    pub(super) fn create(device: &Arc<Inner>) -> Result<Arc<Self>> {
        Ok(Arc::new(Self { device: device.clone(), events: Events::new()? }))
    }

    pub(super) fn push(&self, event: CmEvent) {
        self.events.push(event);
    }

    pub(super) fn failed(&self, qp: &QpInner, why: CmFailure) {
        self.push(CmEvent::ConnectFailed { qp_num: qp.num, why });
    }
}

/// A listening socket.
pub(super) struct ListenerInner {
    pub(super) id: u64,
    pub(super) socket: Fd,
    pub(super) addr: SocketAddr,
    pub(super) cm: Weak<CmInner>,
    pub(super) backlog: usize,
    /// Requests that the program has not answered.
    pub(super) pending: AtomicUsize,
}

/// The API's hold on a listener.
struct ListenerHandle {
    device: Arc<Inner>,
    inner: Arc<ListenerInner>,
    /// Events need their channel.
    _cm: Arc<CmInner>,
}

impl ListenerOps for ListenerHandle {
    fn addr(&self) -> SocketAddr {
        self.inner.addr
    }
}

impl Drop for ListenerHandle {
    fn drop(&mut self) {
        if self.device.birth.is_elsewhere() {
            return;
        }
        self.device.nic.unwatch(self.inner.socket.as_fd());
        unpoisoned(&self.device.nic.registry.listeners).remove(&self.inner.id);
    }
}

/// A connect request's answer.
pub(super) struct RequestHandle {
    pub(super) device: Arc<Inner>,
    pub(super) conn: Arc<Conn>,
    pub(super) listener: Arc<ListenerInner>,
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.listener.pending.fetch_sub(1, Ordering::AcqRel);
    }
}

impl RequestHandle {
    fn decline(&self, private_data: &[u8]) {
        *unpoisoned(&self.conn.phase) = Phase::Over;
        // A peer that is gone needs no answer.
        let _ = send(&self.conn.socket, &Message::Reject(private_data.to_vec()), &[]);
        self.device.drop_conn(&self.conn);
    }

    fn try_accept(&self, cm: &dyn CmOps, qp: &Qp, param: &ConnParam) -> Result<()> {
        let cm = find_cm(&self.device, cm)?;
        let qp = own_idle_qp(qp, "accept")?;
        let mut phase = unpoisoned(&self.conn.phase);
        let Phase::Requested { hello, fds } = std::mem::replace(&mut *phase, Phase::Over) else {
            return Err(Error::Invalid("the connecting side has given up".into()));
        };
        if let Err(why) = self.device.link(&self.conn, &qp, &hello, fds, param.rnr_retry) {
            self.device.not_linked(&self.conn, &why);
            return Err(why);
        }
        // Before the state changes: whoever destroys the queue pair from then on finds the connection.
        qp.conn.store(self.conn.id, Ordering::Release);
        if !qp.advance(state::INIT, state::RTR) {
            return Err(Error::WrongState { call: "accept", state: state_of(qp.state()) });
        }
        let deadline = self.device.host.now() + param.timeout;
        *phase = Phase::AwaitReady { qp: qp.clone(), cm, deadline };
        self.device.nic.registry.enter(self.conn.id, &phase);
        drop(phase);
        let reply = Message::Reply(self.device.hello(&qp, param));
        if let Err(why) = self.device.greet(&self.conn, &qp, &reply) {
            self.device.on_end(&self.conn, &why);
        }
        self.device.nic.wake();
        Ok(())
    }
}

impl RequestOps for RequestHandle {
    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Qp, param: &ConnParam) -> Result<()> {
        self.device.birth.check()?;
        let result = self.try_accept(cm, qp, param);
        if result.is_err() {
            self.decline(&[]);
        }
        result
    }

    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()> {
        self.device.birth.check()?;
        let limit = super::wire::PRIVATE_MAX;
        let fits = Error::check_limit("bytes of private data", private_data.len() as u64, limit as u64);
        self.decline(if fits.is_ok() { private_data } else { &[] });
        fits
    }
}

fn find_cm(device: &Arc<Inner>, cm: &dyn CmOps) -> Result<Arc<CmInner>> {
    let any: &dyn std::any::Any = cm;
    let handle: &CmHandle = any.downcast_ref().ok_or(Error::Foreign { what: "the event channel" })?;
    if !Arc::ptr_eq(&handle.0.device, device) {
        return Err(Error::Foreign { what: "the event channel" });
    }
    Ok(handle.0.clone())
}

/// The address that is meant, by an unspecified one, too.
fn ip_of(addr: SocketAddr) -> IpAddr {
    if addr.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { addr.ip() }
}

/// The queue pair behind the API's, if it is not yet connected.
fn own_idle_qp(qp: &Qp, call: &'static str) -> Result<Arc<QpInner>> {
    let handle: Arc<QpHandle> = own(qp.ops().clone(), "the queue pair")?;
    if handle.0.state() != state::INIT {
        return Err(Error::WrongState { call, state: handle.state() });
    }
    Ok(handle.0.clone())
}

/// The API's hold on an event channel.
pub(super) struct CmHandle(pub(super) Arc<CmInner>);

impl CmOps for CmHandle {
    fn listen(&self, addr: SocketAddr, backlog: u32) -> Result<Box<dyn ListenerOps>> {
        check_local(addr)?;
        let device = &self.0.device;
        device.birth.check()?;
        let socket = new_socket()?;
        let port = bind_port(&socket, addr)?;
        listen(&socket, 4096).map_err(|e| Error::system("cannot listen", e))?;
        let ip = ip_of(addr);
        let id = device.nic.fresh_id();
        let inner = Arc::new(ListenerInner {
            id,
            socket,
            addr: SocketAddr::new(ip, port),
            cm: Arc::downgrade(&self.0),
            backlog: backlog as usize,
            pending: AtomicUsize::new(0),
        });
        let mut listeners = unpoisoned(&device.nic.registry.listeners);
        device.nic.watch(inner.socket.as_fd(), id)?;
        listeners.insert(id, inner.clone());
        Ok(Box::new(ListenerHandle { device: device.clone(), inner, _cm: self.0.clone() }))
    }

    fn connect(&self, qp: &Qp, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        check_local(addr)?;
        let device = &self.0.device;
        device.birth.check()?;
        let qp = own_idle_qp(qp, "connect")?;
        if device.nic.registry.conn_of(&qp).is_some() {
            return Err(Error::Invalid("the queue pair is being connected already".into()));
        }
        let socket = new_socket()?;
        let local = SocketAddr::new(ip_of(addr), bind_client(&socket));
        let name = address(addr.port())?;
        match connect(&socket, &name) {
            Ok(()) => {}
            Err(Errno::CONNREFUSED) => {
                self.0.failed(&qp, CmFailure::Refused(addr));
                return Ok(());
            }
            Err(Errno::AGAIN) => {
                let why =
                    "too many others wait there to be let in; connect fewer at a time, or again later".into();
                self.0.failed(&qp, CmFailure::Unreachable(addr, why));
                return Ok(());
            }
            Err(e) => {
                self.0.failed(&qp, CmFailure::Unreachable(addr, e.to_string()));
                return Ok(());
            }
        }
        let Some(pid) = same_user(&socket) else {
            let why = "a process of another user listens there".into();
            self.0.failed(&qp, CmFailure::Unreachable(addr, why));
            return Ok(());
        };
        let deadline = device.host.now() + param.timeout;
        let rnr_retry = param.rnr_retry;
        let request = Message::Request(device.hello(&qp, param));
        let phase = Phase::AwaitReply { qp: qp.clone(), cm: self.0.clone(), deadline, rnr_retry };
        let peer = SocketAddr::new(ip_of(addr), addr.port());
        let conn = device.adopt(socket, pid, (local, peer), phase)?;
        if let Err(why) = device.greet(&conn, &qp, &request) {
            device.on_end(&conn, &why);
        }
        device.nic.wake();
        Ok(())
    }

    fn disconnect(&self, qp: &Qp) -> Result<()> {
        let handle: Arc<QpHandle> = own(qp.ops().clone(), "the queue pair")?;
        let device = &self.0.device;
        device.birth.check()?;
        if handle.0.link.get().is_none() {
            return Err(Error::WrongState { call: "disconnect", state: handle.state() });
        }
        device.nic.part(device, &handle.0, true);
        Ok(())
    }

    fn poll_event(&self) -> Option<CmEvent> {
        self.0.device.birth.check().ok()?;
        self.0.events.pop(|| {
            self.0.device.tide.ebb();
            self.0.device.nic.wake();
        })
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.0.events.prepare_wait()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.events.fd())
    }
}
