//! [`ChannelHandle`]: a completion channel of the API: an epoll set of the queues that the program has armed.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, Weak};

use host::Wake;
use nic_util::fork::ForkSafeFd;
use nic_util::sync::unpoisoned;
use rustix::event::{Timespec, epoll};
use verbs::provider::CompChannelOps;
use verbs::{Error, Result};

use super::arming::Arming;
use crate::shared::Shared;

/// Queues whose events one call examines.
const READY_MAX: usize = 8;

/// A completion channel.
pub(crate) struct ChannelHandle {
    pub(crate) shared: Arc<Shared>,
    /// Readable while a queue that the program has armed has an event.
    pub(crate) set: Arc<ForkSafeFd>,
    queues: Mutex<BTreeMap<u32, Weak<Arming>>>,
}

impl ChannelHandle {
    pub(crate) fn new(shared: &Arc<Shared>) -> Result<Self> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|why| {
            Error::system(
                "cannot create a completion channel (if descriptors ran out, raise the limit with ulimit -n)",
                why,
            )
        })?;
        Ok(Self { shared: shared.clone(), set: Arc::new(set.into()), queues: Mutex::default() })
    }

    pub(crate) fn add(&self, queue: &Arc<Arming>) {
        let mut queues = unpoisoned(&self.queues);
        queues.retain(|_, queue| queue.strong_count() > 0);
        queues.insert(queue.hw.number, Arc::downgrade(queue));
    }
}

impl CompChannelOps for ChannelHandle {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some((*self.set).as_fd())
    }

    fn poll_event(&self) -> Option<u32> {
        self.shared.check().ok()?;
        let mut ready = Vec::with_capacity(READY_MAX);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&*self.set, rustix::buffer::spare_capacity(&mut ready), Some(&now)).ok()?;
        let queues = unpoisoned(&self.queues);
        let numbers = ready.iter().map(|event| event.data.u64() as u32);
        let mut found =
            numbers.filter_map(|number| Some((number, queues.get(&number).and_then(Weak::upgrade)?)));
        found.find(|(_, queue)| queue.take_event()).map(|(number, _)| number)
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::Fd((*self.set).as_fd())
    }
}
