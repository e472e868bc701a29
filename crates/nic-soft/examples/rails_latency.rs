//! What 8 bytes over rails cost beside one rail alone: writes and sends there and back between two threads, over two
//! rails and over one of them in turns, on shared memory and on iWARP over the loopback. Prints half of the way there and
//! back, its 5th percentile and median in ns, for each run, and the ratios.
//!
//! `rails_latency [SECONDS [RUNS [NAME]]]`

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nic_soft::{iwarp, shm};
use verbs::rails::{self, RailsConfig};
use verbs::{
    Access, Buf, Cm, CmEvent, ConnParam, Cq, Device, Mr, Pd, Qp, QpCap, QpInit, RecvWr, SendOp, SendWr,
};

/// What goes there and back.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Write,
    Send,
}

struct End {
    _pd: Pd,
    cm: Cm,
    send_cq: Cq,
    recv_cq: Cq,
    qp: Qp,
    mr: Mr,
}

fn one(name: &str, side: u8, rail: u8) -> Device {
    let host = host::real::host();
    match name {
        "shm" => shm::open(&host, &shm::ShmConfig::default()).expect("a device"),
        _ => {
            let bind = Some([127, 0, 40 + rail, side].into());
            iwarp::open(&host, &iwarp::IwarpConfig { bind, ..iwarp::IwarpConfig::default() })
                .expect("a device")
        }
    }
}

fn device(name: &str, side: u8, count: u8) -> Device {
    match count {
        1 => one(name, side, 0),
        _ => {
            let all = (0..count).map(|rail| one(name, side, rail)).collect();
            rails::open(all, &RailsConfig::default()).expect("rails")
        }
    }
}

impl End {
    fn new(device: &Device) -> Self {
        let pd = device.alloc_pd().expect("a domain");
        let [send_cq, recv_cq] = [(); 2].map(|()| device.create_cq(256).expect("a queue"));
        let cap = QpCap { max_send_wr: 64, max_recv_wr: 64, ..QpCap::default() };
        let qp = pd.create_qp(&QpInit::new(&send_cq).recv_cq(&recv_cq).cap(cap)).expect("a queue pair");
        let mr = pd.reg_mr(&Buf::alloc(4096).expect("memory"), Access::ALL).expect("a region");
        Self { _pd: pd, cm: device.create_cm().expect("a channel"), send_cq, recv_cq, qp, mr }
    }

    fn receive(&self) {
        self.qp.post_recv(&RecvWr::new(0, &[self.mr.sge(64, 64)])).expect("room");
    }

    /// Sends this one's number to the other end; the completion is taken while the answer is on its way.
    fn say(&self, kind: Kind, number: u64, far: &Mr) {
        self.mr.buf().write(128, &number.to_ne_bytes()).expect("inside");
        let op = match kind {
            Kind::Write => SendOp::Write(far.remote(0)),
            Kind::Send => SendOp::Send,
        };
        self.qp.post_send(&SendWr::new(0, op, &[self.mr.sge(128, 8)])).expect("room");
        assert!(self.send_cq.spin(None).expect("a completion").is_ok());
    }

    /// Waits for the other end's number; false when it is over.
    fn hear(&self, kind: Kind, number: u64, over: &AtomicBool) -> bool {
        match kind {
            Kind::Write => {
                let word = self.mr.buf().word(0).expect("inside");
                while word.load(Ordering::Acquire) != number {
                    if over.load(Ordering::Relaxed) {
                        return false;
                    }
                    std::hint::spin_loop();
                }
            }
            Kind::Send => {
                while self.recv_cq.poll_one().expect("no overrun").is_none() {
                    if over.load(Ordering::Relaxed) {
                        return false;
                    }
                    std::hint::spin_loop();
                }
                self.receive();
            }
        }
        true
    }
}

fn pair(name: &str, count: u8) -> (End, End) {
    let (near, far) = (End::new(&device(name, 1, count)), End::new(&device(name, 2, count)));
    let listener = far.cm.listen("127.0.40.2:0".parse().expect("an address"), 1).expect("a listener");
    (0..16).for_each(|_| [&near, &far].into_iter().for_each(End::receive));
    near.cm.connect(&near.qp, listener.addr(), &ConnParam::default()).expect("connecting");
    let CmEvent::ConnectRequest(request) = far.cm.get_event(None).expect("an event") else {
        panic!("no request")
    };
    far.cm.accept(request, &far.qp, &ConnParam::default()).expect("accepting");
    assert!(matches!(near.cm.get_event(None), Ok(CmEvent::Established { .. })));
    assert!(matches!(far.cm.get_event(None), Ok(CmEvent::Established { .. })));
    (near, far)
}

/// Nanoseconds of one way: the 5th percentile and the median.
fn run(name: &str, count: u8, kind: Kind, span: Duration) -> [f64; 2] {
    let (near, far) = pair(name, count);
    let over = AtomicBool::new(false);
    let cores = host::real::allowed_cores();
    let pin = |core: usize| drop(host::real::pin_to_core(cores[core % cores.len()]));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for number in 1.. {
                if !far.hear(kind, number, &over) {
                    return;
                }
                far.say(kind, number, &near.mr);
            }
        });
        let pings = scope.spawn(|| {
            pin(0);
            let (began, mut times) = (Instant::now(), Vec::with_capacity(1 << 22));
            for number in 1.. {
                let sent = Instant::now();
                near.say(kind, number, &far.mr);
                near.hear(kind, number, &over);
                times.push(sent.elapsed().as_nanos() as f64 / 2.0);
                if number % 1024 == 0 && began.elapsed() > span {
                    break;
                }
            }
            over.store(true, Ordering::Relaxed);
            times.sort_by(f64::total_cmp);
            [times[times.len() / 20], times[times.len() / 2]]
        });
        pings.join().expect("no panic")
    })
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: f64| args.get(at).and_then(|s| s.parse().ok()).unwrap_or(default);
    let (span, runs) = (Duration::from_secs_f64(number(0, 0.5)), number(1, 7.0) as usize);
    for name in ["shm", "iwarp"].into_iter().filter(|name| args.get(2).is_none_or(|only| only == name)) {
        for kind in [Kind::Write, Kind::Send] {
            let mut all = [const { Vec::new() }; 2];
            for _ in 0..runs {
                all[0].push(run(name, 1, kind, span));
                all[1].push(run(name, 2, kind, span));
            }
            let middle = |which: usize, at: usize| {
                let mut times: Vec<f64> = all[which].iter().map(|times| times[at]).collect();
                times.sort_by(f64::total_cmp);
                times[times.len() / 2]
            };
            for (at, what) in [(0, "p5"), (1, "median")] {
                let (alone, both) = (middle(0, at), middle(1, at));
                println!(
                    "{name} {kind:?} {what}: over rails {both:.0} ns, over one {alone:.0} ns, ratio {:.3}",
                    both / alone
                );
            }
        }
    }
}
