//! The connection manager of the reference NIC.

use std::any::Any;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use host::{Span, Wake};

use super::objects::QpObject;
use super::state::{Event, NicState, Request, Signal, World};
use verbs::provider::{BoundAddrOps, CmOps, ListenerOps, QpOps, RequestOps, apply_screen, downcast};
use verbs::{
    CmEvent, CmFailure, ConnInfo, ConnParam, ConnectRequest, Depths, Error, QpState, Result, Screen,
};

const MAX_PRIVATE_DATA: u64 = 196;

pub(super) struct CmObject {
    pub(super) world: Arc<World>,
    pub(super) device: usize,
    pub(super) number: u32,
    pub(super) signal: Arc<Signal>,
}

/// The number of a queue pair that may start a connection on this device.
fn idle(state: &NicState, qp: &Arc<dyn QpOps>, device: usize, call: &'static str) -> Result<u32> {
    let qp: Arc<QpObject> = downcast(qp.clone(), "the queue pair")?;
    if qp.device != device {
        return Err(Error::Foreign { what: "the queue pair" });
    }
    let pair = &state.pairs[&qp.number];
    if pair.state != QpState::Init || pair.request.is_some() {
        return Err(Error::WrongState { call, state: pair.state });
    }
    Ok(qp.number)
}

/// The address, with a port chosen for 0, if it is free.
fn free(state: &mut NicState, mut addr: SocketAddr) -> Result<SocketAddr> {
    if addr.port() == 0 {
        state.last_port += 1;
        addr.set_port(1023 + state.last_port);
    }
    match state.listeners.contains_key(&addr) || state.held.contains(&addr) {
        true => Err(Error::Address { addr, why: "the address is in use".into() }),
        false => Ok(addr),
    }
}

impl CmObject {
    /// The address of a port of this device without a listener.
    fn idle_port(&self, state: &NicState, port: &dyn BoundAddrOps) -> Result<SocketAddr> {
        let port = (port as &dyn Any).downcast_ref::<PortObject>();
        let port =
            port.filter(|port| port.device == self.device).ok_or(Error::Foreign { what: "the port" })?;
        match state.listeners.contains_key(&port.addr) {
            true => Err(Error::Busy { what: "the port", why: "it has a listener".into() }),
            false => Ok(port.addr),
        }
    }

    fn send_request(
        &self,
        from: Option<SocketAddr>,
        qp: &Arc<dyn QpOps>,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<()> {
        let mut state = self.world.lock();
        let pair = idle(&state, qp, self.device, "connect")?;
        let Some((listening, of_listener)) = state.listeners.get(&addr).cloned() else {
            state.push_event(self.number, Event::Failed(pair, CmFailure::Refused(addr)));
            return Ok(());
        };
        let number = state.number();
        let this = state.pairs.get_mut(&pair).expect("a queue pair");
        (this.manager, this.request) = (Some(self.number), Some(number));
        let reported_qp_num = this.reported_qp_num;
        let (private_data, rnr_retry, manager) = (param.private_data.clone(), param.rnr_retry, self.number);
        let (listener, depths) = (addr, Depths::of(param));
        let mut request = Request {
            pair,
            reported_qp_num,
            manager,
            listener,
            from,
            depths,
            private_data,
            rnr_retry,
            screened: None,
        };
        let info = request.seen_by_listener();
        match apply_screen(of_listener.as_ref(), &request.private_data, info, MAX_PRIVATE_DATA as usize) {
            Ok(screened) => {
                request.screened = screened;
                state.requests.insert(number, request);
                state.push_event(listening, Event::Request(number));
            }
            Err(words) => {
                state.requests.insert(number, request);
                drop(state);
                finish_request(&self.world, number, |pair| Event::Rejected(pair, words));
                return Ok(());
            }
        }
        drop(state);
        // Tests never wait for a long time-out; a thread for each would only linger.
        if param.timeout < Span::from_secs(2) {
            let (world, timeout) = (self.world.clone(), param.timeout);
            std::thread::spawn(move || {
                std::thread::sleep(timeout.to_std());
                finish_request(&world, number, |pair| Event::Failed(pair, CmFailure::TimedOut));
            });
        }
        Ok(())
    }
}

impl CmOps for CmObject {
    fn listen(
        &self,
        addr: SocketAddr,
        _backlog: u32,
        screen: Option<Arc<dyn Screen>>,
    ) -> Result<Box<dyn ListenerOps>> {
        let mut state = self.world.lock();
        let addr = free(&mut state, addr)?;
        state.listeners.insert(addr, (self.number, screen));
        Ok(Box::new(ListenerObject { world: self.world.clone(), addr }))
    }

    fn bind(&self, addr: SocketAddr) -> Result<Box<dyn BoundAddrOps>> {
        let mut state = self.world.lock();
        let addr = free(&mut state, addr)?;
        state.held.insert(addr);
        Ok(Box::new(PortObject { world: self.world.clone(), device: self.device, addr }))
    }

    fn listen_at(&self, port: &dyn BoundAddrOps, _backlog: u32) -> Result<Box<dyn ListenerOps>> {
        let mut state = self.world.lock();
        let addr = self.idle_port(&state, port)?;
        state.listeners.insert(addr, (self.number, None));
        Ok(Box::new(ListenerObject { world: self.world.clone(), addr }))
    }

    fn connect_from(
        &self,
        port: &dyn BoundAddrOps,
        qp: &Arc<dyn QpOps>,
        addr: SocketAddr,
        param: &ConnParam,
    ) -> Result<()> {
        let from = self.idle_port(&self.world.lock(), port)?;
        self.send_request(Some(from), qp, addr, param)
    }

    fn connect(&self, qp: &Arc<dyn QpOps>, addr: SocketAddr, param: &ConnParam) -> Result<()> {
        self.send_request(None, qp, addr, param)
    }

    fn disconnect(&self, qp: &Arc<dyn QpOps>) -> Result<()> {
        let qp: Arc<QpObject> = downcast(qp.clone(), "the queue pair")?;
        let mut state = self.world.lock();
        let pair = &state.pairs[&qp.number];
        match pair.state {
            QpState::ReadyToSend | QpState::Error => state.fail(qp.number),
            state => return Err(Error::WrongState { call: "disconnect", state }),
        }
        Ok(())
    }

    fn poll_event(&self) -> Option<CmEvent> {
        let mut state = self.world.lock();
        let manager = state.managers.get_mut(&self.number).expect("this channel");
        let event = manager.events.pop_front()?;
        if manager.events.is_empty() {
            manager.signal.clear();
        }
        Some(match event {
            Event::Established(qp_num, private_data, info) => {
                CmEvent::Established { qp_num, private_data, info }
            }
            Event::Rejected(qp_num, private_data) => CmEvent::Rejected { qp_num, private_data },
            Event::Failed(qp_num, why) => CmEvent::ConnectFailed { qp_num, why },
            Event::Disconnected(qp_num) => CmEvent::Disconnected { qp_num },
            Event::Request(number) => {
                let request = state.requests.get_mut(&number);
                let unknown = SocketAddr::from(([0, 0, 0, 0], 0));
                let nobody = ConnInfo::of_ends(unknown, unknown);
                let (data, info, screened) = request.map_or((Vec::new(), nobody, None), |r| {
                    (r.private_data.clone(), r.seen_by_listener(), r.screened.take())
                });
                let ops = Box::new(RequestObject { world: self.world.clone(), number });
                CmEvent::ConnectRequest(ConnectRequest::new(ops, data, info).screened(screened))
            }
        })
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.signal.wakeup)
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.signal.fd.as_fd())
    }
}

impl Drop for CmObject {
    fn drop(&mut self) {
        self.world.lock().managers.remove(&self.number);
    }
}

impl Request {
    fn seen_by_listener(&self) -> ConnInfo {
        let own = SocketAddr::new(self.listener.ip(), 50_000 + (self.pair % 10_000) as u16);
        let peer = self.from.unwrap_or(own);
        ConnInfo {
            depths: Some(self.depths),
            qp_num: Some(self.reported_qp_num),
            rnr_retry: Some(self.rnr_retry),
            ..ConnInfo::of_ends(self.listener, peer)
        }
    }
}

/// Ends a request that is still unanswered, with an event for its queue pair.
fn finish_request(world: &World, number: u32, event: impl FnOnce(u32) -> Event) {
    let mut state = world.lock();
    let Some(request) = state.requests.remove(&number) else { return };
    if let Some(pair) = state.pairs.get_mut(&request.pair) {
        pair.request = None;
        state.push_event(request.manager, event(request.pair));
    }
}

struct PortObject {
    world: Arc<World>,
    device: usize,
    addr: SocketAddr,
}

impl BoundAddrOps for PortObject {
    fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for PortObject {
    fn drop(&mut self) {
        self.world.lock().held.remove(&self.addr);
    }
}

struct ListenerObject {
    world: Arc<World>,
    addr: SocketAddr,
}

impl ListenerOps for ListenerObject {
    fn addr(&self) -> SocketAddr {
        self.addr
    }
}

impl Drop for ListenerObject {
    fn drop(&mut self) {
        let mut state = self.world.lock();
        let Some((manager, _)) = state.listeners.remove(&self.addr) else { return };
        let NicState { managers, requests, .. } = &mut *state;
        let Some(manager) = managers.get_mut(&manager) else { return };
        let (before, mut waiting) = (manager.events.len(), Vec::new());
        manager.events.retain(|event| match event {
            Event::Request(n) if requests.get(n).is_none_or(|r| r.listener == self.addr) => {
                waiting.push(*n);
                false
            }
            _ => true,
        });
        if before > 0 && manager.events.is_empty() {
            manager.signal.clear();
        }
        drop(state);
        for number in waiting {
            finish_request(&self.world, number, |pair| Event::Rejected(pair, Vec::new()));
        }
    }
}

struct RequestObject {
    world: Arc<World>,
    number: u32,
}

impl RequestOps for RequestObject {
    fn is_alive(&self) -> bool {
        self.world.lock().requests.contains_key(&self.number)
    }

    fn accept(self: Box<Self>, cm: &dyn CmOps, qp: &Arc<dyn QpOps>, param: &ConnParam) -> Result<()> {
        let cm = (cm as &dyn Any).downcast_ref::<CmObject>().ok_or(Error::Foreign { what: "the channel" });
        let checked = cm.and_then(|cm| Ok((cm, idle(&self.world.lock(), qp, cm.device, "accept")?)));
        let (cm, passive) = match checked {
            Ok(both) => both,
            Err(e) => return self.reject(&[]).and(Err(e)),
        };
        let mut state = self.world.lock();
        state.pairs.get_mut(&passive).expect("a queue pair").manager = Some(cm.number);
        let Some(request) = state.requests.remove(&self.number) else {
            state.push_event(cm.number, Event::Failed(passive, CmFailure::PeerGone));
            state.fail(passive);
            return Ok(());
        };
        // Each side's parameter limits the retries of the other.
        let ends = [(request.pair, passive, param.rnr_retry), (passive, request.pair, request.rnr_retry)];
        for (own, peer, rnr_retry) in ends {
            let pair = state.pairs.get_mut(&own).expect("a queue pair");
            (pair.state, pair.peer, pair.request) = (QpState::ReadyToSend, Some(peer), None);
            pair.rnr_retry.get_or_insert(rnr_retry);
        }
        let reported_qp_num = state.pairs.get(&passive).expect("a queue pair").reported_qp_num;
        let theirs = request.seen_by_listener();
        let ours = ConnInfo {
            depths: Some(Depths::of(param)),
            qp_num: Some(reported_qp_num),
            rnr_retry: Some(param.rnr_retry),
            ..ConnInfo::of_ends(theirs.peer, theirs.local)
        };
        state.push_event(request.manager, Event::Established(request.pair, param.private_data.clone(), ours));
        state.push_event(cm.number, Event::Established(passive, Vec::new(), theirs));
        Ok(())
    }

    fn reject(self: Box<Self>, private_data: &[u8]) -> Result<()> {
        let fits = Error::check_limit("bytes", private_data.len() as u64, MAX_PRIVATE_DATA);
        let data = if fits.is_ok() { private_data.to_vec() } else { Vec::new() };
        finish_request(&self.world, self.number, |pair| Event::Rejected(pair, data));
        fits
    }
}
