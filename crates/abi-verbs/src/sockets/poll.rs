//! Waiting for several sockets, and for descriptors of the system: rpoll and rselect.

use std::cell::RefCell;
use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::Arc;

use ffi::Out;
use host::{Span, Time};
use rsocket::{Config, Phase, Sleep};

use crate::answer::Answer;
use crate::errno::{Errno, errno, missing};
use crate::sockets::entry::{self, Entry};
use crate::sockets::step;

/// The most descriptors of a call.
const FDS_MAX: usize = 1 << 16;

/// What a call needs, kept for the thread's next call: nothing is allocated then.
#[derive(Default)]
struct Room {
    /// The program's descriptors.
    wanted: Vec<libc::pollfd>,
    /// The sockets among them, by the same index.
    sockets: Vec<Option<Arc<Entry>>>,
    /// The prepared sleeps of the sockets, by the same index.
    sleeps: Vec<Option<Sleep>>,
    /// The system's descriptors: the other ones among the program's first, in order.
    system: Vec<libc::pollfd>,
}

thread_local! {
    static ROOM: RefCell<Room> = RefCell::default();
}

/// Polls descriptors of the system.
fn poll(fds: &mut [libc::pollfd], limit_ms: i32) -> Answer<usize> {
    // SAFETY: as many entries as are said. Test: `sockets_in_c_behave_as_those_of_tcp` in tests/sockets.rs.
    match unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, limit_ms) } {
        -1 => Err(Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))),
        count => Ok(count as usize),
    }
}

/// What is ready of the events that a program wants of a socket.
fn ready(entry: &Entry, wanted: i16) -> Answer<i16> {
    let (readable, writable) = (libc::POLLIN | libc::POLLRDNORM, libc::POLLOUT | libc::POLLWRNORM);
    let stream = match (entry.socket.phase(), entry.socket.stream()) {
        (Phase::Connected, Some(stream)) => stream,
        (Phase::Listening { can_accept: true }, _) => return Ok(wanted & readable),
        (Phase::Listening { .. } | Phase::Connecting, _) => return Ok(0),
        (Phase::Failed, _) => return Ok(wanted & (readable | writable) | libc::POLLERR | libc::POLLHUP),
        // Neither connected nor listening, as TCP has it.
        _ => return Ok(wanted & writable | libc::POLLHUP),
    };
    stream.poll()?;
    let mut found = 0;
    if wanted & readable != 0 && stream.is_readable() {
        found |= wanted & readable;
    }
    if wanted & writable != 0 && stream.is_writable() {
        found |= wanted & writable;
    }
    if wanted & libc::POLLRDHUP != 0 && stream.is_peer_shut() {
        found |= libc::POLLRDHUP;
    }
    if stream.is_ended() && stream.unread() == 0 {
        found |= libc::POLLHUP;
    }
    if stream.is_broken() {
        found |= libc::POLLERR;
    }
    Ok(found)
}

impl Room {
    /// Finds the sockets among these descriptors.
    fn fill(&mut self, fds: impl Iterator<Item = libc::pollfd>) {
        self.wanted.clear();
        self.wanted.extend(fds);
        self.sockets.clear();
        self.sockets.extend(self.wanted.iter().map(|fd| entry::find(fd.fd)));
        self.sleeps.clear();
        self.sleeps.resize(self.wanted.len(), None);
        self.system.clear();
        let others = self.wanted.iter().zip(&self.sockets).filter(|(_, socket)| socket.is_none());
        self.system.extend(others.map(|(fd, _)| *fd));
    }

    /// The number of the system's descriptors among the program's.
    fn others(&self) -> usize {
        self.sockets.iter().filter(|socket| socket.is_none()).count()
    }

    /// Polls all sockets; returns how many are ready.
    fn poll_sockets(&mut self) -> Answer<usize> {
        let mut count = 0;
        for (fd, socket) in self.wanted.iter_mut().zip(&self.sockets) {
            if let Some(socket) = socket {
                fd.revents = ready(socket, fd.events)?;
                count += usize::from(fd.revents != 0);
            }
        }
        Ok(count)
    }

    /// Takes the events of the system's descriptors, and returns the number of descriptors with events.
    fn take_others(&mut self) -> usize {
        let others = self.wanted.iter_mut().zip(&self.sockets).filter(|(_, socket)| socket.is_none());
        let mut count = 0;
        for ((fd, _), system) in others.zip(&self.system) {
            fd.revents = system.revents;
            count += usize::from(fd.revents != 0);
        }
        count
    }

    /// Waits until a descriptor is ready or the time has passed; returns how many are ready.
    fn wait(&mut self, limit_ms: i32) -> Answer<usize> {
        let (others, host) = (self.others(), host::real::host());
        let deadline = u64::try_from(limit_ms).ok().and_then(|ms| host.after(Span::from_ms(ms)));
        let mut count = self.poll_sockets()?;
        if others > 0 {
            poll(&mut self.system[..others], 0)?;
            count += self.take_others();
        }
        if count > 0 || limit_ms == 0 {
            return Ok(count);
        }
        let spin = host.after(Config::default().polling);
        let found = host.poll("rpoll", spin, || match self.poll_sockets() {
            Ok(0) => None,
            found => Some(found),
        });
        match found.unwrap_or(Ok(0))? {
            0 => self.sleep(others, deadline),
            count => Ok(count),
        }
    }

    /// Sleeps until a descriptor is ready or the deadline has passed; returns how many are ready.
    fn sleep(&mut self, others: usize, deadline: Option<Time>) -> Answer<usize> {
        let host = host::real::host();
        loop {
            let armed = self.arm(others);
            let mut result = armed.and_then(|()| self.poll_sockets());
            if result == Ok(0) {
                let left = deadline.map_or(-1, |deadline| {
                    let left = deadline.since(host.now()).to_std().as_micros().div_ceil(1000);
                    i32::try_from(left).unwrap_or(i32::MAX)
                });
                result = poll(&mut self.system, left);
                self.awake();
                result = result.and_then(|_| Ok(self.poll_sockets()? + self.take_others()));
            } else {
                self.awake();
            }
            let is_over = deadline.is_some_and(|deadline| host.now() >= deadline);
            if result != Ok(0) || is_over {
                return result;
            }
        }
    }

    /// Prepares the sleep of every socket, and lists the descriptors to sleep on.
    fn arm(&mut self, others: usize) -> Answer {
        self.system.truncate(others);
        for (socket, sleep) in self.sockets.iter().zip(&mut self.sleeps) {
            let Some(socket) = socket else { continue };
            *sleep = Some(socket.socket.arm()?);
            let entry = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            self.system.extend(step::fds(socket).map(entry));
        }
        Ok(())
    }

    /// Ends the sleeps that were prepared.
    fn awake(&mut self) {
        for (socket, sleep) in self.sockets.iter().zip(&mut self.sleeps) {
            if let (Some(socket), Some(sleep)) = (socket, sleep.take()) {
                socket.socket.awake(sleep);
            }
        }
    }
}

/// Runs `body` with the thread's room; a call in a signal handler during another call gets one of its own.
fn with_room<T>(body: impl FnOnce(&mut Room) -> T) -> T {
    ROOM.with(|room| match room.try_borrow_mut() {
        Ok(mut room) => {
            let result = body(&mut room);
            // Sockets that are closed meanwhile are not kept.
            room.sockets.clear();
            result
        }
        Err(_) => body(&mut Room::default()),
    })
}

pub(crate) fn rpoll(fds: Out<libc::pollfd>, nfds: usize, timeout: i32) -> Answer<isize> {
    if nfds > FDS_MAX {
        return Err(errno!(INVAL, "nfds is {nfds}, but at most {FDS_MAX} is possible"));
    }
    if nfds > 0 {
        fds.required_or(|| missing("fds"))?;
    }
    with_room(|room| {
        room.fill((0..nfds).filter_map(|at| fds.element(at).get()));
        let count = room.wait(timeout)?;
        room.wanted.iter().enumerate().for_each(|(at, fd)| fds.element(at).set(*fd));
        Ok(count as isize)
    })
}

/// A set of descriptors, or NULL.
type FdSet = Out<u64>;

fn is_in(set: FdSet, fd: usize) -> bool {
    set.element(fd / 64).get().is_some_and(|word| word >> (fd % 64) & 1 == 1)
}

pub(crate) fn rselect(
    nfds: i32,
    readfds: FdSet,
    writefds: FdSet,
    exceptfds: FdSet,
    timeout: *mut c_void,
) -> Answer<isize> {
    let sets = [readfds, writefds, exceptfds];
    let nfds = usize::try_from(nfds).ok().filter(|nfds| *nfds <= libc::FD_SETSIZE);
    let nfds = nfds.ok_or_else(|| errno!(INVAL, "nfds is not in 0 to {}", libc::FD_SETSIZE))?;
    // SAFETY: NULL, or a time of the program. Test: `sockets_in_c_behave_as_those_of_tcp` in tests/sockets.rs.
    let limit = unsafe { ffi::In::new(timeout.cast::<libc::timeval>().cast_const()) }.get();
    if nfds == 0 && limit.is_none() {
        return Err(errno!(INVAL, "nfds is 0 and timeout is NULL: nothing would end the call; pass one"));
    }
    let limit_ms = limit.map_or(-1, |limit| {
        let ms = limit.tv_sec.saturating_mul(1000).saturating_add(limit.tv_usec / 1000);
        i32::try_from(ms.max(0)).unwrap_or(i32::MAX)
    });
    let events = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    // What poll(2) reports counts for these sets, as in the kernel.
    let results =
        [libc::POLLIN | libc::POLLHUP | libc::POLLERR, libc::POLLOUT | libc::POLLERR, libc::POLLPRI];
    with_room(|room| {
        room.fill((0..nfds).filter_map(|fd| {
            let wanted = sets.iter().zip(events).filter(|(set, _)| is_in(**set, fd));
            let events = wanted.fold(0, |all, (_, event)| all | event);
            (events != 0).then_some(libc::pollfd { fd: fd as i32, events, revents: 0 })
        }));
        room.wait(limit_ms)?;
        if room.wanted.iter().any(|fd| fd.revents & libc::POLLNVAL != 0) {
            return Err(Errno(libc::EBADF).because(format_args!("a set contains a closed descriptor")));
        }
        let mut count = 0;
        for ((set, event), result) in sets.into_iter().zip(events).zip(results) {
            let mut words = [0_u64; libc::FD_SETSIZE / 64];
            for fd in room.wanted.iter().filter(|fd| fd.events & event != 0 && fd.revents & result != 0) {
                words[fd.fd as usize / 64] |= 1 << (fd.fd as usize % 64);
                count += 1;
            }
            words[..nfds.div_ceil(64)].iter().enumerate().for_each(|(at, word)| set.element(at).set(*word));
        }
        Ok(count)
    })
}
