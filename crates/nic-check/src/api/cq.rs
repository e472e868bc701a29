//! Completion queues and channels.
//!
//! Data path: each completion ends its request and unsignaled ones before it, which are checked.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use host::Wake;
use nic_util::sync::unpoisoned;
use verbs::provider::{CompChannelOps, CqOps};
use verbs::{Result, Wc, WcStatus};

use crate::queue_pairs::Opened;
use crate::report::{Kind, find};
use crate::requests::Request;
use findings::Stack;

pub(crate) struct CheckCq {
    pub(crate) below: Arc<dyn CqOps>,
    shared: Arc<Opened>,
    created: Stack,
    /// Outstanding requests that complete here for certain: signaled sends, and receives of queue pairs.
    outstanding: AtomicU32,
    /// Whether the next completion gives an event.
    is_armed: AtomicBool,
}

impl CheckCq {
    pub(crate) fn new(shared: &Arc<Opened>, below: Arc<dyn CqOps>) -> Self {
        let (outstanding, is_armed) = (AtomicU32::new(0), AtomicBool::new(false));
        Self { below, shared: shared.clone(), created: Stack::here(), outstanding, is_armed }
    }

    /// A request is outstanding that completes here.
    pub(crate) fn begin(&self, request: &Request) {
        let count = self.outstanding.fetch_add(1, Ordering::Relaxed) + 1;
        let cqe = self.below.cqe();
        if count == cqe.saturating_add(1) {
            let about = [
                ("queue", format!("completion queue {} of {cqe} entries", self.below.id())),
                ("request", format!("{}, the {count}th that is outstanding", request.text)),
            ];
            find(
                Kind::CqTooSmall,
                "more requests are outstanding than their completion queue has entries, so it can overrun",
                &about,
                &[("created", self.created), ("posted", request.posted)],
            );
        }
    }

    /// Requests that complete here have ended.
    pub(crate) fn end(&self, count: u32) {
        let less = |now: u32| Some(now.saturating_sub(count));
        let _ = self.outstanding.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// Ends the requests of completions.
    fn take(&self, wcs: &[Wc]) {
        let mut receives: Vec<Request> = Vec::new();
        for wc in wcs {
            if wc.opcode.is_recv() {
                let Some(receive) = self.shared.qps(wc.qp_num).find_map(|qp| qp.end_receive(wc)) else {
                    continue;
                };
                if wc.status == WcStatus::LocLenErr {
                    let about = [("request", receive.text.to_string())];
                    let what = "a message was longer than the receive that it met";
                    find(Kind::ReceiveTooShort, what, &about, &[("posted", receive.posted)]);
                }
                // The program has not seen the first message, and the second is in its place.
                if wc.is_ok()
                    && receive.is_shared()
                    && let Some(first) = receives.iter().find(|first| first.overlaps(&receive))
                {
                    let about = [("first", first.text.to_string()), ("second", receive.text.to_string())];
                    let what = "a message arrived in the memory of an earlier one whose completion had not been polled";
                    find(
                        Kind::ReceiveOverwritten,
                        what,
                        &about,
                        &[("posted", receive.posted), ("first posted", first.posted)],
                    );
                }
                receives.push(receive);
            } else if let Some((qp, request)) =
                self.shared.qps(wc.qp_num).find_map(|qp| qp.end_sends(wc).map(|request| (qp, request)))
            {
                qp.explain(wc, &request);
            }
        }
    }
}

impl CqOps for CheckCq {
    fn id(&self) -> u32 {
        self.below.id()
    }

    fn cqe(&self) -> u32 {
        self.below.cqe()
    }

    fn resize(&self, cqe: u32) -> Result<()> {
        self.below.resize(cqe)
    }

    #[inline]
    fn poll(&self, wcs: &mut [Wc]) -> Result<usize> {
        let found = self.below.poll(wcs)?;
        if found != 0 && self.shared.is_usable() {
            self.take(&wcs[..found]);
        }
        Ok(found)
    }

    fn req_notify(&self, solicited_only: bool) -> Result<()> {
        self.is_armed.store(true, Ordering::Relaxed);
        self.below.req_notify(solicited_only)
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.below.prepare_wait()
    }

    fn progress_count(&self) -> u64 {
        self.below.progress_count()
    }

    fn begin_polling(&self) {
        self.below.begin_polling();
    }

    fn end_polling(&self) {
        self.below.end_polling();
    }
}

pub(crate) struct CheckChannel {
    pub(crate) below: Arc<dyn CompChannelOps>,
    cqs: Mutex<Vec<Weak<CheckCq>>>,
}

impl CheckChannel {
    pub(crate) fn new(below: Arc<dyn CompChannelOps>) -> Self {
        Self { below, cqs: Mutex::default() }
    }

    pub(crate) fn add(&self, cq: &Arc<CheckCq>) {
        let mut cqs = unpoisoned(&self.cqs);
        cqs.retain(|cq| cq.strong_count() != 0);
        cqs.push(Arc::downgrade(cq));
    }

    /// The program is about to wait for an event: reports if none can come.
    pub(crate) fn check_wait(&self) {
        let cqs: Vec<_> = unpoisoned(&self.cqs).iter().filter_map(Weak::upgrade).collect();
        let is_armed = |cq: &Arc<CheckCq>| cq.is_armed.load(Ordering::Relaxed);
        let Some(cq) = cqs.first().filter(|_| !cqs.iter().any(is_armed)) else { return };
        let about = [("queue", format!("completion queue {}, and all others of the channel", cq.id()))];
        let what = "the program waits for a completion event, but no completion queue was armed";
        find(Kind::NotArmed, what, &about, &[("waits", Stack::here()), ("created", cq.created)]);
    }
}

impl CompChannelOps for CheckChannel {
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.below.fd()
    }

    fn poll_event(&self) -> Option<u32> {
        let id = self.below.poll_event()?;
        let cqs = unpoisoned(&self.cqs);
        let cq = cqs.iter().filter_map(Weak::upgrade).find(|cq| cq.below.id() == id);
        if let Some(cq) = cq {
            cq.is_armed.store(false, Ordering::Relaxed);
        }
        Some(id)
    }

    fn prepare_wait(&self) -> Wake<'_> {
        self.below.prepare_wait()
    }
}
