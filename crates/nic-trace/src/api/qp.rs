//! Queue pairs.
//!
//! Data path: a posted request is stored before the NIC gets it, and marked if the NIC refuses it.

use std::sync::{Arc, Mutex};

use host::Span;
use nic_util::sync::unpoisoned;
use trace::Object;
use trace::format::Fields;
use trace::names::{Call, Operation};
use verbs::provider::{QpOps, QpParts};
use verbs::{Buf, Error, QpState, RecvWr, RemoteAddr, Result, SendFlags, SendWr};

use crate::shared::{Shared, bytes_of, post_recv, recv_fields, refuse, send_fields};

pub(crate) struct TraceQp {
    pub(crate) below: Arc<dyn QpOps>,
    pub(crate) object: u32,
    shared: Arc<Shared>,
    /// The number in completions.
    reported_num: u32,
    signals_all: bool,
    has_srq: bool,
    described: Mutex<Option<Object>>,
}

impl TraceQp {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        below: Arc<dyn QpOps>,
        parts: &QpParts,
        (object, described): (u32, Option<Object>),
    ) -> Arc<Self> {
        let reported_num = parts.reported_qp_num.unwrap_or_else(|| below.num());
        shared.counters.add_qp(reported_num, (parts.cap.max_send_wr, parts.cap.max_recv_wr));
        let qp = Arc::new(Self {
            below,
            object,
            shared: shared.clone(),
            reported_num,
            signals_all: parts.sq_sig_all,
            has_srq: parts.srq.is_some(),
            described: Mutex::new(described),
        });
        let ops: Arc<dyn QpOps> = qp.clone();
        shared.know_qp(reported_num, Arc::downgrade(&ops));
        qp
    }

    /// Describes the queue pair again, now that its peer is known.
    pub(crate) fn set_peer(&self, peer: &str) {
        self.shared.counters.qp(self.reported_num).set_peer(peer);
        if let (Some(recorder), Some(object)) = (&self.shared.recorder, &mut *unpoisoned(&self.described)) {
            object.name = peer.into();
            recorder.describe(self.object, object);
        }
    }

    fn is_signaled(&self, wr: &SendWr<'_>) -> bool {
        self.signals_all || wr.flags.contains(SendFlags::SIGNALED)
    }

    /// Records and counts requests; returns the place of the first.
    #[inline]
    fn note(&self, wrs: &[SendWr<'_>]) -> u64 {
        let counters = self.shared.counters.qp(self.reported_num);
        let Some(recorder) = &self.shared.recorder else {
            wrs.iter().for_each(|wr| counters.send(self.is_signaled(wr), bytes_of(wr)));
            return 0;
        };
        let place = recorder.reserve(wrs.len());
        let (time_ps, thread, object) = (self.shared.host.now().as_ps(), recorder.thread(), self.object);
        for (at, wr) in (place..).zip(wrs) {
            let bytes = bytes_of(wr);
            counters.send(self.is_signaled(wr), bytes);
            recorder.store(at, &Fields { time_ps, thread, object, ..send_fields(wr, bytes) });
        }
        place
    }

    /// Marks requests that the NIC refused: the first because of `why`, the others because of the first.
    #[cold]
    fn refuse(&self, place: u64, wrs: &[SendWr<'_>], why: &Error) {
        let counters = self.shared.counters.qp(self.reported_num);
        wrs.iter().for_each(|wr| counters.refuse_send(self.is_signaled(wr), bytes_of(wr)));
        let Some(recorder) = self.shared.recorder.as_ref().filter(|_| *why != Error::Forked) else { return };
        refuse(recorder, place, why);
        (1..wrs.len() as u64)
            .for_each(|at| recorder.refuse(place + at, "an earlier request of the list was refused"));
    }
}

impl Drop for TraceQp {
    fn drop(&mut self) {
        let _ = self.shared.call(Call::DestroyQp, self.object, || Ok(()), |()| Fields::default());
        self.shared.counters.remove_qp(self.reported_num);
        self.shared.forget_qp(self.reported_num);
    }
}

impl QpOps for TraceQp {
    fn num(&self) -> u32 {
        self.below.num()
    }

    fn state(&self) -> QpState {
        self.below.state()
    }

    #[inline]
    fn post_send(&self, wr: &SendWr<'_>) -> Result<()> {
        let one = std::slice::from_ref(wr);
        let place = self.note(one);
        self.below.post_send(wr).inspect_err(|why| self.refuse(place, one, why))
    }

    fn post_sends(&self, wrs: &[SendWr<'_>]) -> Result<(), (usize, Error)> {
        let place = self.note(wrs);
        let posted = self.below.post_sends(wrs);
        posted.inspect_err(|(at, why)| self.refuse(place + *at as u64, &wrs[*at..], why))
    }

    #[inline]
    fn post_recv(&self, wr: &RecvWr<'_>) -> Result<()> {
        let num = (!self.has_srq).then_some(self.reported_num);
        post_recv(&self.shared, self.object, num, recv_fields(wr), || self.below.post_recv(wr))
    }

    fn post_rest(&self, wr: &RecvWr<'_>) -> Result<()> {
        let fields = Fields { code: Operation::RecvRest as u8, ..recv_fields(wr) };
        post_recv(&self.shared, self.object, Some(self.reported_num), fields, || self.below.post_rest(wr))
    }

    fn to_error(&self) {
        let make = || {
            self.below.to_error();
            Ok(())
        };
        let _ = self.shared.call(Call::ToError, self.object, make, |()| Fields::default());
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
        let fields =
            Fields { remote: remote.addr, other: remote.rkey, local: len as u64, ..Fields::default() };
        self.shared.call(Call::Map, self.object, || self.below.map(remote, len), |_| fields)
    }

    fn notify(&self) -> Result<()> {
        self.shared.call(Call::Notify, self.object, || self.below.notify(), |()| Fields::default())
    }
}
