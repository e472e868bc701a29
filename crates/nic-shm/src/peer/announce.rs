//! Data path: announcing. Tells those who wait on a completion queue, in this process or the peer's, that something was published
//! there: who sleeps on its bell, and who has armed it and sleeps on its channel.

use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use crate::memory::layout::{ChannelShared, CqShared};
use crate::wake::doorbell::ring;
use nic_util::sync::ready::Ready;

/// A queue is armed for solicited completions...
pub(crate) const ARMED_SOLICITED: u32 = 1;
/// ...or for any.
pub(crate) const ARMED_ANY: u32 = 2;

/// After publishing and a full fence: wakes who sleeps on a completion queue, raises an event if it is armed.
#[inline]
pub(crate) fn announce(
    cq: &CqShared,
    reporting: &Ready,
    index: usize,
    channel: Option<(&ChannelShared, BorrowedFd<'_>)>,
    solicited: bool,
) {
    cq.bell.ring_after_fence();
    let wanted = if solicited { ARMED_SOLICITED } else { ARMED_ANY };
    let armed = cq.armed.load(Ordering::Relaxed);
    if armed >= wanted
        && cq.armed.compare_exchange(armed, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        && let Some((shared, fd)) = channel
    {
        cq.events.fetch_add(1, Ordering::AcqRel);
        reporting.add(index);
        raise(shared, fd);
    }
}

/// Wakes who sleeps on a channel.
pub(crate) fn raise(channel: &ChannelShared, fd: BorrowedFd<'_>) {
    ring(fd);
    channel.bell.ring();
}
