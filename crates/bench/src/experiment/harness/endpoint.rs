//! [`Endpoint`]: one reliable connection between the two sides, registered memory of either kind at its ends, and
//! data small enough to be sent inline.

use results::variant::{Factor, factor};
use std::net::SocketAddr;

use verbs::host::Time;
use verbs::{
    Buf, Cm, CmEvent, CompChannel, ConnParam, Cq, Device, Listener, Mr, Pd, Qp, QpCap, QpInit, RecvWr,
    RemoteAddr, SendWr, Sge, Wc,
};

use super::contract::level;
use super::edge::{Edge, carry, carry_place};
use crate::experiment::{Axis, Fault, Session};

/// A connection with a queue for each direction's completions.
pub(crate) struct Endpoint {
    pub(crate) qp: Qp,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) pd: Pd,
    cm: Cm,
    listener: Option<Listener>,
}

/// Sizes of a link's queues.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Depth {
    pub(crate) send: u32,
    pub(crate) recv: u32,
    /// Bytes that travel within a request.
    pub(crate) inline: u32,
    /// Pieces of a send request.
    pub(crate) pieces: u32,
    /// Maximum data in a packet, unless the device chooses.
    pub(crate) mtu: Option<u32>,
}

impl Depth {
    /// Requests of one segment, without inline data.
    pub(crate) const fn new(send: u32, recv: u32) -> Self {
        Self { send, recv, inline: 0, pieces: 1, mtu: None }
    }
}

impl Endpoint {
    /// An unconnected link: receives may be posted.
    pub(crate) fn create(device: &Device, depth: Depth) -> Result<Self, Fault> {
        Shared::new(&device.alloc_pd()?, depth, 1, None)?.link()
    }

    /// As `new`, but with a channel to sleep on until a receive has completed.
    pub(crate) fn with_channel(device: &Device, depth: Depth) -> Result<(Self, CompChannel), Fault> {
        let channel = device.create_comp_channel()?;
        Ok((Shared::new(&device.alloc_pd()?, depth, 1, Some(&channel))?.link()?, channel))
    }

    /// Several that share their completion queues.
    pub(crate) fn several(pd: &Pd, depth: Depth, count: usize) -> Result<Vec<Self>, Fault> {
        let shared = Shared::new(pd, depth, count as u32, None)?;
        (0..count).map(|_| shared.link()).collect()
    }

    /// Connects it to the other side's: the client connects, the other listens.
    pub(crate) fn connect(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        join(session, Edge::PAIR, Some(self))
    }

    /// Waits for the completion of a send request.
    #[inline]
    pub(crate) fn sent(&self, deadline: Option<Time>, what: &'static str) -> Result<Wc, Fault> {
        check(self.send_cq.spin(deadline)?, what)
    }

    /// Waits for a send's completion without holding the core.
    pub(crate) fn waited(&self, deadline: Option<Time>, what: &'static str) -> Result<Wc, Fault> {
        check(self.send_cq.wait(deadline)?, what)
    }

    /// Waits for the completion of a receive.
    #[inline]
    pub(crate) fn received(&self, deadline: Option<Time>, what: &'static str) -> Result<Wc, Fault> {
        check(self.recv_cq.spin(deadline)?, what)
    }

    /// Posts `count` receives into `sges`, all of that number.
    pub(crate) fn post_receives(&self, wr_id: u64, count: u32, sges: &[Sge]) -> Result<(), Fault> {
        (0..count).try_for_each(|_| Ok(self.qp.post_recv(&RecvWr::new(wr_id, sges))?))
    }
}

/// State shared by links.
struct Shared {
    pd: Pd,
    send_cq: Cq,
    recv_cq: Cq,
    cm: Cm,
    cap: QpCap,
    mtu: Option<u32>,
}

impl Shared {
    fn new(pd: &Pd, depth: Depth, links: u32, channel: Option<&CompChannel>) -> Result<Self, Fault> {
        let device = pd.device();
        let cap = QpCap {
            max_send_wr: depth.send,
            max_recv_wr: depth.recv,
            max_send_sge: depth.pieces,
            max_recv_sge: depth.pieces,
            max_inline: depth.inline,
        };
        Ok(Self {
            pd: pd.clone(),
            send_cq: device.create_cq(links * (depth.send + 1))?,
            recv_cq: match (links * (depth.recv + 1), channel) {
                (cqe, None) => device.create_cq(cqe)?,
                (cqe, Some(channel)) => device.create_cq_with(cqe, channel)?,
            },
            cm: device.create_cm()?,
            cap,
            mtu: depth.mtu,
        })
    }

    fn link(&self) -> Result<Endpoint, Fault> {
        let Self { pd, send_cq, recv_cq, cm, cap, mtu } = self;
        let init = QpInit { mtu: *mtu, ..QpInit::new(send_cq) };
        let qp = pd.create_qp(&init.recv_cq(recv_cq).cap(*cap))?;
        Ok(Endpoint {
            qp,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            pd: pd.clone(),
            cm: cm.clone(),
            listener: None,
        })
    }
}

/// Establishes the connection of an edge; `link` is this rank's end of it, if any.
pub(crate) fn join(session: &mut Session<'_>, edge: Edge, link: Option<&mut Endpoint>) -> Result<(), Fault> {
    let (ends, passive) = ((edge.to, edge.from), session.rank as usize == edge.to);
    let Some(link) = link else { return carry::<SocketAddr>(session, ends, None).map(drop) };
    if passive {
        let listener = link.cm.listen(session.listen_addr(edge.port)?, 1)?;
        carry(session, ends, Some(&listener.addr()))?;
        link.listener = Some(listener);
        return establish(session, &link.cm, &[&link.qp], 1);
    }
    if let Some(addr) = carry(session, ends, None)? {
        let addr = reachable(addr, edge.to, session)?;
        link.cm.connect(&link.qp, addr, &ConnParam::default())?;
        establish(session, &link.cm, &[], 1)?;
    }
    Ok(())
}

/// Connects several links, which share a connection manager, to those of the other side, one after the other.
pub(crate) fn join_all(session: &mut Session<'_>, links: &mut [Endpoint]) -> Result<(), Fault> {
    let Some(first) = links.first() else { return Ok(()) };
    let cm = first.cm.clone();
    if session.is_client() {
        let addr = reachable(session.receive_info()?, 1, session)?;
        for link in links {
            cm.connect(&link.qp, addr, &ConnParam::default())?;
            establish(session, &cm, &[], 1)?;
        }
        return Ok(());
    }
    // The client is never more than one request ahead.
    let listener = cm.listen(session.listen_addr(0)?, links.len() as u32 + 1)?;
    session.send_info(&listener.addr())?;
    establish(session, &cm, &links.iter().map(|link| &link.qp).collect::<Vec<_>>(), links.len())?;
    links[0].listener = Some(listener);
    Ok(())
}

/// Two links of this very device that are connected to each other.
pub(crate) fn loopback(session: &mut Session<'_>, pd: &Pd, depth: Depth) -> Result<Vec<Endpoint>, Fault> {
    let links = Endpoint::several(pd, depth, 2)?;
    let (near, far) = (&links[0], &links[1]);
    let listener = far.cm.listen(session.listen_addr(0)?, 1)?;
    near.cm.connect(&near.qp, listener.addr(), &ConnParam::default())?;
    establish(session, &near.cm, &[&far.qp], 2)?;
    Ok(links)
}

/// The address that another rank listens at, as this side reaches it.
pub(crate) fn reachable(
    addr: SocketAddr,
    rank: usize,
    session: &mut Session<'_>,
) -> Result<SocketAddr, Fault> {
    let peer = session.control(rank)?.peer_ip();
    Ok(if addr.ip().is_unspecified() { SocketAddr::new(peer, addr.port()) } else { addr })
}

/// Handles connection events until `count` queue pairs are connected; `passive` are those on the accepting side.
///
/// The connecting side may be one request ahead of this side's events, so pass all expected queue pairs in one call.
pub(crate) fn establish(session: &Session<'_>, cm: &Cm, passive: &[&Qp], count: usize) -> Result<(), Fault> {
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
pub(crate) fn check(wc: Wc, what: &'static str) -> Result<Wc, Fault> {
    if wc.is_ok() { Ok(wc) } else { Err(Fault::Completion { what, status: wc.status }) }
}

/// Offsets of source and sink in a page; a page ends before the largest.
pub(crate) const OFFSETS: [Axis; 2] = [
    Axis {
        factor: factor::SOURCE_OFFSET,
        low: 0,
        high: 4095,
        about: "bytes from the beginning of a page to the source (of NIC memory: of the allocation)",
    },
    Axis {
        factor: factor::SINK_OFFSET,
        low: 0,
        high: 4095,
        about: "bytes from the beginning of a page to the sink (of NIC memory: of the allocation)",
    },
];

/// Registered memory of the kind that a factor (`source` or `sink`) of the cell names, at the offset that it names.
pub(crate) fn place(session: &Session<'_>, pd: &Pd, factor: Factor, len: usize) -> Result<Mr, Fault> {
    let axis = &OFFSETS[usize::from(factor == factor::SINK)];
    let offset = if session.cell.variant.has(axis.factor) { level(session.cell, axis)? } else { 0 };
    register_at(session.cell.factor(factor)?, pd, offset, len)
}

/// Registered memory in `host` or `nic`.
pub(crate) fn register(kind: &str, pd: &Pd, len: usize) -> Result<Mr, Fault> {
    register_at(kind, pd, 0, len)
}

/// Registered memory in `host` or `nic` that begins `offset` bytes behind the beginning of a page, or of an allocation in the NIC.
fn register_at(kind: &str, pd: &Pd, offset: usize, len: usize) -> Result<Mr, Fault> {
    let buf = match kind {
        "host" => Buf::alloc(offset + len)?,
        "nic" if pd.device().attr().max_dm_size == 0 => {
            return Err(Fault::Meaningless(format!(
                "what needs NIC memory: {} has none",
                pd.device().name()
            )));
        }
        "nic" => pd.device().alloc_dm(offset + len)?,
        other => return Err(Fault::Meaningless(format!("memory in {other}, only in host or nic"))),
    };
    let buf = if offset > 0 { buf.slice(offset..offset + len)? } else { buf };
    Ok(pd.reg_mr(&buf, pd.device().attr().all_access())?)
}

/// Sends the address of `mine` to the other side, and receives the other's.
pub(crate) fn exchange(session: &mut Session<'_>, mine: &Mr) -> Result<RemoteAddr, Fault> {
    let (there, back) =
        (carry_place(session, (0, 1), Some(mine))?, carry_place(session, (1, 0), Some(mine))?);
    there.or(back).ok_or_else(|| Fault::Control("neither side said where its memory is".into()))
}

/// The part of a message of `size` bytes sent over port `port` of `ports`: its offset and length.
pub(crate) fn part(size: u32, ports: usize, port: usize) -> (u64, u32) {
    let first = if ports > 1 { size.div_ceil(2) } else { size };
    if port == 0 { (0, first) } else { (first.into(), size - first) }
}

/// The least of the requested limit, the device's, and what the cell needs; 0 unless the source is host memory and
/// the operation takes inline data.
pub(crate) fn inline_limit(session: &Session<'_>, size: u32) -> u32 {
    let variant = &session.cell.variant;
    let able = matches!(variant.get(factor::OP), Some("send" | "write" | "write-imm" | "write-send"))
        && variant.is(factor::SOURCE, "host");
    let most = session.settings.inline.min(session.device.attr().max_inline);
    if able && size <= most { size } else { 0 }
}

/// Posts send requests and signals one in `every`, so that completions cost little and the queue never fills.
pub(crate) struct Poster {
    every: u32,
    since: u32,
    /// Signaled requests whose completion has not been taken.
    awaited: u32,
}

impl Poster {
    /// At most twice `every` requests are outstanding.
    pub(crate) fn new(every: u32) -> Self {
        Self { every: every.max(1), since: 0, awaited: 0 }
    }

    /// Posts one request and nothing more, as the other side waits for it.
    #[inline]
    pub(crate) fn post(&mut self, link: &Endpoint, mut wr: SendWr<'_>) -> Result<(), Fault> {
        self.since += 1;
        if self.since < self.every {
            wr = wr.unsignaled();
        } else {
            self.since = 0;
            self.awaited += 1;
        }
        Ok(link.qp.post_send(&wr)?)
    }

    /// Takes the completion of the signaled request before the last: it completed long ago, so one poll suffices.
    #[inline]
    pub(crate) fn reap(&mut self, link: &Endpoint, deadline: Option<Time>) -> Result<(), Fault> {
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
    use crate::experiment::{Bounds, Cell, Rails, Settings};

    fn rails() -> Rails {
        Rails { names: vec!["shm".to_owned()], open: fabric::open }
    }

    /// Goal: a client ahead of the server's events is not rejected. Method: all requests are made before the server
    /// polls for the first time.
    #[test]
    fn requests_that_came_early_are_accepted() {
        const COUNT: usize = 20;
        let host = verbs::host::real::host();
        let device = fabric::open("shm", &host).expect("a device");
        let (cell, settings) = (Cell::default(), Settings::default());
        let session = Session {
            host: &host,
            device: &device,
            rails: &rails(),
            rank: 0,
            controls: Vec::new(),
            cell: &cell,
            settings: &settings,
            against: None,
            gauge: &|| None,
            failed: Vec::new(),
            bounds: Bounds::default(),
            until: None,
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
                    rails: &rails(),
                    rank: 1,
                    controls: Vec::new(),
                    cell: &cell,
                    settings: &settings,
                    against: None,
                    gauge: &|| None,
                    failed: Vec::new(),
                    bounds: Bounds::default(),
                    until: None,
                };
                establish(&session, &far, &passive, COUNT)
            });
            establish(&session, &near, &[], COUNT).expect("all are accepted");
            server.join().expect("no panic").expect("all are established");
        });
    }
}
