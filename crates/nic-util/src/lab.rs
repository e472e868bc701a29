//! What the siege needs of the system that has no safe form (feature `lab`, never in what ships): fork(2).

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::Pid;

/// Forks. The child carries out `body` with what it has inherited, and exits: with 0 if that is true, with 1 if not, with 101
/// if it panicked. The parent gets the child's number.
///
/// # Errors
/// When the system has no room for another process.
pub fn fork_and(body: impl FnOnce() -> bool) -> std::io::Result<Pid> {
    // SAFETY: the child has this thread alone, runs what the siege gives it (that this does no harm is what is tried), and
    // leaves by _exit. Test: `cargo xtask siege --only forks`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = catch_unwind(AssertUnwindSafe(body)).map_or(101, |fine| i32::from(!fine));
        // SAFETY: ends the process, and nothing else.
        unsafe { libc::_exit(code) }
    }
    Pid::from_raw(pid.max(0)).ok_or_else(std::io::Error::last_os_error)
}
