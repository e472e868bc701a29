//! Crowds: thousands of connections at once, made and closed again: how long that takes, and what memory stays.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use host::Span;
use verbs::{Cm, CmEvent, ConnParam, Cq, Device, Listener, Qp, QpInit};

use crate::attack::{Attack, Budget, Tally};
use crate::child::{Child, receive_from_parent, send_to_parent};
use crate::resources::{memory_here, settled};

/// Connections of a whole crowd.
const CROWD: usize = 8192;
/// Those of a small one, where there is little time.
const SMALL: usize = 1024;
/// What may stay of a crowd.
const LEFT_MAX: u64 = 5 << 20;
/// Connections that are being made at a time.
const WINDOW: usize = 32;

pub(super) const ATTACK: Attack = Attack {
    name: "crowds",
    about: "open and close 8,192 connections on shm and iwarp; time, and memory that is not freed",
    weight: 3,
    late_max: Duration::from_secs(3),
    run,
};

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    while budget.has_time_left() {
        let count = if budget.time_left() > Duration::from_secs(20) { CROWD } else { SMALL };
        for device in ["shm", "iwarp"] {
            tally.tried += 1;
            let mut child = Child::start("crowd")?;
            child.send(device)?;
            child.send(count)?;
            let said = child.receive_within(Duration::from_secs(60)).context("the crowd is silent")?;
            let words: Vec<u64> =
                said.split(' ').map(str::parse).collect::<Result<_, _>>().context(said.clone())?;
            let [connect_us, close_us, left, later, slowest_us, slowest] = words[..] else {
                bail!("the crowd said `{said}`")
            };
            child.expect_success(Duration::from_secs(10))?;
            let took = Duration::from_micros(connect_us.max(close_us));
            tally.late = tally.late.max(took);
            let line = format!(
                "{device}: {count} connected in {:.2} s, closed in {:.2} s, {:.1} MB stay ({:.1} MB after 3 s more); the slowest {WINDOW} took {:.1} ms, \
                 from number {slowest} on",
                connect_us as f64 / 1e6,
                close_us as f64 / 1e6,
                left as f64 / 1e6,
                later as f64 / 1e6,
                slowest_us as f64 / 1e3,
            );
            // The first of each, and what is amiss, whenever it comes.
            if tally.tried <= 2 || took > ATTACK.late_max || left > LEFT_MAX {
                tally.add_note(line);
            }
            tally.left_over += u64::from(left > LEFT_MAX);
            tally.survived += u64::from(left <= LEFT_MAX);
        }
    }
    Ok(())
}

/// A child: makes and closes a crowd within itself; reports the microseconds of both, the bytes that stay after a second, those that
/// stay three seconds later if that was too much, the microseconds of the slowest few connections, and their number.
pub(super) fn crowd_role() -> Result<()> {
    let name = receive_from_parent()?.context("a device's name")?;
    let count: usize = receive_from_parent()?.context("a number")?.parse()?;
    let host = host::real::host();
    let (near, far) = (
        ConnectionSide::new(fabric::open(&name, &host)?)?,
        ConnectionSide::new(fabric::open(&name, &host)?)?,
    );
    let listener = far.cm.listen("127.0.0.1:0".parse()?, WINDOW as u32)?;
    // What is made once and stays is no part of the crowd.
    drop(crowd(&near, &far, &listener, 1)?);
    let before = memory_here();
    let began = Instant::now();
    let (qps, (slowest, at)) = crowd(&near, &far, &listener, count)?;
    let connected = began.elapsed();
    let began = Instant::now();
    drop(qps);
    let closed = began.elapsed();
    let stays = || {
        while near.cm.poll_event().or_else(|| far.cm.poll_event()).is_some() {}
        memory_here().saturating_sub(before)
    };
    let left = settled(LEFT_MAX / 2, stays);
    let later = if left > LEFT_MAX {
        (0..3).map(|_| settled(LEFT_MAX / 2, stays)).min().unwrap_or(left)
    } else {
        left
    };
    let slowest = slowest.as_micros();
    send_to_parent(format!("{} {} {left} {later} {slowest} {at}", connected.as_micros(), closed.as_micros()))
}

/// One side of the crowd.
struct ConnectionSide {
    device: Device,
    cm: Cm,
    cq: Cq,
}

impl ConnectionSide {
    fn new(device: Device) -> Result<Self> {
        let (cm, cq) = (device.create_cm()?, device.create_cq(4096)?);
        Ok(Self { device, cm, cq })
    }

    fn event(&self) -> Result<CmEvent> {
        Ok(self.cm.get_event(self.device.host().after(Span::from_secs(20)))?)
    }

    fn qps(&self, count: usize) -> Result<Vec<Qp>> {
        let pd = self.device.alloc_pd()?;
        (0..count).map(|_| Ok(pd.create_qp(&QpInit::new(&self.cq))?)).collect()
    }
}

/// Both sides' queue pairs of a crowd, connected; how long the slowest few took, and the first of those.
type Crowd = ((Vec<Qp>, Vec<Qp>), (Duration, usize));

fn crowd(near: &ConnectionSide, far: &ConnectionSide, listener: &Listener, count: usize) -> Result<Crowd> {
    let param = ConnParam::default();
    let (ours, theirs) = (near.qps(count)?, far.qps(count)?);
    let mut slowest = (Duration::ZERO, 0);
    for (at, (ours, theirs)) in ours.chunks(WINDOW).zip(theirs.chunks(WINDOW)).enumerate() {
        let began = Instant::now();
        for qp in ours {
            near.cm.connect(qp, listener.addr(), &param)?;
        }
        let (mut asked, mut established) = (theirs.iter(), 0);
        while established < ours.len() {
            match far.event()? {
                CmEvent::ConnectRequest(request) => {
                    let qp = asked.next().context("more requests than connections")?;
                    far.cm.accept(request, qp, &param)?;
                }
                CmEvent::Established { .. } => established += 1,
                CmEvent::Disconnected { .. } => {}
                other => bail!("the far side has {other:?}"),
            }
        }
        let mut established = 0;
        while established < ours.len() {
            match near.event()? {
                CmEvent::Established { .. } => established += 1,
                CmEvent::Disconnected { .. } => {}
                other => bail!("the near side has {other:?}"),
            }
        }
        slowest = slowest.max((began.elapsed(), at * WINDOW));
    }
    ensure!(ours.len() == count, "all of them");
    Ok(((ours, theirs), slowest))
}
