//! [`Port`]: a listening socket for processes of other jobs (`MPI_Open_port`).
//!
//! A port's name contains its address and a key of 128 bits. The key is not sent: both sides prove that they know it (`auth::meeting`).
//! All connections are served concurrently. An unauthenticated connection costs a socket and some 70 bytes, and at most 64 are kept, so
//! silent and hostile peers do not delay others.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use auth::Key;
use auth::meeting::{ANSWER, Connecting, Listening, Met};
use host::{EventCount, Span, Time};
use mpi::{Class, Error, Process, Result};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::bridge::{Wire, failed};
use crate::clock::host;

/// The polling interval for new connections and answers.
const LOOK: Span = Span::from_ms(1);
/// The time limit for authenticating a connection.
const MANNERS: Span = Span::from_secs(5);
/// The most unauthenticated connections. A new one evicts the oldest: a process that has the key answers within a round trip.
const STRANGERS_MAX: usize = 64;
/// The most connections accepted in a row before answers are read.
const ACCEPTS: usize = 16;
/// The length of the kernel's accept queue.
const BACKLOG: i32 = 4096;

/// An open port.
pub(crate) struct Port {
    listener: TcpListener,
    key: Key,
    lobby: Mutex<Lobby>,
}

/// Connections that no `accept` call has returned yet. They are kept between calls.
#[derive(Default)]
struct Lobby {
    strangers: VecDeque<Stranger>,
    /// Authenticated connections.
    met: VecDeque<(OwnedFd, Met)>,
}

/// An unauthenticated connection.
struct Stranger {
    socket: OwnedFd,
    meeting: Listening,
    answer: [u8; ANSWER],
    len: usize,
    until: Time,
}

/// The state of an answer after reading.
enum Heard {
    Part(Stranger),
    Proved(OwnedFd, Met),
    Nothing,
}

impl Stranger {
    /// Sends a new connection its challenge.
    fn greet(stream: TcpStream, now: Time) -> Result<Option<Self>> {
        let (socket, meeting) = (OwnedFd::from(stream), Listening::new()?);
        // The buffer of a new socket has room for it; a connection that is closed already must not fail the next one.
        let sent = send(&socket, &meeting.challenge(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        let is_sent = sent.is_ok_and(|count| count == meeting.challenge().len());
        let until = now + MANNERS;
        Ok(is_sent.then_some(Self { socket, meeting, answer: [0; ANSWER], len: 0, until }))
    }

    /// Reads the available bytes of the answer, and none after it.
    fn hear(mut self, key: &Key) -> Heard {
        while self.len < ANSWER {
            match recv(&self.socket, &mut self.answer[self.len..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Heard::Nothing,
                Ok((count, _)) => self.len += count,
                Err(Errno::AGAIN) => return Heard::Part(self),
                Err(Errno::INTR) => {}
                Err(_) => return Heard::Nothing,
            }
        }
        match self.meeting.check(key, &self.answer) {
            Some(met) => Heard::Proved(self.socket, met),
            None => Heard::Nothing,
        }
    }
}

impl Lobby {
    /// Accepts up to [`ACCEPTS`] connections; returns whether there may be more.
    fn take(&mut self, listener: &TcpListener, now: Time) -> Result<bool> {
        for _ in 0..ACCEPTS {
            let stream = match listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                // An error of a single connection, which is closed already (accept(2)).
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) =>
                {
                    continue;
                }
                Err(error) => return Err(failed(format_args!("no connection can be accepted: {error}"))),
            };
            let Some(stranger) = Stranger::greet(stream, now)? else { continue };
            if self.strangers.len() == STRANGERS_MAX {
                self.strangers.pop_front();
            }
            self.strangers.push_back(stranger);
        }
        Ok(true)
    }

    /// Reads all answers, and closes connections that failed to authenticate or timed out.
    fn hear(&mut self, key: &Key, now: Time) {
        for stranger in std::mem::take(&mut self.strangers) {
            match stranger.hear(key) {
                Heard::Part(stranger) if now < stranger.until => self.strangers.push_back(stranger),
                Heard::Proved(socket, met) => self.met.push_back((socket, met)),
                Heard::Part(_) | Heard::Nothing => {}
            }
        }
    }

    /// The next authenticated connection that is still open.
    fn next(&mut self) -> Option<(OwnedFd, Met)> {
        loop {
            let (socket, met) = self.met.pop_front()?;
            // An open peer sends nothing before the welcome.
            let gone = recv(&socket, &mut [0_u8; 1][..], RecvFlags::DONTWAIT | RecvFlags::PEEK);
            if matches!(gone, Err(Errno::AGAIN)) {
                return Some((socket, met));
            }
        }
    }
}

impl Port {
    /// Opens a port at an address; returns it with its name.
    pub(crate) fn open(address: IpAddr) -> Result<(String, Self)> {
        let refused = |error| Error::new(Class::OTHER, format_args!("no port can be opened: {error}"));
        let listener = TcpListener::bind((address, 0)).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        // The standard library's backlog is too short for a flood of connections.
        rustix::net::listen(&listener, BACKLOG).map_err(|error| refused(error.into()))?;
        let (place, key) = (listener.local_addr().map_err(refused)?, Key::random()?);
        let name = format!("nicety#{place}#{}", key.to_hex());
        Ok((name, Self { listener, key, lobby: Mutex::default() }))
    }

    /// Waits until a process that has the port's name connects, at most for `patience`.
    pub(crate) fn accept(&self, process: &'static Process, patience: Option<Span>) -> Result<Wire> {
        let host = host();
        let deadline = patience.and_then(|patience| host.after(patience));
        loop {
            let now = host.now();
            let mut lobby = self.lobby.lock().unwrap_or_else(PoisonError::into_inner);
            // Answers are read before old connections are evicted.
            lobby.hear(&self.key, now);
            let found = lobby.next();
            let has_more = found.is_none() && lobby.take(&self.listener, now)?;
            drop(lobby);
            if let Some((socket, met)) = found {
                let left = deadline.map(|deadline| deadline.since(now));
                let mut wire = Wire::new(process, socket, left);
                wire.write(&met.welcome)?;
                return Ok(wire.trust(Some(met.session)));
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(failed("nobody who knows the port's name has connected in time"));
            }
            process.progress();
            if !has_more {
                host.wait("MPI_Comm_accept", &EventCount::new(), host.after(LOOK), || None::<()>);
            }
        }
    }
}

/// The address and key in a port's name.
fn parse(name: &str) -> Result<(SocketAddr, Key)> {
    let wrong = || failed("port_name: this is no name of a port; give it as MPI_Open_port did");
    let rest = name.strip_prefix("nicety#").ok_or_else(wrong)?;
    let (place, key) = rest.split_once('#').ok_or_else(wrong)?;
    Ok((place.parse().map_err(|_| wrong())?, Key::from_hex(key).ok_or_else(wrong)?))
}

/// Connects to a port, within a time limit.
pub(crate) fn connect(process: &'static Process, name: &str, patience: Span) -> Result<Wire> {
    let (place, key) = parse(name)?;
    let limit = Duration::from_nanos(patience.as_ns().max(1));
    let closed = |error| failed(format_args!("port_name: nobody listens at {place}: {error}"));
    let stream = TcpStream::connect_timeout(&place, limit).map_err(closed)?;
    let mut wire = Wire::new(process, stream.into(), Some(patience));
    let other = || failed(format_args!("port_name: what listens at {place} is no port of this version"));
    let meeting = Connecting::new(&wire.read_array()?)?.ok_or_else(other)?;
    wire.write(&meeting.answer(&key))?;
    let refused = |error: Error| {
        failed(format_args!(
            "port_name: {}; if the port at {place} was closed and another one opened there, ask for its name again",
            error.text
        ))
    };
    let welcome = wire.read_array().map_err(refused)?;
    let session = meeting.check(&key, &welcome).ok_or_else(|| {
        failed(format_args!("port_name: what listens at {place} does not know the port's name"))
    })?;
    Ok(wire.trust(Some(session)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::Shutdown;
    use std::thread;

    use auth::meeting::{CHALLENGE, WELCOME};
    use mpi::{Board, Bridge as _, Config};

    use super::*;

    /// A separate process, which exists until the test program ends.
    fn process() -> &'static Process {
        let seat = Board::new(1).seat(0, host());
        let config = Config { node: "here".into(), ..Config::default() };
        Box::leak(Box::new(Process::start(host(), &config, seat).expect("a job")))
    }

    fn open() -> (String, Port) {
        Port::open([127, 0, 0, 1].into()).expect("a port")
    }

    /// Opens `count` silent connections to a port.
    fn silent(name: &str, count: usize) -> Vec<TcpStream> {
        let (place, _) = parse(name).expect("a name");
        (0..count).map(|_| TcpStream::connect(place).expect("a connection")).collect()
    }

    const LONG: Span = Span::from_secs(60);

    /// Connects to a port in a thread, and exchanges a message.
    fn client(name: &str) -> thread::JoinHandle<Vec<u8>> {
        let name = name.to_owned();
        thread::spawn(move || {
            let mut wire = connect(process(), &name, LONG).expect("connected");
            wire.send(b"hello").expect("sent");
            wire.receive(16).expect("answered")
        })
    }

    fn serve(port: &Port, process: &'static Process) {
        let mut wire = port.accept(process, Some(LONG)).expect("somebody comes");
        assert_eq!(wire.receive(16).expect("it speaks"), b"hello");
        wire.send(b"welcome").expect("sent");
    }

    #[test]
    fn names_say_where_a_port_is() {
        let (name, port) = open();
        let (place, key) = parse(&name).expect("its name");
        assert_eq!((place, &key), (port.listener.local_addr().expect("a place"), &port.key));
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && !b";\\%".contains(&byte)));
        let hex = key.to_hex();
        for wrong in [
            "",
            "nicety",
            &format!("nicety#1.2.3.4#{hex}"),
            &format!("nicety#1.2.3.4:99999#{hex}"),
            &format!("other#1.2.3.4:5#{hex}"),
            "nicety#1.2.3.4:5#0123456789abcdef",
        ] {
            let error = parse(wrong).expect_err(wrong);
            assert!(!error.text.contains(&hex), "an error shows the key: {error}");
        }
    }

    #[test]
    fn accept_with_silent_strangers_before_and_behind_serves_the_client() {
        let ((name, port), process) = (open(), process());
        let before = silent(&name, 3 * STRANGERS_MAX);
        let client = client(&name);
        let behind = silent(&name, 3 * STRANGERS_MAX);
        serve(&port, process);
        assert_eq!(client.join().expect("no panic"), b"welcome");
        assert!(port.lobby.lock().expect("no panic").strangers.len() <= STRANGERS_MAX);
        drop((before, behind));
    }

    #[test]
    fn accept_with_silent_strangers_ends_at_its_deadline() {
        let ((name, port), process) = (open(), process());
        let silent = silent(&name, 20);
        let error = port.accept(process, Some(Span::from_ms(50))).err().expect("nobody proves anything");
        assert_eq!(error.class, Class::PORT);
        assert_eq!(port.lobby.lock().expect("no panic").strangers.len(), silent.len(), "they had time left");
    }

    /// Goal: data from an unauthenticated peer uses no memory. Method: a peer sends a megabyte; the port reads at most the length of an
    /// answer before it closes the connection.
    #[test]
    fn a_stranger_that_sends_much_is_closed_after_an_answer() {
        let ((name, port), process) = (open(), process());
        let mut stranger = silent(&name, 1).remove(0);
        let hostile = thread::spawn(move || {
            // The port closes the connection during the write.
            let _ = stranger.write_all(&vec![0x6e; 1 << 20]);
            let mut said = Vec::new();
            let _ = stranger.read_to_end(&mut said);
            said.len()
        });
        assert!(port.accept(process, Some(Span::from_ms(200))).is_err());
        assert!(hostile.join().expect("no panic") <= CHALLENGE);
        let lobby = port.lobby.lock().expect("no panic");
        assert!(lobby.strangers.is_empty() && lobby.met.is_empty());
    }

    #[test]
    fn clients_that_connect_at_the_same_time_are_served_by_one_accept_each() {
        let ((name, port), process) = (open(), process());
        let clients: Vec<_> = (0..8).map(|_| client(&name)).collect();
        (0..8).for_each(|_| serve(&port, process));
        clients.into_iter().for_each(|client| assert_eq!(client.join().expect("no panic"), b"welcome"));
    }

    /// A client that authenticated and then closed its connection is skipped.
    #[test]
    fn a_client_that_has_gone_is_passed_over() {
        let ((name, port), process) = (open(), process());
        let (_, key) = parse(&name).expect("a name");
        let mut gone = silent(&name, 1).remove(0);
        let proved = thread::spawn(move || {
            let mut challenge = [0; CHALLENGE];
            gone.read_exact(&mut challenge).expect("a challenge");
            let meeting = Connecting::new(&challenge).expect("random bytes").expect("a challenge");
            gone.write_all(&meeting.answer(&key)).expect("sent");
            gone.shutdown(Shutdown::Both).expect("closed");
        });
        while port.lobby.lock().expect("no panic").met.is_empty() {
            let mut lobby = port.lobby.lock().expect("no panic");
            lobby.take(&port.listener, host().now()).expect("accepted");
            lobby.hear(&port.key, host().now());
        }
        proved.join().expect("no panic");
        let client = client(&name);
        serve(&port, process);
        assert_eq!(client.join().expect("no panic"), b"welcome");
    }

    #[test]
    fn connect_with_another_key_is_refused_with_a_sentence() {
        let ((name, port), process) = (open(), process());
        let (place, _) = parse(&name).expect("a name");
        let wrong = format!("nicety#{place}#{}", Key::random().expect("random bytes").to_hex());
        let other = thread::spawn(move || connect(self::process(), &wrong, LONG).err());
        assert!(port.accept(process, Some(Span::from_ms(200))).is_err());
        let error = other.join().expect("no panic").expect("it has not the key");
        assert!(error.class == Class::PORT && error.text.contains("ask for its name again"), "{error}");
    }

    /// A listener without the key cannot impersonate the port, and learns nothing useful.
    #[test]
    fn connect_to_a_listener_without_the_key_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let place = listener.local_addr().expect("a place");
        let key = Key::random().expect("random bytes");
        let name = format!("nicety#{place}#{}", key.to_hex());
        let client = thread::spawn(move || connect(process(), &name, LONG).err());
        let (mut stream, _) = listener.accept().expect("a connection");
        let meeting = Listening::new().expect("random bytes");
        stream.write_all(&meeting.challenge()).expect("sent");
        let mut answer = [0; ANSWER];
        stream.read_exact(&mut answer).expect("an answer");
        // The client's own proof is reflected.
        let mut welcome = [0; WELCOME];
        welcome[..4].copy_from_slice(&answer[..4]);
        welcome[4..].copy_from_slice(&answer[20..]);
        stream.write_all(&welcome).expect("sent");
        let error = client.join().expect("no panic").expect("that proves nothing");
        assert!(error.text.contains("does not know the port's name"), "{error}");
    }

    /// Goal: memory use grows with received bytes, not with the announced length, and a message above the expected length is refused.
    #[test]
    fn an_announced_length_takes_no_memory() {
        let ((name, port), process) = (open(), process());
        let client = thread::spawn(move || {
            let mut wire = connect(self::process(), &name, LONG).expect("connected");
            wire.write(&(1_u32 << 30).to_le_bytes()).expect("sent");
            wire.write(b"few bytes").expect("sent");
        });
        let mut wire = port.accept(process, Some(Span::from_secs(2))).expect("it comes");
        client.join().expect("no panic");
        assert!(wire.receive(1 << 30).is_err(), "it has hung up");
        assert!(wire.capacity() < 1 << 20, "{} bytes", wire.capacity());
        let (mut one, mut other) = pair();
        one.send(&[0; 17]).expect("sent");
        assert_eq!(other.receive(16).expect_err("too long").class, Class::PORT);
    }

    /// A pair of connected sockets that trust each other.
    fn pair() -> (Wire, Wire) {
        let (one, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let wire =
            |end: std::os::unix::net::UnixStream| Wire::new(process(), end.into(), Some(LONG)).trust(None);
        (wire(one), wire(other))
    }

    /// Both sides send before they receive, and more than the socket buffers hold.
    #[test]
    fn long_messages_both_ways_do_not_block_each_other() {
        let (mut one, mut other) = pair();
        let exchange = |wire: &mut Wire, byte: u8| {
            wire.send(&vec![byte; 4 << 20]).expect("sent");
            wire.receive(4 << 20).expect("received")
        };
        thread::scope(|scope| {
            let there = scope.spawn(|| exchange(&mut other, 1));
            assert!(exchange(&mut one, 2) == vec![1; 4 << 20]);
            assert!(there.join().expect("no panic") == vec![2; 4 << 20]);
        });
    }
}
