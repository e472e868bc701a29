//! Measures what recording and counting add to an RDMA write of 8 bytes on `shm`, from its posting to the poll of its completion.
//!
//! cargo run --release -p nic-trace --example overhead

use host::Span;
use nic_trace::TraceConfig;
use verbs::{Access, Buf, CmEvent, ConnParam, Device, Mr, Qp, QpInit, SendOp, SendWr};

const WRITES: u64 = 20_000;
const ROUNDS: usize = 25;

/// Two connected queue pairs of a device.
struct Pair {
    device: Device,
    from: Qp,
    _to: Qp,
    mr: Mr,
}

fn connect(device: Device) -> verbs::Result<Pair> {
    let deadline = || device.host().after(Span::from_secs(20));
    let (pd, cm) = (device.alloc_pd()?, device.create_cm()?);
    let mr = pd.reg_mr(
        &device.alloc_dm(4096).or_else(|_| Buf::alloc(4096))?,
        Access::LOCAL_WRITE | Access::REMOTE_WRITE,
    )?;
    let qp = || pd.create_qp(&QpInit::new(&device.create_cq(256)?));
    let (from, to) = (qp()?, qp()?);
    let listener = cm.listen("127.0.0.1:0".parse().expect("an address"), 8)?;
    cm.connect(&from, listener.addr(), &ConnParam::default())?;
    while from.state() != verbs::QpState::ReadyToSend {
        if let CmEvent::ConnectRequest(request) = cm.get_event(deadline())? {
            cm.accept(request, &to, &ConnParam::default())?;
        }
    }
    Ok(Pair { device, from, _to: to, mr })
}

/// Nanoseconds for a write.
fn measure(pair: &Pair) -> verbs::Result<f64> {
    let host = pair.device.host();
    let start = host.now();
    for number in 0..WRITES {
        pair.from.post_send(&SendWr::inline(
            number,
            SendOp::Write(pair.mr.remote(0)),
            &number.to_ne_bytes(),
        ))?;
        assert!(pair.from.init().send_cq.spin(None)?.is_ok());
    }
    Ok(host.now().since(start).as_ns_f64() / WRITES as f64)
}

fn main() -> verbs::Result<()> {
    let host = host::real::host();
    let below = || nic_shm::open(&host, &nic_shm::ShmConfig::default());
    let folder = std::env::temp_dir().join(format!("nicety-overhead-{}", std::process::id()));
    let file = Some((folder.clone(), 1 << 18));
    let traced = |file| nic_trace::open(&below()?, &TraceConfig { file, has_control: false });
    let pairs = [connect(below()?)?, connect(traced(None)?)?, connect(traced(file)?)?];
    let _ = std::fs::remove_file(folder);
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        for (pair, times) in pairs.iter().zip(&mut times) {
            times.push(measure(pair)?);
        }
    }
    let plain = times[0].clone();
    for (name, own) in ["plain", "counted", "recorded"].into_iter().zip(&times) {
        let median = |mut values: Vec<f64>| {
            values.sort_by(f64::total_cmp);
            (values[values.len() / 2], values[0], values[values.len() - 1])
        };
        let (time, low, high) = median(own.clone());
        // Neighbours in time see the same machine.
        let (more, less, most) = median(own.iter().zip(&plain).map(|(own, plain)| own - plain).collect());
        println!(
            "{name:9} {time:7.1} ns ({low:.1} to {high:.1}); more than plain: {more:6.1} ns ({less:.1} to {most:.1})"
        );
    }
    Ok(())
}
