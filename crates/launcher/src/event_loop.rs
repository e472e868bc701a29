//! Waits for descriptors and signals, in the event loops of mpirun.

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

/// What a ready descriptor means for the caller, the descriptor, and the events to poll for.
pub(super) type PollEntry<'a, T> = (T, BorrowedFd<'a>, PollFlags);

/// Waits until a descriptor is ready or the deadline has passed; returns the ready ones.
///
/// # Errors
/// The system's error, if it has no memory for the poll.
pub(super) fn wait_ready<T: Copy>(wanted: &[PollEntry<'_, T>], until: Option<Instant>) -> io::Result<Vec<T>> {
    let mut fds: Vec<PollFd<'_>> =
        wanted.iter().map(|(_, fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
    // Rounded up: a loop that wakes before its deadline would spin.
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

/// Signals that are forwarded to ranks.
pub(super) const FORWARDED: [i32; 5] = [SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2];

/// The signals of this process, delivered through a descriptor from its creation on.
#[derive(Debug)]
pub(super) struct Signals(SignalDelivery<UnixStream, SignalOnly>);

impl Signals {
    /// Installs handlers for the forwarded signals, SIGCHLD and SIGCONT.
    ///
    /// # Errors
    /// If the system refuses the handlers.
    pub(super) fn install() -> Result<Self, Failure> {
        let all = FORWARDED.into_iter().chain([SIGCHLD, SIGCONT]);
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

    /// The signals that are pending.
    pub(super) fn take_pending(&mut self) -> Vec<i32> {
        self.0.pending().collect()
    }
}
