//! A victim, its bystander and its injector; injects one false value after another.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nic_shm::CopyPath;
use verbs::{CmEvent, ConnParam, ConnectRequest, Cq, Listener, Qp};

use super::field::Field;
use super::injector::{Injection, Moment};
use super::testbed::{self, RemoteRegions, Slowest, Testbed, Traffic};
use crate::attack::{HANG, Tally};
use crate::child::Child;
use host::Rng;

/// A injector is replaced after this many rounds, as its own device suffers.
const INJECTOR_ROUNDS: u64 = 128;
/// Honest connections, each of a fresh injector, that may be refused consecutively.
const REFUSED_MAX: u64 = 5;
/// How long an injector may take for a round; a dead one is replaced.
const INJECTOR_PATIENCE: Duration = Duration::from_secs(2);
/// The checks that no single round makes follow after this many false values.
const CHECK_EVERY: usize = 128;

/// A victim, its bystander, and its current injector.
pub(super) struct Campaign {
    copy: CopyPath,
    seed: u64,
    pub(super) testbed: Testbed,
    listener: Listener,
    bystander: Child,
    injector: Option<(Child, u64)>,
    /// Injections since the last check.
    recent: Vec<Injection>,
}

/// How a round ended.
enum RoundResult {
    /// The injector died or fell silent.
    Silent,
    /// No field was changed.
    Nothing(String),
    Injected {
        said: String,
        succeeded: bool,
        bad: bool,
    },
}

impl Campaign {
    /// A victim whose memory is reached by this copy path; the false values derive from the seed.
    pub(super) fn new(copy: CopyPath, seed: u64) -> Result<Self> {
        let testbed = Testbed::new(copy)?;
        let listener = testbed.cm.listen(testbed::any_port(), 64)?;
        let mut bystander = Child::start("bystander")?;
        let port = listener.addr().port();
        bystander.send(format!("{} {port}", testbed::path_name(copy)))?;
        let (qp, _) = testbed.queue_pair(false)?;
        let request = testbed.request(Duration::from_secs(20))?;
        testbed.cm.accept(request, &qp, &ConnParam::with_private_data(testbed.bystander_remotes().pack()))?;
        ensure!(bystander.receive()? == "connected");
        // Kept by the testbed until the end.
        testbed.keep_until_drop(qp);
        Ok(Self { copy, seed, testbed, listener, bystander, injector: None, recent: Vec::new() })
    }

    /// The injector, fresh or used, without a connection.
    fn injector(&mut self) -> Result<&mut Child> {
        if self.injector.as_ref().is_none_or(|(_, rounds)| *rounds >= INJECTOR_ROUNDS) {
            self.injector = None;
            let mut child = Child::start("injector")?;
            child.send(format!("{} {}", testbed::path_name(self.copy), self.listener.addr().port()))?;
            ensure!(child.receive()? == "ready");
            self.injector = Some((child, 0));
        }
        let (child, rounds) = self.injector.as_mut().context("just made")?;
        *rounds += 1;
        Ok(child)
    }

    /// Injects a false value into a field: the one with this number.
    pub(super) fn inject(&mut self, field: &mut Field, value: u64, tally: &mut Tally) -> Result<()> {
        let injection = self.plan(field, value);
        tally.tried += 1;
        field.tried += 1;
        let mut end = self.round(&injection, tally)?;
        for _ in 0..REFUSED_MAX {
            if !matches!(end, RoundResult::Nothing(_)) {
                break;
            }
            // Earlier rounds may have broken the injector's own device. A fresh injector is honest until its false value.
            self.injector = None;
            end = self.round(&injection, tally)?;
        }
        match end {
            RoundResult::Nothing(said) => {
                // Not caused by this value: an earlier one has blocked all connections.
                tally.hung += 1;
                tally.add_note(format!(
                    "{:?} lets no honest connection in: {said} ({})",
                    self.copy,
                    injection.line()
                ));
                field.bad += 1;
            }
            RoundResult::Silent => {
                field.silent += 1;
                tally.survived += 1;
            }
            RoundResult::Injected { said, succeeded, bad } => {
                match (said.contains("refused: "), succeeded) {
                    (true, _) => field.refused += 1,
                    (_, true) => field.succeeded += 1,
                    (_, false) => field.error += 1,
                }
                field.bad += u64::from(bad);
                tally.survived += u64::from(!bad);
                // An array's position has a comma, too; the result is the last part.
                let injected = said.rsplit_once(", ").map_or(said.as_str(), |(injected, _)| injected);
                field.distinct += u64::from(field.said.insert(injected.to_owned()));
            }
        }
        self.recent.push(injection);
        if self.recent.len() >= CHECK_EVERY {
            self.check_bystander(tally)?;
        }
        Ok(())
    }

    /// Plans the injection with this number; its moment and receive queue are pseudo-random.
    fn plan(&self, field: &Field, value: u64) -> Injection {
        let of_name = field.name.bytes().fold(0, |sum: u64, byte| sum.wrapping_mul(31) ^ u64::from(byte));
        let mut rng = Rng::new(self.seed ^ of_name ^ value << 40 ^ u64::from(field.of_peer) << 39);
        let shared = field.shared[1] && (!field.shared[0] || rng.below(2) == 1);
        let moments: &[Moment] = match (field.name.starts_with("bounce"), field.of_peer) {
            (true, _) => &[Moment::Amid],
            (_, true) => &[Moment::After, Moment::Amid],
            _ => &[Moment::Before, Moment::After, Moment::Amid],
        };
        let moment = *rng.one_of(moments);
        Injection {
            value,
            seed: self.seed,
            shared,
            moment,
            of_peer: field.of_peer,
            field: field.name.clone(),
        }
    }

    /// Injects one false value, once.
    fn round(&mut self, injection: &Injection, tally: &mut Tally) -> Result<RoundResult> {
        let order = injection.line();
        self.injector()?.send(&order)?;
        let mut traffic = Traffic::new();
        let Some((said, succeeded)) = self.accept_and_work(injection, &mut traffic)? else {
            // A injector may crash, or wait because of its own false value.
            self.injector = None;
            return Ok(RoundResult::Silent);
        };
        if said == "none" || said.starts_with("nothing") {
            return Ok(RoundResult::Nothing(said));
        }
        let outside = self.testbed.bytes_changed_next_to_regions();
        let lost = if said.contains("busy") { 0 } else { traffic.unanswered() };
        let counts = [
            (outside, "bytes outside"),
            (traffic.overstated, "too long"),
            (traffic.doubled, "doubled"),
            (lost, "unanswered"),
        ];
        for (count, what) in counts.iter().filter(|(count, _)| *count > 0) {
            tally.add_note(format!(
                "{count} {what}: {:?} {said} (value, seed, how, field: {order})",
                self.copy
            ));
        }
        tally.outside += outside + traffic.overstated;
        tally.doubled += traffic.doubled;
        tally.hung += lost;
        let Slowest { name, took, starved } = traffic.slowest;
        tally.record_reaction(took);
        if took > Duration::from_secs(1) {
            let round = format!("{:?} {said} ({order})", self.copy);
            tally.add_note(format!("{took:?} for {name}, {starved:?} of that without a processor: {round}"));
        }
        let bad = counts.iter().any(|(count, _)| *count > 0);
        Ok(RoundResult::Injected { said, succeeded, bad })
    }

    /// The victim's part of a round. Returns the injector's report, if it lived to send one, and whether all went well.
    fn accept_and_work(
        &mut self,
        injection: &Injection,
        traffic: &mut Traffic,
    ) -> Result<Option<(String, bool)>> {
        let until = Instant::now() + INJECTOR_PATIENCE;
        let mut current = None;
        let mut said: Option<String> = None;
        // What the injector has not answered when it has done its part, it never will.
        let mut enough = until;
        while Instant::now() < enough {
            match self.testbed.cm.poll_event() {
                Some(CmEvent::ConnectRequest(request)) if current.is_none() => {
                    current = Some(self.accept(request, injection.shared, traffic)?);
                }
                Some(CmEvent::Established { qp_num, .. }) => {
                    if let Some((qp, _, peer)) = current.as_ref().filter(|(qp, ..)| qp.num() == qp_num) {
                        traffic.send_all(&self.testbed, qp, peer);
                    }
                }
                _ => {}
            }
            if let Some((_, cq, _)) = &current {
                traffic.poll(cq, Duration::ZERO);
            }
            let (child, _) = self.injector.as_mut().context("there is one")?;
            match (child.receive_within(Duration::from_micros(50)), &current) {
                (Some(line), Some((qp, _, peer))) if line == "more" => {
                    traffic.send_all(&self.testbed, qp, peer)
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
        let succeeded = traffic.is_good();
        if let Some((qp, cq, peer)) = &current {
            traffic.overreach(&self.testbed, qp, peer);
            traffic.poll(cq, Duration::from_micros(200));
        }
        self.part_with(current, injection.value.is_multiple_of(2), traffic)?;
        if said.as_deref().is_none_or(|said| said.contains("the victim's")) {
            self.testbed.renew()?;
        }
        self.testbed.refill();
        Ok(said.map(|said| (said, succeeded)))
    }

    /// Ends the connection. The injector is asked to do so before the victim if `first`, otherwise after it.
    fn part_with(
        &mut self,
        current: Option<(Qp, Cq, RemoteRegions)>,
        first: bool,
        traffic: &mut Traffic,
    ) -> Result<()> {
        let (child, _) = self.injector.as_mut().context("there is one")?;
        if first {
            // A dead injector does not read it.
            let _ = child.send("end");
        }
        if let Some((qp, cq, _)) = current {
            traffic.disconnect_and_drain(&self.testbed, &qp, &cq);
            traffic.timed("Qp::drop", || drop((qp, cq)));
        }
        if !first {
            let _ = child.send("end");
        }
        Ok(())
    }

    /// Accepts with receives posted; an injector with a false hello may be refused.
    fn accept(
        &self,
        request: ConnectRequest,
        shared: bool,
        traffic: &mut Traffic,
    ) -> Result<(Qp, Cq, RemoteRegions)> {
        let peer = RemoteRegions::unpack(&request.private_data);
        let (qp, cq) = self.testbed.queue_pair(shared)?;
        traffic.receive(&self.testbed, &qp, shared);
        let param = ConnParam::with_private_data(self.testbed.remotes().pack());
        // A refusal is a valid answer.
        let _ = traffic.timed("Cm::accept", || self.testbed.cm.accept(request, &qp, &param));
        Ok((qp, cq, peer))
    }

    /// The bystander works as initiator and checks what it wrote; unregistered memory must be unchanged.
    pub(super) fn check_bystander(&mut self, tally: &mut Tally) -> Result<()> {
        let recent = std::mem::take(&mut self.recent);
        let mut took = self.bystander_works(tally)?;
        if took > HANG {
            // A false value that delays the bystander delays it again. A machine that is busy does so once.
            for injection in &recent {
                self.round(injection, &mut Tally::default())?;
            }
            let again = self.bystander_works(tally)?;
            let copy = self.copy;
            tally.add_note(format!(
                "the bystander of {copy:?} took {took:?}, and {again:?} after the same values again"
            ));
            took = took.min(again);
        }
        tally.record_reaction(took);
        let far = self.testbed.bytes_changed_far_away();
        tally.outside += far;
        if far > 0 {
            let by = self
                .culprit(&recent)?
                .map_or("none of the last injections alone".to_owned(), |injection| injection.line());
            tally.add_note(format!("{far} bytes changed in unregistered memory: {:?} {by}", self.copy));
        }
        Ok(())
    }

    /// Lets the bystander work once; returns how long that took.
    fn bystander_works(&mut self, tally: &mut Tally) -> Result<Duration> {
        let began = Instant::now();
        self.bystander.send("work")?;
        match self.bystander.receive_within(Duration::from_secs(10)).as_deref() {
            Some("good") => {}
            other => {
                tally.hung += u64::from(other.is_none());
                tally.lost += u64::from(other.is_some());
                tally.add_note(format!("the bystander of {:?} said {other:?}", self.copy));
            }
        }
        Ok(began.elapsed())
    }

    /// Repeats these injections; returns the first that changes unregistered memory.
    fn culprit(&mut self, recent: &[Injection]) -> Result<Option<Injection>> {
        for injection in recent {
            self.round(injection, &mut Tally::default())?;
            if self.testbed.bytes_changed_far_away() > 0 {
                return Ok(Some(injection.clone()));
            }
        }
        Ok(None)
    }
}
