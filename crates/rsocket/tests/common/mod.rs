//! Connections for tests: both ends are in this process.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rsocket::{Carrier, Config, Error, Port, Service, Socket, Stream};
use verbs::host::real;

/// A device, with the way its messages travel.
pub(crate) const DEVICES: [(&str, Carrier); 3] =
    [("shm", Carrier::Immediate), ("shm(dm=64K)", Carrier::Immediate), ("iwarp@127.0.0.1", Carrier::Send)];

/// A device's service, and a socket that listens on it.
pub(crate) struct Host {
    pub(crate) service: Service,
    pub(crate) listener: Arc<Socket>,
    pub(crate) port: Port,
    pub(crate) config: Config,
}

impl Host {
    pub(crate) fn new((device, carrier): (&str, Carrier), config: Config) -> Self {
        let device = fabric::open(device, &real::host()).expect("a device");
        let service = Service::new(&device, carrier).expect("a service");
        let listener = Arc::new(Socket::new(config).expect("a socket"));
        let any: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
        let port = service.bind(any).expect("a port");
        service.listen(&listener, &port, 16).expect("it listens");
        Self { service, listener, port, config }
    }

    /// A connected pair: the end that has connected first.
    pub(crate) fn pair(&self) -> [Arc<Socket>; 2] {
        let client = Arc::new(Socket::new(self.config).expect("a socket"));
        self.service.connect(&client, None, self.port.addr()).expect("it begins");
        let server = wait(&self.listener, || self.listener.accept()).expect("a connection");
        wait(&client, || client.connection().map(|stream| stream.map(drop))).expect("connected");
        [client, server]
    }
}

/// Waits as a program does: polls, then sleeps on the descriptors.
pub(crate) fn wait<T>(
    socket: &Socket,
    mut attempt: impl FnMut() -> Result<Option<T>, Error>,
) -> Result<T, Error> {
    use rustix::event::{PollFd, PollFlags, poll};
    loop {
        if let Some(found) = attempt()? {
            return Ok(found);
        }
        let sleep = socket.arm()?;
        let found = attempt();
        if matches!(found, Ok(None)) {
            let (first, second) = socket.fds();
            let mut fds = vec![PollFd::from_borrowed_fd(second, PollFlags::IN)];
            fds.extend(first.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let limit = rustix::event::Timespec { tv_sec: 60, tv_nsec: 0 };
            assert!(poll(&mut fds, Some(&limit)).expect("it polls") > 0, "nothing happens");
        }
        socket.awake(sleep);
        if let Some(found) = found? {
            return Ok(found);
        }
    }
}

pub(crate) fn stream(socket: &Socket) -> &Stream {
    socket.stream().expect("connected")
}

/// Sends all bytes.
pub(crate) fn send(socket: &Socket, mut bytes: &[u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        let sent = wait(socket, || stream(socket).send(bytes))?;
        bytes = &bytes[sent..];
    }
    Ok(())
}

/// Receives some bytes.
pub(crate) fn recv(socket: &Socket, bytes: &mut [u8]) -> Result<usize, Error> {
    wait(socket, || stream(socket).recv(bytes, false))
}

/// Receives until the end of the stream.
pub(crate) fn recv_all(socket: &Socket) -> Result<Vec<u8>, Error> {
    let (mut all, mut part) = (Vec::new(), vec![0; 100_000]);
    loop {
        match recv(socket, &mut part)? {
            0 => return Ok(all),
            len => all.extend_from_slice(&part[..len]),
        }
    }
}

/// Bytes whose every position differs from its neighbours.
pub(crate) fn pattern(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|at| ((at ^ seed).wrapping_mul(0x9e37_79b1) >> 19) as u8).collect()
}
