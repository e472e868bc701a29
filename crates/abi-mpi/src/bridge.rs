//! [`BridgeSocket`]: a socket to a process of another job, for the messages of `mpi::Bridge`. Waiting makes progress, and ends at a
//! deadline. [`crate::port`] creates these sockets.

use std::os::fd::{AsFd as _, OwnedFd};

use auth::Key;
use host::{Span, Time};
use mpi::{Bridge, Class, Error, Process, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::clock::host;

/// The longest sleep of a wait.
const POLL_TIMEOUT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
/// The most bytes of a message: the addresses of 2^20 processes. Memory is allocated only for bytes that have arrived.
const MESSAGE_MAX: usize = 1 << 30;
/// Bytes of a message's length prefix.
const LENGTH_PREFIX: usize = 4;
/// The most bytes that one system call reads.
const READ_MAX: usize = 64 << 10;

pub(crate) fn failed(why: impl std::fmt::Display) -> Error {
    Error::new(Class::PORT, why)
}

/// A connected socket that carries messages with a length prefix.
pub(crate) struct BridgeSocket {
    process: &'static Process,
    socket: OwnedFd,
    deadline: Option<Time>,
    /// Bytes that have arrived but were not read yet.
    inbox: Vec<u8>,
    is_at_end: bool,
    /// Whether the peer may send messages. Until then only the bytes of the handshake are read.
    is_trusted: bool,
    shared_key: Option<Key>,
}

impl BridgeSocket {
    /// A socket whose peer is not authenticated yet. All waits end after `timeout`.
    pub(crate) fn new(process: &'static Process, socket: OwnedFd, timeout: Option<Span>) -> Self {
        let deadline = timeout.and_then(|timeout| host().after(timeout));
        Self {
            process,
            socket,
            deadline,
            inbox: Vec::new(),
            is_at_end: false,
            is_trusted: false,
            shared_key: None,
        }
    }

    /// Accepts messages from the peer from now on, which shares a key with this process or is trusted without one.
    pub(crate) fn trust(mut self, shared_key: Option<Key>) -> Self {
        (self.is_trusted, self.shared_key) = (true, shared_key);
        self
    }

    /// Reads bytes that have arrived, until the inbox holds `most` bytes.
    fn read_available(&mut self, most: usize) -> Result<()> {
        let mut bytes = [0_u8; READ_MAX];
        while self.inbox.len() < most {
            let room = READ_MAX.min(most - self.inbox.len());
            match recv(&self.socket, &mut bytes[..room], RecvFlags::DONTWAIT) {
                Ok((0, _)) => {
                    self.is_at_end = true;
                    return Ok(());
                }
                Ok((count, _)) => self.inbox.extend(&bytes[..count]),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(failed(format_args!("the connection to the other side failed: {error}")));
                }
            }
        }
        Ok(())
    }

    /// Waits a moment for socket events, makes progress, and reads until the inbox holds `most` bytes.
    fn wait(&mut self, flags: PollFlags, most: usize) -> Result<()> {
        self.process.progress();
        if self.deadline.is_some_and(|deadline| host().now() >= deadline) {
            return Err(failed("the other side has sent nothing within the time limit"));
        }
        match poll(&mut [PollFd::new(&self.socket.as_fd(), flags)], Some(&POLL_TIMEOUT)) {
            Ok(_) | Err(Errno::INTR) => self.read_available(most),
            Err(error) => Err(failed(error)),
        }
    }

    /// Sends raw bytes. Reads meanwhile, since both sides may send at the same time.
    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        let most = if self.is_trusted { LENGTH_PREFIX + MESSAGE_MAX } else { 0 };
        let wanted = if self.is_trusted { PollFlags::OUT | PollFlags::IN } else { PollFlags::OUT };
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) => bytes = &bytes[count..],
                Err(Errno::AGAIN) => self.wait(wanted, most)?,
                Err(Errno::INTR) => {}
                Err(error) => {
                    return Err(failed(format_args!("the connection to the other side failed: {error}")));
                }
            }
        }
        Ok(())
    }

    /// The next `len` bytes.
    fn read(&mut self, len: usize) -> Result<Vec<u8>> {
        while self.inbox.len() < len {
            if self.is_at_end {
                return Err(failed("the other side has closed the connection"));
            }
            self.wait(PollFlags::IN, len)?;
        }
        let rest = self.inbox.split_off(len);
        Ok(std::mem::replace(&mut self.inbox, rest))
    }

    /// The next `N` bytes of a handshake.
    pub(crate) fn read_array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let bytes = self.read(N)?;
        Ok(std::array::from_fn(|at| bytes[at]))
    }
}

#[cfg(test)]
impl BridgeSocket {
    /// Bytes allocated for received data.
    pub(crate) fn capacity(&self) -> usize {
        self.inbox.capacity()
    }
}

impl Bridge for BridgeSocket {
    fn shared_key(&self) -> Option<Key> {
        self.shared_key.clone()
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(&(bytes.len() as u32).to_le_bytes())?;
        self.write(bytes)
    }

    fn receive(&mut self, most: usize) -> Result<Vec<u8>> {
        let len = u32::from_le_bytes(self.read_array()?) as usize;
        if len > most.min(MESSAGE_MAX) {
            return Err(failed("the other side sent a message that is longer than any of this version"));
        }
        self.read(len)
    }
}
