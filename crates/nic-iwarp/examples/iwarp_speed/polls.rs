//! The cost of polling an empty completion queue, by the number of connections that complete there, and of a message
//! then.

use std::net::{Ipv4Addr, SocketAddr};

use host::{Host, Span};
use nic_iwarp::{IwarpConfig, open};
use verbs::{Access, Buf, Cm, CmEvent, ConnParam, Cq, Device, Mr, Pd, Qp, QpCap, QpInit, SendOp, SendWr, Wc};

const COUNTS: [usize; 6] = [1, 4, 16, 64, 256, 1000];
const POLLS: u32 = 20_000;
const WRITES: u64 = 500;

/// Both endpoints in one process.
struct Pairs {
    host: Host,
    devices: [(Device, Pd, Cm, Cq); 2],
    qps: Vec<[Qp; 2]>,
    memory: [Mr; 2],
}

pub(crate) fn measure() {
    let mut pairs = Pairs::new();
    for count in COUNTS {
        pairs.grow(count);
        let cq = &pairs.devices[0].3;
        let mut wcs = [Wc::default(); 16];
        let began = pairs.host.now();
        for _ in 0..POLLS {
            assert_eq!(cq.poll(&mut wcs).expect("a live queue"), 0);
        }
        let poll = (pairs.host.now() - began).as_ns_f64() / f64::from(POLLS);
        let began = pairs.host.now();
        for number in 0..WRITES {
            pairs.write_and_wait(number);
        }
        let write = (pairs.host.now() - began).as_ns_f64() / 1000.0 / WRITES as f64;
        println!(
            "{count:5} connections: {poll:9.1} ns for an empty poll, {write:8.2} us for a write until its completion"
        );
    }
}

impl Pairs {
    fn new() -> Self {
        let host = host::real::host();
        let devices = [(); 2].map(|()| {
            let device = open(&host, &IwarpConfig::default()).expect("a device");
            let pd = device.alloc_pd().expect("a domain");
            let (cm, cq) =
                (device.create_cm().expect("a manager"), device.create_cq(1 << 16).expect("a queue"));
            (device, pd, cm, cq)
        });
        let memory = [0, 1].map(|end: usize| {
            let buf = Buf::alloc(4096).expect("memory");
            devices[end].1.reg_mr(&buf, Access::ALL).expect("a region")
        });
        Self { host, devices, qps: Vec::new(), memory }
    }

    fn grow(&mut self, count: usize) {
        let [near, far] = &self.devices;
        let listener = far.2.listen(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), 16).expect("a port");
        while self.qps.len() < count {
            let cap = QpCap { max_send_wr: 16, max_recv_wr: 16, ..QpCap::default() };
            let pair = [near, far]
                .map(|(_, pd, _, cq)| pd.create_qp(&QpInit::new(cq).cap(cap)).expect("a queue pair"));
            near.2.connect(&pair[0], listener.addr(), &ConnParam::default()).expect("connect");
            let deadline = self.host.after(Span::from_secs(10));
            match far.2.get_event(deadline).expect("an event") {
                CmEvent::ConnectRequest(request) => {
                    far.2.accept(request, &pair[1], &ConnParam::default()).expect("accept");
                }
                other => panic!("{other:?}"),
            }
            for cm in [&near.2, &far.2] {
                let event = cm.get_event(deadline).expect("an event");
                assert!(matches!(event, CmEvent::Established { .. }), "{event:?}");
            }
            self.qps.push(pair);
        }
    }

    /// Writes over a connection that the number selects.
    fn write_and_wait(&self, number: u64) {
        let qp = &self.qps[(number as usize * 7919) % self.qps.len()][0];
        let sges = [self.memory[0].sge(0, 8)];
        let wr = SendWr::new(number, SendOp::Write(self.memory[1].remote(0)), &sges);
        qp.post_send(&wr).expect("post");
        let wc = self.devices[0].3.spin(self.host.after(Span::from_secs(10))).expect("a completion");
        assert!(wc.is_ok() && wc.wr_id == number, "{wc:?}");
    }
}
