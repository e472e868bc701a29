//! [`Psp`], [`Rsp`]: service points, which receive connection requests, and the answers to these.

use std::any::Any;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use verbs::{ConnectRequest, Listener};

use crate::attr::EpState;
use crate::config::EpConfig;
use crate::connect::port_of;
use crate::cr::{Cr, CrInner};
use crate::ep::Ep;
use crate::error::OrDevice;
use crate::event::RequestEvent;
use crate::ia::{Endpoint, IaInner, ServicePoint};
use crate::sync::{UseGuard, lock};
use crate::{Error, ErrorKind, Evd, EvdFlags, Event, Ia, Label, Result, Subtype};

/// The backlog of unanswered requests at one service point.
const BACKLOG: u32 = 256;

/// A public service point (`DAT_PSP`), until dropped.
#[derive(Debug)]
pub struct Psp(Arc<SpInner>);

/// A reserved service point, for one connection to one endpoint (`DAT_RSP`), until dropped.
#[derive(Debug)]
pub struct Rsp(Arc<SpInner>);

pub(crate) struct SpInner {
    ia: Arc<IaInner>,
    _uses: (UseGuard, UseGuard),
    evd: Evd,
    conn_qual: u64,
    port: u16,
    /// Empty once a reserved service point has had its request.
    listeners: Mutex<Vec<Listener>>,
    kind: SpKind,
    label: AtomicU64,
}

/// Which endpoint takes the connection.
#[derive(Debug)]
enum SpKind {
    /// An endpoint of the program, named when it accepts.
    Consumer,
    /// An endpoint created for each request.
    Provider,
    /// This endpoint.
    Reserved(Ep),
}

impl std::fmt::Debug for SpInner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} service point at {}", self.kind, self.conn_qual)
    }
}

impl Psp {
    /// Listens at `conn_qual`; `evd` gets the requests. With `provider` an endpoint is created for each request, which the
    /// program must modify before it accepts (`dat_psp_create`).
    ///
    /// # Errors
    /// `InvalidHandle` for a dispatcher that does not accept requests; argument 2 for a qualifier of 0; `ConnQualInUse`.
    pub fn create(ia: &Ia, conn_qual: u64, evd: &Evd, provider: bool) -> Result<Self> {
        if conn_qual == 0 {
            return Err(Error::argument(Subtype::Arg2));
        }
        let kind = if provider { SpKind::Provider } else { SpKind::Consumer };
        Ok(Self(SpInner::create(&ia.0, Some(conn_qual), evd, kind)?))
    }

    /// Listens at an unused qualifier (`dat_psp_create_any`).
    ///
    /// # Errors
    /// As [`Psp::create`].
    pub fn create_any(ia: &Ia, evd: &Evd, provider: bool) -> Result<Self> {
        let kind = if provider { SpKind::Provider } else { SpKind::Consumer };
        Ok(Self(SpInner::create(&ia.0, None, evd, kind)?))
    }

    /// The connection qualifier at which it listens.
    pub fn conn_qual(&self) -> u64 {
        self.0.conn_qual
    }

    /// The dispatcher for its requests.
    pub fn evd(&self) -> &Evd {
        &self.0.evd
    }

    /// Whether an endpoint is created for each request.
    pub fn is_provider(&self) -> bool {
        matches!(self.0.kind, SpKind::Provider)
    }

    /// Its label in events.
    pub fn label(&self) -> Label {
        self.0.label.load(Ordering::Relaxed)
    }

    /// Changes its label.
    pub fn set_label(&self, label: Label) {
        self.0.label.store(label, Ordering::Relaxed);
    }
}

impl Rsp {
    /// Listens at `conn_qual` for one request, for `ep` (`dat_rsp_create`).
    ///
    /// # Errors
    /// As [`Psp::create`]; `InvalidState` unless `ep` is unconnected.
    pub fn create(ia: &Ia, conn_qual: u64, ep: &Ep, evd: &Evd) -> Result<Self> {
        if conn_qual == 0 {
            return Err(Error::argument(Subtype::Arg2));
        }
        if !Arc::ptr_eq(&ep.0.ia, &ia.0) {
            return Err(Error::handle(Subtype::HandleEp));
        }
        ep.0.transition(EpState::Unconnected, EpState::Reserved)?;
        match SpInner::create(&ia.0, Some(conn_qual), evd, SpKind::Reserved(ep.clone())) {
            Ok(inner) => Ok(Self(inner)),
            Err(why) => {
                ep.0.set_state(EpState::Unconnected);
                Err(why)
            }
        }
    }

    /// The connection qualifier at which it listens.
    pub fn conn_qual(&self) -> u64 {
        self.0.conn_qual
    }

    /// The dispatcher for its request.
    pub fn evd(&self) -> &Evd {
        &self.0.evd
    }

    /// The endpoint reserved for its request.
    pub fn ep(&self) -> Option<&Ep> {
        match &self.0.kind {
            SpKind::Reserved(ep) => Some(ep),
            _ => None,
        }
    }

    /// Its label in events.
    pub fn label(&self) -> Label {
        self.0.label.load(Ordering::Relaxed)
    }

    /// Changes its label.
    pub fn set_label(&self, label: Label) {
        self.0.label.store(label, Ordering::Relaxed);
    }
}

impl SpInner {
    fn create(ia: &Arc<IaInner>, conn_qual: Option<u64>, evd: &Evd, kind: SpKind) -> Result<Arc<Self>> {
        if !evd.flags().contains(EvdFlags::CR) || !evd.0.belongs_to(ia) {
            return Err(Error::handle(Subtype::HandleEvdCr));
        }
        let mut port = conn_qual.map_or(0, port_of);
        let mut ips = ia.device.attr().port_addrs.clone();
        if ips.is_empty() {
            ips.push(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        }
        let mut listeners = Vec::with_capacity(ips.len());
        for ip in ips {
            let listener = ia.cm.listen(SocketAddr::new(ip, port), BACKLOG).map_err(in_use)?;
            port = listener.addr().port();
            listeners.push(listener);
        }
        let inner = Arc::new(Self {
            ia: ia.clone(),
            _uses: (ia.uses.add(), evd.0.uses.add()),
            evd: evd.clone(),
            conn_qual: conn_qual.unwrap_or(port.into()),
            port,
            listeners: Mutex::new(listeners),
            kind,
            label: AtomicU64::new(ia.next_label()),
        });
        let known: Weak<dyn ServicePoint> = Arc::<Self>::downgrade(&inner);
        lock(&ia.sps).insert(port, known);
        ia.start_dispatch_thread();
        Ok(inner)
    }

    /// Stops listening immediately: a thread that dispatches a request may still hold the point for a moment.
    fn close(&self) {
        let listeners = std::mem::take(&mut *lock(&self.listeners));
        // A reserved point was removed from the table with its request, and another may use its port now.
        if !listeners.is_empty() {
            lock(&self.ia.sps).remove(&self.port);
        }
        if let SpKind::Reserved(ep) = &self.kind {
            // Fails after a request, since it is no longer reserved; its state then remains.
            let _ = ep.0.transition(EpState::Reserved, EpState::Unconnected);
        }
    }
}

impl ServicePoint for SpInner {
    fn handle_request(&self, mut request: ConnectRequest) {
        let local_ep = match &self.kind {
            SpKind::Consumer => None,
            SpKind::Provider => {
                let made = Ep::create_in_state(&self.ia, EpConfig::default(), EpState::UnconfiguredTentative);
                // Without an endpoint the request is dropped, which rejects it.
                let Ok(ep) = made else { return };
                Some(ep)
            }
            SpKind::Reserved(ep) => {
                if ep.0.transition(EpState::Reserved, EpState::PassiveConnectionPending).is_err() {
                    return;
                }
                // A reserved point takes only one request.
                lock(&self.listeners).clear();
                lock(&self.ia.sps).remove(&self.port);
                Some(ep.clone())
            }
        };
        let private_data = std::mem::take(&mut request.private_data).into();
        let (remote, local) = (request.info.peer, request.info.local);
        let cr = Cr(Arc::new(CrInner {
            ia: self.ia.clone(),
            private_data,
            remote,
            conn_qual: self.conn_qual,
            local_ep: local_ep.map(|ep| ep.0 as Arc<dyn Endpoint>),
            request: Mutex::new(Some(request)),
        }));
        let sp = self.label.load(Ordering::Relaxed);
        let event = RequestEvent { sp, local, conn_qual: self.conn_qual, cr };
        if !self.evd.0.queue_if_room(Event::ConnectionRequest(Box::new(event))) {
            self.ia.report_overflow(self.evd.label());
        }
    }
}

impl Drop for Psp {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Drop for Rsp {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Converts a device's error about listening.
fn in_use(cause: verbs::Error) -> Error {
    match cause {
        verbs::Error::Address { .. } => {
            Error { kind: ErrorKind::ConnQualInUse, subtype: Subtype::None, cause: Some(Arc::new(cause)) }
        }
        other => Error::device(other, Subtype::ResourceDevice),
    }
}

impl Cr {
    /// The endpoint created or reserved for it, the only one that can accept it.
    pub fn local_ep(&self) -> Option<Ep> {
        let kept: Arc<dyn Any + Send + Sync> = self.0.local_ep.clone()?;
        kept.downcast().ok().map(Ep)
    }

    /// Accepts it with `ep`, or with the endpoint created or reserved for it (`dat_cr_accept`).
    ///
    /// # Errors
    /// `InvalidHandle` when it was answered, without an endpoint, or with one too many; `InvalidState` by the endpoint's
    /// state; argument 3 for too much private data.
    pub fn accept(&self, ep: Option<&Ep>, private_data: &[u8]) -> Result<()> {
        let own = self.local_ep();
        let (ep, from) = match (ep, &own) {
            (Some(ep), None) => (ep, EpState::Unconnected),
            (None, Some(ep)) => (ep, ep.0.state()),
            _ => return Err(Error::handle(Subtype::HandleEp)),
        };
        use EpState as S;
        if !matches!(from, S::Unconnected | S::PassiveConnectionPending | S::TentativeConnectionPending) {
            return Err(ep.0.state_error());
        }
        if !Arc::ptr_eq(&ep.0.ia, &self.0.ia) {
            return Err(Error::handle(Subtype::HandleEp));
        }
        let qp = ep.0.check_connectable()?;
        if private_data.len() > self.0.ia.attr.max_private_data as usize {
            return Err(Error::argument(Subtype::Arg3));
        }
        let request = lock(&self.0.request).take().ok_or(Error::handle(Subtype::HandleCr))?;
        if let Err(why) = ep.0.transition(from, S::CompletionPending) {
            *lock(&self.0.request) = Some(request);
            return Err(why);
        }
        ep.0.set_link(Some(self.0.remote), self.0.conn_qual);
        let param = ep.0.param(private_data, None);
        self.0.ia.cm.accept(request, &qp, &param).or_device(Subtype::ResourceTep).inspect_err(|_| {
            ep.0.set_state(from);
        })
    }

    /// Rejects it, with private data for the peer (`dat_cr_reject`).
    ///
    /// # Errors
    /// `InvalidHandle` when it was answered; argument 2 for too much private data.
    pub fn reject(&self, private_data: &[u8]) -> Result<()> {
        if private_data.len() > self.0.ia.attr.max_private_data as usize {
            return Err(Error::argument(Subtype::Arg2));
        }
        let request = lock(&self.0.request).take().ok_or(Error::handle(Subtype::HandleCr))?;
        if let Some(ep) = self.local_ep() {
            // An endpoint created for the request is dropped with it; a reserved one may be used again.
            let _ = ep.0.transition(EpState::PassiveConnectionPending, EpState::Unconnected);
        }
        request.reject(private_data).or_device(Subtype::None)
    }
}
