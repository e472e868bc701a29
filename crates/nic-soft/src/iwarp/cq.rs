//! Data path: completion. Completion queues: from whoever works on a connection to whoever polls.
//!
//! Who polls an empty queue works on the connections whose completions would come here: with few of them on each in turn, so
//! that a message costs no more than the system calls of its socket; with many, `ready` says on which.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

use host::{Bell, Wake};
use verbs::provider::CqOps;
use verbs::{AsyncEvent, Error, Result, Wc};

use super::channel::ChannelInner;
use super::device::Inner;
use super::qp::QpInner;
use super::ready::TURNS;
use crate::sync::Spin;

const ARMED_SOLICITED: u32 = 1;
const ARMED_ANY: u32 = 2;

/// Which slots polling a completion frees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Frees {
    /// Those of all send requests up to this one.
    Sends(u64),
    /// That of one receive.
    Receive,
}

/// A completion, with where it came from.
struct Entry {
    wc: Wc,
    qp: Arc<QpInner>,
    frees: Frees,
}

/// A completion queue.
pub(super) struct CqInner {
    pub(super) device: Arc<Inner>,
    id: u32,
    cqe: u32,
    bell: Bell,
    channel: Option<Arc<ChannelInner>>,
    entries: Spin<VecDeque<Entry>>,
    len: AtomicUsize,
    armed: AtomicU32,
    dead: AtomicBool,
    /// Queue pairs whose completions come here; held while working on them for a poll.
    users: Spin<Users>,
}

#[derive(Default)]
struct Users {
    list: Vec<Arc<QpInner>>,
    turn: usize,
    /// Completions that may be outstanding in all.
    demand: usize,
}

impl CqInner {
    pub(super) fn create(
        device: &Arc<Inner>,
        cqe: u32,
        channel: Option<Arc<ChannelInner>>,
    ) -> Result<Arc<Self>> {
        let id = device.take_cq_id()?;
        let cq = Arc::new(Self {
            device: device.clone(),
            id,
            cqe,
            bell: Bell::new(),
            channel,
            entries: Spin::new(VecDeque::new()),
            len: AtomicUsize::new(0),
            armed: AtomicU32::new(0),
            dead: AtomicBool::new(false),
            users: Spin::new(Users::default()),
        });
        if let Some(channel) = &cq.channel {
            channel.attach(&cq);
        }
        Ok(cq)
    }

    /// A queue pair's completions come here from now on, at most `depth` of them at a time.
    pub(super) fn attach(&self, qp: &Arc<QpInner>, depth: u32) {
        let mut users = self.users.lock();
        users.demand += depth as usize;
        // Room for everything that may complete, so that completing never allocates.
        let wanted = users.demand.min(self.cqe as usize);
        let mut entries = self.entries.lock();
        let more = wanted.saturating_sub(entries.len());
        entries.reserve(more);
        drop(entries);
        if !users.list.iter().any(|user| Arc::ptr_eq(user, qp)) {
            users.list.push(qp.clone());
        }
    }

    /// Forgets a queue pair and its completions, and gives back the slots that they hold.
    pub(super) fn detach(&self, qp: &Arc<QpInner>, depth: u32) {
        let mut users = self.users.lock();
        users.demand -= depth as usize;
        users.list.retain(|user| !Arc::ptr_eq(user, qp));
        drop(users);
        let mut entries = self.entries.lock();
        entries.retain(|entry| {
            let stays = !Arc::ptr_eq(&entry.qp, qp);
            if !stays {
                qp.reclaim(entry.frees);
            }
            stays
        });
        self.len.store(entries.len(), Ordering::Release);
    }

    /// Queue pairs whose completions come here.
    fn users(&self) -> Vec<Arc<QpInner>> {
        self.users.lock().list.clone()
    }

    /// A completion.
    #[inline]
    pub(super) fn push(&self, qp: &Arc<QpInner>, wc: Wc, frees: Frees, solicited: bool) {
        let mut entries = self.entries.lock();
        if entries.len() >= self.cqe as usize {
            drop(entries);
            return self.overrun();
        }
        entries.push_back(Entry { wc, qp: qp.clone(), frees });
        self.len.store(entries.len(), Ordering::Release);
        drop(entries);
        self.announce(solicited || !wc.is_ok());
    }

    /// Wakes who sleeps, and reports if that was asked for.
    #[inline]
    fn announce(&self, solicited: bool) {
        fence(Ordering::SeqCst);
        self.bell.ring_after_fence();
        let wanted = if solicited { ARMED_SOLICITED } else { ARMED_ANY };
        let armed = self.armed.load(Ordering::Relaxed);
        if armed >= wanted
            && self.armed.compare_exchange(armed, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
            && let Some(channel) = &self.channel
        {
            channel.report(self.id);
        }
    }

    /// More completions than entries (IBA 11.6.3.1): the queue and its queue pairs are dead. They are failed by the device's
    /// thread, since whoever finds it out holds one of their stages.
    #[cold]
    fn overrun(&self) {
        if !self.dead.swap(true, Ordering::AcqRel) {
            self.device.async_event(AsyncEvent::CqError { cq: self.id });
            self.device.condemn_users_of(self.id);
            self.announce(true);
        }
    }

    /// Works on connections whose completions would come here; with `sleepy`, makes sure that the device's thread hears
    /// of what comes for them, because the caller is about to sleep.
    #[inline]
    pub(super) fn drive(&self, sleepy: bool) {
        // Another poller is at it.
        let Some(mut users) = self.users.try_lock() else { return };
        let count = users.list.len();
        let turns = if count > TURNS && self.device.is_crowded() {
            self.device.drive_ready();
            1
        } else {
            count.min(TURNS)
        };
        for step in 0..turns {
            users.list[(users.turn + step) % count].poll();
        }
        users.turn = if count > TURNS { (users.turn + turns) % count } else { 0 };
        if sleepy {
            users.list.iter().for_each(|user| user.hand_over());
        }
    }

    fn take(&self, wcs: &mut [Wc]) -> usize {
        if self.len.load(Ordering::Acquire) == 0 {
            return 0;
        }
        let mut entries = self.entries.lock();
        let count = wcs.len().min(entries.len());
        for (wc, entry) in wcs.iter_mut().zip(entries.drain(..count)) {
            entry.qp.reclaim(entry.frees);
            *wc = entry.wc;
        }
        self.len.store(entries.len(), Ordering::Release);
        count
    }

    /// Wakes who sleeps, after a write that no completion follows.
    pub(super) fn ring(&self) {
        self.bell.ring();
    }

    pub(super) fn number(&self) -> u32 {
        self.id
    }
}

impl CqOps for CqInner {
    fn id(&self) -> u32 {
        self.id
    }

    fn cqe(&self) -> u32 {
        self.cqe
    }

    #[inline]
    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        self.device.birth.check()?;
        if self.dead.load(Ordering::Relaxed) {
            return Err(Error::CqOverrun { cqe: self.cqe });
        }
        let got = self.take(wcs);
        if got > 0 || wcs.is_empty() {
            return Ok(got);
        }
        self.drive(self.bell.is_awaited());
        Ok(self.take(wcs))
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        self.device.birth.check()?;
        if self.channel.is_none() {
            return Err(Error::Invalid("the completion queue has no channel to report to".into()));
        }
        let kind = if solicited_only { ARMED_SOLICITED } else { ARMED_ANY };
        self.armed.fetch_max(kind, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        // Whoever arms is going to sleep, perhaps on the descriptor, where nobody sees it.
        self.users().iter().for_each(|user| user.hand_over());
        Ok(())
    }

    fn prepare_wait(&self) -> Wake<'_> {
        let wake = Wake::by(&self.bell);
        // Nobody may poll any more, and then the device's thread is to hear of what comes.
        self.users().iter().for_each(|user| user.hand_over());
        wake
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        if self.device.birth.is_elsewhere() {
            return;
        }
        if let Some(channel) = &self.channel {
            channel.forget(self.id);
        }
        self.device.give_cq_id(self.id);
    }
}
