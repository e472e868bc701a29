//! [`Rail`]: the objects of each rail: adapter, zone, endpoint, dispatchers, and a region that is the same memory on
//! all.

use std::net::IpAddr;

use dapl::{
    Adapter, CompletionFlags, ConnectionKind, DtoStatus, Ep, EpAttr, EpConfig, Evd, EvdFlags, Event, Ia, Lmr,
    MemPriv, Psp, Pz, RemoteAddr, RequestEvent, Sge,
};
use serde::{Deserialize, Serialize};
use verbs::host::Span;
use verbs::{Buf, Device};

use super::super::{Fault, Session};

/// Events that a dispatcher holds.
const EVENTS: u32 = 64;
/// Request slots of an endpoint: enough that slots of unsignaled requests are reclaimed in few operations only.
const REQUESTS: u32 = 1024;
/// Receives posted at a time: the awaited one, and one ahead, so that a message always finds a receive.
const AHEAD: usize = 2;

/// One rail, connected.
pub(super) struct Rail {
    ep: Ep,
    received: Evd,
    lmr: Lmr,
    /// The part of each message sent over it: its offset, and its length.
    at: u64,
    len: u32,
    /// The address of the peer's sink.
    remote: RemoteAddr,
    patience: Span,
    _psp: Option<Psp>,
}

/// The address of a side's sink, as sent to the other side.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Sink {
    addr: u64,
    context: u32,
}

/// The address that a side listens on: the rail's own address if it has one, and the qualifier.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Point {
    ip: Option<IpAddr>,
    qual: u64,
}

fn fault(what: &'static str) -> impl Fn(dapl::Error) -> Fault {
    move |why| match why.kind {
        dapl::ErrorKind::TimeoutExpired => Fault::TimedOut(what),
        _ => Fault::Connection(format!("{what}: {why}")),
    }
}

impl Rail {
    /// Creates a rail on a device and connects it to the other side's. `buf` contains the source followed by the
    /// sink, each of `size` bytes; `part` is the range of it sent over this rail.
    pub(super) fn connect(
        session: &mut Session<'_>,
        device: &Device,
        (buf, size): (&Buf, u64),
        (at, len): (u64, u32),
    ) -> Result<Self, Fault> {
        let (ia, _) = Ia::open(&Adapter::new(device.clone()), 0).map_err(fault("opening an adapter"))?;
        let pz = Pz::create(&ia).map_err(fault("a protection zone"))?;
        let lmr = Lmr::create(&pz, buf, MemPriv::all()).map_err(fault("registering the buffer"))?;
        let evd = |flags| Evd::create(&ia, EVENTS, None, flags).map_err(fault("an event dispatcher"));
        let (received, connected) = (evd(EvdFlags::DTO)?, evd(EvdFlags::CONNECTION)?);
        let long = EpAttr::default_for(ia.attr());
        let long = EpAttr { max_request_dtos: ia.attr().max_dto_per_ep.min(REQUESTS), ..long };
        let config = EpConfig {
            pz: Some(pz),
            recv_evd: Some(received.clone()),
            request_evd: Some(evd(EvdFlags::DTO)?),
            connect_evd: Some(connected.clone()),
            srq: None,
            attr: Some(long),
        };
        let ep = Ep::create(&ia, config).map_err(fault("an endpoint"))?;
        let patience = Span::from_ms(session.settings.patience_ms);
        let mut rail = Self {
            ep,
            received,
            lmr,
            at,
            len,
            remote: RemoteAddr { addr: 0, rkey: 0 },
            patience,
            _psp: None,
        };
        (0..AHEAD).try_for_each(|_| rail.expect())?;
        if session.is_client() {
            rail.reach(session, &connected)?;
        } else {
            rail._psp = Some(rail.listen(session, (&ia, &evd(EvdFlags::CR)?), &connected)?);
        }
        rail.exchange(session, size)?;
        Ok(rail)
    }

    fn reach(&self, session: &mut Session<'_>, connected: &Evd) -> Result<(), Fault> {
        let point: Point = session.receive_info()?;
        let ip = match point.ip {
            Some(ip) => ip,
            None => session.control(1)?.peer_ip(),
        };
        self.ep.connect(ip, point.qual, Some(self.patience), b"").map_err(fault("connecting"))?;
        self.established(connected)
    }

    fn listen(
        &self,
        session: &mut Session<'_>,
        (ia, cr): (&Ia, &Evd),
        connected: &Evd,
    ) -> Result<Psp, Fault> {
        let psp = Psp::create_any(ia, cr, false).map_err(fault("a service point"))?;
        let ip = ia.device().attr().port_addrs.first().copied();
        session.send_info(&Point { ip, qual: psp.conn_qual() })?;
        let event = cr.wait(Some(self.patience), 1).map_err(fault("a connection request"))?.0;
        let Event::ConnectionRequest(request) = event else {
            return Err(Fault::Connection(format!("{event:?} instead of a request")));
        };
        let RequestEvent { cr, .. } = *request;
        cr.accept(Some(&self.ep), b"").map_err(fault("accepting"))?;
        self.established(connected).map(|()| psp)
    }

    fn established(&self, connected: &Evd) -> Result<(), Fault> {
        match connected.wait(Some(self.patience), 1).map_err(fault("the connection"))?.0 {
            Event::Connection { kind: ConnectionKind::Established, .. } => Ok(()),
            other => Err(Fault::Connection(format!("{other:?}"))),
        }
    }

    /// Sends the address of the sink, which follows the source, and receives the other side's.
    fn exchange(&mut self, session: &mut Session<'_>, size: u64) -> Result<(), Fault> {
        let RemoteAddr { addr, rkey: context } = self.lmr.remote(size);
        let client = session.is_client();
        if client {
            session.send_info(&Sink { addr, context })?;
        }
        let theirs: Sink = session.receive_info()?;
        if !client {
            session.send_info(&Sink { addr, context })?;
        }
        self.remote = RemoteAddr { addr: theirs.addr, rkey: theirs.context }.offset(self.at);
        Ok(())
    }

    /// Posts a write of this rail's part, without an event.
    pub(super) fn write(&self) -> Result<(), Fault> {
        let piece: [Sge; 1] = [self.lmr.segment(self.at, self.len)];
        let quiet = CompletionFlags::SUPPRESS;
        self.ep.post_rdma_write(&piece, 0, self.remote, self.len, quiet).map_err(fault("posting a write"))
    }

    /// Posts an empty message after the posted writes, without an event.
    pub(super) fn notify(&self) -> Result<(), Fault> {
        self.ep.post_send(&[], 0, CompletionFlags::SUPPRESS).map_err(fault("posting a message"))
    }

    /// Posts a receive.
    pub(super) fn expect(&self) -> Result<(), Fault> {
        self.ep.post_recv(&[], 0, CompletionFlags::empty()).map_err(fault("posting a receive"))
    }

    /// Waits for a message of the peer.
    pub(super) fn receive(&self) -> Result<(), Fault> {
        match self.received.wait(Some(self.patience), 1).map_err(fault("a message"))?.0 {
            Event::Dto(dto) if dto.status == DtoStatus::Success => Ok(()),
            other => Err(Fault::Connection(format!("{other:?} instead of a message"))),
        }
    }
}
