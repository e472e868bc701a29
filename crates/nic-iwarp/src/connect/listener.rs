//! A listening socket and the connection requests that arrive on it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::EventCount;
use verbs::{CmEvent, Result, Screen};

use crate::queues::cm_events::CmEvents;
use crate::tcp::socket::{bind_at, listen_at};
use nic_util::fork::ForkSafeFd;
use nic_util::sync::unpoisoned;

/// A listening socket.
pub(crate) struct Listener {
    pub(crate) socket: Arc<ForkSafeFd>,
    pub(crate) id: u64,
    pub(crate) addr: SocketAddr,
    pub(crate) backlog: usize,
    pub(crate) screen: Option<Arc<dyn Screen>>,
    /// Requests that the program has not answered.
    pub(crate) pending: AtomicUsize,
    events: Weak<CmEvents>,
    open: AtomicBool,
}

impl Listener {
    pub(crate) fn new(
        socket: Arc<ForkSafeFd>,
        id: u64,
        addr: SocketAddr,
        (backlog, screen): (u32, Option<Arc<dyn Screen>>),
        events: &Arc<CmEvents>,
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

    /// The program's event channel, if it still exists.
    pub(crate) fn events(&self) -> Option<Arc<CmEvents>> {
        self.events.upgrade()
    }

    /// Reports a request to the program. It is dropped if the listener is closed.
    pub(crate) fn push(&self, events: &CmEvents, request: CmEvent) {
        events.push_request(self.id, &self.open, request);
    }

    /// Closes the listener: later requests are dropped.
    pub(crate) fn close(&self) {
        self.open.store(false, Ordering::Release);
    }
}

/// A request for a listening or bound socket, which the NIC thread creates.
pub(crate) struct SocketRequest {
    addr: SocketAddr,
    /// Backlog of a listening socket; `None` for a bound one.
    backlog: Option<u32>,
    wakeup: EventCount,
    socket: Mutex<Option<Result<(ForkSafeFd, SocketAddr)>>>,
}

impl SocketRequest {
    pub(crate) fn new(addr: SocketAddr, backlog: Option<u32>) -> Self {
        Self { addr, backlog, wakeup: EventCount::new(), socket: Mutex::new(None) }
    }

    pub(crate) fn wakeup(&self) -> &EventCount {
        &self.wakeup
    }

    /// The socket and its address, once it has been created.
    pub(crate) fn take(&self) -> Option<Result<(ForkSafeFd, SocketAddr)>> {
        unpoisoned(&self.socket).take()
    }

    pub(crate) fn create_socket(&self) {
        *unpoisoned(&self.socket) = Some(match self.backlog {
            Some(backlog) => listen_at(self.addr, backlog),
            None => bind_at(self.addr),
        });
        self.wakeup.notify();
    }
}
