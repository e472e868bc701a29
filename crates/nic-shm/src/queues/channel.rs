//! Completion channels: a wake socket that peers can signal.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use verbs::Result;

use crate::memory::layout::{CHANNEL_MAX, ChannelShared, channel_offset};
use crate::memory::segment::SharedRef;
use crate::peer::notify::wake_channel;
use crate::shared::DeviceShared;
use crate::wake::wake_socket::WakeSocket;

/// A completion channel.
pub(crate) struct Channel {
    device: Arc<DeviceShared>,
    pub(crate) index: usize,
    pub(crate) wake_socket: WakeSocket,
    pub(crate) words: SharedRef<ChannelShared>,
}

impl Channel {
    pub(crate) fn new(device: &Arc<DeviceShared>) -> Result<Self> {
        let wake_socket = WakeSocket::new()?;
        let index = device.indices.lock().channel.alloc("completion channels", CHANNEL_MAX)?;
        let words = SharedRef::new(&device.table.map, channel_offset(index))?;
        Ok(Self { device: device.clone(), index, wake_socket, words })
    }

    /// The waiters of this channel, for [`crate::peer::notify::notify_cq`].
    #[inline]
    pub(crate) fn waiters(&self) -> (&ChannelShared, BorrowedFd<'_>) {
        (&self.words, self.wake_socket.sender())
    }

    /// Wakes threads that sleep on the channel.
    pub(crate) fn wake(&self) {
        wake_channel(&self.words, self.wake_socket.sender());
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        if !self.device.fork_guard.is_forked() {
            self.device.indices.lock().channel.free(self.index);
        }
    }
}
