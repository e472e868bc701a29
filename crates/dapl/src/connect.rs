//! Connections of endpoints: how they are opened and closed, and the handling of the device's events.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use host::Span;
use verbs::{CmEvent, CmFailure, ConnParam, Qp};

use crate::attr::{Close, EpState};
use crate::ep::{Ep, EpInner};
use crate::ia::Endpoint;
use crate::sync::lock;
use crate::{ConnectionKind, Error, ErrorKind, Evd, Event, Label, Result, Subtype};

/// The time-out of a connect without one: a peer that does not answer by then is lost.
const CONNECT_TIMEOUT_MAX: Span = Span::from_secs(600);

/// How long closing waits for requests in flight, and for flushed ones.
const DRAIN: Span = Span::from_secs(5);
const FLUSH: Span = Span::from_secs(1);

/// Ports below this are reserved for the system.
const FIRST_PORT: u64 = 1024;

/// The port of a connection qualifier. Qualifiers beyond 65535 are mapped to ports from 1024 on, so that adjacent qualifiers
/// get adjacent ports; two qualifiers may share a port, and are then the same service point.
pub fn port_of(conn_qual: u64) -> u16 {
    match u16::try_from(conn_qual) {
        Ok(port) => port,
        Err(_) => (FIRST_PORT + conn_qual % (65_536 - FIRST_PORT)) as u16,
    }
}

impl Ep {
    /// Starts to connect to the service point with `conn_qual` at `address`; an event reports the result (`dat_ep_connect`).
    /// `timeout` is how long the peer may take, `None` for ever.
    ///
    /// # Errors
    /// `InvalidState` unless unconnected, or without a zone; argument 3 for a qualifier of 0, 4 for a time-out of 0, 5 for
    /// too much private data; `InvalidHandle` without a dispatcher for connections; `InvalidAddress`.
    pub fn connect(
        &self,
        address: IpAddr,
        conn_qual: u64,
        timeout: Option<Span>,
        private_data: &[u8],
    ) -> Result<()> {
        let inner = &*self.0;
        if conn_qual == 0 {
            return Err(Error::argument(Subtype::Arg3));
        }
        if timeout == Some(Span::ZERO) {
            return Err(Error::argument(Subtype::Arg4));
        }
        if private_data.len() > inner.ia.attr.max_private_data as usize {
            return Err(Error::argument(Subtype::Arg5));
        }
        let qp = inner.check_connectable()?;
        inner.transition(EpState::Unconnected, EpState::ActiveConnectionPending)?;
        let to = SocketAddr::new(address, port_of(conn_qual));
        inner.set_link(Some(to), conn_qual);
        inner.ia.start_dispatch_thread();
        inner.ia.cm.connect(&qp, to, &inner.param(private_data, timeout)).map_err(|cause| {
            inner.set_state(EpState::Unconnected);
            Error::device(cause, Subtype::ResourceTep)
        })
    }

    /// Starts to connect to the same service point as `other` (`dat_ep_dup_connect`).
    ///
    /// # Errors
    /// As [`Ep::connect`]; `InvalidState` unless `other` is connected.
    pub fn connect_like(&self, other: &Self, timeout: Option<Span>, private_data: &[u8]) -> Result<()> {
        let link = other.link();
        match link.remote {
            Some(remote) if other.state() == EpState::Connected => {
                self.connect(remote.ip(), link.conn_qual, timeout, private_data)
            }
            _ => Err(other.0.state_error()),
        }
    }

    /// Closes the connection; an event reports when that has finished (`dat_ep_disconnect`). If graceful, posted requests
    /// get five seconds to complete first.
    ///
    /// # Errors
    /// `InvalidState` if it is not, was not, and is not about to be connected.
    pub fn disconnect(&self, close: Close) -> Result<()> {
        let inner = &*self.0;
        match self.state() {
            EpState::Connected => {
                if close == Close::Graceful {
                    inner.drain();
                }
                // The peer may have disconnected first.
                if inner.transition(EpState::Connected, EpState::DisconnectPending).is_ok() {
                    inner.send_disconnect();
                }
                Ok(())
            }
            state @ (EpState::ActiveConnectionPending | EpState::CompletionPending) => {
                if inner.transition(state, EpState::Disconnected).is_ok() {
                    inner.flush();
                    inner.report(ConnectionKind::Disconnected, Arc::default());
                }
                Ok(())
            }
            EpState::DisconnectPending | EpState::Disconnected => Ok(()),
            _ => Err(inner.state_error()),
        }
    }

    /// Makes it usable again after a connection; posted work is flushed (`dat_ep_reset`).
    ///
    /// # Errors
    /// `InvalidState` unless disconnected or unconnected; resources for a new queue pair.
    pub fn reset(&self) -> Result<()> {
        let inner = &self.0;
        match self.state() {
            EpState::Unconnected if inner.lock_recv().is_idle() => return Ok(()),
            EpState::Unconnected | EpState::Disconnected => {}
            _ => return Err(inner.state_error()),
        }
        inner.flush();
        let recv_evd = inner.lock_recv().evd();
        if let Some(evd) = recv_evd {
            inner.wait_until(&evd, FLUSH, || inner.lock_recv().is_idle());
        }
        inner.tear_down();
        inner.build()?;
        inner.set_state(EpState::Unconnected);
        Ok(())
    }
}

impl EpInner {
    /// The queue pair, if everything that a connection needs is configured.
    pub(crate) fn check_connectable(&self) -> Result<Arc<Qp>> {
        if lock(&self.config).given.connect_evd.is_none() {
            return Err(Error::handle(Subtype::HandleEvdConn));
        }
        self.qp().ok_or(Error::state(Subtype::EpNotReady))
    }

    /// The parameters negotiated with the peer.
    pub(crate) fn param(&self, private_data: &[u8], timeout: Option<Span>) -> ConnParam {
        let attr = lock(&self.config).attr;
        let reads = |wanted: u32| u8::try_from(wanted).unwrap_or(u8::MAX);
        ConnParam {
            private_data: private_data.to_vec(),
            timeout: timeout.unwrap_or(CONNECT_TIMEOUT_MAX),
            responder_resources: reads(attr.max_rdma_read_in),
            initiator_depth: reads(attr.max_rdma_read_out),
            ..ConnParam::default()
        }
    }

    pub(crate) fn set_link(&self, remote: Option<SocketAddr>, conn_qual: u64) {
        let mut link = lock(&self.link);
        (link.remote, link.conn_qual) = (remote, conn_qual);
    }

    fn report(&self, kind: ConnectionKind, private_data: Arc<[u8]>) {
        let evd = lock(&self.config).given.connect_evd.clone();
        if let Some(evd) = evd {
            evd.0.queue_and_wake(Event::Connection { ep: self.label(), kind, private_data });
        }
    }

    fn send_disconnect(&self) {
        if let Some(qp) = self.qp() {
            // If that fails, the connection has ended already, and its event will follow.
            let _ = self.ia.cm.disconnect(&qp);
        }
    }

    /// Flushes all posted work.
    fn flush(&self) {
        if let Some(qp) = self.qp() {
            qp.to_error();
        }
    }

    /// Waits for posted requests to complete, up to a limit.
    fn drain(&self) {
        let evd = self.lock_send().evd();
        if let Some(evd) = evd {
            self.wait_until(&evd, DRAIN, || self.lock_send().is_idle());
        }
    }

    /// Moves completions into the dispatcher's own queue until `done`.
    fn wait_until(&self, evd: &Evd, span: Span, done: impl Fn() -> bool) {
        let host = &self.ia.host;
        host.wait("Ep::drain", &*evd.0, host.after(span), || {
            evd.0.move_completions();
            done().then_some(())
        });
    }

    /// The connection is established.
    fn established(&self, private_data: Vec<u8>) {
        use EpState as S;
        let pending = [S::ActiveConnectionPending, S::CompletionPending];
        if pending.into_iter().any(|from| self.transition(from, S::Connected).is_ok()) {
            self.report(ConnectionKind::Established, private_data.into());
        }
    }

    /// The connection could not be established.
    fn failed(&self, kind: ConnectionKind, private_data: Vec<u8>) {
        use EpState as S;
        let passive = self.transition(S::CompletionPending, S::Disconnected).is_ok();
        if passive || self.transition(S::ActiveConnectionPending, S::Disconnected).is_ok() {
            self.flush();
            let kind = if passive { ConnectionKind::AcceptCompletionError } else { kind };
            self.report(kind, private_data.into());
        }
    }

    /// The connection has ended.
    fn disconnected(&self) {
        use EpState as S;
        // The completion of the request that broke it may still be in the device's queue.
        let evd = self.lock_send().evd();
        if let Some(evd) = evd {
            evd.0.move_completions();
        }
        let failed = self.lock_send().has_failed() || self.lock_recv().has_failed();
        let asked = self.transition(S::DisconnectPending, S::Disconnected).is_ok();
        let from = [S::Connected, S::CompletionPending, S::ActiveConnectionPending];
        if asked || from.into_iter().any(|from| self.transition(from, S::Disconnected).is_ok()) {
            let broken = failed && !asked;
            let kind = if broken { ConnectionKind::Broken } else { ConnectionKind::Disconnected };
            self.report(kind, Arc::default());
        }
    }
}

impl Endpoint for EpInner {
    fn label(&self) -> Label {
        self.label()
    }

    fn handle_event(&self, event: CmEvent) {
        match event {
            CmEvent::Established { private_data, .. } => self.established(private_data),
            CmEvent::Rejected { private_data, .. } => self.failed(ConnectionKind::PeerRejected, private_data),
            CmEvent::ConnectFailed { why, .. } => self.failed(connection_kind(&why), Vec::new()),
            CmEvent::Disconnected { .. } => self.disconnected(),
            // Handled by a service point.
            CmEvent::ConnectRequest(_) => {}
        }
    }

    /// Disconnects: not every device does so itself on the side whose request failed.
    fn request_failed(&self) {
        if self.state() == EpState::Connected {
            self.send_disconnect();
        }
    }
}

/// The standard's name for a failure.
fn connection_kind(why: &CmFailure) -> ConnectionKind {
    match why {
        CmFailure::Unreachable(..) => ConnectionKind::Unreachable,
        CmFailure::TimedOut => ConnectionKind::TimedOut,
        _ => ConnectionKind::NonPeerRejected,
    }
}

/// For programs with addresses of any kind.
impl Error {
    /// The error for an address of another kind than the adapter's.
    pub const fn address() -> Self {
        Self::new(ErrorKind::InvalidAddress, Subtype::AddressMalformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_qualifiers_have_adjacent_ports() {
        assert_eq!(port_of(45248), 45248);
        assert_eq!(port_of(65535), 65535);
        let base = 0xaff_ab1e;
        assert!((0..1000).all(|n| port_of(base + n + 1) == port_of(base + n) + 1));
        assert!((0..100_000).all(|n| port_of(65_536 + n) >= 1024));
    }
}
