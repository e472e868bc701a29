//! A connection request that waits for the program's answer.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use iwarp::mpa::{AcceptParams, Negotiated, Responder};
use rustix::event::epoll::EventFlags;
use verbs::provider::{CmOps, QpOps, RequestOps, apply_screen};
use verbs::{CmEvent, CmFailure, ConnInfo, ConnParam, ConnectRequest, Error, Result};

use crate::config::{MARKER_READS, PRIVATE_DATA_MAX};
use crate::connect::cm::{find_events, own_qp};
use crate::connect::incoming::IncomingRequest;
use crate::connect::listener::Listener;
use crate::connection::active_conn::ActiveConn;
use crate::connection::end_reason::EndReason;
use crate::device_inner::DeviceInner;
use crate::qp::QpInner;
use crate::queues::cm_events::CmEvents;
use crate::queues::qp_queues::{state, state_of};
use crate::tcp::capture::Way;
use crate::tcp::conn_info;
use crate::tcp::socket::{has_closed, send_now};
use nic_util::fork::ForkSafeFd;

/// Reports a complete request to the program.
pub(crate) fn report(device: &Arc<DeviceInner>, socket: ForkSafeFd, incoming: IncomingRequest) {
    let IncomingRequest { mut machine, request, listener, peer } = incoming;
    let Some(events) = listener.events() else { return };
    let info = conn_info::info(&socket, peer, conn_info::requested(request.enhanced.as_ref()));
    let screened = match apply_screen(listener.screen.as_ref(), &request.private_data, info, PRIVATE_DATA_MAX)
    {
        Ok(screened) => screened,
        Err(private_data) => {
            // This fails if the state machine has already refused the request as incompatible.
            let _ = machine.reject(&private_data);
            return device.shared.linger(socket, machine.transmit().to_vec());
        }
    };
    let waiting = listener.pending.fetch_add(1, Ordering::AcqRel);
    let open = Some((socket, machine));
    let ops = RequestHandle { device: device.clone(), listener: listener.clone(), open, info };
    let request = ConnectRequest::new(Box::new(ops), request.private_data, info).screened(screened);
    if waiting >= listener.backlog {
        // Dropping the request rejects it.
        return drop(request);
    }
    listener.push(&events, CmEvent::ConnectRequest(request));
}

/// A connection request that waits for the program's answer.
struct RequestHandle {
    device: Arc<DeviceInner>,
    listener: Arc<Listener>,
    open: Option<(ForkSafeFd, Box<Responder>)>,
    info: ConnInfo,
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.listener.pending.fetch_sub(1, Ordering::AcqRel);
    }
}

impl RequestHandle {
    fn send_reject(&mut self, private_data: &[u8]) {
        let Some((socket, mut machine)) = self.open.take() else { return };
        // This fails if the state machine has already refused the request as incompatible.
        let _ = machine.reject(private_data);
        self.device.shared.linger(socket, machine.transmit().to_vec());
    }

    fn try_accept(&mut self, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()> {
        let (events, qp) = (find_events(&self.device, cm)?, own_qp(qp)?);
        let queues = &qp.queues;
        if queues.state() != state::INIT {
            return Err(Error::WrongState { call: "accept", state: state_of(queues.state()) });
        }
        let Some((socket, mut machine)) = self.open.take() else {
            return Err(Error::Invalid("the connect request has already been answered".into()));
        };
        let accept = AcceptParams {
            ird: u16::from(param.responder_resources) + MARKER_READS,
            ord: u16::from(param.initiator_depth) + MARKER_READS,
            private_data: param.private_data.clone(),
        };
        let negotiated = match machine.accept(&accept) {
            Ok(negotiated) => negotiated,
            Err(error) => {
                self.open = Some((socket, machine));
                return Err(Error::Invalid(error.to_string()));
            }
        };
        if !queues.advance(state::INIT, state::RTR) {
            let now = state_of(queues.state());
            drop(socket);
            return Err(Error::WrongState { call: "accept", state: now });
        }
        self.begin(&qp, &events, socket, machine.transmit(), &negotiated, param);
        Ok(())
    }

    /// Starts the connection with this reply.
    fn begin(
        &self,
        qp: &Arc<QpInner>,
        events: &Arc<CmEvents>,
        socket: ForkSafeFd,
        reply: &[u8],
        negotiated: &Negotiated,
        param: &ConnParam,
    ) {
        let (shared, queues) = (&self.device.shared, &qp.queues);
        let sent = shared.reactor.watch(socket.as_fd(), u64::MAX, EventFlags::ONESHOT).is_ok()
            && send_now(&socket, reply).is_ok_and(|n| n == reply.len());
        if sent {
            shared.record(&socket, Way::Out, reply);
        }
        let info = ConnInfo { depths: conn_info::negotiated(negotiated), ..self.info };
        let active =
            ActiveConn::new(shared, socket, negotiated, events.clone(), param, &[]).delay_established(info);
        qp.with(|conn| {
            if !sent {
                conn.end(queues, &EndReason::Closed);
                let why = CmFailure::PeerGone;
                return events.push(CmEvent::ConnectFailed { qp_num: queues.num, why });
            }
            self.device.add_connected(qp);
            conn.begin(queues, active);
            if negotiated.rtr.is_none() {
                // No first message is expected from the peer; our sends are still held back until the peer has sent.
                conn.ready(queues);
            }
        });
        if negotiated.rtr.is_some() {
            shared.reactor.set_timer(shared.host.now() + param.timeout, queues.num);
        }
    }
}

impl RequestOps for RequestHandle {
    fn accept(mut self: Box<Self>, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        let result = self.try_accept(cm, qp, param);
        if result.is_err() {
            self.send_reject(&[]);
        }
        result
    }

    fn is_alive(&self) -> bool {
        self.open.as_ref().is_some_and(|(socket, _)| !has_closed(socket))
    }

    fn reject(mut self: Box<Self>, private_data: &[u8]) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        let fits =
            Error::check_limit("bytes of private data", private_data.len() as u64, PRIVATE_DATA_MAX as u64);
        self.send_reject(if fits.is_ok() { private_data } else { &[] });
        fits
    }
}
