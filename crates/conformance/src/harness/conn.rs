//! Two connected ends with queues and memory; the set-up of nearly every test.

use crate::Env;
use crate::harness::env::Waiter;
use verbs::{
    Access, AtomicCap, Cm, ConnParam, Cq, Device, MemoryKind, Mr, Pd, Qp, QpCap, QpInit, QpState, RecvWr,
    SendWr, Sge, Srq, Wc, WcStatus,
};

/// Room for every test's requests, independent of the API's default.
pub(crate) const CAP: QpCap =
    QpCap { max_send_wr: 128, max_recv_wr: 128, max_send_sge: 4, max_recv_sge: 4, max_inline: 64 };

/// Settings of a [`Conn`].
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) cap: QpCap,
    pub(crate) sq_sig_all: bool,
    /// Bytes of each region.
    pub(crate) len: usize,
    /// Entries of each completion queue.
    pub(crate) cqe: u32,
    pub(crate) access: Access,
    /// Whether to use NIC memory in addition to host memory, if the device has any.
    pub(crate) nic: bool,
    /// Whether receives are split.
    pub(crate) split: bool,
    pub(crate) a: ConnParam,
    pub(crate) b: ConnParam,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            cap: CAP,
            sq_sig_all: false,
            len: 16 << 10,
            cqe: 512,
            access: Access::ALL,
            nic: false,
            split: false,
            a: ConnParam::default(),
            b: ConnParam::default(),
        }
    }
}

/// One side: a queue pair with a completion queue per direction, and memory.
pub(crate) struct Endpoint {
    pub(crate) device: Device,
    pub(crate) pd: Pd,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) cm: Cm,
    pub(crate) qp: Qp,
    pub(crate) host: Mr,
    pub(crate) nic: Option<Mr>,
    pub(crate) waiter: Waiter,
}

/// All rights that the device supports for memory of this kind.
pub(crate) fn rights(device: &Device, kind: MemoryKind) -> Access {
    let cap = match kind {
        MemoryKind::Host => device.attr().atomic_cap,
        MemoryKind::Nic => device.attr().atomic_cap_dm,
    };
    if cap == AtomicCap::None { Access::ALL - Access::REMOTE_ATOMIC } else { Access::ALL }
}

/// New registered memory.
#[track_caller]
pub(crate) fn region(env: &Env, pd: &Pd, kind: MemoryKind, len: usize, access: Access) -> Mr {
    let buf = env.alloc(pd.device(), kind, len);
    pd.reg_mr(&buf, access & rights(pd.device(), kind)).expect("a memory region")
}

impl Endpoint {
    #[track_caller]
    pub(crate) fn new(env: &Env, device: &Device, setup: &Setup) -> Self {
        Self::with_srq(env, device, setup, None)
    }

    #[track_caller]
    pub(crate) fn with_srq(env: &Env, device: &Device, setup: &Setup, srq: Option<&Srq>) -> Self {
        let pd = srq.map_or_else(|| device.alloc_pd().expect("a protection domain"), |s| s.pd().clone());
        let send_cq = device.create_cq(setup.cqe).expect("a completion queue");
        let recv_cq = device.create_cq(setup.cqe).expect("a completion queue");
        let mut init = QpInit::new(&send_cq).recv_cq(&recv_cq).cap(limit_cap(device, setup.cap));
        init.sq_sig_all = setup.sq_sig_all;
        init.srq = srq.cloned();
        init.split_receives = setup.split;
        let qp = pd.create_qp(&init).expect("a queue pair");
        let host = region(env, &pd, MemoryKind::Host, setup.len, setup.access);
        let with_nic = setup.nic && env.kinds(device).contains(&MemoryKind::Nic);
        let nic = with_nic.then(|| region(env, &pd, MemoryKind::Nic, setup.len, setup.access));
        let cm = device.create_cm().expect("a connection channel");
        Self { device: device.clone(), pd, send_cq, recv_cq, cm, qp, host, nic, waiter: env.waiter.clone() }
    }

    /// The regions of this end: host memory, and NIC memory if requested and available.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &Mr> {
        std::iter::once(&self.host).chain(&self.nic)
    }

    /// A queue pair like this end's own, on the same queues and domain.
    #[track_caller]
    pub(crate) fn another_qp(&self) -> Qp {
        self.pd.create_qp(self.qp.init()).expect("another queue pair")
    }

    #[track_caller]
    pub(crate) fn post(&self, wr: &SendWr<'_>) {
        self.qp.post_send(wr).unwrap_or_else(|e| panic!("posting {wr:?}: {e}"));
    }

    #[track_caller]
    pub(crate) fn post_recv(&self, wr_id: u64, sges: &[Sge]) {
        self.qp.post_recv(&RecvWr::new(wr_id, sges)).unwrap_or_else(|e| panic!("receive {wr_id}: {e}"));
    }

    /// The next completion of the send queue.
    #[track_caller]
    pub(crate) fn next_sent(&self) -> Wc {
        self.waiter.completion(&self.send_cq, "a send completion")
    }

    /// The next completion of the receive queue.
    #[track_caller]
    pub(crate) fn next_received(&self) -> Wc {
        self.waiter.completion(&self.recv_cq, "a receive completion")
    }

    /// Waits until the queue pair has failed.
    #[track_caller]
    pub(crate) fn wait_for_error(&self) {
        self.waiter.until("error state", || (self.qp.state() == QpState::Error).then_some(()));
    }

    /// The next completions of the send queue must be flushes of these requests, in this order.
    #[track_caller]
    pub(crate) fn expect_sends_flushed(&self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            super::check::expect_failure(self.next_sent(), id, WcStatus::WrFlushErr);
        }
    }

    /// The next completions of the receive queue must be flushes of these receives, in this order.
    #[track_caller]
    pub(crate) fn expect_receives_flushed(&self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            super::check::expect_failure(self.next_received(), id, WcStatus::WrFlushErr);
        }
    }
}

/// `cap` reduced to the limits of the device.
pub(crate) fn limit_cap(device: &Device, cap: QpCap) -> QpCap {
    let attr = device.attr();
    QpCap {
        max_send_wr: cap.max_send_wr.min(attr.max_qp_wr),
        max_recv_wr: cap.max_recv_wr.min(attr.max_qp_wr),
        max_send_sge: cap.max_send_sge.min(attr.max_sge),
        max_recv_sge: cap.max_recv_sge.min(attr.max_sge),
        max_inline: cap.max_inline.min(attr.max_inline),
    }
}

/// Two connected ends; `a` connected to `b`.
pub(crate) struct Conn {
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
}

impl Conn {
    #[track_caller]
    pub(crate) fn new(env: &Env) -> Self {
        Self::with_setup(env, &Setup::default())
    }

    /// With NIC memory as well, if the device has any.
    #[track_caller]
    pub(crate) fn with_nic(env: &Env) -> Self {
        Self::with_setup(env, &Setup { nic: true, ..Setup::default() })
    }

    #[track_caller]
    pub(crate) fn with_setup(env: &Env, setup: &Setup) -> Self {
        let conn = Self { a: Endpoint::new(env, &env.a, setup), b: Endpoint::new(env, &env.b, setup) };
        connect(env, &conn.a, &conn.b, setup);
        conn
    }

    /// Every pair of regions: (initiator's region, target's region).
    pub(crate) fn placements(&self) -> impl Iterator<Item = (&Mr, &Mr)> {
        self.a.regions().flat_map(|near| self.b.regions().map(move |far| (near, far)))
    }

    /// Sends one message each way, whatever happened before.
    #[track_caller]
    pub(crate) fn check_traffic(&self) {
        for (from, to) in [(&self.a, &self.b), (&self.b, &self.a)] {
            to.post_recv(901, &[to.host.sge(0, 64)]);
            from.post(&SendWr::new(902, verbs::SendOp::Send, &[from.host.sge(64, 64)]));
            super::check::expect_success(from.next_sent(), 902, verbs::WcOpcode::Send);
            super::check::expect_success(to.next_received(), 901, verbs::WcOpcode::Recv);
        }
    }
}

/// Connects two ends.
#[track_caller]
pub(crate) fn connect(env: &Env, a: &Endpoint, b: &Endpoint, setup: &Setup) {
    connect_qps(env, (&a.cm, &a.qp, &setup.a), (&b.cm, &b.qp, &setup.b));
}

/// Connects two queue pairs, through a listener created for them.
#[track_caller]
pub(crate) fn connect_qps(env: &Env, a: (&Cm, &Qp, &ConnParam), b: (&Cm, &Qp, &ConnParam)) {
    let listener = b.0.listen(env.addr(), 8).expect("a listener");
    a.0.connect(a.1, listener.addr(), a.2).expect("connect");
    let request = env.waiter.request(b.0);
    b.0.accept(request, b.1, b.2).expect("accept");
    env.waiter.established(a.0, a.1.num());
    env.waiter.established(b.0, b.1.num());
    assert_eq!((a.1.state(), b.1.state()), (QpState::ReadyToSend, QpState::ReadyToSend));
}

impl Conn {
    /// Checks that neither sender gets a completion for a moment.
    #[track_caller]
    pub(crate) fn no_more_sent(&self, why: &str) {
        self.a.waiter.no_completion(&self.a.send_cq, why);
        self.a.waiter.no_completion(&self.b.send_cq, why);
    }
}
