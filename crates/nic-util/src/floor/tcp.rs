//! Measures a plain TCP socket: the bound for every device on TCP.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::{
    set_socket_recv_buffer_size, set_socket_send_buffer_size, socket_recv_buffer_size,
    socket_send_buffer_size,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType};

/// Calls without data between two calls of `give_up`; each is a system call.
const CALLS_PER_GIVE_UP_CHECK: u64 = 1 << 10;
/// Calls without data before each further one is preceded by a yield, for two processes on one core.
const CALLS_BEFORE_YIELD: u64 = 1 << 8;
/// Interval of `give_up` calls while sleeping.
const SLEEP: Duration = Duration::from_millis(200);

/// Timeout for the answer to a nonce.
const ANSWER: Duration = Duration::from_secs(10);
/// Maximum number of connections that have not sent their nonce; beyond it the oldest is closed.
const PENDING_MAX: usize = 64;

/// The secrets of the two ends of a floor: the first is sent by the connecting end, the second is the answer.
/// A process that has only seen the first cannot answer.
pub type Nonces = [[u8; 16]; 2];

/// Random nonces for the two ends of a floor.
///
/// # Errors
/// The system's error, if it has no random numbers.
pub fn nonces() -> io::Result<Nonces> {
    Ok([host::random()?, host::random()?])
}

/// A connection that has not sent the whole nonce.
struct PendingClient {
    socket: TcpStream,
    received: Vec<u8>,
}

impl PendingClient {
    /// Reads the received bytes, up to a nonce's length; false at the end of the stream.
    fn read_nonce(&mut self) -> bool {
        let mut bytes = [0; 16];
        let room = bytes.len() - self.received.len();
        match self.socket.read(&mut bytes[..room]) {
            Ok(0) => false,
            Ok(n) => {
                self.received.extend_from_slice(&bytes[..n]);
                true
            }
            Err(e) => e.kind() == ErrorKind::WouldBlock || e.kind() == ErrorKind::Interrupted,
        }
    }
}

/// One end of a plain TCP connection, without Nagle's delay. It spins unless set to sleep.
#[derive(Debug)]
pub struct Tcp {
    socket: TcpStream,
    sleeps: bool,
}

impl Tcp {
    /// Accepts the next connection whose peer knows the first of `nonces`. Any other process of the host may
    /// connect in between and is rejected. `buffers` is the size of the socket's buffers in bytes; 0 leaves
    /// it to the kernel.
    ///
    /// # Errors
    /// The system's error; `TimedOut` if `give_up` returns true before the right peer connects.
    pub fn accept(
        listener: &TcpListener,
        nonces: &Nonces,
        buffers: usize,
        give_up: &dyn Fn() -> bool,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        // Connections that send nothing do not block the others, which are read meanwhile.
        let mut pending: Vec<PendingClient> = Vec::new();
        loop {
            match listener.accept() {
                Ok((socket, _)) => {
                    socket.set_nonblocking(true)?;
                    if pending.len() == PENDING_MAX {
                        pending.remove(0);
                    }
                    pending.push(PendingClient { socket, received: Vec::new() });
                    continue;
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            pending.retain_mut(PendingClient::read_nonce);
            if let Some(at) = pending.iter().position(|client| client.received == nonces[0]) {
                let socket = pending.swap_remove(at).socket;
                (&socket).write_all(&nonces[1])?;
                return Self::new(socket, buffers);
            }
            if give_up() {
                return Err(timed_out());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Connects to `addr`, from `own` if given; the listener must know both `nonces`.
    ///
    /// # Errors
    /// The system's error; `PermissionDenied` if the listener does not know them, `TimedOut` if it does not
    /// answer in ten seconds.
    pub fn connect(
        addr: SocketAddr,
        own: Option<IpAddr>,
        nonces: &Nonces,
        buffers: usize,
    ) -> io::Result<Self> {
        let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        if let Some(own) = own {
            rustix::net::bind(&socket, &SocketAddr::new(own, 0))?;
        }
        rustix::net::connect(&socket, &addr)?;
        let socket = TcpStream::from(socket);
        socket.set_read_timeout(Some(ANSWER))?;
        (&socket).write_all(&nonces[0])?;
        let mut answer = [0; 16];
        (&socket).read_exact(&mut answer).map_err(|why| match why.kind() {
            ErrorKind::WouldBlock => timed_out(),
            _ => why,
        })?;
        if answer != nonces[1] {
            let why = "another process answers at the address of the floor";
            return Err(io::Error::new(ErrorKind::PermissionDenied, why));
        }
        Self::new(socket, buffers)
    }

    fn new(socket: TcpStream, buffers: usize) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        socket.set_read_timeout(Some(SLEEP))?;
        socket.set_write_timeout(Some(SLEEP))?;
        if buffers > 0 {
            // The kernel silently limits these to net.core.wmem_max and rmem_max.
            set_socket_send_buffer_size(&socket, buffers)?;
            set_socket_recv_buffer_size(&socket, buffers)?;
        }
        Ok(Self { socket, sleeps: false })
    }

    /// Sets whether calls without data sleep in the kernel, or return and are repeated.
    ///
    /// # Errors
    /// The system's error.
    pub fn set_sleeping(&mut self, sleeps: bool) -> io::Result<()> {
        self.socket.set_nonblocking(!sleeps)?;
        self.sleeps = sleeps;
        Ok(())
    }

    /// Sizes of the send and the receive buffer in bytes, as the kernel counts them.
    ///
    /// # Errors
    /// The system's error.
    pub fn buffers(&self) -> io::Result<[usize; 2]> {
        Ok([socket_send_buffer_size(&self.socket)?, socket_recv_buffer_size(&self.socket)?])
    }

    /// Sends all of `bytes`, at most `chunk` bytes per call.
    ///
    /// # Errors
    /// The system's error; `TimedOut` if `give_up`, which is called from time to time, returns true.
    pub fn send(&self, bytes: &[u8], chunk: usize, give_up: &dyn Fn() -> bool) -> io::Result<()> {
        let (mut sent, mut idle) = (0, Idle::default());
        while sent < bytes.len() {
            let end = bytes.len().min(sent.saturating_add(chunk.max(1)));
            match (&self.socket).write(&bytes[sent..end]) {
                Ok(n) => {
                    sent += n;
                    idle = Idle::default();
                }
                Err(e) => idle.handle(e, self.sleeps, give_up)?,
            }
        }
        Ok(())
    }

    /// Fills `bytes`, with at most `chunk` bytes per call.
    ///
    /// # Errors
    /// As [`send`](Self::send); `UnexpectedEof` if the other end has closed the connection.
    pub fn receive(&self, bytes: &mut [u8], chunk: usize, give_up: &dyn Fn() -> bool) -> io::Result<()> {
        let (mut got, mut idle) = (0, Idle::default());
        while got < bytes.len() {
            let end = bytes.len().min(got.saturating_add(chunk.max(1)));
            match (&self.socket).read(&mut bytes[got..end]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => {
                    got += n;
                    idle = Idle::default();
                }
                Err(e) => idle.handle(e, self.sleeps, give_up)?,
            }
        }
        Ok(())
    }

    /// Sends all of `out` and fills `into`, alternating; both ends may do this at the same time.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn exchange(
        &self,
        out: &[u8],
        into: &mut [u8],
        chunk: usize,
        give_up: &dyn Fn() -> bool,
    ) -> io::Result<()> {
        let (mut sent, mut got, mut idle) = (0, 0, Idle::default());
        while sent < out.len() || got < into.len() {
            let mut refused = None;
            let before = (sent, got);
            if sent < out.len() {
                match (&self.socket).write(&out[sent..out.len().min(sent.saturating_add(chunk.max(1)))]) {
                    Ok(n) => sent += n,
                    Err(e) => refused = Some(e),
                }
            }
            if got < into.len() {
                let end = into.len().min(got.saturating_add(chunk.max(1)));
                match (&self.socket).read(&mut into[got..end]) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(n) => got += n,
                    Err(e) => refused = Some(e),
                }
            }
            match refused {
                Some(e) if before == (sent, got) || !is_would_block(&e) => {
                    idle.handle(e, self.sleeps, give_up)?
                }
                _ => idle = Idle::default(),
            }
        }
        Ok(())
    }
}

/// Number of consecutive calls without data.
#[derive(Default)]
struct Idle(u64);

impl Idle {
    /// Handles an error of a call: `Ok` if the call should be repeated.
    fn handle(&mut self, why: io::Error, sleeps: bool, give_up: &dyn Fn() -> bool) -> io::Result<()> {
        if !is_would_block(&why) {
            return Err(why);
        }
        self.0 += 1;
        if !sleeps && self.0 > CALLS_BEFORE_YIELD {
            std::thread::yield_now();
        }
        if (sleeps || self.0.is_multiple_of(CALLS_PER_GIVE_UP_CHECK)) && give_up() {
            return Err(timed_out());
        }
        Ok(())
    }
}

fn is_would_block(why: &io::Error) -> bool {
    matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn timed_out() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "the other process does not answer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const SHARED: Nonces = [[1; 16], [2; 16]];

    fn patience() -> impl Fn() -> bool {
        let began = Instant::now();
        move || began.elapsed() > Duration::from_secs(60)
    }

    fn pair(buffers: usize) -> (Tcp, Tcp) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        let own = Some([127, 0, 0, 1].into());
        std::thread::scope(|s| {
            let near = s.spawn(|| Tcp::connect(addr, own, &SHARED, buffers).expect("a connection"));
            let far = Tcp::accept(&listener, &SHARED, buffers, &patience()).expect("a connection");
            (near.join().expect("no panic"), far)
        })
    }

    /// Goal: other processes that connect first and send nothing, too little, something else or something
    /// they may have seen before are not mistaken for the peer, and do not block it. Method: they connect
    /// first; the peer is still answered.
    #[test]
    fn accept_rejects_clients_without_the_nonce() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        let others: Vec<_> = [&[][..], &SHARED[0][..15], &[7; 40], &SHARED[1]]
            .into_iter()
            .map(|bytes| {
                let mut other = TcpStream::connect(addr).expect("room");
                other.write_all(bytes).expect("room");
                other
            })
            .collect();
        std::thread::scope(|s| {
            let near = s.spawn(|| Tcp::connect(addr, None, &SHARED, 0).expect("a connection"));
            let far = Tcp::accept(&listener, &SHARED, 0, &patience()).expect("a connection");
            let near = near.join().expect("no panic");
            near.send(b"hello", 5, &patience()).expect("sent");
            let mut received = [0; 5];
            far.receive(&mut received, 5, &patience()).expect("received");
            assert_eq!(&received, b"hello");
        });
        drop(others);
    }

    /// Goal: a listener at the address that does not know the second nonce is not mistaken for the peer.
    /// Method: it echoes the bytes that it reads.
    #[test]
    fn connect_rejects_a_listener_without_the_nonce() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        std::thread::scope(|s| {
            s.spawn(|| {
                let (mut socket, _) = listener.accept().expect("a connection");
                let mut received = [0; 16];
                socket.read_exact(&mut received).expect("heard");
                socket.write_all(&received).expect("room");
            });
            let why = Tcp::connect(addr, None, &SHARED, 0).expect_err("a refused connection");
            assert_eq!(why.kind(), ErrorKind::PermissionDenied);
        });
        assert!(nonces().expect("random").concat().iter().any(|&byte| byte != 0));
    }

    fn pattern(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
    }

    /// Messages much larger than the buffers, in chunks that do not divide them, spinning and sleeping.
    #[test]
    fn messages_arrive_complete() {
        for (sleeps, buffers, chunk) in [(false, 0, 1000), (true, 4096, usize::MAX), (false, 4096, 1)] {
            let (mut near, mut far) = pair(buffers);
            near.set_sleeping(sleeps).expect("an option");
            far.set_sleeping(sleeps).expect("an option");
            let sent = pattern(if chunk == 1 { 999 } else { 500_000 });
            std::thread::scope(|s| {
                s.spawn(|| near.send(&sent, chunk, &patience()).expect("sent"));
                let mut got = vec![0; sent.len()];
                far.receive(&mut got, chunk, &patience()).expect("received");
                assert!(got == sent);
            });
            assert!(near.buffers().expect("sizes").iter().all(|n| *n > 0));
        }
    }

    /// Both send more than the buffers hold: an end makes progress only if it receives meanwhile.
    #[test]
    fn exchange_of_large_messages_does_not_deadlock() {
        let (near, far) = pair(1 << 16);
        let sent = pattern(3 << 20);
        std::thread::scope(|s| {
            for end in [&near, &far] {
                s.spawn(|| {
                    let mut got = vec![0; sent.len()];
                    end.exchange(&sent, &mut got, 1 << 16, &patience()).expect("exchanged");
                    assert!(got == sent);
                });
            }
        });
    }

    #[test]
    fn receive_fails_on_timeout_and_on_closed_peer() {
        let (mut near, far) = pair(0);
        for sleeps in [false, true] {
            near.set_sleeping(sleeps).expect("an option");
            let why = near.receive(&mut [0], 1, &|| true).expect_err("no data");
            assert_eq!(why.kind(), ErrorKind::TimedOut);
        }
        drop(far);
        let why = near.receive(&mut [0], 1, &patience()).expect_err("gone");
        assert_eq!(why.kind(), ErrorKind::UnexpectedEof);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        assert_eq!(
            Tcp::accept(&listener, &SHARED, 0, &|| true).expect_err("nobody").kind(),
            ErrorKind::TimedOut
        );
    }
}
