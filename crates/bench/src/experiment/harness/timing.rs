//! Samples of a round, for experiments that time whole batches of operations.

use verbs::host::{Span, Time};

use crate::experiment::{Fault, Round, Session};

/// Runs a round: `work` does a given number of operations before a deadline; the client's reading of its time counts.
pub(crate) fn sample(
    session: &mut Session<'_>,
    round: Round,
    readings: &mut Vec<f64>,
    mut work: impl FnMut(&mut Session<'_>, u64, Option<Time>) -> Result<(), Fault>,
) -> Result<(), Fault> {
    sample_spans(session, round, readings, |session, count, deadline| {
        let began = session.host.now();
        work(session, count, deadline)?;
        Ok(session.host.now() - began)
    })
}

/// Takes samples; `work` returns which part of its time counts.
pub(crate) fn sample_spans(
    session: &mut Session<'_>,
    round: Round,
    readings: &mut Vec<f64>,
    mut work: impl FnMut(&mut Session<'_>, u64, Option<Time>) -> Result<Span, Fault>,
) -> Result<(), Fault> {
    let deadline = session.deadline();
    work(session, round.lead_in, deadline)?;
    for _ in 0..round.samples {
        session.go_on()?;
        let deadline = session.deadline();
        let span = work(session, round.batch, deadline)?;
        if session.is_client() {
            readings.push(span.as_ps() as f64);
        }
    }
    Ok(())
}
