//! Impostors at the processes of an MPI job, on `shm` and on `iwarp`.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use auth::{OFFER, Seed};
use datatypes::{Basic, Datatype};
use mpi::{Bootstrap as _, Buffer, Config, Gauge, LocalKvs, Mode, PROTOCOL, PeerTag, Port, Process};
use rustix::process::Pid;
use verbs::Buf;

use super::requests::{Claim, Forger, Mpa};
use super::shm::ShmImpostors;
use super::tcp::TcpImpostors;
use super::{HONEST, LATE_MAX, Listener, ListenerReport, PATIENCE, attack_listener, count, judge};
use crate::attack::{Attack, Budget, Tally};
use crate::child::{Child, receive_from_parent, send_to_parent};

pub(crate) const ATTACK: Attack = Attack {
    name: "impostors",
    about: "20,000 programs that claim to be processes of an MPI job, on shm and iwarp; honest ones connect meanwhile",
    weight: 3,
    late_max: LATE_MAX,
    run,
};

/// The role of the attacked job.
pub(crate) const ROLE: &str = "impostors-job";

/// Processes of the job. All but the first connect to it, one after the other.
const RANKS: u32 = 1 + HONEST;

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    while budget.has_time_left() {
        let count = count(budget);
        for device in ["shm", "iwarp"] {
            let round = AttackedJob::start(device).and_then(|(job, seed)| {
                let addr = job.addr;
                let forger = Forger::new(PROTOCOL, Claim::Guessed(seed), [7; OFFER])?;
                match device {
                    "shm" => {
                        attack_listener(job, &mut ShmImpostors::new(addr, forger)?, count, &mut budget.rng)
                    }
                    _ => attack_listener(
                        job,
                        &mut TcpImpostors::new(addr, Mpa(forger)),
                        count,
                        &mut budget.rng,
                    ),
                }
            });
            judge(tally, device, round);
        }
    }
    Ok(())
}

/// A job in a child.
struct AttackedJob {
    child: Child,
    addr: SocketAddr,
}

impl AttackedJob {
    /// Starts the job; returns the seed of the challenges of its attacked process.
    fn start(device: &str) -> Result<(Self, Seed)> {
        let mut child = Child::start(ROLE)?;
        let place = child.request(device)?;
        let (addr, seed) = place.split_once(' ').context("no place")?;
        Ok((Self { child, addr: addr.parse()? }, Seed::from_hex(seed).context("no seed")?))
    }
}

impl Listener for AttackedJob {
    fn addr(&self) -> Option<SocketAddr> {
        Some(self.addr)
    }

    fn process(&self) -> Pid {
        self.child.pid()
    }

    fn connect(&mut self) -> Result<()> {
        self.child.send("connect")
    }

    fn connected(&mut self) -> Result<Duration> {
        Ok(Duration::from_micros(self.child.receive()?.parse()?))
    }

    fn finish(mut self) -> Result<ListenerReport> {
        let refused = Some(self.child.request("refused")?.parse()?);
        self.child.send("end")?;
        self.child.expect_success(PATIENCE)?;
        Ok(ListenerReport { refused, ..ListenerReport::default() })
    }
}

/// A child: a job whose processes are threads. The first one is attacked. Lines from the parent order it to exchange a
/// message with the next one.
pub(crate) fn job() -> Result<()> {
    let name = receive_from_parent()?.context("a device's name")?;
    let host = host::real::host();
    let kvs = LocalKvs::new(RANKS);
    let start = |rank| -> Result<Process> {
        let device = fabric::open(&name, &host)?;
        let address = device.attr().port_addrs.first().copied().unwrap_or(Ipv4Addr::LOCALHOST.into());
        let ports = vec![Port { device, address, fabric: "fabric".into() }];
        let config = Config { ports, node: "here".into(), ..Config::default() };
        Ok(Process::start(&host, &config, kvs.bootstrap(rank, &host))?)
    };
    let processes: Vec<Process> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..RANKS).map(|rank| scope.spawn(move || start(rank))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Process>>| match thread.join() {
            Ok(process) => process,
            Err(_) => bail!("a process panicked"),
        };
        starting.into_iter().map(join).collect::<Result<_>>()
    })?;
    // The note of a process, which all programs of the user are assumed to know: its host, its seed, and where it listens.
    let note = kvs.bootstrap(0, &host).get("mpi-0")?;
    let mut words = note.split(',').skip(1);
    let (seed, port) = (words.next().context("a seed")?, words.next().context("a port")?);
    send_to_parent(format!("{} {seed}", port.split(';').next().unwrap_or_default()))?;
    let mut honest = processes[1..].iter();
    while let Some(word) = receive_from_parent()? {
        match &*word {
            "connect" => {
                send_to_parent(exchange(&processes[0], honest.next().context("no more processes")?)?)?
            }
            "refused" => send_to_parent(processes[0].gauge(Gauge::ConnectionsRefused))?,
            _ => break,
        }
    }
    // Finalize is collective, so all processes call it concurrently.
    std::thread::scope(|scope| {
        processes.into_iter().for_each(|process| drop(scope.spawn(move || process.finalize())));
    });
    Ok(())
}

/// The microseconds of a first message from a process to the attacked one, which makes their connection.
fn exchange(attacked: &Process, honest: &Process) -> Result<u128> {
    let bytes = || -> Result<Buffer> { Ok(Buffer::of(&Buf::alloc(8)?, 0, 8, &Datatype::from(Basic::Byte))?) };
    let began = Instant::now();
    let rank = honest.world().rank();
    std::thread::scope(|scope| -> Result<()> {
        let sender = scope.spawn(|| -> Result<()> {
            Ok(honest.world().send(Mode::Standard, &bytes()?, PeerTag { rank: 0, tag: 1 })?)
        });
        attacked.world().receive(bytes()?, PeerTag { rank, tag: 1 })?;
        match sender.join() {
            Ok(sent) => sent,
            Err(_) => bail!("the sender panicked"),
        }
    })?;
    Ok(began.elapsed().as_micros())
}
