//! Completion channels: a doorbell, which peers hold the button of.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use verbs::Result;

use super::announce::raise;
use super::doorbell::Doorbell;
use super::layout::{CHANNEL_MAX, ChannelShared, channel_at};
use super::segment::Ref;
use super::shared::Shared;

/// A completion channel.
pub(super) struct Channel {
    device: Arc<Shared>,
    pub(super) index: usize,
    pub(super) doorbell: Doorbell,
    pub(super) words: Ref<ChannelShared>,
}

impl Channel {
    pub(super) fn new(device: &Arc<Shared>) -> Result<Self> {
        let doorbell = Doorbell::new()?;
        let index = device.indices.lock().channel.take("completion channels", CHANNEL_MAX)?;
        let words = Ref::new(&device.table.map, channel_at(index))?;
        Ok(Self { device: device.clone(), index, doorbell, words })
    }

    /// What [`super::announce::announce`] needs of it.
    #[inline]
    pub(super) fn sleepers(&self) -> (&ChannelShared, BorrowedFd<'_>) {
        (&self.words, self.doorbell.button())
    }

    /// Wakes who sleeps on it.
    pub(super) fn raise(&self) {
        raise(&self.words, self.doorbell.button());
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.device.birth.is_elsewhere() {
            self.device.indices.lock().channel.give(self.index);
        }
    }
}
