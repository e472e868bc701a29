//! The text of findings, and where it is written.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::stack::Stack;

/// Findings that are written; further ones are counted only.
const WRITTEN_MAX: u64 = 200;

/// What a finding is about.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// The word in brackets that begins a finding of this kind, for tests and for searches in the guide.
    pub word: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// Where findings are written, and what has been found.
struct Report {
    seen: Option<BTreeSet<(&'static str, Stack)>>,
    file: Option<File>,
    exit: Option<i32>,
    process: u32,
}

static REPORT: Mutex<Report> = Mutex::new(Report { seen: None, file: None, exit: None, process: 0 });
/// The lock of the report, also after a panic while it was held: what it contains is whole after each write.
fn locked(report: &Mutex<Report>) -> MutexGuard<'_, Report> {
    report.lock().unwrap_or_else(PoisonError::into_inner)
}

static COUNT: AtomicU64 = AtomicU64::new(0);
static IS_ON: AtomicBool = AtomicBool::new(false);

/// Whether the use of any device of this process is checked.
#[inline]
#[must_use]
pub fn is_on() -> bool {
    IS_ON.load(Ordering::Relaxed)
}

/// Begins to report, if this is the first device that is checked.
///
/// # Errors
/// The system's, for the file.
pub fn begin(log: Option<&Path>, exit: Option<i32>) -> std::io::Result<()> {
    let mut report = locked(&REPORT);
    if let (None, Some(path)) = (&report.file, log) {
        report.file = Some(OpenOptions::new().append(true).create(true).open(path)?);
    }
    report.exit = report.exit.or(exit);
    report.process = std::process::id();
    report.seen.get_or_insert_default();
    IS_ON.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether this is the process that opened the device: a child of fork(2) has found nothing of its own.
pub fn is_process() -> bool {
    locked(&REPORT).process == std::process::id()
}

/// How many findings there are.
#[must_use]
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Reports a finding, unless the same kind was found at the same place, that of the first stack. The other stacks show more
/// places, each with its label.
#[cold]
pub fn find(kind: Kind, what: &str, about: &[(&str, String)], stacks: &[(&str, Stack)]) {
    let mut report = locked(&REPORT);
    let place = stacks.first().map(|(_, stack)| *stack).unwrap_or_default();
    if !report.seen.get_or_insert_default().insert((kind.word, place)) {
        return;
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    if number <= WRITTEN_MAX {
        let text = paragraph(kind, what, about, stacks);
        write(&mut report, &text);
    }
}

/// A finding as text.
fn paragraph(kind: Kind, what: &str, about: &[(&str, String)], stacks: &[(&str, Stack)]) -> String {
    let mut text = format!("nicety: check: [{}] {what}\n", kind.word);
    let mut add = |label: &str, line: &str| {
        // Writing to a string succeeds.
        let _ = writeln!(text, "  {label:<14} {line}");
    };
    for (label, line) in about {
        add(label, line);
    }
    for (label, stack) in stacks {
        let lines = stack.lines();
        if lines.is_empty() {
            add(label, "by the library itself");
        }
        for (at, line) in lines.iter().enumerate() {
            add(if at == 0 { label } else { "" }, line);
        }
    }
    add("remedy", kind.remedy);
    text
}

/// Writes a text by one call, so that those of several processes do not mix.
fn write(report: &mut Report, text: &str) {
    match &mut report.file {
        // If it cannot be written, there is no better place to report that.
        Some(file) => drop(file.write_all(text.as_bytes())),
        None => host::real::remark_lines(text),
    }
}

/// Writes the number of findings at the end of the process. Returns the exit status that it should have, if not its own.
pub fn end() -> Option<i32> {
    if !is_process() {
        return None;
    }
    let count = count();
    let more =
        if count > WRITTEN_MAX { format!(", of which {WRITTEN_MAX} are shown") } else { String::new() };
    conclude(&format!("{count} finding{}{more}", if count == 1 { "" } else { "s" }));
    exit_status()
}

/// Writes the last line: how many findings there are.
pub fn conclude(what: &str) {
    write(&mut locked(&REPORT), &format!("nicety: check: {what}\n"));
}

/// The exit status that this process should have because of its findings, if not its own.
#[must_use]
pub fn exit_status() -> Option<i32> {
    let (exit, process) = {
        let report = locked(&REPORT);
        (report.exit, report.process)
    };
    exit.filter(|_| count() != 0 && process == std::process::id())
}
