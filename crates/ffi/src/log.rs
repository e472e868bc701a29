//! Why calls fail: the log of the C interfaces (`NICETY_LOG`).
//!
//! A C function returns a number, and its caller has to guess the reason. Here each interface reports the reason as well: what
//! was called, which argument or object is wrong, and what to do. [`explain`] attaches a reason to an error number where the error
//! is found, and the boundary of the call takes it ([`take_reason`]) and writes it with the name of the call ([`failure`]).
//!
//! `NICETY_LOG` selects what is written: `off` (the default), `errors` (the first failure of each kind, and at exit how many
//! followed) or `calls` (all calls with their results, and all failures). `:FILE` appends the lines to a file instead of writing
//! them to standard error. Each line is one write(2), so that lines of several threads or processes do not mix.
//!
//! When the log is off, a failed call costs one relaxed load. Nothing here waits or takes a lock: a call may fail in a
//! child of fork(2), whose other threads are gone.

use std::cell::Cell;
use std::ffi::{OsStr, OsString};
use std::fmt::{self, Write as _};
use std::fs::{File, OpenOptions};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use host::real::{remark, remark_to};

use crate::{catch_panic, lock};

/// The variable that selects what is written.
pub const VARIABLE: &str = "NICETY_LOG";

/// The variable has not been read yet.
const UNREAD: u8 = 0;
const OFF: u8 = 1;
const ERRORS: u8 = 2;
const CALLS: u8 = 3;

static LEVEL: AtomicU8 = AtomicU8::new(UNREAD);
/// Where the lines go, unless to standard error.
static FILE: OnceLock<File> = OnceLock::new();
/// The process that has read the variable: a child of fork(2) does not repeat its parent's counts.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Maximum number of distinct kinds of failures; further kinds are counted together.
const KINDS: usize = 256;

/// A kind of failure: the same call with the same reason, apart from numbers in it.
struct Kind {
    /// 0 for an unused entry.
    hash: AtomicU64,
    count: AtomicU64,
    /// The first failure of this kind.
    line: OnceLock<Box<str>>,
}

static SEEN: [Kind; KINDS] =
    [const { Kind { hash: AtomicU64::new(0), count: AtomicU64::new(0), line: OnceLock::new() } }; KINDS];
/// Failures of kinds that found no entry.
static OTHERS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// The reason of this thread's latest error, with the error's number.
    static REASON: Cell<Option<(i32, String)>> = const { Cell::new(None) };
}

/// Whether failures are written.
#[inline]
pub fn reports_errors() -> bool {
    level() >= ERRORS
}

/// Whether all calls are written.
#[inline]
pub fn reports_calls() -> bool {
    level() >= CALLS
}

#[inline]
fn level() -> u8 {
    match LEVEL.load(Ordering::Relaxed) {
        UNREAD => read_variable(),
        level => level,
    }
}

#[cold]
fn read_variable() -> u8 {
    let (level, path) = parse(&std::env::var_os(VARIABLE).unwrap_or_default()).unwrap_or_else(|wrong| {
        remark(format_args!("{VARIABLE}={wrong}"));
        (OFF, None)
    });
    if let Some(path) = path {
        match OpenOptions::new().append(true).create(true).open(&path) {
            // If two threads race here, both have opened the same file.
            Ok(file) => drop(FILE.set(file)),
            Err(why) => remark(format_args!(
                "cannot write to {}, which {VARIABLE} names: {why}; errors of calls go to standard error",
                path.display()
            )),
        }
    }
    let is_first = LEVEL.compare_exchange(UNREAD, level, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if is_first && level >= ERRORS {
        PROCESS.store(std::process::id(), Ordering::Relaxed);
        at_exit(write_counts);
    }
    level
}

/// Calls a function when the process calls exit(3) or returns from `main`.
fn at_exit(function: extern "C" fn()) {
    // SAFETY: a function without arguments that returns nothing, of a library that is never unloaded. Test: `misuse_is_explained` of
    // abi-verbs, whose program exits with repeated failures. If memory is short, the lines are missing.
    let _ = unsafe { libc::atexit(function) };
}

/// A function that returns lines for the end of the process.
type Report = fn() -> Vec<String>;

/// Functions whose lines are written at the end.
static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

/// Writes the lines of [`report_at_exit`].
extern "C" fn write_reports() {
    let write = || {
        let reports = lock(&REPORTS).clone();
        reports.iter().flat_map(|report| report()).for_each(write_line);
    };
    // Too late to report an error.
    let _ = catch_panic(write);
}

/// Writes the lines that `report` returns when the process calls exit(3) or returns from `main`. A function that is given
/// twice is called once.
pub fn report_at_exit(report: fn() -> Vec<String>) {
    let mut reports = lock(&REPORTS);
    if reports.is_empty() {
        at_exit(write_reports);
    }
    if !reports.iter().any(|known| std::ptr::fn_addr_eq(*known, report)) {
        reports.push(report);
    }
}

/// Checks a value of the variable.
///
/// # Errors
/// The value, with what is expected.
pub fn check(value: &OsStr) -> Result<(), String> {
    parse(value).map(drop)
}

/// The level and the file that a value of the variable selects.
fn parse(value: &OsStr) -> Result<(u8, Option<OsString>), String> {
    use std::os::unix::ffi::OsStrExt as _;
    let bytes = value.as_bytes();
    let (word, path) = match bytes.iter().position(|byte| *byte == b':') {
        Some(at) => (&bytes[..at], Some(OsStr::from_bytes(&bytes[at + 1..]).to_owned())),
        None => (bytes, None),
    };
    let level = match word {
        b"" | b"off" => OFF,
        b"errors" => ERRORS,
        b"calls" => CALLS,
        _ => return Err(invalid(value)),
    };
    match path {
        Some(path) if path.is_empty() || word.is_empty() => Err(invalid(value)),
        path => Ok((level, path)),
    }
}

fn invalid(value: &OsStr) -> String {
    format!("{}: expected off, errors or calls, and :FILE behind it to write to a file", value.display())
}

/// Attaches a reason to the error with this number, which the caller is about to return. It names the argument or the object, says
/// what is wrong with it, and what to do. It replaces the reason of an earlier error of this thread.
#[cold]
pub fn explain(code: i32, reason: impl fmt::Display) {
    if reports_errors() {
        // Nothing is kept while the thread ends.
        let _ = REASON.try_with(|kept| kept.set(Some((code, reason.to_string()))));
    }
}

/// Takes the reason of this thread's latest error, if that has this number.
#[cold]
pub fn take_reason(code: i32) -> Option<String> {
    let (known, reason) = REASON.try_with(Cell::take).ok()??;
    (known == code).then_some(reason)
}

/// Reports that a call failed, or that an operation or a connection did: the first of each kind, unless all calls are written.
#[cold]
pub fn failure(call: &str, reason: &str) {
    if !reports_errors() {
        return;
    }
    let is_new = count_failure(call, reason);
    if is_new || reports_calls() {
        write_line(format_args!("{call}: {reason}"));
    }
}

/// Reports a call with its arguments and its result.
#[cold]
pub fn call(name: &str, arguments: &[&dyn fmt::Debug], result: &dyn fmt::Debug) {
    let mut line = format!("{name}(");
    for (at, argument) in arguments.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        let _ = write!(line, "{comma}{argument:?}");
    }
    write_line(format_args!("{line}) = {result:?}"));
}

/// Writes a line.
pub fn write_line(text: impl fmt::Display) {
    match FILE.get() {
        Some(file) => remark_to(file, text),
        None => remark(text),
    }
}

/// Counts a failure; returns whether it is the first of its kind.
fn count_failure(call: &str, reason: &str) -> bool {
    let hash = hash_without_numbers(call, reason);
    for at in 0..KINDS {
        let kind = &SEEN[(hash as usize).wrapping_add(at) % KINDS];
        let found = match kind.hash.compare_exchange(0, hash, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => hash,
            Err(found) => found,
        };
        if found == hash {
            let is_first = kind.count.fetch_add(1, Ordering::Relaxed) == 0;
            if is_first {
                // Only the thread that counts the first failure stores its line.
                let _ = kind.line.set(format!("{call}: {reason}").into());
            }
            return is_first;
        }
    }
    OTHERS.fetch_add(1, Ordering::Relaxed);
    false
}

/// A hash (FNV-1a) of a failure, in which numbers do not count. It is never 0.
fn hash_without_numbers(call: &str, reason: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut is_in_hex = false;
    let mut before = 0;
    for byte in call.bytes().chain([0]).chain(reason.bytes()) {
        is_in_hex = is_in_hex && byte.is_ascii_hexdigit() || before == b'0' && byte == b'x';
        if !is_in_hex && !byte.is_ascii_digit() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
        before = byte;
    }
    hash | 1
}

/// Writes how often each kind of failure was repeated; the process exits.
extern "C" fn write_counts() {
    if PROCESS.load(Ordering::Relaxed) != std::process::id() || reports_calls() {
        return;
    }
    for kind in &SEEN {
        let count = kind.count.load(Ordering::Relaxed);
        if let Some(line) = kind.line.get().filter(|_| count > 1) {
            write_line(format_args!("{} more like this one: {line}", count - 1));
        }
    }
    let others = OTHERS.load(Ordering::Relaxed);
    if others > 0 {
        write_line(format_args!("{others} failures of other kinds: {VARIABLE}=calls writes all"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variable_selects_level_and_file() {
        let parsed = |value: &str| parse(OsStr::new(value));
        for (value, level) in [("", OFF), ("off", OFF), ("errors", ERRORS), ("calls", CALLS)] {
            assert_eq!(parsed(value), Ok((level, None)), "{value}");
        }
        assert_eq!(parsed("errors:/a:b"), Ok((ERRORS, Some("/a:b".into()))));
        for value in ["all", "errors:", ":/a", "1", "Errors"] {
            assert!(parsed(value).is_err_and(|wrong| wrong.starts_with(&format!("{value}: expected"))));
        }
    }

    #[test]
    fn failures_that_differ_in_numbers_are_of_one_kind() {
        let hash = hash_without_numbers;
        assert_eq!(hash("f", "key 0x1fa of 12 bytes"), hash("f", "key 0xdead of 7 bytes"));
        assert_ne!(hash("f", "key 0x1 of 12 bytes"), hash("g", "key 0x1 of 12 bytes"));
        assert_ne!(hash("f", "a key"), hash("f", "a face"), "letters count outside of numbers");
        assert_ne!(hash("fa", "b"), hash("f", "ab"));
    }

    /// Goal: each kind is counted once as the first, whatever the number of kinds. Method: more kinds than there are entries.
    #[test]
    fn first_of_each_kind_is_found_up_to_the_limit() {
        let letters = |number: usize| format!("{number:b}").replace('0', "o").replace('1', "l");
        let firsts = (1..=KINDS).filter(|at| count_failure("call", &letters(*at))).count();
        assert_eq!(firsts, KINDS);
        assert!((1..=KINDS).all(|at| !count_failure("call", &letters(at))));
        assert!(!count_failure("call", "one kind too many") && OTHERS.load(Ordering::Relaxed) == 1);
    }

    #[test]
    fn reason_belongs_to_one_error_number() {
        REASON.set(Some((7, "x is missing".to_owned())));
        assert_eq!((take_reason(8), take_reason(7)), (None, None), "taken by the first");
        REASON.set(Some((7, "x is missing".to_owned())));
        assert_eq!(take_reason(7).as_deref(), Some("x is missing"));
    }
}
