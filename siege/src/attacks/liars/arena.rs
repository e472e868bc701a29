//! A victim, its bystander and its liar; injects one false value after another.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nic_shm::CopyPath;
use verbs::{CmEvent, ConnParam, ConnectRequest, Cq, Listener, Qp};

use super::estate::{self, Estate, Remotes, Slowest, Traffic};
use super::field::Field;
use super::liar::{Lie, Moment};
use crate::attack::{HANG, Tally};
use crate::child::Child;
use host::Rng;

/// A liar is replaced after this many rounds, as its own device suffers.
const LIAR_ROUNDS: u64 = 128;
/// Honest connections, each of a fresh liar, that may be refused consecutively.
const REFUSED_MAX: u64 = 5;
/// How long a liar may take for a round; a dead one is replaced.
const LIAR_PATIENCE: Duration = Duration::from_secs(2);
/// The checks that no single round makes follow after this many false values.
const CHECK_EVERY: usize = 128;

/// A victim, its bystander, and its current liar.
pub(super) struct Arena {
    copy: CopyPath,
    seed: u64,
    pub(super) estate: Estate,
    listener: Listener,
    bystander: Child,
    liar: Option<(Child, u64)>,
    /// Injections since the last check.
    recent: Vec<Lie>,
}

/// How a round ended.
enum End {
    /// The liar died or fell silent.
    Silent,
    /// No field was changed.
    Nothing(String),
    Lied {
        said: String,
        went_on: bool,
        bad: bool,
    },
}

impl Arena {
    /// A victim whose memory is reached by this copy path; the false values derive from the seed.
    pub(super) fn new(copy: CopyPath, seed: u64) -> Result<Self> {
        let estate = Estate::new(copy)?;
        let listener = estate.cm.listen(estate::any(), 64)?;
        let mut bystander = Child::start("bystander")?;
        let port = listener.addr().port();
        bystander.tell(format!("{} {port}", estate::name(copy)))?;
        let (qp, _) = estate.queue_pair(false)?;
        let request = estate.request(Duration::from_secs(20))?;
        estate.cm.accept(request, &qp, &ConnParam::with_private_data(estate.bystander_remotes().pack()))?;
        ensure!(bystander.heard()? == "connected");
        // Kept by the estate until the end.
        estate.keep(qp);
        Ok(Self { copy, seed, estate, listener, bystander, liar: None, recent: Vec::new() })
    }

    /// The liar, fresh or used, without a connection.
    fn liar(&mut self) -> Result<&mut Child> {
        if self.liar.as_ref().is_none_or(|(_, rounds)| *rounds >= LIAR_ROUNDS) {
            self.liar = None;
            let mut child = Child::start("liar")?;
            child.tell(format!("{} {}", estate::name(self.copy), self.listener.addr().port()))?;
            ensure!(child.heard()? == "ready");
            self.liar = Some((child, 0));
        }
        let (child, rounds) = self.liar.as_mut().context("just made")?;
        *rounds += 1;
        Ok(child)
    }

    /// Injects a false value into a field: the one with this number.
    pub(super) fn lie(&mut self, field: &mut Field, value: u64, tally: &mut Tally) -> Result<()> {
        let lie = self.plan(field, value);
        tally.tried += 1;
        field.tried += 1;
        let mut end = self.round(&lie, tally)?;
        for _ in 0..REFUSED_MAX {
            if !matches!(end, End::Nothing(_)) {
                break;
            }
            // Earlier rounds may have broken the liar's own device. A fresh liar is honest until its false value.
            self.liar = None;
            end = self.round(&lie, tally)?;
        }
        match end {
            End::Nothing(said) => {
                // Not caused by this value: an earlier one has blocked all connections.
                tally.hung += 1;
                tally.note(format!("{:?} lets no honest connection in: {said} ({})", self.copy, lie.line()));
                field.bad += 1;
            }
            End::Silent => {
                field.silent += 1;
                tally.survived += 1;
            }
            End::Lied { said, went_on, bad } => {
                match (said.contains("refused: "), went_on) {
                    (true, _) => field.refused += 1,
                    (_, true) => field.went_on += 1,
                    (_, false) => field.error += 1,
                }
                field.bad += u64::from(bad);
                tally.survived += u64::from(!bad);
                // An array's position has a comma, too; the result is the last part.
                let lied = said.rsplit_once(", ").map_or(said.as_str(), |(lied, _)| lied);
                field.distinct += u64::from(field.said.insert(lied.to_owned()));
            }
        }
        self.recent.push(lie);
        if self.recent.len() >= CHECK_EVERY {
            self.check_bystander(tally)?;
        }
        Ok(())
    }

    /// Plans the injection with this number; its moment and receive queue are pseudo-random.
    fn plan(&self, field: &Field, value: u64) -> Lie {
        let of_name = field.name.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31) ^ u64::from(byte));
        let mut rng = Rng::new(self.seed ^ of_name ^ value << 40 ^ u64::from(field.of_peer) << 39);
        let shared = field.shared[1] && (!field.shared[0] || rng.below(2) == 1);
        let moments: &[Moment] = match (field.name.starts_with("bounce"), field.of_peer) {
            (true, _) => &[Moment::Amid],
            (_, true) => &[Moment::After, Moment::Amid],
            _ => &[Moment::Before, Moment::After, Moment::Amid],
        };
        let moment = *rng.one_of(moments);
        Lie { value, seed: self.seed, shared, moment, of_peer: field.of_peer, field: field.name.clone() }
    }

    /// Injects one false value, once.
    fn round(&mut self, lie: &Lie, tally: &mut Tally) -> Result<End> {
        let order = lie.line();
        self.liar()?.tell(&order)?;
        let mut traffic = Traffic::new();
        let Some((said, went_on)) = self.accept_and_work(lie, &mut traffic)? else {
            // A liar may crash, or wait because of its own false value.
            self.liar = None;
            return Ok(End::Silent);
        };
        if said == "none" || said.starts_with("nothing") {
            return Ok(End::Nothing(said));
        }
        let outside = self.estate.bytes_outside();
        let lost = if said.contains("busy") { 0 } else { traffic.unanswered() };
        let counts = [
            (outside, "bytes outside"),
            (traffic.overstated, "too long"),
            (traffic.doubled, "doubled"),
            (lost, "unanswered"),
        ];
        for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
            tally.note(format!("{count} {what}: {:?} {said} (value, seed, how, field: {order})", self.copy));
        }
        tally.outside += outside + traffic.overstated;
        tally.doubled += traffic.doubled;
        tally.hung += lost;
        let Slowest { name, took, starved } = traffic.slowest;
        tally.noticed(took);
        if took > Duration::from_secs(1) {
            let round = format!("{:?} {said} ({order})", self.copy);
            tally.note(format!("{took:?} for {name}, {starved:?} of that without a processor: {round}"));
        }
        let bad = counts.iter().any(|(count, _)| *count > 0);
        Ok(End::Lied { said, went_on, bad })
    }

    /// The victim's part of a round. Returns the liar's report, if it lived to send one, and whether all went well.
    fn accept_and_work(&mut self, lie: &Lie, traffic: &mut Traffic) -> Result<Option<(String, bool)>> {
        let until = Instant::now() + LIAR_PATIENCE;
        let mut current = None;
        let mut said: Option<String> = None;
        // What the liar has not answered when it has done its part, it never will.
        let mut enough = until;
        while Instant::now() < enough {
            match self.estate.cm.poll_event() {
                Some(CmEvent::ConnectRequest(request)) if current.is_none() => {
                    current = Some(self.accept(request, lie.shared, traffic)?);
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
            match (child.heard_within(Duration::from_micros(50)), &current) {
                (Some(line), Some((qp, _, peer))) if line == "more" => {
                    traffic.send_all(&self.estate, qp, peer)
                }
                (Some(line), _) => {
                    let patience = if line.ends_with("worked") { 10 } else { 0 };
                    enough = Instant::now() + Duration::from_millis(patience);
                    said = Some(line);
                }
                (None, _) if said.is_none() && !child.runs() => break,
                (None, _) if said.is_some() && traffic.is_answered() => break,
                (None, _) => {}
            }
        }
        let went_on = traffic.is_good();
        if let Some((qp, cq, peer)) = &current {
            traffic.overreach(&self.estate, qp, peer);
            traffic.poll(cq, Duration::from_micros(200));
        }
        self.part_with(current, lie.value.is_multiple_of(2), traffic)?;
        if said.as_deref().is_none_or(|said| said.contains("the victim's")) {
            self.estate.renew()?;
        }
        self.estate.refill();
        Ok(said.map(|said| (said, went_on)))
    }

    /// Ends the connection. The liar is asked to do so before the victim if `first`, otherwise after it.
    fn part_with(
        &mut self,
        current: Option<(Qp, Cq, Remotes)>,
        first: bool,
        traffic: &mut Traffic,
    ) -> Result<()> {
        let (child, _) = self.liar.as_mut().context("there is one")?;
        if first {
            // A dead liar does not read it.
            let _ = child.tell("end");
        }
        if let Some((qp, cq, _)) = current {
            traffic.end(&self.estate, &qp, &cq);
            traffic.timed("Qp::drop", || drop((qp, cq)));
        }
        if !first {
            let _ = child.tell("end");
        }
        Ok(())
    }

    /// Accepts with receives posted; a liar with a false hello may be refused.
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
        // A refusal is a valid answer.
        let _ = traffic.timed("Cm::accept", || self.estate.cm.accept(request, &qp, &param));
        Ok((qp, cq, peer))
    }

    /// The bystander works as initiator and checks what it wrote; unregistered memory must be unchanged.
    pub(super) fn check_bystander(&mut self, tally: &mut Tally) -> Result<()> {
        let recent = std::mem::take(&mut self.recent);
        let mut took = self.bystander_works(tally)?;
        if took > HANG {
            // A false value that delays the bystander delays it again. A machine that is busy does so once.
            for lie in &recent {
                self.round(lie, &mut Tally::default())?;
            }
            let again = self.bystander_works(tally)?;
            let copy = self.copy;
            tally.note(format!("the bystander of {copy:?} took {took:?}, and {again:?} after the same values again"));
            took = took.min(again);
        }
        tally.noticed(took);
        let far = self.estate.bytes_elsewhere();
        tally.outside += far;
        if far > 0 {
            let by =
                self.culprit(&recent)?.map_or("none of the last lies alone".to_owned(), |lie| lie.line());
            tally.note(format!("{far} bytes changed in memory that nobody registered: {:?} {by}", self.copy));
        }
        Ok(())
    }

    /// Lets the bystander work once; returns how long that took.
    fn bystander_works(&mut self, tally: &mut Tally) -> Result<Duration> {
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
        Ok(began.elapsed())
    }

    /// Repeats these injections; returns the first that changes unregistered memory.
    fn culprit(&mut self, recent: &[Lie]) -> Result<Option<Lie>> {
        for lie in recent {
            self.round(lie, &mut Tally::default())?;
            if self.estate.bytes_elsewhere() > 0 {
                return Ok(Some(lie.clone()));
            }
        }
        Ok(None)
    }
}
