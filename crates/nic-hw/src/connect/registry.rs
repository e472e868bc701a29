//! [`Registry`]: the connections, listeners and queue pairs of a device, by number.
//!
//! Its lock is held while an identifier is used by another thread than its owner's. An identifier may be destroyed under
//! it: destroying waits until the device's thread has acknowledged an event, and the thread needs no lock for that.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use host::Time;
use nic_util::sync::unpoisoned;
use rdma_abi::numbers as n;
use verbs::provider::apply_screen;
use verbs::{ConnInfo, ConnectRequest, QpState, Screen};

use super::cm_events::CmEvents;
use super::conn::{Conn, Step, info_of};
use crate::pair::Pair;
use crate::raw::cm::{CmChannel, CmId, HwCmEvent, PeerParam};
use crate::raw::context::Context;

/// A listener, as its requests need it.
pub(crate) struct Listener {
    pub(crate) events: Arc<CmEvents>,
    pub(crate) screen: Option<Arc<dyn Screen>>,
    /// The most requests that wait for an answer.
    pub(crate) backlog: u32,
    pub(crate) waiting: AtomicU32,
    pub(crate) is_open: AtomicBool,
}

impl Listener {
    fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Acquire) >= self.backlog
    }
}

/// What a number names.
pub(crate) enum Entry {
    Listener(Arc<Listener>),
    /// A request that is not answered yet, and whether the peer still waits.
    Request(Arc<AtomicBool>),
    Conn(Box<Conn>),
}

/// All that the lock protects.
#[derive(Default)]
pub(crate) struct Entries {
    last: u64,
    by_number: BTreeMap<u64, Entry>,
    pairs: BTreeMap<u32, Arc<Pair>>,
}

impl Entries {
    /// A number that no entry has had.
    pub(crate) fn fresh(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(crate) fn insert(&mut self, number: u64, entry: Entry) {
        self.by_number.insert(number, entry);
    }

    pub(crate) fn remove(&mut self, number: u64) -> Option<Entry> {
        self.by_number.remove(&number)
    }

    /// The connection of a queue pair.
    pub(crate) fn conn_of(&mut self, pair: &Pair) -> Option<&mut Conn> {
        match self.by_number.get_mut(&pair.connection.load(Ordering::Acquire)) {
            Some(Entry::Conn(conn)) => Some(conn),
            _ => None,
        }
    }

    /// Lets a connection handle something, which may close it.
    pub(crate) fn step(&mut self, number: u64, step: impl FnOnce(&mut Conn) -> Step) {
        let Some(Entry::Conn(conn)) = self.by_number.get_mut(&number) else { return };
        if let Step::Failed(event) = step(conn)
            && let Some(Entry::Conn(conn)) = self.by_number.remove(&number)
        {
            conn.close(event);
        }
    }
}

/// A request as the registry has received it: what answers it is built by the caller.
pub(crate) struct Arrived {
    pub(crate) id: CmId,
    pub(crate) number: u64,
    pub(crate) listener: Arc<Listener>,
    pub(crate) is_alive: Arc<AtomicBool>,
    pub(crate) info: ConnInfo,
    pub(crate) param: PeerParam,
}

/// The connections of a device.
pub(crate) struct Registry {
    pub(crate) channel: Arc<CmChannel>,
    card: Arc<str>,
    is_iwarp: bool,
    max_private_data: usize,
    entries: Mutex<Entries>,
}

impl Registry {
    pub(crate) fn new(channel: Arc<CmChannel>, context: &Context, max_private_data: u32) -> Self {
        let (card, max_private_data) = (context.card.name.as_str().into(), max_private_data as usize);
        Self { channel, card, is_iwarp: context.is_iwarp, max_private_data, entries: Mutex::default() }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Entries> {
        unpoisoned(&self.entries)
    }

    /// The card that addresses must belong to.
    pub(crate) fn card(&self) -> &Arc<str> {
        &self.card
    }

    pub(crate) fn add_pair(&self, pair: &Arc<Pair>) {
        self.lock().pairs.insert(pair.hw.number, pair.clone());
    }

    /// Forgets a queue pair that is destroyed, and ends its connection without an event.
    pub(crate) fn forget_pair(&self, pair: &Pair) {
        let mut entries = self.lock();
        let known = entries.pairs.remove(&pair.hw.number);
        let conn = entries.remove(pair.connection.swap(0, Ordering::AcqRel));
        drop(entries);
        drop((conn, known));
    }

    /// Handles an event of librdmacm; `offer` makes the request of the API that answers an arrived one.
    pub(crate) fn handle(&self, event: HwCmEvent, offer: impl FnOnce(Arrived) -> ConnectRequest) {
        if event.kind == n::RDMA_CM_EVENT_CONNECT_REQUEST {
            return self.requested(event, offer);
        }
        let mut entries = self.lock();
        let number = event.number;
        if let Some(Entry::Request(is_alive)) = entries.by_number.get(&number) {
            is_alive.store(false, Ordering::Release);
            return;
        }
        entries.step(number, |conn| conn.advance(event));
    }

    /// Offers a request to the listener's program, or rejects it.
    fn requested(&self, event: HwCmEvent, offer: impl FnOnce(Arrived) -> ConnectRequest) {
        let Some(id) = event.request else { return };
        let mut entries = self.lock();
        let listener = match entries.by_number.get(&event.number) {
            Some(Entry::Listener(listener)) => Some(listener.clone()),
            _ => None,
        };
        let (number, is_alive) = (entries.fresh(), Arc::new(AtomicBool::new(true)));
        id.set_number(number);
        entries.insert(number, Entry::Request(is_alive.clone()));
        drop(entries);
        let info = info_of(&id, id.peer(), &event.param, self.is_iwarp);
        let param = event.param;
        let screened = match &listener {
            // The card of another device received it, at an address of all cards.
            Some(_) if id.card().as_deref() != Some(&*self.card) => Err(Vec::new()),
            Some(listener) => {
                apply_screen(listener.screen.as_ref(), &param.private_data, info, self.max_private_data)
                    .and_then(|screened| if listener.is_full() { Err(Vec::new()) } else { Ok(screened) })
            }
            None => Err(Vec::new()),
        };
        match (listener, screened) {
            (Some(listener), Ok(screened)) => {
                listener.waiting.fetch_add(1, Ordering::AcqRel);
                let arrived = Arrived { id, number, listener: listener.clone(), is_alive, info, param };
                let request = offer(arrived).screened(screened);
                let request = verbs::CmEvent::ConnectRequest(request);
                listener.events.push_request(event.number, &listener.is_open, request);
            }
            (_, screened) => {
                drop(self.lock().remove(number));
                // If even this fails, the peer learns it when the identifier is destroyed.
                let _ = id.reject(&screened.err().unwrap_or_default());
            }
        }
    }

    /// Ends attempts and failed connections with a passed deadline; returns the next deadline.
    pub(crate) fn expire(&self, now: Time) -> Option<Time> {
        let mut entries = self.lock();
        let timed = entries.by_number.iter().filter_map(|(number, entry)| match entry {
            Entry::Conn(conn) if conn.is_timed() => Some((*number, conn.deadline)),
            _ => None,
        });
        let (due, later): (Vec<_>, Vec<_>) = timed.partition(|(_, deadline)| *deadline <= now);
        due.into_iter().for_each(|(number, _)| entries.step(number, Conn::expire));
        later.into_iter().map(|(_, deadline)| deadline).min()
    }

    /// Records that the card has moved a queue pair to the error state; its connection is left at `deadline`. Returns
    /// whether that is new.
    pub(crate) fn pair_failed(&self, qp_num: u32, deadline: Time) -> bool {
        let mut entries = self.lock();
        let Some(pair) = entries.pairs.get(&qp_num).cloned() else { return false };
        let is_new = pair.state() == QpState::ReadyToSend;
        if is_new {
            pair.set_state(QpState::Error);
            if let Some(conn) = entries.conn_of(&pair) {
                conn.deadline = deadline;
            }
        }
        // Before the lock is released: the owner of the queue pair destroys it with its own reference.
        drop(pair);
        is_new
    }

    /// Moves connected queue pairs whose own address is meant to the error state, for this cause; their connections end now.
    /// Returns their numbers.
    pub(crate) fn fail_connected(
        &self,
        now: Time,
        cause: &'static str,
        is_meant: impl Fn(IpAddr) -> bool,
    ) -> Vec<u32> {
        let mut entries = self.lock();
        let mut failed = Vec::new();
        for entry in entries.by_number.values_mut() {
            let Entry::Conn(conn) = entry else { continue };
            if conn.pair.state() == QpState::ReadyToSend && is_meant(conn.id.local().ip()) {
                conn.pair.set_cause(cause);
                conn.pair.set_state(QpState::Error);
                conn.deadline = now;
                failed.push(conn.pair.hw.number);
            }
        }
        failed
    }

    /// Records why a queue pair has failed.
    pub(crate) fn set_cause(&self, qp_num: u32, cause: &'static str) {
        if let Some(pair) = self.lock().pairs.get(&qp_num) {
            pair.set_cause(cause);
        }
    }

    /// The numbers of all queue pairs.
    pub(crate) fn pair_numbers(&self) -> Vec<u32> {
        self.lock().pairs.keys().copied().collect()
    }

    /// Calls `report` if the queue pair exists; it cannot be destroyed meanwhile.
    pub(crate) fn with_pair(&self, qp_num: u32, report: impl FnOnce()) {
        let entries = self.lock();
        if entries.pairs.contains_key(&qp_num) {
            report();
        }
    }
}
