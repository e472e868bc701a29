//! The driver: rounds of a prepared side, as the sampler of the client asks for them.
//!
//! Every round is announced outside of timed regions, so that both sides do the same number of operations; each but
//! the first begins with untimed operations that hide the announcement. The record of all rounds is sent to the side
//! that assembles results, and [`replay`] reconstructs from it what the sampler here saw.
//!
//! Each side's last message of a cell is `Ready` or `Failed`, sent once; both wait for the other's. So they are in
//! step for the next cell wherever an error occurred in this one.

use serde::{Deserialize, Serialize};

use super::intervals::{Intervals, is_stream};
use super::{Cell, Experiment, Fault, Round, Session, Side, Word, find, peer_failed, with_peer_name};
use crate::sample::{Plan, RoundKind, Sampled, Sampler};
use results::plain;
use results::schema::RateInterval;
use results::variant::Variant;
use verbs::host::Span;

/// Untimed operations at the beginning of a round.
const LEAD_IN: u64 = 4;
const LEAD_IN_LONG: u64 = 1;

/// The client's measurement of one cell in one launch.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The readings of each round, in ps.
    pub rounds: Vec<Vec<f64>>,
    /// Operations in a reading of the last round.
    #[serde(default)]
    pub batch: u64,
    /// Messages per operation.
    pub messages: u64,
    /// Whether it was ended before its time.
    #[serde(default)]
    pub interrupted: bool,
    /// A remark for the result.
    #[serde(default)]
    pub note: Option<String>,
    /// What moved in each interval of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<RateInterval>,
}

/// Receives what a stream moves in each interval of time.
pub struct Watch<'a> {
    /// The length of an interval.
    pub every: Span,
    /// Called at the end of each.
    pub report: &'a mut dyn FnMut(&RateInterval),
}

/// The sampler's plan for an experiment.
#[must_use]
pub fn plan_for(experiment: &dyn Experiment, variant: &Variant, base: &Plan) -> Plan {
    let sampling = experiment.sampling(variant);
    let mut plan = *base;
    if sampling.long {
        plan.batch = Some(1);
        // Its first operation already touched all that later ones use.
        plan.warm_up = 0;
    }
    if let Some(samples) = sampling.samples {
        let samples = samples.min(plan.samples_max);
        plan.samples_min = samples;
        plan.samples_max = samples;
    }
    plan
}

/// Replays the record through a sampler with that plan; `None` without samples.
#[must_use]
pub fn replay(record: &Record, plan: Plan) -> Option<Sampled> {
    let mut sampler = Sampler::new(plan);
    for round in &record.rounds {
        sampler.next_round()?;
        let ns: Vec<f64> = round.iter().map(|ps| ps / 1e3).collect();
        sampler.push(&ns).ok()?;
    }
    if record.interrupted {
        sampler.interrupt();
    } else {
        // A sampler notices that its time is up when asked for a next round, as it did originally.
        sampler.next_round();
    }
    sampler.finish()
}

/// Measures one cell as the client; the other ranks run [`serve_cell`].
///
/// # Errors
/// [`Fault`]; with [`Fault::is_local`] all ranks are ready for the next cell.
pub fn client_cell(
    session: &mut Session<'_>,
    plan: Plan,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Record, Fault> {
    watched_cell(session, plan, stop, None)
}

/// As [`client_cell`], and reports over time what a stream moves.
///
/// # Errors
/// As [`client_cell`].
pub fn watched_cell(
    session: &mut Session<'_>,
    plan: Plan,
    stop: &mut dyn FnMut() -> bool,
    watch: Option<Watch<'_>>,
) -> Result<Record, Fault> {
    let experiment = known(session.cell)?;
    let ranks = experiment.ranks(&session.cell.variant) as usize;
    if session.controls.len() + 1 < ranks {
        let (name, there) = (experiment.name(), session.controls.len() + 1);
        let why =
            format!("{name} with so few processes: it needs {ranks}, and with --peer there are {there}");
        return Err(Fault::Meaningless(why));
    }
    session.controls.truncate(ranks - 1);
    for rank in 1..ranks {
        let cell = session.cell.clone();
        session.control(rank)?.send(&Word::Begin { cell, rank: rank as u32 })?;
    }
    let prepared = experiment.prepare(session);
    let mut side = agree(session, prepared)?;
    let metric = experiment.metric(&session.cell.variant);
    let moves = (side.messages(), session.cell.size);
    let watch = watch.filter(|_| is_stream(&metric));
    let intervals = watch.map(|watch| Intervals::new(watch.every, &metric, moves, watch.report));
    let plan = plan_for(experiment, &session.cell.variant, &plan);
    let mut record = match rounds(session, &mut *side, plan, stop, intervals) {
        Ok(record) => record,
        Err(fault) => return Err(settle(session, side, fault)),
    };
    send_all(session, &Word::Finish)?;
    let verdict = verdict(session, &mut *side, !record.rounds.is_empty());
    agree(session, verdict)?;
    record.note = side.note();
    Ok(record)
}

/// The experiment of a cell.
fn known(cell: &Cell) -> Result<&'static dyn Experiment, Fault> {
    find(&cell.experiment)
        .ok_or_else(|| Fault::Meaningless(format!("{}: no such experiment", cell.experiment)))
}

/// The experiment of a cell that a client sent, if this rank has a part in it and it needs no more than it may.
fn admissible(session: &Session<'_>) -> Result<&'static dyn Experiment, Fault> {
    let (experiment, cell) = (known(session.cell)?, session.cell);
    session.settings.check()?;
    let (name, ranks) = (experiment.name(), experiment.ranks(&cell.variant));
    if session.rank >= ranks {
        // Such as an experiment of the client alone, which would only keep a core busy here.
        return Err(Fault::Meaningless(format!("{name} as rank {} of {ranks}", session.rank)));
    }
    let needed = experiment.needs(cell, session.settings).bytes;
    match session.bounds.bytes {
        Some(most) if needed > most => {
            Err(Fault::Machine(format!("{name} needs {needed} bytes of memory, and may have {most}")))
        }
        _ => Ok(experiment),
    }
}

fn rounds(
    session: &mut Session<'_>,
    side: &mut dyn Side,
    plan: Plan,
    stop: &mut dyn FnMut() -> bool,
    mut intervals: Option<Intervals<'_>>,
) -> Result<Record, Fault> {
    let long = plan.batch.is_some();
    let mut sampler = Sampler::new(plan);
    let mut record = Record { messages: side.messages(), ..Record::default() };
    let mut readings = Vec::with_capacity(sampler.round_max() as usize);
    let mut ns = Vec::with_capacity(sampler.round_max() as usize);
    while let Some(asked) = sampler.next_round() {
        if stop() {
            record.interrupted = true;
            break;
        }
        let first = asked.kind == RoundKind::First;
        let lead_in = if first {
            0
        } else if long {
            LEAD_IN_LONG
        } else {
            LEAD_IN
        };
        // A single sample needs no lead-in either.
        let lead_in = if plan.samples_max == 1 { 0 } else { lead_in };
        let round = Round { lead_in, samples: asked.samples, batch: asked.batch };
        send_all(session, &Word::Round(round))?;
        receive_all(session, &Word::Go)?;
        readings.clear();
        let began = session.host.now();
        side.round(session, round, &mut readings)?;
        if let Some(all) = intervals.as_mut().filter(|_| !first) {
            all.round([began, session.host.now()], round, &readings);
        }
        ns.clear();
        ns.extend(readings.iter().map(|ps| ps / 1e3));
        sampler.push(&ns).map_err(|e| Fault::Machine(e.to_string()))?;
        record.rounds.push(readings.clone());
        record.batch = asked.batch;
        if first {
            send_all(session, &Word::Warm)?;
            side.warm(session)?;
        }
    }
    record.intervals = intervals.map_or_else(Vec::new, Intervals::finish);
    Ok(record)
}

/// Whether the contents are right; of a cell that was stopped before its first round there are none.
fn verdict(session: &mut Session<'_>, side: &mut dyn Side, warm: bool) -> Result<(), Fault> {
    if warm && session.settings.verify { side.verify(session) } else { Ok(()) }
}

/// Runs the cell that [`Word::Begin`] announced, as any rank but the client.
///
/// # Errors
/// [`Fault`]; with [`Fault::is_local`] this side is ready for the next cell, otherwise the session has ended.
pub fn serve_cell(session: &mut Session<'_>) -> Result<(), Fault> {
    session.begin();
    let prepared = admissible(session).and_then(|experiment| experiment.prepare(session));
    let mut side = agree(session, prepared)?;
    let (mut readings, mut warm) = (Vec::new(), false);
    loop {
        let word = session.control(1)?.receive()?;
        session.begin();
        let done = match word {
            Word::Round(round) => {
                session.control(1)?.send(&Word::Go)?;
                readings.clear();
                side.round(session, round, &mut readings)
            }
            Word::Warm => {
                warm = true;
                side.warm(session)
            }
            Word::Finish => {
                let verdict = verdict(session, &mut *side, warm);
                return agree(session, verdict);
            }
            Word::Failed { why, local } => {
                session.failed.push(0);
                Err(peer_failed(why, local))
            }
            other => Err(Fault::Control(plain::line(&format!("{other:?} came out of turn")))),
        };
        if let Err(fault) = done {
            return Err(settle(session, side, fault));
        }
    }
}

/// Gives up the cell in its middle: both sides announce it, and are then ready for the next one.
fn settle(session: &mut Session<'_>, side: Box<dyn Side>, fault: Fault) -> Fault {
    // A peer in the middle of a round sees its connection end, rather than wait for its patience to.
    drop(side);
    if matches!(fault, Fault::Control(_)) {
        // The peer may still receive this; its answer is not read.
        let _ = send_all(session, &Word::Failed { why: fault.to_string(), local: false });
        return fault;
    }
    match agree(session, Err::<(), _>(fault.clone())) {
        // A communication error outweighs the original error.
        Err(worse) if !worse.is_local() => worse,
        _ => fault,
    }
}

/// Every side reports exactly once how its part ended and receives the others' reports, so that all continue or none
/// does.
fn agree<T>(session: &mut Session<'_>, mine: Result<T, Fault>) -> Result<T, Fault> {
    let word = match &mine {
        Ok(_) => Word::Ready,
        Err(fault) => Word::Failed { why: fault.to_string(), local: fault.is_local() },
    };
    send_all(session, &word)?;
    let mut theirs = Ok(());
    let failed = std::mem::take(&mut session.failed);
    for (index, control) in session.controls.iter_mut().enumerate() {
        // It has reported its failure already, and this side's part is an error for that very reason.
        while !failed.contains(&index) {
            match control.receive()? {
                Word::Ready => break,
                Word::Failed { why, local } => {
                    theirs = theirs.and(Err(peer_failed(with_peer_name(&**control, why), local)));
                    break;
                }
                // Sent before it noticed the failure, or in answer to an earlier message: ignored.
                Word::Info { .. } | Word::Round(_) | Word::Go | Word::Warm | Word::Finish => {}
                other => return Err(Fault::Control(plain::line(&format!("{other:?} came out of turn")))),
            }
        }
    }
    match (mine, theirs) {
        (Ok(mine), Ok(())) => Ok(mine),
        (Ok(_), Err(fault)) => Err(fault),
        // Whatever happened here, a peer that is lost for good ends more than this cell.
        (Err(mine), Err(theirs)) if mine.is_local() && !theirs.is_local() => Err(theirs),
        (Err(mine), _) => Err(mine),
    }
}

/// Sends a word to all other ranks.
fn send_all(session: &mut Session<'_>, word: &Word) -> Result<(), Fault> {
    session.controls.iter_mut().try_for_each(|control| control.send(word))
}

/// Waits until every other rank has sent this word.
fn receive_all(session: &mut Session<'_>, wanted: &Word) -> Result<(), Fault> {
    for (index, control) in session.controls.iter_mut().enumerate() {
        match control.receive()? {
            word if word == *wanted => {}
            Word::Failed { why, local } => {
                session.failed.push(index);
                return Err(peer_failed(with_peer_name(&**control, why), local));
            }
            other => return Err(Fault::Control(plain::line(&format!("{other:?} came out of turn")))),
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "driver_tests.rs"]
mod two_sides;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the result assembled from a record is what the sampler saw. Method: drive one, replay the record,
    /// compare.
    #[test]
    fn a_replayed_record_gives_the_same_samples() {
        let plan = Plan { samples_max: 500, ..Plan::default() };
        let mut sampler = Sampler::new(plan);
        let mut record = Record { messages: 1, ..Record::default() };
        let mut tick = 0u64;
        while let Some(round) = sampler.next_round() {
            let ps: Vec<f64> = (0..round.samples)
                .map(|_| {
                    tick += 1;
                    (round.batch * 1_000_000 + tick % 7 * 1000) as f64
                })
                .collect();
            sampler.push(&ps.iter().map(|v| v / 1e3).collect::<Vec<_>>()).expect("durations");
            record.rounds.push(ps);
        }
        let (seen, again) = (sampler.finish().expect("samples"), replay(&record, plan).expect("samples"));
        assert_eq!(seen.samples, again.samples);
        assert_eq!((seen.first_ns, seen.n, seen.batch), (again.first_ns, again.n, again.batch));
        assert_eq!(seen.stop(), again.stop());
    }

    /// Goal: a cell whose time was up reports that, and not an interrupt by the user. Method: noise for which no time
    /// suffices.
    #[test]
    fn a_replayed_record_ended_as_the_first_time() {
        let plan = Plan { samples_min: 10, time_max_ns: 1e6, batch: Some(1), ..Plan::default() };
        let mut sampler = Sampler::new(plan);
        let mut record = Record { messages: 1, ..Record::default() };
        let mut rng = results::stats::Rng::new(1);
        while let Some(round) = sampler.next_round() {
            let ps: Vec<f64> = (0..round.samples).map(|_| 1e6 + rng.unit() * 9e6).collect();
            sampler.push(&ps.iter().map(|v| v / 1e3).collect::<Vec<_>>()).expect("durations");
            record.rounds.push(ps);
        }
        let seen = sampler.finish().expect("samples");
        assert_eq!(seen.because, Some("maximum time"));
        assert_eq!(replay(&record, plan).expect("samples").because, seen.because);
        let cut = Record { interrupted: true, ..record };
        assert_eq!(replay(&cut, plan).expect("samples").because, Some("interrupted"));
    }

    #[test]
    fn a_record_of_nothing_or_of_nonsense_gives_nothing() {
        assert!(replay(&Record::default(), Plan::default()).is_none());
        let wrong = Record { rounds: vec![vec![1.0, 2.0, 3.0]], ..Record::default() };
        assert!(replay(&wrong, Plan::default()).is_none());
    }
}
