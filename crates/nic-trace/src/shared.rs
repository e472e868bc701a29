//! [`Shared`]: what all objects of a device use: the recorder, the counters, and the device below.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use host::Host;
use nic_util::sync::unpoisoned;
use trace::format::{Fields, flag, kind};
use trace::names::{Call, Event, Operation};
use trace::{Class, Object};
use verbs::provider::{DeviceOps, QpOps};
use verbs::{Data, DeviceAttr, Error, RecvWr, Result, SendFlags, SendOp, SendWr, Wc, WcOpcode, WcStatus};

use crate::counters::{Counters, Kind};
use crate::recorder::Recorder;

pub(crate) struct Shared {
    pub(crate) below: Arc<dyn DeviceOps>,
    pub(crate) attr: DeviceAttr,
    pub(crate) name: String,
    pub(crate) host: Host,
    /// Without one, this device only counts.
    pub(crate) recorder: Option<Arc<Recorder>>,
    pub(crate) counters: Counters,
    /// The number of this device in records.
    device: u32,
    /// Queue pairs by their numbers in completions, for reasons of failures.
    qps: Mutex<BTreeMap<u32, Vec<Weak<dyn QpOps>>>>,
}

impl Shared {
    pub(crate) fn new(below: Arc<dyn DeviceOps>, recorder: Option<Arc<Recorder>>, note: String) -> Self {
        let host = below.host().clone();
        let mut attr = below.attr().clone();
        attr.notes.push(note);
        let name = below.name().to_owned();
        let device = recorder
            .as_ref()
            .map_or(0, |recorder| recorder.object(Class::Device, 0, host.now(), [0; 4], &name).0);
        let (counters, qps) = (Counters::default(), Mutex::default());
        Self { attr, name: format!("trace({name})"), host, recorder, counters, device, qps, below }
    }

    /// Numbers and describes a new object.
    pub(crate) fn object(&self, class: Class, words: [u64; 4]) -> (u32, Option<Object>) {
        match &self.recorder {
            None => (0, None),
            Some(recorder) => {
                let (id, object) = recorder.object(class, self.device, self.host.now(), words, "");
                (id, Some(object))
            }
        }
    }

    /// Makes a call, and records it with what `about` says of its result.
    pub(crate) fn call<T>(
        &self,
        code: Call,
        object: u32,
        make: impl FnOnce() -> Result<T>,
        about: impl FnOnce(&T) -> Fields,
    ) -> Result<T> {
        // In a forked child, a thread that does not exist there may hold a lock of the recorder.
        let recorder = self.recorder.as_ref().filter(|_| self.below.check().is_ok());
        let began = recorder.map(|_| self.host.now());
        let result = make();
        if result.is_err() {
            self.counters.fail_call();
        }
        if let (Some(recorder), Some(began)) = (recorder, began) {
            let mut fields = result.as_ref().map_or(Fields::default(), about);
            if fields.object == 0 {
                fields.object = if object == 0 { self.device } else { object };
            }
            if let Err(why) = &result {
                (fields.result, fields.extra) = (1, recorder.text(&why.to_string()));
            }
            recorder.add(&Fields {
                time_ps: began.as_ps(),
                id: self.host.now().as_ps(),
                kind: kind::CALL,
                code: code as u8,
                thread: recorder.thread(),
                ..fields
            });
        }
        result
    }

    /// The place of a text in records.
    pub(crate) fn text(&self, text: impl std::fmt::Display) -> u32 {
        self.recorder.as_ref().map_or(0, |recorder| recorder.text(&text.to_string()))
    }

    /// Records that a thread is about to sleep.
    pub(crate) fn wait(&self, object: u32) {
        self.counters.wait();
        if let Some(recorder) = &self.recorder {
            let time_ps = self.host.now().as_ps();
            recorder.add(&Fields {
                time_ps,
                kind: kind::WAIT,
                object,
                thread: recorder.thread(),
                ..Fields::default()
            });
        }
    }

    /// Records an event that the program gets.
    pub(crate) fn event(&self, event: Event, object: u32, has_failed: bool, text: impl FnOnce() -> String) {
        self.counters.event();
        if let Some(recorder) = &self.recorder {
            recorder.add(&Fields {
                time_ps: self.host.now().as_ps(),
                kind: kind::EVENT,
                code: event as u8,
                object: if object == 0 { self.device } else { object },
                result: has_failed.into(),
                thread: recorder.thread(),
                extra: recorder.text(&text()),
                ..Fields::default()
            });
        }
    }

    /// Remembers a queue pair by its number in completions.
    pub(crate) fn know_qp(&self, num: u32, qp: Weak<dyn QpOps>) {
        unpoisoned(&self.qps).entry(num).or_default().push(qp);
    }

    pub(crate) fn forget_qp(&self, num: u32) {
        if self.below.check().is_err() {
            return;
        }
        let mut qps = unpoisoned(&self.qps);
        if let Some(known) = qps.get_mut(&num) {
            known.retain(|qp| qp.strong_count() != 0);
            if known.is_empty() {
                qps.remove(&num);
            }
        }
    }

    /// The queue pair for which `is` holds.
    pub(crate) fn find_qp(&self, is: impl Fn(&dyn QpOps) -> bool) -> Option<Arc<dyn QpOps>> {
        // The last handle of a queue pair must not be dropped inside of the lock, which it takes.
        let known: Vec<_> = unpoisoned(&self.qps).values().flatten().filter_map(Weak::upgrade).collect();
        known.into_iter().find(|qp| is(&**qp))
    }

    fn failure_of(&self, num: u32) -> Option<String> {
        let known = unpoisoned(&self.qps).get(&num).cloned()?;
        known.iter().filter_map(Weak::upgrade).find_map(|qp| qp.failure())
    }

    /// Counts and records completions that the program polled.
    #[inline]
    pub(crate) fn completions(&self, cq: u32, wcs: &[Wc]) {
        for wc in wcs {
            let is_send = !wc.opcode.is_recv();
            self.counters.qp(wc.qp_num).complete(is_send, wc.byte_len, !wc.is_ok());
        }
        let Some(recorder) = &self.recorder else { return };
        let (time_ps, thread) = (self.host.now().as_ps(), recorder.thread());
        let place = recorder.reserve(wcs.len());
        for (at, wc) in (place..).zip(wcs) {
            let imm = if wc.imm.is_some() { flag::IMM } else { 0 };
            let invalidated = if wc.invalidated.is_some() { flag::INVALIDATE } else { 0 };
            recorder.store(
                at,
                &Fields {
                    time_ps,
                    kind: kind::COMPLETION,
                    code: operation(wc.opcode) as u8,
                    flags: imm | invalidated,
                    object: cq,
                    thread,
                    result: status(wc.status),
                    id: wc.wr_id,
                    bytes: wc.byte_len,
                    other: wc.qp_num,
                    remote: wc.imm.or(wc.invalidated).unwrap_or(0).into(),
                    extra: if wc.is_ok() { 0 } else { self.reason(wc) },
                    ..Fields::default()
                },
            );
        }
    }

    /// The place of the text why a request failed; a flushed request has no reason of its own.
    #[cold]
    fn reason(&self, wc: &Wc) -> u32 {
        let reason = if wc.status == WcStatus::WrFlushErr { None } else { self.failure_of(wc.qp_num) };
        reason.map_or(0, |reason| self.text(reason))
    }
}

/// The code of a status.
fn status(status: WcStatus) -> u16 {
    match status {
        WcStatus::Success => 0,
        WcStatus::LocLenErr => 1,
        WcStatus::LocQpOpErr => 2,
        WcStatus::LocProtErr => 3,
        WcStatus::WrFlushErr => 4,
        WcStatus::RemInvReqErr => 5,
        WcStatus::RemAccessErr => 6,
        WcStatus::RemOpErr => 7,
        WcStatus::RetryExcErr => 8,
        WcStatus::RnrRetryExcErr => 9,
        WcStatus::MwBindErr => 11,
        _ => 10,
    }
}

/// The code of an operation.
fn operation(opcode: WcOpcode) -> Operation {
    match opcode {
        WcOpcode::Write => Operation::Write,
        WcOpcode::Read => Operation::Read,
        WcOpcode::CompareSwap => Operation::CompareSwap,
        WcOpcode::FetchAdd => Operation::FetchAdd,
        WcOpcode::Recv => Operation::Recv,
        WcOpcode::RecvWriteImm => Operation::RecvWriteImm,
        WcOpcode::RecvBegin => Operation::RecvBegin,
        WcOpcode::RecvRest => Operation::RecvRest,
        WcOpcode::BindMw => Operation::BindMw,
        WcOpcode::LocalInv => Operation::LocalInv,
        _ => Operation::Send,
    }
}

/// Bytes of a request's data.
#[inline]
pub(crate) fn bytes_of(wr: &SendWr<'_>) -> u32 {
    match wr.data {
        Data::Sges(sges) => sges.iter().fold(0, |bytes, sge| bytes.wrapping_add(sge.length)),
        Data::Inline(bytes) => bytes.len() as u32,
    }
}

/// The record of a posted request, without its object, thread and time.
#[inline]
pub(crate) fn send_fields(wr: &SendWr<'_>, bytes: u32) -> Fields {
    let (mut remote, mut more, mut extra) = (verbs::RemoteAddr::default(), 0, 0);
    match wr.op {
        SendOp::Send | SendOp::LocalInv(_) => {}
        SendOp::BindMw(bind) => remote = verbs::RemoteAddr { addr: bind.addr, rkey: bind.rkey },
        SendOp::SendImm(imm) => (more, extra) = (flag::IMM, imm),
        SendOp::SendInv(key) => (more, extra) = (flag::INVALIDATE, key),
        SendOp::WriteImm(to, imm) => (remote, more, extra) = (to, flag::IMM, imm),
        SendOp::Write(to) | SendOp::Read(to) => remote = to,
        SendOp::CompareSwap { remote: to, .. } | SendOp::FetchAdd { remote: to, .. } => remote = to,
    }
    let (elements, first) = match wr.data {
        Data::Sges(sges) => (sges.len(), sges.first().copied().unwrap_or_default()),
        Data::Inline(_) => {
            more |= flag::INLINE;
            (0, verbs::Sge::default())
        }
    };
    // The flags of `verbs` have the bits of the flags in the file.
    let flags = wr.flags.bits() & (SendFlags::all().bits()) | more;
    Fields {
        kind: kind::SEND,
        code: operation(wr.op.opcode()) as u8,
        flags,
        elements: elements.min(255) as u8,
        id: wr.wr_id,
        bytes,
        other: remote.rkey,
        remote: remote.addr,
        local: first.addr,
        key: first.lkey,
        extra,
        ..Fields::default()
    }
}

/// The record of a posted receive, without its object, thread and time.
#[inline]
pub(crate) fn recv_fields(wr: &RecvWr<'_>) -> Fields {
    let first = wr.sges.first().copied().unwrap_or_default();
    Fields {
        kind: kind::RECV,
        code: Operation::Recv as u8,
        flags: flag::SIGNALED,
        elements: wr.sges.len().min(255) as u8,
        id: wr.wr_id,
        bytes: wr.sges.iter().fold(0, |bytes, sge| bytes.wrapping_add(sge.length)),
        local: first.addr,
        key: first.lkey,
        ..Fields::default()
    }
}

/// An object that is counted while it exists.
pub(crate) struct Counted {
    pub(crate) shared: Arc<Shared>,
    kind: Kind,
}

impl Counted {
    pub(crate) fn new(shared: &Arc<Shared>, kind: Kind) -> Self {
        shared.counters.change(kind, 1);
        Self { shared: shared.clone(), kind }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.shared.counters.change(self.kind, -1);
    }
}

/// Posts a receive by `below`; records it for this object, and counts it for the queue pair if it has one.
#[inline]
pub(crate) fn post_recv(
    shared: &Shared,
    object: u32,
    qp_num: Option<u32>,
    fields: Fields,
    below: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let place = shared.recorder.as_ref().map(|recorder| {
        let place = recorder.reserve(1);
        let (time_ps, thread) = (shared.host.now().as_ps(), recorder.thread());
        recorder.store(place, &Fields { time_ps, thread, object, ..fields });
        (recorder, place)
    });
    let posted = below();
    if let Some(num) = qp_num {
        shared.counters.qp(num).recv(posted.is_err());
    }
    if let (Err(why), Some((recorder, place))) = (&posted, place) {
        refuse(recorder, place, why);
    }
    posted
}

#[cold]
pub(crate) fn refuse(recorder: &Recorder, place: u64, why: &Error) {
    if *why == Error::Forked {
        // A thread that does not exist in the child may hold the lock of texts.
        return;
    }
    recorder.refuse(place, &why.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbs::{RemoteAddr, Sge};

    #[test]
    fn codes_have_the_names_of_verbs() {
        for (code, name) in [
            (WcStatus::Success, "SUCCESS"),
            (WcStatus::LocLenErr, "LOC_LEN_ERR"),
            (WcStatus::LocQpOpErr, "LOC_QP_OP_ERR"),
            (WcStatus::LocProtErr, "LOC_PROT_ERR"),
            (WcStatus::WrFlushErr, "WR_FLUSH_ERR"),
            (WcStatus::RemInvReqErr, "REM_INV_REQ_ERR"),
            (WcStatus::RemAccessErr, "REM_ACCESS_ERR"),
            (WcStatus::RemOpErr, "REM_OP_ERR"),
            (WcStatus::RetryExcErr, "RETRY_EXC_ERR"),
            (WcStatus::RnrRetryExcErr, "RNR_RETRY_EXC_ERR"),
            (WcStatus::GeneralErr, "GENERAL_ERR"),
            (WcStatus::MwBindErr, "MW_BIND_ERR"),
        ] {
            assert_eq!(trace::names::status(status(code)), name);
        }
        let flags = [
            (SendFlags::SIGNALED, flag::SIGNALED),
            (SendFlags::SOLICITED, flag::SOLICITED),
            (SendFlags::FENCE, flag::FENCE),
            (SendFlags::NOTIFY, flag::NOTIFY),
            (SendFlags::LOCAL, flag::LOCAL),
        ];
        assert!(flags.into_iter().all(|(own, stored)| own.bits() == stored));
    }

    #[test]
    fn fields_of_a_write_name_both_addresses() {
        let sges = [Sge { addr: 0x10, length: 5, lkey: 7 }, Sge { addr: 0x20, length: 6, lkey: 7 }];
        let wr = SendWr::new(3, SendOp::WriteImm(RemoteAddr { addr: 0x99, rkey: 8 }, 42), &sges);
        let fields = send_fields(&wr, bytes_of(&wr));
        assert_eq!((fields.bytes, fields.elements, fields.local, fields.key), (11, 2, 0x10, 7));
        assert_eq!((fields.remote, fields.other, fields.extra), (0x99, 8, 42));
        assert_eq!(fields.flags, flag::SIGNALED | flag::IMM);
    }
}
