//! The processor time of an 8-byte message: one thread posts at one end of a connection and polls at both, so that it never waits
//! and no cache line changes its core. Batches of all kinds alternate; prints the 5th percentile of each, in ns per operation.
//!
//! ```text
//! cargo run --release -p dapl --example message_cost -- [DEVICE] [SECONDS]
//! valgrind --tool=callgrind --toggle-collect='*counted*' message_cost DEVICE KIND TIMES
//! ```
//!
//! | kind | an operation |
//! |---|---|
//! | `write` | an unsignaled write; one of 32 is signaled and polled |
//! | `send` | a receive is posted, a message is sent, both completions are polled |
//! | `poll` | a poll of an empty completion queue |
//! | `dapl` | as `send`, by uDAPL |

use dapl::{
    Adapter, Buf, CompletionFlags, ConnectionKind, Ep, EpConfig, Evd, EvdFlags, Event, Ia, Lmr, MemPriv, Psp,
    Pz,
};
use verbs::host::{self, Span};
use verbs::{Access, CmEvent, ConnParam, Cq, Device, Mr, Qp, QpInit, RecvWr, RemoteAddr, SendOp, SendWr};

const BATCH: u64 = 2_000;
const EVERY: u64 = 32;
const KINDS: [&str; 4] = ["write", "send", "poll", "dapl"];
const NONE: CompletionFlags = CompletionFlags::empty();
const PATIENCE: Option<Span> = Some(Span::from_secs(20));

/// One end of a connection by verbs.
struct Plain {
    qp: Qp,
    send: Cq,
    recv: Cq,
    mr: Mr,
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

/// Both ends of both connections.
struct Ends {
    plain: [Plain; 2],
    remote: RemoteAddr,
    dat: [Dat; 2],
}

fn plain_pair(a: &Device, b: &Device) -> [Plain; 2] {
    let end = |device: &Device| {
        let (pd, send, recv) = (device.alloc_pd()?, device.create_cq(64)?, device.create_cq(64)?);
        let mr = pd.reg_mr(&Buf::alloc(4096)?, Access::ALL)?;
        let qp = pd.create_qp(&QpInit::new(&send).recv_cq(&recv))?;
        Ok::<_, verbs::Error>(Plain { qp, send, recv, mr })
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

fn dat_end(device: &Device) -> Dat {
    let (ia, _) = Ia::open(&Adapter::new(device.clone()), 0).expect("an adapter");
    let pz = Pz::create(&ia).expect("a zone");
    let evd = |flags| Evd::create(&ia, 64, None, flags).expect("a dispatcher");
    let (send, recv) = (evd(EvdFlags::DTO), evd(EvdFlags::DTO));
    let (connect, cr) = (evd(EvdFlags::CONNECTION), evd(EvdFlags::CR));
    let lmr = Lmr::create(&pz, &Buf::alloc(4096).expect("memory"), MemPriv::all()).expect("a region");
    let config = EpConfig {
        pz: Some(pz),
        recv_evd: Some(recv.clone()),
        request_evd: Some(send.clone()),
        connect_evd: Some(connect.clone()),
        ..EpConfig::default()
    };
    let ep = Ep::create(&ia, config).expect("an endpoint");
    Dat { ep, send, recv, connect, cr, ia, lmr }
}

fn dat_pair(a: &Device, b: &Device) -> [Dat; 2] {
    let ends = [dat_end(a), dat_end(b)];
    let psp = Psp::create_any(&ends[1].ia, &ends[1].cr, false).expect("a service point");
    let address = ends[1].ia.attr().address;
    ends[0].ep.connect(address, psp.conn_qual(), PATIENCE, &[]).expect("started");
    let request = ends[1].cr.wait(PATIENCE, 1).expect("a request").0;
    let Event::ConnectionRequest(request) = request else { panic!("{request:?}") };
    request.cr.accept(Some(&ends[1].ep), &[]).expect("accepted");
    for end in &ends {
        let event = end.connect.wait(PATIENCE, 1).expect("an event").0;
        assert!(matches!(event, Event::Connection { kind: ConnectionKind::Established, .. }));
    }
    ends
}

impl Ends {
    fn new(device: &str) -> Self {
        let host = host::real::host();
        let open = || fabric::open(device, &host).expect("a device");
        let (a, b) = (open(), open());
        let plain = plain_pair(&a, &b);
        let remote = plain[1].mr.remote(0);
        Self { plain, remote, dat: dat_pair(&a, &b) }
    }

    fn write(&self, turn: u64) {
        let here = &self.plain[0];
        let from = [here.mr.sge(8, 8)];
        let wr = SendWr::new(1, SendOp::Write(self.remote), &from);
        if !turn.is_multiple_of(EVERY) {
            return here.qp.post_send(&wr.unsignaled()).expect("room");
        }
        here.qp.post_send(&wr).expect("room");
        assert!(here.send.spin(None).expect("alive").is_ok());
    }

    fn send(&self) {
        let [here, there] = &self.plain;
        there.qp.post_recv(&RecvWr::new(1, &[there.mr.sge(0, 8)])).expect("room");
        here.qp.post_send(&SendWr::new(2, SendOp::Send, &[here.mr.sge(8, 8)])).expect("room");
        assert!(
            there.recv.spin(None).expect("alive").is_ok() && here.send.spin(None).expect("alive").is_ok()
        );
    }

    fn poll(&self) {
        assert!(self.plain[1].recv.poll_one().expect("alive").is_none());
    }

    fn dapl(&self) {
        let [here, there] = &self.dat;
        there.ep.post_recv(&[there.lmr.segment(0, 8)], 1, NONE).expect("room");
        here.ep.post_send(&[here.lmr.segment(8, 8)], 2, NONE).expect("room");
        let got = there.recv.wait(PATIENCE, 1).expect("a message").0;
        assert!(matches!(got, Event::Dto(dto) if dto.cookie == 1 && dto.length == 8));
        let sent = here.send.wait(PATIENCE, 1).expect("sent").0;
        assert!(matches!(sent, Event::Dto(dto) if dto.cookie == 2));
    }

    #[inline(never)]
    fn counted(&self, kind: &str, times: u64) {
        match kind {
            "write" => (1..=times).for_each(|turn| self.write(turn)),
            "send" => (0..times).for_each(|_| self.send()),
            "poll" => (0..times).for_each(|_| self.poll()),
            "dapl" => (0..times).for_each(|_| self.dapl()),
            other => panic!("{other} is none of write, send, poll, dapl"),
        }
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let ends = Ends::new(args.first().map_or("shm", String::as_str));
    if let [_, kind, times] = &args[..] {
        // Warm-up: enough operations that locks have their owners, and caches are warm.
        (0..3 * BATCH).for_each(|turn| match kind.as_str() {
            "dapl" => ends.dapl(),
            "write" => ends.write(turn),
            _ => ends.send(),
        });
        return ends.counted(kind, times.parse().expect("a number of times"));
    }
    let seconds = args.get(1).map_or(2, |text| text.parse().expect("a number of seconds"));
    let host = host::real::host();
    let mut all = [const { Vec::new() }; KINDS.len()];
    let until = host.now() + Span::from_secs(seconds);
    while host.now() < until {
        for (kind, times) in KINDS.into_iter().zip(&mut all) {
            let began = host.now();
            ends.counted(kind, BATCH);
            times.push((host.now() - began).as_ns_f64() / BATCH as f64);
        }
    }
    for (kind, times) in KINDS.into_iter().zip(&mut all) {
        times.sort_unstable_by(f64::total_cmp);
        println!("{kind:5} {:8.2} ns", times[times.len() / 20]);
    }
}
