//! Findings: what is wrong, with the objects, the places in the program, and the remedy. Each is written once.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nic_util::sync::unpoisoned;

use crate::stack::Stack;

/// Findings that are written; further ones are counted only.
const WRITTEN_MAX: u64 = 200;

/// What a finding is about; its word begins the finding, for tests and for searches in the guide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    BufferChanged,
    ReceiveTouched,
    ReceiveOverwritten,
    Overlap,
    KeyDeregistered,
    KeyUnknown,
    OutsideRegion,
    MissingRight,
    MemoryGone,
    RegionInUse,
    AtomicOperand,
    NeverSignaled,
    CqTooSmall,
    NoReceive,
    ReceiveTooShort,
    RemoteAccess,
    Unacknowledged,
    NotArmed,
    CardLimit,
    Leak,
}

impl Kind {
    /// The word in brackets that begins a finding of this kind.
    fn word(self) -> &'static str {
        match self {
            Self::BufferChanged => "buffer-changed",
            Self::ReceiveTouched => "receive-touched",
            Self::ReceiveOverwritten => "receive-overwritten",
            Self::Overlap => "overlap",
            Self::KeyDeregistered => "key-deregistered",
            Self::KeyUnknown => "key-unknown",
            Self::OutsideRegion => "outside-region",
            Self::MissingRight => "missing-right",
            Self::MemoryGone => "memory-gone",
            Self::RegionInUse => "region-in-use",
            Self::AtomicOperand => "atomic-operand",
            Self::NeverSignaled => "never-signaled",
            Self::CqTooSmall => "cq-too-small",
            Self::NoReceive => "no-receive",
            Self::ReceiveTooShort => "receive-too-short",
            Self::RemoteAccess => "remote-access",
            Self::Unacknowledged => "unacknowledged",
            Self::NotArmed => "not-armed",
            Self::CardLimit => "card-limit",
            Self::Leak => "leak",
        }
    }

    /// What to do about it.
    fn remedy(self) -> &'static str {
        match self {
            Self::BufferChanged => {
                "write to the buffer only after ibv_poll_cq has returned this request's completion, or that of a later signaled one; or send from another buffer, or inline"
            }
            Self::ReceiveTouched => {
                "leave the buffer alone until ibv_poll_cq has returned the receive's completion; prepare it before ibv_post_recv"
            }
            Self::ReceiveOverwritten => "post each receive with a buffer of its own",
            Self::Overlap => "let each outstanding request write to memory of its own",
            Self::KeyDeregistered => {
                "deregister a region after the last completion of the requests that use it"
            }
            Self::KeyUnknown => {
                "use the lkey of a region of this process, in the protection domain of the queue pair"
            }
            Self::OutsideRegion => {
                "register all of the memory, or correct the address or the length of the element"
            }
            Self::MissingRight => "register the region with IBV_ACCESS_LOCAL_WRITE",
            Self::MemoryGone => "call ibv_dereg_mr before free, munmap, or the end of the buffer's life",
            Self::RegionInUse => {
                "poll the completions of all requests that use the region first, or move the queue pair to the error state"
            }
            Self::AtomicOperand => {
                "let atomics use 8 bytes at an address that is a multiple of 8, on both sides"
            }
            Self::NeverSignaled => {
                "set IBV_SEND_SIGNALED on some requests (each max_send_wr / 2-th, for example), and poll their completions: only they free the places of unsignaled ones"
            }
            Self::CqTooSmall => {
                "create the completion queue with as many entries as all of its queue pairs can complete: signaled sends and receives"
            }
            Self::NoReceive => {
                "post receives before the peer sends, and let the peer keep count of them; rnr_retry 7 retries for ever"
            }
            Self::ReceiveTooShort => "post receives that are as long as the longest message of the peer",
            Self::RemoteAccess => {
                "let the owner of the region announce its end to the peers that have the key, and wait for their answer"
            }
            Self::Unacknowledged => {
                "acknowledge each event that was taken: ibv_ack_cq_events, ibv_ack_async_event, rdma_ack_cm_event"
            }
            Self::NotArmed => "call ibv_req_notify_cq, and poll the queue once more, before ibv_get_cq_event",
            Self::CardLimit => "query the limit (ibv_query_device) and keep within it",
            Self::Leak => "end each object by the call that is named, in the reverse order of creation",
        }
    }
}

/// Where findings are written, and what has been found.
struct Report {
    seen: Option<BTreeSet<(Kind, Stack)>>,
    file: Option<File>,
    exit: Option<i32>,
    process: u32,
}

static REPORT: Mutex<Report> = Mutex::new(Report { seen: None, file: None, exit: None, process: 0 });
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
pub(crate) fn begin(log: Option<&Path>, exit: Option<i32>) -> std::io::Result<()> {
    let mut report = unpoisoned(&REPORT);
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
pub(crate) fn is_process() -> bool {
    unpoisoned(&REPORT).process == std::process::id()
}

/// How many findings there are.
#[must_use]
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Reports a finding, unless the same kind was found at the same place, that of the first stack. The other stacks show more
/// places, each with its label.
#[cold]
pub(crate) fn find(kind: Kind, what: &str, about: &[(&str, String)], stacks: &[(&str, Stack)]) {
    let mut report = unpoisoned(&REPORT);
    let place = stacks.first().map(|(_, stack)| *stack).unwrap_or_default();
    if !report.seen.get_or_insert_default().insert((kind, place)) {
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
    let mut text = format!("nicety: check: [{}] {what}\n", kind.word());
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
    add("remedy", kind.remedy());
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
pub(crate) fn end() -> Option<i32> {
    if !is_process() {
        return None;
    }
    let mut report = unpoisoned(&REPORT);
    let count = count();
    let more =
        if count > WRITTEN_MAX { format!(", of which {WRITTEN_MAX} are shown") } else { String::new() };
    write(
        &mut report,
        &format!("nicety: check: {count} finding{}{more}\n", if count == 1 { "" } else { "s" }),
    );
    report.exit.filter(|_| count != 0)
}
