//! API handles of queue pairs: creating them, posting to them, and destroying them.

use std::sync::Arc;

use host::Span;
use verbs::provider::{QpOps, QpParts, downcast};
use verbs::{Buf, Error, QpState, RecvWr, RemoteAddr, Result, SendWr};

use crate::api::cq::CqHandle;
use crate::api::srq::SrqHandle;
use crate::api::window::map_peer;
use crate::connection::state_of;
use crate::device_inner::DeviceInner;
use crate::memory::layout::state;
use crate::qp::{QpInner, QpParams};

/// How long failing and destroying wait for a peer that is inside; after that, number and rings are freed
/// when the peer has left.
pub(crate) const PATIENCE: Span = Span::from_ms(100);

/// The API handle of a queue pair: dropping it destroys the queue pair.
pub(crate) struct QpHandle {
    pub(crate) qp: Arc<QpInner>,
    pub(crate) device: Arc<DeviceInner>,
    send_cq: Arc<CqHandle>,
    recv_cq: Arc<CqHandle>,
}

impl QpHandle {
    pub(crate) fn create(device: &Arc<DeviceInner>, pd: u32, init: &QpParts) -> Result<Self> {
        let send_cq: Arc<CqHandle> = downcast(init.send_cq.clone(), "the send completion queue")?;
        let recv_cq: Arc<CqHandle> = downcast(init.recv_cq.clone(), "the receive completion queue")?;
        let srq = init.srq.as_ref().map(|srq| downcast(srq.clone(), "the shared receive queue"));
        let srq: Option<Arc<SrqHandle>> = srq.transpose()?;
        let params = QpParams {
            pd,
            cap: init.cap,
            signal_all: init.sq_sig_all,
            reported_qp_num: init.reported_qp_num,
            send: send_cq.polling.completions.clone(),
            recv: recv_cq.polling.completions.clone(),
            srq: srq.as_ref().map(|srq| srq.receives.clone()),
        };
        let qp = Arc::new(QpInner::new(&device.shared, params)?);
        if send_cq.polling.attach_sender(&qp) {
            device.watch_for_overrun(&send_cq.polling);
        }
        if recv_cq.polling.attach_receiver(&qp) {
            device.watch_for_overrun(&recv_cq.polling);
        }
        device.objects.add_qp(&qp);
        Ok(Self { device: device.clone(), qp, send_cq, recv_cq })
    }

    /// Ends the connection, established or being set up; `with_event` is whether the program gets an event.
    fn end_connection(&self, with_event: bool) {
        self.device.registry.disconnect(&self.device.shared, &self.qp, with_event);
        self.qp.fail_without_event();
    }

    /// Waits until the peer accesses no memory of this side; false if it still does after [`PATIENCE`].
    fn wait_for_peer(&self) -> bool {
        let (host, out) = (&self.device.shared.host, || (!self.qp.peer_is_inside()).then_some(()));
        host.poll("the peer's last access", host.after(PATIENCE), out).is_some()
    }
}

impl Drop for QpHandle {
    /// Destroys the queue pair: disconnects from the peer, and removes all that refers to it.
    fn drop(&mut self) {
        let (shared, qp) = (&self.device.shared, &self.qp);
        if shared.fork_guard.is_forked() {
            return;
        }
        qp.suppress_events();
        self.end_connection(false);
        // Ends a connection that was established between the two calls.
        self.device.registry.disconnect(shared, qp, false);
        let is_out = self.wait_for_peer();
        self.send_cq.polling.detach_sender(qp);
        self.recv_cq.polling.detach_receiver(qp);
        qp.receiving.free_claims(&qp.connection);
        self.device.objects.remove_qp(shared, qp, is_out);
    }
}

impl QpOps for QpHandle {
    fn num(&self) -> u32 {
        self.qp.num()
    }

    fn state(&self) -> QpState {
        state_of(self.qp.connection.state())
    }

    #[inline]
    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        self.qp.connection.device.fork_guard.check()?;
        self.qp.post_send(wr)
    }

    #[inline]
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.qp.connection.device.fork_guard.check()?;
        self.qp.receiving.post(&self.qp.connection, wr)
    }

    fn map(&self, remote: RemoteAddr, len: usize) -> Result<Buf> {
        self.device.shared.fork_guard.check()?;
        let connection = &self.qp.connection;
        let status = connection.state();
        match connection.link().filter(|_| status == state::RTS) {
            Some(link) => map_peer(link, remote, len),
            None => Err(Error::WrongState { call: "Qp::map", state: state_of(status) }),
        }
    }

    #[inline]
    fn notify(&self) -> Result<()> {
        if let Some(link) = self.qp.connection.link().filter(|link| link.accepts_operations()) {
            link.notify();
        }
        Ok(())
    }

    fn set_rnr_retry(&self, retries: u8) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        self.qp.connection.set_rnr_retry(retries);
        Ok(())
    }

    fn set_rnr_pause(&self, pause: Span) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        self.qp.connection.set_rnr_pause(pause);
        Ok(())
    }

    fn failure(&self) -> Option<String> {
        self.qp.connection.failure()
    }

    fn has_completed(&self) -> bool {
        !self.device.shared.fork_guard.is_forked()
            && (self.qp.receiving.pollable() > 0 || self.qp.sending.has_completed())
    }

    /// Fails the queue pair and waits for the peer: afterwards the program may reuse its memory.
    fn to_error(&self) {
        if !self.device.shared.fork_guard.is_forked() {
            self.end_connection(true);
            self.wait_for_peer();
        }
    }
}
