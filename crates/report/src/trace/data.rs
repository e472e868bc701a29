//! What the page's script draws: rows with bars, marks and steps. Times are in microseconds.

use std::collections::BTreeMap;

use ::trace::{Job, Process, Selection, What, describe, names, queues};
use serde::Serialize;

/// The data of a page.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    /// The end of the last bar.
    end: f64,
    rows: Vec<Row>,
}

/// A row: a thread, a queue or a completion queue.
#[derive(Debug, Default, Serialize)]
struct Row {
    name: String,
    bars: Vec<Bar>,
    /// Time and depth of each step.
    steps: Vec<(f64, u32)>,
    /// The size of the queue.
    size: u32,
}

/// From, to, lane, kind ([`PLAIN`] and the others), and text.
type Bar = (f64, f64, u32, u8, String);

const PLAIN: u8 = 0;
const FAILED: u8 = 1;
const WAIT: u8 = 2;
/// A request that ends with the completion of a later one.
const IMPLIED: u8 = 3;
/// A request without an end.
const OPEN: u8 = 4;
const MARK: u8 = 5;

fn us(process: &Process, ps: u64) -> f64 {
    process.axis_ps(ps) as f64 / 1e6
}

/// The data of the selected records.
pub(super) fn page(job: &Job, selection: &Selection) -> Page {
    let selected = selection.apply(&job.processes);
    let mut rows = Vec::new();
    let has_names = job.processes.len() > 1;
    for (number, process) in job.processes.iter().enumerate() {
        let places: Vec<usize> =
            selected.iter().filter(|(own, _)| *own == number).map(|(_, at)| *at).collect();
        let prefix = if has_names { format!("{}: ", process.name) } else { String::new() };
        rows.extend(threads(process, &places, &prefix));
        rows.extend(requests(process, &places, &prefix));
        rows.extend(completions(process, &places, &prefix));
    }
    let end = rows.iter().flat_map(|row: &Row| &row.bars).map(|bar| bar.1).fold(0.0, f64::max);
    Page { end, rows }
}

/// A row for each thread: calls and waits, and failed posts.
fn threads(process: &Process, places: &[usize], prefix: &str) -> Vec<Row> {
    let trace = &process.trace;
    let mut rows: BTreeMap<u16, Row> = BTreeMap::new();
    for &at in places {
        let record = &trace.records[at];
        let is_call = matches!(record.what, What::Call | What::Interface | What::Event);
        let is_failed_post = record.has_failed() && record.what != What::Completion;
        if !(is_call || is_failed_post) {
            continue;
        }
        let row = rows.entry(record.fields.thread).or_default();
        let kind = if record.has_failed() { FAILED } else { PLAIN };
        let lane = u32::from(record.what != What::Interface);
        let text = format!("{} {}", trace.object_name(record.fields.object), describe(process, at, record));
        row.bars.push((us(process, record.fields.time_ps), us(process, record.end_ps()), lane, kind, text));
    }
    let (first, last) = match (places.first(), places.last()) {
        (Some(first), Some(last)) => {
            (trace.records[*first].fields.time_ps, trace.records[*last].fields.time_ps)
        }
        _ => return Vec::new(),
    };
    for wait in process.requests.waits.iter().filter(|wait| (first..=last).contains(&wait.from_ps)) {
        let text = format!("waits for {}", trace.object_name(wait.object));
        let bar = (us(process, wait.from_ps), us(process, wait.to_ps), 2, WAIT, text);
        rows.entry(wait.thread).or_default().bars.push(bar);
    }
    let name = |(thread, row): (u16, Row)| Row {
        name: format!("{prefix}thread {}", trace.thread_name(thread)),
        ..row
    };
    rows.into_iter().map(name).collect()
}

/// A row for each queue: its requests in lanes, and its depth.
fn requests(process: &Process, places: &[usize], prefix: &str) -> Vec<Row> {
    let (trace, requests) = (&process.trace, &process.requests);
    let mut rows: BTreeMap<(u32, bool), (Row, Vec<u64>)> = BTreeMap::new();
    for request in requests.all.iter().filter(|request| places.binary_search(&request.posted).is_ok()) {
        let posted = &trace.records[request.posted];
        let from = posted.fields.time_ps;
        let to = request.ended_ps.unwrap_or_else(|| trace.last_ps());
        let (row, lanes) = rows.entry((posted.fields.object, posted.what == What::Send)).or_default();
        let free = lanes.iter().position(|until| *until <= from);
        let lane = free.unwrap_or_else(|| {
            lanes.push(0);
            lanes.len() - 1
        });
        lanes[lane] = to;
        let done = request.completed.map(|at| &trace.records[at]);
        let (kind, end) = match done {
            Some(done) if request.is_implied => (IMPLIED, format!("ended with wr_id {}", done.fields.id)),
            Some(done) if done.has_failed() => {
                let reason = done.text.as_deref().unwrap_or_default();
                (FAILED, format!("{} {reason}", names::status(done.fields.result)))
            }
            Some(_) => (PLAIN, "SUCCESS".to_owned()),
            None => (OPEN, "no completion".to_owned()),
        };
        let took = ::trace::time_span(to.saturating_sub(from));
        let text = format!("{}\n{end}, {took}", describe(process, request.posted, posted));
        row.bars.push((us(process, from), us(process, to), lane as u32, kind, text));
    }
    let mut named = Vec::new();
    for queue in queues(process) {
        let Some((mut row, _)) = rows.remove(&(queue.object, queue.is_send)) else { continue };
        let depths = if queue.is_send { &requests.send_depths } else { &requests.recv_depths };
        let first = row.bars.first().map_or(0.0, |bar| bar.0);
        let steps = depths.get(&queue.object).into_iter().flatten();
        row.steps = steps
            .map(|step| (us(process, step.time_ps), step.depth))
            .filter(|step| step.0 >= first)
            .collect();
        (row.name, row.size) = (format!("{prefix}{}", queue.name), queue.size);
        named.push(row);
    }
    named
}

/// A row for each completion queue: a mark for each completion.
fn completions(process: &Process, places: &[usize], prefix: &str) -> Vec<Row> {
    let trace = &process.trace;
    let mut rows: BTreeMap<u32, Row> = BTreeMap::new();
    for &at in places {
        let record = &trace.records[at];
        if record.what == What::Completion {
            let time = us(process, record.fields.time_ps);
            let kind = if record.has_failed() { FAILED } else { MARK };
            let row = rows.entry(record.fields.object).or_default();
            row.bars.push((time, time, 0, kind, describe(process, at, record)));
        }
    }
    let name = |(id, row): (u32, Row)| Row {
        name: format!("{prefix}{}, completions", trace.object_name(id)),
        ..row
    };
    rows.into_iter().map(name).collect()
}
