//! A worse network on purpose: what this side sends arrives late, slowly, changed, or breaks the connection. Also where a capture
//! of the connection sees its bytes.
//!
//! A thread of its own moves the bytes between the connection's socket and the NIC, which gets one end of a pair of local
//! sockets instead. The path of data thus has no code for it, and a device without these options has no such thread. It
//! acts on what this side sends, as tc-netem(8) does on the outgoing side of an interface.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use host::{Host, Rng, Span, Time, mix};
use nic_util::fork::ForkSafeFd;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

use crate::config::WireFaults;
use crate::tcp::capture::{Capture, Way};
use crate::tcp::socket::{make_port_reusable, recv_available, send_now};

/// Bytes of a piece.
const PIECE: usize = 64 << 10;
/// Bytes that wait in one direction; then nothing more is taken from the sender.
const WAITING_MAX: usize = 16 << 20;
/// How long the end of a connection waits for the peer to close its side.
const LINGER: Span = Span::from_secs(2);
/// The longest sleep: a thread whose process ends must not keep it.
const SLEEP_MAX: Span = Span::from_ms(100);

/// A capture, and the addresses of the connection in it.
pub(crate) type Recorded = Option<(Arc<Capture>, (SocketAddr, SocketAddr))>;

/// The socket for the NIC; `socket` itself, if the system refuses what is needed. `number` distinguishes the connections of a
/// device.
pub(crate) fn through_relay(
    host: &Host,
    faults: &WireFaults,
    number: u64,
    recorded: Recorded,
    socket: ForkSafeFd,
) -> ForkSafeFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let (near, far) = match pair {
        Ok((near, far)) => (ForkSafeFd::from(near), ForkSafeFd::from(far)),
        Err(why) => {
            host::real::remark(format_args!(
                "a connection has neither the faults nor the capture of its device: {why}"
            ));
            return socket;
        }
    };
    let (clock, faults) = (host.clone(), *faults);
    let run = move || Relay::new(clock, faults, number, recorded, far, socket).run();
    match host.spawn("nicety-wire", None, run) {
        Ok(_) => near,
        // The socket is gone with the thread: the connection ends, as it does when descriptors run out.
        Err(why) => {
            host::real::remark(format_args!(
                "a connection ends, as its faults or its capture need a thread: {why}"
            ));
            near
        }
    }
}

/// Bytes on their way in one direction.
#[derive(Default)]
struct Lane {
    pieces: VecDeque<(Time, Vec<u8>)>,
    waiting: usize,
    /// Bytes of the first piece that have been sent.
    sent: usize,
    /// The sender has closed its side.
    is_ended: bool,
    /// That has been passed on.
    is_closed: bool,
}

impl Lane {
    fn push(&mut self, due: Time, piece: Vec<u8>) {
        let due = self.pieces.back().map_or(due, |(last, _)| due.max(*last));
        self.waiting += piece.len();
        self.pieces.push_back((due, piece));
    }

    fn has_room(&self) -> bool {
        !self.is_ended && self.waiting < WAITING_MAX
    }

    fn next_due(&self) -> Option<Time> {
        self.pieces.front().map(|(due, _)| *due)
    }

    /// Sends what is due.
    fn send(&mut self, to: &ForkSafeFd, now: Time) -> Result<(), Errno> {
        while let Some((_, piece)) = self.pieces.front().filter(|(due, _)| *due <= now) {
            match send_now(to, &piece[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(errno) => return Err(errno),
            }
            if self.sent == piece.len() {
                self.waiting -= piece.len();
                self.sent = 0;
                self.pieces.pop_front();
            }
        }
        if self.is_ended && self.pieces.is_empty() && !std::mem::replace(&mut self.is_closed, true) {
            // If the other side is gone already, it needs no notice.
            let _ = shutdown(to, Shutdown::Write);
        }
        Ok(())
    }
}

/// Moves the bytes of one connection.
struct Relay {
    host: Host,
    faults: WireFaults,
    recorded: Recorded,
    rng: Rng,
    /// Towards the NIC, and towards the peer.
    near: ForkSafeFd,
    wire: ForkSafeFd,
    out: Lane,
    back: Lane,
    /// When the link has sent all that was given to it.
    link_free: Time,
    /// Bytes until the next changed byte.
    until_flip: u64,
}

impl Relay {
    fn new(
        host: Host,
        faults: WireFaults,
        number: u64,
        recorded: Recorded,
        near: ForkSafeFd,
        wire: ForkSafeFd,
    ) -> Self {
        let mut rng = Rng::new(mix(faults.seed ^ mix(number)));
        let until_flip = gap(&mut rng, faults.flip);
        let (out, back, link_free) = (Lane::default(), Lane::default(), Time::ZERO);
        Self { host, faults, recorded, rng, near, wire, out, back, link_free, until_flip }
    }

    fn run(mut self) {
        let mut room = vec![0; PIECE];
        let mut deadline = None;
        loop {
            let now = self.host.now();
            if self.step(&mut room, now).is_err() {
                break;
            }
            if self.out.is_closed && self.back.is_closed {
                break;
            }
            // The NIC has closed its end: the peer gets a while to close the other.
            if self.out.is_closed && now >= *deadline.get_or_insert(now + LINGER) {
                break;
            }
            self.sleep();
        }
        if let Some((capture, ends)) = &self.recorded {
            capture.end(*ends);
        }
        make_port_reusable(&self.wire);
    }

    /// Moves what can be moved now.
    fn step(&mut self, room: &mut [u8], now: Time) -> Result<(), Errno> {
        while self.out.has_room() {
            match recv_available(&self.near, room)? {
                None => break,
                Some(0) => self.out.is_ended = true,
                Some(n) => self.depart(&room[..n], now)?,
            }
        }
        while self.back.has_room() {
            match recv_available(&self.wire, room)? {
                None => break,
                Some(0) => self.back.is_ended = true,
                // The NIC does not read any more, and the peer may still send.
                Some(_) if self.out.is_closed => {}
                Some(n) => {
                    self.record(Way::In, &room[..n]);
                    self.back.push(now, room[..n].to_vec());
                }
            }
        }
        self.out.send(&self.wire, self.host.now())?;
        self.back.send(&self.near, self.host.now())
    }

    /// Decides what happens to a piece that this side sends.
    fn depart(&mut self, bytes: &[u8], now: Time) -> Result<(), Errno> {
        let faults = self.faults;
        if faults.reset > 0.0 && self.rng.unit() < faults.reset {
            // Closing then sends a reset instead of the rest (socket(7)).
            let _ = set_socket_linger(&self.wire, Some(Duration::ZERO));
            return Err(Errno::CONNRESET);
        }
        let mut piece = bytes.to_vec();
        let mut at = self.until_flip;
        while let Some(byte) = usize::try_from(at).ok().and_then(|at| piece.get_mut(at)) {
            *byte ^= 1 << self.rng.below(8);
            at = at.saturating_add(1).saturating_add(gap(&mut self.rng, faults.flip));
        }
        self.until_flip = at.saturating_sub(piece.len() as u64);
        let mut due = now;
        if faults.rate != 0 {
            let bits = piece.len() as u128 * 8;
            let ns = u64::try_from(bits * 1_000_000_000 / u128::from(faults.rate)).unwrap_or(u64::MAX);
            self.link_free = self.link_free.max(now) + Span::from_ns(ns);
            due = self.link_free;
        }
        let jitter = Span::from_ns(self.rng.below(faults.jitter.as_ns().saturating_add(1)));
        self.record(Way::Out, &piece);
        self.out.push(due + faults.delay + jitter, piece);
        Ok(())
    }

    fn record(&self, way: Way, bytes: &[u8]) {
        if let Some((capture, ends)) = &self.recorded {
            capture.add_between(*ends, way, bytes);
        }
    }

    /// Sleeps until there is something to move.
    fn sleep(&self) {
        let now = self.host.now();
        let is_due = |lane: &Lane| lane.next_due().is_some_and(|due| due <= now);
        let flags = |reads: bool, writes: bool| {
            let reads = if reads { PollFlags::IN } else { PollFlags::empty() };
            if writes { reads | PollFlags::OUT } else { reads }
        };
        let near = flags(self.out.has_room(), is_due(&self.back));
        let wire = flags(self.back.has_room(), is_due(&self.out));
        let next =
            [self.out.next_due(), self.back.next_due()].into_iter().flatten().filter(|due| *due > now).min();
        let pause = next.map_or(SLEEP_MAX, |due| due.since(now).min(SLEEP_MAX)).to_std();
        let pause = Timespec { tv_sec: pause.as_secs() as i64, tv_nsec: i64::from(pause.subsec_nanos()) };
        // An idle socket would report its end again and again.
        let watched =
            [(&self.near, near), (&self.wire, wire)].into_iter().filter(|(_, flags)| !flags.is_empty());
        let mut fds: Vec<_> =
            watched.map(|(fd, flags)| PollFd::from_borrowed_fd(fd.as_fd(), flags)).collect();
        // Interrupted or not: everything is tried again.
        let _ = poll(&mut fds, Some(&pause));
    }
}

/// The number of unchanged bytes before the next changed byte.
fn gap(rng: &mut Rng, probability: f64) -> u64 {
    if probability <= 0.0 {
        return u64::MAX;
    }
    // The logarithm of a number above 0, and of one below 1.
    let trials = (1.0 - rng.unit()).ln() / (1.0 - probability.min(1.0 - 1e-12)).ln();
    trials as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn relay(faults: WireFaults) -> Relay {
        let pair = || {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let (a, _) = socketpair(AddressFamily::UNIX, SocketType::STREAM, flags, None).expect("sockets");
            ForkSafeFd::from(a)
        };
        Relay::new(host::real::host(), faults, 1, None, pair(), pair())
    }

    #[test]
    fn rate_and_delay_decide_when_a_piece_leaves() {
        let faults = WireFaults { delay: Span::from_ms(5), rate: 8_000_000, ..WireFaults::default() };
        let mut relay = relay(faults);
        let now = Time::ZERO + Span::from_secs(1);
        relay.depart(&[0; 1000], now).expect("a piece");
        relay.depart(&[0; 2000], now).expect("a piece");
        let due: Vec<_> = relay.out.pieces.iter().map(|(due, _)| due.since(now)).collect();
        assert_eq!(due, [Span::from_ms(6), Span::from_ms(8)]);
    }

    #[test]
    fn jitter_keeps_the_order_and_depends_on_the_seed() {
        let dues = |seed| {
            let mut relay = relay(WireFaults { jitter: Span::from_ms(5), seed, ..WireFaults::default() });
            (0..50).for_each(|_| relay.depart(&[0; 10], Time::ZERO).expect("a piece"));
            relay.out.pieces.iter().map(|(due, _)| *due).collect::<Vec<_>>()
        };
        assert!(dues(7).is_sorted());
        assert_eq!(dues(7), dues(7));
        assert_ne!(dues(7), dues(8));
    }

    #[test]
    fn bytes_are_changed_with_the_probability() {
        for (probability, expected) in [(0.0, 0..1), (0.01, 800..1200), (1.0, 100_000..100_001)] {
            let mut relay = relay(WireFaults { flip: probability, seed: 7, ..WireFaults::default() });
            (0..100).for_each(|_| relay.depart(&[0; 1000], Time::ZERO).expect("a piece"));
            let changed =
                relay.out.pieces.iter().flat_map(|(_, piece)| piece).filter(|byte| **byte != 0).count();
            assert!(expected.contains(&changed), "{probability}: {changed}");
        }
    }

    #[test]
    fn reset_ends_the_stream() {
        let mut relay = relay(WireFaults { reset: 1.0, ..WireFaults::default() });
        assert_eq!(relay.depart(&[0; 10], Time::ZERO), Err(Errno::CONNRESET));
    }
}
