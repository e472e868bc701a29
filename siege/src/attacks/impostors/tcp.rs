//! [`TcpImpostors`]: impostors that connect by TCP. Each behaves in one [`Behaviour`], and every answer is checked.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};
use host::Rng;
use rustix::net::{AddressFamily, SocketType};

use super::{Behaviour, Impostors, Outcome, Outcomes};

/// Connections whose greeting is not read yet, and connections whose answer is not read yet.
const WINDOW: usize = 16;
/// Connections that stay open because the impostor has not sent a whole message.
pub(super) const HELD: usize = 128;
/// Slow impostors that send their next byte each time another impostor connects.
const DRIBBLES: usize = 4;
/// Connections from one address, since a closed one holds its port for a while.
const OF_ADDRESS: u32 = 5000;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest random message, and the length of a message that every listener refuses.
const GARBAGE_MAX: u64 = 200;
pub(super) const HUGE: usize = 64 << 10;

/// How impostors speak to a kind of listener.
pub(super) trait WireProtocol {
    /// Reads the greeting that the listener sends to every connection, and remembers it for the next message; false if the listener has closed.
    fn read_greeting(&mut self, stream: &mut TcpStream) -> Result<bool>;

    /// The messages that a process of another job would send.
    fn foreign_key_message(&mut self, rng: &mut Rng) -> Result<Vec<u8>>;

    /// A message whose announced length exceeds what the protocol allows.
    fn oversized_message(&mut self, rng: &mut Rng) -> Result<Vec<u8>>;

    /// Bytes that do not parse, and whether the listener can refuse them without waiting for more.
    fn garbage(&mut self, rng: &mut Rng) -> (Vec<u8>, bool) {
        (garbage(rng), false)
    }

    /// Interprets all bytes after the greeting, and counts the bytes that an impostor must not get.
    fn outcome(&mut self, way: Behaviour, answer: &[u8]) -> Result<(Outcome, u64)>;
}

/// An open connection of an impostor.
struct Visit {
    stream: TcpStream,
    way: Behaviour,
    /// The rest of a slow impostor's message.
    unsent: VecDeque<u8>,
}

/// Impostors at one listener.
pub(super) struct TcpImpostors<S> {
    protocol: S,
    addr: SocketAddr,
    came: u32,
    /// The impostor has only connected.
    arrived: VecDeque<Visit>,
    /// The impostor has sent a whole message.
    asked: VecDeque<Visit>,
    /// The impostor has sent nothing or a part.
    held: VecDeque<Visit>,
    recorded: Vec<Vec<u8>>,
    outcomes: Outcomes,
}

impl<S: WireProtocol> TcpImpostors<S> {
    pub(super) fn new(addr: SocketAddr, protocol: S) -> Self {
        let queue = VecDeque::new;
        let (arrived, asked, held) = (queue(), queue(), queue());
        Self {
            protocol,
            addr,
            came: 0,
            arrived,
            asked,
            held,
            recorded: Vec::new(),
            outcomes: Outcomes::default(),
        }
    }

    /// How the next impostor behaves. Every second impostor sends valid messages under a foreign key.
    fn next_behaviour(&self, rng: &mut Rng) -> Behaviour {
        let ways = [
            Behaviour::Silent,
            Behaviour::Slow,
            Behaviour::Garbage,
            Behaviour::Part,
            Behaviour::Huge,
            Behaviour::Replay,
        ];
        match *rng.one_of(&ways) {
            _ if rng.below(2) == 0 => Behaviour::Foreign,
            Behaviour::Replay if self.recorded.is_empty() => Behaviour::Garbage,
            way => way,
        }
    }

    /// Reads the greeting, and sends the impostor's message or the first part of it.
    fn speak(&mut self, mut visit: Visit, rng: &mut Rng) -> Result<()> {
        if !self.protocol.read_greeting(&mut visit.stream)? {
            return self.end_visit(&visit, &[]);
        }
        let (words, is_whole) = self.message(visit.way, rng)?;
        if visit.way == Behaviour::Slow {
            visit.unsent = words.into();
            return self.keep_open(visit);
        }
        // The listener may close before it has read everything.
        let _ = visit.stream.write_all(&words);
        if is_whole {
            self.asked.push_back(visit);
            return Ok(());
        }
        self.keep_open(visit)
    }

    /// The message of an impostor, and whether the listener can answer it without waiting for more.
    fn message(&mut self, way: Behaviour, rng: &mut Rng) -> Result<(Vec<u8>, bool)> {
        Ok(match way {
            Behaviour::Silent => (Vec::new(), false),
            Behaviour::Slow | Behaviour::Foreign => (self.protocol.foreign_key_message(rng)?, true),
            Behaviour::Huge => (self.protocol.oversized_message(rng)?, true),
            Behaviour::Replay => (rng.one_of(&self.recorded).clone(), true),
            Behaviour::Garbage => self.protocol.garbage(rng),
            Behaviour::Part => {
                let mut words = self.protocol.foreign_key_message(rng)?;
                words.truncate(rng.index(words.len()));
                (words, false)
            }
        })
    }

    /// Keeps a connection open. Beyond [`HELD`] the oldest one is closed.
    fn keep_open(&mut self, visit: Visit) -> Result<()> {
        self.held.push_back(visit);
        pop_if_longer(&mut self.held, HELD).map_or(Ok(()), |oldest| self.dismiss(oldest))
    }

    /// The oldest slow impostors send a byte each.
    fn send_slowly(&mut self) {
        let slow = self.held.iter_mut().filter(|visit| !visit.unsent.is_empty());
        for visit in slow.take(DRIBBLES) {
            if let Some(byte) = visit.unsent.pop_front() {
                // The listener may have closed.
                let _ = visit.stream.write_all(&[byte]);
            }
        }
    }

    /// Closes a connection, with or without an answer.
    fn dismiss(&mut self, mut visit: Visit) -> Result<()> {
        visit.stream.set_nonblocking(true)?;
        let mut answer = Vec::new();
        match visit.stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(why) if why.kind() == ErrorKind::WouldBlock => {}
            Err(why) if is_end(&why) => {}
            Err(why) => return Err(why.into()),
        }
        self.end_visit(&visit, &answer)
    }

    /// Reads an answer until the listener closes.
    fn finish(&mut self, mut visit: Visit) -> Result<()> {
        let mut answer = Vec::new();
        match visit.stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(why) if is_end(&why) => {}
            // The listener answered and did not close, so it may have accepted; the answer decides.
            Err(why) if why.kind() == ErrorKind::WouldBlock && !answer.is_empty() => {}
            Err(why) => return Err(why).with_context(|| format!("{:?} is not answered", visit.way)),
        }
        self.end_visit(&visit, &answer)
    }

    fn end_visit(&mut self, visit: &Visit, answer: &[u8]) -> Result<()> {
        let (outcome, read) = self.protocol.outcome(visit.way, answer)?;
        self.outcomes.count(visit.way, outcome, read)
    }
}

impl<S: WireProtocol> Impostors for TcpImpostors<S> {
    fn connect_next(&mut self, rng: &mut Rng) -> Result<()> {
        let (stream, way) = (connected(self.addr, self.came)?, self.next_behaviour(rng));
        self.came += 1;
        self.arrived.push_back(Visit { stream, way, unsent: VecDeque::new() });
        if let Some(visit) = pop_if_longer(&mut self.arrived, WINDOW) {
            self.speak(visit, rng)?;
        }
        if let Some(visit) = pop_if_longer(&mut self.asked, WINDOW) {
            self.finish(visit)?;
        }
        self.send_slowly();
        Ok(())
    }

    fn disconnect_all(&mut self, rng: &mut Rng) -> Result<Outcomes> {
        while let Some(visit) = self.arrived.pop_front() {
            self.speak(visit, rng)?;
        }
        while let Some(visit) = self.asked.pop_front() {
            self.finish(visit)?;
        }
        while let Some(visit) = self.held.pop_front() {
            self.dismiss(visit)?;
        }
        Ok(self.outcomes)
    }

    fn set_recorded(&mut self, recorded: Vec<Vec<u8>>) {
        self.recorded = recorded;
    }
}

/// Takes the oldest element of a queue that has more than `most`.
pub(super) fn pop_if_longer<T>(queue: &mut VecDeque<T>, most: usize) -> Option<T> {
    if queue.len() > most { queue.pop_front() } else { None }
}

/// A random message of less than [`GARBAGE_MAX`] bytes.
pub(super) fn garbage(rng: &mut Rng) -> Vec<u8> {
    let len = rng.below(GARBAGE_MAX) as usize;
    rng.bytes(len)
}

/// Whether an error means that the other side has closed.
pub(super) fn is_end(why: &std::io::Error) -> bool {
    matches!(why.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof)
}

/// A connection from one of some addresses of the loopback.
fn connected(addr: SocketAddr, at: u32) -> Result<TcpStream> {
    let own = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 16, 1)) + at / OF_ADDRESS);
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((own, 0)))?;
    rustix::net::connect(&socket, &addr)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}
