//! Devices under test, in real and in simulated time, and two connected ends.

#![allow(dead_code, reason = "each test uses a part")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use nic_faults::{FaultHandle, FaultsConfig, Rule};
use verbs::host::world::{self, FiberKind, World};
use verbs::host::{self, Host, Time};
use verbs::{
    Access, Buf, Cm, CmEvent, ConnParam, Cq, Device, Mr, Pd, Qp, QpInit, RecvWr, SendWr, Wc, WcStatus,
};

/// A device below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nic {
    Shm,
    Iwarp,
    /// A card of a modelled machine, in simulated time.
    Model(&'static str),
}

/// All devices below.
pub(crate) const ALL: [Nic; 3] = [Nic::Shm, Nic::Iwarp, Nic::Model("mt23108-nicmem")];

/// Long enough for whatever has to happen; no result depends on it.
pub(crate) const PATIENCE: host::Span = host::Span::from_secs(20);

fn below(nic: Nic, host: &Host) -> Device {
    match nic {
        Nic::Shm => nic_shm::open(host, &nic_shm::ShmConfig::default()),
        Nic::Iwarp => nic_iwarp::open(host, &nic_iwarp::IwarpConfig::default()),
        Nic::Model(machine) => {
            nic_model::open(host, &nic_model::Config::new(machine, &[]).expect("a machine"))
        }
    }
    .expect("a device")
}

/// A device in front of it with these rules.
pub(crate) fn faulty(nic: Nic, host: &Host, seed: u64, rules: &[&str]) -> Device {
    let rules: Vec<(Rule, String)> =
        rules.iter().map(|rule| (rule.parse().expect(rule), "test".to_owned())).collect();
    let config = FaultsConfig { rules, seed, has_control: false };
    nic_faults::open(&below(nic, host), config).expect("a device of faults")
}

/// Runs `body` with a device with these rules, which connects, and one without, which listens. In simulated time the
/// result is how the world ended.
pub(crate) fn run(
    nic: Nic,
    seed: u64,
    rules: &'static [&'static str],
    body: impl Fn(&Device, &Device, SocketAddr) + Send + Sync + 'static,
) -> Option<world::Ended> {
    let Nic::Model(_) = nic else {
        let host = host::real::host();
        let (a, b) = (faulty(nic, &host, seed, rules), faulty(nic, &host, seed, &[]));
        body(&a, &b, SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        return None;
    };
    let config =
        world::Config { seed: 1, fiber_kind: FiberKind::Coroutine, stack: 1 << 20, max_events: 10_000_000 };
    let mut world = World::new(config);
    let (a, b) = (world.add_node("a"), world.add_node("b"));
    let hosts = (a.host(), b.host());
    let driver = move || {
        let (a, b) = (faulty(nic, &hosts.0, seed, rules), faulty(nic, &hosts.1, seed, &[]));
        let addr = SocketAddr::new(b.attr().port_addrs[0], 0);
        body(&a, &b, addr);
    };
    world.spawn("driver", &[&a, &b], driver).expect("a rank");
    Some(world.run().unwrap_or_else(|failure| panic!("{failure}")))
}

/// One side of a connection.
pub(crate) struct End {
    pub(crate) device: Device,
    pub(crate) pd: Pd,
    pub(crate) cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) cm: Cm,
    pub(crate) qp: Qp,
    pub(crate) mr: Mr,
}

impl End {
    pub(crate) fn new(device: &Device) -> Self {
        let pd = device.alloc_pd().expect("a domain");
        let (cq, recv_cq) =
            (device.create_cq(256).expect("a queue"), device.create_cq(256).expect("a queue"));
        let qp = pd.create_qp(&QpInit::new(&cq).recv_cq(&recv_cq)).expect("a queue pair");
        let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = pd.reg_mr(&Buf::alloc(4096).expect("memory"), rights).expect("a region");
        let cm = device.create_cm().expect("a channel");
        Self { device: device.clone(), pd, cq, recv_cq, cm, qp, mr }
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.device.host().after(PATIENCE)
    }

    pub(crate) fn event(&self) -> CmEvent {
        self.cm.get_event(self.deadline()).expect("an event of a connection")
    }

    pub(crate) fn send_done(&self) -> Wc {
        self.cq.wait(self.deadline()).expect("a completion of a request")
    }

    pub(crate) fn recv_done(&self) -> Wc {
        self.recv_cq.wait(self.deadline()).expect("a completion of a receive")
    }

    pub(crate) fn post_recv(&self, wr_id: u64) {
        self.qp.post_recv(&RecvWr::new(wr_id, &[self.mr.sge(0, 64)])).expect("a receive");
    }

    pub(crate) fn post(&self, wr: &SendWr<'_>) {
        self.qp.post_send(wr).expect("a request");
    }

    /// The ids and statuses of the next completions of requests.
    pub(crate) fn statuses(&self, count: usize) -> Vec<(u64, WcStatus)> {
        (0..count).map(|_| self.send_done()).map(|wc| (wc.wr_id, wc.status)).collect()
    }

    pub(crate) fn faults(&self) -> FaultHandle {
        FaultHandle::of(&self.device).expect("a device of faults")
    }

    pub(crate) fn until_disconnected(&self) {
        match self.event() {
            CmEvent::Disconnected { qp_num } if qp_num == self.qp.num() => {}
            other => panic!("expected Disconnected, got {other:?}"),
        }
    }
}

/// Connects two ends.
pub(crate) fn connect(a: &End, b: &End, addr: SocketAddr) {
    let listener = b.cm.listen(addr, 8).expect("a listener");
    a.cm.connect(&a.qp, listener.addr(), &ConnParam::default()).expect("a connect");
    accept(b);
    for end in [a, b] {
        assert!(matches!(end.event(), CmEvent::Established { .. }), "{:?}", end.qp);
    }
}

/// Accepts the next request.
pub(crate) fn accept(b: &End) {
    let CmEvent::ConnectRequest(request) = b.event() else { panic!("expected a connect request") };
    b.cm.accept(request, &b.qp, &ConnParam::default()).expect("an accept");
}

/// Two connected ends.
pub(crate) fn pair(a: &Device, b: &Device, addr: SocketAddr) -> (End, Arc<End>) {
    let (a, b) = (End::new(a), End::new(b));
    connect(&a, &b, addr);
    (a, Arc::new(b))
}
