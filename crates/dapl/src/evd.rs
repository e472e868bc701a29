//! Data path: completion. [`Evd`], an event dispatcher: a queue for several streams of events, on which threads wait.
//!
//! Completions of transfers stay in the device's queue until a thread polls the dispatcher. Everything else (connections,
//! requests, software events, and completions that were drained earlier) is in a queue of the dispatcher. A poll takes
//! queued events first, then polls the device; if one event is wanted and none is queued, a completion is returned without
//! passing through the queue.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::{EventCount, Lock, LockGuard, Source, Span, Wakes};
use verbs::{Cq, Wc};

use crate::cno::{CnoInner, CnoMember};
use crate::error::OrDevice;
use crate::event::{Dto, DtoEvent};
use crate::ia::{Adapter, Dispatcher, IaInner, is_shared};
use crate::sync::{UseCount, UseGuard, lock};
use crate::work_queue::{CompletionToken, WorkQueue, WorkQueues};
use crate::{AsyncKind, Cno, Error, ErrorKind, EvdFlags, Event, Ia, Label, Result, Subtype};

/// How long a thread waits for the lock on completions, which others hold only briefly.
const COMPLETIONS_TIMEOUT: Span = Span::from_ms(100);

/// The fewest entries of a dispatcher's completion queue: an endpoint's queues may hold more than was requested here.
const ENTRIES_MIN: u32 = 512;

/// Flags of a dispatcher's state that are not the default.
const DISABLED: u8 = 1;
const UNWAITABLE: u8 = 2;
/// Receives wake a waiter only if the sender asked for it.
const SOLICITED: u8 = 4;
/// The device's queue has overrun.
const OVERRUN: u8 = 8;

/// An event dispatcher (`DAT_EVD`); cheap to clone.
#[derive(Clone)]
pub struct Evd(pub(crate) Arc<EvdInner>);

pub(crate) struct EvdInner {
    pub(crate) ia: Arc<IaInner>,
    _use: UseGuard,
    pub(crate) flags: EvdFlags,
    qlen: AtomicU32,
    /// The device's queue for completions of transfers, if its flags include them.
    pub(crate) cq: Option<Cq>,
    /// Wakes waiters of a dispatcher without such a queue.
    wakeup: EventCount,
    pub(crate) work_queues: WorkQueues,
    /// Held by the thread that moves completions out of the device's queue, until their order is visible.
    pub(crate) completions: Lock<CompletionState>,
    queue: Mutex<VecDeque<Event>>,
    queued: AtomicUsize,
    /// Another thread has queued an event that wakes a waiter.
    wake_pending: AtomicBool,
    state: AtomicU8,
    waiting: AtomicBool,
    cno: Mutex<Option<Arc<CnoInner>>>,
    has_cno: AtomicBool,
    /// Reported to the notification object, and not yet taken from it.
    pub(crate) triggered: AtomicBool,
    armed: AtomicBool,
    /// The device has reported an event since the queue was armed.
    notified: AtomicBool,
    label: AtomicU64,
    pub(crate) uses: UseCount,
}

/// The state for taking completions.
#[derive(Default)]
pub(crate) struct CompletionState {
    pub(crate) token: CompletionToken,
    /// The buffer for a polled completion.
    pub(crate) wc: [Wc; 1],
    /// The work queue of the last plain completion: the next one often has the same.
    pub(crate) last: Option<Arc<WorkQueue>>,
}

impl std::fmt::Debug for Evd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Evd({:?}, {} queued)", self.0.flags, self.0.queued.load(Ordering::Relaxed))
    }
}

/// The result of a fast poll.
enum FastPollResult {
    /// The next event. Not yet an `Event`: the caller builds that in place, without a copy.
    Found(DtoEvent),
    /// There is no event.
    Empty,
    /// Only a full poll can decide.
    NeedsFullPoll,
}

/// The parameters of a dispatcher (`DAT_EVD_PARAM`).
#[derive(Clone, Debug)]
pub struct EvdParam {
    /// Events that it can hold, at least.
    pub qlen: u32,
    /// The streams that it accepts.
    pub flags: EvdFlags,
    /// Whether it triggers its notification object.
    pub enabled: bool,
    /// Whether threads may wait on it.
    pub waitable: bool,
    /// Whether only solicited receives wake a waiter.
    pub solicited: bool,
    /// Its notification object.
    pub cno: Option<Label>,
}

/// Calls that concern all dispatchers of an adapter.
impl Ia {
    /// Opens an adapter, and creates a dispatcher for its asynchronous errors, unless `async_qlen` is 0 (`dat_ia_open`).
    ///
    /// # Errors
    /// `InsufficientResources` when too many are open, or the device has no more resources.
    pub fn open(adapter: &Adapter, async_qlen: u32) -> Result<(Self, Option<Evd>)> {
        let ia = Self::open_without_evd(adapter)?;
        if async_qlen == 0 {
            return Ok((ia, None));
        }
        let evd = Evd::create(&ia, async_qlen.min(ia.0.attr.max_evd_qlen), None, EvdFlags::ASYNC)?;
        ia.0.async_evd.get_or_init(|| evd.as_dispatcher());
        Ok((ia, Some(evd)))
    }

    /// Checks that it has no objects except `own`, so that it may be closed gracefully (`dat_ia_close`).
    ///
    /// # Errors
    /// `InvalidState`.
    pub fn check_unused(&self, own: Option<&Evd>) -> Result<()> {
        let kept = usize::from(own.is_some());
        if self.0.uses.count() > kept { Err(Error::state(Subtype::IaInUse)) } else { Ok(()) }
    }
}

impl Evd {
    /// Creates a dispatcher for at least `qlen` events of the streams in `flags`, which reports to `cno` if given
    /// (`dat_evd_create`).
    ///
    /// # Errors
    /// Argument 2 for a size of zero or beyond the adapter's; argument 4 without a flag; resources.
    pub fn create(ia: &Ia, qlen: u32, cno: Option<&Cno>, flags: EvdFlags) -> Result<Self> {
        let ia = &ia.0;
        if qlen == 0 || qlen > ia.attr.max_evd_qlen {
            return Err(Error::argument(Subtype::Arg2));
        }
        if flags.is_empty() {
            return Err(Error::argument(Subtype::Arg4));
        }
        let transfers = flags.intersects(EvdFlags::DTO | EvdFlags::RMR_BIND);
        let entries = qlen.saturating_mul(2).max(ENTRIES_MIN).min(ia.attr.max_evd_qlen);
        let cq = transfers.then(|| ia.create_cq(entries)).transpose().or_device(Subtype::ResourceTevd)?;
        let inner = Arc::new(EvdInner {
            ia: ia.clone(),
            _use: ia.uses.add(),
            flags,
            qlen: AtomicU32::new(qlen),
            cq,
            wakeup: EventCount::new(),
            work_queues: WorkQueues::new(),
            completions: Lock::default(),
            queue: Mutex::new(VecDeque::new()),
            queued: AtomicUsize::new(0),
            wake_pending: AtomicBool::new(false),
            state: AtomicU8::new(0),
            waiting: AtomicBool::new(false),
            cno: Mutex::new(None),
            has_cno: AtomicBool::new(false),
            triggered: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            notified: AtomicBool::new(false),
            label: AtomicU64::new(ia.next_label()),
            uses: UseCount::default(),
        });
        let evd = Self(inner);
        if let Some(cq) = &evd.0.cq {
            lock(&ia.evds).insert(cq.id(), evd.as_dispatcher());
        }
        evd.modify_cno(cno)?;
        Ok(evd)
    }

    /// The reference for the adapter's tables.
    fn as_dispatcher(&self) -> Weak<dyn Dispatcher> {
        Arc::<EvdInner>::downgrade(&self.0)
    }

    /// Waits until there are `threshold` events, and takes the first; `None` waits forever. Also returns how many more are
    /// queued, as far as that is known without polling the device (`dat_evd_wait`).
    ///
    /// Events that exist when the call begins count, whatever their flags. Unsignalled events that arrive later do not end
    /// the wait.
    ///
    /// # Errors
    /// Argument 3 for a threshold of zero or more than the dispatcher holds; `InvalidState` when another thread waits, when
    /// it is unwaitable, or after an overrun; `TimeoutExpired`.
    #[inline]
    pub fn wait(&self, timeout: Option<Span>, threshold: u32) -> Result<(Event, usize)> {
        let inner = &*self.0;
        // Before the fast poll: an event queued after it sets the flag again.
        inner.wake_pending.store(false, Ordering::Relaxed);
        match if threshold == 1 { inner.poll_fast() } else { FastPollResult::NeedsFullPoll } {
            FastPollResult::Found(event) => {
                inner.charge_wait(false);
                return Ok((Event::Dto(event), 0));
            }
            FastPollResult::Empty => return self.wait_longer(timeout, 1),
            FastPollResult::NeedsFullPoll => {}
        }
        inner.check_waitable()?;
        if threshold == 0 || threshold > inner.qlen.load(Ordering::Relaxed) {
            return Err(Error::argument(Subtype::Arg3));
        }
        let mut may_end_wait = true;
        if let Some(event) = inner.poll_full(threshold as usize, &mut may_end_wait)? {
            inner.charge_wait(false);
            return Ok((event, inner.queued.load(Ordering::Relaxed)));
        }
        self.wait_longer(timeout, threshold as usize)
    }

    /// The rest of [`Evd::wait`], after a poll without success: polls, and sleeps until something arrives or the time is up.
    fn wait_longer(&self, timeout: Option<Span>, threshold: usize) -> Result<(Event, usize)> {
        const CALL: &str = "Evd::wait";
        let inner = &*self.0;
        if timeout == Some(Span::ZERO) {
            return Err(Error::new(ErrorKind::TimeoutExpired, Subtype::None));
        }
        if inner.waiting.swap(true, Ordering::Acquire) {
            return Err(Error::state(Subtype::EvdInUse));
        }
        let host = &inner.ia.host;
        let deadline = inner.ia.deadline(timeout);
        let mut may_end_wait = false;
        let solicited = inner.has_state(SOLICITED) && inner.ia.channel.is_some();
        // Declared outside of the loop: an event that is returned through the loop is copied at each step.
        let mut found = Err(Error::new(ErrorKind::TimeoutExpired, Subtype::None));
        if solicited {
            let mut poll =
                || inner.check_waitable().and_then(|()| inner.poll_and_arm(threshold, &mut may_end_wait));
            let any_event = inner.ia.any_event_source();
            host.wait(CALL, &any_event, deadline, || poll().transpose().map(|event| found = event));
        } else {
            let mut poll =
                || inner.check_waitable().and_then(|()| inner.poll_full(threshold, &mut may_end_wait));
            host.wait(CALL, inner, deadline, || {
                found = match if threshold == 1 { inner.poll_fast() } else { FastPollResult::NeedsFullPoll } {
                    FastPollResult::Found(event) => Ok(Event::Dto(event)),
                    FastPollResult::Empty => return None,
                    FastPollResult::NeedsFullPoll => poll().transpose()?,
                };
                Some(())
            });
        }
        inner.waiting.store(false, Ordering::Release);
        let found = found?;
        inner.charge_wait(true);
        Ok((found, inner.queued.load(Ordering::Relaxed)))
    }

    /// Takes an event, if there is one (`dat_evd_dequeue`).
    ///
    /// # Errors
    /// `QueueEmpty`; `InvalidState` after an overrun.
    #[inline]
    pub fn dequeue(&self) -> Result<Event> {
        let found = match self.0.poll_fast() {
            FastPollResult::Found(event) => return Ok(Event::Dto(event)),
            FastPollResult::Empty => None,
            FastPollResult::NeedsFullPoll => self.0.poll_full(1, &mut true)?,
        };
        found.ok_or(Error::new(ErrorKind::QueueEmpty, Subtype::None))
    }

    /// Queues an event of the program (`dat_evd_post_se`).
    ///
    /// # Errors
    /// Argument 1 for a dispatcher that does not accept software events; `QueueFull`.
    pub fn post_software(&self, pointer: u64) -> Result<()> {
        if !self.0.flags.contains(EvdFlags::SOFTWARE) {
            return Err(Error::argument(Subtype::Arg1));
        }
        if !self.0.queue_if_room(Event::Software(pointer)) {
            return Err(Error::new(ErrorKind::QueueFull, Subtype::None));
        }
        Ok(())
    }

    /// Changes the number of events that it can hold to at least `qlen` (`dat_evd_resize`).
    ///
    /// # Errors
    /// Argument 2 for zero; `InsufficientResources` beyond the size of its completion queue; `InvalidState` while it holds
    /// more events.
    pub fn resize(&self, qlen: u32) -> Result<()> {
        let inner = &*self.0;
        if qlen == 0 || qlen > inner.ia.attr.max_evd_qlen {
            return Err(Error::argument(Subtype::Arg2));
        }
        if inner.cq.as_ref().is_some_and(|cq| qlen > cq.cqe()) {
            return Err(Error::new(ErrorKind::InsufficientResources, Subtype::ResourceTevd));
        }
        if inner.queued.load(Ordering::Acquire) > qlen as usize {
            return Err(Error::state(Subtype::None));
        }
        inner.qlen.store(qlen, Ordering::Relaxed);
        Ok(())
    }

    /// Sets or removes its notification object (`dat_evd_modify_cno`).
    ///
    /// # Errors
    /// `InvalidHandle` for one of another adapter.
    pub fn modify_cno(&self, cno: Option<&Cno>) -> Result<()> {
        if cno.is_some_and(|cno| !Arc::ptr_eq(&cno.0.ia, &self.0.ia)) {
            return Err(Error::handle(Subtype::HandleCno));
        }
        let old = std::mem::replace(&mut *lock(&self.0.cno), cno.map(|cno| cno.0.clone()));
        self.0.has_cno.store(cno.is_some(), Ordering::Release);
        if let Some(old) = old {
            old.detach(&*self.0);
        }
        if let Some(cno) = cno {
            cno.0.attach(Arc::<EvdInner>::downgrade(&self.0));
        }
        Ok(())
    }

    /// Lets it trigger its notification object again (`dat_evd_enable`).
    pub fn enable(&self) {
        self.0.state.fetch_and(!DISABLED, Ordering::Release);
        self.0.ia.wake_waiters();
    }

    /// Stops triggering its notification object; events still queue (`dat_evd_disable`).
    pub fn disable(&self) {
        self.0.state.fetch_or(DISABLED, Ordering::Release);
    }

    /// Wakes the waiting thread with an error, and lets no thread wait from now on (`dat_evd_set_unwaitable`).
    pub fn set_unwaitable(&self) {
        self.0.state.fetch_or(UNWAITABLE, Ordering::Release);
        self.0.wake();
        self.0.ia.wake_waiters();
    }

    /// Lets threads wait again (`dat_evd_clear_unwaitable`).
    pub fn clear_unwaitable(&self) {
        self.0.state.fetch_and(!UNWAITABLE, Ordering::Release);
    }

    /// Its parameters (`dat_evd_query`).
    pub fn query(&self) -> EvdParam {
        let state = self.0.state.load(Ordering::Acquire);
        EvdParam {
            qlen: self.0.qlen.load(Ordering::Relaxed),
            flags: self.0.flags,
            enabled: state & DISABLED == 0,
            waitable: state & UNWAITABLE == 0,
            solicited: state & SOLICITED != 0,
            cno: lock(&self.0.cno).as_ref().map(|cno| cno.label()),
        }
    }

    /// The streams that it accepts.
    pub fn flags(&self) -> EvdFlags {
        self.0.flags
    }

    /// Its label in events.
    pub fn label(&self) -> Label {
        self.0.label.load(Ordering::Relaxed)
    }

    /// Changes its label.
    pub fn set_label(&self, label: Label) {
        self.0.label.store(label, Ordering::Relaxed);
    }

    /// Checks that no object uses it, so that it may be freed (`dat_evd_free`).
    ///
    /// # Errors
    /// `InvalidState` while endpoints, service points or a waiter use it.
    pub fn check_unused(&self) -> Result<()> {
        if self.0.uses.any() || self.0.waiting.load(Ordering::Acquire) {
            return Err(Error::state(Subtype::EvdInUse));
        }
        Ok(())
    }

    /// From now on receives wake a waiter only if the sender asked for it.
    pub(crate) fn set_solicited(&self) {
        self.0.state.fetch_or(SOLICITED, Ordering::Release);
    }
}

/// The event of a receive from a shared queue.
fn received(wc: &Wc, ep: Label, cookie: u64) -> DtoEvent {
    let operation = if wc.invalidated.is_some() { Dto::ReceiveWithInvalidate } else { Dto::Receive };
    let (status, length, invalidated) = (wc.status.into(), wc.byte_len, wc.invalidated);
    DtoEvent { ep, cookie, status, length, operation, invalidated }
}

impl EvdInner {
    fn has_state(&self, state: u8) -> bool {
        self.state.load(Ordering::Acquire) & state != 0
    }

    /// Whether any state flag is set.
    #[inline]
    fn has_any_state(&self) -> bool {
        self.state.load(Ordering::Acquire) != 0
    }

    /// Spends what returning from a wait takes; free in real time.
    #[inline]
    fn charge_wait(&self, slept: bool) {
        self.ia.host.charge_wait(Arc::as_ptr(&self.ia) as usize, slept);
    }

    fn check_waitable(&self) -> Result<()> {
        if self.has_state(UNWAITABLE) { Err(Error::state(Subtype::EvdUnwaitable)) } else { Ok(()) }
    }

    /// The fast poll: returns one completion of the device directly as an event, if no other stream feeds the dispatcher,
    /// nothing is queued, and no state flag is set.
    #[inline(always)]
    fn poll_fast(&self) -> FastPollResult {
        if self.flags.intersects(EvdFlags::CR | EvdFlags::CONNECTION | EvdFlags::ASYNC)
            || self.has_any_state()
        {
            return FastPollResult::NeedsFullPoll;
        }
        let (Some(cq), Some(mut completions)) = (&self.cq, self.completions.try_lock(&self.ia.host)) else {
            return FastPollResult::NeedsFullPoll;
        };
        if self.has_queued() {
            return FastPollResult::NeedsFullPoll;
        }
        let CompletionState { token, wc, last } = &mut *completions;
        match cq.poll(wc) {
            Ok(0) => return FastPollResult::Empty,
            Ok(_) => {}
            // An overrun persists: the full poll detects it again.
            Err(_) => return FastPollResult::NeedsFullPoll,
        }
        let [wc] = wc;
        if last.as_ref().is_none_or(|work_queue| !work_queue.is_current(wc.wr_id)) {
            *last = self.work_queues.find(wc.wr_id).cloned();
        }
        if let Some(event) = last.as_ref().and_then(|work_queue| work_queue.complete_plain(token, wc)) {
            return FastPollResult::Found(event);
        }
        if let Some((event, wakes)) = self.completion_event(token, wc) {
            self.queue_waking(event, wakes);
        }
        FastPollResult::NeedsFullPoll
    }

    /// Polls the device directly. Takes an event, if at least `threshold` events are queued and `may_end_wait` is set: an event
    /// that wakes a waiter has arrived since the wait began.
    #[inline]
    fn poll_full(&self, threshold: usize, may_end_wait: &mut bool) -> Result<Option<Event>> {
        if self.flags.intersects(EvdFlags::CR | EvdFlags::CONNECTION | EvdFlags::ASYNC) {
            self.ia.dispatch();
        }
        if let Some(cq) = &self.cq {
            let mut completions = self.lock_completions();
            loop {
                *may_end_wait |= self.take_wake_pending();
                if *may_end_wait && self.queued.load(Ordering::Acquire) >= threshold {
                    break;
                }
                let Some((event, wakes)) = self.take_completion(cq, &mut completions)? else { break };
                if threshold == 1 && (wakes || *may_end_wait) && !self.has_queued() {
                    return Ok(Some(event));
                }
                *may_end_wait |= wakes;
                self.queue(event);
            }
        }
        *may_end_wait |= self.take_wake_pending();
        Ok(self.take_queued(threshold, *may_end_wait))
    }

    /// Whether another thread has queued an event that wakes a waiter since this was last called.
    fn take_wake_pending(&self) -> bool {
        self.wake_pending.load(Ordering::Relaxed) && self.wake_pending.swap(false, Ordering::Acquire)
    }

    /// Does as [`EvdInner::poll_full`], but sets `may_end_wait` only if the device has notified, and arms its next notification:
    /// for receives that wake a waiter only if solicited.
    fn poll_and_arm(&self, threshold: usize, may_end_wait: &mut bool) -> Result<Option<Event>> {
        self.ia.dispatch_channel();
        self.queue_completions_and_arm(true)?;
        *may_end_wait |=
            self.wake_pending.swap(false, Ordering::Acquire) | self.notified.swap(false, Ordering::Acquire);
        Ok(self.take_queued(threshold, *may_end_wait))
    }

    /// Takes the first queued event, if at least `threshold` are queued and the wait may end.
    fn take_queued(&self, threshold: usize, may_end_wait: bool) -> Option<Event> {
        if !may_end_wait || self.queued.load(Ordering::Acquire) < threshold {
            return None;
        }
        let mut queue = lock(&self.queue);
        let event = queue.pop_front();
        self.queued.store(queue.len(), Ordering::Release);
        event
    }

    fn queue(&self, event: Event) {
        let mut queue = lock(&self.queue);
        queue.push_back(event);
        self.queued.store(queue.len(), Ordering::Release);
    }

    /// Queues a completion's event for the next poll.
    pub(crate) fn queue_waking(&self, event: Event, wakes: bool) {
        self.queue(event);
        self.wake_pending.fetch_or(wakes, Ordering::Release);
    }

    /// Locks the taking of completions, and binds, which are ordered between them.
    #[inline]
    pub(crate) fn lock_completions(&self) -> LockGuard<'_, CompletionState> {
        self.completions.lock(&self.ia.host)
    }

    /// The next completion that has an event, and whether it wakes a waiter.
    fn take_completion(&self, cq: &Cq, completions: &mut CompletionState) -> Result<Option<(Event, bool)>> {
        let CompletionState { token, wc, .. } = completions;
        loop {
            match cq.poll(wc) {
                Ok(0) => return Ok(None),
                Ok(_) => {
                    if let Some(found) = self.completion_event(token, &wc[0]) {
                        return Ok(Some(found));
                    }
                }
                Err(cause) => return Err(self.report_overrun(cause)),
            }
        }
    }

    /// The event of a completion, and whether it wakes a waiter; `None` for a completion without an event, and if binds
    /// waited for it: then its event is queued, followed by theirs.
    #[inline(never)]
    pub(crate) fn completion_event(&self, token: &mut CompletionToken, wc: &Wc) -> Option<(Event, bool)> {
        if !wc.is_ok() {
            self.ia.request_failed(wc);
        }
        if is_shared(wc.wr_id) {
            return self
                .ia
                .take_shared_receive(wc)
                .map(|(ep, cookie)| (Event::Dto(received(wc, ep, cookie)), true));
        }
        let work_queue = self.work_queues.find(wc.wr_id)?;
        let found = work_queue.complete(token, wc);
        if work_queue.has_binds() {
            self.queue_after_binds(token, work_queue, found);
            return None;
        }
        found.map(|(event, wakes)| (Event::Dto(event), wakes))
    }

    /// Queues the event from [`WorkQueue::complete`], followed by those of the binds that waited for it.
    #[cold]
    fn queue_after_binds(
        &self,
        token: &mut CompletionToken,
        work_queue: &WorkQueue,
        found: Option<(DtoEvent, bool)>,
    ) {
        if let Some((event, wakes)) = found {
            self.queue_waking(Event::Dto(event), wakes);
        }
        std::iter::from_fn(|| work_queue.next_ready_bind(token))
            .flatten()
            .for_each(|event| self.queue_and_wake(event));
    }

    #[cold]
    fn report_overrun(&self, cause: verbs::Error) -> Error {
        if self.state.fetch_or(OVERRUN, Ordering::AcqRel) & OVERRUN == 0 {
            self.ia.report_overflow(self.label.load(Ordering::Relaxed));
        }
        Error { kind: ErrorKind::InvalidState, ..Error::device(cause, Subtype::None) }
    }

    /// Moves completions from the device's queue to the dispatcher's, for example before a queue pair is destroyed.
    pub(crate) fn move_completions(&self) {
        let Some(cq) = &self.cq else { return };
        let try_lock = || self.completions.try_lock(&self.ia.host);
        // Another thread that holds the lock releases it soon; this thread itself may hold it, hence the limit.
        let deadline = self.ia.host.after(COMPLETIONS_TIMEOUT);
        let Some(mut completions) = self.ia.host.poll("the lock on completions", deadline, try_lock) else {
            return;
        };
        let mut any = false;
        while let Ok(Some((event, wakes))) = self.take_completion(cq, &mut completions) {
            self.queue_waking(event, wakes);
            any = true;
        }
        drop(completions);
        if any {
            // A thread that polled while the completions were moved saw them in neither queue.
            self.wake();
            self.trigger();
        }
    }

    /// Queues an event, and wakes the waiter.
    pub(crate) fn queue_and_wake(&self, event: Event) {
        self.queue(event);
        self.wake_pending.store(true, Ordering::Release);
        self.wake();
        self.trigger();
    }

    /// Queues an event, unless the queue is full; returns whether it did.
    pub(crate) fn queue_if_room(&self, event: Event) -> bool {
        let room = self.queued.load(Ordering::Acquire) < self.qlen.load(Ordering::Relaxed) as usize;
        if room {
            self.queue_and_wake(event);
        }
        room
    }

    fn wake(&self) {
        self.ia.host.notify(&self.wakeup);
        if self.has_state(SOLICITED) {
            self.ia.wake_waiters();
        }
    }

    /// Reports the dispatcher to its notification object, once.
    fn trigger(&self) {
        if !self.has_cno.load(Ordering::Acquire) || self.has_state(DISABLED) {
            return;
        }
        if let Some(cno) = lock(&self.cno).clone()
            && !self.triggered.swap(true, Ordering::AcqRel)
        {
            cno.push(self.label.load(Ordering::Relaxed), self);
        }
    }

    /// Arms the device's queue if it is not armed, and queues the completions that arrived before that; triggers if one of
    /// them wakes a waiter.
    fn queue_completions_and_arm(&self, waited_on: bool) -> Result<()> {
        let Some(cq) = &self.cq else { return Ok(()) };
        let solicited = self.has_state(SOLICITED);
        let arm = self.ia.channel.is_some() && !self.armed.swap(true, Ordering::AcqRel);
        if arm {
            cq.req_notify(solicited).or_device(Subtype::None)?;
        }
        let mut completions = self.lock_completions();
        let mut woken = false;
        while let Some((event, wakes)) = self.take_completion(cq, &mut completions)? {
            woken |= wakes && !solicited;
            self.queue(event);
        }
        drop(completions);
        if woken && waited_on {
            self.wake_pending.store(true, Ordering::Release);
        }
        // The device's notification counts only for solicited receives, where only the device knows; otherwise the
        // completions were drained above, or taken.
        let was_notified = !waited_on && self.notified.swap(false, Ordering::AcqRel) && solicited;
        if woken || was_notified {
            self.trigger();
        }
        Ok(())
    }

    /// Whether any event is queued.
    #[inline]
    fn has_queued(&self) -> bool {
        self.queued.load(Ordering::Acquire) > 0
    }

    /// Whether it belongs to this adapter.
    pub(crate) fn belongs_to(&self, ia: &Arc<IaInner>) -> bool {
        Arc::ptr_eq(&self.ia, ia)
    }
}

impl Dispatcher for EvdInner {
    fn label(&self) -> Label {
        self.label.load(Ordering::Relaxed)
    }

    fn notify(&self) {
        self.notified.store(true, Ordering::Release);
        self.armed.store(false, Ordering::Release);
    }

    fn report(&self, object: Label, kind: AsyncKind, reason: i32) {
        self.queue_if_room(Event::Async { object, kind, reason });
    }
}

impl CnoMember for EvdInner {
    fn poll_and_arm(&self) {
        // A thread that polls the dispatcher itself detects an overrun.
        let _ = self.queue_completions_and_arm(false);
    }

    fn take_report(&self) -> bool {
        self.triggered.store(false, Ordering::Release);
        self.has_queued()
    }

    fn forget_cno(&self) {
        *lock(&self.cno) = None;
        self.has_cno.store(false, Ordering::Release);
    }
}

impl Drop for EvdInner {
    fn drop(&mut self) {
        if let Some(cq) = &self.cq {
            lock(&self.ia.evds).remove(&cq.id());
        }
    }
}

/// Wakes the thread that waits for its events: on a completion, or any other event.
impl Source for EvdInner {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.wakeup.prepare_wait(wakes);
        self.cq.iter().for_each(|cq| cq.prepare_wait(wakes));
    }

    fn progress_count(&self) -> u64 {
        self.cq.as_ref().map_or(0, Source::progress_count)
    }

    fn begin_polling(&self) {
        self.cq.iter().for_each(Source::begin_polling);
    }

    fn end_polling(&self) {
        self.cq.iter().for_each(Source::end_polling);
    }
}
