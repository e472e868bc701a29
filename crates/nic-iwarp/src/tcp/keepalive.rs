//! Peers that fall silent: the device's thread looks at connections on which something waits for an answer.
//!
//! TCP by itself asks idle peers (keep-alive, see `socket`), but gives data that nobody acknowledges a quarter of an hour. Its
//! limit for that, TCP_USER_TIMEOUT, ends a connection also if the peer answers and only takes nothing in (tcp(7)), as one
//! may that has no receives posted. So this looks for answers itself. It finds nothing out on the path of a message.

use std::os::fd::{AsRawFd, BorrowedFd};

use host::{Span, Time};

/// The kernel's clock ticks this rarely, and rounds.
const TICK: Span = Span::from_ms(10);

/// Since when the peer's host has owed an answer, given what was found the last time.
pub(crate) fn unheard(socket: BorrowedFd<'_>, before: Option<Time>, now: Time) -> Option<Time> {
    let (waits, quiet) = state(socket)?;
    match before {
        _ if !waits => None,
        Some(since) if quiet + TICK >= now.since(since) => Some(since),
        _ => Some(now),
    }
}

/// Whether something waits for the peer's host to answer, and for how long that has not said anything.
fn state(socket: BorrowedFd<'_>) -> Option<(bool, Span)> {
    // SAFETY: all of it are numbers, for which zero is a value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `info`. Test: data_waits_until_it_is_acknowledged.
    let done = unsafe {
        let at = (&raw mut info).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut len)
    };
    // Probes ask a peer whose window is shut; the count goes back to 0 with each answer.
    let waits = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
    (done == 0).then(|| (waits, Span::from_ms(info.tcpi_last_ack_recv.into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn data_waits_until_it_is_acknowledged() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut near = TcpStream::connect(listener.local_addr().expect("bound")).expect("a connection");
        let _far = listener.accept().expect("a connection");
        near.write_all(b"here at once").expect("sent");
        // On the loopback address it has been acknowledged by now, or will be when the delay of that is over.
        let began = std::time::Instant::now();
        while state(near.as_fd()).expect("a TCP socket").0 {
            assert!(began.elapsed().as_secs() < 10, "never acknowledged");
        }
        let now = Time::ZERO + Span::from_secs(100);
        assert_eq!(unheard(near.as_fd(), Some(Time::ZERO), now), None, "nothing waits");
        let no_socket = std::fs::File::open("/dev/null").expect("a file");
        assert!(state(no_socket.as_fd()).is_none());
    }
}
