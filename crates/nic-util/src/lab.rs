//! fork(2) for the siege, which has no safe form (feature `lab`, never in released builds).

use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::Pid;

/// Forks. The child runs `body` with everything that it has inherited, and exits: with 0 if `body` returns
/// true, with 1 if false, with 101 if it panicked. Returns the child's pid to the parent.
///
/// # Errors
/// If the system cannot create another process.
pub fn fork_and(body: impl FnOnce() -> bool) -> std::io::Result<Pid> {
    // SAFETY: the child has this thread only, runs what the siege passes (whether that does harm is what is
    // tested), and leaves by _exit. Test: `cargo xtask siege --only forks`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = catch_unwind(AssertUnwindSafe(body)).map_or(101, |fine| i32::from(!fine));
        // SAFETY: ends the process, and nothing else.
        unsafe { libc::_exit(code) }
    }
    Pid::from_raw(pid.max(0)).ok_or_else(std::io::Error::last_os_error)
}
