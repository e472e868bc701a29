//! Detection of silent peers: the NIC thread checks the connections that wait for an acknowledgement.
//!
//! TCP itself probes idle peers (keep-alive, see `socket`), but waits a quarter of an hour for data to be
//! acknowledged. Its limit for that, TCP_USER_TIMEOUT, also ends a connection whose peer answers but accepts no data
//! (tcp(7)), as a peer without posted receives may do. So this file checks for acknowledgements itself, outside the
//! path of messages.

use std::os::fd::{AsRawFd, BorrowedFd};

use host::{Span, Time};

/// Resolution of the kernel's clock, which also rounds.
const TICK: Span = Span::from_ms(10);

/// Since when the peer's host has owed an answer; `before` is the previous result.
pub(crate) fn unacked_since(socket: BorrowedFd<'_>, before: Option<Time>, now: Time) -> Option<Time> {
    let (waits, silent_for) = ack_state(socket)?;
    match before {
        _ if !waits => None,
        Some(since) if silent_for + TICK >= now.since(since) => Some(since),
        _ => Some(now),
    }
}

/// Whether something waits for an acknowledgement, and for how long the peer's host has sent none.
fn ack_state(socket: BorrowedFd<'_>) -> Option<(bool, Span)> {
    // SAFETY: all fields are numbers, for which zero is valid.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut len = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes to `info`. Test: data_waits_until_it_is_acknowledged.
    let done = unsafe {
        let at = (&raw mut info).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, at, &raw mut len)
    };
    // The kernel probes a peer whose window is closed; each answer resets the count to 0.
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
        // On loopback it has been acknowledged by now, or will be after the delayed-ACK timeout.
        let began = std::time::Instant::now();
        while ack_state(near.as_fd()).expect("a TCP socket").0 {
            assert!(began.elapsed().as_secs() < 10, "never acknowledged");
        }
        let now = Time::ZERO + Span::from_secs(100);
        assert_eq!(unacked_since(near.as_fd(), Some(Time::ZERO), now), None, "everything is acknowledged");
        let no_socket = std::fs::File::open("/dev/null").expect("a file");
        assert!(ack_state(no_socket.as_fd()).is_none());
    }
}
