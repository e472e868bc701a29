//! [`Ia`], an open interface adapter, on an [`Adapter`]: a device that several of them share.
//!
//! Connections and asynchronous errors come from the device in one stream for each adapter. Whoever looks at a dispatcher that
//! such events may feed hands out what has come ([`IaInner::dispatch`]). In real time a thread does that, too, so that one may
//! sleep on a dispatcher that also carries completions; it begins with the first service point or connect.
//!
//! The adapter knows its objects by number, and only as whom it tells something: [`Endpoint`], [`ServicePoint`], [`Dispatcher`],
//! [`SharedReceives`]. So what is made on an adapter uses it, and it uses none of them.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use host::{Bell, Host, Source, Span, Time, Wakes};
use verbs::{AsyncEvent, Cm, CmEvent, CompChannel, ConnectRequest, Cq, Device, Wc, WcStatus};

use crate::attr::{AsyncKind, IaAttr, Label};
use crate::error::OrDevice;
use crate::sync::{Uses, lock, try_lock};
use crate::{Error, Kind, Result, Subtype};

/// Adapters that may be open on one device.
const MAX_OPEN: usize = 1024;

/// How long the thread that hands out events sleeps before it looks whether it is still wanted.
const PORTER_TURN: Span = Span::from_ms(500);

/// Reasons of asynchronous events, by the standard's numbers.
const EP_TRANSFER_TO_ERROR: i32 = 0;
const EVD_OVERFLOW_ERROR: i32 = 0;
const SRQ_LOW_WATERMARK: i32 = 2;

/// What the adapter tells an endpoint; by the number of its queue pair.
pub(crate) trait Endpoint: Any + Send + Sync {
    /// What events call it.
    fn label(&self) -> Label;
    /// Something happened to its connection.
    fn heard(&self, event: CmEvent);
    /// A request of its own failed, and not because its connection had ended.
    fn request_failed(&self);
}

/// What the adapter tells a service point; by its port.
pub(crate) trait ServicePoint: Send + Sync {
    /// A request has come.
    fn requested(&self, request: ConnectRequest);
}

/// What the adapter tells an event dispatcher; by the number of its completion queue.
pub(crate) trait Dispatcher: Send + Sync {
    /// What events call it.
    fn label(&self) -> Label;
    /// The device has announced what the queue was armed for.
    fn notify(&self);
    /// An object has an error outside of any request. A full dispatcher loses it; there is nowhere left to report that.
    fn report(&self, object: Label, kind: AsyncKind, reason: i32);
}

/// What the adapter tells a shared receive queue; by its number.
pub(crate) trait SharedReceives: Send + Sync {
    /// What events call it.
    fn label(&self) -> Label;
    /// What the device calls it.
    fn id(&self) -> u32;
    /// A receive is used up: its cookie.
    fn take(&self, receive: u32) -> Option<u64>;
}

/// A request's number says by its first bit that it is a shared receive, then of which queue, then which.
const SHARED: u64 = 1 << 63;
const NUMBER_SHIFT: u32 = 32;

/// The number of a receive that is posted to shared queue number `queue`.
pub(crate) fn shared_wr_id(queue: u32, receive: u32) -> u64 {
    SHARED | u64::from(queue) << NUMBER_SHIFT | u64::from(receive)
}

/// Whether a completion is of a shared receive.
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
    /// An adapter on this device.
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
    /// Where queues of completions report, for those who wait for several, or for solicited ones.
    pub(crate) channel: Option<CompChannel>,
    /// Rung for whatever else they wait for.
    bell: Bell,
    /// Rung when the thread that hands out events is to end.
    ending: Arc<Bell>,
    /// For endpoints without a dispatcher on one side.
    spare: OnceLock<Cq>,
    pub(crate) eps: Mutex<BTreeMap<u32, Weak<dyn Endpoint>>>,
    pub(crate) sps: Mutex<BTreeMap<u16, Weak<dyn ServicePoint>>>,
    pub(crate) evds: Mutex<BTreeMap<u32, Weak<dyn Dispatcher>>>,
    pub(crate) srqs: Mutex<BTreeMap<u32, Weak<dyn SharedReceives>>>,
    /// Where errors outside of requests go, once there is a place.
    pub(crate) async_evd: OnceLock<Weak<dyn Dispatcher>>,
    dispatching: Mutex<()>,
    has_porter: AtomicBool,
    labels: AtomicU64,
    label: AtomicU64,
    pub(crate) uses: Uses,
}

impl std::fmt::Debug for Ia {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ia({:?})", self.0.device)
    }
}

impl Ia {
    /// Opens an adapter, without a dispatcher for its asynchronous errors.
    pub(crate) fn open_silent(adapter: &Adapter) -> Result<Self> {
        let device = adapter.device().clone();
        if adapter.opened().len() >= MAX_OPEN {
            return Err(Error::new(Kind::InsufficientResources, Subtype::None));
        }
        let cm = device.create_cm().or_device(Subtype::ResourceDevice)?;
        let inner = Arc::new(IaInner {
            adapter: adapter.clone(),
            host: device.host().clone(),
            attr: IaAttr::of(device.name(), device.attr()),
            channel: device.create_comp_channel().ok(),
            device,
            cm,
            bell: Bell::new(),
            ending: Arc::default(),
            spare: OnceLock::new(),
            eps: Mutex::default(),
            sps: Mutex::default(),
            evds: Mutex::default(),
            srqs: Mutex::default(),
            async_evd: OnceLock::new(),
            dispatching: Mutex::default(),
            has_porter: AtomicBool::new(false),
            labels: AtomicU64::new(2),
            label: AtomicU64::new(1),
            uses: Uses::default(),
        });
        lock(&adapter.0.open).push(Arc::downgrade(&inner));
        Ok(Self(inner))
    }

    /// What it can do (`dat_ia_query`).
    pub fn attr(&self) -> &IaAttr {
        &self.0.attr
    }

    /// The device below.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// What events call it.
    pub fn label(&self) -> Label {
        self.0.label.load(Ordering::Relaxed)
    }

    /// Changes what events call it.
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

    /// The queue of endpoints that have no dispatcher on one side. Nothing ever completes there.
    pub(crate) fn spare_cq(&self) -> verbs::Result<&Cq> {
        if self.spare.get().is_none() {
            let cq = self.device.create_cq(1)?;
            // Somebody else may have been faster.
            let _ = self.spare.set(cq);
        }
        Ok(self.spare.get().expect("it was set above"))
    }

    /// What wakes those who wait for whatever comes to the adapter.
    pub(crate) fn shared(&self) -> impl Source + '_ {
        Shared(self)
    }

    /// Wakes those who wait for whatever comes to the adapter.
    pub(crate) fn ring(&self) {
        self.host.ring(&self.bell);
    }

    /// Hands out what has come from the device; nothing if somebody else is at it, who then wakes whom it concerns.
    pub(crate) fn dispatch(self: &Arc<Self>) -> bool {
        let Some(_turn) = try_lock(&self.dispatching) else { return false };
        let mut any = false;
        while let Some(event) = self.cm.poll_event() {
            any = true;
            self.connection(event);
        }
        while let Some(event) = self.device.poll_async_event() {
            any = true;
            self.asynchronous(event);
        }
        any
    }

    /// Tells dispatchers that their queues have announced something.
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
            self.ring();
        }
    }

    /// Something happened to a connection, or wants to become one.
    fn connection(&self, event: CmEvent) {
        let qp_num = match event {
            CmEvent::ConnectRequest(request) => {
                let sp = lock(&self.sps).get(&request.info.local.port()).and_then(Weak::upgrade);
                // If nobody listens any more: dropped, it is rejected.
                if let Some(sp) = sp {
                    sp.requested(request);
                }
                return;
            }
            CmEvent::Established { qp_num, .. }
            | CmEvent::Rejected { qp_num, .. }
            | CmEvent::ConnectFailed { qp_num, .. }
            | CmEvent::Disconnected { qp_num } => qp_num,
        };
        if let Some(ep) = self.ep(qp_num) {
            ep.heard(event);
        }
    }

    /// An error outside of any request. The device tells one of its adapters, whoever asks first.
    fn asynchronous(&self, event: AsyncEvent) {
        for ia in self.adapter.opened() {
            let found = match event {
                AsyncEvent::CqError { cq } => {
                    let evd = lock(&ia.evds).get(&cq).and_then(Weak::upgrade);
                    evd.map(|evd| (evd.label(), AsyncKind::EvdOverflow, EVD_OVERFLOW_ERROR))
                }
                AsyncEvent::QpAccessError { qp_num } => {
                    let ep = ia.ep(qp_num);
                    ep.map(|ep| (ep.label(), AsyncKind::EpBroken, EP_TRANSFER_TO_ERROR))
                }
                AsyncEvent::SrqLimitReached { srq } => {
                    // Collected first: the last user of a queue may be this one, and its end takes the same lock.
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

    /// A dispatcher lost events.
    pub(crate) fn overflow(&self, evd: Label) {
        self.report(evd, AsyncKind::EvdOverflow, EVD_OVERFLOW_ERROR);
    }

    fn report(&self, object: Label, kind: AsyncKind, reason: i32) {
        if let Some(evd) = self.async_evd.get().and_then(Weak::upgrade) {
            evd.report(object, kind, reason);
        }
    }

    /// The endpoint with this queue pair.
    pub(crate) fn ep(&self, qp_num: u32) -> Option<Arc<dyn Endpoint>> {
        lock(&self.eps).get(&qp_num).and_then(Weak::upgrade)
    }

    /// A receive from a shared queue is done: what events call its endpoint, and the receive's cookie.
    #[cold]
    pub(crate) fn shared_receive(&self, wc: &Wc) -> Option<(Label, u64)> {
        let number = ((wc.wr_id & !SHARED) >> NUMBER_SHIFT) as u32;
        let srq = lock(&self.srqs).get(&number).and_then(Weak::upgrade)?;
        // The receive is used up, whether its endpoint is still there or not.
        let cookie = srq.take(wc.wr_id as u32)?;
        Some((self.ep(wc.qp_num)?.label(), cookie))
    }

    /// A request failed. If that was not because its connection had ended, its endpoint is told.
    #[cold]
    pub(crate) fn request_failed(&self, wc: &Wc) {
        if wc.status != WcStatus::WrFlushErr
            && let Some(ep) = self.ep(wc.qp_num)
        {
            ep.request_failed();
        }
    }

    /// Until when a wait of at most `span` may last.
    pub(crate) fn deadline(&self, span: Option<Span>) -> Option<Time> {
        span.and_then(|span| self.host.after(span))
    }

    /// From now on somebody sees to it that connections proceed while everybody sleeps.
    pub(crate) fn start_porter(self: &Arc<Self>) {
        if self.host.node().is_some() || self.has_porter.swap(true, Ordering::AcqRel) {
            return;
        }
        let (weak, host) = (Arc::downgrade(self), self.host.clone());
        let source = (self.cm.clone(), self.ending.clone());
        let body = move || {
            // As every thread that may copy to and from the program's memory.
            let _ = uaccess::unblock();
            let look = || match weak.upgrade() {
                Some(ia) => ia.dispatch().then_some(true),
                None => Some(false),
            };
            let turn = || host.wait("dapl-porter", &source, host.after(PORTER_TURN), look);
            while turn() != Some(false) {}
        };
        if self.host.spawn("dapl-porter", None, body).is_err() {
            // Whoever looks at a dispatcher still hands out events.
            self.has_porter.store(false, Ordering::Release);
        }
    }
}

impl Drop for IaInner {
    fn drop(&mut self) {
        self.ending.ring();
    }
}

struct Shared<'i>(&'i IaInner);

impl Source for Shared<'_> {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        self.0.bell.prepare_wait(wakes);
        self.0.channel.iter().for_each(|channel| channel.prepare_wait(wakes));
    }
}
