//! A listening socket, and what comes to it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::Bell;
use verbs::{CmEvent, Result, Screen};

use super::events::Events;
use super::socket::{bind_at, listen_at};
use nic_util::fork::Fd;
use nic_util::sync::unpoisoned;

/// A listening socket.
pub(super) struct Listener {
    pub(super) socket: Arc<Fd>,
    pub(super) id: u64,
    pub(super) addr: SocketAddr,
    pub(super) backlog: usize,
    pub(super) screen: Option<Arc<dyn Screen>>,
    /// Requests that the program has not answered.
    pub(super) pending: AtomicUsize,
    events: Weak<Events>,
    open: AtomicBool,
}

impl Listener {
    pub(super) fn new(
        socket: Arc<Fd>,
        id: u64,
        addr: SocketAddr,
        (backlog, screen): (u32, Option<Arc<dyn Screen>>),
        events: &Arc<Events>,
    ) -> Self {
        Self {
            socket,
            id,
            addr,
            backlog: backlog as usize,
            screen,
            pending: AtomicUsize::new(0),
            events: Arc::downgrade(events),
            open: AtomicBool::new(true),
        }
    }

    /// The program's channel, if it is still there.
    pub(super) fn events(&self) -> Option<Arc<Events>> {
        self.events.upgrade()
    }

    /// A request has come. Nobody gets it if the listener is closed.
    pub(super) fn push(&self, events: &Events, request: CmEvent) {
        events.push_request(self.id, &self.open, request);
    }

    /// Nothing that comes from now on is anybody's.
    pub(super) fn close(&self) {
        self.open.store(false, Ordering::Release);
    }
}

/// Somebody wants to listen, or to hold an address, and waits for the socket: the device's thread makes it.
pub(super) struct SocketWish {
    addr: SocketAddr,
    /// Of a socket that is to listen.
    backlog: Option<u32>,
    bell: Bell,
    socket: Mutex<Option<Result<(Fd, SocketAddr)>>>,
}

impl SocketWish {
    pub(super) fn new(addr: SocketAddr, backlog: Option<u32>) -> Self {
        Self { addr, backlog, bell: Bell::new(), socket: Mutex::new(None) }
    }

    pub(super) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// The socket and its address, once it is there.
    pub(super) fn take(&self) -> Option<Result<(Fd, SocketAddr)>> {
        unpoisoned(&self.socket).take()
    }

    pub(super) fn fulfil(&self) {
        *unpoisoned(&self.socket) = Some(match self.backlog {
            Some(backlog) => listen_at(self.addr, backlog),
            None => bind_at(self.addr),
        });
        self.bell.ring();
    }
}
