//! Completion channels: a doorbell that peers can ring.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use verbs::Result;

use crate::memory::layout::{CHANNEL_MAX, ChannelShared, channel_at};
use crate::memory::segment::Ref;
use crate::peer::announce::raise;
use crate::shared::Shared;
use crate::wake::doorbell::Doorbell;

/// A completion channel.
pub(crate) struct Channel {
    device: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) doorbell: Doorbell,
    pub(crate) words: Ref<ChannelShared>,
}

impl Channel {
    pub(crate) fn new(device: &Arc<Shared>) -> Result<Self> {
        let doorbell = Doorbell::new()?;
        let index = device.indices.lock().channel.alloc("completion channels", CHANNEL_MAX)?;
        let words = Ref::new(&device.table.map, channel_at(index))?;
        Ok(Self { device: device.clone(), index, doorbell, words })
    }

    /// The waiters of this channel, for [`crate::peer::announce::announce`].
    #[inline]
    pub(crate) fn waiters(&self) -> (&ChannelShared, BorrowedFd<'_>) {
        (&self.words, self.doorbell.sender())
    }

    /// Wakes threads that sleep on the channel.
    pub(crate) fn raise(&self) {
        raise(&self.words, self.doorbell.sender());
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.device.fork_guard.is_forked() {
            self.device.indices.lock().channel.free(self.index);
        }
    }
}
