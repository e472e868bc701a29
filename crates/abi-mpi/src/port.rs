//! [`Port`]: a listening socket for processes of other jobs (`MPI_Open_port`).
//!
//! A port's name contains its address and a key of 128 bits. The key is not sent: both sides prove that they know it
//! (`auth::handshake`). All connections are served concurrently. An unauthenticated connection costs a socket and some 70 bytes,
//! and at most 64 are kept, so silent and hostile peers do not delay others.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use auth::Key;
use auth::handshake::{ANSWER, Authenticated, Connector, Listener};
use host::{EventCount, Span, Time};
use mpi::{Class, Error, Process, Result};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::bridge::{BridgeSocket, failed};
use crate::clock::host;

/// The polling interval for new connections and answers.
const POLL_INTERVAL: Span = Span::from_ms(1);
/// The time limit for authenticating a connection.
const AUTHENTICATION_TIMEOUT: Span = Span::from_secs(5);
/// The most unauthenticated connections. A new one evicts the oldest: a process that has the key answers within a round trip.
const UNAUTHENTICATED_MAX: usize = 64;
/// The most connections accepted in a row before answers are read.
const ACCEPTS_PER_POLL: usize = 16;
/// The length of the kernel's accept queue.
const BACKLOG: i32 = 4096;

/// An open port.
pub(crate) struct Port {
    listener: TcpListener,
    key: Key,
    pending: Mutex<PendingConnections>,
}

/// Connections that no `accept` call has returned yet. They are kept between calls.
#[derive(Default)]
struct PendingConnections {
    unauthenticated: VecDeque<UnauthenticatedPeer>,
    /// Authenticated connections.
    authenticated: VecDeque<(OwnedFd, Authenticated)>,
}

/// An unauthenticated connection.
struct UnauthenticatedPeer {
    socket: OwnedFd,
    handshake: Listener,
    answer: [u8; ANSWER],
    len: usize,
    deadline: Time,
}

/// The state of an answer after reading.
enum AnswerState {
    Incomplete(UnauthenticatedPeer),
    Authenticated(OwnedFd, Authenticated),
    Failed,
}

impl UnauthenticatedPeer {
    /// Sends a new connection its challenge.
    fn send_challenge(stream: TcpStream, now: Time) -> Result<Option<Self>> {
        let (socket, handshake) = (OwnedFd::from(stream), Listener::new()?);
        // The buffer of a new socket has room for it; a connection that is closed already must not fail the next one.
        let sent = send(&socket, &handshake.challenge(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
        let is_sent = sent.is_ok_and(|count| count == handshake.challenge().len());
        let deadline = now + AUTHENTICATION_TIMEOUT;
        Ok(is_sent.then_some(Self { socket, handshake, answer: [0; ANSWER], len: 0, deadline }))
    }

    /// Reads the available bytes of the answer, and none after it.
    fn read_answer(mut self, key: &Key) -> AnswerState {
        while self.len < ANSWER {
            match recv(&self.socket, &mut self.answer[self.len..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => return AnswerState::Failed,
                Ok((count, _)) => self.len += count,
                Err(Errno::AGAIN) => return AnswerState::Incomplete(self),
                Err(Errno::INTR) => {}
                Err(_) => return AnswerState::Failed,
            }
        }
        match self.handshake.check(key, &self.answer) {
            Some(authenticated) => AnswerState::Authenticated(self.socket, authenticated),
            None => AnswerState::Failed,
        }
    }
}

impl PendingConnections {
    /// Accepts up to [`ACCEPTS_PER_POLL`] connections; returns whether there may be more.
    fn accept_new(&mut self, listener: &TcpListener, now: Time) -> Result<bool> {
        for _ in 0..ACCEPTS_PER_POLL {
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
            let Some(peer) = UnauthenticatedPeer::send_challenge(stream, now)? else { continue };
            if self.unauthenticated.len() == UNAUTHENTICATED_MAX {
                self.unauthenticated.pop_front();
            }
            self.unauthenticated.push_back(peer);
        }
        Ok(true)
    }

    /// Reads all answers, and closes connections that failed to authenticate or timed out.
    fn read_answers(&mut self, key: &Key, now: Time) {
        for peer in std::mem::take(&mut self.unauthenticated) {
            match peer.read_answer(key) {
                AnswerState::Incomplete(peer) if now < peer.deadline => self.unauthenticated.push_back(peer),
                AnswerState::Authenticated(socket, authenticated) => {
                    self.authenticated.push_back((socket, authenticated))
                }
                AnswerState::Incomplete(_) | AnswerState::Failed => {}
            }
        }
    }

    /// The next authenticated connection that is still open.
    fn next_authenticated(&mut self) -> Option<(OwnedFd, Authenticated)> {
        loop {
            let (socket, authenticated) = self.authenticated.pop_front()?;
            // An open peer sends nothing before the welcome.
            let gone = recv(&socket, &mut [0_u8; 1][..], RecvFlags::DONTWAIT | RecvFlags::PEEK);
            if matches!(gone, Err(Errno::AGAIN)) {
                return Some((socket, authenticated));
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
        let (address, key) = (listener.local_addr().map_err(refused)?, Key::random()?);
        let name = format!("nicety#{address}#{}", key.to_hex());
        Ok((name, Self { listener, key, pending: Mutex::default() }))
    }

    /// Waits until a process that has the port's name connects, at most for `timeout`.
    pub(crate) fn accept(&self, process: &'static Process, timeout: Option<Span>) -> Result<BridgeSocket> {
        let host = host();
        let deadline = timeout.and_then(|timeout| host.after(timeout));
        loop {
            let now = host.now();
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            // Answers are read before old connections are evicted.
            pending.read_answers(&self.key, now);
            let found = pending.next_authenticated();
            let has_more = found.is_none() && pending.accept_new(&self.listener, now)?;
            drop(pending);
            if let Some((socket, authenticated)) = found {
                let left = deadline.map(|deadline| deadline.since(now));
                let mut socket = BridgeSocket::new(process, socket, left);
                socket.write(&authenticated.welcome)?;
                return Ok(socket.trust(Some(authenticated.session)));
            }
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Err(failed(
                    "no process that knows the port's name has connected within the time limit",
                ));
            }
            process.progress();
            if !has_more {
                host.wait("MPI_Comm_accept", &EventCount::new(), host.after(POLL_INTERVAL), || None::<()>);
            }
        }
    }
}

/// The address and key in a port's name.
fn parse(name: &str) -> Result<(SocketAddr, Key)> {
    let wrong = || failed("port_name: this is no name of a port; give it as MPI_Open_port did");
    let rest = name.strip_prefix("nicety#").ok_or_else(wrong)?;
    let (address, key) = rest.split_once('#').ok_or_else(wrong)?;
    Ok((address.parse().map_err(|_| wrong())?, Key::from_hex(key).ok_or_else(wrong)?))
}

/// Connects to a port, within a time limit.
pub(crate) fn connect(process: &'static Process, name: &str, timeout: Span) -> Result<BridgeSocket> {
    let (address, key) = parse(name)?;
    let limit = Duration::from_nanos(timeout.as_ns().max(1));
    let closed = |error| failed(format_args!("port_name: nothing listens at {address}: {error}"));
    let stream = TcpStream::connect_timeout(&address, limit).map_err(closed)?;
    let mut socket = BridgeSocket::new(process, stream.into(), Some(timeout));
    let other = || failed(format_args!("port_name: what listens at {address} is no port of this version"));
    let handshake = Connector::new(&socket.read_array()?)?.ok_or_else(other)?;
    socket.write(&handshake.answer(&key))?;
    let refused = |error: Error| {
        failed(format_args!(
            "port_name: {}; if the port at {address} was closed and another one opened there, ask for its name again",
            error.text
        ))
    };
    let welcome = socket.read_array().map_err(refused)?;
    let session = handshake.check(&key, &welcome).ok_or_else(|| {
        failed(format_args!("port_name: what listens at {address} does not know the port's name"))
    })?;
    Ok(socket.trust(Some(session)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::Shutdown;
    use std::thread;

    use auth::handshake::{CHALLENGE, WELCOME};
    use mpi::{Bridge as _, Config, LocalKvs};

    use super::*;

    /// A separate process, which exists until the test program ends.
    fn process() -> &'static Process {
        let bootstrap = LocalKvs::new(1).bootstrap(0, host());
        let config = Config { node: "here".into(), ..Config::default() };
        Box::leak(Box::new(Process::start(host(), &config, bootstrap).expect("a job")))
    }

    fn open() -> (String, Port) {
        Port::open([127, 0, 0, 1].into()).expect("a port")
    }

    /// Opens `count` silent connections to a port.
    fn silent(name: &str, count: usize) -> Vec<TcpStream> {
        let (address, _) = parse(name).expect("a name");
        (0..count).map(|_| TcpStream::connect(address).expect("a connection")).collect()
    }

    const LONG: Span = Span::from_secs(60);

    /// Connects to a port in a thread, and exchanges a message.
    fn client(name: &str) -> thread::JoinHandle<Vec<u8>> {
        let name = name.to_owned();
        thread::spawn(move || {
            let mut socket = connect(process(), &name, LONG).expect("connected");
            socket.send(b"hello").expect("sent");
            socket.receive(16).expect("answered")
        })
    }

    fn serve(port: &Port, process: &'static Process) {
        let mut socket = port.accept(process, Some(LONG)).expect("a client connects");
        assert_eq!(socket.receive(16).expect("a message"), b"hello");
        socket.send(b"welcome").expect("sent");
    }

    #[test]
    fn a_port_name_contains_the_address_and_the_key() {
        let (name, port) = open();
        let (address, key) = parse(&name).expect("its name");
        assert_eq!((address, &key), (port.listener.local_addr().expect("a place"), &port.key));
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
    fn silent_connections_do_not_delay_a_client() {
        let ((name, port), process) = (open(), process());
        let before = silent(&name, 3 * UNAUTHENTICATED_MAX);
        let client = client(&name);
        let behind = silent(&name, 3 * UNAUTHENTICATED_MAX);
        serve(&port, process);
        assert_eq!(client.join().expect("no panic"), b"welcome");
        assert!(port.pending.lock().expect("no panic").unauthenticated.len() <= UNAUTHENTICATED_MAX);
        drop((before, behind));
    }

    #[test]
    fn accept_with_silent_connections_ends_at_its_deadline() {
        let ((name, port), process) = (open(), process());
        let silent = silent(&name, 20);
        let error = port.accept(process, Some(Span::from_ms(50))).err().expect("no client authenticates");
        assert_eq!(error.class, Class::PORT);
        assert_eq!(
            port.pending.lock().expect("no panic").unauthenticated.len(),
            silent.len(),
            "they had time left"
        );
    }

    /// Goal: data from an unauthenticated peer uses no memory. Method: a peer sends a megabyte; the port reads at most the length
    /// of an answer before it closes the connection.
    #[test]
    fn an_unauthenticated_peer_that_sends_too_much_is_closed() {
        let ((name, port), process) = (open(), process());
        let mut peer = silent(&name, 1).remove(0);
        let hostile = thread::spawn(move || {
            // The port closes the connection during the write.
            let _ = peer.write_all(&vec![0x6e; 1 << 20]);
            let mut answer = Vec::new();
            let _ = peer.read_to_end(&mut answer);
            answer.len()
        });
        assert!(port.accept(process, Some(Span::from_ms(200))).is_err());
        assert!(hostile.join().expect("no panic") <= CHALLENGE);
        let pending = port.pending.lock().expect("no panic");
        assert!(pending.unauthenticated.is_empty() && pending.authenticated.is_empty());
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
    fn a_client_that_closed_its_connection_is_skipped() {
        let ((name, port), process) = (open(), process());
        let (_, key) = parse(&name).expect("a name");
        let mut gone = silent(&name, 1).remove(0);
        let proved = thread::spawn(move || {
            let mut challenge = [0; CHALLENGE];
            gone.read_exact(&mut challenge).expect("a challenge");
            let handshake = Connector::new(&challenge).expect("random bytes").expect("a challenge");
            gone.write_all(&handshake.answer(&key)).expect("sent");
            gone.shutdown(Shutdown::Both).expect("closed");
        });
        while port.pending.lock().expect("no panic").authenticated.is_empty() {
            let mut pending = port.pending.lock().expect("no panic");
            pending.accept_new(&port.listener, host().now()).expect("accepted");
            pending.read_answers(&port.key, host().now());
        }
        proved.join().expect("no panic");
        let client = client(&name);
        serve(&port, process);
        assert_eq!(client.join().expect("no panic"), b"welcome");
    }

    #[test]
    fn connect_with_a_wrong_key_fails_and_explains_why() {
        let ((name, port), process) = (open(), process());
        let (address, _) = parse(&name).expect("a name");
        let wrong = format!("nicety#{address}#{}", Key::random().expect("random bytes").to_hex());
        let other = thread::spawn(move || connect(self::process(), &wrong, LONG).err());
        assert!(port.accept(process, Some(Span::from_ms(200))).is_err());
        let error = other.join().expect("no panic").expect("the key is wrong");
        assert!(error.class == Class::PORT && error.text.contains("ask for its name again"), "{error}");
    }

    /// A listener without the key cannot impersonate the port, and learns nothing useful.
    #[test]
    fn connect_to_a_listener_without_the_key_fails() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("a place");
        let key = Key::random().expect("random bytes");
        let name = format!("nicety#{address}#{}", key.to_hex());
        let client = thread::spawn(move || connect(process(), &name, LONG).err());
        let (mut stream, _) = listener.accept().expect("a connection");
        let handshake = Listener::new().expect("random bytes");
        stream.write_all(&handshake.challenge()).expect("sent");
        let mut answer = [0; ANSWER];
        stream.read_exact(&mut answer).expect("an answer");
        // The client's own proof is reflected.
        let mut welcome = [0; WELCOME];
        welcome[..4].copy_from_slice(&answer[..4]);
        welcome[4..].copy_from_slice(&answer[20..]);
        stream.write_all(&welcome).expect("sent");
        let error = client.join().expect("no panic").expect("the proof is wrong");
        assert!(error.text.contains("does not know the port's name"), "{error}");
    }

    /// Goal: memory use grows with received bytes, not with the announced length, and a message above the expected length is
    /// refused.
    #[test]
    fn an_announced_length_allocates_no_memory() {
        let ((name, port), process) = (open(), process());
        let client = thread::spawn(move || {
            let mut socket = connect(self::process(), &name, LONG).expect("connected");
            socket.write(&(1_u32 << 30).to_le_bytes()).expect("sent");
            socket.write(b"few bytes").expect("sent");
        });
        let mut socket = port.accept(process, Some(Span::from_secs(2))).expect("a connection");
        client.join().expect("no panic");
        assert!(socket.receive(1 << 30).is_err(), "it has hung up");
        assert!(socket.capacity() < 1 << 20, "{} bytes", socket.capacity());
        let (mut one, mut other) = pair();
        one.send(&[0; 17]).expect("sent");
        assert_eq!(other.receive(16).expect_err("too long").class, Class::PORT);
    }

    /// A pair of connected sockets that trust each other.
    fn pair() -> (BridgeSocket, BridgeSocket) {
        let (one, other) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let socket = |end: std::os::unix::net::UnixStream| {
            BridgeSocket::new(process(), end.into(), Some(LONG)).trust(None)
        };
        (socket(one), socket(other))
    }

    /// Both sides send before they receive, and more than the socket buffers hold.
    #[test]
    fn long_messages_both_ways_do_not_block_each_other() {
        let (mut one, mut other) = pair();
        let exchange = |socket: &mut BridgeSocket, byte: u8| {
            socket.send(&vec![byte; 4 << 20]).expect("sent");
            socket.receive(4 << 20).expect("received")
        };
        thread::scope(|scope| {
            let there = scope.spawn(|| exchange(&mut other, 1));
            assert!(exchange(&mut one, 2) == vec![1; 4 << 20]);
            assert!(there.join().expect("no panic") == vec![2; 4 << 20]);
        });
    }
}
