//! What operations cost with few and with many queue pairs, on shm and on iwarp:
//! `cargo run --release -p nic-soft --example scaling -- [shm|iwarp] [COUNT...]`.
//!
//! Both ends are in this process, and all queue pairs of an end share a completion queue. One of them is used; what is measured
//! is what the others cost it. Each number is the least of several rounds' means, in nanoseconds, as what else the machine does
//! only adds.

use std::process::ExitCode;
use std::time::Instant;

use nic_soft::{iwarp, shm};
use verbs::{
    Access, Buf, Cm, CmEvent, CompChannel, ConnParam, Cq, Data, Device, Listener, Mr, Pd, Qp, QpInit, RecvWr,
    Result, SendFlags, SendOp, SendWr, Srq, SrqInit, Wc,
};

/// Connections that are being made at a time.
const WINDOW: usize = 32;
const ROUNDS: usize = 7;

/// One end of all connections.
struct Side {
    device: Device,
    pd: Pd,
    cm: Cm,
    channel: CompChannel,
    cq: Cq,
    mr: Mr,
}

impl Side {
    fn new(device: Device) -> Result<Self> {
        let (pd, cm, channel) = (device.alloc_pd()?, device.create_cm()?, device.create_comp_channel()?);
        let cq = device.create_cq_with(4096, &channel)?;
        let mr = pd.reg_mr(&Buf::alloc(4096)?, Access::ALL)?;
        Ok(Self { device, pd, cm, channel, cq, mr })
    }

    fn event(&self) -> Result<CmEvent> {
        self.cm.get_event(self.device.host().after(host::Span::from_secs(20)))
    }

    fn wait(&self) -> Result<Wc> {
        self.cq.spin(self.device.host().after(host::Span::from_secs(20)))
    }
}

/// Two ends and their connections.
struct Crowd {
    near: Side,
    far: Side,
    listener: Listener,
    srq: Srq,
    qps: Vec<(Qp, Qp)>,
}

impl Crowd {
    fn new(open: impl Fn() -> Result<Device>, count: usize) -> Result<Self> {
        let (near, far) = (Side::new(open()?)?, Side::new(open()?)?);
        let listener = far.cm.listen(([127, 0, 0, 1], 0).into(), WINDOW as u32)?;
        let srq = far.pd.create_srq(SrqInit { max_wr: 1024, max_sge: 1 })?;
        let mut crowd = Self { near, far, listener, srq, qps: Vec::new() };
        while crowd.qps.len() < count {
            let pairs =
                (0..WINDOW.min(count - crowd.qps.len())).map(|_| crowd.pair()).collect::<Result<_>>()?;
            let pairs = crowd.connect(pairs)?;
            crowd.qps.extend(pairs);
        }
        Ok(crowd)
    }

    fn pair(&self) -> Result<(Qp, Qp)> {
        let far = QpInit { srq: Some(self.srq.clone()), ..QpInit::new(&self.far.cq) };
        Ok((self.near.pd.create_qp(&QpInit::new(&self.near.cq))?, self.far.pd.create_qp(&far)?))
    }

    /// Connects each pair, and no others.
    fn connect(&self, pairs: Vec<(Qp, Qp)>) -> Result<Vec<(Qp, Qp)>> {
        for (at, (near, _)) in (0_u8..).zip(&pairs) {
            self.near.cm.connect(near, self.listener.addr(), &ConnParam::with_private_data([at]))?;
        }
        for side in [&self.far, &self.near] {
            let mut up = 0;
            while up < pairs.len() {
                match side.event()? {
                    CmEvent::ConnectRequest(request) => {
                        let (_, far) = &pairs[usize::from(request.private_data[0])];
                        side.cm.accept(request, far, &ConnParam::default())?;
                    }
                    CmEvent::Established { .. } => up += 1,
                    CmEvent::Disconnected { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        Ok(pairs)
    }

    /// The queue pair that is used.
    fn qp(&self) -> &Qp {
        &self.qps[self.qps.len() / 2].0
    }

    /// Posts a receive.
    fn post(&self) -> Result<()> {
        self.srq.post_recv(&RecvWr { wr_id: 1, sges: &[self.far.mr.sge(0, 8)] })
    }

    /// Sends a message: both completions are taken.
    fn send(&self, op: SendOp) -> Result<()> {
        self.qp().post_send(&send(op))?;
        self.far.wait()?;
        self.near.wait().map(drop)
    }
}

fn send(op: SendOp) -> SendWr<'static> {
    SendWr { wr_id: 1, op, data: Data::Inline(&[7; 8]), flags: SendFlags::SIGNALED }
}

/// The least mean of several rounds, in nanoseconds.
fn least(count: usize, mut op: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..count {
            op()?;
        }
        least = least.min(began.elapsed().as_secs_f64() * 1e9 / count as f64);
    }
    Ok(least)
}

/// What is measured, in this order.
const NAMES: [&str; 11] = [
    "write",
    "send, shared receive",
    "post to a shared queue",
    "poll, empty",
    "poll, all have one",
    "poll, one is stalled",
    "asynchronous event",
    "channel event",
    "connect and destroy",
    "send with invalidate",
    "register, deregister",
];

fn measure(open: impl Fn() -> Result<Device>, count: usize) -> Result<[f64; NAMES.len()]> {
    let crowd = Crowd::new(open, count)?;
    let (near, far) = (&crowd.near, &crowd.far);
    let remote = far.mr.remote(0);
    let write = least(2000, || {
        crowd.qp().post_send(&send(SendOp::Write(remote)))?;
        near.wait().map(drop)
    })?;
    let receive = least(2000, || {
        crowd.post()?;
        crowd.send(SendOp::Send)
    })?;
    let mut post = f64::MAX;
    for _ in 0..ROUNDS {
        let began = Instant::now();
        for _ in 0..500 {
            crowd.post()?;
        }
        post = post.min(began.elapsed().as_secs_f64() * 1e9 / 500.0);
        for _ in 0..500 {
            crowd.send(SendOp::Send)?;
        }
    }
    let mut wcs = [Wc::default(); 16];
    let empty = least(2000, || far.cq.poll(&mut wcs).map(drop))?;
    let full = full(&crowd, &mut wcs)?;
    crowd.qp().post_send(&send(SendOp::Send))?;
    let stalled = least(500, || near.cq.poll(&mut wcs).map(drop))?;
    crowd.post()?;
    far.wait()?;
    near.wait()?;
    let asynchronous = least(2000, || {
        far.device.poll_async_event();
        Ok(())
    })?;
    let channel = least(500, || {
        crowd.post()?;
        far.cq.req_notify(false)?;
        crowd.qp().post_send(&send(SendOp::Send))?;
        far.channel.get_event(far.device.host().after(host::Span::from_secs(20)))?;
        far.wait()?;
        near.wait()?;
        Ok(())
    })?;
    let connect = least(50, || crowd.connect(vec![crowd.pair()?]).map(drop))?;
    let invalidate = least(200, || {
        let mr = far.pd.reg_mr(far.mr.buf(), Access::ALL)?;
        crowd.post()?;
        crowd.send(SendOp::SendInv(mr.rkey()))?;
        std::mem::forget(mr);
        Ok(())
    })?;
    let register = least(500, || far.pd.reg_mr(far.mr.buf(), Access::ALL)?.dereg())?;
    Ok([write, receive, post, empty, full, stalled, asynchronous, channel, connect, invalidate, register])
}

/// What a completion costs to poll while every connection has one, up to as many as there are receives.
fn full(crowd: &Crowd, wcs: &mut [Wc]) -> Result<f64> {
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let some = &crowd.qps[..crowd.qps.len().min(1024)];
        for (near, _) in some {
            crowd.post()?;
            near.post_send(&send(SendOp::Send))?;
            crowd.near.wait()?;
        }
        let (mut got, began) = (0, Instant::now());
        while got < some.len() {
            got += crowd.far.cq.poll(wcs)?;
        }
        least = least.min(began.elapsed().as_secs_f64() * 1e9 / got as f64);
    }
    Ok(least)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let device = args.iter().find(|arg| arg.parse::<usize>().is_err()).map_or("shm", String::as_str);
    let mut counts: Vec<usize> = args.iter().filter_map(|arg| arg.parse().ok()).collect();
    if counts.is_empty() {
        counts = vec![1, 64, 1024];
    }
    let host = host::real::host();
    let results: Result<Vec<_>> = counts
        .iter()
        .map(|count| match device {
            "iwarp" => measure(|| iwarp::open(&host, &Default::default()), *count),
            _ => measure(|| shm::open(&host, &Default::default()), *count),
        })
        .collect();
    let results = match results {
        Ok(results) => results,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    println!("{:>24} {}", device, counts.iter().map(|n| format!("{n:>10}")).collect::<String>());
    for (i, name) in NAMES.iter().enumerate() {
        let row: String = results.iter().map(|result| format!("{:>10.0}", result[i])).collect();
        println!("{name:>24} {row}");
    }
    ExitCode::SUCCESS
}
