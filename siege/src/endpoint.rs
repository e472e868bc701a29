//! [`Endpoint`]: a process's side of connections on a device: queues, memory between canaries, and connection setup.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use host::{Span, Time};
use verbs::{
    Access, Buf, Cm, CmEvent, ConnParam, ConnectRequest, Cq, Device, Listener, Mr, Pd, Qp, QpCap, QpInit,
    RemoteAddr, Srq, SrqInit,
};

/// Devices of all kinds, by their `fabric` names.
pub(crate) const DEVICES: &[&str] = &[
    "shm",
    "shm(copy=service)",
    "iwarp@127.0.0.1",
    "rails(shm,shm)",
    "rails(iwarp@127.0.0.1,iwarp@127.0.0.2)",
];
/// Requests and receives in flight on a connection.
pub(crate) const DEPTH: u64 = 32;
/// Bytes of a message at most.
pub(crate) const SLOT: u64 = 4096;
/// Offsets of the areas: for arriving messages, for messages to send, for the peer's writes, and the source and the
/// destination of own writes and reads.
pub(crate) const SENDS: u64 = DEPTH * SLOT;
pub(crate) const PEERS: u64 = 2 * DEPTH * SLOT;
pub(crate) const SOURCE: u64 = PEERS + AREA;
pub(crate) const RESULT: u64 = SOURCE + AREA;
/// Bytes of each of the last three: enough for striping over rails.
pub(crate) const AREA: u64 = 64 << 10;
const LEN: usize = (RESULT + AREA) as usize;
/// The number of canary bytes on each side of the region, and their value.
const MARGIN: usize = 4096;
const CANARY: u8 = 0xc5;
/// A wait that takes longer is aborted, and the attack has failed.
pub(crate) const ROUND_MAX: Duration = Duration::from_secs(15);

/// The deadline of a wait that begins now.
pub(crate) fn deadline() -> Option<Time> {
    within(ROUND_MAX)
}

/// The deadline that is this far from now.
pub(crate) fn within(limit: Duration) -> Option<Time> {
    host::real::host().after(Span::from_us(limit.as_micros() as u64))
}

/// An address on this machine.
pub(crate) fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// A connected queue pair, and the remote address of the peer's region.
pub(crate) struct Link {
    pub(crate) qp: Qp,
    pub(crate) peer: RemoteAddr,
}

/// One end of a connection, with its objects.
pub(crate) struct Endpoint {
    pub(crate) device: Device,
    pub(crate) pd: Pd,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) cm: Cm,
    pub(crate) mr: Mr,
    buf: Buf,
}

impl Endpoint {
    /// An end on the device of this name.
    pub(crate) fn open(name: &str) -> Result<Self> {
        let device = fabric::open(name, &host::real::host()).with_context(|| format!("opening {name}"))?;
        Self::on_device(&device)
    }

    /// Another end on a device.
    pub(crate) fn on_device(device: &Device) -> Result<Self> {
        let pd = device.alloc_pd()?;
        let buf = Buf::alloc(LEN + 2 * MARGIN)?;
        for margin in [0..MARGIN, MARGIN + LEN..2 * MARGIN + LEN] {
            buf.slice(margin)?.fill(CANARY);
        }
        let atomic = device.attr().atomic_cap != verbs::AtomicCap::None;
        let rights = if atomic { Access::ALL } else { Access::ALL - Access::REMOTE_ATOMIC };
        let mr = pd.reg_mr_range(&buf, MARGIN..MARGIN + LEN, rights)?;
        let queue = || device.create_cq(4096);
        let (send_cq, recv_cq, cm) = (queue()?, queue()?, device.create_cm()?);
        Ok(Self { device: device.clone(), pd, send_cq, recv_cq, cm, mr, buf })
    }

    /// A queue pair on this end's queues.
    pub(crate) fn qp(&self, srq: Option<&Srq>) -> Result<Qp> {
        let depth = DEPTH as u32;
        let cap =
            QpCap { max_send_wr: depth, max_recv_wr: depth, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let mut init = QpInit::new(&self.send_cq).recv_cq(&self.recv_cq).cap(cap);
        init.srq = srq.cloned();
        Ok(self.pd.create_qp(&init)?)
    }

    /// A shared receive queue of the usual depth.
    pub(crate) fn srq(&self) -> Result<Srq> {
        Ok(self.pd.create_srq(SrqInit { max_wr: DEPTH as u32, max_sge: 1 })?)
    }

    /// Connection parameters, with this end's region as private data.
    pub(crate) fn param(&self) -> ConnParam {
        let here = self.mr.remote(0);
        ConnParam::with_private_data([&here.addr.to_le_bytes()[..], &here.rkey.to_le_bytes()].concat())
    }

    /// The region that the peer's private data names.
    pub(crate) fn peer_of(said: &[u8]) -> Result<RemoteAddr> {
        ensure!(said.len() >= 12, "the peer said {} bytes", said.len());
        let (mut addr, mut rkey) = ([0; 8], [0; 4]);
        addr.copy_from_slice(&said[..8]);
        rkey.copy_from_slice(&said[8..12]);
        Ok(RemoteAddr { addr: u64::from_le_bytes(addr), rkey: u32::from_le_bytes(rkey) })
    }

    /// Listens on a free port.
    pub(crate) fn listen(&self) -> Result<Listener> {
        Ok(self.cm.listen(loopback(0), 64)?)
    }

    /// The next event that is no request; requests are dropped, for a child may have sent one just before its death.
    pub(crate) fn event(&self) -> Result<CmEvent> {
        loop {
            match self.cm.get_event(deadline())? {
                CmEvent::ConnectRequest(_) => {}
                event => return Ok(event),
            }
        }
    }

    /// The next event, if there is one already.
    pub(crate) fn event_now(&self) -> Option<CmEvent> {
        std::iter::from_fn(|| self.cm.poll_event()).find(|event| !matches!(event, CmEvent::ConnectRequest(_)))
    }

    /// Connects to a port.
    pub(crate) fn connect(&self, port: u16) -> Result<Link> {
        let qp = self.qp(None)?;
        self.cm.connect(&qp, loopback(port), &self.param())?;
        loop {
            match self.event()? {
                CmEvent::Established { qp_num, private_data, .. } if qp_num == qp.num() => {
                    return Ok(Link { qp, peer: Self::peer_of(&private_data)? });
                }
                // From an earlier connection.
                CmEvent::Disconnected { qp_num } if qp_num != qp.num() => {}
                other => bail!("connecting ended with {other:?}"),
            }
        }
    }

    /// Accepts the next connection whose peer still exists: a child may have requested one right before its death.
    pub(crate) fn accept(&self) -> Result<Link> {
        let mut gone = None;
        loop {
            let request = self.request().map_err(|why| gone.take().unwrap_or(why))?;
            let (qp, peer) = (self.qp(None)?, Self::peer_of(&request.private_data)?);
            if let Err(why) = self.cm.accept(request, &qp, &self.param()) {
                gone = Some(why.into());
                continue;
            }
            match self.event()? {
                CmEvent::Established { qp_num, .. } if qp_num == qp.num() => return Ok(Link { qp, peer }),
                CmEvent::ConnectFailed { qp_num, why } if qp_num == qp.num() => gone = Some(why.into()),
                other => bail!("accepting ended with {other:?}"),
            }
        }
    }

    /// The next connection request; ends of earlier connections are skipped.
    pub(crate) fn request(&self) -> Result<ConnectRequest> {
        loop {
            match self.cm.get_event(deadline())? {
                CmEvent::ConnectRequest(request) => return Ok(request),
                CmEvent::Disconnected { .. } => {}
                other => bail!("expected a request, got {other:?}"),
            }
        }
    }

    /// Counts the canary bytes outside of the region that have changed, and restores them.
    pub(crate) fn count_changed_canaries(&self) -> Result<u64> {
        let mut changed = 0;
        for margin in [0..MARGIN, MARGIN + LEN..2 * MARGIN + LEN] {
            let bytes = self.buf.to_vec(margin.clone())?;
            changed += bytes.iter().filter(|&&byte| byte != CANARY).count() as u64;
            self.buf.slice(margin)?.fill(CANARY);
        }
        Ok(changed)
    }

    /// Puts bytes into the region.
    pub(crate) fn write_bytes(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        Ok(self.buf.write(MARGIN + offset as usize, bytes)?)
    }

    /// Bytes of the region.
    pub(crate) fn get(&self, offset: u64, len: u64) -> Result<Vec<u8>> {
        let from = MARGIN + offset as usize;
        Ok(self.buf.to_vec(from..from + len as usize)?)
    }
}
