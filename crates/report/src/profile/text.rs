//! [`profile_text`]: a profile as tables for a terminal.

use super::super::number::{count, plural, size_about};
use super::super::terminal::Out;
use super::job::{CallRow, JobProfile, Pair, share};
use host::Span;

/// Functions, and pairs of ranks, that are shown.
const CALLS_MAX: usize = 15;
const PAIRS_MAX: usize = 10;

/// Tables of calls, protocols and pairs of ranks, for each job; the first one has no number.
#[must_use]
pub fn profile_text(jobs: &[JobProfile], width: usize, colour: bool) -> String {
    let mut out = Out { text: String::new(), width, colour };
    for (number, job) in jobs.iter().enumerate() {
        let of = if number > 0 { format!(" of job {number}") } else { String::new() };
        out.line(&format!("profile{of}: {}", job.summary()));
        if let Some(gap) = job.gap() {
            out.line(&gap);
        }
        calls(&mut out, job);
        protocols(&mut out, job);
        pairs(&mut out, job);
        out.line("");
    }
    out.text
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|word| (*word).to_owned()).collect()
}

/// Notes that a table was cut and is complete elsewhere.
fn more(out: &mut Out, all: usize, shown: usize, noun: &str) {
    if all > shown {
        out.line(&format!("and {} more; the page has all", plural(all - shown, noun)));
    }
}

fn calls(out: &mut Out, job: &JobProfile) {
    let rows = job.calls();
    if rows.is_empty() {
        return;
    }
    let all = rows.iter().fold(Span::ZERO, |sum, row| sum + row.all.time);
    let head = words(&["call", "calls", "time", "of MPI", "a call", "most in", "", "sent"]);
    let line = |row: &CallRow<'_>| {
        vec![
            row.name.to_owned(),
            count(row.all.calls),
            row.all.time.to_string(),
            share(row.all.time, all),
            (row.all.time / row.all.calls).to_string(),
            format!("rank {}", row.most.0),
            row.most.1.to_string(),
            size_about(row.all.bytes as f64),
        ]
    };
    out.line("");
    out.table(head, rows.iter().take(CALLS_MAX).map(line).collect(), 1);
    more(out, rows.len(), CALLS_MAX, "function");
}

fn protocols(out: &mut Out, job: &JobProfile) {
    let rows = job.protocols();
    if rows.is_empty() {
        return;
    }
    let lines = rows
        .iter()
        .map(|(way, sent)| vec![way.name().to_owned(), count(sent.messages), size_about(sent.bytes as f64)]);
    out.line("");
    out.table(words(&["protocol", "messages", "bytes"]), lines.collect(), 1);
}

fn pairs(out: &mut Out, job: &JobProfile) {
    let rows = job.pairs();
    if rows.is_empty() {
        return;
    }
    let line = |pair: &Pair| {
        let (messages, bytes) = (count(pair.sent.messages), size_about(pair.sent.bytes as f64));
        vec![pair.from.to_string(), job.receiver(pair.to), messages, bytes]
    };
    out.line("");
    out.table(
        words(&["from", "to", "messages", "bytes"]),
        rows.iter().take(PAIRS_MAX).map(line).collect(),
        0,
    );
    more(out, rows.len(), PAIRS_MAX, "pair");
}

#[cfg(test)]
mod tests {
    use super::super::job::tests::{rank, three};
    use super::*;

    #[test]
    fn tables_stand_below_each_other() {
        let text = profile_text(&[three()], 100, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "profile: 3 ranks, watched for 2.00 ms each, 10 % of it in MPI");
        assert!(lines[1].starts_with("Rank 1 is missing"), "{text}");
        let row = |name: &str| {
            lines
                .iter()
                .find(|line| line.starts_with(name))
                .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(
            row("MPI_Wait").as_deref(),
            Some("MPI_Wait 20 400.00 us 99 % 20.00 us rank 2 300.00 us 0 B")
        );
        assert_eq!(row("eager/ring").as_deref(), Some("eager/ring 20 9.8 KiB"));
        assert!(text.is_ascii() && lines.iter().all(|line| line.len() <= 100), "{text}");
        let pairs: Vec<&str> = lines.iter().rev().skip(1).take(3).rev().copied().collect();
        assert!(
            pairs[0].contains("messages") && pairs[1].split_whitespace().eq(["0", "1", "10", "4.9", "KiB"]),
            "{text}"
        );
    }

    #[test]
    fn long_tables_say_that_they_go_on_and_empty_ones_are_left_out() {
        let many = JobProfile { ranks: (0..12).map(|at| Some(rank(at, 12))).collect() };
        let text = profile_text(&[many, JobProfile::default()], 100, false);
        assert!(text.contains("and 2 pairs more; the page has all\n"), "{text}");
        assert!(text.ends_with("profile of job 1: 0 ranks, of which none has left a profile\n\n"), "{text}");
    }
}
