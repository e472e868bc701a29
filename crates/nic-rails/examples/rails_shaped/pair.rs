//! Two connected endpoints in their namespaces, and the measurements on them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use host::{Span, Time};
use nic_iwarp::{IwarpConfig, open};
use nic_rails::{Engine, RailsConfig};
use verbs::{Access, Buf, Cm, CmEvent, ConnParam, Cq, Device, Mr, Qp, QpCap, QpInit, RecvWr, SendOp, SendWr};

use crate::netns::{Space, Spaces};

/// Bytes of a write, and the number of writes in flight.
pub(crate) const MIB: usize = 1 << 20;
pub(crate) const DEPTH: usize = 16;

/// A stream runs this long before it is measured.
const WARM_UP: Duration = Duration::from_secs(1);

/// The rails that are measured.
#[derive(Clone, Copy)]
pub(crate) enum MeasuredRails {
    /// One rail, as an ordinary device.
    Alone(usize),
    /// Both rails.
    Both(Engine),
}

/// One endpoint.
pub(crate) struct Endpoint {
    pub(crate) device: Device,
    pub(crate) qp: Qp,
    pub(crate) send_cq: Cq,
    pub(crate) recv_cq: Cq,
    pub(crate) mr: Mr,
    cm: Cm,
}

/// Both endpoints; the far one may have a thread that answers messages.
pub(crate) struct Pair {
    pub(crate) near: Endpoint,
    pub(crate) far: Arc<Endpoint>,
    stop: Arc<AtomicBool>,
    echo: Option<JoinHandle<()>>,
}

/// The time by which any operation must have finished.
fn deadline(end: &Endpoint) -> Option<Time> {
    end.device.host().after(Span::from_secs(60))
}

/// Pins this thread to a core, so that the two polling threads do not share one.
fn pin(number: usize) {
    let cores = host::real::allowed_cores();
    // Where pinning is not allowed, the thread stays unpinned.
    let _ = host::real::pin_to_core(cores[number % cores.len()]);
}

fn device(spaces: &Spaces, side: usize, rails: MeasuredRails) -> Device {
    let space: &Space = [&spaces.a, &spaces.b][side];
    let rail = |rail: usize| {
        let (bind, silence) = (Some(spaces.rails()[rail][side].1), IwarpConfig::SILENCE_MIN);
        open(&host::real::host(), &IwarpConfig { bind, silence, ..IwarpConfig::default() }).expect("a device")
    };
    space.within(|| match rails {
        MeasuredRails::Alone(number) => rail(number),
        MeasuredRails::Both(engine) => {
            let config = RailsConfig { engine, ..RailsConfig::default() };
            nic_rails::open(vec![rail(0), rail(1)], &config).expect("rails")
        }
    })
}

impl Endpoint {
    fn new(device: Device) -> Self {
        let pd = device.alloc_pd().expect("a domain");
        let [send_cq, recv_cq] = [(); 2].map(|()| device.create_cq(256).expect("a queue"));
        let cap = QpCap { max_send_wr: 64, max_recv_wr: 64, ..QpCap::default() };
        let qp = pd.create_qp(&QpInit::new(&send_cq).recv_cq(&recv_cq).cap(cap)).expect("a queue pair");
        let buf = Buf::alloc(DEPTH * MIB).expect("memory");
        buf.fill(1);
        let mr = pd.reg_mr(&buf, Access::ALL).expect("a region");
        let cm = device.create_cm().expect("a channel");
        Self { device, qp, send_cq, recv_cq, mr, cm }
    }

    pub(crate) fn receive(&self, number: u64) {
        self.qp.post_recv(&RecvWr::new(number, &[self.mr.sge(number % 16 * 64, 64)])).expect("room");
    }

    fn wait_established(&self) {
        match self.cm.get_event(deadline(self)) {
            Ok(CmEvent::Established { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
}

impl Pair {
    /// Connected endpoints without an answering thread.
    pub(crate) fn connect(spaces: &Spaces, rails: MeasuredRails) -> Self {
        let (near, far) = (Endpoint::new(device(spaces, 0, rails)), Endpoint::new(device(spaces, 1, rails)));
        let rail = if let MeasuredRails::Alone(rail) = rails { rail } else { 0 };
        let addr = SocketAddr::new(spaces.rails()[rail][1].1, 0);
        let listener = far.cm.listen(addr, 1).expect("a listener");
        (0..16).for_each(|number| far.receive(number));
        near.cm.connect(&near.qp, listener.addr(), &ConnParam::default()).expect("asked");
        match far.cm.get_event(deadline(&far)) {
            Ok(CmEvent::ConnectRequest(request)) => {
                far.cm.accept(request, &far.qp, &ConnParam::default()).expect("accepted");
            }
            other => panic!("{other:?}"),
        }
        [&near, &far].into_iter().for_each(Endpoint::wait_established);
        Self { near, far: Arc::new(far), stop: Arc::default(), echo: None }
    }

    /// The same, with a polling thread that answers messages.
    pub(crate) fn connect_with_echo(spaces: &Spaces, rails: MeasuredRails) -> Self {
        let mut pair = Self::connect(spaces, rails);
        let (far, stop) = (pair.far.clone(), pair.stop.clone());
        pair.echo = Some(std::thread::spawn(move || {
            pin(1);
            let mut number = 16;
            while !stop.load(Ordering::Relaxed) {
                let pause = far.device.host().after(Span::from_ms(50));
                let Ok(wc) = far.recv_cq.spin(pause) else { continue };
                assert!(wc.is_ok(), "{wc:?}");
                far.receive(number);
                number += 1;
                far.qp.post_send(&SendWr::new(0, SendOp::Send, &[far.mr.sge(4096, 8)])).expect("room");
                while far.send_cq.poll_one().expect("no overrun").is_some() {}
            }
        }));
        pair
    }

    pub(crate) fn write(&self, number: u64) {
        let at = number % DEPTH as u64 * MIB as u64;
        let sges = [self.near.mr.sge(at, MIB as u32)];
        let op = SendOp::Write(self.far.mr.remote(at));
        self.near.qp.post_send(&SendWr::new(number, op, &sges)).expect("room");
    }

    /// Bytes per second of 1 MiB writes, after buffers have filled and shares have settled.
    pub(crate) fn stream(&self, span: Duration) -> f64 {
        (0..DEPTH as u64).for_each(|number| self.write(number));
        let (mut next, mut began, mut done) = (DEPTH as u64, Instant::now(), 0_u64);
        let mut warm = false;
        loop {
            let wc = self.near.send_cq.wait(deadline(&self.near)).expect("a completion");
            assert!(wc.is_ok(), "{wc:?}");
            done += 1;
            if !warm && began.elapsed() > WARM_UP {
                (warm, began, done) = (true, Instant::now(), 0);
            } else if warm && began.elapsed() > span {
                break;
            }
            self.write(next);
            next += 1;
        }
        let rate = (done * MIB as u64) as f64 / began.elapsed().as_secs_f64();
        for _ in 1..DEPTH {
            self.near.send_cq.wait(deadline(&self.near)).expect("a completion");
        }
        rate
    }

    /// Seconds that a message of 8 bytes takes one way: half of the median round trip.
    pub(crate) fn ping(&self, span: Duration) -> f64 {
        let pings = || {
            pin(0);
            self.measure_pings(span)
        };
        std::thread::scope(|scope| scope.spawn(pings).join().expect("no panic"))
    }

    fn measure_pings(&self, span: Duration) -> f64 {
        let (began, mut times) = (Instant::now(), Vec::new());
        while began.elapsed() < span {
            self.near.receive(0);
            let sent = Instant::now();
            let sges = [self.near.mr.sge(4096, 8)];
            self.near.qp.post_send(&SendWr::new(0, SendOp::Send, &sges)).expect("room");
            assert!(self.near.recv_cq.spin(deadline(&self.near)).expect("an answer").is_ok());
            times.push(sent.elapsed().as_secs_f64() / 2.0);
            assert!(self.near.send_cq.spin(deadline(&self.near)).expect("a completion").is_ok());
        }
        crate::median(times)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(echo) = self.echo.take() {
            // Its panic has been printed.
            let _ = echo.join();
        }
    }
}
