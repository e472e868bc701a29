//! [`chrome`]: a trace as events for Perfetto (`ui.perfetto.dev`) and `chrome://tracing`.
//!
//! The format is the JSON of Chrome's Trace Event Format: calls and waits are slices of their threads, requests are asynchronous
//! events of their queue pairs, and depths of queues are counters. Times are in microseconds.

use std::fmt::Write as _;

use crate::job::{Job, Process};
use crate::names;
use crate::read::{Class, Record, What};
use crate::select::Selection;
use crate::text::describe;

/// A text as JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// An event: its phase and time, and further members.
struct Events {
    json: String,
}

impl Events {
    fn add(&mut self, phase: char, name: &str, process: usize, thread: u32, at_ps: u64, rest: &str) {
        let comma = if self.json.is_empty() { "" } else { ",\n" };
        let (us, ps) = (at_ps / 1_000_000, at_ps % 1_000_000);
        let name = quoted(name);
        let _ = write!(
            self.json,
            "{comma}{{\"ph\":\"{phase}\",\"name\":{name},\"pid\":{process},\"tid\":{thread},\"ts\":{us}.{ps:06}{rest}}}"
        );
    }

    fn slice(&mut self, name: &str, place: (usize, u32), from_ps: u64, to_ps: u64, note: &str) {
        let took = to_ps.saturating_sub(from_ps);
        let rest = format!(
            ",\"dur\":{}.{:06},\"args\":{{\"what\":{}}}",
            took / 1_000_000,
            took % 1_000_000,
            quoted(note)
        );
        self.add('X', name, place.0, place.1, from_ps, &rest);
    }
}

/// The records that are selected, as JSON.
#[must_use]
pub fn chrome(job: &Job, selection: &Selection) -> String {
    let mut events = Events { json: String::new() };
    for (number, process) in job.processes.iter().enumerate() {
        let name =
            format!(",\"args\":{{\"name\":{}}}", quoted(&format!("{} ({})", process.name, process.file)));
        events.add('M', "process_name", number, 0, 0, &name);
        for thread in process.trace.threads.keys() {
            let name = format!(",\"args\":{{\"name\":{}}}", quoted(&process.trace.thread_name(*thread)));
            events.add('M', "thread_name", number, u32::from(*thread), 0, &name);
        }
    }
    let selected = selection.apply(&job.processes);
    for &(number, at) in &selected {
        let process = &job.processes[number];
        record(&mut events, (number, process), at, &process.trace.records[at]);
    }
    if let (Some(first), Some(last)) = (selected.first(), selected.last()) {
        let time = |(number, at): &(usize, usize)| {
            let process = &job.processes[*number];
            process.axis_ps(process.trace.records[*at].fields.time_ps)
        };
        let shown = time(first)..=time(last);
        for (number, process) in job.processes.iter().enumerate() {
            requests(&mut events, (number, process), selection);
            depths_and_waits(&mut events, (number, process), &shown);
        }
    }
    format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", events.json)
}

fn record(events: &mut Events, (number, process): (usize, &Process), at: usize, record: &Record) {
    let fields = &record.fields;
    let place = (number, u32::from(fields.thread));
    let (from, to) = (process.axis_ps(fields.time_ps), process.axis_ps(record.end_ps()));
    let object = process.trace.object_name(fields.object);
    let note = format!("{object} {}", describe(process, at, record));
    match record.what {
        What::Interface => events.slice(record.text.as_deref().unwrap_or("call"), place, from, to, &note),
        What::Call => events.slice(names::call(fields.code), place, from, to, &note),
        // Waits are slices, from the requests.
        What::Wait => {}
        What::Send | What::Recv | What::Completion | What::Event => {
            let name = match record.what {
                What::Completion => format!("done {}", names::operation(fields.code)),
                What::Event => names::event(fields.code).to_owned(),
                _ => format!("post {}", names::operation(fields.code)),
            };
            let rest = format!(",\"s\":\"t\",\"args\":{{\"what\":{}}}", quoted(&note));
            events.add('i', &name, place.0, place.1, from, &rest);
        }
    }
}

/// Requests whose posting is selected: asynchronous events, grouped by queue.
fn requests(events: &mut Events, (number, process): (usize, &Process), selection: &Selection) {
    for (id, request) in process.requests.all.iter().enumerate() {
        let posted = &process.trace.records[request.posted];
        if !selection.wants(process, posted) {
            continue;
        }
        let queue = if posted.what == What::Send { "sends" } else { "receives" };
        let object = process.trace.object_name(posted.fields.object);
        let (name, category) = (format!("{object} {queue}"), quoted(&object));
        let note = quoted(&describe(process, request.posted, posted));
        let thread = u32::from(posted.fields.thread);
        let rest = |args: &str| format!(",\"cat\":{category},\"id\":\"{number}.{id}\",\"args\":{{{args}}}");
        let from = process.axis_ps(posted.fields.time_ps);
        events.add('b', &name, number, thread, from, &rest(&format!("\"what\":{note}")));
        let end = request.ended_ps.unwrap_or(process.trace.last_ps());
        let result = match request.completed.map(|at| &process.trace.records[at]) {
            Some(done) if request.is_implied => format!("ended by wr_id {}", done.fields.id),
            Some(done) => names::status(done.fields.result).to_owned(),
            None => "no completion".to_owned(),
        };
        events.add(
            'e',
            &name,
            number,
            thread,
            process.axis_ps(end),
            &rest(&format!("\"result\":{}", quoted(&result))),
        );
    }
}

fn depths_and_waits(
    events: &mut Events,
    (number, process): (usize, &Process),
    shown: &std::ops::RangeInclusive<u64>,
) {
    let both = [("sends", &process.requests.send_depths), ("receives", &process.requests.recv_depths)];
    for (queue, depths) in both {
        for (id, steps) in depths {
            let is_known = process
                .trace
                .objects
                .get(id)
                .is_some_and(|object| matches!(object.class, Class::Qp | Class::Srq));
            let name = format!("depth of {} {queue}", process.trace.object_name(*id));
            for step in steps.iter().filter(|_| is_known) {
                let at = process.axis_ps(step.time_ps);
                if shown.contains(&at) {
                    events.add(
                        'C',
                        &name,
                        number,
                        0,
                        at,
                        &format!(",\"args\":{{\"requests\":{}}}", step.depth),
                    );
                }
            }
        }
    }
    for wait in &process.requests.waits {
        let (from, to) = (process.axis_ps(wait.from_ps), process.axis_ps(wait.to_ps));
        if shown.contains(&from) {
            let object = process.trace.object_name(wait.object);
            events.slice("wait", (number, u32::from(wait.thread)), from, to, &object);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Fields, entry, flag, kind};
    use crate::read::tests::File;

    #[test]
    fn events_are_valid_json_with_requests_counters_and_slices() {
        let mut file = File::new();
        file.qp(3, false);
        file.entry(entry::OBJECT, &[2 | 1 << 32, 1], "");
        let name = file.entry(entry::TEXT, &[], "MPI_\"Send\"");
        file.send(1_000_000, 3, 7, flag::SIGNALED);
        file.record(Fields { time_ps: 1_500_000, kind: kind::WAIT, object: 2, ..Fields::default() });
        file.completion(3_500_000, 0x30, 7, 0);
        file.record(Fields {
            time_ps: 500_000,
            id: 4_000_000,
            kind: kind::INTERFACE,
            extra: name,
            ..Fields::default()
        });
        let json = chrome(&Job::new(vec![("x".into(), file.read())]), &Selection::default());
        let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        let events = value["traceEvents"].as_array().expect("events");
        let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
        assert_eq!((of("b").len(), of("e").len(), of("C").len()), (1, 1, 2), "{json}");
        let names: Vec<_> = of("X").iter().map(|event| event["name"].as_str().expect("a name")).collect();
        assert_eq!(names, ["MPI_\"Send\"", "wait"]);
        assert_eq!(of("X")[0]["dur"].as_f64(), Some(3.5));
        assert_eq!(of("e")[0]["args"]["result"], "SUCCESS");
    }
}
