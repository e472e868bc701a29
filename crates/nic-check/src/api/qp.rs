//! Queue pairs.
//!
//! Data path: a request is examined before the NIC gets it, and kept until its completion.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use host::{Lock, Span};
use verbs::provider::{QpOps, QpParts};
use verbs::{Buf, Error, QpState, RecvWr, RemoteAddr, Result, SendWr, Wc, WcStatus};

use crate::api::cq::CheckCq;
use crate::api::srq::CheckSrq;
use crate::queue_pairs::{Opened, QueuePair};
use crate::report::{Kind, find};
use crate::requests::{Request, Requests};
use findings::Stack;

pub(crate) struct CheckQp {
    pub(crate) below: Arc<dyn QpOps>,
    shared: Arc<Opened>,
    /// The number in completions.
    reported_num: u32,
    signals_all: bool,
    depth: u32,
    send_cq: Arc<CheckCq>,
    recv_cq: Arc<CheckCq>,
    srq: Option<Arc<CheckSrq>>,
    sends: Lock<Requests>,
    receives: Lock<Requests>,
    /// Requests that the program has posted, and that the C interface gives to the NIC later.
    prepared: Lock<Requests>,
    created: Stack,
}

impl CheckQp {
    pub(crate) fn new(
        shared: &Arc<Opened>,
        below: Arc<dyn QpOps>,
        parts: &QpParts,
        cqs: (Arc<CheckCq>, Arc<CheckCq>),
        srq: Option<Arc<CheckSrq>>,
    ) -> Arc<Self> {
        let reported_num = parts.reported_qp_num.unwrap_or_else(|| below.num());
        let qp = Arc::new(Self {
            below,
            shared: shared.clone(),
            reported_num,
            signals_all: parts.sq_sig_all,
            depth: parts.cap.max_send_wr,
            send_cq: cqs.0,
            recv_cq: cqs.1,
            srq,
            sends: Lock::new(Requests::default()),
            receives: Lock::new(Requests::default()),
            prepared: Lock::new(Requests::default()),
            created: Stack::here(),
        });
        let weak: Weak<dyn QueuePair> = Arc::downgrade(&(qp.clone() as Arc<dyn QueuePair>));
        shared.add_qp(reported_num, weak);
        qp
    }

    /// The queue pair as words.
    pub(crate) fn text(&self) -> String {
        format!("qp {:#x}", self.reported_num)
    }

    fn examine(&self, wr: &SendWr<'_>) -> Request {
        Request::send(&self.shared, &self.text(), wr, self.signals_all)
    }

    /// Examines a request that the program posts now and the NIC gets later.
    pub(crate) fn prepare(&self, wr: &SendWr<'_>) {
        if self.shared.is_usable() {
            self.prepared.lock(&self.shared.host).push(self.examine(wr));
            self.shared.has_prepared.store(true, Ordering::Relaxed);
        }
    }

    /// The program posts a request that the C interface has no room to keep for later.
    pub(crate) fn refuse(&self, wr: &SendWr<'_>) {
        if self.shared.is_usable() {
            let mut prepared = self.prepared.lock(&self.shared.host);
            prepared.push(self.examine(wr));
            if let Some(refused) = prepared.take_back(&self.shared) {
                self.check_full(&prepared, &refused);
            }
        }
    }

    /// The request as it was prepared, of this queue pair or of the one for which this one sends; otherwise as it is now.
    fn prepared_or_new(&self, wr: &SendWr<'_>) -> Request {
        let find = || self.shared.qps(self.reported_num).find_map(|qp| qp.take_prepared(wr.wr_id));
        let prepared = self.shared.has_prepared.load(Ordering::Relaxed).then(find).flatten();
        prepared.unwrap_or_else(|| self.examine(wr))
    }

    /// The queue is full: reports if nothing will ever free a place.
    #[cold]
    fn check_full(&self, sends: &Requests, refused: &Request) {
        if sends.len() < self.depth as usize || sends.iter().any(|request| request.is_signaled) {
            return;
        }
        let about = [
            ("object", format!("{}, whose send queue has {} places", self.text(), self.depth)),
            ("request", refused.text.to_string()),
        ];
        let what = "the send queue is full, and none of its requests is signaled";
        find(Kind::NeverSignaled, what, &about, &[("posted", refused.posted), ("qp created", self.created)]);
    }
}

impl QueuePair for CheckQp {
    fn end_sends(&self, wc: &Wc) -> Option<Request> {
        let (request, signaled) = self.sends.lock(&self.shared.host).end_sends(&self.shared, wc)?;
        self.send_cq.end(signaled);
        Some(request)
    }

    fn end_receive(&self, wc: &Wc) -> Option<Request> {
        if let Some(srq) = &self.srq {
            return srq.receives.lock(&self.shared.host).end_receive(&self.shared, wc);
        }
        let request = self.receives.lock(&self.shared.host).end_receive(&self.shared, wc)?;
        self.recv_cq.end(1);
        Some(request)
    }

    fn explain(&self, wc: &Wc, request: &Request) {
        let mut about = vec![("request", request.text.to_string())];
        let mut stacks = vec![("posted", request.posted)];
        let (kind, what) = match wc.status {
            WcStatus::RnrRetryExcErr => {
                (Kind::NoReceive, "a message found no receive, and its retries are exhausted")
            }
            WcStatus::RemAccessErr => {
                if let Some(remote) = request.remote {
                    about.push(("remote", format!("address {:#x}, rkey {:#x}", remote.addr, remote.rkey)));
                    let dead = self.shared.regions.dead(|region| region.rkey == remote.rkey);
                    if let Some(dead) = dead.filter(|_| !self.shared.regions.is_live_rkey(remote.rkey)) {
                        about.push(("region", dead.text()));
                        stacks.push(("registered", dead.registered));
                        stacks.extend(dead.ended.get().map(|ended| ("deregistered", *ended)));
                        let what = "a request uses the rkey of a region that was deregistered";
                        find(Kind::KeyDeregistered, what, &about, &stacks);
                        return;
                    }
                }
                about.extend(self.failure().map(|why| ("reason", why)));
                (Kind::RemoteAccess, "the peer refused an access to its memory")
            }
            _ => return,
        };
        find(kind, what, &about, &stacks);
    }

    fn take_prepared(&self, wr_id: u64) -> Option<Request> {
        self.prepared.lock(&self.shared.host).take_first(wr_id)
    }

    fn has_failed(&self) -> bool {
        self.below.state() == QpState::Error
    }

    fn all_requests(&self) -> [&Lock<Requests>; 3] {
        [&self.sends, &self.prepared, &self.receives]
    }
}

impl Drop for CheckQp {
    fn drop(&mut self) {
        if !self.shared.is_usable() {
            return;
        }
        let sends = self.sends.get_mut();
        self.send_cq.end(sends.iter().filter(|request| request.is_signaled).count() as u32);
        sends.clear(&self.shared);
        let receives = self.receives.get_mut();
        self.recv_cq.end(receives.len() as u32);
        receives.clear(&self.shared);
        self.prepared.get_mut().clear(&self.shared);
        self.shared.forget_qp(self.reported_num);
    }
}

impl QpOps for CheckQp {
    fn num(&self) -> u32 {
        self.below.num()
    }

    fn state(&self) -> QpState {
        self.below.state()
    }

    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        if !self.shared.is_usable() {
            return self.below.post_send(wr);
        }
        // The lock keeps the order of requests that several threads post.
        let mut sends = self.sends.lock(&self.shared.host);
        let request = self.prepared_or_new(wr);
        if request.is_signaled {
            self.send_cq.begin(&request);
        }
        sends.push(request);
        self.below.post_send(wr).inspect_err(|why| {
            let Some(refused) = sends.take_back(&self.shared) else { return };
            if refused.is_signaled {
                self.send_cq.end(1);
            }
            if matches!(why, Error::QueueFull { .. }) {
                self.check_full(&sends, &refused);
            }
        })
    }

    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        if self.srq.is_some() || !self.shared.is_usable() {
            return self.below.post_recv(wr);
        }
        let mut receives = self.receives.lock(&self.shared.host);
        let request = Request::receive(&self.shared, &self.text(), wr);
        self.recv_cq.begin(&request);
        receives.push(request);
        self.below.post_recv(wr).inspect_err(|_| {
            receives.take_back(&self.shared);
            self.recv_cq.end(1);
        })
    }

    fn post_rest(&self, wr: &RecvWr<'_>) -> Result<()> {
        self.below.post_rest(wr)
    }

    fn to_error(&self) {
        self.below.to_error();
    }

    fn failure(&self) -> Option<String> {
        self.below.failure()
    }

    fn has_completed(&self) -> bool {
        self.below.has_completed()
    }

    fn set_rnr_retry(&self, retries: u8) -> Result<()> {
        self.below.set_rnr_retry(retries)
    }

    fn set_rnr_pause(&self, pause: Span) -> Result<()> {
        self.below.set_rnr_pause(pause)
    }

    fn map(&self, remote: RemoteAddr, len: usize) -> Result<Buf> {
        self.below.map(remote, len)
    }

    fn notify(&self) -> Result<()> {
        self.below.notify()
    }
}
