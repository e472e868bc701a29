//! Storms of operations between two processes until one is killed: both sides of a round.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use nic_shm::CopyPath;
use verbs::{Buf, CmEvent, Error, MemoryKind, RecvWr, SendOp, SendWr, Wc};

use crate::basics::KINDS;
use crate::support::child::{Child, recv_line, send_line};
use crate::support::endpoint::{CAP, Endpoint};
use crate::support::{Rng, until};

pub(crate) const LEN: usize = 256 << 10;
const DEPTH: u64 = 64;

/// Posts random operations and counts them.
pub(crate) struct RandomTraffic {
    rng: Rng,
    posted: u64,
    completed: u64,
    recvs_posted: u64,
    recvs_completed: u64,
    pub(crate) failed: bool,
}

impl RandomTraffic {
    pub(crate) fn new(end: &Endpoint, seed: u64) -> Self {
        let mut storm = Self {
            rng: Rng::new(seed),
            posted: 0,
            completed: 0,
            recvs_posted: 0,
            recvs_completed: 0,
            failed: false,
        };
        (0..DEPTH).for_each(|_| storm.post_recv(end));
        storm
    }

    fn post_recv(&mut self, end: &Endpoint) {
        let kind = KINDS[self.rng.below(2) as usize];
        let recv = RecvWr { wr_id: self.recvs_posted, sges: &[end.region(kind).sge(0, LEN as u32)] };
        end.qp.post_recv(&recv).expect("room");
        self.recvs_posted += 1;
    }

    fn random_op(&mut self, end: &Endpoint) -> (SendOp, u32) {
        let sizes = [0, 1, 8, 64, 200, 4096, 70_000, LEN as u64];
        let len = sizes[self.rng.below(sizes.len() as u64) as usize] as u32;
        let remote = end.peer.of(KINDS[self.rng.below(2) as usize]);
        match self.rng.below(8) {
            0 => (SendOp::Write(remote), len),
            1 => (SendOp::Read(remote), len),
            2 => (SendOp::FetchAdd { remote, add: 1 }, 8),
            3 => (SendOp::CompareSwap { remote, compare: 0, swap: 1 }, 8),
            4 => (SendOp::WriteImm(remote, 3), len),
            5 => (SendOp::SendImm(4), len),
            _ => (SendOp::Send, len),
        }
    }

    /// Posts one more operation, if the queue is not full.
    pub(crate) fn post(&mut self, end: &Endpoint) {
        if self.posted - self.completed >= DEPTH {
            return;
        }
        let (op, len) = self.random_op(end);
        let sge = [end.region(KINDS[self.rng.below(2) as usize]).sge(0, len)];
        match end.qp.post_send(&SendWr::new(self.posted, op, &sge)) {
            Ok(()) => self.posted += 1,
            Err(Error::QueueFull { .. }) => {}
            Err(e) => panic!("{op:?}: {e}"),
        }
    }

    /// Polls completions; each must be the next one of its queue. Receives are reposted while nothing has
    /// failed.
    pub(crate) fn poll(&mut self, end: &Endpoint) {
        let mut wcs = [Wc::default(); 16];
        let n = end.send_cq.poll(&mut wcs).expect("no overrun");
        for wc in &wcs[..n] {
            assert_eq!(wc.wr_id, self.completed, "out of order: {wc:?}");
            assert!(wc.is_ok() || self.completed < self.posted, "{wc:?}");
            self.completed += 1;
            self.failed |= !wc.is_ok();
        }
        let n = end.recv_cq.poll(&mut wcs).expect("no overrun");
        for wc in &wcs[..n] {
            assert_eq!(wc.wr_id, self.recvs_completed, "out of order: {wc:?}");
            self.recvs_completed += 1;
            self.failed |= !wc.is_ok();
            if !self.failed {
                self.post_recv(end);
            }
        }
    }

    /// Whether everything posted has completed.
    pub(crate) fn is_settled(&self) -> bool {
        self.posted == self.completed && self.recvs_posted == self.recvs_completed
    }
}

/// The roles of the child and of this process in a storm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Both sides post operations.
    Both,
    /// Only the child does: it dies as an initiator.
    Initiator,
    /// Only this process does: the child dies as a target.
    Target,
}

/// The command line of a storm.
pub(crate) fn storm_line(copy: CopyPath, mode: Mode, port: u16, seed: u64) -> String {
    format!("{} {} {port} {seed}", crate::support::agent::copy_name(copy), u8::from(mode != Mode::Target))
}

/// Child: posts operations until it is killed.
pub(crate) fn storm_role() {
    // Calibrating the clock takes longer than the rest; it overlaps with the previous round.
    let _ = host::real::host();
    let Some(line) = recv_line() else { return };
    let words: Vec<&str> = line.split(' ').collect();
    let copy = if words[0] == "service" { CopyPath::Service } else { CopyPath::Auto };
    let mut end = Endpoint::new(copy, LEN);
    let mut storm = RandomTraffic::new(&end, words[3].parse().expect("a seed"));
    end.connect(words[2].parse().expect("a port"));
    loop {
        if words[1] == "1" {
            storm.post(&end);
        }
        storm.poll(&end);
        assert!(!storm.failed, "the survivor failed the connection");
    }
}

/// Child: connects and disconnects, registers and deregisters, until it is killed.
pub(crate) fn churn_role() {
    let host = host::real::host();
    let Some(line) = recv_line() else { return };
    let port = line.parse().expect("a port");
    let device = crate::support::device(CopyPath::Auto);
    send_line("ready");
    loop {
        let mut end = Endpoint::on(&device, 4096);
        end.connect(port);
        for id in 0..4 {
            let buf = Buf::alloc(8192).expect("memory");
            let mr = end.pd.reg_mr(&buf, verbs::Access::ALL).expect("a region");
            end.post(id, SendOp::Write(end.peer.of(KINDS[id as usize % 2])), MemoryKind::Host, 0, 4096);
            // The write fails if the other side has ended the connection, but it must complete.
            end.send_cq.wait(host.after(host::Span::from_secs(20))).expect("a completion");
            mr.dereg().expect("no peer is stopped");
        }
    }
}

/// A storm in which the child is killed after a random time; returns how long the survivor took to get all
/// events.
pub(crate) fn storm_round(
    device: &verbs::Device,
    mut child: Child,
    copy: CopyPath,
    mode: Mode,
    rng: &mut Rng,
) -> Duration {
    let mut end = Endpoint::on(device, LEN);
    let mut storm = RandomTraffic::new(&end, rng.next_u64());
    let listener = end.listen();
    child.send_line(storm_line(copy, mode, listener.addr().port(), rng.next_u64()));
    end.accept();
    let delay = Duration::from_micros(rng.below(3000));
    let (killed, noticed) = std::thread::scope(|scope| {
        let killer = scope.spawn(move || {
            std::thread::sleep(delay);
            child.kill()
        });
        let noticed = run_storm(&end, &mut storm, mode);
        (killer.join().expect("killed by us"), noticed)
    });
    std::thread::sleep(Duration::from_millis(1));
    assert!(end.cm.poll_event().is_none(), "one Disconnected is enough");
    let mut wcs = [Wc::default(); 4];
    for cq in [&end.send_cq, &end.recv_cq] {
        assert_eq!(cq.poll(&mut wcs).expect("no overrun"), 0, "more completions than requests");
    }
    end.check_canaries();
    noticed.saturating_duration_since(killed)
}

/// Posts operations until the connection has ended and everything has completed.
fn run_storm(end: &Endpoint, storm: &mut RandomTraffic, mode: Mode) -> Instant {
    let mut disconnected = false;
    until("end of the storm", || {
        for _ in 0..256 {
            if mode != Mode::Initiator && !disconnected && !storm.failed {
                storm.post(end);
            }
            storm.poll(end);
            match end.cm.poll_event() {
                None => {}
                Some(CmEvent::Disconnected { qp_num }) if qp_num == end.qp.num() && !disconnected => {
                    disconnected = true
                }
                Some(other) => panic!("{other:?}"),
            }
            // If it had no traffic, its receives must still be flushed.
            if disconnected && storm.is_settled() {
                return Some(Instant::now());
            }
        }
        None
    })
}

/// Connections that the child opens and closes until it is killed at a random time; returns how long until
/// all had ended.
pub(crate) fn churn_round(device: &verbs::Device, mut child: Child, rng: &mut Rng) -> Duration {
    let hub = Endpoint::on(device, 4096);
    let listener = hub.listen();
    child.send_line(listener.addr().port());
    assert_eq!(child.recv_line(), "ready");
    let kill_at = Instant::now() + Duration::from_micros(rng.below(6000));
    let mut open = BTreeMap::new();
    let mut killed = None;
    until("end of all connections", || {
        while let Some(event) = hub.cm.poll_event() {
            handle_event(device, &hub, event, &mut open);
        }
        if killed.is_none() && Instant::now() >= kill_at {
            killed = Some(child.kill());
        }
        (killed.is_some() && open.is_empty() && hub.cm.poll_event().is_none()).then_some(())
    });
    hub.check_canaries();
    killed.map(|k| k.elapsed()).expect("killed")
}

fn handle_event(device: &verbs::Device, hub: &Endpoint, event: CmEvent, open: &mut BTreeMap<u32, Endpoint>) {
    match event {
        CmEvent::ConnectRequest(request) => {
            let end = Endpoint::on(device, 4096);
            assert!(end.qp.init().cap == CAP);
            match hub.cm.accept(request, &end.qp, &end.param()) {
                Ok(()) => assert!(open.insert(end.qp.num(), end).is_none()),
                // It closed the connection, or died, before we accepted.
                Err(Error::Invalid(_) | Error::System { .. }) => {}
                Err(e) => panic!("{e}"),
            }
        }
        CmEvent::Established { qp_num, .. } => assert!(open.contains_key(&qp_num)),
        CmEvent::Disconnected { qp_num } | CmEvent::ConnectFailed { qp_num, .. } => {
            let end = open.remove(&qp_num).expect("one end for each connection");
            end.check_canaries();
        }
        CmEvent::Rejected { .. } => panic!("nobody rejects"),
    }
}
