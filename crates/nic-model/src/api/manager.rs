//! The connection manager's objects.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::Bell;
use verbs::provider::{CmOps, ListenerOps, RequestOps, own};
use verbs::{CmEvent, ConnParam, ConnectRequest, Error, Qp, Result};

use super::Opened;
use super::queues::PairObject;
use crate::limits;
use crate::net::objects::{ListenerKey, event_of};

/// A channel of connection events.
pub(super) struct ManagerObject {
    pub(super) opened: Arc<Opened>,
    pub(super) key: u32,
    pub(super) bell: Bell,
}

impl ManagerObject {
    fn own_pair(&self, qp: &Qp) -> Result<u32> {
        let pair: Arc<PairObject> = own(qp.ops().clone(), "the queue pair")?;
        Ok(pair.key)
    }
}

impl CmOps for ManagerObject {
    fn listen(&self, addr: SocketAddr, backlog: u32) -> Result<Box<dyn ListenerOps>> {
        let (mut state, _) = self.opened.look();
        let (place, addr) = state.listen((self.opened.card, self.opened.port), self.key, addr, backlog)?;
        Ok(Box::new(ListenerObject { opened: self.opened.clone(), place, addr }))
    }

    fn connect(&self, qp: &Qp, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        let pair = self.own_pair(qp)?;
        self.opened.look().0.is_idle(pair, "connect")?;
        self.opened.charge(self.opened.calls.connect);
        let (mut state, now) = self.opened.look();
        state.connect(now, self.key, pair, addr, param)
    }

    fn disconnect(&self, qp: &Qp) -> Result<()> {
        let pair: Arc<PairObject> = own(qp.ops().clone(), "the queue pair")?;
        let (mut state, now) = self.opened.look();
        state.disconnect(now, pair.key)
    }

    fn poll_event(&self) -> Option<CmEvent> {
        let (mut state, _) = self.opened.look();
        let told = state.poll_manager(self.key)?;
        Some(event_of(told).unwrap_or_else(|key| {
            let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
            let (data, peer, local) = state.request(key).unwrap_or((Vec::new(), unknown, unknown));
            let ops = RequestObject { opened: self.opened.clone(), key };
            CmEvent::ConnectRequest(ConnectRequest::new(Box::new(ops), data, peer, local))
        }))
    }

    fn bell(&self) -> &Bell {
        &self.bell
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for ManagerObject {
    fn drop(&mut self) {
        let (mut state, now) = self.opened.look();
        state.drop_manager(now, self.key);
    }
}

struct ListenerObject {
    opened: Arc<Opened>,
    place: ListenerKey,
    addr: SocketAddr,
}

impl ListenerOps for ListenerObject {
    fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for ListenerObject {
    fn drop(&mut self) {
        let (mut state, now) = self.opened.look();
        state.stop_listening(now, self.place);
    }
}

/// A connect request that waits for its answer.
struct RequestObject {
    opened: Arc<Opened>,
    key: u32,
}

impl RequestOps for RequestObject {
    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Qp, param: &ConnParam) -> Result<()> {
        let manager = (cm as &dyn Any).downcast_ref::<ManagerObject>();
        let manager = manager.filter(|manager| Arc::ptr_eq(&manager.opened, &self.opened));
        let manager = manager.ok_or(Error::Foreign { what: "the event channel" });
        let checked = manager.and_then(|manager| {
            let pair = manager.own_pair(qp)?;
            self.opened.look().0.is_idle(pair, "accept")?;
            Ok((manager, pair))
        });
        let (manager, pair) = match checked {
            Ok(both) => both,
            Err(e) => return self.reject(&[]).and(Err(e)),
        };
        self.opened.charge(self.opened.calls.connect);
        let (mut state, now) = self.opened.look();
        state.accept(now, manager.key, self.key, pair, param);
        Ok(())
    }

    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()> {
        let fits = Error::check_limit(
            "bytes of private data",
            private_data.len() as u64,
            limits::PRIVATE_BYTES.into(),
        );
        let data = if fits.is_ok() { private_data.to_vec() } else { Vec::new() };
        let (mut state, now) = self.opened.look();
        state.reject(now, self.key, data);
        fits
    }
}
