//! [`Ia`], an open interface adapter, on an [`Adapter`]: a device that several `Ia`s share.
//!
//! The device reports connections and asynchronous errors in one stream for each adapter. A thread that polls a dispatcher
//! for such events dispatches the whole stream ([`IaInner::dispatch`]). In real time a dispatch thread does so as well, so that
//! threads may sleep on a dispatcher that also carries completions; it is started with the first service point or connect.
//!
//! The adapter knows its objects by number, and only through the traits by which it reports to them: [`Endpoint`],
//! [`ServicePoint`], [`Dispatcher`], [`SharedReceives`]. So objects on an adapter depend on it, and it depends on none of
//! them.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use host::{EventCount, Host, Source, Span, Time, Wakes};
use verbs::{AsyncEvent, Cm, CmEvent, CompChannel, ConnectRequest, Cq, Device, Wc, WcStatus};

use crate::attr::{AsyncKind, IaAttr, Label};
use crate::error::OrDevice;
use crate::sync::{UseCount, lock, try_lock};
use crate::{Error, ErrorKind, Result, Subtype};

/// The most adapters that may be open on one device.
const MAX_OPEN: usize = 1024;

/// How long the dispatch thread sleeps before it checks whether it is still needed.
const DISPATCH_CHECK_INTERVAL: Span = Span::from_ms(500);

/// Reasons of asynchronous events, by the standard's numbers.
const EP_TRANSFER_TO_ERROR: i32 = 0;
const EVD_OVERFLOW_ERROR: i32 = 0;
const SRQ_LOW_WATERMARK: i32 = 2;

/// The adapter's reports to an endpoint, found by the number of its queue pair.
pub(crate) trait Endpoint: Any + Send + Sync {
    /// Its label in events.
    fn label(&self) -> Label;
    /// Handles an event of its connection.
    fn handle_event(&self, event: CmEvent);
    /// A request of this endpoint failed, other than because its connection had ended.
    fn request_failed(&self);
}

/// The adapter's reports to a service point, found by its port.
pub(crate) trait ServicePoint: Send + Sync {
    /// A connection request has arrived.
    fn handle_request(&self, request: ConnectRequest);
}

/// The adapter's reports to an event dispatcher, found by the number of its completion queue.
pub(crate) trait Dispatcher: Send + Sync {
    /// Its label in events.
    fn label(&self) -> Label;
    /// The device has notified the armed queue.
    fn notify(&self);
    /// An object has an asynchronous error. A full dispatcher drops it, since there is nowhere left to report that.
    fn report(&self, object: Label, kind: AsyncKind, reason: i32);
}

/// The adapter's reports to a shared receive queue, found by its number.
pub(crate) trait SharedReceives: Send + Sync {
    /// Its label in events.
    fn label(&self) -> Label;
    /// Its number at the device.
    fn id(&self) -> u32;
    /// A receive was consumed; returns its cookie.
    fn take(&self, receive: u32) -> Option<u64>;
}

/// The first bit of a request's number marks a shared receive; then follow the numbers of the queue and of the receive.
const SHARED: u64 = 1 << 63;
const NUMBER_SHIFT: u32 = 32;

/// The request number of a receive of shared queue number `queue`.
pub(crate) fn shared_wr_id(queue: u32, receive: u32) -> u64 {
    SHARED | u64::from(queue) << NUMBER_SHIFT | u64::from(receive)
}

/// Whether a completion belongs to a shared receive.
#[inline]
pub(crate) fn is_shared(wr_id: u64) -> bool {
    wr_id & SHARED != 0
}

/// A device, for any number of open interface adapters; cheap to clone.
#[derive(Clone)]
pub struct Adapter(Arc<AdapterInner>);

struct AdapterInner {
    device: Device,
    open: Mutex<Vec<Weak<IaInner>>>,
}

impl std::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Adapter({:?})", self.0.device)
    }
}

impl Adapter {
    /// Creates an adapter on this device.
    pub fn new(device: Device) -> Self {
        Self(Arc::new(AdapterInner { device, open: Mutex::default() }))
    }

    /// The device below the adapter.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    fn opened(&self) -> Vec<Arc<IaInner>> {
        let mut open = lock(&self.0.open);
        open.retain(|ia| ia.strong_count() > 0);
        open.iter().filter_map(Weak::upgrade).collect()
    }
}

/// An open interface adapter (`DAT_IA`); cheap to clone. Its objects keep it open.
#[derive(Clone)]
pub struct Ia(pub(crate) Arc<IaInner>);

pub(crate) struct IaInner {
    adapter: Adapter,
    pub(crate) device: Device,
    pub(crate) host: Host,
    pub(crate) attr: IaAttr,
    pub(crate) cm: Cm,
    /// The completion channel of its queues, for threads that wait for several queues, or for solicited events.
    pub(crate) channel: Option<CompChannel>,
    /// Wakes these threads for everything else.
    wakeup: EventCount,
    /// Notified when the dispatch thread is to end.
    ending: Arc<EventCount>,
    /// The completion queue for endpoints without a dispatcher on one side.
    spare: OnceLock<Cq>,
    pub(crate) eps: Mutex<BTreeMap<u32, Weak<dyn Endpoint>>>,
    pub(crate) sps: Mutex<BTreeMap<u16, Weak<dyn ServicePoint>>>,
    pub(crate) evds: Mutex<BTreeMap<u32, Weak<dyn Dispatcher>>>,
    pub(crate) srqs: Mutex<BTreeMap<u32, Weak<dyn SharedReceives>>>,
    /// The dispatcher for asynchronous errors, once it exists.
    pub(crate) async_evd: OnceLock<Weak<dyn Dispatcher>>,
    dispatching: Mutex<()>,
    has_dispatch_thread: AtomicBool,
    labels: AtomicU64,
    label: AtomicU64,
    pub(crate) uses: UseCount,
}

impl std::fmt::Debug for Ia {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ia({:?})", self.0.device)
    }
}

impl Ia {
    /// Opens an adapter, without a dispatcher for its asynchronous errors.
    pub(crate) fn open_without_evd(adapter: &Adapter) -> Result<Self> {
        let device = adapter.device().clone();
        if adapter.opened().len() >= MAX_OPEN {
            return Err(Error::new(ErrorKind::InsufficientResources, Subtype::None));
        }
        let cm = device.create_cm().or_device(Subtype::ResourceDevice)?;
        let inner = Arc::new(IaInner {
            adapter: adapter.clone(),
            host: device.host().clone(),
            attr: IaAttr::new(device.name(), device.attr()),
            channel: device.create_comp_channel().ok(),
            device,
            cm,
            wakeup: EventCount::new(),
            ending: Arc::default(),
            spare: OnceLock::new(),
            eps: Mutex::default(),
            sps: Mutex::default(),
            evds: Mutex::default(),
            srqs: Mutex::default(),
            async_evd: OnceLock::new(),
            dispatching: Mutex::default(),
            has_dispatch_thread: AtomicBool::new(false),
            labels: AtomicU64::new(2),
            label: AtomicU64::new(1),
            uses: UseCount::default(),
        });
        lock(&adapter.0.open).push(Arc::downgrade(&inner));
        Ok(Self(inner))
    }

    /// Its attributes (`dat_ia_query`).
    pub fn attr(&self) -> &IaAttr {
        &self.0.attr
    }

    /// The device below.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Its label in events.
    pub fn label(&self) -> Label {
        self.0.label.load(Ordering::Relaxed)
    }

    /// Changes its label.
    pub fn set_label(&self, label: Label) {
        self.0.label.store(label, Ordering::Relaxed);
    }
}

impl IaInner {
    pub(crate) fn next_label(&self) -> Label {
        self.labels.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn create_cq(&self, entries: u32) -> verbs::Result<Cq> {
        match &self.channel {
            Some(channel) => self.device.create_cq_with(entries, channel),
            None => self.device.create_cq(entries),
        }
    }

    /// The queue of endpoints without a dispatcher on one side. Nothing ever completes in it.
    pub(crate) fn spare_cq(&self) -> verbs::Result<&Cq> {
        if self.spare.get().is_none() {
            let cq = self.device.create_cq(1)?;
            // Another thread may have set it first.
            let _ = self.spare.set(cq);
        }
        Ok(self.spare.get().expect("set above"))
    }

    /// The event source of threads that wait for any event of the adapter.
    pub(crate) fn any_event_source(&self) -> impl Source + '_ {
        AnyEvent(self)
    }

    /// Wakes the threads that wait for any event of the adapter.
    pub(crate) fn wake_waiters(&self) {
        self.host.notify(&self.wakeup);
    }

    /// Dispatches the device's events; returns false if another thread does so already, which then wakes the threads
    /// concerned.
    pub(crate) fn dispatch(self: &Arc<Self>) -> bool {
        let Some(_turn) = try_lock(&self.dispatching) else { return false };
        let mut any = false;
        while let Some(event) = self.cm.poll_event() {
            any = true;
            self.handle_connection_event(event);
        }
        while let Some(event) = self.device.poll_async_event() {
            any = true;
            self.handle_async_event(event);
        }
        any
    }

    /// Informs dispatchers whose queues have been notified.
    pub(crate) fn dispatch_channel(&self) {
        let Some(channel) = &self.channel else { return };
        let mut any = false;
        while let Some(id) = channel.poll_event() {
            let evd = lock(&self.evds).get(&id).and_then(Weak::upgrade);
            if let Some(evd) = evd {
                evd.notify();
                any = true;
            }
        }
        if any {
            self.wake_waiters();
        }
    }

    /// Dispatches a connection event.
    fn handle_connection_event(&self, event: CmEvent) {
        let qp_num = match event {
            CmEvent::ConnectRequest(request) => {
                let sp = lock(&self.sps).get(&request.info.local.port()).and_then(Weak::upgrade);
                // Without a service point the request is dropped, which rejects it.
                if let Some(sp) = sp {
                    sp.handle_request(request);
                }
                return;
            }
            CmEvent::Established { qp_num, .. }
            | CmEvent::Rejected { qp_num, .. }
            | CmEvent::ConnectFailed { qp_num, .. }
            | CmEvent::Disconnected { qp_num } => qp_num,
        };
        if let Some(ep) = self.endpoint_by_number(qp_num) {
            ep.handle_event(event);
        }
    }

    /// Dispatches an asynchronous error. The device returns it to only one of its adapters, the first that polls.
    fn handle_async_event(&self, event: AsyncEvent) {
        for ia in self.adapter.opened() {
            let found = match event {
                AsyncEvent::CqError { cq } => {
                    let evd = lock(&ia.evds).get(&cq).and_then(Weak::upgrade);
                    evd.map(|evd| (evd.label(), AsyncKind::EvdOverflow, EVD_OVERFLOW_ERROR))
                }
                AsyncEvent::QpAccessError { qp_num } => {
                    let ep = ia.endpoint_by_number(qp_num);
                    ep.map(|ep| (ep.label(), AsyncKind::EpBroken, EP_TRANSFER_TO_ERROR))
                }
                AsyncEvent::SrqLimitReached { srq } => {
                    // Collected first: this thread may drop the last handle of a queue, which takes the same lock.
                    let srqs: Vec<_> = lock(&ia.srqs).values().filter_map(Weak::upgrade).collect();
                    srqs.iter()
                        .find(|own| own.id() == srq)
                        .map(|srq| (srq.label(), AsyncKind::ProviderInternal, SRQ_LOW_WATERMARK))
                }
                _ => None,
            };
            if let Some((object, kind, reason)) = found {
                return ia.report(object, kind, reason);
            }
        }
    }

    /// Reports that a dispatcher lost events.
    pub(crate) fn report_overflow(&self, evd: Label) {
        self.report(evd, AsyncKind::EvdOverflow, EVD_OVERFLOW_ERROR);
    }

    fn report(&self, object: Label, kind: AsyncKind, reason: i32) {
        if let Some(evd) = self.async_evd.get().and_then(Weak::upgrade) {
            evd.report(object, kind, reason);
        }
    }

    /// The endpoint with this queue pair.
    pub(crate) fn endpoint_by_number(&self, qp_num: u32) -> Option<Arc<dyn Endpoint>> {
        lock(&self.eps).get(&qp_num).and_then(Weak::upgrade)
    }

    /// A receive from a shared queue has completed: returns the label of its endpoint, and its cookie.
    #[cold]
    pub(crate) fn take_shared_receive(&self, wc: &Wc) -> Option<(Label, u64)> {
        let number = ((wc.wr_id & !SHARED) >> NUMBER_SHIFT) as u32;
        let srq = lock(&self.srqs).get(&number).and_then(Weak::upgrade)?;
        // The receive is consumed, whether its endpoint still exists or not.
        let cookie = srq.take(wc.wr_id as u32)?;
        Some((self.endpoint_by_number(wc.qp_num)?.label(), cookie))
    }

    /// Reports a failed request to its endpoint, unless it was flushed because its connection had ended.
    #[cold]
    pub(crate) fn request_failed(&self, wc: &Wc) {
        if wc.status != WcStatus::WrFlushErr
            && let Some(ep) = self.endpoint_by_number(wc.qp_num)
        {
            ep.request_failed();
        }
    }

    /// The deadline of a wait of at most `span`.
    pub(crate) fn deadline(&self, span: Option<Span>) -> Option<Time> {
        span.and_then(|span| self.host.after(span))
    }

    /// Starts the dispatch thread, so that connections make progress while all other threads sleep.
    pub(crate) fn start_dispatch_thread(self: &Arc<Self>) {
        if self.host.node().is_some() || self.has_dispatch_thread.swap(true, Ordering::AcqRel) {
            return;
        }
        let (weak, host) = (Arc::downgrade(self), self.host.clone());
        let source = (self.cm.clone(), self.ending.clone());
        let body = move || {
            // As in every thread that may copy to and from the program's memory.
            let _ = uaccess::unblock();
            let poll = || match weak.upgrade() {
                Some(ia) => ia.dispatch().then_some(true),
                None => Some(false),
            };
            let run = || host.wait("dapl-dispatch", &source, host.after(DISPATCH_CHECK_INTERVAL), poll);
            while run() != Some(false) {}
        };
        if self.host.spawn("dapl-dispatch", None, body).is_err() {
            // Threads that poll a dispatcher still dispatch events.
            self.has_dispatch_thread.store(false, Ordering::Release);
        }
    }
}

impl Drop for IaInner {
    fn drop(&mut self) {
        self.ending.notify();
    }
}

/// The event source of threads that wait for any event of the adapter.
struct AnyEvent<'i>(&'i IaInner);

impl Source for AnyEvent<'_> {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.0.wakeup.prepare_wait(wakes);
        self.0.channel.iter().for_each(|channel| channel.prepare_wait(wakes));
    }
}
