//! Data path: posting. A queue pair: a connection, and two halves that use it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use verbs::{AsyncEvent, QpCap, Result, SendWr, Wc};

use crate::connection::Connection;
use crate::memory::allocator::Ring;
use crate::memory::atomic_lock;
use crate::memory::layout::{QpShared, qp_offset};
use crate::memory::segment::SharedRef;
use crate::queues::completions::Completions;
use crate::queues::receives::SharedReceives;
use crate::receive::recv_half::RecvHalf;
use crate::receive::service_server::ServiceServer;
use crate::send::send_half::{ProgressCaller, SendHalf};
use crate::shared::DeviceShared;
use nic_util::heap_trim::queue_size;
use nic_util::sync::Spin;

/// The parameters for creating a queue pair.
pub(crate) struct QpParams {
    pub(crate) pd: u32,
    pub(crate) cap: QpCap,
    pub(crate) signal_all: bool,
    pub(crate) reported_qp_num: Option<u32>,
    pub(crate) send: Arc<Completions>,
    pub(crate) recv: Arc<Completions>,
    pub(crate) srq: Option<Arc<SharedReceives>>,
}

/// A queue pair.
pub(crate) struct QpInner {
    pub(crate) connection: Connection,
    pub(crate) sending: SendHalf,
    pub(crate) receiving: RecvHalf,
    serving: ServiceServer,
    /// Memory that the peer accesses, until it can do so no more.
    pub(crate) rings: Spin<Vec<Ring>>,
    /// Number of entries of its queues.
    entries: u32,
    /// Whether `LastWqeReached` has been raised, or must not be.
    has_reported_last: AtomicBool,
}

impl QpInner {
    pub(crate) fn new(device: &Arc<DeviceShared>, params: QpParams) -> Result<Self> {
        let QpParams { pd, cap, signal_all, reported_qp_num, send, recv, srq } = params;
        let (receiving, rings) = RecvHalf::new(&device.memory, &cap, recv, srq)?;
        let number = device.indices.lock().qp.alloc()?;
        let words: SharedRef<QpShared> = SharedRef::new(&device.table.map, qp_offset(number.index))?;
        words.pd.store(pd, Ordering::Relaxed);
        receiving.publish_layout(&words, &rings);
        words.reset_for_generation(number.generation);
        let entries = cap.max_send_wr + cap.max_recv_wr;
        device.heap_trim.count_allocated(queue_size(entries));
        let connection = Connection::new(device, number, reported_qp_num, pd, words);
        Ok(Self {
            sending: SendHalf::new(&cap, signal_all, connection.reported_qp_num, send),
            connection,
            receiving,
            serving: ServiceServer::default(),
            rings: Spin::new(rings),
            entries,
            has_reported_last: AtomicBool::new(false),
        })
    }

    /// The index in the device's table.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.connection.index
    }

    /// The public number.
    #[inline]
    pub(crate) fn num(&self) -> u32 {
        self.connection.num
    }

    /// Posts a send request.
    #[inline]
    pub(crate) fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        if self.sending.post(&self.connection, wr)? {
            self.fail();
        }
        Ok(())
    }

    /// Retries waiting requests.
    pub(crate) fn progress(&self, caller: ProgressCaller) {
        if self.sending.progress(&self.connection, caller) {
            self.fail();
        }
    }

    /// Polls completions of receives, in order; under the poll lock.
    #[inline]
    pub(crate) fn poll_receives(&self, wcs: &mut [Wc]) -> usize {
        self.receiving.poll(&self.connection, wcs)
    }

    /// Carries out the peer's request to this device's NIC thread; returns whether to check again soon.
    pub(crate) fn serve_peer(&self) -> bool {
        self.serving.serve(&self.connection, &self.rings, || self.sending.enter(&self.connection))
    }

    /// Whether the peer is in the middle of an operation on this device's memory.
    pub(crate) fn peer_is_inside(&self) -> bool {
        self.connection.peer_is_inside()
    }

    /// Fails the queue pair: moves both ends to the error state, flushes waiting requests, wakes all waiters.
    /// Call without holding a lock.
    pub(crate) fn fail(&self) {
        let connection = &self.connection;
        let first = connection.fail();
        self.sending.flush(connection);
        if first && connection.has_access_error() && !connection.expects_failure() {
            connection.device.async_event(AsyncEvent::QpAccessError { qp_num: connection.num });
        }
        self.receiving.completions.wake_all(connection.index);
        self.sending.completions.notify(true);
        if connection.peer_is_inside() {
            connection.device.kick_qp(connection.index);
        } else {
            self.report_last_receive();
        }
    }

    /// Reports that all shared receives which its peer has claimed can be polled: it has failed, and its peer
    /// is outside.
    pub(crate) fn report_last_receive(&self) {
        let device = &self.connection.device;
        if self.receiving.srq.is_some() && !self.has_reported_last.swap(true, Ordering::AcqRel) {
            device.async_event(AsyncEvent::LastWqeReached { qp_num: self.num() });
        }
    }

    /// Suppresses further events; the program is destroying the queue pair.
    pub(crate) fn suppress_events(&self) {
        self.has_reported_last.store(true, Ordering::Release);
    }

    /// Fails the queue pair without an event for the program.
    pub(crate) fn fail_without_event(&self) {
        self.connection.expect_failure();
        self.fail();
    }

    /// Fails the queue pair because the peer takes no part any more; if `gone`, it has ended and accesses
    /// nothing.
    pub(crate) fn set_peer_lost(&self, gone: bool) {
        self.connection.set_peer_lost(gone);
        if gone {
            atomic_lock::release_if_held_by(&self.connection.device.table.map, self.index());
        }
        self.fail();
        self.receiving.completions.force_event();
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        self.connection.device.count_freed(queue_size(self.entries));
    }
}
