//! What the loops of mpirun sleep on: descriptors, and signals as one more of them.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::backend::SignalDelivery;
use signal_hook::iterator::exfiltrator::SignalOnly;

use crate::failure::Failure;

/// A descriptor, what to do when it is ready, and for what.
pub(super) type Wanted<'a, T> = (T, BorrowedFd<'a>, PollFlags);

/// Sleeps until one of them is ready or the time comes; which are.
///
/// # Errors
/// The system's, if it has no memory for that.
pub(super) fn wait<T: Copy>(wanted: &[Wanted<'_, T>], until: Option<Instant>) -> io::Result<Vec<T>> {
    let mut fds: Vec<PollFd<'_>> =
        wanted.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    // Rounded up, as a loop that wakes too early would spin.
    let left = until.map(|until| until.saturating_duration_since(Instant::now()) + Duration::from_micros(50));
    let left = left.map(|left| Timespec {
        tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    });
    match poll(&mut fds, left.as_ref()) {
        Err(Errno::INTR) => return Ok(Vec::new()),
        polled => polled?,
    };
    let ready = wanted.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
    Ok(ready.map(|((what, ..), _)| *what).collect())
}

/// Signals that are passed on to ranks.
pub(super) const PASSED: [i32; 5] = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];

/// Signals of this process, from the moment that this exists.
#[derive(Debug)]
pub(super) struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    /// Takes over those that are passed on, and the one that tells of a child's end.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub(super) fn install() -> Result<Self, Failure> {
        let all = PASSED.into_iter().chain([SIGCHLD, SIGCONT]);
        let wanted = all.filter(|signal| *signal != SIGHUP || !host::real::is_ignored(SIGHUP));
        UnixStream::pair()
            .and_then(|(read, write)| {
                read.set_nonblocking(true)?;
                write.set_nonblocking(true)?;
                SignalDelivery::with_pipe(read, write, SignalOnly, wanted)
            })
            .map(Self)
            .map_err(|why| {
                Failure::run(format!("cannot handle signals: {why}; check the limits of the process"))
            })
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.0.get_read().as_fd()
    }

    /// Those that have come.
    pub(super) fn come(&mut self) -> Vec<i32> {
        self.0.pending().collect()
    }
}
