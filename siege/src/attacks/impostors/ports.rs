//! Impostors at a port of `MPI_Open_port`. The server and its clients are a program in C (`siege/c/ports.c`).

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use auth::Key;
use auth::handshake::{CHALLENGE, Connector};
use host::Rng;
use rustix::process::Pid;

use super::tcp::{HUGE, TcpImpostors, WireProtocol, is_end};
use super::{
    Behaviour, HONEST, LATE_MAX, Listener, ListenerReport, Outcome, PATIENCE, attack_listener, count, judge,
};
use crate::attack::{Attack, Budget, Tally};
use crate::child::Child;
use crate::programs::{Source, with_program};

pub(crate) const ATTACK: Attack = Attack {
    name: "port-impostors",
    about: "20,000 programs that do not know the name of an MPI_Open_port port; honest ones connect meanwhile",
    weight: 1,
    late_max: LATE_MAX,
    run,
};

const PROGRAM: Source<'_> = Source {
    name: "ports",
    text: include_str!("../../../c/ports.c"),
    headers: &[("mpi.h", include_str!("../../../../crates/abi-mpi/include/mpi.h"))],
    file: "libmpi_abi.so",
    names: &["libmpi_abi.so.1"],
};

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    with_program(&PROGRAM, budget, tally, |program, budget, tally| {
        let round = PortServer::start(program).and_then(|target| {
            let mut crowd =
                TcpImpostors::new(target.addr, PortClient { key: Key::random()?, challenge: [0; CHALLENGE] });
            attack_listener(target, &mut crowd, count(budget), &mut budget.rng)
        });
        judge(tally, "a port", round);
    })
}

/// The process with the port, and the honest clients.
struct PortServer {
    server: Child,
    addr: SocketAddr,
    honest: Vec<Child>,
    /// How many clients were ordered to connect.
    asked: usize,
}

impl PortServer {
    fn start(program: &Path) -> Result<Self> {
        // The last client lets the server end, after its memory was measured.
        let clients = HONEST + 1;
        let server = Child::of(Command::new(program).arg(clients.to_string()))?;
        let name = server.receive()?;
        let addr = name.split('#').nth(1).context("no place")?.parse()?;
        let start = |_| -> Result<Child> {
            let mut child = Child::of(&mut Command::new(program))?;
            child.send(&name)?;
            Ok(child)
        };
        let honest = (0..clients).map(start).collect::<Result<_>>()?;
        Ok(Self { server, addr, honest, asked: 0 })
    }
}

impl Listener for PortServer {
    fn addr(&self) -> Option<SocketAddr> {
        Some(self.addr)
    }

    fn process(&self) -> Pid {
        self.server.pid()
    }

    fn connect(&mut self) -> Result<()> {
        let next = self.honest.get_mut(self.asked).context("all have connected")?;
        self.asked += 1;
        next.send("connect")
    }

    fn connected(&mut self) -> Result<Duration> {
        let last = self.asked.checked_sub(1).and_then(|at| self.honest.get(at));
        Ok(Duration::from_micros(last.context("no process has connected")?.receive()?.parse()?))
    }

    fn finish(mut self) -> Result<ListenerReport> {
        self.connect()?;
        self.connected()?;
        // The server fails if it has accepted anyone but these clients.
        self.server.expect_success(PATIENCE)?;
        self.honest.into_iter().try_for_each(|child| child.expect_success(PATIENCE))?;
        Ok(ListenerReport::default())
    }
}

/// An impostor's side of the protocol of ports, with the key of another port.
struct PortClient {
    key: Key,
    /// The greeting of the current impostor.
    challenge: [u8; CHALLENGE],
}

impl WireProtocol for PortClient {
    fn read_greeting(&mut self, stream: &mut TcpStream) -> Result<bool> {
        match stream.read_exact(&mut self.challenge) {
            Ok(()) => Ok(true),
            Err(why) if is_end(&why) => Ok(false),
            Err(why) => Err(why).context("a port says nothing"),
        }
    }

    fn foreign_key_message(&mut self, _: &mut Rng) -> Result<Vec<u8>> {
        Ok(Connector::new(&self.challenge)?.context("no challenge")?.answer(&self.key).to_vec())
    }

    /// A proof, followed by the beginning of a 4 GiB message.
    fn oversized_message(&mut self, rng: &mut Rng) -> Result<Vec<u8>> {
        let mut words = self.foreign_key_message(rng)?;
        words.extend(u32::MAX.to_le_bytes());
        words.resize(HUGE, 0);
        Ok(words)
    }

    /// A port answers only valid proofs.
    fn outcome(&mut self, way: Behaviour, answer: &[u8]) -> Result<(Outcome, u64)> {
        let outcome = match (answer, way) {
            ([], Behaviour::Foreign) => Outcome::Challenged,
            ([], _) => Outcome::Refused,
            _ => Outcome::Accepted,
        };
        Ok((outcome, answer.len() as u64))
    }
}
