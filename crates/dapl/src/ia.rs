//! [`Ia`], an open interface adapter, on an [`Adapter`]: a device that several of them share.
//!
//! Connections and asynchronous errors come from the device in one stream for each adapter. Whoever looks at a dispatcher that
//! such events may feed hands out what has come ([`IaInner::dispatch`]). In real time a thread does that, too, so that one may
//! sleep on a dispatcher that also carries completions; it begins with the first service point or connect.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use host::{Bell, Host, Source, Span, Wakes};
use verbs::{AsyncEvent, Cm, CompChannel, Cq, Device, Wc};

use crate::attr::IaAttr;
use crate::ep::EpInner;
use crate::error::OrDevice;
use crate::evd::{EvdInner, WeakEvd};
use crate::sp::SpInner;
use crate::srq::SrqInner;
use crate::sync::{Uses, lock, try_lock};
use crate::{AsyncKind, Error, Evd, EvdFlags, Event, Kind, Label, Result, Subtype};

/// Adapters that may be open on one device.
const MAX_OPEN: usize = 1024;

/// How long the thread that hands out events sleeps before it looks whether it is still wanted.
const PORTER_TURN: Span = Span::from_ms(500);

/// Reasons of asynchronous events, by the standard's numbers.
const EP_TRANSFER_TO_ERROR: i32 = 0;
const EVD_OVERFLOW_ERROR: i32 = 0;
const SRQ_LOW_WATERMARK: i32 = 2;

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
    pub(crate) eps: Mutex<BTreeMap<u32, Weak<EpInner>>>,
    pub(crate) sps: Mutex<BTreeMap<u16, Weak<SpInner>>>,
    pub(crate) evds: Mutex<BTreeMap<u32, WeakEvd>>,
    pub(crate) srqs: Mutex<BTreeMap<u32, Weak<SrqInner>>>,
    async_evd: Mutex<WeakEvd>,
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
    /// Opens an adapter, and makes a dispatcher for its asynchronous errors, unless 0 is asked for (`dat_ia_open`).
    ///
    /// # Errors
    /// `InsufficientResources` when too many are open, or the device can give no more.
    pub fn open(adapter: &Adapter, async_qlen: u32) -> Result<(Self, Option<Evd>)> {
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
            async_evd: Mutex::default(),
            dispatching: Mutex::default(),
            has_porter: AtomicBool::new(false),
            labels: AtomicU64::new(2),
            label: AtomicU64::new(1),
            uses: Uses::default(),
        });
        lock(&adapter.0.open).push(Arc::downgrade(&inner));
        let ia = Self(inner);
        if async_qlen == 0 {
            return Ok((ia, None));
        }
        let evd = Evd::create(&ia, async_qlen.min(ia.0.attr.max_evd_qlen), None, EvdFlags::ASYNC)?;
        *lock(&ia.0.async_evd) = Arc::downgrade(&evd.0);
        Ok((ia, Some(evd)))
    }

    /// What it can do (`dat_ia_query`).
    pub fn attr(&self) -> &IaAttr {
        &self.0.attr
    }

    /// The device below.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Whether it has no objects but `own` of the caller's, so that it may be closed gracefully (`dat_ia_close`).
    ///
    /// # Errors
    /// `InvalidState`.
    pub fn check_unused(&self, own: Option<&Evd>) -> Result<()> {
        let kept = usize::from(own.is_some());
        if self.0.uses.count() > kept { Err(Error::state(Subtype::IaInUse)) } else { Ok(()) }
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

    /// An error outside of any request. The device tells one of its adapters, whoever asks first.
    fn asynchronous(&self, event: AsyncEvent) {
        for ia in self.adapter.opened() {
            let found = match event {
                AsyncEvent::CqError { cq } => {
                    let evd = lock(&ia.evds).get(&cq).and_then(Weak::upgrade).map(Evd);
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
        let evd = lock(&self.async_evd).upgrade();
        if let Some(evd) = evd {
            // A full one loses it; there is nowhere left to report that.
            evd.push_bounded(Event::Async { object, kind, reason });
        }
    }

    /// The endpoint with this queue pair.
    pub(crate) fn ep(&self, qp_num: u32) -> Option<Arc<EpInner>> {
        lock(&self.eps).get(&qp_num).and_then(Weak::upgrade)
    }

    /// The event of a receive from a shared queue.
    #[cold]
    pub(crate) fn shared_receive(&self, wc: &Wc) -> Option<(Event, bool)> {
        let srq = lock(&self.srqs).get(&crate::srq::number(wc.wr_id)).and_then(Weak::upgrade)?;
        let ep = self.ep(wc.qp_num);
        // The receive is used up, whether its endpoint is still there or not.
        srq.complete(wc, ep.as_ref().map_or(0, |ep| ep.label())).filter(|_| ep.is_some())
    }

    /// From now on somebody sees to it that connections proceed while everybody sleeps.
    pub(crate) fn start_porter(self: &Arc<Self>) {
        if self.host.node().is_some() || self.has_porter.swap(true, Ordering::AcqRel) {
            return;
        }
        let (weak, host) = (Arc::downgrade(self), self.host.clone());
        let source = (self.cm.clone(), self.ending.clone());
        let body = move || {
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

/// A dispatcher's own adapter.
impl EvdInner {
    pub(crate) fn is_of(&self, ia: &Arc<IaInner>) -> bool {
        Arc::ptr_eq(&self.ia, ia)
    }
}
