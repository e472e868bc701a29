//! [`ControlStream`]: the control connection as an experiment sees it.

use std::io::{self, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use verbs::host::Time;

use super::wire::{self, FRAME_MAX, Frame, Hello, Lock, WireError};
use crate::experiment::{Control, Fault, Word};
use crate::machine::{now, since};
use crate::token::{Party, Token};
use results::plain;
use results::schema::PeerInfo;

/// How long a peer may take for its hello, and for its proof.
const HELLO_PATIENCE: Duration = Duration::from_secs(5);
/// How long a peer may take to read what this side writes.
const WRITE_PATIENCE: Duration = Duration::from_secs(5);
/// How often a peer is called again that hangs up before it has said anything: others may be at its door.
const CALLS: u32 = 5;
const BETWEEN_CALLS: Duration = Duration::from_millis(50);

/// A control connection after both hellos.
pub(super) struct ControlStream {
    stream: BufReader<Patient>,
    patience: Duration,
    local: IpAddr,
    peer: SocketAddr,
    /// The address it was dialled by; `None` for a process of this run, whose port would not help a user.
    name: Option<String>,
    theirs: Hello,
    /// What it said of its host when it had opened its device.
    pub(super) about: PeerInfo,
    /// Notified when this side starts to wait for the other's message, and when it has one.
    reports: Option<UnixStream>,
}

/// A report: the worker waits for a message of its client.
pub const WAITS: u8 = 1;
/// A report: the worker works.
pub const WORKS: u8 = 2;

/// A socket on which a whole frame has its time, however small the pieces are in which it comes or goes.
struct Patient {
    stream: TcpStream,
    began: Time,
    patience: Duration,
}

impl Patient {
    fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self { stream, began: now(), patience: HELLO_PATIENCE })
    }

    /// Starts the timeout: the peer has this long from now on.
    fn begin(&mut self, patience: Duration) {
        (self.began, self.patience) = (now(), patience);
    }

    /// Waits until the socket can be read or written, or the timeout has passed.
    fn ready(&self, what: PollFlags) -> io::Result<()> {
        let left = self.patience.saturating_sub(since(self.began));
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match rustix::event::poll(&mut [PollFd::new(&self.stream, what)], Some(&limit)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(why) => Err(why.into()),
        }
    }

    /// Does it as soon as it can be done.
    fn when<T>(&self, what: PollFlags, mut act: impl FnMut(&TcpStream) -> io::Result<T>) -> io::Result<T> {
        loop {
            match act(&self.stream) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.ready(what)?,
                done => return done,
            }
        }
    }
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.when(PollFlags::IN, |mut stream| stream.read(into))
    }
}

impl Write for Patient {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.when(PollFlags::OUT, |mut stream| stream.write(from))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl ControlStream {
    /// Connects to `HOST:PORT`, trying all of its addresses.
    pub(super) fn dial(to: &str, token: Option<&Token>, patience: Duration) -> Result<Self, Fault> {
        let addrs = to.to_socket_addrs().map_err(|e| {
            Fault::Connection(format!("{to} cannot be found: {e}; check the name of the host"))
        })?;
        let mut last = "it has no address".to_owned();
        for addr in addrs {
            match call(addr, token, patience) {
                Ok(Ok(control_stream)) => return Ok(Self { name: Some(to.to_owned()), ..control_stream }),
                Ok(Err(why)) => return Err(lost(to, &why)),
                Err(e) => last = e.to_string(),
            }
        }
        let advice = "is `nicety serve` running there, and is the port right?";
        Err(Fault::Connection(format!("{to} cannot be reached: {last}; {advice}")))
    }

    /// Says hello and hears the other's, and proves to each other that they share the token, if there is one.
    pub(super) fn greet(stream: TcpStream, token: Option<&Token>, me: Party) -> Result<Self, WireError> {
        let (local, peer) = (stream.local_addr()?.ip(), stream.peer_addr()?);
        let mut stream = BufReader::new(Patient::new(stream)?);
        let ours = Hello::own(token)?;
        wire::write(stream.get_mut(), &ours)?;
        let theirs = Hello::read(&mut stream)?;
        let mut control_stream = Self {
            stream,
            patience: HELLO_PATIENCE,
            local,
            peer,
            name: None,
            theirs,
            about: PeerInfo::default(),
            reports: None,
        };
        let (client, server) = if me == Party::Client {
            (&ours, &control_stream.theirs)
        } else {
            (&control_stream.theirs, &ours)
        };
        let Some(lock) = Lock::new(token, client, server, me)? else { return Ok(control_stream) };
        if me == Party::Client {
            control_stream.write(&lock.proof(Party::Client))?;
            lock.check(control_stream.read()?, Party::Server)?;
        } else {
            lock.check(control_stream.read()?, Party::Client)?;
            control_stream.write(&lock.proof(Party::Server))?;
        }
        Ok(control_stream)
    }

    /// Continues with a client whose set-up has been read. What this side does is reported on `reports`, if there is one.
    pub(super) fn resume(
        stream: TcpStream,
        theirs: Hello,
        reports: Option<UnixStream>,
    ) -> Result<Self, WireError> {
        let (local, peer) = (stream.local_addr()?.ip(), stream.peer_addr()?);
        let stream = BufReader::new(Patient::new(stream)?);
        reports.iter().try_for_each(|reports| reports.set_nonblocking(true))?;
        Ok(Self {
            stream,
            patience: HELLO_PATIENCE,
            local,
            peer,
            name: None,
            theirs,
            about: PeerInfo::default(),
            reports,
        })
    }

    /// The connection, with the data received on it but not yet read.
    pub(super) fn into_stream(self) -> (TcpStream, Vec<u8>) {
        let came = self.stream.buffer().to_vec();
        (self.stream.into_inner().stream, came)
    }

    /// The address of the other end.
    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// What the other end is called in messages.
    pub(super) fn called(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.peer.to_string())
    }

    /// From now on it is not called by the name that it was dialled by.
    pub(super) fn unnamed(self) -> Self {
        Self { name: None, ..self }
    }

    /// The fault of the lost connection, with the peer's name.
    pub(super) fn lost(&self, why: &WireError) -> Fault {
        lost(&self.called(), why)
    }

    /// How long [`Control::receive`] waits.
    pub(super) fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Sends a frame.
    pub(super) fn write(&mut self, frame: &Frame) -> Result<(), WireError> {
        let out = self.stream.get_mut();
        out.begin(WRITE_PATIENCE);
        wire::write(out, frame)
    }

    /// Waits for the next frame; reports to the server meanwhile that this worker waits.
    pub(super) fn read(&mut self) -> Result<Frame, WireError> {
        self.report_state(WAITS);
        loop {
            self.stream.get_mut().begin(self.patience);
            match wire::read(&mut self.stream, FRAME_MAX)? {
                // A late answer to being asked to wait.
                Frame::Still => {}
                frame => {
                    self.report_state(WORKS);
                    return Ok(frame);
                }
            }
        }
    }

    /// Reports to the server of this worker what it does, if there is one.
    fn report_state(&self, what: u8) {
        if let Some(mut reports) = self.reports.as_ref() {
            // A failed write means that nothing listens: ignored.
            let _ = reports.write(&[what]);
        }
    }
}

/// Connects and greets. The outer error means that nothing is listening.
fn call(
    addr: SocketAddr,
    token: Option<&Token>,
    patience: Duration,
) -> io::Result<Result<ControlStream, WireError>> {
    let mut calls = 1;
    loop {
        let stream = TcpStream::connect_timeout(&addr, patience)?;
        match ControlStream::greet(stream, token, Party::Client) {
            Err(WireError::Gone(_)) if calls < CALLS => {
                std::thread::sleep(BETWEEN_CALLS * calls);
                calls += 1;
            }
            done => return Ok(done),
        }
    }
}

/// The fault of a lost connection.
fn lost(peer: &str, why: &WireError) -> Fault {
    Fault::Control(format!("{peer}: {why}"))
}

impl Control for ControlStream {
    fn send(&mut self, word: &Word) -> Result<(), Fault> {
        self.write(&Frame::Word { word: word.clone() }).map_err(|e| self.lost(&e))
    }

    fn receive(&mut self) -> Result<Word, Fault> {
        match self.read().map_err(|e| self.lost(&e))? {
            Frame::Word { word } => Ok(word),
            Frame::Refused { why } => Err(Fault::Peer(why)),
            other => {
                let what = format!("{}: {other:?} came out of turn", self.called());
                Err(Fault::Control(plain::line(&what)))
            }
        }
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn local_ip(&self) -> IpAddr {
        self.local
    }

    fn peer_ip(&self) -> IpAddr {
        self.peer.ip()
    }

    fn neighbour(&self) -> Option<u32> {
        let here = crate::machine::identity();
        (!here.is_empty() && self.theirs.machine == here).then_some(self.theirs.pid)
    }
}

#[cfg(test)]
#[path = "control_stream_tests.rs"]
mod tests;
