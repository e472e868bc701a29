//! Data path: notification. After a completion was published to a completion queue of this process or the
//! peer, wakes threads that sleep on its event count, and raises an event on its channel if it is armed.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use crate::memory::layout::{ChannelShared, CqShared};
use crate::wake::wake_socket::signal;
use nic_util::sync::ready::ReadySet;

/// Armed for solicited completions.
pub(crate) const ARMED_SOLICITED: u32 = 1;
/// Armed for any completion.
pub(crate) const ARMED_ANY: u32 = 2;

/// Wakes waiters of a completion queue and raises an event if it is armed; call after publishing and a full
/// fence.
#[inline]
pub(crate) fn notify_cq(
    cq: &CqShared,
    reporting: &ReadySet,
    index: usize,
    channel: Option<(&ChannelShared, BorrowedFd<'_>)>,
    solicited: bool,
) {
    cq.wakeup.notify_after_fence();
    let wanted = if solicited { ARMED_SOLICITED } else { ARMED_ANY };
    let armed = cq.armed.load(Ordering::Relaxed);
    if armed >= wanted
        && cq.armed.compare_exchange(armed, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        && let Some((shared, fd)) = channel
    {
        cq.events.fetch_add(1, Ordering::AcqRel);
        reporting.add(index);
        wake_channel(shared, fd);
    }
}

/// Wakes threads that sleep on a channel.
pub(crate) fn wake_channel(channel: &ChannelShared, fd: BorrowedFd<'_>) {
    signal(fd);
    channel.wakeup.notify();
}
