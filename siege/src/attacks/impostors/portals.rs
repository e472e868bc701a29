//! Impostors at a process of Portals, on `shm` and on `iwarp`. It is a program in C (`siege/c/portals.c`), and every process of the job may
//! read and write its entries.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use auth::{Challenge, IDENTITY, Identity, JOB_KEY, Key, OFFER};
use portals::PROTOCOL;
use rustix::process::Pid;

use super::requests::{Claim, Forger, Mpa};
use super::shm::ShmImpostors;
use super::tcp::TcpImpostors;
use super::{HONEST, LATE_MAX, Listener, ListenerReport, attack_listener, count, judge};
use crate::attack::{Attack, Budget, Tally};
use crate::child::Child;
use crate::programs::{Source, with_program};

pub(crate) const ATTACK: Attack = Attack {
    name: "portals-impostors",
    about: "20,000 programs that claim to be a Portals process, on shm and iwarp; honest ones put meanwhile",
    weight: 2,
    late_max: LATE_MAX,
    run,
};

const PROGRAM: Source<'_> = Source {
    name: "portals",
    text: include_str!("../../../c/portals.c"),
    headers: &[("portals4.h", include_str!("../../../../crates/abi-portals/include/portals4.h"))],
    file: "libnicety_portals.so",
    names: &["libportals.so.4"],
};

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    with_program(&PROGRAM, budget, tally, |program, budget, tally| {
        let count = count(budget);
        for device in ["shm", "iwarp"] {
            let round = PortalsServer::start(program, device).and_then(|(target, claim)| {
                let (addr, rng) = (target.addr, &mut budget.rng);
                let forger = Forger::new(PROTOCOL, claim, [0; OFFER])?;
                match device {
                    "shm" => attack_listener(target, &mut ShmImpostors::new(addr, forger)?, count, rng),
                    _ => attack_listener(target, &mut TcpImpostors::new(addr, Mpa(forger)), count, rng),
                }
            });
            judge(tally, device, round);
        }
    })
}

/// The attacked process, and the honest processes.
struct PortalsServer {
    child: Child,
    addr: SocketAddr,
    honest: Vec<Child>,
    /// How many honest processes were ordered to put.
    asked: usize,
}

/// The nid and pid of a process. The nid is its IPv4 address.
struct ProcessId(u32, u32);

impl ProcessId {
    fn parse(line: &str) -> Result<Self> {
        let (nid, pid) = line.split_once(' ').context("no place")?;
        Ok(Self(nid.parse()?, pid.parse()?))
    }

    /// A pid that the device chose is the port.
    fn addr(&self) -> Result<SocketAddr> {
        Ok((Ipv4Addr::from(self.0), u16::try_from(self.1)?).into())
    }

    fn identity(&self) -> Identity {
        let mut bytes = [0; IDENTITY];
        bytes[..4].copy_from_slice(&self.0.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.1.to_le_bytes());
        Identity(bytes)
    }
}

impl PortalsServer {
    /// Starts all processes. The claim of impostors is the identity of the last honest process.
    fn start(program: &Path, device: &str) -> Result<(Self, Claim)> {
        let key = Key::random()?.to_hex();
        let start = |words: &[String]| -> Result<(Child, ProcessId)> {
            let mut command = Command::new(program);
            let child = Child::of(command.args(words).env("NICETY_DEVICE", device).env(JOB_KEY, &key))?;
            let place = ProcessId::parse(&child.receive()?)?;
            Ok((child, place))
        };
        let (child, place) = start(&[])?;
        let words = [place.0.to_string(), place.1.to_string()];
        let (honest, places): (Vec<_>, Vec<_>) =
            (0..HONEST).map(|_| start(&words)).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let from = places.last().context("there are some")?.identity();
        let claim = Claim::Known { from, to: place.identity(), challenge: Challenge::UNKNOWN };
        Ok((Self { child, addr: place.addr()?, honest, asked: 0 }, claim))
    }
}

impl Listener for PortalsServer {
    fn addr(&self) -> Option<SocketAddr> {
        Some(self.addr)
    }

    fn process(&self) -> Pid {
        self.child.pid()
    }

    fn connect(&mut self) -> Result<()> {
        let next = self.honest.get_mut(self.asked).context("all have put")?;
        self.asked += 1;
        next.send("put")
    }

    fn connected(&mut self) -> Result<Duration> {
        let last = self
            .asked
            .checked_sub(1)
            .and_then(|at| self.honest.get(at))
            .context("no process has sent a put")?;
        Ok(Duration::from_micros(last.receive()?.parse()?))
    }

    fn finish(mut self) -> Result<ListenerReport> {
        let state = self.child.request("state")?;
        let (puts, touched) = state.split_once(' ').context("no state")?;
        ensure!(puts.parse() == Ok(self.asked), "{puts} of {} puts have arrived", self.asked);
        Ok(ListenerReport { touched: touched.parse()?, ..ListenerReport::default() })
    }
}
