//! The machine's own floor, measured in the same run, by the same processes on the same cores, as an experiment that
//! needs no device: a cache line passed between the cores, memcpy, process_vm_writev, a futex wake-up, a system call;
//! for devices on TCP, what plain sockets do.
//!
//! [`crate::floor`] defines which floor belongs to which result.

mod errors;
mod tcp;
mod whats;

use errors::machine;
use results::variant::{Variant, factor, variant};
pub use whats::FLOOR;
pub(crate) use whats::{SMALL, WHATS, only_size};

use nic_util::floor::{Lines, PeerMemory, Region, Role, empty_syscalls};
use verbs::host::{Span, Time};

use super::harness::contract::{Experiment, Side};
use super::harness::timing::sample;
use super::{Fault, Metric, Round, Scale, Session};

/// Cycles between two polls of a cache line: polling too early takes the line away from its writer.
const SPACINGS: [u64; 4] = [0, 25, 50, 100];
const TRIALS: u64 = 3;
const TRIAL_ROUNDS: u64 = 2000;

/// The experiment `floor`: the machine without a device.
pub(crate) struct MachineFloor;

impl Experiment for MachineFloor {
    fn name(&self) -> &'static str {
        FLOOR
    }

    fn about(&self) -> &'static str {
        "what the machine itself achieves: cache line, memcpy, process_vm_writev, futex wake-up, system call, plain TCP"
    }

    fn explain(&self) -> &'static str {
        include_str!("../explain/floor.md")
    }

    fn variants(&self, _quick: bool) -> Vec<Variant> {
        WHATS.iter().map(|(what, _)| variant(&[(factor::WHAT, what)])).collect()
    }

    fn only_size(&self, v: &Variant) -> Option<u64> {
        only_size(v.get(factor::WHAT).unwrap_or_default())
    }

    fn metric(&self, v: &Variant) -> Metric {
        let time = |name, over, about| Metric { name, unit: "us", about, scale: Scale::Time(over) };
        match v.get(factor::WHAT) {
            Some("line") => {
                time("one_way_latency", 2.0, "half a round trip of one line that both cores write")
            }
            Some("mailbox") => {
                time("one_way_latency", 2.0, "half a round trip over one line for each direction")
            }
            Some("futex") => {
                time("one_way_latency", 2.0, "half a round trip of a futex ping-pong without spinning")
            }
            Some("syscall") => time("operation_latency", 1.0, "a system call that does nothing"),
            Some("tcp") => time(
                "one_way_latency",
                2.0,
                "half a round trip of a message of that size over plain TCP, both sides spinning",
            ),
            Some("tcp-sleep") => time(
                "one_way_latency",
                2.0,
                "half a round trip over plain TCP, each side asleep until something comes",
            ),
            Some("tcp-stream") => Metric {
                name: "bandwidth",
                unit: "MB/s",
                about: "messages of that size one way over plain TCP, from the first to the answer to the last",
                scale: Scale::Bandwidth(1.0),
            },
            Some("tcp-both") => Metric {
                name: "bandwidth",
                unit: "MB/s",
                about: "messages of that size over plain TCP by both sides at the same time, the sum of both directions",
                scale: Scale::Bandwidth(2.0),
            },
            _ => Metric {
                name: "bandwidth",
                unit: "MB/s",
                about: "warm copies of that size, one after the other",
                scale: Scale::Bandwidth(1.0),
            },
        }
    }

    fn prepare(&self, session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
        let client = session.is_client();
        Ok(match session.cell.factor(factor::WHAT)? {
            "line" => Box::new(Bounce::new(session, Lines::One)?),
            "mailbox" => Box::new(Bounce::new(session, Lines::Two)?),
            "futex" => Box::new(Futex { page: shared_page(session)?, client, at: 0 }),
            "syscall" => Box::new(Alone(Kernel, client)),
            "memcpy" => Box::new(Alone(Memcpy::new(session.cell.length()? as usize)?, client)),
            "process_vm_writev" => vm_side(session)?,
            "tcp" => Box::new(tcp::Pings::new(session, false)?),
            "tcp-sleep" => Box::new(tcp::Pings::new(session, true)?),
            "tcp-stream" => Box::new(tcp::Streams::new(session, false)?),
            "tcp-both" => Box::new(tcp::Streams::new(session, true)?),
            other => return Err(Fault::Meaningless(format!("the floor {other}"))),
        })
    }
}

/// A page that both processes map: the server makes it.
fn shared_page(session: &mut Session<'_>) -> Result<Region, Fault> {
    const LEN: usize = 4096;
    let neighbour = session.neighbour()?;
    if session.is_client() {
        let fd: i32 = session.receive_info()?;
        let page = Region::open(neighbour, fd, LEN).map_err(machine("cannot share memory with the peer"));
        session.send_info(&())?;
        return page;
    }
    let page = Region::shared(LEN).map_err(machine("cannot make shared memory"))?;
    page.fill(0);
    session.send_info(&page.fd())?;
    session.receive_info::<()>()?;
    Ok(page)
}

fn role(client: bool) -> Role {
    if client { Role::Ping } else { Role::Pong }
}

struct Bounce {
    page: Region,
    lines: Lines,
    client: bool,
    spacing: u64,
    at: u64,
}

impl Bounce {
    fn new(session: &mut Session<'_>, lines: Lines) -> Result<Self, Fault> {
        Ok(Self { page: shared_page(session)?, lines, client: session.is_client(), spacing: 50, at: 0 })
    }

    fn run(&mut self, session: &Session<'_>, rounds: u64, deadline: Option<Time>) -> Result<(), Fault> {
        let give_up = || deadline.is_some_and(|d| session.host.now() > d);
        let (who, spacing) = ((role(self.client), self.lines), self.spacing);
        let next = self.page.bounce(who, self.at, rounds, spacing, &give_up);
        self.at = next.map_err(machine("the cache line was not answered"))?;
        Ok(())
    }
}

impl Side for Bounce {
    /// Finds the best interval between polls; both sides then use it.
    fn warm(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let mut best = (Span::from_secs(3600), 0);
        for spacing in SPACINGS {
            self.spacing = spacing;
            for _ in 0..TRIALS {
                let began = session.host.now();
                self.run(session, TRIAL_ROUNDS, session.deadline())?;
                best = best.min((session.host.now() - began, spacing));
            }
        }
        if self.client {
            session.send_info(&best.1)?;
            self.spacing = best.1;
        } else {
            self.spacing = session.receive_info()?;
        }
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample(s, round, readings, |s, n, deadline| self.run(s, n, deadline))
    }

    fn note(&self) -> Option<String> {
        Some(format!("polls {} cycles apart, the best of {SPACINGS:?}", self.spacing))
    }
}

struct Futex {
    page: Region,
    client: bool,
    at: u32,
}

impl Side for Futex {
    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample(s, round, readings, |s, n, deadline| {
            let give_up = || deadline.is_some_and(|d| s.host.now() > d);
            let rounds = u32::try_from(n).unwrap_or(u32::MAX);
            let next = self.page.futex_rounds(role(self.client), self.at, rounds, &give_up);
            self.at = next.map_err(machine("the futex was not answered"))?;
            Ok(())
        })
    }
}

/// Work done by one process without its peer.
trait Work {
    fn warm(&mut self, _session: &Session<'_>) -> Result<(), Fault> {
        Ok(())
    }
    fn run(&mut self, times: u64) -> Result<(), Fault>;
    fn verify(&self) -> Result<(), Fault> {
        Ok(())
    }
    fn note(&self) -> Option<String> {
        None
    }
}

/// The client does the work, the other waits.
struct Alone<W>(W, bool);

impl<W: Work> Side for Alone<W> {
    fn warm(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        if self.1 { self.0.warm(session) } else { Ok(()) }
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        if self.1 { sample(s, round, readings, |_, n, _| self.0.run(n)) } else { Ok(()) }
    }

    fn verify(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        if self.1 { self.0.verify() } else { Ok(()) }
    }

    fn note(&self) -> Option<String> {
        self.0.note()
    }
}

struct Kernel;

impl Work for Kernel {
    fn run(&mut self, times: u64) -> Result<(), Fault> {
        empty_syscalls(times);
        Ok(())
    }
}

/// Copies into private and into shared memory; the faster copy counts.
struct Memcpy {
    from: Region,
    to: [Region; 2],
    len: usize,
    shared: usize,
}

impl Memcpy {
    fn new(len: usize) -> Result<Self, Fault> {
        let no = "no memory to copy";
        let from = Region::private(len).map_err(machine(no))?;
        let to = [Region::private(len).map_err(machine(no))?, Region::shared(len).map_err(machine(no))?];
        Ok(Self { from, to, len, shared: 0 })
    }
}

impl Work for Memcpy {
    fn warm(&mut self, session: &Session<'_>) -> Result<(), Fault> {
        self.from.fill(0x5a);
        let mut best = (Span::from_secs(3600), 0);
        let times = ((1 << 18) / self.len as u64).clamp(1, 1000);
        for which in [0, 1, 0, 1, 0, 1] {
            self.shared = which;
            let began = session.host.now();
            self.run(times)?;
            best = best.min((session.host.now() - began, which));
        }
        self.shared = best.1;
        Ok(())
    }

    fn run(&mut self, times: u64) -> Result<(), Fault> {
        self.from.copy_to(&self.to[self.shared], self.len, times).map_err(machine("memcpy"))
    }

    fn verify(&self) -> Result<(), Fault> {
        match self.to[self.shared].byte(self.len - 1) {
            Some(0x5a) => Ok(()),
            other => Err(Fault::Corrupt(format!("memcpy left {other:?}"))),
        }
    }

    fn note(&self) -> Option<String> {
        let kind = if self.shared == 1 { "shared" } else { "private" };
        Some(format!("into {kind} memory, the faster of private and shared"))
    }
}

/// Writes into the private memory of the other process.
struct Vm {
    from: Region,
    to: PeerMemory,
    len: usize,
}

impl Work for Vm {
    fn warm(&mut self, _session: &Session<'_>) -> Result<(), Fault> {
        self.from.fill(0x5a);
        self.run(1)
    }

    fn run(&mut self, times: u64) -> Result<(), Fault> {
        self.to.write_from(&self.from, self.len, times).map_err(machine("process_vm_writev"))
    }
}

/// The target of [`Vm`]: holds the memory, and verifies it at the end.
struct Target(Region);

impl Side for Target {
    fn round(&mut self, _: &mut Session<'_>, _: Round, _: &mut Vec<f64>) -> Result<(), Fault> {
        Ok(())
    }

    fn verify(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        match self.0.byte(self.0.len() - 1) {
            Some(0x5a) => Ok(()),
            other => Err(Fault::Corrupt(format!("process_vm_writev left {other:?}"))),
        }
    }
}

fn vm_side(session: &mut Session<'_>) -> Result<Box<dyn Side>, Fault> {
    let len = session.cell.length()? as usize;
    let neighbour = session.neighbour()?;
    let memory = Region::private(len).map_err(machine("no memory to copy"))?;
    if !session.is_client() {
        // Present, so that the writer does not pay for its pages.
        memory.fill(1);
        session.send_info(&memory.addr())?;
        return Ok(Box::new(Target(memory)));
    }
    let to =
        PeerMemory::new(neighbour, session.receive_info()?, len).map_err(machine("process_vm_writev"))?;
    // Whether the kernel allows it shows now, while the cell can still be left out.
    to.write_from(&memory, 1, 1).map_err(machine("process_vm_writev"))?;
    Ok(Box::new(Alone(Vm { from: memory, to, len }, true)))
}
