//! Completion channels: where one can sleep for completions, and the queues that report to them.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};

use host::{Bell, Wake};
use rustix::event::{EventfdFlags, eventfd};
use verbs::provider::CompChannelOps;
use verbs::{Error, Result};

use super::cq::CqInner;
use super::device::unpoisoned;
use crate::fork::Fd;

/// A completion channel.
pub(super) struct ChannelInner {
    fd: Fd,
    bell: Bell,
    /// The numbers of the queues that reported, and who may report.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    events: VecDeque<u32>,
    queues: Vec<Weak<CqInner>>,
}

impl ChannelInner {
    pub(super) fn create() -> Result<Arc<Self>> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let fd = eventfd(0, flags).map_err(|e| Error::system("cannot create a completion channel", e))?;
        Ok(Arc::new(Self { fd: fd.into(), bell: Bell::new(), state: Mutex::default() }))
    }

    pub(super) fn attach(&self, cq: &Arc<CqInner>) {
        let mut state = unpoisoned(&self.state);
        state.queues.retain(|queue| queue.strong_count() > 0);
        state.queues.push(Arc::downgrade(cq));
    }

    /// A queue reports. Each report needed an arming, so the events are at most as many as armings.
    pub(super) fn report(&self, cq: u32) {
        let mut state = unpoisoned(&self.state);
        state.events.push_back(cq);
        // Under the lock, so that the descriptor is readable exactly while there is an event. The counter cannot fill up
        // before memory does.
        let _ = rustix::io::write(&self.fd, &1_u64.to_ne_bytes());
        drop(state);
        self.bell.ring();
    }

    /// A queue that is going away takes its events with it.
    pub(super) fn forget(&self, cq: u32) {
        let mut state = unpoisoned(&self.state);
        let before = state.events.len();
        state.events.retain(|&event| event != cq);
        (state.events.len()..before).for_each(|_| self.lower());
    }

    fn lower(&self) {
        let mut count = [0; 8];
        // There is one count for each event.
        let _ = rustix::io::read(&self.fd, &mut count);
    }

    fn take(&self) -> Option<u32> {
        let mut state = unpoisoned(&self.state);
        let event = state.events.pop_front()?;
        self.lower();
        Some(event)
    }
}

impl CompChannelOps for ChannelInner {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    fn poll_event(&self) -> Option<u32> {
        let event = self.take();
        if event.is_some() {
            return event;
        }
        let queues: Vec<_> = unpoisoned(&self.state).queues.iter().filter_map(Weak::upgrade).collect();
        let sleepy = self.bell.is_awaited();
        queues.iter().for_each(|queue| queue.drive(sleepy));
        self.take()
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.bell)
    }
}
