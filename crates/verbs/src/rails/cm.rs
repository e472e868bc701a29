//! Connection channels: one on each rail behind each of the program's, and listeners, on the first rail.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::Wake;

use super::announced::Announced;
use super::device::Inner;
use super::hello::{Hello, Kind, refusal};
use super::qp::{QpHandle, QpInner};
use crate::provider::{CmOps, ListenerOps, RequestOps, own};
use crate::{Cm, CmEvent, ConnInfo, ConnParam, ConnectRequest, Error, Listener, Qp, Result};

/// A channel of the program.
pub(super) struct CmInner {
    pub(super) device: Arc<Inner>,
    of_rails: Vec<Cm>,
    events: Announced<(Option<SocketAddr>, CmEvent)>,
}

impl CmInner {
    pub(super) fn create(device: &Arc<Inner>) -> Result<Arc<Self>> {
        let of_rails = device.rails.iter().map(crate::Device::create_cm).collect::<Result<_>>()?;
        let cm = Arc::new(Self { device: device.clone(), of_rails, events: Announced::new(&device.host)? });
        device.add_cm(&cm);
        Ok(cm)
    }

    pub(super) fn of_rails(&self) -> &[Cm] {
        &self.of_rails
    }

    /// The channel on a rail.
    pub(super) fn on(&self, rail: usize) -> &Cm {
        &self.of_rails[rail]
    }

    pub(super) fn push(&self, event: CmEvent) {
        self.events.push((None, event));
    }

    /// Takes what the rails have.
    pub(super) fn progress(self: &Arc<Self>) {
        for (rail, cm) in self.of_rails.iter().enumerate() {
            while let Some(event) = cm.poll_event() {
                self.device.on_event(rail, cm, event, Some(self));
            }
        }
    }

    /// Somebody wants to connect to one of the program's listeners.
    pub(super) fn on_request(self: &Arc<Self>, mut request: ConnectRequest) {
        let said = std::mem::take(&mut request.private_data);
        let rails = self.device.rails.len();
        let fits =
            |hello: &Hello| hello.kind == Kind::New && hello.lane == 0 && hello.rails as usize == rails;
        let Some((hello, rest)) = Hello::read(&said).filter(|(hello, _)| fits(hello)) else {
            // A peer of another kind, or with another number of rails, which learns why. It may have gone already.
            let _ = request.reject(&refusal(rails));
            return;
        };
        // A rail's depths are not the program's: the rails read, too.
        let (info, local) = (ConnInfo { depths: None, ..request.info }, request.info.local);
        let ops = Box::new(RailsRequest { device: self.device.clone(), request, hello });
        let event = CmEvent::ConnectRequest(ConnectRequest::new(ops, rest.to_vec(), info));
        self.events.push((Some(local), event));
    }
}

/// A request that waits for the program's answer.
struct RailsRequest {
    device: Arc<Inner>,
    request: ConnectRequest,
    hello: Hello,
}

impl RequestOps for RailsRequest {
    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Qp, param: &ConnParam) -> Result<()> {
        let any: &dyn std::any::Any = cm;
        let cm: &CmHandle = any.downcast_ref().ok_or(Error::Foreign { what: "the event channel" })?;
        if !Arc::ptr_eq(&cm.0.device, &self.device) {
            return Err(Error::Foreign { what: "the event channel" });
        }
        own_qp(qp)?.accept(&cm.0, self.request, &self.hello, param)
    }

    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()> {
        let limit = u64::from(self.device.attr.max_private_data);
        if private_data.len() as u64 > limit {
            self.request.reject(&[])?;
            return Error::check_limit("bytes of private data", private_data.len() as u64, limit);
        }
        self.request.reject(private_data)
    }
}

/// The queue pair behind the API's.
fn own_qp(qp: &Qp) -> Result<Arc<QpInner>> {
    let handle: Arc<QpHandle> = own(qp.ops().clone(), "the queue pair")?;
    Ok(handle.0.clone())
}

/// The API's hold on a listener.
struct ListenerHandle {
    of_rail: Option<Listener>,
    addr: SocketAddr,
    cm: Arc<CmInner>,
}

impl ListenerOps for ListenerHandle {
    fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for ListenerHandle {
    /// Requests that nobody has taken are answered: by dropping them, they are rejected.
    fn drop(&mut self) {
        drop(self.of_rail.take());
        drop(self.cm.events.take_all(|(of, _)| *of == Some(self.addr)));
    }
}

/// The API's hold on a channel.
pub(super) struct CmHandle(pub(super) Arc<CmInner>);

impl CmOps for CmHandle {
    fn listen(&self, addr: SocketAddr, backlog: u32) -> Result<Box<dyn ListenerOps>> {
        let listener = self.0.on(0).listen(addr, backlog)?;
        let addr = listener.addr();
        Ok(Box::new(ListenerHandle { of_rail: Some(listener), addr, cm: self.0.clone() }))
    }

    fn connect(&self, qp: &Qp, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        self.0.device.check()?;
        own_qp(qp)?.connect(&self.0, addr, param)
    }

    fn disconnect(&self, qp: &Qp) -> Result<()> {
        self.0.device.check()?;
        own_qp(qp)?.disconnect()
    }

    fn poll_event(&self) -> Option<CmEvent> {
        self.0.device.check().ok()?;
        self.0.device.progress();
        self.0.events.pop().map(|(_, event)| event)
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(self.0.events.bell())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.0.events.fd()
    }
}
