//! [`Wire`]: a socket to a process of another job, over which the two tell each other how they are reached; ports are where such sockets
//! come to. Whoever waits makes progress, and not for ever.

use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use auth::Key;
use host::{Bell, Span, Time};
use mpi::{Bridge, Class, Error, Process, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::calls::host;

/// Between two looks of who waits.
const LOOK: Span = Span::from_ms(1);
const LOOK_SPEC: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// How long one who has come to a port may take to say that it knows its name.
const MANNERS: Span = Span::from_secs(5);

fn failed(why: impl std::fmt::Display) -> Error {
    Error::new(Class::PORT, why)
}

/// A socket with its messages, each behind its length.
pub(crate) struct Wire {
    process: &'static Process,
    socket: OwnedFd,
    deadline: Option<Time>,
    /// What has come and was not asked for yet.
    inbox: Vec<u8>,
    is_over: bool,
}

impl Wire {
    /// A socket that is connected; each wait of it is over when so much time has gone.
    pub(crate) fn new(process: &'static Process, socket: OwnedFd, patience: Option<Span>) -> Self {
        let deadline = patience.and_then(|patience| host().after(patience));
        Self { process, socket, deadline, inbox: Vec::new(), is_over: false }
    }

    /// Takes what has come.
    fn take_in(&mut self) -> Result<()> {
        let mut bytes = [0_u8; 4096];
        loop {
            match recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    self.is_over = true;
                    return Ok(());
                }
                Ok((count, _)) => self.inbox.extend(&bytes[..count]),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed(format_args!("the other side is gone: {error}"))),
            }
        }
    }

    /// Waits a moment for news, and makes progress.
    fn wait(&mut self, flags: PollFlags) -> Result<()> {
        self.process.progress();
        if self.deadline.is_some_and(|deadline| host().now() >= deadline) {
            return Err(failed("the other side has said nothing for too long"));
        }
        match poll(&mut [PollFd::new(&self.socket.as_fd(), flags)], Some(&LOOK_SPEC)) {
            Ok(_) | Err(Errno::INTR) => self.take_in(),
            Err(error) => Err(failed(error)),
        }
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT | PollFlags::IN)?,
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed(format_args!("the other side is gone: {error}"))),
            }
        }
        Ok(())
    }

    fn read(&mut self, len: usize) -> Result<Vec<u8>> {
        while self.inbox.len() < len {
            if self.is_over {
                return Err(failed("the other side has hung up"));
            }
            self.wait(PollFlags::IN)?;
        }
        let rest = self.inbox.split_off(len);
        Ok(std::mem::replace(&mut self.inbox, rest))
    }
}

impl Bridge for Wire {
    fn shared_key(&self) -> Option<Key> {
        None
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(&(bytes.len() as u32).to_le_bytes())?;
        self.write(bytes)
    }

    fn receive(&mut self, most: usize) -> Result<Vec<u8>> {
        let len = self.read(4)?.try_into().map_or(0, u32::from_le_bytes) as usize;
        if len > most {
            return Err(failed("the other side says what no process of this version says"));
        }
        self.read(len)
    }
}

/// A new port at an address, and its name: where it is, and a word that strangers do not know.
pub(crate) fn listen(address: IpAddr) -> Result<(String, TcpListener)> {
    let refused = |error| Error::new(Class::OTHER, format_args!("no port can be opened: {error}"));
    let listener = TcpListener::bind((address, 0)).map_err(refused)?;
    listener.set_nonblocking(true).map_err(refused)?;
    let place = listener.local_addr().map_err(refused)?;
    let word = RandomState::new().hash_one(place);
    Ok((format!("nicety#{place}#{word:016x}"), listener))
}

/// The place of a port, and its word.
fn parse(name: &str) -> Result<(SocketAddr, &str)> {
    let wrong = || failed(format_args!("port_name: {name:?} is no name of a port"));
    let rest = name.strip_prefix("nicety#").ok_or_else(wrong)?;
    let (place, word) = rest.split_once('#').ok_or_else(wrong)?;
    Ok((place.parse().map_err(|_| wrong())?, word))
}

/// Waits for one who knows the port's name.
pub(crate) fn accept(
    process: &'static Process,
    listener: &TcpListener,
    name: &str,
    patience: Option<Span>,
) -> Result<Wire> {
    let ((_, word), host) = (parse(name)?, host());
    let deadline = patience.and_then(|patience| host.after(patience));
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let mut wire = Wire::new(process, stream.into(), Some(MANNERS));
                if wire.receive(word.len()).is_ok_and(|said| said == word.as_bytes()) {
                    wire.deadline = deadline;
                    return Ok(wire);
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                if deadline.is_some_and(|deadline| host.now() >= deadline) {
                    return Err(failed("nobody has connected to the port in time"));
                }
                process.progress();
                host.wait("MPI_Comm_accept", &Bell::new(), host.after(LOOK), || None::<()>);
            }
            // Who is gone already is no concern of the next one.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// Connects to a port, for as long as this may take.
pub(crate) fn connect(process: &'static Process, name: &str, patience: Span) -> Result<Wire> {
    let (place, word) = parse(name)?;
    let limit = Duration::from_nanos(patience.as_ns().max(1));
    let closed = |error| failed(format_args!("port_name: nobody listens at {place}: {error}"));
    let stream = TcpStream::connect_timeout(&place, limit).map_err(closed)?;
    let mut wire = Wire::new(process, stream.into(), Some(patience));
    wire.send(word.as_bytes())?;
    Ok(wire)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_where_a_port_is() {
        let (name, listener) = listen([127, 0, 0, 1].into()).expect("a port");
        let (place, word) = parse(&name).expect("its name");
        assert_eq!((place, word.len()), (listener.local_addr().expect("a place"), 16));
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && !b";\\%".contains(&byte)));
        for wrong in ["", "nicety", "nicety#1.2.3.4#x", "nicety#1.2.3.4:99999#x", "other#1.2.3.4:5#x"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
