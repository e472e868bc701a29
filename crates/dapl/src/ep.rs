//! Data path: post. [`Ep`], an endpoint: one side of a connection, with its queues and posted work.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::{Lock, LockGuard};
use verbs::{Data, Qp, QpCap, QpInit, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge};

use crate::attr::{EpAttr, EpState};
use crate::config::{CheckedConfig, EpConfig};
use crate::error::OrDevice;
use crate::event::Dto;
use crate::ia::{Endpoint, IaInner};
use crate::sync::{UseGuard, lock};
use crate::work_queue::{RequestInfo, WorkQueue};
use crate::{CompletionFlags, Error, ErrorKind, Evd, Event, Ia, Label, Pz, Result, Subtype};

/// An endpoint (`DAT_EP`); cheap to clone. Dropping the last handle disconnects.
#[derive(Clone)]
pub struct Ep(pub(crate) Arc<EpInner>);

pub(crate) struct EpInner {
    pub(crate) ia: Arc<IaInner>,
    _use: UseGuard,
    pub(crate) config: Mutex<CheckedConfig>,
    send: Lock<EpQueue>,
    recv: Lock<EpQueue>,
    state: AtomicU8,
    pub(crate) link: Mutex<RemoteEnd>,
    label: AtomicU64,
}

/// One direction of an endpoint: its requests, or its receives.
#[derive(Default)]
pub(crate) struct EpQueue {
    pub(crate) qp: Option<Arc<Qp>>,
    work_queue: Option<(Arc<WorkQueue>, Evd)>,
    tag: u64,
    /// The number of the next request.
    head: u32,
    /// Requests since the last signaled one.
    unsignaled: u32,
    /// The last signaled request.
    last_signaled: Option<u32>,
    max_iov: usize,
}

/// The other end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteEnd {
    /// Its address.
    pub remote: Option<SocketAddr>,
    /// The qualifier of its service point, or this side's.
    pub conn_qual: u64,
}

impl std::fmt::Debug for Ep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Ep({:?})", self.state())
    }
}

impl Ep {
    /// Creates an endpoint (`dat_ep_create`, `dat_ep_create_with_srq`).
    ///
    /// # Errors
    /// `InvalidHandle`, with the object that belongs to another adapter or has the wrong flags; argument 6 for sizes that
    /// are inconsistent or exceed the device's; resources.
    pub fn create(ia: &Ia, config: EpConfig) -> Result<Self> {
        let state = if config.pz.is_some() { EpState::Unconnected } else { EpState::UnconfiguredUnconnected };
        Self::create_in_state(&ia.0, config, state)
    }

    /// Creates an endpoint that begins in a state.
    pub(crate) fn create_in_state(ia: &Arc<IaInner>, given: EpConfig, state: EpState) -> Result<Self> {
        let config = CheckedConfig::new(ia, given)?;
        let inner = Arc::new(EpInner {
            ia: ia.clone(),
            _use: ia.uses.add(),
            config: Mutex::new(config),
            send: Lock::default(),
            recv: Lock::default(),
            state: AtomicU8::new(state as u8),
            link: Mutex::default(),
            label: AtomicU64::new(ia.next_label()),
        });
        inner.build()?;
        Ok(Self(inner))
    }

    /// Changes its configuration (`dat_ep_modify`).
    ///
    /// # Errors
    /// As [`Ep::create`]; `InvalidState` unless it is unconnected or has a connection request that is not answered yet, and no
    /// receive is posted.
    pub fn modify(&self, change: impl FnOnce(&mut EpConfig)) -> Result<()> {
        let inner = &self.0;
        let state = self.state();
        let fresh = match state {
            EpState::Unconnected | EpState::UnconfiguredUnconnected => EpState::Unconnected,
            EpState::TentativeConnectionPending | EpState::UnconfiguredTentative => {
                EpState::TentativeConnectionPending
            }
            _ => return Err(inner.state_error()),
        };
        if !inner.lock_recv().is_idle() {
            return Err(inner.state_error());
        }
        let mut given = lock(&inner.config).given.clone();
        change(&mut given);
        let configured = given.pz.is_some();
        let config = CheckedConfig::new(&inner.ia, given)?;
        inner.tear_down();
        *lock(&inner.config) = config;
        inner.build()?;
        if configured {
            inner.set_state(fresh);
        }
        Ok(())
    }

    /// Its current state (`dat_ep_get_status`).
    pub fn state(&self) -> EpState {
        self.0.ia.dispatch();
        self.0.state()
    }

    /// `InvalidState`, with the current state as the subtype.
    pub fn state_error(&self) -> Error {
        self.0.state_error()
    }

    /// Whether no receive, and whether no request, is in flight.
    pub fn idle(&self) -> (bool, bool) {
        (self.0.lock_recv().is_idle(), self.0.lock_send().is_idle())
    }

    /// Its configuration (`dat_ep_query`).
    pub fn config(&self) -> (EpConfig, EpAttr) {
        let config = lock(&self.0.config);
        (config.given.clone(), config.attr)
    }

    /// The other end of its connection.
    pub fn link(&self) -> RemoteEnd {
        *lock(&self.0.link)
    }

    /// The number of posted receives (`dat_ep_recv_query`).
    pub fn posted_recvs(&self) -> u32 {
        self.0.lock_recv().in_flight()
    }

    /// Sends a message (`dat_ep_post_send`).
    ///
    /// # Errors
    /// Argument 2 for too many segments; `LengthError` for a message beyond every device's limit; `InvalidState` unless
    /// connected, or disconnected (the request is then flushed); `InsufficientResources` when the queue is full.
    #[inline]
    pub fn post_send(&self, iov: &[Sge], cookie: u64, flags: CompletionFlags) -> Result<()> {
        self.0.post(SendOp::Send, Dto::Send, iov, cookie, flags)
    }

    /// Sends as [`Ep::post_send`] does, and invalidates the peer's region with the remote context `rmr`
    /// (`dat_ep_post_send_with_invalidate`).
    ///
    /// # Errors
    /// As [`Ep::post_send`].
    pub fn post_send_with_invalidate(
        &self,
        iov: &[Sge],
        cookie: u64,
        flags: CompletionFlags,
        rmr: u32,
    ) -> Result<()> {
        self.0.post(SendOp::SendInv(rmr), Dto::Send, iov, cookie, flags)
    }

    /// Writes into the peer's memory (`dat_ep_post_rdma_write`). `remote_length` is the length of the peer's segment.
    ///
    /// # Errors
    /// As [`Ep::post_send`]; `LengthError` for more than `remote_length`.
    #[inline]
    pub fn post_rdma_write(
        &self,
        iov: &[Sge],
        cookie: u64,
        remote: RemoteAddr,
        remote_length: u32,
        flags: CompletionFlags,
    ) -> Result<()> {
        check_remote(iov, remote_length)?;
        self.0.post(SendOp::Write(remote), Dto::RdmaWrite, iov, cookie, flags)
    }

    /// Reads from the peer's memory (`dat_ep_post_rdma_read`).
    ///
    /// # Errors
    /// As [`Ep::post_rdma_write`].
    #[inline]
    pub fn post_rdma_read(
        &self,
        iov: &[Sge],
        cookie: u64,
        remote: RemoteAddr,
        remote_length: u32,
        flags: CompletionFlags,
    ) -> Result<()> {
        check_remote(iov, remote_length)?;
        self.0.post(SendOp::Read(remote), Dto::RdmaRead, iov, cookie, flags)
    }

    /// Posts a receive (`dat_ep_post_recv`).
    ///
    /// # Errors
    /// Argument 2 for too many segments; `InvalidState` without a zone or dispatcher for it, or with a shared receive queue;
    /// `InsufficientResources` when the queue is full.
    #[inline]
    pub fn post_recv(&self, iov: &[Sge], cookie: u64, flags: CompletionFlags) -> Result<()> {
        let length = length(iov)?;
        let unsignalled = flags.contains(CompletionFlags::UNSIGNALLED);
        let wanted = RequestInfo { cookie, length, operation: Dto::Receive, suppressed: false, unsignalled };
        let post = || self.0.try_recv(iov, wanted);
        self.0.post_or_retry(self.0.try_recv(iov, wanted), &self.0.recv, post)
    }

    /// Its label in events.
    pub fn label(&self) -> Label {
        self.0.label()
    }

    /// Changes its label in events.
    pub fn set_label(&self, label: Label) {
        self.0.label.store(label, Ordering::Relaxed);
        for side in [&self.0.send, &self.0.recv] {
            if let Some((work_queue, _)) = &side.lock(&self.0.ia.host).work_queue {
                work_queue.set_label(label);
            }
        }
    }

    /// Whether a remote region of this zone may be bound through it.
    pub(crate) fn check_bindable(&self, pz: &Pz) -> Result<()> {
        if self.0.state() != EpState::Connected {
            return Err(self.0.state_error());
        }
        let own = lock(&self.0.config).given.pz.as_ref().is_some_and(|own| Arc::ptr_eq(&own.0, &pz.0));
        if own { Ok(()) } else { Err(Error::handle(Subtype::HandleEp)) }
    }

    /// A bind has taken effect; its event is reported in the order of the requests.
    pub(crate) fn report_bind(&self, event: Event, flags: CompletionFlags) {
        let Some(evd) = self.0.lock_send().evd() else { return };
        // No completion is taken meanwhile: either the bind sees that the request before it has completed, or that
        // completion sees the bind.
        let mut completions = evd.0.lock_completions();
        let mut side = self.0.lock_send();
        let Some((work_queue, _)) = side.work_queue.clone() else { return };
        let ticket = side.head;
        side.head = ticket.wrapping_add(1);
        let event = (!flags.contains(CompletionFlags::SUPPRESS)).then_some(event);
        let ready = work_queue.add_bind(&mut completions.token, ticket, side.last_signaled, event);
        drop((side, completions));
        ready.into_iter().for_each(|event| evd.0.queue_and_wake(event));
    }
}

/// Why nothing was posted.
pub(crate) enum PostError {
    /// No queue pair, or no dispatcher.
    NotReady,
    /// Too many segments.
    Pieces,
    /// No room.
    Full,
    /// The device's error.
    Device(verbs::Error),
}

impl EpInner {
    pub(crate) fn state(&self) -> EpState {
        use EpState as S;
        const ALL: [EpState; 11] = [
            S::Unconnected,
            S::UnconfiguredUnconnected,
            S::Reserved,
            S::PassiveConnectionPending,
            S::ActiveConnectionPending,
            S::TentativeConnectionPending,
            S::UnconfiguredTentative,
            S::Connected,
            S::DisconnectPending,
            S::Disconnected,
            S::CompletionPending,
        ];
        let state = self.state.load(Ordering::Acquire);
        ALL.into_iter().find(|known| *known as u8 == state).unwrap_or(S::Disconnected)
    }

    pub(crate) fn set_state(&self, state: EpState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Changes the state from one to another.
    ///
    /// # Errors
    /// `InvalidState` from any other state than `from`.
    pub(crate) fn transition(&self, from: EpState, to: EpState) -> Result<()> {
        let (from, to) = (from as u8, to as u8);
        match self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(_) => Err(self.state_error()),
        }
    }

    /// `InvalidState`, with the current state as the subtype.
    pub(crate) fn state_error(&self) -> Error {
        use EpState as S;
        Error::state(match self.state() {
            S::Unconnected => Subtype::EpUnconnected,
            S::UnconfiguredUnconnected | S::UnconfiguredTentative => Subtype::EpUnconfigured,
            S::Reserved => Subtype::EpReserved,
            S::PassiveConnectionPending => Subtype::EpPassiveConnectionPending,
            S::ActiveConnectionPending => Subtype::EpActiveConnectionPending,
            S::TentativeConnectionPending => Subtype::EpTentativeConnectionPending,
            S::Connected => Subtype::EpConnected,
            S::DisconnectPending => Subtype::EpDisconnectPending,
            S::Disconnected => Subtype::EpDisconnected,
            S::CompletionPending => Subtype::EpCompletionPending,
        })
    }

    pub(crate) fn label(&self) -> Label {
        self.label.load(Ordering::Relaxed)
    }

    /// The state of the request queue, locked.
    #[inline]
    pub(crate) fn lock_send(&self) -> LockGuard<'_, EpQueue> {
        self.send.lock(&self.ia.host)
    }

    /// The state of the receive queue, locked.
    #[inline]
    pub(crate) fn lock_recv(&self) -> LockGuard<'_, EpQueue> {
        self.recv.lock(&self.ia.host)
    }

    pub(crate) fn qp(&self) -> Option<Arc<Qp>> {
        self.lock_send().qp.clone()
    }

    #[inline]
    fn post(
        &self,
        op: SendOp,
        operation: Dto,
        iov: &[Sge],
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        let length = length(iov)?;
        let suppressed = flags.contains(CompletionFlags::SUPPRESS);
        let unsignalled = flags.contains(CompletionFlags::UNSIGNALLED);
        let wanted = RequestInfo { cookie, length, operation, suppressed, unsignalled };
        let mut options = SendFlags::empty();
        options.set(SendFlags::SOLICITED, flags.contains(CompletionFlags::SOLICITED_WAIT));
        options.set(SendFlags::FENCE, flags.contains(CompletionFlags::BARRIER_FENCE));
        let post = || self.try_send(op, iov, wanted, options);
        self.post_or_retry(self.try_send(op, iov, wanted, options), &self.send, post)
    }

    /// Posts a request; false if there is no room.
    #[inline(always)]
    fn try_send(
        &self,
        op: SendOp,
        iov: &[Sge],
        wanted: RequestInfo,
        mut flags: SendFlags,
    ) -> Result<bool, PostError> {
        let mut side = self.lock_send();
        let Some((qp, wr_id)) = side.prepare(iov.len(), wanted)? else { return Ok(false) };
        // In a long run of unsignaled requests some are signaled, or their slots would never be known to be free.
        let signaled = !wanted.suppressed || side.must_signal();
        flags.set(SendFlags::SIGNALED, signaled);
        if !has_room(qp.post_send(&SendWr { wr_id, op, data: Data::Sges(iov), flags }))? {
            return Ok(false);
        }
        side.posted(signaled);
        Ok(true)
    }

    /// Posts a receive; false if there is no room.
    #[inline(always)]
    fn try_recv(&self, iov: &[Sge], wanted: RequestInfo) -> Result<bool, PostError> {
        let mut side = self.lock_recv();
        let Some((qp, wr_id)) = side.prepare(iov.len(), wanted)? else { return Ok(false) };
        if !has_room(qp.post_recv(&RecvWr::new(wr_id, iov)))? {
            return Ok(false);
        }
        side.posted(true);
        Ok(true)
    }

    /// Returns the result of posting; without room, polls for completions that may free some, and tries again.
    #[inline]
    fn post_or_retry(
        &self,
        posted: Result<bool, PostError>,
        side: &Lock<EpQueue>,
        post: impl Fn() -> Result<bool, PostError>,
    ) -> Result<()> {
        match posted {
            Ok(true) => Ok(()),
            Ok(false) => self.retry_post(side, &post),
            Err(why) => Err(self.post_error(why)),
        }
    }

    #[cold]
    fn retry_post(&self, side: &Lock<EpQueue>, post: &dyn Fn() -> Result<bool, PostError>) -> Result<()> {
        let evd = side.lock(&self.ia.host).evd();
        if let Some(evd) = evd {
            evd.0.move_completions();
        }
        let posted = post().map_err(|why| self.post_error(why))?;
        if posted { Ok(()) } else { Err(self.post_error(PostError::Full)) }
    }

    #[cold]
    fn post_error(&self, why: PostError) -> Error {
        match why {
            PostError::NotReady if self.state() == EpState::UnconfiguredUnconnected => self.state_error(),
            PostError::NotReady => Error::state(Subtype::EpNotReady),
            PostError::Pieces => Error::argument(Subtype::Arg2),
            PostError::Full => Error::new(ErrorKind::InsufficientResources, Subtype::ResourceMemory),
            PostError::Device(cause @ verbs::Error::WrongState { .. }) => {
                Error { cause: Some(Arc::new(cause)), ..self.state_error() }
            }
            PostError::Device(cause @ verbs::Error::Limit { .. }) => {
                Error { kind: ErrorKind::LengthError, ..Error::device(cause, Subtype::None) }
            }
            PostError::Device(cause) => Error::device(cause, Subtype::ResourceMemory),
        }
    }

    /// Creates a queue pair from the configuration, if that is complete enough for one.
    pub(crate) fn build(self: &Arc<Self>) -> Result<()> {
        let config = lock(&self.config);
        let Some(pz) = config.given.pz.clone() else { return Ok(()) };
        let (given, attr) = (config.given.clone(), config.attr);
        drop(config);
        let queue = |evd: &Option<Evd>| match evd.as_ref().and_then(|evd| evd.0.cq.clone()) {
            Some(cq) => Ok(cq),
            None => self.ia.spare_cq().cloned().or_device(Subtype::ResourceTevd),
        };
        let cap = QpCap {
            max_send_wr: attr.max_request_dtos.max(1),
            max_recv_wr: attr.max_recv_dtos.max(1),
            max_send_sge: attr.max_request_iov.max(1),
            max_recv_sge: attr.max_recv_iov.max(1),
            max_inline: 0,
        };
        let init = QpInit::new(&queue(&given.request_evd)?).recv_cq(&queue(&given.recv_evd)?).cap(cap);
        let init = given.srq.iter().fold(init, |init, srq| init.srq(&srq.0.srq));
        let (label, own) = (self.label(), given.srq.is_none());
        let send = EpQueue::new(given.request_evd, attr.max_request_dtos, attr.max_request_iov, label)?;
        let recv =
            EpQueue::new(given.recv_evd.filter(|_| own), attr.max_recv_dtos, attr.max_recv_iov, label)?;
        let qp = Arc::new(pz.0.pd.create_qp(&init).or_device(Subtype::ResourceTep)?);
        let known: Weak<dyn Endpoint> = Arc::<Self>::downgrade(self);
        lock(&self.ia.eps).insert(qp.num(), known);
        *self.lock_send() = EpQueue { qp: Some(qp.clone()), ..send };
        *self.lock_recv() = EpQueue { qp: Some(qp), ..recv };
        Ok(())
    }

    /// Drops the queue pair, after harvesting its completions.
    pub(crate) fn tear_down(&self) {
        let sides = [&self.send, &self.recv].map(|side| std::mem::take(&mut *side.lock(&self.ia.host)));
        for side in sides {
            if let Some(qp) = &side.qp {
                lock(&self.ia.eps).remove(&qp.num());
            }
            if let Some((work_queue, evd)) = &side.work_queue {
                evd.0.move_completions();
                evd.0.work_queues.release(work_queue.clone());
            }
        }
    }
}

impl Drop for EpInner {
    fn drop(&mut self) {
        self.tear_down();
    }
}

impl EpQueue {
    fn new(evd: Option<Evd>, depth: u32, max_iov: u32, label: Label) -> Result<Self> {
        let Some(evd) = evd else { return Ok(Self::default()) };
        let work_queue = evd.0.work_queues.acquire(depth)?;
        let tag = work_queue.restart(&mut evd.0.lock_completions().token);
        work_queue.set_label(label);
        Ok(Self { work_queue: Some((work_queue, evd)), tag, max_iov: max_iov as usize, ..Self::default() })
    }

    /// Records the next request, and returns its number; `None` if there is no room.
    #[inline]
    fn prepare(&self, pieces: usize, wanted: RequestInfo) -> Result<Option<(&Qp, u64)>, PostError> {
        let (Some(qp), Some((work_queue, _))) = (&self.qp, &self.work_queue) else {
            return Err(PostError::NotReady);
        };
        if pieces > self.max_iov {
            return Err(PostError::Pieces);
        }
        if self.head.wrapping_sub(work_queue.done()) >= work_queue.record_count() {
            return Ok(None);
        }
        work_queue.store_record(self.head, wanted);
        Ok(Some((qp, self.tag | u64::from(self.head))))
    }

    /// Counts the prepared request as posted.
    #[inline]
    fn posted(&mut self, signaled: bool) {
        if signaled {
            (self.unsignaled, self.last_signaled) = (0, Some(self.head));
        } else {
            self.unsignaled += 1;
        }
        self.head = self.head.wrapping_add(1);
    }

    /// Whether no request was signaled for half of the queue.
    fn must_signal(&self) -> bool {
        self.work_queue
            .as_ref()
            .is_some_and(|(work_queue, _)| self.unsignaled + 1 >= work_queue.record_count() / 4)
    }

    /// Whether all signaled requests have completed.
    pub(crate) fn is_idle(&self) -> bool {
        match (&self.work_queue, self.last_signaled) {
            (Some((work_queue, _)), Some(signaled)) => work_queue.is_done(signaled),
            _ => true,
        }
    }

    fn in_flight(&self) -> u32 {
        self.work_queue.as_ref().map_or(0, |(work_queue, _)| self.head.wrapping_sub(work_queue.done()))
    }

    /// Whether a request failed, other than by a flush.
    pub(crate) fn has_failed(&self) -> bool {
        self.work_queue.as_ref().is_some_and(|(work_queue, _)| work_queue.has_failed())
    }

    /// The dispatcher of its completions.
    pub(crate) fn evd(&self) -> Option<Evd> {
        self.work_queue.as_ref().map(|(_, evd)| evd.clone())
    }
}

/// Whether a device has accepted a request, or has no room for it.
#[inline]
fn has_room(posted: verbs::Result<()>) -> Result<bool, PostError> {
    match posted {
        Ok(()) => Ok(true),
        Err(verbs::Error::QueueFull { .. }) => Ok(false),
        Err(cause) => Err(PostError::Device(cause)),
    }
}

#[inline]
fn length(iov: &[Sge]) -> Result<u32> {
    let total: u64 = iov.iter().map(|piece| u64::from(piece.length)).sum();
    u32::try_from(total).map_err(|_| Error::new(ErrorKind::LengthError, Subtype::None))
}

#[inline]
fn check_remote(iov: &[Sge], offered: u32) -> Result<()> {
    if length(iov)? > offered { Err(Error::new(ErrorKind::LengthError, Subtype::None)) } else { Ok(()) }
}
