//! [`Link`]: one reliable connection between the two sides, registered memory of either kind at its ends, and data that
//! is small enough to travel within a request.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use verbs::host::Time;
use verbs::{
    Access, Buf, Cm, CmEvent, ConnParam, Cq, Device, Listener, Mr, Pd, Qp, QpCap, QpInit, RecvWr, RemoteAddr,
    SendWr, Sge, Wc,
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
    /// Bytes that travel within a request.
    pub(super) inline: u32,
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
            max_inline: depth.inline,
        };
        let qp = pd.create_qp(&QpInit::new(&send_cq).recv_cq(&recv_cq).cap(cap))?;
        Ok(Self { qp, send_cq, recv_cq, pd, cm: device.create_cm()?, listener: None })
    }

    /// Connects it to the other side's: the client connects, the other listens.
    pub(super) fn connect(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        if session.is_client() {
            let addr: SocketAddr = session.hear()?;
            let addr = reachable(addr, session)?;
            self.cm.connect(&self.qp, addr, &ConnParam::default())?;
            establish(session, &self.cm, &[], 1)
        } else {
            let listener = self.cm.listen(session.listen_addr()?, 1)?;
            session.tell(&listener.addr())?;
            self.listener = Some(listener);
            establish(session, &self.cm, &[&self.qp], 1)
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
///
/// Whoever connects may be a request ahead of this side's events: all that will come are to be passed in one call.
pub(super) fn establish(session: &Session<'_>, cm: &Cm, passive: &[&Qp], count: usize) -> Result<(), Fault> {
    let mut passive = passive.iter();
    let mut missing = count;
    while missing > 0 {
        let lost = |why: String| Err(Fault::Connection(why));
        // Each has its own time, however many there are.
        match cm.get_event(session.deadline())? {
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

/// The least of what was asked for, what the device can, and what the cell needs; 0 unless the source is host memory
/// and the operation one that takes inline data.
pub(super) fn inline_limit(session: &Session<'_>, size: u32) -> u32 {
    let factor = |key: &str| session.cell.variant.get(key).map(String::as_str);
    let able =
        matches!(factor("op"), Some("send" | "write" | "write-imm")) && factor("source") == Some("host");
    let most = session.settings.inline.min(session.device.attr().max_inline);
    if able && size <= most { size } else { 0 }
}

/// Posts send requests and signals one in `every`, so that completions cost little and the queue never fills.
pub(super) struct Poster {
    every: u32,
    since: u32,
    /// Signalled requests whose completion has not been taken.
    awaited: u32,
}

impl Poster {
    /// At most twice `every` requests are outstanding.
    pub(super) fn new(every: u32) -> Self {
        Self { every: every.max(1), since: 0, awaited: 0 }
    }

    /// Posts one request and does nothing else: the other side waits for it.
    #[inline]
    pub(super) fn post(&mut self, link: &Link, mut wr: SendWr<'_>) -> Result<(), Fault> {
        self.since += 1;
        if self.since < self.every {
            wr = wr.unsignaled();
        } else {
            self.since = 0;
            self.awaited += 1;
        }
        Ok(link.qp.post_send(&wr)?)
    }

    /// Takes the completion of the signal before the last: long there, so this is one look.
    #[inline]
    pub(super) fn reap(&mut self, link: &Link, deadline: Option<Time>) -> Result<(), Fault> {
        if self.awaited > 1 {
            self.awaited -= 1;
            link.sent(deadline, "a send request")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Cell, Settings};

    /// Goal: a client that is ahead of the server's events is not turned away. Method: all requests are made before the
    /// server looks for the first time.
    #[test]
    fn requests_that_came_early_are_accepted() {
        const COUNT: usize = 20;
        let host = verbs::host::real::host();
        let device = fabric::open("shm", &host).expect("a device");
        let (cell, settings) = (Cell::default(), Settings::default());
        let session = Session {
            host: &host,
            device: &device,
            rank: 0,
            ways: Vec::new(),
            cell: &cell,
            settings: &settings,
            gauge: &|| None,
            failed: Vec::new(),
        };
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(64).expect("a queue"));
        let qps: Vec<Qp> =
            (0..2 * COUNT).map(|_| pd.create_qp(&QpInit::new(&cq)).expect("a queue pair")).collect();
        let (active, passive) = qps.split_at(COUNT);
        let (near, far) = (device.create_cm().expect("a manager"), device.create_cm().expect("a manager"));
        let listener = far.listen(([127, 0, 0, 1], 0).into(), COUNT as u32).expect("listening");
        for qp in active {
            near.connect(qp, listener.addr(), &ConnParam::default()).expect("under way");
        }
        std::thread::scope(|scope| {
            let server = scope.spawn(|| {
                let passive: Vec<&Qp> = passive.iter().collect();
                let host = verbs::host::real::host();
                let device = fabric::open("shm", &host)?;
                let (cell, settings) = (Cell::default(), Settings::default());
                let session = Session {
                    host: &host,
                    device: &device,
                    rank: 1,
                    ways: Vec::new(),
                    cell: &cell,
                    settings: &settings,
                    gauge: &|| None,
                    failed: Vec::new(),
                };
                establish(&session, &far, &passive, COUNT)
            });
            establish(&session, &near, &[], COUNT).expect("all are accepted");
            server.join().expect("no panic").expect("all are established");
        });
    }
}
