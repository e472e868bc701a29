//! The floors of devices on TCP: plain sockets between the same two processes on the same cores.
//!
//! | floor | operation |
//! |---|---|
//! | `tcp` | a ping-pong of messages of that size, each side spinning |
//! | `tcp-sleep` | the same with each side asleep in the kernel until data arrive |
//! | `tcp-stream` | messages one way, in the best of several ways; an answer of one byte ends a burst |
//! | `tcp-both` | the same in both directions simultaneously |
//!
//! Messages smaller than an efficient call are batched: each is copied into the send buffer, and out of the receive
//! buffer. Trials find out whether that pays, as they do for the other ways.

use std::net::{SocketAddr, TcpListener};

use nic_util::floor::{Nonces, Tcp, nonces};
use verbs::host::Time;

use super::super::harness::contract::Side;
use super::super::harness::timing::sample;
use super::super::{Fault, Round, Session};
use super::errors::machine;

/// Sizes of socket buffers that are tried, in bytes; 0 leaves them to the kernel, which lets them grow.
const BUFFERS: [usize; 3] = [0, 512 << 10, 4 << 20];
/// Sizes of one call that are tried, in addition to whole messages.
const CHUNKS: [usize; 4] = [64 << 10, 128 << 10, 256 << 10, 1 << 20];
/// A trial ends after this many bytes or calls, whichever comes first.
const TRIAL_BYTES: usize = 2 << 20;
const TRIAL_CALLS: usize = 1000;
/// Trials of each method; the best counts.
const TRIALS: u32 = 2;
/// Bytes and messages of a burst.
const BURST_BYTES: u64 = 4 << 20;
const BURST_MESSAGES: u64 = 1 << 18;
/// The content of messages.
const FILL: u8 = 0x5a;

/// Connections between the two processes, by the device's own addresses if it has any.
fn connections(session: &mut Session<'_>, buffers: &[usize]) -> Result<Vec<Tcp>, Fault> {
    const NO: &str = "no TCP connection for the floor";
    if !session.is_client() {
        let addr = session.listen_addr(0)?;
        let listener = TcpListener::bind(addr).map_err(machine(NO))?;
        let nonces = nonces().map_err(machine(NO))?;
        session.send_info(&(listener.local_addr().map_err(machine(NO))?, nonces))?;
        let deadline = session.deadline();
        let give_up = || deadline.is_some_and(|d| session.host.now() > d);
        let accept = |len: &usize| Tcp::accept(&listener, &nonces, *len, &give_up).map_err(machine(NO));
        return buffers.iter().map(accept).collect();
    }
    let (mut addr, nonces): (SocketAddr, Nonces) = session.receive_info()?;
    if addr.ip().is_unspecified() {
        addr.set_ip(session.control(1)?.peer_ip());
    }
    let own = session.device.attr().port_addrs.first().copied();
    let connect = |len: &usize| Tcp::connect(addr, own, &nonces, *len).map_err(machine(NO));
    buffers.iter().map(connect).collect()
}

/// Work on sockets, with a limit.
struct Limit<'a, 'b> {
    session: &'a Session<'b>,
    deadline: Option<Time>,
}

impl Limit<'_, '_> {
    fn passed(&self) -> bool {
        self.deadline.is_some_and(|d| self.session.host.now() > d)
    }
}

/// A ping-pong over one connection.
pub(super) struct Pings {
    socket: Tcp,
    bytes: Vec<u8>,
    client: bool,
}

impl Pings {
    pub(super) fn new(session: &mut Session<'_>, sleeps: bool) -> Result<Self, Fault> {
        let bytes = vec![FILL; session.cell.length()? as usize];
        let mut all = connections(session, &[0])?;
        let mut socket = all.remove(0);
        socket.set_sleeping(sleeps).map_err(machine("a TCP socket"))?;
        Ok(Self { socket, bytes, client: session.is_client() })
    }

    fn run(&mut self, rounds: u64, limit: &Limit<'_, '_>) -> std::io::Result<()> {
        let give_up = || limit.passed();
        for _ in 0..rounds {
            if self.client {
                self.socket.send(&self.bytes, usize::MAX, &give_up)?;
                self.socket.receive(&mut self.bytes, usize::MAX, &give_up)?;
            } else {
                self.socket.receive(&mut self.bytes, usize::MAX, &give_up)?;
                self.socket.send(&self.bytes, usize::MAX, &give_up)?;
            }
        }
        Ok(())
    }
}

impl Side for Pings {
    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample(s, round, readings, |session, count, deadline| {
            self.run(count, &Limit { session, deadline }).map_err(machine("the TCP ping-pong"))
        })
    }

    fn verify(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        intact(&self.bytes)
    }
}

fn intact(bytes: &[u8]) -> Result<(), Fault> {
    match bytes.iter().find(|byte| **byte != FILL) {
        None => Ok(()),
        Some(byte) => Err(Fault::Corrupt(format!("a TCP socket brought {byte:#x}"))),
    }
}

/// A method to stream: which socket, how many bytes a call, and whether the sender sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Streaming {
    /// Index into [`BUFFERS`].
    socket: usize,
    /// Bytes of a call; more than a message gathers several.
    chunk: usize,
    sleeps: bool,
}

/// Messages one way, or both ways simultaneously.
pub(super) struct Streams {
    sockets: Vec<Tcp>,
    methods: Vec<Streaming>,
    method: Streaming,
    message: Vec<u8>,
    /// Gathered messages.
    out: Vec<u8>,
    into: Vec<u8>,
    burst: u64,
    client: bool,
    both: bool,
}

impl Streams {
    pub(super) fn new(session: &mut Session<'_>, both: bool) -> Result<Self, Fault> {
        let size = session.cell.length()? as usize;
        let sockets = connections(session, &BUFFERS)?;
        let methods = streaming_methods(size, both);
        let largest = methods.iter().map(|method| method.chunk).max().unwrap_or(0).max(size);
        Ok(Self {
            sockets,
            method: methods[0],
            methods,
            message: vec![FILL; size],
            out: vec![FILL; largest],
            into: vec![FILL; largest],
            burst: (BURST_BYTES / size as u64).clamp(2, BURST_MESSAGES),
            client: session.is_client(),
            both,
        })
    }

    /// Transfers `messages` messages.
    fn run(&mut self, messages: u64, limit: &Limit<'_, '_>) -> std::io::Result<()> {
        let (mut left, most) = (messages as usize, (self.method.chunk / self.message.len()).max(1));
        while left > 0 {
            let now = left.min(most);
            if self.both {
                self.exchange(now, limit)?
            } else {
                self.pass(now, limit)?
            }
            left -= now;
        }
        // A side that only sends does not know when everything has arrived.
        let (socket, give_up) = (&self.sockets[self.method.socket], || limit.passed());
        match (self.both, self.client) {
            (true, _) => Ok(()),
            (false, true) => socket.receive(&mut [0], 1, &give_up),
            (false, false) => socket.send(&[FILL], 1, &give_up),
        }
    }

    /// Sends or receives several messages per call.
    fn pass(&mut self, messages: usize, limit: &Limit<'_, '_>) -> std::io::Result<()> {
        let (socket, give_up) = (&self.sockets[self.method.socket], || limit.passed());
        let (size, chunk) = (self.message.len(), self.method.chunk);
        match (self.client, messages) {
            (true, 1) => socket.send(&self.message, chunk, &give_up),
            (false, 1) => socket.receive(&mut self.message, chunk, &give_up),
            (true, _) => {
                gather(&self.message, &mut self.out[..messages * size]);
                socket.send(&self.out[..messages * size], chunk, &give_up)
            }
            (false, _) => {
                socket.receive(&mut self.into[..messages * size], chunk, &give_up)?;
                take_apart(&self.into[..messages * size], &mut self.message);
                Ok(())
            }
        }
    }

    /// Sends and receives several messages simultaneously.
    fn exchange(&mut self, messages: usize, limit: &Limit<'_, '_>) -> std::io::Result<()> {
        let (socket, give_up) = (&self.sockets[self.method.socket], || limit.passed());
        let (len, small) = (messages * self.message.len(), messages > 1);
        if small {
            gather(&self.message, &mut self.out[..len]);
        }
        socket.exchange(&self.out[..len], &mut self.into[..len], self.method.chunk, &give_up)?;
        if small {
            take_apart(&self.into[..len], &mut self.message);
        }
        Ok(())
    }

    /// Uses a method from now on.
    fn choose(&mut self, method: Streaming) -> Result<(), Fault> {
        self.method = method;
        self.sockets[method.socket].set_sleeping(method.sleeps).map_err(machine("a TCP socket"))
    }
}

fn gather(message: &[u8], out: &mut [u8]) {
    for place in out.chunks_exact_mut(message.len()) {
        // Each message is produced by the program, so each is copied, as if their contents differed.
        place.copy_from_slice(std::hint::black_box(message));
    }
}

fn take_apart(from: &[u8], message: &mut [u8]) {
    for place in from.chunks_exact(message.len()) {
        std::hint::black_box(&mut *message).copy_from_slice(place);
    }
}

/// The methods that are tried for messages of `size`; the first is a good guess.
fn streaming_methods(size: usize, both: bool) -> Vec<Streaming> {
    // The size of chunks that divide a message matters little; larger batches do not fit the caches.
    let gathers = CHUNKS.iter().map(|chunk| chunk / size * size).filter(|chunk| *chunk > size).take(2);
    let divides = CHUNKS.into_iter().filter(|chunk| *chunk < size);
    let mut chunks: Vec<usize> = gathers.chain(divides).chain([size]).collect();
    chunks.dedup();
    let mut all = Vec::new();
    for chunk in chunks {
        for socket in 0..BUFFERS.len() {
            // In both directions simultaneously, a side cannot sleep for a single direction.
            for sleeps in if both { &[false][..] } else { &[false, true] } {
                all.push(Streaming { socket, chunk, sleeps: *sleeps });
            }
        }
    }
    all
}

impl Side for Streams {
    /// Finds the best method; both sides then use it.
    fn warm(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let size = self.message.len();
        let mut best: (f64, Streaming) = (f64::INFINITY, self.method);
        for method in self.methods.clone() {
            self.choose(method)?;
            let bytes = TRIAL_BYTES.min(TRIAL_CALLS.saturating_mul(method.chunk));
            let messages = (bytes / size).max(1) as u64;
            for _ in 0..TRIALS {
                let began = session.host.now();
                let limit = Limit { session: &*session, deadline: session.deadline() };
                self.run(messages, &limit).map_err(machine("the TCP stream"))?;
                let each = (session.host.now() - began).as_ns_f64() / messages as f64;
                if each < best.0 {
                    best = (each, method);
                }
            }
        }
        // One side chooses for both.
        let chosen = self.methods.iter().position(|method| *method == best.1).unwrap_or(0);
        let chosen = if self.client {
            session.send_info(&chosen)?;
            chosen
        } else {
            session.receive_info::<usize>()?
        };
        let method =
            *self.methods.get(chosen).ok_or_else(|| Fault::Control("no such way to stream".into()))?;
        self.choose(method)
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample(s, round, readings, |session, count, deadline| {
            let limit = Limit { session: &*session, deadline };
            (0..count).try_for_each(|_| self.run(self.burst, &limit)).map_err(machine("the TCP stream"))
        })
    }

    fn verify(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        intact(&self.message)?;
        if self.both { intact(&self.into) } else { Ok(()) }
    }

    fn messages(&self) -> u64 {
        self.burst
    }

    fn note(&self) -> Option<String> {
        let Streaming { socket, chunk, sleeps } = self.method;
        let gathered = match chunk / self.message.len() {
            0 | 1 => String::new(),
            n => format!(", {n} messages gathered"),
        };
        let how = if sleeps { "sleeping" } else { "spinning" };
        let [send, receive] = self.sockets[socket].buffers().unwrap_or_default();
        let methods = self.methods.len();
        Some(format!(
            "the best of {methods} ways: {chunk} bytes a call{gathered}, {how}, socket buffers of {send} and {receive} bytes"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_messages_may_be_gathered_and_large_ones_cut() {
        let chunks = |size: usize| {
            let mut all: Vec<usize> =
                streaming_methods(size, false).iter().map(|method| method.chunk).collect();
            all.dedup();
            all
        };
        assert_eq!(chunks(8), [65_536, 131_072, 8]);
        assert_eq!(chunks(1000), [65_000, 131_000, 1000]);
        assert_eq!(chunks(64 << 10), [128 << 10, 256 << 10, 64 << 10]);
        assert_eq!(chunks(4 << 20), [64 << 10, 128 << 10, 256 << 10, 1 << 20, 4 << 20]);
        assert!(streaming_methods(8, true).iter().all(|method| !method.sleeps));
    }

    #[test]
    fn messages_are_copied_in_and_out() {
        let mut out = [0; 9];
        gather(&[1, 2, 3], &mut out);
        assert_eq!(out, [1, 2, 3, 1, 2, 3, 1, 2, 3]);
        let mut message = [0; 3];
        take_apart(&[1, 2, 3, 4, 5, 6], &mut message);
        assert_eq!(message, [4, 5, 6]);
        assert!(intact(&[FILL; 4]).is_ok() && intact(&[FILL, 0]).is_err());
    }
}
