//! [`Cq`] and [`CompChannel`]: completion queues, and channels to sleep on for completions.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use host::{ClockKind, Source, Time, Wakes};

use crate::provider::{CompChannelOps, CqOps};
use crate::{Device, Error, Result, Wc};

/// A completion queue (`ibv_cq`); cheap to clone.
#[derive(Clone)]
pub struct Cq {
    ops: Arc<dyn CqOps>,
    device: Device,
    /// Whether time is real, where an additional poll costs no charged time.
    is_real: bool,
}

impl std::fmt::Debug for Cq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Cq({}, {} entries)", self.id(), self.cqe())
    }
}

impl Cq {
    pub(crate) fn new(ops: Arc<dyn CqOps>, device: Device) -> Self {
        let is_real = device.host().clock() != ClockKind::Virtual;
        Self { ops, device, is_real }
    }

    /// The device of the completion queue.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number of the completion queue, as returned by [`CompChannel::get_event`] and [`crate::AsyncEvent`].
    #[inline]
    pub fn id(&self) -> u32 {
        self.ops.id()
    }

    /// The size in entries.
    pub fn cqe(&self) -> u32 {
        self.ops.cqe()
    }

    /// Changes the size in entries; pending completions are kept (`ibv_resize_cq`).
    ///
    /// # Errors
    /// [`Error::Limit`] or [`Error::Invalid`] for a size that is too large, zero, or smaller than the number of pending
    /// completions; [`Error::Unsupported`] by devices that cannot resize queues.
    pub fn resize(&self, cqe: u32) -> Result<()> {
        self.device.check_cqe(cqe)?;
        self.ops.resize(cqe)
    }

    /// Takes up to `wcs.len()` completions; returns how many (`ibv_poll_cq`). Completions of one queue of one queue
    /// pair come in the order of its requests.
    ///
    /// # Errors
    /// [`Error::CqOverrun`], and from then on always.
    #[inline]
    pub fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        self.ops.poll(wcs)
    }

    /// Takes one completion, if there is any.
    ///
    /// # Errors
    /// As [`Cq::poll`].
    #[inline]
    pub fn poll_one(&self) -> Result<Option<Wc>> {
        let mut wc = [Wc::default()];
        Ok((self.ops.poll(&mut wc)? == 1).then_some(wc[0]))
    }

    /// Waits for a completion and takes it: spins for a while, then sleeps.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if `deadline` passes first; as [`Cq::poll`].
    pub fn wait(&self, deadline: Option<Time>) -> Result<Wc> {
        self.device
            .host()
            .wait("Cq::wait", self, deadline, || self.poll_one().transpose())
            .unwrap_or(Err(Error::TimedOut { call: "Cq::wait" }))
    }

    /// Waits for a completion without ever sleeping: the lowest latency, at the price of a whole core.
    ///
    /// # Errors
    /// As [`Cq::wait`].
    #[inline]
    pub fn spin(&self, deadline: Option<Time>) -> Result<Wc> {
        let mut wc = [Wc::default()];
        if self.is_real && self.ops.poll(&mut wc)? == 1 {
            return Ok(wc[0]);
        }
        self.spin_on(deadline)
    }

    #[inline(never)]
    fn spin_on(&self, deadline: Option<Time>) -> Result<Wc> {
        self.device
            .host()
            .poll("Cq::spin", deadline, || self.poll_one().transpose())
            .unwrap_or(Err(Error::TimedOut { call: "Cq::spin" }))
    }

    /// Arms the queue: the next completion (the next solicited or failed one) puts one event into its channel
    /// (`ibv_req_notify_cq`). Completions that are pending already do not count: arm, then poll once more.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it was created without a channel.
    pub fn req_notify(&self, solicited_only: bool) -> Result<()> {
        self.ops.req_notify(solicited_only)
    }

    /// The implementation, for the NIC's crate.
    #[inline]
    pub fn ops(&self) -> &Arc<dyn CqOps> {
        &self.ops
    }
}

impl Source for Cq {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        wakes.push(self.ops.prepare_wait());
    }

    fn progress_count(&self) -> u64 {
        self.ops.progress_count()
    }

    fn begin_polling(&self) {
        self.ops.begin_polling();
    }

    fn end_polling(&self) {
        self.ops.end_polling();
    }
}

/// A channel to which completion queues report (`ibv_comp_channel`); cheap to clone.
#[derive(Clone)]
pub struct CompChannel {
    ops: Arc<dyn CompChannelOps>,
    device: Device,
}

impl std::fmt::Debug for CompChannel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CompChannel({:?})", self.device)
    }
}

impl CompChannel {
    pub(crate) fn new(ops: Arc<dyn CompChannelOps>, device: Device) -> Self {
        Self { ops, device }
    }

    /// The device of the channel.
    #[inline]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// A descriptor that is readable exactly while an event is pending, for poll(2) and similar calls. `None` without
    /// an operating system (virtual time).
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.ops.fd()
    }

    /// Takes an event, if there is any: the [`Cq::id`] of the queue that reported.
    pub fn poll_event(&self) -> Option<u32> {
        self.ops.poll_event()
    }

    /// Waits for an event: the [`Cq::id`] of the queue that reported (`ibv_get_cq_event`). Events need no
    /// acknowledgement.
    ///
    /// # Errors
    /// [`Error::TimedOut`] if `deadline` passes first; [`Error::Forked`].
    pub fn get_event(&self, deadline: Option<Time>) -> Result<u32> {
        self.device.ops().check()?;
        self.device
            .host()
            .wait("CompChannel::get_event", self, deadline, || self.ops.poll_event())
            .ok_or(Error::TimedOut { call: "CompChannel::get_event" })
    }

    /// The implementation, for the NIC's crate.
    pub fn ops(&self) -> &Arc<dyn CompChannelOps> {
        &self.ops
    }
}

impl Source for CompChannel {
    fn prepare_wait<'a>(&'a self, wakes: &mut Wakes<'a>) {
        wakes.push(self.ops.prepare_wait());
    }
}

impl Device {
    /// Creates a completion queue of at least `cqe` entries (`ibv_create_cq`).
    ///
    /// # Errors
    /// [`Error::Limit`] or [`Error::Invalid`] for a size that is too large or zero.
    pub fn create_cq(&self, cqe: u32) -> Result<Cq> {
        self.check_cqe(cqe)?;
        Ok(Cq::new(self.ops().create_cq(cqe, None)?, self.clone()))
    }

    /// Creates a completion queue that reports to `channel` once armed by [`Cq::req_notify`].
    ///
    /// # Errors
    /// As [`Device::create_cq`]; [`Error::Foreign`] for another device's channel.
    pub fn create_cq_with(&self, cqe: u32, channel: &CompChannel) -> Result<Cq> {
        self.check_cqe(cqe)?;
        self.check_own(channel.device(), "the completion channel")?;
        Ok(Cq::new(self.ops().create_cq(cqe, Some(channel.ops()))?, self.clone()))
    }

    fn check_cqe(&self, cqe: u32) -> Result<()> {
        if cqe == 0 {
            return Err(Error::Invalid("a completion queue needs at least one entry".into()));
        }
        Error::check_limit("entries of the completion queue", cqe.into(), self.attr().max_cqe.into())
    }

    /// Creates a channel to sleep on for completions (`ibv_create_comp_channel`).
    ///
    /// # Errors
    /// [`Error::System`] if no file descriptor is available.
    pub fn create_comp_channel(&self) -> Result<CompChannel> {
        Ok(CompChannel::new(self.ops().create_comp_channel()?, self.clone()))
    }
}
