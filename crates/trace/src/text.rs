//! [`text`]: a trace as lines.

use std::fmt::Write as _;

use crate::format::{Fields, flag};
use crate::job::{Job, Process};
use crate::names::{self, Call, Event};
use crate::queues::{Queue, queues};
use crate::read::{Record, What};
use crate::select::Selection;

/// The records that are selected, a line each, with lines about the processes in front.
#[must_use]
pub fn text(job: &Job, selection: &Selection) -> String {
    let mut text = String::new();
    for process in &job.processes {
        summary(&mut text, process);
    }
    let has_names = job.processes.len() > 1;
    let threads = job.processes.iter().flat_map(|process| {
        process.trace.threads.keys().map(|thread| process.trace.thread_name(*thread).chars().count())
    });
    let width = threads.max().unwrap_or(6).clamp(6, 24);
    let name_width = job.processes.iter().map(|process| process.name.len()).max().unwrap_or(0);
    for (number, at) in selection.apply(&job.processes) {
        let process = &job.processes[number];
        let record = &process.trace.records[at];
        let _ = write!(text, "{:>16}", time(process.axis_ps(record.fields.time_ps)));
        if has_names {
            let _ = write!(text, "  {:name_width$}", process.name);
        }
        let thread = process.trace.thread_name(record.fields.thread);
        let object = process.trace.object_name(record.fields.object);
        let _ =
            writeln!(text, "  {thread:width$}  {object:14}  {}", describe(process, at, record).trim_end());
    }
    text
}

/// Seconds with nine digits, by groups of three.
fn time(ps: u64) -> String {
    let ns = ps / 1000;
    let (s, us, ns_left) = (ns / 1_000_000_000, ns / 1000 % 1_000_000, ns % 1000);
    format!("{s}.{:03}_{:03}_{ns_left:03}", us / 1000, us % 1000)
}

/// A duration, with a unit that fits.
#[must_use]
pub fn time_span(ps: u64) -> String {
    match ps as f64 / 1e3 {
        ns if ns < 1e3 => format!("{ns:.0} ns"),
        ns if ns < 1e6 => format!("{:.2} us", ns / 1e3),
        ns if ns < 1e9 => format!("{:.2} ms", ns / 1e6),
        ns => format!("{:.2} s", ns / 1e9),
    }
}

/// Lines about a process: what was recorded, and what is missing.
fn summary(text: &mut String, process: &Process) {
    let trace = &process.trace;
    let records = trace.records.len();
    let clock = if trace.is_virtual { "simulated" } else { "real" };
    let last = time_span(process.axis_ps(trace.last_ps()).saturating_sub(process.axis_ps(trace.start_ps)));
    let name = format!("{}, pid {}", process.name, trace.pid);
    let name = if trace.rank.is_some() { &name } else { &process.name };
    let _ = writeln!(text, "# {name}: {records} records in {last} of {clock} time ({})", process.file);
    let overwritten = trace.written.saturating_sub(records as u64 + trace.damaged);
    let remarks = [
        (overwritten, "earlier records were overwritten; a larger ring keeps more (--trace-size)"),
        (trace.damaged, "records are incomplete: the process was stopped while it wrote them"),
        (trace.lost_entries, "descriptions of objects or errors found no place"),
        (u64::from(!trace.has_ended), "process has not ended in order: it runs, was killed or crashed"),
    ];
    for (count, remark) in remarks.into_iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(text, "# {count} {remark}");
    }
    for queue in queues(process) {
        let _ = writeln!(text, "# {}", queue_line(&queue));
    }
}

/// What happened to a queue, as a line.
fn queue_line(queue: &Queue) -> String {
    let Queue { name, size, deepest, posted, .. } = queue;
    let mut line = format!("{name}: {posted} posted, at most {deepest} of {size} at a time");
    if queue.full_ps > 0 {
        let _ = write!(line, ", full for {}", time_span(queue.full_ps));
    }
    for (count, word) in
        [(queue.refused, "refused"), (queue.failed, "failed"), (queue.open, "without completion")]
    {
        if count > 0 {
            let _ = write!(line, ", {count} {word}");
        }
    }
    if let Some((median, longest)) = queue.times_ps {
        let _ = write!(line, "; post to completion {}, at most {}", time_span(median), time_span(longest));
    }
    line
}

/// What a record says, without its object.
#[must_use]
pub fn describe(process: &Process, at: usize, record: &Record) -> String {
    let fields = &record.fields;
    let reason = record.text.as_deref().unwrap_or_default();
    match record.what {
        What::Send | What::Recv => posted(record, reason),
        What::Completion => completion(process, at, record, reason),
        What::Wait => "wait".to_owned(),
        What::Event => event(fields, reason),
        What::Interface => {
            let took = time_span(record.end_ps() - fields.time_ps);
            let result = if fields.result == 0 { String::new() } else { format!(" = {}", fields.bytes) };
            format!("{reason}{result}  took {took}")
        }
        What::Call => call(record, reason),
    }
}

fn posted(record: &Record, reason: &str) -> String {
    let fields = &record.fields;
    let is_send = record.what == What::Send;
    let mut line = format!(
        "post {:12} wr_id {:<6} {:>9}",
        names::operation(fields.code),
        fields.id,
        bytes(fields.bytes)
    );
    if fields.flags & flag::INLINE == 0 && fields.elements > 0 {
        let _ = write!(line, "  at {:#x} lkey {:#x}", fields.local, fields.key);
    }
    if fields.elements > 1 {
        let _ = write!(line, " and {} more", fields.elements - 1);
    }
    if is_send && fields.code != 0 {
        let _ = write!(line, "  peer {:#x} rkey {:#x}", fields.remote, fields.other);
    }
    if record.has_failed() {
        let _ = write!(line, "  FAILED: {reason}");
        return line;
    }
    if fields.flags & flag::IMM != 0 {
        let _ = write!(line, "  imm {:#x}", fields.extra);
    }
    if fields.flags & flag::INVALIDATE != 0 {
        let _ = write!(line, "  invalidates {:#x}", fields.extra);
    }
    let words = [
        (flag::SIGNALED, "signaled"),
        (flag::SOLICITED, "solicited"),
        (flag::FENCE, "fence"),
        (flag::NOTIFY, "notify"),
        (flag::LOCAL, "local"),
        (flag::INLINE, "inline"),
    ];
    for (_, word) in words.into_iter().filter(|(flag, _)| fields.flags & flag != 0) {
        let _ = write!(line, "  {word}");
    }
    line
}

fn completion(process: &Process, at: usize, record: &Record, reason: &str) -> String {
    let fields = &record.fields;
    let operation = names::operation(fields.code);
    let mut line = format!("done {operation:12} wr_id {:<6} {:>9}", fields.id, bytes(fields.bytes));
    let _ = write!(line, "  on qp {:#x}  {}", fields.other, names::status(fields.result));
    if let Some(request) = process.requests.of_completion.get(&at) {
        let posted = &process.trace.records[process.requests.all[*request].posted].fields;
        let _ = write!(line, ", {} after its post", time_span(fields.time_ps.saturating_sub(posted.time_ps)));
    }
    if fields.flags & flag::IMM != 0 {
        let _ = write!(line, "  imm {:#x}", fields.remote as u32);
    }
    if fields.flags & flag::INVALIDATE != 0 {
        let _ = write!(line, "  invalidated {:#x}", fields.remote as u32);
    }
    if !reason.is_empty() {
        let _ = write!(line, ": {reason}");
    }
    line
}

fn event(fields: &Fields, reason: &str) -> String {
    let name = if fields.code == Event::Asynchronous as u8 { "event" } else { names::event(fields.code) };
    if reason.is_empty() { name.to_owned() } else { format!("{name}  {reason}") }
}

fn call(record: &Record, reason: &str) -> String {
    let fields = &record.fields;
    let mut line = format!("{:17}", names::call(fields.code));
    let memory = [Call::RegMr as u8, Call::Map as u8];
    if memory.contains(&fields.code) {
        let _ = write!(line, " {:>9} at {:#x}", bytes_long(fields.local), fields.remote);
    } else if fields.local != 0 {
        let _ = write!(line, " {}", fields.local);
    }
    if fields.key != 0 {
        let _ = write!(line, " lkey {:#x}", fields.key);
    }
    if fields.other != 0 {
        let _ = write!(line, " rkey {:#x}", fields.other);
    }
    if record.has_failed() {
        line.push_str(" FAILED:");
    }
    if !reason.is_empty() {
        let _ = write!(line, " {reason}");
    }
    let _ = write!(line, "  took {}", time_span(record.end_ps() - fields.time_ps));
    line
}

fn bytes(count: u32) -> String {
    bytes_long(count.into())
}

fn bytes_long(count: u64) -> String {
    format!("{count} B")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{entry, kind};
    use crate::read::tests::File;

    #[test]
    fn lines_name_what_happened() {
        let mut file = File::new();
        file.qp(3, false);
        file.entry(entry::OBJECT, &[2 | 1 << 32, 1], "");
        file.entry(entry::THREAD, &[0, 42], "main");
        let reason = file.entry(entry::TEXT, &[], "the send queue is full");
        file.send(1_000_000, 3, 7, flag::SIGNALED | flag::INLINE);
        file.completion(3_500_000, 0x30, 7, 8);
        file.record(Fields {
            time_ps: 4_000_000,
            kind: kind::SEND,
            code: 0,
            object: 3,
            result: 1,
            extra: reason,
            id: 9,
            ..Fields::default()
        });
        let text = text(&Job::new(vec![("x.trace".into(), file.read())]), &Selection::default());
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[0].starts_with("# pid 42: 3 records in 4.00 us of real time (x.trace)"), "{text}");
        assert!(lines[1].contains("has not ended in order"), "{text}");
        let line = "   0.000_001_000  main/42  qp 0x30         post write        wr_id 7            8 B  peer 0x0 rkey 0x0  signaled  inline";
        assert!(lines[2].starts_with("# qp 0x30 to 10.0.0.1:7, sends: 1 posted, at most 1 of 4 at a time, 1 refused, 1 failed; post to completion 2.50 us"), "{text}");
        assert_eq!(lines[3], line);
        assert!(lines[4].contains("on qp 0x30  RETRY_EXC_ERR, 2.50 us after its post"), "{text}");
        assert!(
            lines[5].ends_with("post send         wr_id 9            0 B  FAILED: the send queue is full"),
            "{text}"
        );
    }
}
