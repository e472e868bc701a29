//! Measures the cost of `SendFlags::NOTIFY` for a write when no thread sleeps: 64 B inline into a peer's NIC
//! memory on shm, every 32nd signaled, batches with and without the flag in turns. Prints the 5th percentile
//! of both, in ns per write, and their ratio.
//!
//! `ring_cost [SECONDS]`

use host::Span;
use nic_shm::{ShmConfig, open};
use verbs::{Access, CmEvent, ConnParam, Qp, QpCap, QpInit, SendFlags, SendOp, SendWr};

const BATCH: u64 = 2048;
const EVERY: u64 = 32;

fn main() {
    let seconds = std::env::args().nth(1).and_then(|s| s.parse().ok()).unwrap_or(2);
    let host = host::real::host();
    let config = ShmConfig { dm_size: Some(host::Bytes(1 << 20)), ..ShmConfig::default() };
    let (a, b) = (open(&host, &config).expect("a device"), open(&host, &config).expect("a device"));
    let cap = QpCap { max_send_wr: 64, ..QpCap::default() };
    let end = |device: &verbs::Device| {
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(256).expect("a queue"));
        let qp = pd.create_qp(&QpInit::new(&cq).cap(cap)).expect("a queue pair");
        (pd, cq, qp, device.create_cm().expect("a channel"))
    };
    let ((_, cq, qp, cm), (far_pd, _far_cq, far_qp, far_cm)) = (end(&a), end(&b));
    let listener = far_cm.listen("127.0.0.1:0".parse().expect("an address"), 1).expect("a listener");
    cm.connect(&qp, listener.addr(), &ConnParam::default()).expect("connecting");
    let CmEvent::ConnectRequest(request) = far_cm.get_event(None).expect("an event") else {
        panic!("no request")
    };
    far_cm.accept(request, &far_qp, &ConnParam::default()).expect("accepting");
    assert!(matches!(cm.get_event(None), Ok(CmEvent::Established { .. })));
    let far = far_pd.reg_mr(&b.alloc_dm(4096).expect("memory"), Access::ALL).expect("a region");
    let batch = |qp: &Qp, flags: SendFlags| {
        let began = host.now();
        for i in 1..=BATCH {
            let wr = SendWr::inline(i, SendOp::Write(far.remote(0)), &[7; 64]).unsignaled().with(flags);
            if i % EVERY > 0 {
                qp.post_send(&wr).expect("room");
                continue;
            }
            qp.post_send(&wr.with(SendFlags::SIGNALED)).expect("room");
            cq.spin(None).expect("no overrun");
        }
        (host.now() - began).as_ps() as f64 / 1000.0 / BATCH as f64
    };
    let (mut plain, mut notifying) = (Vec::new(), Vec::new());
    let until = host.now() + Span::from_secs(seconds);
    while host.now() < until {
        plain.push(batch(&qp, SendFlags::empty()));
        notifying.push(batch(&qp, SendFlags::NOTIFY));
    }
    let p5 = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 20]
    };
    let (plain, notifying) = (p5(&mut plain), p5(&mut notifying));
    println!("plain {plain:.2} ns, notifying {notifying:.2} ns, ratio {:.3}", notifying / plain);
}
