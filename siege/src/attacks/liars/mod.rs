//! Peers that keep to the protocol of shared memory and lie in one word at a time: every word that a connection uses, in their own
//! segment and, as far as peers write there, in the victim's, and every field of the hello. The words come from the layout
//! (`nic_soft::shm::lab`), the lies from a list of numbers at limits, of other objects' places, and of chance.
//!
//! The victim is in this process, with canaries around its regions and elsewhere. It works as initiator and target with each liar,
//! by the kernel's way and by the owner's. What it posted must come back, once; nothing else may change; no call may take long;
//! and a bystander, connected to the same device, must not notice.
//!
//! | file | what it holds |
//! |---|---|
//! | `estate` | a device with regions between canaries, and the traffic over a connection |
//! | `liar` | the child that lies, and the bystander |

mod estate;
mod liar;

pub(crate) use liar::{bystander_role, liar_role};

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nic_soft::shm::CopyPath;
use verbs::{CmEvent, ConnParam, ConnectRequest, Cq, Listener, Qp};

use crate::attack::{Attack, Budget, Tally};
use crate::child::Child;
use estate::{Estate, Remotes, Traffic};

/// Lies about each word, at most.
const VALUES: u64 = 1000;
/// A liar is replaced after so many rounds, as its own device suffers.
const LIAR_ROUNDS: u64 = 400;
/// Honest connections that may be refused in a row.
const REFUSED_MAX: u64 = 20;
/// How long a liar may take for a round; a dead one is replaced.
const LIAR_PATIENCE: Duration = Duration::from_secs(2);

/// What this is, for the list.
pub(crate) const ATTACK: Attack = Attack {
    name: "liars",
    about: "peers on shm that lie in one word at a time: every word of shared memory, every field of the hello",
    weight: 3,
    late_max: Duration::from_secs(1),
    run,
};

/// Carries out the attack.
fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let mut arenas = [Arena::new(CopyPath::Auto)?, Arena::new(CopyPath::Service)?];
    let seed = budget.rng.next();
    for value in 0..VALUES {
        for arena in &mut arenas {
            let mut word = 0;
            while budget.goes_on() && arena.round(word, value, seed, tally)? {
                word += 1;
            }
            arena.words = arena.words.max(word);
        }
        if !budget.goes_on() {
            break;
        }
    }
    for arena in &mut arenas {
        arena.check_bystander(tally)?;
        tally.note(format!(
            "{:?}: {} words, {} lies, {} messages arrived, {} requests succeeded, {} liars died or fell silent",
            arena.copy, arena.words, arena.lies, arena.arrived, arena.succeeded, arena.lost_liars
        ));
    }
    Ok(())
}

/// A victim, its bystander, and its liar of the moment.
struct Arena {
    copy: CopyPath,
    estate: Estate,
    listener: Listener,
    bystander: Child,
    liar: Option<(Child, u64)>,
    words: u64,
    lies: u64,
    arrived: u64,
    succeeded: u64,
    lost_liars: u64,
    /// Rounds in a row in which nobody could connect, though nothing was lied about yet.
    refused: u64,
}

impl Arena {
    fn new(copy: CopyPath) -> Result<Self> {
        let estate = Estate::new(copy)?;
        let listener = estate.cm.listen(estate::any(), 64)?;
        let mut bystander = Child::start("bystander")?;
        let port = listener.addr().port();
        bystander.tell(format!("{} {port}", estate::name(copy)))?;
        let (qp, _) = estate.queue_pair(false)?;
        let request = estate.request(Duration::from_secs(20))?;
        estate.cm.accept(request, &qp, &ConnParam::with_private_data(estate.bystander_remotes().pack()))?;
        anyhow::ensure!(bystander.heard()? == "connected");
        // Kept by the estate until the end.
        estate.keep(qp);
        Ok(Self {
            copy,
            estate,
            listener,
            bystander,
            liar: None,
            words: 0,
            lies: 0,
            arrived: 0,
            succeeded: 0,
            lost_liars: 0,
            refused: 0,
        })
    }

    /// The liar, fresh or used; connected to nothing.
    fn liar(&mut self) -> Result<&mut Child> {
        if self.liar.as_ref().is_none_or(|(_, rounds)| *rounds >= LIAR_ROUNDS) {
            self.liar = None;
            let mut child = Child::start("liar")?;
            child.tell(format!("{} {}", estate::name(self.copy), self.listener.addr().port()))?;
            anyhow::ensure!(child.heard()? == "ready");
            self.liar = Some((child, 0));
        }
        let (child, rounds) = self.liar.as_mut().context("just made")?;
        *rounds += 1;
        Ok(child)
    }

    /// One lie; false if there is no such word.
    fn round(&mut self, word: u64, value: u64, seed: u64, tally: &mut Tally) -> Result<bool> {
        let shared = (word + value) % 2;
        let before = (word + value) / 2 % 2;
        let order = format!("{word} {value} {seed} {shared} {before}");
        self.liar()?.tell(&order)?;
        tally.tried += 1;
        let mut traffic = Traffic::default();
        let said = self.accept_and_work(shared == 1, ((word + value) / 4).is_multiple_of(2), &mut traffic)?;
        let Some(said) = said else {
            // It is a liar: it may crash, or wait for its own lie.
            self.liar = None;
            self.lost_liars += 1;
            tally.survived += 1;
            return Ok(true);
        };
        if said == "none" {
            tally.tried -= 1;
            return Ok(false);
        }
        self.refused = if said.starts_with("nothing") { self.refused + 1 } else { 0 };
        if self.refused > REFUSED_MAX {
            // Not this lie's doing: an earlier one has closed the door for all.
            tally.hung += 1;
            tally.note(format!("{:?} lets no honest connection in: {said} (order {order})", self.copy));
            self.refused = 0;
            return Ok(false);
        }
        self.lies += 1;
        self.arrived += traffic.arrived;
        self.succeeded += traffic.succeeded;
        let outside = self.estate.bytes_outside();
        let lost = if said.contains("busy") { 0 } else { traffic.unanswered() };
        for (count, what) in [(outside, "bytes outside"), (traffic.doubled, "doubled"), (lost, "unanswered")]
        {
            if count > 0 {
                tally.note(format!("{count} {what}: {:?} {said} (order {order})", self.copy));
            }
        }
        tally.outside += outside + traffic.overstated;
        tally.doubled += traffic.doubled;
        tally.hung += lost;
        tally.noticed(traffic.slowest);
        if traffic.slowest > Duration::from_secs(1) {
            tally.note(format!("{:?} for a call: {:?} {said} (order {order})", traffic.slowest, self.copy));
        }
        if self.lies.is_multiple_of(128) {
            self.check_bystander(tally)?;
        }
        tally.survived += u64::from(outside + traffic.overstated + traffic.doubled + lost == 0);
        Ok(true)
    }

    /// The victim's part of a round; what the liar said of it, if it lived to say something.
    fn accept_and_work(
        &mut self,
        shared: bool,
        first: bool,
        traffic: &mut Traffic,
    ) -> Result<Option<String>> {
        let until = Instant::now() + LIAR_PATIENCE;
        let mut current = None;
        let mut said: Option<String> = None;
        // Once the liar has done its part, what it did not answer by now it will not answer.
        let mut enough = until;
        while Instant::now() < enough {
            match self.estate.cm.poll_event() {
                Some(CmEvent::ConnectRequest(request)) if current.is_none() => {
                    current = Some(self.accept(request, shared, traffic)?);
                }
                Some(CmEvent::Established { qp_num, .. }) => {
                    if let Some((qp, _, peer)) = current.as_ref().filter(|(qp, ..)| qp.num() == qp_num) {
                        traffic.send_all(&self.estate, qp, peer);
                    }
                }
                _ => {}
            }
            if let Some((_, cq, _)) = &current {
                traffic.poll(cq, Duration::ZERO);
            }
            let (child, _) = self.liar.as_mut().context("there is one")?;
            match child.heard_within(Duration::from_micros(50)) {
                Some(line) => {
                    enough =
                        Instant::now() + Duration::from_millis(if line.ends_with("worked") { 10 } else { 0 });
                    said = Some(line);
                }
                None if said.is_none() && !child.runs() => break,
                None if said.is_some() && traffic.is_answered() => break,
                None => {}
            }
        }
        let (child, _) = self.liar.as_mut().context("there is one")?;
        if first {
            // A dead one hears nothing.
            let _ = child.tell("end");
        }
        if let Some((qp, cq, _)) = current {
            traffic.end(&self.estate, &qp, &cq);
            traffic.timed(|| drop((qp, cq)));
        }
        let (child, _) = self.liar.as_mut().context("there is one")?;
        if !first {
            let _ = child.tell("end");
        }
        if said.as_deref().is_none_or(|said| said.contains("the victim's")) {
            self.estate.renew()?;
        }
        self.estate.refill();
        Ok(said)
    }

    /// Accepts, with receives posted; whoever lies in its hello may be refused.
    fn accept(
        &self,
        request: ConnectRequest,
        shared: bool,
        traffic: &mut Traffic,
    ) -> Result<(Qp, Cq, Remotes)> {
        let peer = Remotes::unpack(&request.private_data);
        let (qp, cq) = self.estate.queue_pair(shared)?;
        traffic.receive(&self.estate, &qp, shared);
        let param = ConnParam::with_private_data(self.estate.remotes().pack());
        // A refusal is an answer.
        let _ = traffic.timed(|| self.estate.cm.accept(request, &qp, &param));
        Ok((qp, cq, peer))
    }

    /// The bystander works as initiator, and finds what it wrote.
    fn check_bystander(&mut self, tally: &mut Tally) -> Result<()> {
        let began = Instant::now();
        self.bystander.tell("work")?;
        match self.bystander.heard_within(Duration::from_secs(10)).as_deref() {
            Some("good") => {}
            other => {
                tally.hung += u64::from(other.is_none());
                tally.lost += u64::from(other.is_some());
                tally.note(format!("the bystander of {:?} said {other:?}", self.copy));
            }
        }
        tally.noticed(began.elapsed());
        let far = self.estate.bytes_elsewhere();
        tally.outside += far;
        if far > 0 {
            tally.note(format!("{far} bytes changed in memory that nobody registered"));
        }
        Ok(())
    }
}
