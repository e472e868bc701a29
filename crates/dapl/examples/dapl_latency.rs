//! The overhead of uDAPL over verbs: an 8-byte ping-pong between two threads, by verbs (post and poll) and by uDAPL (post and
//! wait), alternating. The placement of a connection's cache lines is a matter of luck and lasts as long as the connection, so
//! there are several connections of each kind, and each round uses the next. Prints the best and the median batch of each kind,
//! and their ratios.
//!
//! ```text
//! cargo run --release -p dapl --example dapl_latency -- [DEVICE] [ROUNDS] [CONNECTIONS]
//! ```

use std::sync::Barrier;

use dapl::{
    Adapter, Buf, CompletionFlags, ConnectionKind, Ep, EpConfig, Evd, EvdFlags, Event, Ia, Lmr, MemPriv, Psp,
    Pz,
};
use verbs::host::{self, Host, Span};
use verbs::{Access, CmEvent, ConnParam, Cq, Device, Mr, Qp, QpInit, RecvWr, SendOp, SendWr};

const BATCH: u64 = 2_000;
const NONE: CompletionFlags = CompletionFlags::empty();

/// One end of a connection by verbs.
struct Plain {
    qp: Qp,
    send: Cq,
    recv: Cq,
    mr: Mr,
    host: Host,
}

impl Plain {
    fn post_recv(&self) {
        self.qp.post_recv(&RecvWr::new(1, &[self.mr.sge(0, 8)])).expect("posted");
    }

    fn post_send(&self) {
        self.qp.post_send(&SendWr::new(2, SendOp::Send, &[self.mr.sge(8, 8)])).expect("posted");
    }

    fn take(&self, sleepy: bool) {
        let deadline = self.host.after(Span::from_secs(20));
        let got = if sleepy { self.recv.wait(deadline) } else { self.recv.spin(deadline) };
        assert!(got.expect("a message").is_ok());
        self.post_recv();
    }

    fn reap(&self) {
        let deadline = self.host.after(Span::from_secs(20));
        assert!(self.send.spin(deadline).expect("sent").is_ok());
    }
}

/// One end of a connection by uDAPL.
struct Dat {
    ep: Ep,
    send: Evd,
    recv: Evd,
    connect: Evd,
    cr: Evd,
    ia: Ia,
    lmr: Lmr,
}

impl Dat {
    fn new(device: &Device) -> Self {
        let (ia, _) = Ia::open(&Adapter::new(device.clone()), 0).expect("an adapter");
        let pz = Pz::create(&ia).expect("a zone");
        let evd = |flags| Evd::create(&ia, 64, None, flags).expect("a dispatcher");
        let (send, recv) = (evd(EvdFlags::DTO), evd(EvdFlags::DTO));
        let (connect, cr) = (evd(EvdFlags::CONNECTION), evd(EvdFlags::CR));
        let buf = Buf::alloc(4096).expect("memory");
        let lmr = Lmr::create(&pz, &buf, MemPriv::all()).expect("a region");
        let config = EpConfig {
            pz: Some(pz),
            recv_evd: Some(recv.clone()),
            request_evd: Some(send.clone()),
            connect_evd: Some(connect.clone()),
            ..EpConfig::default()
        };
        let ep = Ep::create(&ia, config).expect("an endpoint");
        Self { ep, send, recv, connect, cr, ia, lmr }
    }

    fn post_recv(&self) {
        self.ep.post_recv(&[self.lmr.segment(0, 8)], 1, NONE).expect("posted");
    }

    fn post_send(&self) {
        self.ep.post_send(&[self.lmr.segment(8, 8)], 2, NONE).expect("posted");
    }

    fn take(&self) {
        let got = self.recv.wait(Some(Span::from_secs(20)), 1).expect("a message").0;
        assert!(matches!(got, Event::Dto(dto) if dto.cookie == 1 && dto.length == 8));
        self.post_recv();
    }

    fn reap(&self) {
        let got = self.send.wait(Some(Span::from_secs(20)), 1).expect("sent").0;
        assert!(matches!(got, Event::Dto(dto) if dto.cookie == 2));
    }

    fn established(&self) {
        let event = self.connect.wait(Some(Span::from_secs(20)), 1).expect("an event").0;
        assert!(matches!(event, Event::Connection { kind: ConnectionKind::Established, .. }));
    }
}

fn plain_pair(a: &Device, b: &Device) -> [Plain; 2] {
    let end = |device: &Device| {
        let (pd, send, recv) = (device.alloc_pd()?, device.create_cq(64)?, device.create_cq(64)?);
        let mr = pd.reg_mr(&Buf::alloc(4096)?, Access::ALL)?;
        let qp = pd.create_qp(&QpInit::new(&send).recv_cq(&recv))?;
        Ok::<_, verbs::Error>(Plain { qp, send, recv, mr, host: device.host().clone() })
    };
    let ends = [end(a).expect("an end"), end(b).expect("an end")];
    let (here, there) = (a.create_cm().expect("a channel"), b.create_cm().expect("a channel"));
    let listener = there.listen("127.0.0.1:0".parse().expect("an address"), 1).expect("listening");
    here.connect(&ends[0].qp, listener.addr(), &ConnParam::default()).expect("started");
    let deadline = a.host().after(Span::from_secs(10));
    let CmEvent::ConnectRequest(request) = there.get_event(deadline).expect("a request") else { panic!() };
    there.accept(request, &ends[1].qp, &ConnParam::default()).expect("accepted");
    for cm in [&here, &there] {
        assert!(matches!(cm.get_event(deadline).expect("an event"), CmEvent::Established { .. }));
    }
    // The channels live as long as the program.
    std::mem::forget((here, there));
    ends
}

fn dat_pair(a: &Device, b: &Device) -> [Dat; 2] {
    let ends = [Dat::new(a), Dat::new(b)];
    let psp = Psp::create_any(&ends[1].ia, &ends[1].cr, false).expect("a service point");
    let address = ends[1].ia.attr().address;
    ends[0].ep.connect(address, psp.conn_qual(), Some(Span::from_secs(10)), &[]).expect("started");
    let request = ends[1].cr.wait(Some(Span::from_secs(10)), 1).expect("a request").0;
    let Event::ConnectionRequest(request) = request else { panic!("{request:?}") };
    request.cr.accept(Some(&ends[1].ep), &[]).expect("accepted");
    ends.iter().for_each(Dat::established);
    ends
}

/// The one-way time of a batch, in nanoseconds.
fn batch(
    host: &Host,
    first: bool,
    start: &Barrier,
    send: impl Fn(),
    take: impl Fn(),
    reap: impl Fn(),
) -> f64 {
    start.wait();
    let began = host.now();
    for _ in 0..BATCH {
        if first {
            send();
            reap();
            take();
        } else {
            take();
            send();
            reap();
        }
    }
    (host.now() - began).as_ns_f64() / (2 * BATCH) as f64
}

fn side(first: bool, ends: &[(Plain, Dat)], start: &Barrier, rounds: usize) -> [Vec<f64>; 3] {
    // Works best on a core of its own; without one it only takes longer.
    let _ = host::real::pin_to_core(usize::from(first));
    for (plain, dat) in ends {
        plain.post_recv();
        dat.post_recv();
    }
    let mut times = [const { Vec::new() }; 3];
    for (plain, dat) in ends.iter().cycle().take(rounds) {
        let host = plain.host.clone();
        let p =
            |sleepy| batch(&host, first, start, || plain.post_send(), || plain.take(sleepy), || plain.reap());
        times[0].push(p(false));
        times[1].push(p(true));
        times[2].push(batch(&host, first, start, || dat.post_send(), || dat.take(), || dat.reap()));
    }
    times
}

fn main() {
    let mut args = std::env::args().skip(1);
    let device = args.next().unwrap_or_else(|| "shm".to_owned());
    let rounds = args.next().map_or(40, |text| text.parse().expect("a number of rounds"));
    let host = host::real::host();
    let connections = args.next().map_or(8, |text| text.parse().expect("a number of connections"));
    let open = || fabric::open(&device, &host).expect("a device");
    let (a, b) = (open(), open());
    let pair = |_| {
        let ([a_plain, b_plain], [a_dat, b_dat]) = (plain_pair(&a, &b), dat_pair(&a, &b));
        ((a_plain, a_dat), (b_plain, b_dat))
    };
    let (here, there): (Vec<_>, Vec<_>) = (0..connections).map(pair).unzip();
    let start = Barrier::new(2);
    let mut times = std::thread::scope(|scope| {
        let other = scope.spawn(|| side(false, &there, &start, rounds));
        let times = side(true, &here, &start, rounds);
        other.join().expect("no panic");
        times
    });
    times.iter_mut().for_each(|times| times.sort_unstable_by(f64::total_cmp));
    let names = ["verbs, post and poll", "verbs, post and wait", "uDAPL, post and wait"];
    for (name, times) in names.into_iter().zip(&times) {
        println!("{name}: best {:.0} ns, median {:.0} ns one way", times[0], times[rounds / 2]);
    }
    let ratio = |at: usize| times[2][at] / times[0][at];
    println!("uDAPL over verbs: best {:.3}, median {:.3}", ratio(0), ratio(rounds / 2));
}
