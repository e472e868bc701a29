//! Sleeping threads that another process wakes.

use std::os::fd::AsFd;
use std::time::Duration;

use nic_shm::CopyPath;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use verbs::{CompChannel, MemoryKind, RecvWr, SendOp, SendWr, Wc};

use crate::support::child::{Child, recv_line};
use crate::support::device;
use crate::support::endpoint::{Endpoint, deadline};
use crate::support::{PATIENCE, Rng, one_at_a_time};

const ROUNDS: u64 = 1000;

/// Child: answers each message after a random time, sleeping in `Cq::wait`.
pub(crate) fn pingpong_role() {
    let mut end = Endpoint::new(CopyPath::Auto, 4096);
    (0..16).for_each(|id| end.post_recv(id, MemoryKind::Host, 0, 64));
    end.connect(recv_line().expect("a port").parse().expect("a number"));
    let mut rng = Rng::new(5);
    for round in 0..2 * ROUNDS {
        let wc = end.recv_cq.wait(deadline()).expect("a message");
        assert!(wc.is_ok() && wc.imm == Some(round as u32), "{wc:?}");
        end.qp.post_recv(&RecvWr::new(round, &[end.host.sge(0, 64)])).expect("room");
        // From before the other side sleeps to long after.
        std::thread::sleep(Duration::from_micros(rng.below(150)));
        end.qp.post_send(&SendWr::inline(round, SendOp::SendImm(round as u32), b"pong")).expect("posted");
        end.sent_ok(round);
    }
    recv_line();
}

/// Sleeps in poll(2) until the channel reports an event, then polls the completion.
fn sleep_in_poll(end: &Endpoint, channel: &CompChannel) -> Wc {
    loop {
        end.recv_cq.req_notify(false).expect("a channel");
        if let Some(wc) = end.recv_cq.poll_one().expect("no overrun") {
            return wc;
        }
        let fd = channel.fd().expect("a descriptor");
        let mut fds = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
        let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let ready = poll(&mut fds, Some(&limit)).expect("poll(2)");
        assert_eq!(ready, 1, "a wake-up was lost");
        while channel.poll_event().is_some() {}
    }
}

/// Goal: no wake-up by another process is lost. Method: a thousand messages in each direction, answered after
/// random times, to a receiver that first sleeps in poll(2) on its channel, later in `Cq::wait`; a lost
/// wake-up ends in a timeout.
#[test]
fn waiters_are_woken_by_another_process() {
    let _gate = one_at_a_time();
    let device = device(CopyPath::Auto);
    let channel = device.create_comp_channel().expect("a channel");
    let recv_cq = device.create_cq_with(1024, &channel).expect("a completion queue");
    let send_cq = device.create_cq(1024).expect("a completion queue");
    let pd = device.alloc_pd().expect("a domain");
    let mut end = Endpoint::with(&device, pd, send_cq, recv_cq, 4096);
    (0..16).for_each(|id| end.post_recv(id, MemoryKind::Host, 0, 64));
    let listener = end.listen();
    let mut child = Child::start("pingpong");
    child.send_line(listener.addr().port());
    end.accept();
    for round in 0..2 * ROUNDS {
        let ping = SendWr::inline(round, SendOp::SendImm(round as u32), b"ping");
        end.qp.post_send(&ping).expect("posted");
        end.sent_ok(round);
        let wc = if round < ROUNDS { sleep_in_poll(&end, &channel) } else { end.received() };
        assert!(wc.is_ok() && wc.imm == Some(round as u32), "{wc:?}");
        end.post_recv(round, MemoryKind::Host, 0, 64);
    }
    child.send_line("end");
    child.end();
    end.disconnected();
}
