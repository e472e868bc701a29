//! Data path: posting. A queue pair: its queues, and its connection under a combining lock.

use std::sync::Arc;

use verbs::{Error, RecvWr, Result, SendWr};

use crate::connection::end_reason::EndReason;
use crate::connection::qp_conn::QpConn;
use crate::queues::qp_queues::{QpParams, QpQueues};
use crate::shared::DeviceShared;
use crate::wake::ready::Driver;
use nic_util::heap_trim::queue_size;
use nic_util::sync::combining_lock::CombiningLock;

/// A queue pair.
pub(crate) struct QpInner {
    pub(crate) queues: QpQueues,
    lock: CombiningLock<QpConn>,
}

impl QpInner {
    pub(crate) fn new(shared: &Arc<DeviceShared>, params: QpParams) -> Result<Self> {
        let queues = QpQueues::new(shared, params)?;
        shared.heap_trim.count_allocated(queue_size(queues.entries()));
        Ok(Self { queues, lock: CombiningLock::new(QpConn::default()) })
    }

    pub(crate) fn num(&self) -> u32 {
        self.queues.num
    }

    /// Posts a send request.
    #[inline]
    pub(crate) fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        self.queues.post_send(wr)?;
        self.process_posted();
        Ok(())
    }

    /// Posts send requests; on error also returns how many were posted.
    pub(crate) fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        let mut each = wrs.iter().enumerate();
        let posted = each.try_for_each(|(posted, wr)| self.queues.post_send(wr).map_err(|e| (posted, e)));
        // One lock turn for all, so that they are sent in as few system calls as possible.
        self.process_posted();
        posted
    }

    #[inline]
    pub(crate) fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        if self.queues.post_receive(wr)? {
            self.process_posted();
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn post_rest(&self, wr: &RecvWr<'_>) -> Result<()> {
        if self.queues.post_rest(wr)? {
            self.process_posted();
        }
        Ok(())
    }

    /// Processes newly posted work, or leaves that to the current lock holder.
    #[inline]
    pub(crate) fn process_posted(&self) {
        self.lock.request(|conn| conn.on_posted(&self.queues));
    }

    /// Drives the connection for a poller, unless another thread holds the lock; returns false in that case.
    #[inline]
    pub(crate) fn poll(&self, driver: Driver) -> bool {
        let queues = &self.queues;
        if !queues.is_connected() {
            return true;
        }
        queues.count_poll();
        let work = |conn: &mut QpConn| conn.progress(queues, driver);
        self.lock.try_with(work, |conn| conn.on_posted(queues)).is_some()
    }

    /// The poller is about to sleep: from now on the NIC thread is responsible for the connection.
    pub(crate) fn hand_over_to_nic_thread(&self) {
        if self.queues.is_connected() {
            self.with(|conn| conn.hand_over_to_nic_thread(&self.queues));
        }
    }

    /// Runs `body` under the lock, unless another thread holds it.
    pub(crate) fn try_with<R>(&self, body: impl FnOnce(&mut QpConn) -> R) -> Option<R> {
        self.lock.try_with(body, |conn| conn.on_posted(&self.queues))
    }

    /// Runs `body` under the lock, waiting for it if necessary.
    pub(crate) fn with<R>(&self, body: impl FnOnce(&mut QpConn) -> R) -> R {
        self.lock.with(body, |conn| conn.on_posted(&self.queues))
    }

    /// Sets the RNR retry limit, and announces it if there is a connection.
    pub(crate) fn set_rnr_retry(&self, retries: u8) {
        self.queues.set_rnr_retry(retries);
        self.with(|conn| {
            conn.announce_rnr_limit(&self.queues);
            conn.progress(&self.queues, Driver::Other);
        });
    }

    /// Ends the connection if there is one, and moves to the error state.
    pub(crate) fn end(&self, end: &EndReason) {
        self.with(|conn| conn.end(&self.queues, end));
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        self.queues.shared.count_freed(queue_size(self.queues.entries()));
    }
}
