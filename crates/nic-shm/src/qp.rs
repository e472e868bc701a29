//! Data path: posting. A queue pair: a connection, and two halves to which it is lent.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use verbs::{AsyncEvent, QpCap, Result, SendWr, Wc};

use crate::connection::Connection;
use crate::memory::layout::{QpShared, qp_at};
use crate::memory::parts::Ring;
use crate::memory::segment::Ref;
use crate::memory::turn;
use crate::queues::completions::Completions;
use crate::queues::receives::SharedReceives;
use crate::receive::receiving::Receiving;
use crate::receive::serving::Serving;
use crate::send::sending::{By, Sending};
use crate::shared::Shared;
use nic_util::heap_trim::queue;
use nic_util::sync::Spin;

/// What a queue pair is made of.
pub(crate) struct Making {
    pub(crate) pd: u32,
    pub(crate) cap: QpCap,
    pub(crate) signal_all: bool,
    pub(crate) known_as: Option<u32>,
    pub(crate) send: Arc<Completions>,
    pub(crate) recv: Arc<Completions>,
    pub(crate) srq: Option<Arc<SharedReceives>>,
}

/// A queue pair.
pub(crate) struct QpInner {
    pub(crate) connection: Connection,
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
    serving: Serving,
    /// Memory that the peer uses, until it is outside for good.
    pub(crate) rings: Spin<Vec<Ring>>,
    /// Entries of its queues.
    entries: u32,
    /// That its last shared receive is completed has been reported, or is not to be.
    has_reported_last: AtomicBool,
}

impl QpInner {
    pub(crate) fn new(device: &Arc<Shared>, making: Making) -> Result<Self> {
        let Making { pd, cap, signal_all, known_as, send, recv, srq } = making;
        let (receiving, rings) = Receiving::new(&device.memory, &cap, recv, srq)?;
        let number = device.indices.lock().qp.take()?;
        let words: Ref<QpShared> = Ref::new(&device.table.map, qp_at(number.index))?;
        words.pd.store(pd, Ordering::Relaxed);
        receiving.describe(&words, &rings);
        words.renew(number.generation);
        let entries = cap.max_send_wr + cap.max_recv_wr;
        device.tide.rise(queue(entries));
        let connection = Connection::new(device, number, known_as, pd, words);
        Ok(Self {
            sending: Sending::new(&cap, signal_all, connection.known_as, send),
            connection,
            receiving,
            serving: Serving::default(),
            rings: Spin::new(rings),
            entries,
            has_reported_last: AtomicBool::new(false),
        })
    }

    /// Its number among the device's.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.connection.index
    }

    /// The number by which programs know it.
    #[inline]
    pub(crate) fn num(&self) -> u32 {
        self.connection.num
    }

    /// Posts a request.
    #[inline]
    pub(crate) fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        if self.sending.post(&self.connection, wr)? {
            self.fail();
        }
        Ok(())
    }

    /// Carries on with requests that wait.
    pub(crate) fn progress(&self, by: By) {
        if self.sending.progress(&self.connection, by) {
            self.fail();
        }
    }

    /// Takes completions of receives, in order; under the poll lock.
    #[inline]
    pub(crate) fn poll_receives(&self, wcs: &mut [Wc]) -> usize {
        self.receiving.poll(&self.connection, wcs)
    }

    /// Carries out what the peer has asked of this device's thread; whether to look again soon.
    pub(crate) fn serve_peer(&self) -> bool {
        self.serving.serve(&self.connection, &self.rings, || self.sending.enter(&self.connection))
    }

    /// Whether the peer is in the middle of an operation on this device's memory.
    pub(crate) fn peer_is_inside(&self) -> bool {
        self.connection.peer_is_inside()
    }

    /// Fails: both ends go to the error state, everything that waits is flushed, everybody is woken. Holding no lock.
    pub(crate) fn fail(&self) {
        let connection = &self.connection;
        let first = connection.fail();
        self.sending.flush(connection);
        if first && connection.has_access_error() && !connection.expects_failure() {
            connection.device.async_event(AsyncEvent::QpAccessError { qp_num: connection.num });
        }
        self.receiving.completions.alarm(connection.index);
        self.sending.completions.notify(true);
        if connection.peer_is_inside() {
            connection.device.look_at(connection.index);
        } else {
            self.report_last_receive();
        }
    }

    /// Reports that all shared receives which its peer has taken can be polled. It has failed, and its peer is outside.
    pub(crate) fn report_last_receive(&self) {
        let device = &self.connection.device;
        if self.receiving.srq.is_some() && !self.has_reported_last.swap(true, Ordering::AcqRel) {
            device.async_event(AsyncEvent::LastWqeReached { qp_num: self.num() });
        }
    }

    /// The program destroys it: nothing is reported of it any more.
    pub(crate) fn silence(&self) {
        self.has_reported_last.store(true, Ordering::Release);
    }

    /// Fails, which is no news for the program.
    pub(crate) fn fail_as_expected(&self) {
        self.connection.expect_failure();
        self.fail();
    }

    /// The peer takes no part any more; if it is `gone`, it is inside nothing.
    pub(crate) fn bury_peer(&self, gone: bool) {
        self.connection.bury_peer(gone);
        if gone {
            turn::free_of(&self.connection.device.table.map, self.index());
        }
        self.fail();
        self.receiving.completions.force_event();
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        self.connection.device.fall(queue(self.entries));
    }
}
