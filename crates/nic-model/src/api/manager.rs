//! The connection manager's objects.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{EventCount, Wake};
use verbs::provider::{CmOps, ListenerOps, QpOps, RequestOps, downcast};
use verbs::{CmEvent, ConnInfo, ConnParam, ConnectRequest, Error, Result, Screen};

use super::opened::OpenedDevice;
use super::queues::QpObject;
use crate::limits;
use crate::net::connections::{ChannelEvent, ListenerKey};

/// A channel of connection events.
pub(super) struct CmObject {
    pub(super) opened: Arc<OpenedDevice>,
    pub(super) key: u32,
    pub(super) wakeup: EventCount,
}

impl CmObject {
    fn own_qp(&self, qp: &Arc<dyn QpOps>) -> Result<u32> {
        let pair: Arc<QpObject> = downcast(qp.clone(), "the queue pair")?;
        Ok(pair.key)
    }
}

impl CmOps for CmObject {
    fn listen(
        &self,
        addr: SocketAddr,
        backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>> {
        let (mut network, _) = self.opened.lock_synced();
        let own = (self.opened.card, self.opened.port);
        let (listener, addr) = network.listen(own, self.key, addr, (backlog, screen))?;
        Ok(Box::new(ListenerObject { opened: self.opened.clone(), listener, addr }))
    }

    fn connect(&self, qp: &Arc<dyn QpOps>, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        let qp = self.own_qp(qp)?;
        self.opened.lock_synced().0.check_idle(qp, "connect")?;
        self.opened.charge(self.opened.calls.connect);
        let (mut network, now) = self.opened.lock_synced();
        network.connect(now, self.key, qp, addr, param)
    }

    fn disconnect(&self, qp: &Arc<dyn QpOps>) -> Result<()> {
        let pair: Arc<QpObject> = downcast(qp.clone(), "the queue pair")?;
        let (mut network, now) = self.opened.lock_synced();
        network.disconnect(now, pair.key)
    }

    fn poll_event(&self) -> Option<CmEvent> {
        let (mut network, _) = self.opened.lock_synced();
        Some(match network.poll_cm(self.key)? {
            ChannelEvent::Established(qp_num, private_data, info) => {
                CmEvent::Established { qp_num, private_data, info }
            }
            ChannelEvent::Rejected(qp_num, private_data) => CmEvent::Rejected { qp_num, private_data },
            ChannelEvent::Failed(qp_num, why) => CmEvent::ConnectFailed { qp_num, why },
            ChannelEvent::Disconnected(qp_num) => CmEvent::Disconnected { qp_num },
            ChannelEvent::Request(key) => {
                let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
                let request = network.connect_request(key);
                let nobody = ConnInfo::of_ends(unknown, unknown);
                let (data, info, screened) = request.unwrap_or((Vec::new(), nobody, None));
                let ops = RequestObject { opened: self.opened.clone(), key };
                CmEvent::ConnectRequest(ConnectRequest::new(Box::new(ops), data, info).screened(screened))
            }
        })
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.wakeup)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl Drop for CmObject {
    fn drop(&mut self) {
        let (mut network, now) = self.opened.lock_synced();
        network.drop_cm(now, self.key);
    }
}

struct ListenerObject {
    opened: Arc<OpenedDevice>,
    listener: ListenerKey,
    addr: SocketAddr,
}

impl ListenerOps for ListenerObject {
    fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for ListenerObject {
    fn drop(&mut self) {
        let (mut network, now) = self.opened.lock_synced();
        network.stop_listening(now, self.listener);
    }
}

/// An unanswered connect request.
struct RequestObject {
    opened: Arc<OpenedDevice>,
    key: u32,
}

impl RequestOps for RequestObject {
    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()> {
        let manager = (cm as &dyn Any).downcast_ref::<CmObject>();
        let manager = manager.filter(|manager| Arc::ptr_eq(&manager.opened, &self.opened));
        let manager = manager.ok_or(Error::Foreign { what: "the event channel" });
        let checked = manager.and_then(|manager| {
            let pair = manager.own_qp(qp)?;
            self.opened.lock_synced().0.check_idle(pair, "accept")?;
            Ok((manager, pair))
        });
        let (manager, pair) = match checked {
            Ok(both) => both,
            Err(e) => return self.reject(&[]).and(Err(e)),
        };
        self.opened.charge(self.opened.calls.connect);
        let (mut network, now) = self.opened.lock_synced();
        network.accept(now, manager.key, self.key, pair, param);
        Ok(())
    }

    fn is_alive(&self) -> bool {
        self.opened.lock_synced().0.is_asked(self.key)
    }

    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()> {
        let fits = Error::check_limit(
            "bytes of private data",
            private_data.len() as u64,
            limits::PRIVATE_BYTES.into(),
        );
        let data = if fits.is_ok() { private_data.to_vec() } else { Vec::new() };
        let (mut network, now) = self.opened.lock_synced();
        network.reject(now, self.key, data);
        fits
    }
}
