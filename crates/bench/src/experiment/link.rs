//! [`Link`]: one reliable connection between the two sides, and registered memory of either kind at its ends.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use verbs::host::Time;
use verbs::{
    Access, Buf, Cm, CmEvent, ConnParam, Cq, Device, Listener, Mr, Pd, Qp, QpCap, QpInit, RecvWr, RemoteAddr,
    SendOp, SendWr, Sge, Wc,
};

use super::{Fault, Session};

/// A connection with a queue for each direction's completions.
pub(super) struct Link {
    pub(super) qp: Qp,
    pub(super) send_cq: Cq,
    pub(super) recv_cq: Cq,
    pub(super) pd: Pd,
    cm: Cm,
    listener: Option<Listener>,
}

/// Sizes of a link's queues.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depth {
    pub(super) send: u32,
    pub(super) recv: u32,
}

impl Link {
    /// An unconnected link: receives may be posted.
    pub(super) fn create(device: &Device, depth: Depth) -> Result<Self, Fault> {
        let pd = device.alloc_pd()?;
        let send_cq = device.create_cq(depth.send + 1)?;
        let recv_cq = device.create_cq(depth.recv + 1)?;
        let cap = QpCap {
            max_send_wr: depth.send,
            max_recv_wr: depth.recv,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: 0,
        };
        let qp = pd.create_qp(&QpInit::new(&send_cq).recv_cq(&recv_cq).cap(cap))?;
        Ok(Self { qp, send_cq, recv_cq, pd, cm: device.create_cm()?, listener: None })
    }

    /// Connects it to the other side's: the client connects, the other listens.
    pub(super) fn connect(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let deadline = session.deadline();
        if session.is_client() {
            let addr: SocketAddr = session.hear()?;
            let addr = reachable(addr, session)?;
            self.cm.connect(&self.qp, addr, &ConnParam::default())?;
            establish(&self.cm, &[], 1, deadline)
        } else {
            let listener = self.cm.listen(session.listen_addr()?, 1)?;
            session.tell(&listener.addr())?;
            self.listener = Some(listener);
            establish(&self.cm, &[&self.qp], 1, deadline)
        }
    }

    /// Waits for the completion of a send request.
    #[inline]
    pub(super) fn sent(&self, deadline: Option<Time>, what: &'static str) -> Result<Wc, Fault> {
        check(self.send_cq.spin(deadline)?, what)
    }

    /// Waits for the completion of a receive.
    #[inline]
    pub(super) fn received(&self, deadline: Option<Time>, what: &'static str) -> Result<Wc, Fault> {
        check(self.recv_cq.spin(deadline)?, what)
    }

    /// Posts `count` receives into `sges`.
    pub(super) fn post_receives(&self, count: u32, sges: &[Sge]) -> Result<(), Fault> {
        (0..count).try_for_each(|id| Ok(self.qp.post_recv(&RecvWr::new(id.into(), sges))?))
    }
}

/// The address that the other side listens on, as this side reaches it.
pub(super) fn reachable(addr: SocketAddr, session: &mut Session<'_>) -> Result<SocketAddr, Fault> {
    let peer = session.way(1)?.peer_ip();
    Ok(if addr.ip().is_unspecified() { SocketAddr::new(peer, addr.port()) } else { addr })
}

/// Answers connection events until `count` queue pairs are connected; `passive` are those that are connected to.
pub(super) fn establish(cm: &Cm, passive: &[&Qp], count: usize, deadline: Option<Time>) -> Result<(), Fault> {
    let mut passive = passive.iter();
    let mut missing = count;
    while missing > 0 {
        let lost = |why: String| Err(Fault::Connection(why));
        match cm.get_event(deadline)? {
            CmEvent::ConnectRequest(request) => match passive.next() {
                Some(qp) => cm.accept(request, qp, &ConnParam::default())?,
                None => request.reject(b"not expected")?,
            },
            CmEvent::Established { .. } => missing -= 1,
            CmEvent::Rejected { .. } => return lost("the peer rejected it".into()),
            CmEvent::ConnectFailed { why, .. } => return lost(why.to_string()),
            CmEvent::Disconnected { .. } => return lost("the peer disconnected".into()),
        }
    }
    Ok(())
}

/// A completion that ended as asked.
#[inline]
pub(super) fn check(wc: Wc, what: &'static str) -> Result<Wc, Fault> {
    if wc.is_ok() { Ok(wc) } else { Err(Fault::Completion { what, status: wc.status }) }
}

/// Registered memory of the kind that a factor (`source` or `sink`) of the cell names.
pub(super) fn place(session: &Session<'_>, pd: &Pd, factor: &str, len: usize) -> Result<Mr, Fault> {
    let buf = match session.cell.factor(factor)? {
        "host" => Buf::alloc(len)?,
        "nic" => session.device.alloc_dm(len)?,
        other => return Err(Fault::Meaningless(format!("a {factor} in {other}, only in host or nic"))),
    };
    Ok(pd.reg_mr(&buf, Access::ALL)?)
}

/// A place in registered memory, as it is told to the other side.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Place {
    addr: u64,
    rkey: u32,
}

/// Tells the other side where `mine` is, and hears where its own is.
pub(super) fn exchange(session: &mut Session<'_>, mine: &Mr) -> Result<RemoteAddr, Fault> {
    let RemoteAddr { addr, rkey } = mine.remote(0);
    session.tell(&Place { addr, rkey })?;
    let Place { addr, rkey } = session.hear()?;
    Ok(RemoteAddr { addr, rkey })
}

/// Posts send requests and signals one in `every`, so that completions cost little and the queue never fills.
pub(super) struct Poster {
    every: u32,
    since: u32,
    awaited: bool,
}

impl Poster {
    /// At most twice `every` requests are outstanding.
    pub(super) fn new(every: u32) -> Self {
        Self { every: every.max(1), since: 0, awaited: false }
    }

    /// Posts one request.
    #[inline]
    pub(super) fn post(
        &mut self,
        link: &Link,
        op: SendOp,
        sges: &[Sge],
        deadline: Option<Time>,
    ) -> Result<(), Fault> {
        self.since += 1;
        let mut wr = SendWr::new(0, op, sges);
        if self.since < self.every {
            wr = wr.unsignaled();
        } else {
            // The signal of the round before: long there, so this is one look.
            if self.awaited {
                link.sent(deadline, "a send request")?;
            }
            self.awaited = true;
            self.since = 0;
        }
        Ok(link.qp.post_send(&wr)?)
    }
}
