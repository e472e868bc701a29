//! The API's connections: channels of events, listeners, and the answers to connect requests.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use host::Wake;
use verbs::provider::{CmOps, ListenerOps, QpOps, RequestOps, downcast};
use verbs::{CmEvent, CmFailure, ConnParam, ConnectRequest, Error, QpState, Result, Screen};

use crate::connect::cm_events::CmEvents;
use crate::connect::conn::{Conn, Phase};
use crate::connect::registry::{Arrived, Entry, Listener};
use crate::pair::Pair;
use crate::qp::QpHandle;
use crate::raw::cm::CmId;
use crate::shared::Shared;

/// Requests that the library holds for this device beyond the backlog, until they are screened.
const SCREENED_ROOM: u32 = 128;

/// A channel of connection events.
pub(crate) struct CmHandle {
    shared: Arc<Shared>,
    events: Arc<CmEvents>,
}

impl CmHandle {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Self> {
        Ok(Self { shared: shared.clone(), events: CmEvents::new()? })
    }
}

/// A queue pair of this device that is not connected yet.
fn own_idle_pair(shared: &Arc<Shared>, qp: &Arc<dyn QpOps>, call: &'static str) -> Result<Arc<Pair>> {
    let handle: Arc<QpHandle> = downcast(qp.clone(), "the queue pair")?;
    if !Arc::ptr_eq(&handle.shared, shared) {
        return Err(Error::Foreign { what: "the queue pair" });
    }
    match handle.pair.state() {
        QpState::Init if handle.pair.connection.load(Ordering::Acquire) == 0 => Ok(handle.pair.clone()),
        QpState::Init => Err(Error::Invalid("the queue pair is being connected already".into())),
        state => Err(Error::WrongState { call, state }),
    }
}

/// A connection that begins; it is registered under the number of its identifier.
fn begin(shared: &Arc<Shared>, id: CmId, pair: Arc<Pair>, events: &Arc<CmEvents>, param: &ConnParam) -> Conn {
    Conn {
        id,
        pair,
        events: Arc::downgrade(events),
        phase: Phase::Address,
        deadline: shared.host.now() + param.timeout,
        has_left: false,
        param: param.clone(),
        peer: None,
        info: None,
        card: shared.registry.card().clone(),
        max_rd_atomic: u8::try_from(shared.attr.max_rd_atomic).unwrap_or(u8::MAX),
    }
}

impl CmOps for CmHandle {
    fn listen(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>> {
        self.shared.check()?;
        let (waiting, is_open) = (AtomicU32::new(0), AtomicBool::new(true));
        let listener = Listener { events: self.events.clone(), screen, backlog, waiting, is_open };
        Ok(Box::new(ListenerHandle::open(&self.shared, addr, Arc::new(listener))?))
    }

    fn connect(&self, qp: &Arc<dyn QpOps>, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        self.shared.check()?;
        let pair = own_idle_pair(&self.shared, qp, "connect")?;
        let mut entries = self.shared.registry.lock();
        let number = entries.fresh();
        let id = CmId::new(&self.shared.registry.channel, number)
            .map_err(|why| self.shared.refused("another identifier of a connection".to_owned(), why))?;
        let mut conn = begin(&self.shared, id, pair, &self.events, param);
        conn.peer = Some(addr);
        conn.pair.connection.store(number, Ordering::Release);
        let started = match self.shared.gid.map(|gid| gid.source_for(addr)).transpose() {
            Ok(source) => {
                conn.id.resolve_addr(source, addr, conn.timeout_ms()).map_err(|why| why.to_string())
            }
            Err(why) => Err(why),
        };
        entries.insert(number, Entry::Conn(Box::new(conn)));
        if let Err(why) = started {
            let why = CmFailure::Unreachable(addr, why);
            entries.step(number, |conn| conn.fail(why));
        }
        drop(entries);
        // The thread takes the new deadline into account.
        self.shared.epoll_set.wake();
        Ok(())
    }

    fn disconnect(&self, qp: &Arc<dyn QpOps>) -> Result<()> {
        let handle: Arc<QpHandle> = downcast(qp.clone(), "the queue pair")?;
        self.shared.check()?;
        let mut entries = self.shared.registry.lock();
        match entries.conn_of(&handle.pair) {
            Some(conn) if conn.phase == Phase::Ended => Ok(()),
            Some(conn) if conn.phase == Phase::Established => {
                if !conn.has_left {
                    conn.disconnect();
                }
                Ok(())
            }
            _ => Err(Error::WrongState { call: "disconnect", state: handle.pair.state() }),
        }
    }

    fn poll_event(&self) -> Option<CmEvent> {
        self.shared.check().ok()?;
        self.events.take()
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.events.prepare_wait()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.events.fd())
    }
}

/// A listener of the API.
struct ListenerHandle {
    shared: Arc<Shared>,
    /// `None` once it is dropped.
    id: Option<CmId>,
    number: u64,
    listener: Arc<Listener>,
    addr: SocketAddr,
}

impl ListenerHandle {
    fn open(shared: &Arc<Shared>, addr: SocketAddr, listener: Arc<Listener>) -> Result<Self> {
        let addr = match shared.gid {
            Some(gid) => gid.listen_at(addr)?,
            None => addr,
        };
        let mut entries = shared.registry.lock();
        let number = entries.fresh();
        let refused = |why: std::io::Error| {
            let hint = match why.raw_os_error() {
                Some(libc::EADDRINUSE) => "; choose another port, or 0 for any",
                Some(libc::EADDRNOTAVAIL | libc::ENODEV) => {
                    "; use an IP address of an interface of the card (rdma link shows them)"
                }
                _ => "",
            };
            Error::Address { addr, why: format!("{why}{hint}") }
        };
        let id = CmId::new(&shared.registry.channel, number).map_err(refused)?;
        id.bind(addr).map_err(refused)?;
        let card = id.card().filter(|card| card != shared.name());
        if let Some(card) = card {
            let why = format!("it belongs to card '{card}', and not to '{}'", shared.name());
            return Err(Error::Address { addr, why });
        }
        id.listen(listener.backlog.saturating_add(SCREENED_ROOM)).map_err(refused)?;
        let addr = SocketAddr::new(addr.ip(), id.local().port());
        entries.insert(number, Entry::Listener(listener.clone()));
        Ok(Self { shared: shared.clone(), id: Some(id), number, listener, addr })
    }
}

impl ListenerOps for ListenerHandle {
    fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for ListenerHandle {
    fn drop(&mut self) {
        if self.shared.context.is_forked() {
            return;
        }
        self.listener.is_open.store(false, Ordering::Release);
        let known = self.shared.registry.lock().remove(self.number);
        drop((known, self.id.take()));
        self.listener.events.drop_requests_of(self.number);
    }
}

/// A connect request that has not been answered.
pub(crate) struct RequestHandle {
    shared: Arc<Shared>,
    number: u64,
    /// `None` once it is answered.
    id: Option<CmId>,
    listener: Arc<Listener>,
    is_alive: Arc<AtomicBool>,
    info: verbs::ConnInfo,
    /// What this side serves and initiates at most: what the peer asked for.
    depths: (u8, u8),
}

impl RequestHandle {
    /// The request of the API that answers an arrived one.
    pub(crate) fn offer(shared: &Arc<Shared>, arrived: Arrived) -> ConnectRequest {
        let Arrived { id, number, listener, is_alive, info, param } = arrived;
        let depths = (param.responder_resources, param.initiator_depth);
        let handle = Self { shared: shared.clone(), number, id: Some(id), listener, is_alive, info, depths };
        ConnectRequest::new(Box::new(handle), param.private_data, info)
    }

    fn try_accept(&mut self, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()> {
        let cm: &dyn Any = cm;
        let cm: &CmHandle = cm
            .downcast_ref()
            .filter(|cm: &&CmHandle| Arc::ptr_eq(&cm.shared, &self.shared))
            .ok_or(Error::Foreign { what: "the event channel" })?;
        let pair = own_idle_pair(&self.shared, qp, "accept")?;
        let mut entries = self.shared.registry.lock();
        let Some(id) = self.id.take_if(|_| self.is_alive.load(Ordering::Acquire)) else {
            return Err(Error::Invalid("the connecting side has given up".into()));
        };
        let mut conn = begin(&self.shared, id, pair, &cm.events, param);
        (conn.phase, conn.info) = (Phase::Accepted, Some(self.info));
        let own = conn.own_param();
        let depths = (own.responder_resources.min(self.depths.0), own.initiator_depth.min(self.depths.1));
        let accepted = conn.pair.ready(&conn.id, Some(depths)).and_then(|()| conn.id.accept(&own));
        if let Err(why) = accepted {
            conn.pair.back_to_init();
            self.id = Some(conn.id);
            drop(entries);
            return Err(Error::system("the card refuses to accept the connection", why));
        }
        conn.pair.connection.store(self.number, Ordering::Release);
        conn.pair.set_state(QpState::ReadyToReceive);
        entries.insert(self.number, Entry::Conn(Box::new(conn)));
        drop(entries);
        self.shared.epoll_set.wake();
        Ok(())
    }

    /// Rejects the request, unless it has been accepted.
    fn decline(&mut self, private_data: &[u8]) {
        if let Some(id) = self.id.take() {
            drop(self.shared.registry.lock().remove(self.number));
            // If even this fails, the peer learns it when the identifier is destroyed.
            let _ = id.reject(private_data);
        }
    }
}

impl RequestOps for RequestHandle {
    fn accept(mut self: Box<Self>, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()> {
        self.shared.check()?;
        // A failure rejects the request, when it is dropped.
        self.try_accept(cm, qp, param)
    }

    fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::Acquire)
    }

    fn reject(mut self: Box<Self>, private_data: &[u8]) -> Result<()> {
        self.shared.check()?;
        let limit = u64::from(self.shared.attr.max_private_data);
        let fits = Error::check_limit("bytes of private data", private_data.len() as u64, limit);
        self.decline(if fits.is_ok() { private_data } else { &[] });
        fits
    }
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        if !self.shared.context.is_forked() {
            self.decline(&[]);
        }
        self.listener.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}
