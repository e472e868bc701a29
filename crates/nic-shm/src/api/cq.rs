//! API handles of completion queues and completion channels.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::Wake;
use verbs::provider::{CompChannelOps, CqOps};
use verbs::{Error, Result, Wc};

use crate::device_inner::DeviceInner;
use crate::polled_cq::PolledCq;
use crate::queues::channel::Channel;
use crate::queues::completions::Completions;
use crate::shared::DeviceShared;
use crate::wake::wake_socket::{WakeSocketState, signal};

/// The API handle of a completion queue.
pub(crate) struct CqHandle {
    device: Arc<DeviceInner>,
    /// A copy of the device's pointer, as every poll reads it.
    shared: Arc<DeviceShared>,
    pub(crate) polling: Arc<PolledCq>,
}

impl CqHandle {
    pub(crate) fn create(
        device: &Arc<DeviceInner>,
        cqe: u32,
        channel: Option<&ChannelHandle>,
    ) -> Result<Self> {
        let channel = channel.map(|channel| channel.channel.clone());
        let polling = Arc::new(PolledCq::new(Completions::new(&device.shared, cqe, channel)?));
        device.objects.add_cq(&polling);
        Ok(Self { device: device.clone(), shared: device.shared.clone(), polling })
    }

    fn completions(&self) -> &Completions {
        &self.polling.completions
    }
}

impl CqOps for CqHandle {
    fn id(&self) -> u32 {
        self.completions().index as u32
    }

    fn cqe(&self) -> u32 {
        self.completions().cqe()
    }

    fn resize(&self, cqe: u32) -> Result<()> {
        self.shared.fork_guard.check()?;
        let too_many = || Error::Invalid(format!("more than {cqe} completions wait in the queue"));
        if self.polling.resize(cqe).ok_or_else(too_many)? {
            self.device.watch_for_overrun(&self.polling);
        }
        Ok(())
    }

    #[inline]
    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        let shared = &*self.shared;
        shared.fork_guard.check()?;
        let (sends, receives) = self.polling.poll(shared, wcs)?;
        if shared.has_requested_failures() {
            self.device.handle_requested_failures();
        }
        if receives > 0 && wcs[sends..][..receives].iter().any(|wc| wc.invalidated.is_some()) {
            self.device.wait_for_peers_to_leave();
        }
        Ok(sends + receives)
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        self.device.shared.fork_guard.check()?;
        if self.completions().channel.is_none() {
            return Err(Error::Invalid("the completion queue has no channel to report to".into()));
        }
        self.completions().arm(solicited_only);
        Ok(())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.completions().prepare_wait()
    }
}

impl Drop for CqHandle {
    fn drop(&mut self) {
        if !self.device.shared.fork_guard.is_forked() {
            // Before its number is freed: the next owner of the number is another queue.
            self.device.forget_cq(self.completions().index);
        }
    }
}

/// The API handle of a completion channel.
pub(crate) struct ChannelHandle {
    device: Arc<DeviceInner>,
    channel: Arc<Channel>,
}

impl ChannelHandle {
    pub(crate) fn create(device: &Arc<DeviceInner>) -> Result<Self> {
        Ok(Self { device: device.clone(), channel: Arc::new(Channel::new(&device.shared)?) })
    }

    /// Fetches an event from these queues. Marks other queues with events again, and rings this channel's
    /// wake socket again.
    fn take_event_of(&self, cqs: impl Iterator<Item = Arc<PolledCq>>) -> Option<u32> {
        let mut found = None;
        for cq in cqs {
            let cq = &cq.completions;
            let is_mine = cq.channel.as_ref().is_some_and(|c| c.index == self.channel.index);
            if is_mine && found.is_none() && cq.take_event() {
                found = Some(cq.index as u32);
            }
            if cq.has_event() {
                self.device.shared.header.reporting.add(cq.index);
                if is_mine {
                    // All rings were consumed, but possibly only one of several events.
                    signal(self.channel.wake_socket.sender());
                }
            }
        }
        found
    }
}

impl CompChannelOps for ChannelHandle {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.channel.wake_socket.receiver())
    }

    fn poll_event(&self) -> Option<u32> {
        self.device.shared.fork_guard.check().ok()?;
        if self.channel.wake_socket.drain() == WakeSocketState::Idle {
            return None;
        }
        // One thread at a time: marks of other channels' queues are removed from the set for a moment.
        let _event_lock = self.device.event_lock.lock();
        let (objects, reporting) = (&self.device.objects, &self.device.shared.header.reporting);
        let mut found = self.take_event_of(reporting.drain().filter_map(|index| objects.cq(index)));
        if found.is_none() {
            // The peer that rang has set a wrong mark, or another one has removed it.
            found = self.take_event_of(objects.live_cqs().into_iter());
        }
        found
    }

    fn prepare_wait(&self) -> Wake<'_> {
        Wake::by(&self.channel.words.wakeup)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use verbs::provider::downcast;

    use super::*;

    /// Goal: the cost of fetching an event depends on the number of queues with events, not on the number of
    /// queues; no event is lost if its mark is. Method: queues that have events without a mark are found when
    /// no mark is set, and not before.
    #[test]
    fn channel_checks_marked_queues_only() {
        let device = crate::open(&host::real::host(), &Default::default()).expect("a device");
        let channel = device.create_comp_channel().expect("a channel");
        let other = device.create_comp_channel().expect("a second channel");
        let cqs: Vec<_> = (0..100)
            .map(|i| device.create_cq_with(4, if i == 50 { &other } else { &channel }).expect("a queue"))
            .collect();
        let inner = |i: usize| -> Arc<Completions> {
            let handle: Arc<CqHandle> =
                downcast(cqs[i].ops().clone(), "the queue").expect("a queue of this NIC");
            handle.polling.completions.clone()
        };
        let event = |i: usize| {
            inner(i).arm(false);
            inner(i).words.events.fetch_add(1, Ordering::Relaxed);
        };
        [3, 4].into_iter().for_each(event);
        [7, 50, 70, 70].into_iter().for_each(|i| inner(i).force_event());
        let next = || channel.poll_event().map(|id| id as usize);
        let id = |i: usize| inner(i).index;
        assert_eq!([next(), next(), next()], [Some(id(7)), Some(id(70)), Some(id(70))]);
        assert_eq!(other.poll_event().map(|id| id as usize), Some(id(50)));
        assert_eq!(next(), None, "the wake socket was not signalled");
        signal(inner(3).channel.as_ref().expect("a channel").wake_socket.sender());
        assert_eq!([next(), next(), next()], [Some(id(3)), Some(id(4)), None]);
    }

    /// Goal: a dropped queue leaves no weak handle behind, which would keep its memory. Method: the device's
    /// list is as long as before.
    #[test]
    fn dropped_queue_leaves_no_list_entry() {
        let device = crate::open(&host::real::host(), &Default::default()).expect("a device");
        let one = device.create_cq(64).expect("a queue");
        let inner: Arc<CqHandle> = downcast(one.ops().clone(), "the queue").expect("a queue of this NIC");
        let listed = || inner.device.objects.cqs.read().expect("unpoisoned").len();
        let before = listed();
        let more: Vec<_> = (0..100).map(|_| device.create_cq(16).expect("a queue")).collect();
        assert_eq!(listed(), before + 100);
        drop(more);
        assert_eq!(listed(), before);
    }
}
