//! Connection channels.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::Wake;
use trace::format::Fields;
use trace::names::{Call, Event};
use verbs::provider::{BoundAddrOps, CmOps, ListenerOps, QpOps, RequestOps, downcast};
use verbs::{CmEvent, ConnParam, Error, Result, Screen};

use crate::api::qp::TraceQp;
use crate::shared::Shared;

pub(crate) struct TraceCm {
    pub(crate) below: Arc<dyn CmOps>,
    pub(crate) object: u32,
    pub(crate) shared: Arc<Shared>,
}

/// The queue pair of this device behind the API's.
fn own_qp(qp: &Arc<dyn QpOps>) -> Result<Arc<TraceQp>> {
    downcast(qp.clone(), "the queue pair")
}

impl TraceCm {
    fn listens(&self, make: impl FnOnce() -> Result<Box<dyn ListenerOps>>) -> Result<Box<dyn ListenerOps>> {
        self.shared.call(Call::Listen, self.object, make, |listener| Fields {
            extra: self.shared.text(listener.addr()),
            ..Fields::default()
        })
    }

    fn connects(&self, qp: &TraceQp, addr: SocketAddr, make: impl FnOnce() -> Result<()>) -> Result<()> {
        qp.set_peer(&addr.to_string());
        let extra = self.shared.text(addr);
        self.shared.call(Call::Connect, qp.object, make, |()| Fields { extra, ..Fields::default() })
    }

    /// The queue pair's number in records.
    fn qp(&self, num: u32) -> Option<Arc<TraceQp>> {
        own_qp(&self.shared.find_qp(|qp| qp.num() == num)?).ok()
    }

    fn note(&self, event: &CmEvent) {
        let of = |num: u32| self.qp(num).map_or(0, |qp| qp.object);
        let shared = &self.shared;
        match event {
            CmEvent::ConnectRequest(request) => {
                let text = || format!("from {} to {}", request.info.peer, request.info.local);
                shared.event(Event::ConnectRequest, self.object, false, text);
            }
            CmEvent::Established { qp_num, info, .. } => {
                if let Some(qp) = self.qp(*qp_num) {
                    qp.set_peer(&info.peer.to_string());
                }
                let text = || format!("{} with {}", info.local, info.peer);
                shared.event(Event::Established, of(*qp_num), false, text);
            }
            CmEvent::Rejected { qp_num, .. } => {
                shared.event(Event::Rejected, of(*qp_num), true, || "by the peer".to_owned());
            }
            CmEvent::ConnectFailed { qp_num, why } => {
                shared.event(Event::ConnectFailed, of(*qp_num), true, || why.to_string());
            }
            CmEvent::Disconnected { qp_num } => {
                shared.event(Event::Disconnected, of(*qp_num), false, String::new);
            }
        }
    }
}

/// A connect request that the program has not answered.
struct TraceRequest {
    below: Box<dyn RequestOps>,
    peer: SocketAddr,
    shared: Arc<Shared>,
}

impl RequestOps for TraceRequest {
    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()> {
        let any: &dyn Any = cm;
        let cm: &TraceCm = any.downcast_ref().ok_or(Error::Foreign { what: "the event channel" })?;
        let qp = own_qp(qp)?;
        let Self { below, peer, shared } = *self;
        qp.set_peer(&peer.to_string());
        let extra = shared.text(peer);
        let make = || below.accept(&*cm.below, &qp.below, param);
        shared.call(Call::Accept, qp.object, make, |()| Fields { extra, ..Fields::default() })
    }

    fn is_alive(&self) -> bool {
        self.below.is_alive()
    }

    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()> {
        let Self { below, peer, shared } = *self;
        let extra = shared.text(peer);
        let about = |(): &()| Fields { extra, ..Fields::default() };
        shared.call(Call::Reject, 0, || below.reject(private_data), about)
    }
}

impl CmOps for TraceCm {
    fn listen(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>> {
        self.listens(|| self.below.listen(addr, backlog, screen))
    }

    fn connect(&self, qp: &Arc<dyn QpOps>, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        let qp = own_qp(qp)?;
        self.connects(&qp, addr, || self.below.connect(&qp.below, addr, param))
    }

    fn bind(&self, addr: SocketAddr) -> Result<Box<dyn BoundAddrOps>> {
        self.below.bind(addr)
    }

    fn listen_at(&self, port: &dyn BoundAddrOps, backlog: u32) -> Result<Box<dyn ListenerOps>> {
        self.listens(|| self.below.listen_at(port, backlog))
    }

    fn connect_from(
        &self,
        port: &dyn BoundAddrOps,
        qp: &Arc<dyn QpOps>,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<()> {
        let qp = own_qp(qp)?;
        self.connects(&qp, addr, || self.below.connect_from(port, &qp.below, addr, param))
    }

    fn disconnect(&self, qp: &Arc<dyn QpOps>) -> Result<()> {
        let qp = own_qp(qp)?;
        let make = || self.below.disconnect(&qp.below);
        self.shared.call(Call::Disconnect, qp.object, make, |()| Fields::default())
    }

    fn poll_event(&self) -> Option<CmEvent> {
        let event = self.below.poll_event()?;
        self.note(&event);
        Some(match event {
            CmEvent::ConnectRequest(request) => {
                let (peer, shared) = (request.info.peer, self.shared.clone());
                CmEvent::ConnectRequest(
                    request.wrapped(|below| Box::new(TraceRequest { below, peer, shared })),
                )
            }
            other => other,
        })
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.shared.wait(self.object);
        self.below.prepare_wait()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.below.fd()
    }
}
