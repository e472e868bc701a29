//! Peers that are stopped in the middle of traffic for a while, then continued or killed. Nothing else may hang: each
//! call returns soon, waits end at their deadlines, and a bystander on the same device is served meanwhile.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::process::Signal;
use verbs::Error;

use super::kills::{Activity, ROLE};
use crate::attack::{Attack, Budget, HANG, Tally};
use crate::child::Child;
use crate::endpoint::{DEVICES, Endpoint, Link, within};
use crate::stress_traffic::StressTraffic;
use host::Rng;

/// How long a peer is stopped at least and at most, in milliseconds; less than `silence` of an iWARP device.
const STOPPED: (u64, u64) = (20, 200);

/// A child that sends and receives, and this side's end of its connection.
pub(super) struct Peer {
    child: Child,
    end: Endpoint,
    link: Link,
    traffic: StressTraffic,
}

impl Peer {
    /// Starts the child, and connects it to this end.
    pub(super) fn new(name: &str, end: Endpoint, rng: &mut Rng) -> Result<Self> {
        let mut child = Child::start(ROLE)?;
        ensure!(
            child.request(format!("{name} /dev/null"))? == "ready",
            "the child did not get ready on {name}"
        );
        let listener = end.listen()?;
        child.send(format!("{:?} {} {}", Activity::Both, listener.addr().port(), rng.next_u64()))?;
        let link = end.accept()?;
        let traffic = StressTraffic::new(&end, &link, Rng::new(rng.next_u64()))?;
        Ok(Self { child, end, link, traffic })
    }

    /// One step of its traffic; returns the duration of the calls.
    pub(super) fn step(&mut self, tally: &mut Tally) -> Result<Duration> {
        let began = Instant::now();
        self.traffic.post(&self.end, &self.link)?;
        self.traffic.poll(&self.end, &self.link, tally)?;
        let event = self.end.event_now();
        ensure!(event.is_none() && !self.traffic.failed, "the connection failed: {event:?}");
        Ok(began.elapsed())
    }

    /// Makes progress until this many more messages have been acknowledged.
    pub(super) fn serve(&mut self, messages: u64, tally: &mut Tally) -> Result<()> {
        let (goal, began) = (self.traffic.acknowledged + messages, Instant::now());
        while self.traffic.acknowledged < goal {
            self.step(tally)?;
            if began.elapsed() > Duration::from_secs(10) {
                tally.hung += 1;
                bail!("{} messages of {messages} in 10 s", messages - (goal - self.traffic.acknowledged));
            }
        }
        Ok(())
    }
}

/// The attack's entry in the list.
pub(crate) const ATTACK: Attack = Attack {
    name: "stopped",
    about: "stop peers in the middle of traffic, then continue or kill them",
    weight: 2,
    late_max: HANG,
    run,
};

/// Attacks until the budget is spent, and counts the results.
fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let mut bystanders = Vec::new();
    for name in DEVICES {
        bystanders.push(Peer::new(name, Endpoint::open(name)?, &mut budget.rng)?);
    }
    let mut at = 0;
    while budget.has_time_left() {
        let (name, bystander) = (DEVICES[at % DEVICES.len()], &mut bystanders[at % DEVICES.len()]);
        let seed = budget.rng.next_u64();
        tally.tried += 1;
        match round(name, bystander, seed, tally) {
            Ok(()) => tally.survived += 1,
            Err(why) => tally.add_note(format!("on {name}, seed {seed}: {why:#}")),
        }
        at += 1;
    }
    Ok(())
}

/// Stops one peer.
fn round(name: &str, bystander: &mut Peer, seed: u64, tally: &mut Tally) -> Result<()> {
    let mut rng = Rng::new(seed);
    bystander.serve(1, tally)?;
    let mut peer = Peer::new(name, Endpoint::on_device(&bystander.end.device)?, &mut rng)?;
    let idle = peer.end.device.create_cq(16)?;
    peer.serve(rng.below(200), tally)?;
    peer.child.signal(Signal::STOP)?;
    let (stopped, time) =
        (Instant::now(), Duration::from_millis(STOPPED.0 + rng.below(STOPPED.1 - STOPPED.0)));
    let before = bystander.traffic.acknowledged;
    let mut is_served = false;
    // With few processors, the bystander's own process may have to wait for one; but no longer than a hang.
    while stopped.elapsed() < time || (!is_served && stopped.elapsed() < HANG) {
        let took = peer.step(tally)?.max(bystander.step(tally)?);
        tally.record_reaction(took);
        is_served |= bystander.traffic.acknowledged > before;
    }
    ensure!(is_served, "no message of the bystander came through in {:?}", stopped.elapsed());
    let (began, wait) = (Instant::now(), Duration::from_millis(5));
    let waited = idle.wait(within(wait));
    ensure!(matches!(waited, Err(Error::TimedOut { .. })), "a wait for nothing ended with {waited:?}");
    tally.record_reaction(began.elapsed().saturating_sub(wait));
    if rng.below(2) == 0 {
        peer.child.signal(Signal::CONT)?;
        peer.serve(50, tally)?;
    }
    // Stopped or not, the peer is killed now.
    let gone = peer.child.kill()?;
    let Peer { end, link, mut traffic, .. } = peer;
    let over = traffic.run_until_disconnected(&end, &link, true, tally)?;
    tally.record_reaction(over.saturating_duration_since(gone));
    tally.outside += end.count_changed_canaries()?;
    Ok(())
}
