//! A shared receive queue used by several processes, of which one is killed.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nic_shm::CopyPath;
use verbs::{CmEvent, MemoryKind, QpInit, RecvWr, Srq, SrqInit};

use crate::rounds::{LEN, Mode, storm_line};
use crate::support::child::Child;
use crate::support::device;
use crate::support::endpoint::{CAP, Endpoint};
use crate::support::{Rng, one_at_a_time, until};

const DEPTH: u64 = 64;

/// Receives that are posted and not yet completed.
struct Receives {
    srq: Srq,
    posted: u64,
    open: BTreeSet<u64>,
}

impl Receives {
    fn post(&mut self, end: &Endpoint) {
        let sge = [end.region(MemoryKind::Host).sge(0, LEN as u32)];
        self.srq.post_recv(&RecvWr::new(self.posted, &sge)).expect("room");
        self.open.insert(self.posted);
        self.posted += 1;
    }

    /// Polls completions; each must belong to an open receive. Posts again if `refill`.
    fn poll(&mut self, end: &Endpoint, refill: bool) {
        while let Some(wc) = end.recv_cq.poll_one().expect("no overrun") {
            assert!(self.open.remove(&wc.wr_id), "completed twice: {wc:?}");
            if refill {
                self.post(end);
            }
        }
    }
}

fn round(device: &verbs::Device, children: [Child; 2], rng: &mut Rng) {
    let pd = device.alloc_pd().expect("a domain");
    let recv_cq = device.create_cq(1024).expect("a completion queue");
    let srq = pd.create_srq(SrqInit { max_wr: DEPTH as u32, max_sge: 1 }).expect("a shared queue");
    let mut receives = Receives { srq: srq.clone(), posted: 0, open: BTreeSet::new() };
    let [mut dying, mut living] = [(); 2].map(|()| {
        let send_cq = device.create_cq(64).expect("a completion queue");
        let mut end = Endpoint::with(device, pd.clone(), send_cq, recv_cq.clone(), LEN);
        let init = QpInit::new(&end.send_cq).recv_cq(&recv_cq).srq(&srq).cap(CAP);
        end.qp = pd.create_qp(&init).expect("a queue pair");
        end
    });
    (0..DEPTH).for_each(|_| receives.post(&living));
    let [mut victim, mut survivor] = children;
    for (end, child) in [(&mut dying, &mut victim), (&mut living, &mut survivor)] {
        let listener = end.listen();
        child.send_line(storm_line(CopyPath::Auto, Mode::Initiator, listener.addr().port(), rng.next_u64()));
        end.accept();
    }
    let kill_at = Instant::now() + Duration::from_micros(rng.below(4000));
    while Instant::now() < kill_at {
        receives.poll(&living, true);
    }
    victim.kill();
    until("end of the killed process's connection", || {
        receives.poll(&living, true);
        dying.cm.poll_event().map(|e| assert!(matches!(e, CmEvent::Disconnected { .. }), "{e:?}"))
    });
    until("completion of every receive", || {
        receives.poll(&living, false);
        receives.open.is_empty().then_some(())
    });
    assert!(living.cm.poll_event().is_none(), "the other connection ended");
    dying.check_canaries();
    living.check_canaries();
}

/// Goal: a process that dies between claiming a shared receive and filling it loses none: the others
/// continue, and every receive completes exactly once. Method: two processes send to one shared receive
/// queue, one is killed at a seeded time; then no more receives are posted, and the other process must use
/// all open ones, except the claims of the dead process, which are flushed.
#[test]
fn killed_claimant_loses_no_shared_receive() {
    let _gate = one_at_a_time();
    let device = device(CopyPath::Auto);
    let mut rng = Rng::new(51);
    for _ in 0..40 {
        round(&device, [Child::start("storm"), Child::start("storm")], &mut rng);
    }
}
