//! Kills a child inside an atomic on the survivor's memory while the survivor destroys its queue pair at about that
//! time: atomics of other peers must proceed. Atomics on host memory take turns, and a dead process must not keep the
//! turn.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use verbs::{AtomicCap, CmEvent, SendOp, SendWr};

use super::activity::Activity;
use super::child_pool::Victim;
use crate::attack::Tally;
use crate::endpoint::{Endpoint, Link, PEERS, RESULT, deadline, within};
use host::Rng;

/// Maximal lifetime of the child, and how long before or after its end the queue pair is destroyed, in microseconds.
const LIFE: u64 = 2000;
const AROUND: u64 = 100;
/// Atomics that the neighbour executes after all that.
const AFTERWARDS: u64 = 8;
/// The longest time that one atomic may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// The operation of both the child and the neighbour on the survivor's memory: an atomic, or a read if the device has
/// none.
pub(super) fn op(end: &Endpoint, link: &Link) -> SendOp {
    let remote = link.peer.offset(PEERS);
    match end.device.attr().atomic_cap {
        AtomicCap::None => SendOp::Read(remote),
        AtomicCap::Hca | AtomicCap::Global => SendOp::FetchAdd { remote, add: 1 },
    }
}

/// Another peer whose atomics must proceed.
struct Neighbour<'a> {
    end: &'a Endpoint,
    link: Link,
    count: u64,
    seen: u64,
}

impl Neighbour<'_> {
    /// Executes one atomic, within a second.
    fn run_atomic(&mut self, tally: &mut Tally) -> Result<()> {
        let room = [self.end.mr.sge(RESULT, 8)];
        self.link.qp.post_send(&SendWr::new(self.count, op(self.end, &self.link), &room))?;
        let wc = self.end.send_cq.wait(within(PATIENCE)).inspect_err(|_| tally.hung += 1);
        let wc = wc.with_context(|| format!("the neighbour's atomic {}", self.count))?;
        ensure!(wc.is_ok() && wc.wr_id == self.count, "the neighbour's atomic {}: {wc:?}", self.count);
        let old = self.end.get(RESULT, 8)?.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
        ensure!(self.count == 0 || old >= self.seen, "the sum went from {} back to {old}", self.seen);
        (self.count, self.seen) = (self.count + 1, old);
        Ok(())
    }
}

/// Kills a child and destroys its queue pair; returns how long it took until the neighbour's atomics had completed.
pub(super) fn round(
    end: &Endpoint,
    neighbour: &Endpoint,
    victim: Victim,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Result<Duration> {
    let mut child = victim.child;
    let listener = end.listen()?;
    let port = listener.addr().port();
    let (link, held) = std::thread::scope(|scope| {
        let connecting = scope.spawn(|| neighbour.connect(port));
        let held = end.accept();
        let Ok(link) = connecting.join() else { bail!("the connecting thread panicked") };
        Ok((link?, held?))
    })?;
    let mut neighbour = Neighbour { end: neighbour, link, count: 0, seen: 0 };
    child.send(format!("{:?} {port} 0", Activity::Atomics))?;
    // The queue pair has its own CM channel: the end of a connection that this side destroys is reported late or never.
    let (request, cm, victims) = (end.request()?, end.device.create_cm()?, end.qp(None)?);
    cm.accept(request, &victims, &end.param())?;
    match cm.get_event(deadline())? {
        CmEvent::Established { .. } => {}
        other => bail!("accepting ended with {other:?}"),
    }
    let life = rng.below(LIFE);
    let destroy_after = (AROUND + life).saturating_sub(rng.below(2 * AROUND));
    let began = Instant::now();
    let gone = std::thread::scope(|scope| {
        let killer = scope.spawn(move || {
            std::thread::sleep(Duration::from_micros(life));
            child.kill()
        });
        let destroy_at = began + Duration::from_micros(destroy_after);
        let mut gone_on = Ok(());
        while gone_on.is_ok() && Instant::now() < destroy_at {
            gone_on = neighbour.run_atomic(tally);
        }
        drop(victims);
        let gone = killer.join();
        let Ok(gone) = gone else { bail!("the killing thread panicked") };
        gone_on.and(gone)
    })?;
    (0..AFTERWARDS).try_for_each(|_| neighbour.run_atomic(tally))?;
    let late = gone.elapsed();
    neighbour.end.cm.disconnect(&neighbour.link.qp)?;
    for (side, own) in [(neighbour.end, &neighbour.link), (end, &held)] {
        match side.event()? {
            CmEvent::Disconnected { qp_num } if qp_num == own.qp.num() => {}
            other => bail!("an end was expected: {other:?}"),
        }
    }
    Ok(late)
}
