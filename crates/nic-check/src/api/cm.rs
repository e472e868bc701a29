//! Connection channels: they pass their calls to those below, with the queue pairs below.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::Wake;
use verbs::provider::{BoundAddrOps, CmOps, ListenerOps, QpOps, RequestOps, downcast};
use verbs::{CmEvent, ConnParam, Error, Result, Screen};

use crate::api::qp::CheckQp;

pub(crate) struct CheckCm(pub(crate) Arc<dyn CmOps>);

/// The queue pair of the NIC below, behind the API's.
fn below(qp: &Arc<dyn QpOps>) -> Result<Arc<dyn QpOps>> {
    let qp: Arc<CheckQp> = downcast(qp.clone(), "the queue pair")?;
    Ok(qp.below.clone())
}

/// A connect request that the program has not answered.
struct CheckRequest(Box<dyn RequestOps>);

impl RequestOps for CheckRequest {
    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()> {
        let any: &dyn Any = cm;
        let cm: &CheckCm = any.downcast_ref().ok_or(Error::Foreign { what: "the event channel" })?;
        self.0.accept(&*cm.0, &below(qp)?, param)
    }

    fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()> {
        self.0.reject(private_data)
    }
}

impl CmOps for CheckCm {
    fn listen(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>> {
        self.0.listen(addr, backlog, screen)
    }

    fn connect(&self, qp: &Arc<dyn QpOps>, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        self.0.connect(&below(qp)?, addr, param)
    }

    fn bind(&self, addr: SocketAddr) -> Result<Box<dyn BoundAddrOps>> {
        self.0.bind(addr)
    }

    fn listen_at(&self, port: &dyn BoundAddrOps, backlog: u32) -> Result<Box<dyn ListenerOps>> {
        self.0.listen_at(port, backlog)
    }

    fn connect_from(
        &self,
        port: &dyn BoundAddrOps,
        qp: &Arc<dyn QpOps>,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<()> {
        self.0.connect_from(port, &below(qp)?, addr, param)
    }

    fn disconnect(&self, qp: &Arc<dyn QpOps>) -> Result<()> {
        self.0.disconnect(&below(qp)?)
    }

    fn poll_event(&self) -> Option<CmEvent> {
        Some(match self.0.poll_event()? {
            CmEvent::ConnectRequest(request) => {
                CmEvent::ConnectRequest(request.wrapped(|below| Box::new(CheckRequest(below))))
            }
            other => other,
        })
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.0.prepare_wait()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.fd()
    }
}
