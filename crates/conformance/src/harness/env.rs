//! [`Env`]: the devices under test, deadlines, and waits that report their name on failure.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use host::{Host, Span, Time};

use verbs::{AsyncEvent, Buf, Cm, CmEvent, ConnectRequest, Cq, Device, Error, MemoryKind, Wc};

/// The environment of a test's body: two devices, `a` and `b`, that can connect to each other. Usually `a` connects to
/// `b`.
#[derive(Clone, Debug)]
pub struct Env {
    /// The connecting side.
    pub a: Device,
    /// The listening side.
    pub b: Device,
    addr: SocketAddr,
    pub(crate) waiter: Waiter,
    large_bytes: u64,
}

impl Env {
    /// Two opened devices; `addr` is an address that `b` can listen on, with port 0.
    pub fn new(a: Device, b: Device, addr: SocketAddr) -> Self {
        let waiter = Waiter { host: a.host().clone(), patience: Span::from_secs(20), slow: 1 };
        Self { a, b, addr, waiter, large_bytes: 1 << 30 }
    }

    /// Multiplies every deadline, for slow environments (emulators, sanitizers).
    pub fn slow(mut self, factor: u32) -> Self {
        self.waiter.slow = factor.max(1);
        self
    }

    /// Sets the size of the largest messages, by default 1 GiB.
    pub fn large_bytes(mut self, bytes: u64) -> Self {
        self.large_bytes = bytes;
        self
    }

    /// Sets how long a wait may take before the test fails, by default 20 s.
    pub fn patience(mut self, span: Span) -> Self {
        self.waiter.patience = span;
        self
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub(crate) fn large_message_bytes(&self) -> u64 {
        self.large_bytes
    }

    /// The kinds of memory that `device` has. A device without NIC memory must refuse to allocate it.
    #[track_caller]
    pub(crate) fn kinds(&self, device: &Device) -> Vec<MemoryKind> {
        if device.attr().max_dm_size > 0 {
            return vec![MemoryKind::Host, MemoryKind::Nic];
        }
        let refusal = device.alloc_dm(64).expect_err("NIC memory from a device without");
        assert!(matches!(refusal, Error::Unsupported { .. } | Error::Limit { .. }), "{refusal:?}");
        vec![MemoryKind::Host]
    }

    /// Runs the bodies concurrently and waits for all; fails if any body fails.
    pub(crate) fn run_concurrently(&self, bodies: Vec<Box<dyn FnOnce() + Send>>) {
        let (count, finished) = (bodies.len() as u64, Arc::new(AtomicU64::new(0)));
        let start = |body: Box<dyn FnOnce() + Send>| {
            let finished = finished.clone();
            let run = move || {
                body();
                finished.fetch_add(1, Ordering::AcqRel);
            };
            self.a.host().spawn("conformance", None, run).expect("a thread")
        };
        let tasks: Vec<_> = bodies.into_iter().map(start).collect();
        tasks.into_iter().for_each(host::Task::join);
        assert_eq!(finished.load(Ordering::Acquire), count, "a thread failed; its message is above");
    }

    /// Allocates memory of a kind.
    #[track_caller]
    pub(crate) fn alloc(&self, device: &Device, kind: MemoryKind, len: usize) -> Buf {
        match kind {
            MemoryKind::Host => Buf::alloc(len),
            MemoryKind::Nic => device.alloc_dm(len),
        }
        .unwrap_or_else(|e| panic!("{len} bytes of {kind:?} memory: {e}"))
    }
}

/// Waits with a deadline; a wait that reaches it fails the test with its name.
#[derive(Clone, Debug)]
pub(crate) struct Waiter {
    host: Host,
    patience: Span,
    slow: u32,
}

impl Waiter {
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.host.after(self.patience * u64::from(self.slow))
    }

    /// A period in which something that must not happen would have happened.
    pub(crate) fn short_time(&self) -> Option<Time> {
        self.host.after(Span::from_ms(15) * u64::from(self.slow))
    }

    /// Polls for a condition that has no event.
    #[track_caller]
    pub(crate) fn until<T>(&self, what: &'static str, check: impl FnMut() -> Option<T>) -> T {
        self.host.poll(what, self.deadline(), check).unwrap_or_else(|| panic!("no {what} in time"))
    }

    #[track_caller]
    pub(crate) fn completion(&self, cq: &Cq, what: &str) -> Wc {
        cq.wait(self.deadline()).unwrap_or_else(|e| panic!("waiting for {what}: {e}"))
    }

    #[track_caller]
    pub(crate) fn no_completion(&self, cq: &Cq, why: &str) {
        match cq.wait(self.short_time()) {
            Err(Error::TimedOut { .. }) => {}
            other => panic!("{why}: expected no completion, got {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn event(&self, cm: &Cm, what: &str) -> CmEvent {
        cm.get_event(self.deadline()).unwrap_or_else(|e| panic!("waiting for {what}: {e}"))
    }

    #[track_caller]
    pub(crate) fn no_event(&self, cm: &Cm, why: &str) {
        match cm.get_event(self.short_time()) {
            Err(Error::TimedOut { .. }) => {}
            other => panic!("{why}: expected no event, got {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn request(&self, cm: &Cm) -> ConnectRequest {
        match self.event(cm, "a connect request") {
            CmEvent::ConnectRequest(request) => request,
            other => panic!("expected a connect request, got {other:?}"),
        }
    }

    /// Waits for `Established` of this queue pair; returns the private data.
    #[track_caller]
    pub(crate) fn established(&self, cm: &Cm, num: u32) -> Vec<u8> {
        match self.event(cm, "Established") {
            CmEvent::Established { qp_num, private_data, .. } if qp_num == num => private_data,
            other => panic!("expected Established of queue pair {num}, got {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn disconnected(&self, cm: &Cm, num: u32) {
        match self.event(cm, "Disconnected") {
            CmEvent::Disconnected { qp_num } if qp_num == num => {}
            other => panic!("expected Disconnected of queue pair {num}, got {other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn async_event(&self, device: &Device, want: AsyncEvent) {
        let got = self.until("asynchronous event", || device.poll_async_event());
        assert_eq!(got, want);
    }
}
