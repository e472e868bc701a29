//! The program's answer to a connect request.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use verbs::provider::{CmOps, QpOps, RequestOps};
use verbs::{ConnParam, Error, Result};

use crate::connect::cm::{find_events, own_idle_qp};
use crate::connect::handshake::{hello_of, link, report_link_failure, send_hello};
use crate::connect::registry::{Conn, ConnPhase, Listener};
use crate::connection::state_of;
use crate::device_inner::DeviceInner;
use crate::memory::layout::state;
use crate::protocol::socket::{has_no_input, send};
use crate::protocol::wire::{Message, PRIVATE_MAX};
use nic_util::sync::unpoisoned;

/// The API handle by which a program answers a connect request.
pub(crate) struct RequestHandle {
    pub(crate) device: Arc<DeviceInner>,
    pub(crate) conn: Arc<Conn>,
    pub(crate) listener: Arc<Listener>,
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        self.listener.pending.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Answers a request without connecting, and closes its socket.
pub(crate) fn answer_and_close(device: &DeviceInner, conn: &Conn, message: &Message) {
    *unpoisoned(&conn.phase) = ConnPhase::Closed;
    // A peer that has ended needs no answer.
    let _ = send(&conn.socket, message, &[]);
    device.registry.drop_conn(&device.shared, conn);
}

impl RequestHandle {
    fn decline(&self, private_data: &[u8]) {
        answer_and_close(&self.device, &self.conn, &Message::Reject(private_data.to_vec()));
    }

    fn try_accept(&self, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()> {
        let cm = find_events(&self.device, cm)?;
        let qp = own_idle_qp(qp, "accept")?;
        let mut phase = unpoisoned(&self.conn.phase);
        let ConnPhase::Requested { hello, fds } = std::mem::replace(&mut *phase, ConnPhase::Closed) else {
            return Err(Error::Invalid("the connecting side has given up".into()));
        };
        if let Err(why) = link(&self.device.shared, &self.conn, &qp, &hello, fds) {
            report_link_failure(&self.conn, &why);
            return Err(why);
        }
        // Before the state changes: a thread that destroys the queue pair from then on must find the
        // connection.
        qp.connection.socket.store(self.conn.id, Ordering::Release);
        if !qp.connection.advance(state::INIT, state::RTR) {
            return Err(Error::WrongState { call: "accept", state: state_of(qp.connection.state()) });
        }
        let deadline = self.device.shared.host.now() + param.timeout;
        *phase = ConnPhase::AwaitReady { qp: qp.clone(), cm, deadline };
        self.device.registry.index_phase(self.conn.id, &phase);
        drop(phase);
        let reply = Message::Reply(hello_of(&self.device.shared, &qp, param));
        if let Err(why) = send_hello(&self.device.shared, &self.conn, &qp, &reply) {
            self.device.registry.end_conn(&self.device.shared, &self.conn, &why);
        }
        self.device.shared.reactor.wake();
        Ok(())
    }
}

impl RequestOps for RequestHandle {
    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        let result = self.try_accept(cm, qp, param);
        if result.is_err() {
            self.decline(&[]);
        }
        result
    }

    fn is_alive(&self) -> bool {
        // The NIC thread may not have noticed yet that the peer has gone; the socket shows it immediately.
        matches!(*unpoisoned(&self.conn.phase), ConnPhase::Requested { .. })
            && has_no_input(&self.conn.socket)
    }

    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        let limit = PRIVATE_MAX;
        let fits = Error::check_limit("bytes of private data", private_data.len() as u64, limit as u64);
        self.decline(if fits.is_ok() { private_data } else { &[] });
        fits
    }
}
