//! Lines that a process writes at its end.

use std::sync::Mutex;

use crate::{catch_panic, lock, log};

/// A function that returns the lines.
type Report = fn() -> Vec<String>;

/// Functions whose lines are written at the end.
static REPORTS: Mutex<Vec<Report>> = Mutex::new(Vec::new());

extern "C" fn write_reports() {
    let write = || {
        let reports = lock(&REPORTS).clone();
        reports.iter().flat_map(|report| report()).for_each(log::write_line);
    };
    // Too late to report an error.
    let _ = catch_panic(write);
}

/// Writes the lines that `report` returns when the process calls exit(3) or returns from `main`. A function that is given
/// twice is called once.
pub fn report_at_exit(report: fn() -> Vec<String>) {
    let mut reports = lock(&REPORTS);
    if reports.is_empty() {
        // SAFETY: a function of this library, which is never unloaded. Test: `write_of_a_program_fails_by_a_rule` in
        // crates/abi-verbs/tests/faults.rs.
        let _ = unsafe { libc::atexit(write_reports) };
    }
    if !reports.iter().any(|known| std::ptr::fn_addr_eq(*known, report)) {
        reports.push(report);
    }
}
