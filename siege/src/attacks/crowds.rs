//! Crowds: thousands of connections at once, made and closed again: how long that takes, and what memory stays.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use host::Span;
use verbs::{Cm, CmEvent, ConnParam, Cq, Device, Listener, Qp, QpInit};

use crate::attack::{Attack, Budget, Tally};
use crate::child::{Child, hear, say};
use crate::traces::{resident_bytes, segment_bytes};

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
    about: "8,192 connections made and closed, on shm and on iwarp: the time, and the memory that stays",
    weight: 3,
    late_max: Duration::from_secs(3),
    run,
};

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    while budget.goes_on() {
        let count = if budget.left() > Duration::from_secs(20) { CROWD } else { SMALL };
        for device in ["shm", "iwarp"] {
            tally.tried += 1;
            let mut child = Child::start("crowd")?;
            child.tell(device)?;
            child.tell(count)?;
            let said = child.heard_within(Duration::from_secs(60)).context("the crowd is silent")?;
            let words: Vec<u64> =
                said.split(' ').map(str::parse).collect::<Result<_, _>>().context(said.clone())?;
            let [connect_us, close_us, left] = words[..] else { bail!("the crowd said `{said}`") };
            child.end(Duration::from_secs(10))?;
            tally.late = tally.late.max(Duration::from_micros(connect_us.max(close_us)));
            let line = format!(
                "{device}: {count} connected in {:.2} s, closed in {:.2} s, {:.1} MB stay",
                connect_us as f64 / 1e6,
                close_us as f64 / 1e6,
                left as f64 / 1e6
            );
            tally.note(line);
            tally.left_over += u64::from(left > LEFT_MAX);
            tally.survived += u64::from(left <= LEFT_MAX);
        }
    }
    Ok(())
}

/// A child: makes and closes a crowd within itself; says the microseconds of both, and the bytes that stay.
pub(super) fn crowd_role() -> Result<()> {
    let name = hear()?.context("a device's name")?;
    let count: usize = hear()?.context("a number")?.parse()?;
    let host = host::real::host();
    let (near, far) = (Half::new(fabric::open(&name, &host)?)?, Half::new(fabric::open(&name, &host)?)?);
    let listener = far.cm.listen("127.0.0.1:0".parse()?, WINDOW as u32)?;
    // What is made once and stays is no part of the crowd.
    drop(crowd(&near, &far, &listener, 1)?);
    let before = resident_bytes() + segment_bytes();
    let began = Instant::now();
    let qps = crowd(&near, &far, &listener, count)?;
    let connected = began.elapsed();
    let began = Instant::now();
    drop(qps);
    let closed = began.elapsed();
    let left = settled(|| {
        while near.cm.poll_event().or_else(|| far.cm.poll_event()).is_some() {}
        (resident_bytes() + segment_bytes()).saturating_sub(before)
    });
    say(format!("{} {} {left}", connected.as_micros(), closed.as_micros()))
}

/// One side of the crowd.
struct Half {
    device: Device,
    cm: Cm,
    cq: Cq,
}

impl Half {
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

fn crowd(near: &Half, far: &Half, listener: &Listener, count: usize) -> Result<(Vec<Qp>, Vec<Qp>)> {
    let param = ConnParam::default();
    let (ours, theirs) = (near.qps(count)?, far.qps(count)?);
    for (ours, theirs) in ours.chunks(WINDOW).zip(theirs.chunks(WINDOW)) {
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
    }
    ensure!(ours.len() == count, "all of them");
    Ok((ours, theirs))
}

/// What a measure falls to within a second.
fn settled(measure: impl Fn() -> u64) -> u64 {
    let began = Instant::now();
    let mut least = measure();
    while least > LEFT_MAX / 2 && began.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(20));
        least = least.min(measure());
    }
    least
}
