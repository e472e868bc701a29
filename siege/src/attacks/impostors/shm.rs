//! [`ShmImpostors`]: impostors of the same user that connect to a listener on `shm` through verbs, or to its socket. Processes of other users
//! cannot connect (`siege --only impostors`).

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

use super::requests::Forger;
use super::tcp::{HELD, garbage, pop_if_longer};
use super::{Behaviour, Impostors, Outcome, Outcomes};

/// The length of a packet that exceeds every packet of the protocol.
const HUGE: usize = 4096;

/// Impostors at one listener.
pub(super) struct ShmImpostors {
    device: Device,
    cm: Cm,
    cq: Cq,
    addr: SocketAddr,
    forger: Forger,
    /// Sockets of impostors that have sent nothing or no whole message.
    held: VecDeque<(OwnedFd, Behaviour)>,
    outcomes: Outcomes,
}

impl ShmImpostors {
    pub(super) fn new(addr: SocketAddr, forger: Forger) -> Result<Self> {
        let device = fabric::open("shm", &host::real::host())?;
        let (cm, cq) = (device.create_cm()?, device.create_cq(16)?);
        let (held, outcomes) = (VecDeque::new(), Outcomes::default());
        Ok(Self { device, cm, cq, addr, forger, held, outcomes })
    }

    /// Connects through verbs with this private data.
    fn connect_verbs(&mut self, way: Behaviour, said: Vec<u8>) -> Result<()> {
        let qp = self.device.alloc_pd()?.create_qp(&QpInit::new(&self.cq))?;
        self.cm.connect(&qp, self.addr, &ConnParam::with_private_data(said))?;
        let (outcome, read) = match self.cm.get_event(self.device.host().after(Span::from_secs(10)))? {
            CmEvent::Rejected { private_data, .. } => self.forger.rejected(way, &private_data)?,
            CmEvent::ConnectFailed { .. } => (Outcome::Refused, 0),
            CmEvent::Established { private_data, .. } => (Outcome::Accepted, private_data.len() as u64),
            other => bail!("an impostor has {other:?}"),
        };
        self.outcomes.count(way, outcome, read)
    }

    /// Connects to the listener's socket, and sends these bytes, if any.
    fn connect_socket(&mut self, way: Behaviour, said: &[u8]) -> Result<()> {
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let uid = rustix::process::geteuid().as_raw();
        let name = format!("nicety-shm/{uid}/{}", self.addr.port());
        connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
        if !said.is_empty() {
            send(&socket, said, SendFlags::NOSIGNAL)?;
        }
        self.held.push_back((socket, way));
        pop_if_longer(&mut self.held, HELD).map_or(Ok(()), |oldest| self.dismiss(&oldest))
    }

    /// Closes a socket of [`Self::connect_socket`].
    fn dismiss(&mut self, (socket, way): &(OwnedFd, Behaviour)) -> Result<()> {
        // The listener must not answer it.
        let read = recv(socket, &mut [0; HUGE][..], RecvFlags::DONTWAIT).map_or(0, |(len, _)| len);
        self.outcomes.count(*way, Outcome::Refused, read as u64)
    }
}

impl Impostors for ShmImpostors {
    fn connect_next(&mut self, rng: &mut Rng) -> Result<()> {
        let request = self.forger.request(rng);
        match rng.below(8) {
            0 => self.connect_socket(Behaviour::Silent, &[]),
            1 => self.connect_socket(Behaviour::Garbage, &garbage(rng)),
            2 => self.connect_socket(Behaviour::Huge, &rng.bytes(HUGE)),
            3 => {
                let len = rng.index(request.len());
                self.connect_verbs(Behaviour::Part, request[..len].to_vec())
            }
            4 => self.connect_verbs(Behaviour::Garbage, garbage(rng)),
            _ => self.connect_verbs(Behaviour::Foreign, request),
        }
    }

    fn disconnect_all(&mut self, _: &mut Rng) -> Result<Outcomes> {
        while let Some(impostor) = self.held.pop_front() {
            self.dismiss(&impostor)?;
        }
        Ok(self.outcomes)
    }

    /// Messages on `shm` cannot be recorded.
    fn set_recorded(&mut self, _: Vec<Vec<u8>>) {}
}
