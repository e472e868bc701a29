//! Connection channels: events of the rails' channels are passed to the queue pairs, and requests of peers to the
//! program's listeners, which listen on the first rail.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::Wake;
use verbs::provider::{CmOps, ListenerOps, QpOps, RequestOps, downcast};
use verbs::{Cm, CmEvent, ConnParam, ConnectRequest, Error, Listener, Result, Screen};

use crate::api::handle::QpHandle;
use crate::connect::cm_events::CmEvents;
use crate::connect::establish::{self, program_conn_info};
use crate::connect::hello::Hello;
use crate::connect::screening::{ListenerScreen, ScreenedRequest};
use crate::device_inner::DeviceInner;
use crate::progress::poll::progress_channels;
use crate::qp::QpInner;

/// Handles all connection events of the rails, and continues what waited for them.
pub(crate) fn progress(device: &Arc<DeviceInner>) {
    for cm in device.live_cms() {
        for (rail, rail_cm) in cm.rail_cms.iter().enumerate() {
            while let Some(event) = rail_cm.poll_event() {
                on_event(device, rail, rail_cm, event, Some(&cm));
            }
        }
    }
    for (rail, cm) in device.join_cms().iter().enumerate() {
        while let Some(event) = cm.poll_event() {
            on_event(device, rail, cm, event, None);
        }
    }
    progress_channels(device);
    // Accepted queue pairs whose lanes were not connected in time have failed.
    device.expected.retain(|qp| !establish::fail_if_timed_out(device, qp));
}

/// Handles a connection event of a rail; `of` is the program's channel that received it.
fn on_event(device: &Arc<DeviceInner>, rail: usize, cm: &Cm, event: CmEvent, of: Option<&Arc<CmEvents>>) {
    match event {
        CmEvent::ConnectRequest(request) => match of {
            Some(of) => on_request(device, of, request),
            None => establish::accept_join(device, rail, cm, request),
        },
        CmEvent::Established { qp_num, private_data, info } => {
            if let Some(qp) = device.qp_of_lane(rail, qp_num) {
                establish::on_lane_connected(device, &qp, rail, qp_num, &private_data, info);
            }
        }
        CmEvent::Rejected { qp_num, private_data } => {
            if let Some(qp) = device.qp_of_lane(rail, qp_num) {
                establish::on_lane_rejected(device, &qp, rail, qp_num, private_data);
            }
        }
        CmEvent::ConnectFailed { qp_num, why } => {
            if let Some(qp) = device.qp_of_lane(rail, qp_num) {
                establish::on_lane_failed(device, &qp, rail, qp_num, why);
            }
        }
        CmEvent::Disconnected { qp_num } => {
            if let Some(qp) = device.qp_of_lane(rail, qp_num) {
                establish::on_lane_disconnected(device, &qp, rail, qp_num);
            }
        }
    }
}

/// Handles a connection request to one of the program's listeners.
fn on_request(device: &Arc<DeviceInner>, cm: &CmEvents, mut request: ConnectRequest) {
    // The screen of the listeners attaches this; a request without it is rejected by being dropped.
    let Some(ScreenedRequest { hello, rest, screened }) = request.take_screened() else { return };
    // A rail's depths are not the program's: the rails issue reads of their own.
    let (info, local) = (program_conn_info(request.info), request.info.local);
    let ops = Box::new(RailsRequest { device: device.clone(), request, hello });
    let event = CmEvent::ConnectRequest(ConnectRequest::new(ops, rest, info).screened(screened));
    cm.events.push((Some(local), event));
}

/// A connection request that the program has not answered.
struct RailsRequest {
    device: Arc<DeviceInner>,
    request: ConnectRequest,
    hello: Hello,
}

impl RequestOps for RailsRequest {
    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()> {
        let any: &dyn std::any::Any = cm;
        let handle: &CmHandle = any.downcast_ref().ok_or(Error::Foreign { what: "the event channel" })?;
        if !Arc::ptr_eq(&handle.device, &self.device) {
            return Err(Error::Foreign { what: "the event channel" });
        }
        establish::accept(&self.device, &own_qp(qp)?, &handle.cm, self.request, &self.hello, param)
    }

    fn is_alive(&self) -> bool {
        self.request.is_alive()
    }

    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()> {
        let limit = u64::from(self.device.shared.attr.max_private_data);
        if private_data.len() as u64 > limit {
            self.request.reject(&[])?;
            return Error::check_limit("bytes of private data", private_data.len() as u64, limit);
        }
        self.request.reject(private_data)
    }
}

/// The queue pair behind the API handle.
fn own_qp(qp: &Arc<dyn QpOps>) -> Result<Arc<QpInner>> {
    let handle: Arc<QpHandle> = downcast(qp.clone(), "the queue pair")?;
    Ok(handle.qp.clone())
}

/// API handle of a listener.
struct ListenerHandle {
    device: Arc<DeviceInner>,
    rail_listener: Option<Listener>,
    addr: SocketAddr,
    cm: Arc<CmEvents>,
}

impl ListenerOps for ListenerHandle {
    fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for ListenerHandle {
    /// Rejects the requests that the program has not taken, by dropping them.
    fn drop(&mut self) {
        drop(self.rail_listener.take());
        if self.device.shared.is_inherited() {
            return;
        }
        drop(self.cm.events.take_all(|(of, _)| *of == Some(self.addr)));
    }
}

/// API handle of a connection channel.
pub(crate) struct CmHandle {
    device: Arc<DeviceInner>,
    cm: Arc<CmEvents>,
}

impl CmHandle {
    pub(crate) fn create(device: &Arc<DeviceInner>) -> Result<Self> {
        let cm = Arc::new(CmEvents::new(&device.shared)?);
        device.add_cm(&cm);
        Ok(Self { device: device.clone(), cm })
    }
}

impl CmOps for CmHandle {
    fn listen(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>> {
        let screen = Arc::new(ListenerScreen::new(&self.device.shared, screen));
        let listener = self.cm.rail_cm(0).listen_screened(addr, backlog, screen)?;
        let addr = listener.addr();
        let (device, rail_listener, cm) = (self.device.clone(), Some(listener), self.cm.clone());
        Ok(Box::new(ListenerHandle { device, rail_listener, addr, cm }))
    }

    fn connect(&self, qp: &Arc<dyn QpOps>, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        self.device.shared.check()?;
        establish::connect(&self.device, &own_qp(qp)?, &self.cm, addr, param)
    }

    fn disconnect(&self, qp: &Arc<dyn QpOps>) -> Result<()> {
        self.device.shared.check()?;
        establish::disconnect(&*own_qp(qp)?)
    }

    fn poll_event(&self) -> Option<CmEvent> {
        self.device.shared.check().ok()?;
        progress(&self.device);
        self.cm.events.pop().map(|(_, event)| event)
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(self.cm.events.wakeup())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.cm.events.fd()
    }
}
