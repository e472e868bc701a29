//! Broadcast through a chain of ranks, in segments: a rank forwards one segment while it receives the next. For long messages:
//! every rank sends each byte once, and the last rank waits for one segment per rank.
//!
//! Cost: `(p - 2 + s) (alpha + segment beta)` for `s` segments.

use crate::cost::{Case, Cost};
use crate::schedule::{Schedule, receive, send};
use crate::task::Task;

pub(crate) fn cost(case: &Case) -> Cost {
    if case.size < 2 {
        return Cost::new(0.0, 0.0);
    }
    let segments = case.bytes.div_ceil(case.segment.max(1)) as f64;
    let messages = if segments > 0.0 { case.ranks() - 2.0 + segments } else { 0.0 };
    let segment = if segments > 1.0 { case.segment as f64 } else { case.n() };
    let others = case.ranks() - 1.0;
    Cost::new(messages, case.n() + (case.ranks() - 2.0) * segment)
        .with_all(others * segments, others * case.n())
}

pub(crate) fn plan(task: &Task) -> Schedule {
    let (mut schedule, data, number) = (Schedule::default(), task.output.block(0), task.relative_rank());
    let segment = task.segment.max(1);
    let part = |i: u64| data.window(i * segment, ((i + 1) * segment).min(data.bytes));
    let segments = data.bytes.div_ceil(segment);
    for i in 0..=segments {
        let receives = (number > 0 && i < segments).then(|| receive(task.rank_of(number - 1), part(i)));
        // The root has all segments from the start: it sends one round earlier than others would.
        let sends = (number + 1 < task.size && i > 0).then(|| send(task.rank_of(number + 1), part(i - 1)));
        schedule.push_round([receives.flatten(), sends.flatten()]);
    }
    schedule
}
