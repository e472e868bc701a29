//! Live counters of a device, for `nicety top`, and their text for Prometheus.
//!
//! Data path: a posted request costs two atomic additions, a completion one.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, OnceLock};

use nic_util::sync::unpoisoned;

/// Queue pairs with counters of their own; further ones are counted together.
const QPS: usize = 1024;
/// Places in which a queue pair's counters can be, beginning with the place that its number selects.
const PROBES: usize = 8;

/// What the posting threads count.
#[derive(Default)]
#[repr(align(64))]
struct Posted {
    signaled: AtomicU64,
    unsignaled: AtomicU64,
    /// Unsignaled requests since the last signaled one.
    run: AtomicU64,
    bytes: AtomicU64,
    recvs: AtomicU64,
    refused: AtomicU64,
}

/// What the polling threads count.
#[derive(Default)]
#[repr(align(64))]
struct Done {
    sends: AtomicU64,
    recvs: AtomicU64,
    recv_bytes: AtomicU64,
    failed: AtomicU64,
}

/// The counters of a queue pair.
#[derive(Default)]
pub(crate) struct QpCounters {
    /// The number in completions; 0 for a free place.
    num: AtomicU32,
    /// Queue pairs that share this place: a queue pair that is connected with itself is two.
    users: AtomicU32,
    posted: Posted,
    done: Done,
    /// Sizes of its queues, and its peer.
    about: Mutex<(u32, u32, String)>,
}

impl QpCounters {
    /// Counts a posted request.
    #[inline]
    pub(crate) fn send(&self, is_signaled: bool, bytes: u32) {
        if is_signaled {
            self.posted.signaled.fetch_add(1, Relaxed);
            if self.posted.run.load(Relaxed) != 0 {
                self.posted.run.store(0, Relaxed);
            }
        } else {
            self.posted.unsignaled.fetch_add(1, Relaxed);
            self.posted.run.fetch_add(1, Relaxed);
        }
        self.posted.bytes.fetch_add(bytes.into(), Relaxed);
    }

    /// Takes back a request that was refused.
    #[cold]
    pub(crate) fn refuse_send(&self, is_signaled: bool, bytes: u32) {
        let posted = if is_signaled { &self.posted.signaled } else { &self.posted.unsignaled };
        posted.fetch_sub(1, Relaxed);
        if !is_signaled {
            let _ = self.posted.run.fetch_update(Relaxed, Relaxed, |run| Some(run.saturating_sub(1)));
        }
        self.posted.bytes.fetch_sub(bytes.into(), Relaxed);
        self.posted.refused.fetch_add(1, Relaxed);
    }

    /// Counts a posted receive.
    #[inline]
    pub(crate) fn recv(&self, is_refused: bool) {
        let count = if is_refused { &self.posted.refused } else { &self.posted.recvs };
        count.fetch_add(1, Relaxed);
    }

    /// Counts a completion.
    #[inline]
    pub(crate) fn complete(&self, is_send: bool, bytes: u32, has_failed: bool) {
        if is_send {
            self.done.sends.fetch_add(1, Relaxed);
        } else {
            self.done.recvs.fetch_add(1, Relaxed);
            self.done.recv_bytes.fetch_add(bytes.into(), Relaxed);
        }
        if has_failed {
            self.done.failed.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn set_peer(&self, peer: &str) {
        peer.clone_into(&mut unpoisoned(&self.about).2);
    }

    fn reset(&self) {
        let Posted { signaled, unsignaled, run, bytes, recvs, refused } = &self.posted;
        let Done { sends, recvs: done, recv_bytes, failed } = &self.done;
        for count in [signaled, unsignaled, run, bytes, recvs, refused, sends, done, recv_bytes, failed] {
            count.store(0, Relaxed);
        }
    }

    /// Requests of the send queue, and of the receive queue, that the program has posted and not completed.
    fn outstanding(&self) -> (u64, u64) {
        let less =
            |posted: &AtomicU64, done: &AtomicU64| posted.load(Relaxed).saturating_sub(done.load(Relaxed));
        let sends = less(&self.posted.signaled, &self.done.sends) + self.posted.run.load(Relaxed);
        (sends, less(&self.posted.recvs, &self.done.recvs))
    }
}

/// Objects that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Pd,
    Mr,
    Cq,
    Qp,
    Srq,
}

const KINDS: [(Kind, &str); 5] =
    [(Kind::Pd, "pd"), (Kind::Mr, "mr"), (Kind::Cq, "cq"), (Kind::Qp, "qp"), (Kind::Srq, "srq")];

/// The counters of a device.
pub(crate) struct Counters {
    objects: [AtomicI64; KINDS.len()],
    registered_bytes: AtomicI64,
    failed_calls: AtomicU64,
    waits: AtomicU64,
    events: AtomicU64,
    qps: OnceLock<Box<[QpCounters]>>,
    /// Queue pairs that have found no place.
    others: QpCounters,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            objects: [const { AtomicI64::new(0) }; KINDS.len()],
            registered_bytes: AtomicI64::new(0),
            failed_calls: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            events: AtomicU64::new(0),
            qps: OnceLock::new(),
            others: QpCounters::default(),
        }
    }
}

impl Counters {
    fn places(&self, num: u32) -> impl Iterator<Item = &QpCounters> {
        let qps = self.qps.get_or_init(|| (0..QPS).map(|_| QpCounters::default()).collect());
        // Numbers of queue pairs have their low bits for other things.
        let first = (num.wrapping_mul(0x9e37_79b9) >> 22) as usize;
        (0..PROBES).map(move |probe| &qps[(first + probe) % QPS])
    }

    /// The counters of a queue pair with this number in completions.
    #[inline]
    pub(crate) fn qp(&self, num: u32) -> &QpCounters {
        self.places(num).find(|qp| qp.num.load(Relaxed) == num).unwrap_or(&self.others)
    }

    /// Gives a queue pair counters.
    pub(crate) fn add_qp(&self, num: u32, sizes: (u32, u32)) {
        self.change(Kind::Qp, 1);
        if let Some(known) = self.places(num).find(|qp| qp.num.load(Relaxed) == num) {
            known.users.fetch_add(1, Relaxed);
            return;
        }
        let is_taken = |qp: &&QpCounters| qp.num.compare_exchange(0, num, Relaxed, Relaxed).is_ok();
        if let Some(free) = self.places(num).find(is_taken) {
            free.reset();
            free.users.store(1, Relaxed);
            *unpoisoned(&free.about) = (sizes.0, sizes.1, String::new());
        }
    }

    pub(crate) fn remove_qp(&self, num: u32) {
        self.change(Kind::Qp, -1);
        if let Some(known) = self.places(num).find(|qp| qp.num.load(Relaxed) == num)
            && known.users.fetch_sub(1, Relaxed) == 1
        {
            known.num.store(0, Relaxed);
        }
    }

    pub(crate) fn change(&self, kind: Kind, by: i64) {
        self.objects[kind as usize].fetch_add(by, Relaxed);
    }

    pub(crate) fn change_registered(&self, bytes: i64) {
        self.registered_bytes.fetch_add(bytes, Relaxed);
    }

    pub(crate) fn fail_call(&self) {
        self.failed_calls.fetch_add(1, Relaxed);
    }

    pub(crate) fn wait(&self) {
        self.waits.fetch_add(1, Relaxed);
    }

    pub(crate) fn event(&self) {
        self.events.fetch_add(1, Relaxed);
    }
}

/// A family of samples in the text format of Prometheus.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    samples: String,
}

/// The counters of devices in the text format of Prometheus.
pub(crate) fn prometheus(devices: &[(&str, &Counters)]) -> String {
    let new = |(name, kind, help)| Family { name, kind, help, samples: String::new() };
    let mut families: Vec<Family> = FAMILIES.into_iter().map(new).collect();
    for (number, (device, counters)) in devices.iter().enumerate() {
        let device = format!("device=\"{}\",number=\"{number}\"", escaped(device));
        let mut add = |name: &str, labels: &str, value: u64| {
            if let Some(family) = families.iter_mut().find(|family| family.name == name) {
                let _ = writeln!(family.samples, "{name}{{{device}{labels}}} {value}");
            }
        };
        let positive = |count: &AtomicI64| count.load(Relaxed).max(0).cast_unsigned();
        for (kind, word) in KINDS {
            add("nicety_objects", &format!(",kind=\"{word}\""), positive(&counters.objects[kind as usize]));
        }
        add("nicety_registered_bytes", "", positive(&counters.registered_bytes));
        add("nicety_failed_calls_total", "", counters.failed_calls.load(Relaxed));
        add("nicety_waits_total", "", counters.waits.load(Relaxed));
        add("nicety_events_total", "", counters.events.load(Relaxed));
        let qps = counters.qps.get().into_iter().flatten().filter(|qp| qp.num.load(Relaxed) != 0);
        for qp in qps {
            let (sends, recvs, peer) = unpoisoned(&qp.about).clone();
            let labels = format!(",qp=\"{:#x}\",peer=\"{}\"", qp.num.load(Relaxed), escaped(&peer));
            qp_samples(&mut add, &labels, qp);
            add("nicety_queue_entries", &format!("{labels},queue=\"send\""), sends.into());
            add("nicety_queue_entries", &format!("{labels},queue=\"recv\""), recvs.into());
        }
        if counters.others.posted.bytes.load(Relaxed) + counters.others.done.sends.load(Relaxed) > 0 {
            qp_samples(&mut add, ",qp=\"others\",peer=\"\"", &counters.others);
        }
    }
    let mut text = String::new();
    for family in families.iter().filter(|family| !family.samples.is_empty()) {
        let Family { name, kind, help, samples } = family;
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{samples}");
    }
    text
}

fn qp_samples(add: &mut impl FnMut(&str, &str, u64), labels: &str, qp: &QpCounters) {
    let (posted, done) = (&qp.posted, &qp.done);
    let (sends, recvs) = qp.outstanding();
    for (name, more, value) in [
        ("nicety_requests_total", ",signaled=\"yes\"", posted.signaled.load(Relaxed)),
        ("nicety_requests_total", ",signaled=\"no\"", posted.unsignaled.load(Relaxed)),
        ("nicety_request_bytes_total", "", posted.bytes.load(Relaxed)),
        ("nicety_receives_total", "", posted.recvs.load(Relaxed)),
        ("nicety_refused_total", "", posted.refused.load(Relaxed)),
        ("nicety_completions_total", ",queue=\"send\"", done.sends.load(Relaxed)),
        ("nicety_completions_total", ",queue=\"recv\"", done.recvs.load(Relaxed)),
        ("nicety_received_bytes_total", "", done.recv_bytes.load(Relaxed)),
        ("nicety_failed_completions_total", "", done.failed.load(Relaxed)),
        ("nicety_outstanding_requests", ",queue=\"send\"", sends),
        ("nicety_outstanding_requests", ",queue=\"recv\"", recvs),
    ] {
        add(name, &format!("{labels}{more}"), value);
    }
}

/// The families: name, type and help.
const FAMILIES: [(&str, &str, &str); 14] = [
    ("nicety_objects", "gauge", "Objects that exist."),
    ("nicety_registered_bytes", "gauge", "Bytes in memory regions."),
    ("nicety_requests_total", "counter", "Requests posted to send queues."),
    ("nicety_request_bytes_total", "counter", "Bytes of requests posted to send queues."),
    ("nicety_receives_total", "counter", "Receives posted to queue pairs."),
    (
        "nicety_refused_total",
        "counter",
        "Requests and receives that could not be posted, such as to a full queue.",
    ),
    ("nicety_completions_total", "counter", "Completions that the program has polled."),
    ("nicety_received_bytes_total", "counter", "Bytes of received messages."),
    ("nicety_failed_completions_total", "counter", "Completions with an error."),
    (
        "nicety_outstanding_requests",
        "gauge",
        "Signaled requests without completion, and requests since the last signaled one; receives without completion.",
    ),
    ("nicety_queue_entries", "gauge", "Sizes of queues."),
    ("nicety_failed_calls_total", "counter", "Calls that returned an error."),
    ("nicety_waits_total", "counter", "Times that a thread was about to sleep."),
    ("nicety_events_total", "counter", "Events of connections, channels and objects."),
];

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_give_outstanding_requests() {
        let counters = Counters::default();
        counters.add_qp(0x5d_0000, (16, 8));
        let qp = counters.qp(0x5d_0000);
        qp.set_peer("10.0.0.1:\"7\"");
        for _ in 0..3 {
            qp.send(true, 10);
        }
        qp.send(false, 1);
        qp.send(false, 1);
        counters.qp(0x5d_0000).complete(true, 0, false);
        qp.refuse_send(false, 1);
        qp.recv(false);
        qp.recv(true);
        let text = prometheus(&[("shm", &counters)]);
        let labels = "device=\"shm\",number=\"0\",qp=\"0x5d0000\",peer=\"10.0.0.1:\\\"7\\\"\"";
        for line in [
            format!("nicety_outstanding_requests{{{labels},queue=\"send\"}} 3"),
            format!("nicety_outstanding_requests{{{labels},queue=\"recv\"}} 1"),
            format!("nicety_requests_total{{{labels},signaled=\"no\"}} 1"),
            format!("nicety_request_bytes_total{{{labels}}} 31"),
            format!("nicety_refused_total{{{labels}}} 2"),
            format!("nicety_queue_entries{{{labels},queue=\"send\"}} 16"),
            "nicety_objects{device=\"shm\",number=\"0\",kind=\"qp\"} 1".to_owned(),
            "# TYPE nicety_objects gauge".to_owned(),
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is missing:\n{text}");
        }
        counters.remove_qp(0x5d_0000);
        assert!(!prometheus(&[("shm", &counters)]).contains("0x5d0000"));
    }

    #[test]
    fn queue_pairs_beyond_the_limit_are_counted_together() {
        let counters = Counters::default();
        for num in 1..=2 * QPS as u32 {
            counters.add_qp(num << 12, (1, 1));
        }
        for num in 1..=2 * QPS as u32 {
            counters.qp(num << 12).send(true, 8);
        }
        let text = prometheus(&[("shm", &counters)]);
        let total: u64 = text
            .lines()
            .filter(|line| line.starts_with("nicety_request_bytes_total"))
            .map(|line| {
                line.rsplit(' ').next().and_then(|value| value.parse::<u64>().ok()).expect("a number")
            })
            .sum();
        assert_eq!(total, 16 * QPS as u64);
        assert!(text.contains("qp=\"others\""));
    }
}
