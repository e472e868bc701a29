//! The state machines of `iwarp` over a modelled stream, by seed: runs them and checks the results.
//!
//! Checked: no panic, no hang; each step completes once or is flushed; **completed steps have arrived**, as
//! far as an end may query its peer (by reads of no bytes, as the device does); messages arrive once,
//! complete and in order; reads and atomics return the right data; no byte is wrong, and everything before a
//! message or an answer has arrived with it; an end that violates a rule is notified, and knows for which
//! step; after a reset both ends finish immediately. With CRCs a flipped bit changes none of this. Without
//! CRCs it may change contents, but no byte is placed without a right.

mod end;
mod plan;

use std::sync::{Arc, Mutex};

use host::Span;
use host::world::{Config, Ended, FiberKind, World};
use iwarp::testing::EndpointEvent;
use iwarp::tx::OpKind;
use nic_model::stream::connect;

use end::{EndOutcome, EndReport, StormEnd};
use plan::{Fault, Plan, PlannedRequest, Program, WRITABLE};

/// Both ends finish within this time after a reset.
const RESET_BOUND: Span = Span::from_us(50);

/// The result of a seed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SeedResult {
    pub(crate) ended: Ended,
    pub(crate) reports: [EndReport; 2],
}

/// Runs a seed and checks it.
///
/// # Errors
/// A description of all errors.
pub(crate) fn run(seed: u64, fiber_kind: FiberKind) -> Result<SeedResult, String> {
    let plan = Arc::new(Plan::new(seed));
    let mut world = World::new(Config { seed, fiber_kind, max_events: 50_000_000, ..Config::default() });
    let nodes = [world.add_node("initiator"), world.add_node("responder")];
    let (a, b) = connect(&nodes[0], &nodes[1], plan.directions, seed);
    let again = connect(&nodes[0], &nodes[1], plan.directions_again, !seed);
    let reports = Arc::new(Mutex::new([None, None]));
    let damage = [a.clone(), b.clone()];
    if let Fault::Hit(end, at) = plan.fault {
        damage[end].flip_bit(at, seed as u8);
    }
    for (me, streams) in [[a, again.0], [b, again.1]].into_iter().enumerate() {
        let (plan, reports) = (plan.clone(), reports.clone());
        let body = move || {
            let report = StormEnd::new(&plan, seed, me, streams).run();
            reports.lock().expect("nobody panics with it")[me] = Some(report);
        };
        world.spawn(["initiator", "responder"][me], &[&nodes[me]], body).map_err(|e| e.to_string())?;
    }
    let ended = world.run().map_err(|failure| failure.to_string())?;
    let [Some(a), Some(b)] = reports.lock().expect("all ranks have ended").clone() else {
        return Err("an end said nothing".into());
    };
    let run = SeedResult { ended, reports: [a, b] };
    let damaged = match plan.fault {
        Fault::Flip(end, _) | Fault::Hit(end, _) => damage[end].is_bit_flipped().then_some(end),
        _ => None,
    };
    let wrong = check(&plan, &run.reports, damaged);
    if wrong.is_empty() {
        Ok(run)
    } else {
        Err(format!("{wrong:?}\n{:?}\n{}", plan.fault, endings(&run.reports)))
    }
}

/// Runs a seed twice; both runs must be equal.
///
/// # Errors
/// A description of all errors, with the command that reproduces them.
pub(crate) fn run_twice(seed: u64) -> Result<SeedResult, String> {
    let again = format!(
        "to see it again: cargo run --release -p nic-model --example iwarp_storm -- {seed}..{}",
        seed + 1
    );
    let once = run(seed, FiberKind::Coroutine).map_err(|why| format!("seed {seed}: {why}\n{again}"))?;
    let twice =
        run(seed, FiberKind::Coroutine).map_err(|why| format!("seed {seed}, again: {why}\n{again}"))?;
    if once == twice { Ok(once) } else { Err(format!("seed {seed} is not always the same\n{again}")) }
}

fn endings(reports: &[EndReport; 2]) -> String {
    let end = |report: &EndReport| {
        format!(
            "{:?} at {:?}, {} completed, {} messages",
            report.ending,
            report.time,
            report.completed.len(),
            report.messages.len()
        )
    };
    format!("initiator: {}\nresponder: {}", end(&reports[0]), end(&reports[1]))
}

/// All errors of a run. A bit was flipped in the direction of `damaged`.
fn check(plan: &Plan, reports: &[EndReport; 2], damaged: Option<usize>) -> Vec<String> {
    let mut wrong: Vec<String> = reports.iter().flat_map(|report| report.wrong.clone()).collect();
    if damaged.is_some() && !plan.has_crcs() {
        // Content may be damaged, but no byte may be placed without a right.
        wrong.retain(|what| what.starts_with("byte"));
    }
    for (end, program) in plan.programs.iter().enumerate() {
        let (own, other) = (&reports[end], &reports[1 - end]);
        check_completions(program, own, &mut wrong);
        if damaged.is_some() && !plan.has_crcs() {
            // The effect of the damage is unknown.
            continue;
        }
        let received = check_messages(program, other, &mut wrong);
        check_bytes(program, own, other, received, &mut wrong);
        if damaged == Some(end) && other.ending == EndOutcome::Clean && matches!(plan.fault, Fault::Flip(..))
        {
            wrong.push("a flipped bit was not noticed".into());
        }
        if own.promised {
            check_promises(program, own, other, received, &mut wrong);
            let left = matches!(plan.fault, Fault::Leave(leaver, _) if leaver != end);
            if left && own.ending == (EndOutcome::Closed { cut: false }) {
                check_receipts(program, own, received, &mut wrong);
            }
        }
    }
    let [a, b] = [reports[0].ending, reports[1].ending];
    let both = |ending| a == ending && b == ending;
    let code = |end: usize| plan.programs[end].steps.iter().find_map(|step| step.breaks);
    let fits = match plan.fault {
        Fault::None => both(EndOutcome::Clean),
        Fault::Reject | Fault::NoFirstMessage => both(EndOutcome::Refused),
        Fault::Old => both(EndOutcome::Clean),
        // The arrived messages show the effect.
        Fault::Shaken(..) | Fault::Hit(..) => true,
        // The stream may have been too short for the reset; one end may have finished before it.
        Fault::Reset(..) => {
            both(EndOutcome::Clean)
                || both(EndOutcome::Reset)
                || a == EndOutcome::Reset
                || b == EndOutcome::Reset
        }
        Fault::Flip(..) => damaged.is_some() || both(EndOutcome::Clean),
        Fault::Quit(end, after) | Fault::Leave(end, after) => {
            let quits = after < plan.programs[end].steps.len();
            let other = [b, a][end];
            if quits {
                [a, b][end] == EndOutcome::Quit && matches!(other, EndOutcome::Closed { .. })
            } else {
                both(EndOutcome::Clean)
            }
        }
        Fault::Breach(end) => code(end).is_some_and(|code| {
            let breach = plan.programs[end].steps.iter().position(|step| step.breaks.is_some());
            [a, b][end] == EndOutcome::Terminated(code)
                && [b, a][end] == EndOutcome::Failed(code)
                && (reports[end].blamed == breach && reports[end].covered || !reports[end].promised)
        }),
    };
    if !fits {
        wrong.push(format!("the endings do not fit: {:?}", code(0).or(code(1))));
    }
    if both(EndOutcome::Reset) && gap(reports) > RESET_BOUND {
        wrong.push(format!("the ends heard of the reset {:?} apart", gap(reports)));
    }
    wrong
}

fn gap(reports: &[EndReport; 2]) -> Span {
    let [a, b] = [reports[0].time, reports[1].time];
    a.max(b).since(a.min(b))
}

/// Each step has completed once or was flushed; steps of one kind in order.
fn check_completions(program: &Program, own: &EndReport, wrong: &mut Vec<String>) {
    let mut all: Vec<usize> = own.completed.iter().chain(&own.flushed).copied().collect();
    all.sort_unstable();
    if all != (0..program.steps.len()).collect::<Vec<_>>() {
        wrong.push(format!("steps ended: {all:?}"));
    }
    for fetching in [false, true] {
        let kind = |step: &usize| fetches(&program.steps[*step]) == fetching;
        if !own.completed.iter().filter(|step| kind(step)).is_sorted() {
            wrong.push(format!("completed out of order: {:?}", own.completed));
        }
    }
}

fn fetches(step: &PlannedRequest) -> bool {
    matches!(step.kind, OpKind::Read(_) | OpKind::Atomic { .. })
}

/// The message that the other end must receive for a step.
fn message(step: &PlannedRequest) -> Option<EndpointEvent> {
    match step.kind {
        OpKind::Send { solicited, invalidate, .. } => {
            Some(EndpointEvent::Received { data: step.data.clone(), solicited, invalidated: invalidate })
        }
        OpKind::Immediate { data, solicited } => Some(EndpointEvent::Immediate { data, solicited }),
        _ => None,
    }
}

/// Checks that the other end has received the first messages of the program, or all before the one that
/// violates a rule. Returns how many steps have therefore arrived.
fn check_messages(program: &Program, other: &EndReport, wrong: &mut Vec<String>) -> usize {
    let breach = program.steps.iter().position(|step| step.breaks.is_some());
    let wanted: Vec<(usize, EndpointEvent)> = program.steps[..breach.unwrap_or(program.steps.len())]
        .iter()
        .enumerate()
        .filter_map(|(number, step)| Some((number, message(step)?)))
        .collect();
    let count = other.messages.len();
    let same = wanted.iter().zip(&other.messages).all(|((_, wanted), got)| wanted == got);
    if !same || count > wanted.len() {
        wrong.push(format!("{count} messages, and not those that were sent"));
    }
    let all = other.ending == EndOutcome::Clean || breach.is_some();
    if all && count != wanted.len() {
        wrong.push(format!("{count} messages of {}", wanted.len()));
    }
    wanted[..count.min(wanted.len())].last().map_or(0, |(number, _)| number + 1)
}

/// Checks that completed steps have arrived, at an end whose completions promise that.
fn check_promises(
    program: &Program,
    own: &EndReport,
    other: &EndReport,
    received: usize,
    wrong: &mut Vec<String>,
) {
    // The arrival of the last step is not queried.
    let asked = &program.steps[..program.steps.len() - 1];
    for &number in &own.completed {
        let Some(step) = asked.get(number).filter(|step| !fetches(step)) else { continue };
        let arrived = match step.kind {
            OpKind::Write { .. } if step.data.is_empty() => true,
            OpKind::Write { stag, to, .. } if stag == WRITABLE.0 => {
                let begin = (to - WRITABLE.1) as usize;
                other.written.get(begin..begin + step.data.len()) == Some(&step.data[..])
            }
            OpKind::Write { .. } => false,
            _ => number < received,
        };
        if !arrived {
            wrong.push(format!("LOST: step {number} completed and has not arrived"));
        }
    }
}

/// Each message that the other end received before it closed in order completes, unless an unanswered request
/// precedes it.
fn check_receipts(program: &Program, own: &EndReport, received: usize, wrong: &mut Vec<String>) {
    let known = program.steps[..received].iter().enumerate();
    let unanswered =
        |(number, step): &(usize, &PlannedRequest)| fetches(step) && !own.completed.contains(number);
    let upto = known.clone().find(unanswered).map_or(received, |(number, _)| number);
    for (number, step) in known.take(upto) {
        if message(step).is_some() && !own.completed.contains(&number) {
            wrong.push(format!("step {number} was received before the other end closed, and is flushed"));
        }
    }
}

/// The written bytes are in place as far as required, and no others.
fn check_bytes(
    program: &Program,
    own: &EndReport,
    other: &EndReport,
    received: usize,
    wrong: &mut Vec<String>,
) {
    if other.written.is_empty() {
        return;
    }
    // An answer shows that everything before the query has arrived, too.
    let answered = own.completed.iter().filter(|step| fetches(&program.steps[**step])).max();
    let arrived = received.max(answered.map_or(0, |step| step + 1));
    let breach = program.steps.iter().position(|step| step.breaks.is_some());
    for (number, step) in program.steps.iter().enumerate() {
        let OpKind::Write { stag, to, .. } = step.kind else { continue };
        if step.breaks.is_some() || stag != WRITABLE.0 || step.data.is_empty() {
            continue;
        }
        let begin = (to - WRITABLE.1) as usize;
        let there = &other.written[begin..begin + step.data.len()];
        let late = breach.is_some_and(|breach| number > breach);
        let whole = there == step.data;
        let part = there.iter().zip(&step.data).all(|(is, wanted)| is == wanted || *is == 0);
        let untouched = there.iter().all(|byte| *byte == 0);
        if number < arrived && !whole || !part || late && !untouched {
            wrong.push(format!("the bytes of step {number} (arrived: {arrived})"));
        }
    }
}
