//! [`ShmStrangers`]: strangers of the same user that connect to a listener on `shm` through verbs, or to its socket. Processes of other users
//! cannot connect (`siege --only strangers`).

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use anyhow::{Result, bail};
use host::{Rng, Span};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    socket_with,
};
use verbs::{Cm, CmEvent, ConnParam, Cq, Device, QpInit};

use super::crowd::{HELD, garbage, oldest_beyond};
use super::requests::Forger;
use super::{Outcome, Outcomes, Strangers, Way};

/// The length of a packet that exceeds every packet of the protocol.
const HUGE: usize = 4096;

/// Strangers at one listener.
pub(super) struct ShmStrangers {
    device: Device,
    cm: Cm,
    cq: Cq,
    addr: SocketAddr,
    forger: Forger,
    /// Sockets of strangers that have sent nothing or no whole message.
    held: VecDeque<(OwnedFd, Way)>,
    outcomes: Outcomes,
}

impl ShmStrangers {
    pub(super) fn new(addr: SocketAddr, forger: Forger) -> Result<Self> {
        let device = fabric::open("shm", &host::real::host())?;
        let (cm, cq) = (device.create_cm()?, device.create_cq(16)?);
        let (held, outcomes) = (VecDeque::new(), Outcomes::default());
        Ok(Self { device, cm, cq, addr, forger, held, outcomes })
    }

    /// Connects through verbs with this private data.
    fn ask(&mut self, way: Way, said: Vec<u8>) -> Result<()> {
        let qp = self.device.alloc_pd()?.create_qp(&QpInit::new(&self.cq))?;
        self.cm.connect(&qp, self.addr, &ConnParam::with_private_data(said))?;
        let (outcome, read) = match self.cm.get_event(self.device.host().after(Span::from_secs(10)))? {
            CmEvent::Rejected { private_data, .. } => self.forger.rejected(way, &private_data)?,
            CmEvent::ConnectFailed { .. } => (Outcome::Refused, 0),
            CmEvent::Established { private_data, .. } => (Outcome::Accepted, private_data.len() as u64),
            other => bail!("a stranger has {other:?}"),
        };
        self.outcomes.count(way, outcome, read)
    }

    /// Connects to the listener's socket, and sends these bytes, if any.
    fn knock(&mut self, way: Way, said: &[u8]) -> Result<()> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let uid = rustix::process::geteuid().as_raw();
        let name = format!("nicety-shm/{uid}/{}", self.addr.port());
        connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        if !said.is_empty() {
            send(&socket, said, SendFlags::NOSIGNAL)?;
        }
        self.held.push_back((socket, way));
        oldest_beyond(&mut self.held, HELD).map_or(Ok(()), |oldest| self.dismiss(&oldest))
    }

    /// Closes a socket of [`Self::knock`].
    fn dismiss(&mut self, (socket, way): &(OwnedFd, Way)) -> Result<()> {
        // The listener must not answer it.
        let read = recv(socket, &mut [0; HUGE][..], RecvFlags::DONTWAIT).map_or(0, |(len, _)| len);
        self.outcomes.count(*way, Outcome::Refused, read as u64)
    }
}

impl Strangers for ShmStrangers {
    fn come(&mut self, rng: &mut Rng) -> Result<()> {
        let request = self.forger.request(rng);
        match rng.below(8) {
            0 => self.knock(Way::Silent, &[]),
            1 => self.knock(Way::Garbage, &garbage(rng)),
            2 => self.knock(Way::Huge, &rng.bytes(HUGE)),
            3 => {
                let len = rng.index(request.len());
                self.ask(Way::Part, request[..len].to_vec())
            }
            4 => self.ask(Way::Garbage, garbage(rng)),
            _ => self.ask(Way::Foreign, request),
        }
    }

    fn leave(&mut self, _: &mut Rng) -> Result<Outcomes> {
        while let Some(stranger) = self.held.pop_front() {
            self.dismiss(&stranger)?;
        }
        Ok(self.outcomes)
    }

    /// Messages on `shm` cannot be recorded.
    fn hear(&mut self, _: Vec<Vec<u8>>) {}
}
