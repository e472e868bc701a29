//! One attempt of a call that waits on a socket: it tries, polls for a while, tries again, and then names the descriptors to sleep on.

use std::os::fd::{AsRawFd as _, RawFd};

use rsocket::{Sleep, Stream};

use crate::answer::{Answer, Step};
use crate::errno::Errno;
use crate::sockets::entry::{self, Entry};

/// The sleep of a call, between two attempts. It has no destructor, so that a thread can be cancelled while it sleeps.
#[derive(Clone, Copy, Default)]
pub(crate) struct Asleep(Option<(Sleep, u64)>);

impl Asleep {
    /// Ends the sleep on a socket, if there was one.
    ///
    /// # Errors
    /// `EBADF` if it was another socket: its number has been closed and is in use again.
    fn end(&mut self, entry: &Entry) -> Answer {
        match self.0.take() {
            Some((_, id)) if id != entry.id => Err(Errno(libc::EBADF)),
            Some((sleep, _)) => {
                entry.socket.awake(sleep);
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// How a call waits.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    /// What it waits for, if the socket is connected.
    pub(crate) is_ready: fn(&Stream) -> bool,
    /// The error of a call that may not wait.
    pub(crate) nonblocking: Errno,
    /// Whether it may not wait, whatever the socket's flags.
    pub(crate) never: bool,
}

/// One attempt on the socket with this number. `attempt` returns the result of the call once there is one.
///
/// # Errors
/// Those of `attempt`, `interrupt`, and that of a call that may not wait.
pub(crate) fn step(
    fd: RawFd,
    asleep: &mut Asleep,
    interrupt: Option<Errno>,
    waiting: Waiting,
    mut attempt: impl FnMut(&Entry) -> Answer<Option<isize>>,
) -> Answer<Step> {
    let entry = entry::lookup(fd)?;
    asleep.end(&entry)?;
    if let Some(done) = attempt(&entry)? {
        return Ok(Step::Done(done));
    }
    if waiting.never || entry.is_nonblocking() {
        return Err(waiting.nonblocking);
    }
    if let Some(why) = interrupt {
        return Err(why);
    }
    if let Some(stream) = entry.socket.stream() {
        stream.spin(|| (waiting.is_ready)(stream))?;
        if let Some(done) = attempt(&entry)? {
            return Ok(Step::Done(done));
        }
    }
    let sleep = entry.socket.arm()?;
    match attempt(&entry) {
        Ok(None) => {
            asleep.0 = Some((sleep, entry.id));
            Ok(Step::Sleep(fds(&entry)))
        }
        result => {
            entry.socket.awake(sleep);
            Ok(Step::Done(result?.unwrap_or_default()))
        }
    }
}

/// The descriptors of a socket to sleep on.
pub(crate) fn fds(entry: &Entry) -> [RawFd; 2] {
    let (channel, own) = entry.socket.fds();
    [channel.map_or(-1, |fd| fd.as_raw_fd()), own.as_raw_fd()]
}
