//! The state that all objects of a device share; it does not refer to these objects.

use std::collections::BTreeSet;
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use host::{Host, Time};
use rustix::io::Errno;
use verbs::{AsyncEvent, Error, Result};

use crate::config::IwarpConfig;
use crate::memory::regions::RegionTable;
use crate::tcp::capture::{Capture, Way};
use crate::tcp::impaired::through_relay;
use crate::tcp::outbox::StagingPool;
use crate::wake::linger::Lingering;
use crate::wake::reactor::Reactor;
use crate::wake::ready::{ROUND_ROBIN_MAX, ReadySet};
use nic_util::events::EventQueue;
use nic_util::fork::{ForkGuard, ForkSafeFd};
use nic_util::heap_trim::HeapTrim;
use nic_util::sync::{Spin, unpoisoned};

/// The state that all objects of a device share.
pub(crate) struct DeviceShared {
    pub(crate) host: Host,
    pub(crate) fork_guard: ForkGuard,
    pub(crate) config: IwarpConfig,
    pub(crate) regions: RegionTable,
    pub(crate) staging: StagingPool,
    pub(crate) reactor: Reactor,
    pub(crate) ready_set: ReadySet,
    pub(crate) heap_trim: HeapTrim,
    lingering: Lingering,
    capture: Option<Arc<Capture>>,
    /// Number of connections.
    connections: AtomicUsize,
    pub(crate) events: EventQueue<AsyncEvent>,
    /// Completion queues that overran, whose queue pairs the NIC thread must fail.
    overrun_cqs: Mutex<Vec<u32>>,
    /// How often a sleeping thread was woken.
    wake_count: AtomicU32,
    /// Queue pairs whose connections have ended.
    ended: Mutex<Vec<u32>>,
    /// Queue pairs whose connections were used since deregistering last waited; see
    /// [`nic_util::sync::reader_registry`].
    pub(crate) visited: Spin<BTreeSet<u32>>,
}

impl DeviceShared {
    /// Puts the faults and the capture of the wire between a connection's socket and this device, if it has any.
    pub(crate) fn through_relay(&self, socket: ForkSafeFd) -> ForkSafeFd {
        if self.config.wire.is_none() && self.capture.is_none() {
            return socket;
        }
        self.reactor.unwatch(socket.as_fd());
        let capture = self.capture.clone().zip(Capture::addresses(&socket));
        through_relay(&self.host, &self.config.wire, self.reactor.new_id(), capture, socket)
    }

    /// Records bytes of a connection's handshake, if there is a capture.
    pub(crate) fn record(&self, socket: &ForkSafeFd, way: Way, bytes: &[u8]) {
        if let Some(capture) = &self.capture {
            capture.add(socket, way, bytes);
        }
    }

    pub(crate) fn new(host: &Host, fork_guard: ForkGuard, config: &IwarpConfig) -> Result<Self> {
        let refused = |e: Errno| Error::system("cannot create the device's event descriptors", e);
        Ok(Self {
            host: host.clone(),
            fork_guard,
            config: config.clone(),
            regions: RegionTable::new(),
            staging: StagingPool::default(),
            reactor: Reactor::new()?,
            ready_set: ReadySet::new().map_err(refused)?,
            heap_trim: HeapTrim::default(),
            lingering: Lingering::default(),
            capture: config.capture.as_deref().map(Capture::create).transpose()?.map(Arc::new),
            connections: AtomicUsize::new(0),
            events: EventQueue::asynchronous()?,
            overrun_cqs: Mutex::default(),
            wake_count: AtomicU32::new(0),
            ended: Mutex::default(),
            visited: Spin::default(),
        })
    }

    /// Reports an asynchronous event to the program.
    pub(crate) fn async_event(&self, event: AsyncEvent) {
        self.events.push(event);
    }

    /// Requests that all queue pairs using an overrun completion queue fail.
    pub(crate) fn fail_users_of(&self, cq: u32) {
        unpoisoned(&self.overrun_cqs).push(cq);
        self.reactor.wake();
    }

    /// How often a thread sleeping on completions was woken.
    pub(crate) fn wake_count(&self) -> u32 {
        self.wake_count.load(Ordering::Relaxed)
    }

    /// Counts that a thread sleeping on completions is woken.
    pub(crate) fn count_wake(&self) {
        self.wake_count.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes the completion queues that have overrun since the last call.
    pub(crate) fn take_overrun_cqs(&self) -> Vec<u32> {
        std::mem::take(&mut *unpoisoned(&self.overrun_cqs))
    }

    /// Records that a queue pair's connection has ended.
    pub(crate) fn record_ended(&self, num: u32) {
        unpoisoned(&self.ended).push(num);
        self.reactor.wake();
    }

    /// Takes the queue pairs whose connections have ended since the last call.
    pub(crate) fn take_ended(&self) -> Vec<u32> {
        std::mem::take(&mut *unpoisoned(&self.ended))
    }

    /// Records that an object with this many bytes of malloc(3) memory was freed.
    pub(crate) fn count_freed(&self, bytes: usize) {
        if !self.fork_guard.is_forked() && self.heap_trim.count_freed(bytes) {
            self.reactor.wake();
        }
    }

    /// Records that large queues were freed: the NIC thread checks whether memory can be returned to the system.
    pub(crate) fn on_memory_freed(&self) {
        self.heap_trim.request_trim();
        self.reactor.wake();
    }

    /// Sets the number of connections.
    pub(crate) fn set_connection_count(&self, count: usize) {
        self.connections.store(count, Ordering::Relaxed);
    }

    /// Whether there are more connections than pollers drive one by one.
    #[inline]
    pub(crate) fn has_many_connections(&self) -> bool {
        self.connections.load(Ordering::Relaxed) > ROUND_ROBIN_MAX
    }

    /// Whether this poll drives the next connection in turn, in addition to those with events.
    #[inline]
    pub(crate) fn is_round_robin_turn(&self) -> bool {
        self.ready_set.is_round_robin_turn(self.connections.load(Ordering::Relaxed))
    }

    /// Closes a connection such that the peer receives the last bytes.
    pub(crate) fn linger(&self, socket: ForkSafeFd, rest: Vec<u8>) {
        self.record(&socket, Way::Out, &rest);
        self.lingering.close_after_sending(&self.reactor, socket, rest, self.host.now());
    }

    /// The connections that linger.
    pub(crate) fn lingering(&self) -> &Lingering {
        &self.lingering
    }
}

/// A time in the unit of the protocol crate.
pub(crate) fn protocol_time(now: Time) -> Duration {
    now.since(Time::ZERO).to_std()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nic_util::events::ASYNC_EVENTS_MAX;

    /// Goal: events caused by peers do not pile up if nobody reads them. Method: more events than the limit.
    #[test]
    fn unread_async_events_are_bounded() {
        let fork_guard = ForkGuard::current().expect("handlers");
        let shared =
            DeviceShared::new(&host::real::host(), fork_guard, &IwarpConfig::default()).expect("descriptors");
        for qp_num in 0..ASYNC_EVENTS_MAX as u32 + 100 {
            shared.async_event(AsyncEvent::QpAccessError { qp_num });
        }
        let first = shared.events.pop(|| {});
        assert_eq!(first, Some(AsyncEvent::QpAccessError { qp_num: 0 }), "the first events are kept");
        assert_eq!(std::iter::from_fn(|| shared.events.pop(|| {})).count(), ASYNC_EVENTS_MAX - 1);
    }
}
