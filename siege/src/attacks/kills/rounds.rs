//! What the survivor does while a child is killed, and what it checks.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use verbs::{CmEvent, Qp, RecvWr, SendOp, SendWr, Srq, Wc, WcStatus};

use super::activity::Activity;
use super::atomics;
use super::child_pool::{AttackedDevice, Victim};
use crate::attack::Tally;
use crate::child::Child;
use crate::endpoint::{DEPTH, Endpoint, ROUND_MAX, SENDS, SLOT, deadline, loopback};
use crate::stress_traffic::StressTraffic;
use host::Rng;

/// The child is killed at a random time up to this one, in microseconds.
const LIFE: u64 = 5000;

/// Kills one child; returns how long it took the survivor to know everything.
pub(super) fn round(
    front: &mut AttackedDevice,
    state: Activity,
    seed: u64,
    tally: &mut Tally,
) -> Result<Duration> {
    let mut rng = Rng::new(seed);
    let victim = front.child_pool.take_ready()?;
    let end = &front.end;
    let late = match state {
        Activity::Listening => listening(end, victim),
        Activity::Connecting => connecting(end, victim, &mut rng, tally),
        Activity::Accepting => accepting(end, victim, &mut rng),
        Activity::Atomics => atomics::round(end, &front.neighbour, victim, &mut rng, tally),
        Activity::Idle | Activity::Sleeping => without_traffic(end, victim, state, &mut rng, tally),
        Activity::Registering | Activity::Both | Activity::Initiator | Activity::Target => {
            with_traffic(end, victim, state, &mut rng, tally)
        }
    };
    tally.outside += end.count_changed_canaries()?;
    let late = late.or_else(|why| {
        // Leftovers of a failed round would spoil the next one.
        front.end = Endpoint::on_device(&front.end.device)?;
        Err(why)
    })?;
    check_nothing_left(&front.end)?;
    Ok(late)
}

/// Checks that neither a completion nor an event is left after a round.
fn check_nothing_left(end: &Endpoint) -> Result<()> {
    let mut wcs = [Wc::default(); 4];
    for cq in [&end.send_cq, &end.recv_cq] {
        let some = cq.poll(&mut wcs)?;
        ensure!(some == 0, "an unexpected completion: {:?}", wcs[0]);
    }
    let event = end.event_now();
    ensure!(event.is_none(), "an unexpected event: {event:?}");
    Ok(())
}

/// Kills the child after a while, in parallel with `work`; returns how long after the child's death `work` noticed it.
fn kill_during(mut child: Child, rng: &mut Rng, work: impl FnOnce() -> Result<Instant>) -> Result<Duration> {
    let life = Duration::from_micros(rng.below(LIFE));
    let (gone, noticed) = std::thread::scope(|scope| {
        let killer = scope.spawn(move || {
            std::thread::sleep(life);
            child.kill()
        });
        let noticed = work();
        (killer.join(), noticed)
    });
    let Ok(gone) = gone else { bail!("the killing thread panicked") };
    Ok(noticed?.saturating_duration_since(gone?))
}

/// Traffic of one or both sides.
fn with_traffic(
    end: &Endpoint,
    victim: Victim,
    state: Activity,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Result<Duration> {
    let Victim { mut child, ledger } = victim;
    let listener = end.listen()?;
    child.send(format!("{state:?} {} {}", listener.addr().port(), rng.next_u64()))?;
    let link = end.accept()?;
    let mut traffic = StressTraffic::new(end, &link, Rng::new(rng.next_u64()))?;
    let posts = matches!(state, Activity::Both | Activity::Target);
    let late = kill_during(child, rng, || traffic.run_until_disconnected(end, &link, posts, tally))?;
    let acknowledged = ledger.acknowledged()?;
    // Messages reported successful to the killed side must have arrived at the survivor.
    tally.lost += acknowledged.saturating_sub(traffic.messages);
    ensure!(acknowledged <= traffic.messages, "{acknowledged} acknowledged, {} came", traffic.messages);
    Ok(late)
}

/// A connection without traffic, whose survivor sleeps.
fn without_traffic(
    end: &Endpoint,
    victim: Victim,
    state: Activity,
    rng: &mut Rng,
    tally: &mut Tally,
) -> Result<Duration> {
    let mut child = victim.child;
    let listener = end.listen()?;
    child.send(format!("{state:?} {} 0", listener.addr().port()))?;
    let link = end.accept()?;
    let mut traffic = StressTraffic::new(end, &link, Rng::new(0))?;
    let late = kill_during(child, rng, || {
        match end.event()? {
            CmEvent::Disconnected { qp_num } if qp_num == link.qp.num() => {}
            other => bail!("an end was expected: {other:?}"),
        }
        while !traffic.is_settled() {
            if !traffic.poll(end, &link, tally)? {
                // Outstanding requests are flushed, possibly late.
                std::thread::yield_now();
            }
        }
        Ok(Instant::now())
    })?;
    Ok(late)
}

/// The child listens and dies; connecting to it must fail, and its port must be free.
fn listening(end: &Endpoint, victim: Victim) -> Result<Duration> {
    let mut child = victim.child;
    let port: u16 = child.request(format!("{:?} 0 0", Activity::Listening))?.parse()?;
    let gone = child.kill()?;
    match end.connect(port) {
        Ok(_) => bail!("a dead listener accepted"),
        Err(why) => {
            ensure!(why.to_string().contains("ConnectFailed"), "connecting to a dead listener: {why:#}")
        }
    }
    let late = gone.elapsed();
    drop(end.cm.listen(loopback(port), 8)?);
    Ok(late)
}

/// The survivor's side of a connection that the child established.
struct AcceptedConnection {
    qp: Qp,
    established: bool,
    messages: u64,
}

/// The child establishes and ends connections; their receives come from a shared queue.
fn connecting(end: &Endpoint, victim: Victim, rng: &mut Rng, tally: &mut Tally) -> Result<Duration> {
    let Victim { mut child, ledger } = victim;
    let (listener, srq) = (end.listen()?, end.srq()?);
    let mut connections =
        ShortConnections { end, srq, guests: BTreeMap::new(), messages: 0, flushed: BTreeSet::new() };
    (0..DEPTH).try_for_each(|i| connections.post(i))?;
    child.send(format!("{:?} {} {}", Activity::Connecting, listener.addr().port(), rng.next_u64()))?;
    let kill_at = Instant::now() + Duration::from_micros(1000 + rng.below(3 * LIFE));
    let mut gone: Option<Instant> = None;
    loop {
        let mut any = connections.receive()?;
        while let Some(event) = end.cm.poll_event() {
            any = true;
            connections.handle_event(event)?;
        }
        if gone.is_none() && Instant::now() >= kill_at {
            gone = Some(child.kill()?);
            continue;
        }
        let Some(gone) = gone else { continue };
        if connections.guests.is_empty() && !any {
            let late = gone.elapsed();
            let acknowledged = ledger.acknowledged()?;
            tally.lost += acknowledged.saturating_sub(connections.messages);
            ensure!(
                acknowledged <= connections.messages,
                "{acknowledged} acknowledged, {} came",
                connections.messages
            );
            return Ok(late);
        }
        if gone.elapsed() > ROUND_MAX {
            tally.hung += 1;
            bail!("{} connections have no end", connections.guests.len());
        }
    }
}

/// The survivor's side of short-lived connections.
struct ShortConnections<'a> {
    end: &'a Endpoint,
    srq: Srq,
    guests: BTreeMap<u32, AcceptedConnection>,
    messages: u64,
    /// Queue pairs with a claimed receive that was flushed.
    flushed: BTreeSet<u32>,
}

impl ShortConnections<'_> {
    fn post(&self, wr_id: u64) -> Result<()> {
        Ok(self.srq.post_recv(&RecvWr::new(wr_id, &[self.end.mr.sge(wr_id * SLOT, SLOT as u32)]))?)
    }

    /// Polls until no message is left; whether there was any.
    fn receive(&mut self) -> Result<bool> {
        let (mut wcs, mut any) = ([Wc::default(); 16], false);
        loop {
            let some = self.end.recv_cq.poll(&mut wcs)?;
            for wc in &wcs[..some] {
                if wc.status == WcStatus::WrFlushErr {
                    // The dead child had claimed it for a message in flight: it belongs to that queue pair and is
                    // flushed with it.
                    let claimed = self.flushed.insert(wc.qp_num);
                    ensure!(claimed, "more shared receives are flushed than one can be claimed: {wc:?}");
                    self.post(wc.wr_id)?;
                    continue;
                }
                ensure!(wc.is_ok(), "a message failed: {wc:?}");
                self.messages += 1;
                let guest = self.guests.get_mut(&wc.qp_num);
                ensure!(guest.is_some(), "a message on a connection that is over: {wc:?}");
                guest.into_iter().for_each(|guest| guest.messages += 1);
                self.post(wc.wr_id)?;
            }
            if some == 0 {
                return Ok(any);
            }
            any = true;
        }
    }

    fn handle_event(&mut self, event: CmEvent) -> Result<()> {
        match event {
            CmEvent::ConnectRequest(request) => {
                let qp = self.end.qp(Some(&self.srq))?;
                // The client may have died before it is accepted.
                if self.end.cm.accept(request, &qp, &self.end.param()).is_ok() {
                    self.guests.insert(qp.num(), AcceptedConnection { qp, established: false, messages: 0 });
                }
            }
            CmEvent::Established { qp_num, .. } => match self.guests.get_mut(&qp_num) {
                Some(guest) if !guest.established => guest.established = true,
                _ => bail!("a second or unknown beginning"),
            },
            CmEvent::Disconnected { qp_num } => {
                // Every acknowledged message must have arrived by now.
                self.receive()?;
                let guest = self.guests.remove(&qp_num);
                ensure!(
                    guest.is_some_and(|guest| guest.established),
                    "an end without a beginning, or a second one"
                );
            }
            CmEvent::ConnectFailed { qp_num, why } => {
                self.receive()?;
                let guest = self.guests.remove(&qp_num);
                let Some(guest) = guest else { bail!("an unknown connection failed: {why}") };
                ensure!(
                    !guest.established && guest.messages == 0,
                    "{} messages came, then queue pair {} was not connected: {why}",
                    guest.messages,
                    guest.qp.num()
                );
            }
            other @ CmEvent::Rejected { .. } => bail!("an unexpected rejection: {other:?}"),
        }
        Ok(())
    }
}

/// The child accepts and ends connections; the survivor connects until that fails.
fn accepting(end: &Endpoint, victim: Victim, rng: &mut Rng) -> Result<Duration> {
    let mut child = victim.child;
    let port: u16 = child.request(format!("{:?} 0 {}", Activity::Accepting, rng.next_u64()))?.parse()?;
    kill_during(child, rng, || {
        loop {
            let qp = end.qp(None)?;
            end.cm.connect(&qp, loopback(port), &end.param())?;
            match end.event()? {
                CmEvent::Established { qp_num, .. } if qp_num == qp.num() => {}
                CmEvent::ConnectFailed { qp_num, .. } | CmEvent::Rejected { qp_num, .. }
                    if qp_num == qp.num() =>
                {
                    return Ok(Instant::now());
                }
                other => bail!("an answer was expected: {other:?}"),
            }
            qp.post_send(&SendWr::new(7, SendOp::Send, &[end.mr.sge(SENDS, 8)]))?;
            let wc = end.send_cq.wait(deadline())?;
            ensure!(wc.wr_id == 7, "{wc:?}");
            match end.event()? {
                CmEvent::Disconnected { qp_num } if qp_num == qp.num() => {}
                other => bail!("an end was expected: {other:?}"),
            }
        }
    })
}
