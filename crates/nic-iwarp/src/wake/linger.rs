//! Sockets of ended connections that stay open until the peer has received the last bytes.
//!
//! Closing a socket with unread bytes resets the connection, which may discard the last bytes sent.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Mutex;

use host::{Span, Time};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, Shutdown};

use crate::wake::reactor::{LINGERING, Reactor};
use nic_util::fork::ForkSafeFd;
use nic_util::sync::unpoisoned;

/// How long a closed connection waits for the peer to close its side.
const LINGER: Span = Span::from_secs(2);
/// Maximum number of lingering connections; the oldest is dropped.
const LINGERING_MAX: usize = 256;

struct LingeringConn {
    id: u64,
    socket: ForkSafeFd,
    /// The bytes still to send.
    unsent: Vec<u8>,
    until: Time,
}

/// All lingering connections.
#[derive(Default)]
pub(crate) struct Lingering(Mutex<VecDeque<LingeringConn>>);

impl Lingering {
    /// Closes a connection after the unsent bytes have been sent and the peer has closed its side; at the latest after [`LINGER`].
    pub(crate) fn close_after_sending(
        &self,
        reactor: &Reactor,
        socket: ForkSafeFd,
        unsent: Vec<u8>,
        now: Time,
    ) {
        let id = reactor.new_id();
        let mut conn = LingeringConn { id, socket, unsent, until: now + LINGER };
        if conn.drain() {
            return;
        }
        if reactor.watch(conn.socket.as_fd(), LINGERING | id, conn.epoll_flags()).is_err() {
            return;
        }
        let mut lingering = unpoisoned(&self.0);
        if lingering.len() == LINGERING_MAX {
            lingering.pop_front();
        }
        lingering.push_back(conn);
        drop(lingering);
        // The NIC thread may be sleeping without a timeout.
        reactor.wake();
    }

    /// Handles a socket event.
    pub(crate) fn on_event(&self, reactor: &Reactor, id: u64) {
        let mut lingering = unpoisoned(&self.0);
        let Some(at) = lingering.iter().position(|conn| conn.id == id) else { return };
        if lingering[at].drain() {
            lingering.remove(at);
        } else {
            let conn = &lingering[at];
            reactor.rewatch(conn.socket.as_fd(), LINGERING | id, conn.epoll_flags());
        }
    }

    /// Closes those that have waited long enough; returns when the next is due.
    pub(crate) fn expire(&self, now: Time) -> Option<Time> {
        let mut lingering = unpoisoned(&self.0);
        lingering.retain(|conn| now < conn.until);
        lingering.front().map(|conn| conn.until)
    }
}

impl LingeringConn {
    /// Sends the rest and reads until the peer closes; returns whether that has finished.
    fn drain(&mut self) -> bool {
        while !self.unsent.is_empty() {
            match rustix::net::send(&self.socket, &self.unsent, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(Errno::AGAIN) => break,
                Err(_) => return true,
            }
        }
        if self.unsent.is_empty() {
            // Repeating this does no harm.
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Write);
        }
        let mut void = [0; 4096];
        // Bounded, so that a peer that never stops cannot occupy the thread.
        for _ in 0..64 {
            match rustix::net::recv(&self.socket, &mut void, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return true,
                Ok(_) => {}
                Err(Errno::AGAIN | Errno::INTR) => return false,
                Err(_) => return true,
            }
        }
        false
    }

    fn epoll_flags(&self) -> EventFlags {
        if self.unsent.is_empty() { EventFlags::IN } else { EventFlags::IN | EventFlags::OUT }
    }
}
