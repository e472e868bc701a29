//! Peers that are killed at any time: what the survivor sees, and that nothing leaks.

use std::time::Duration;

use nic_shm::CopyPath;
use verbs::{Device, MemoryKind, SendOp};

use crate::rounds::{Mode, churn_round, storm_round};
use crate::support::agent::Agent;
use crate::support::child::{Child, recv_line, send_line};
use crate::support::device;
use crate::support::endpoint::{Endpoint, at};
use crate::support::{Rng, digest, one_at_a_time, traces, until};

/// The specification allows one second; a busy machine may take a few.
const NOTICE_MAX: Duration = Duration::from_secs(5);

/// Children that are started one round ahead.
struct ChildPool {
    role: &'static str,
    next: Child,
}

impl ChildPool {
    fn new(role: &'static str) -> Self {
        Self { role, next: Child::start(role) }
    }

    fn child(&mut self) -> Child {
        std::mem::replace(&mut self.next, Child::start(self.role))
    }
}

/// A connection to a process that stays alive.
struct UndisturbedConn {
    end: Endpoint,
    agent: Agent,
}

impl UndisturbedConn {
    fn new(device: &Device) -> Self {
        let mut end = Endpoint::on(device, 4096);
        let agent = Agent::start(&mut end, CopyPath::Auto, 4096);
        Self { end, agent }
    }

    fn check(&mut self, round: u64) {
        let bytes = Rng::new(round).bytes(4096);
        let end = &self.end;
        end.host.buf().write(0, &bytes).expect("fits");
        end.post(round, SendOp::Write(end.peer.host), MemoryKind::Host, 0, 4096);
        end.sent_ok(round);
        end.post(round, SendOp::Read(end.peer.host), MemoryKind::Nic, 0, 4096);
        end.sent_ok(round);
        assert_eq!(end.nic.buf().to_vec(0..4096).expect("inside"), bytes);
        if round.is_multiple_of(16) {
            assert_eq!(self.agent.digest(MemoryKind::Host, 0, 4096), digest(&bytes));
        }
    }
}

/// Resources of the process that the rounds must not increase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ResourceUse {
    descriptors: usize,
    segments: usize,
    children: usize,
}

impl ResourceUse {
    fn now() -> Self {
        Self {
            descriptors: traces::descriptors(),
            segments: traces::mapped_segments(),
            children: traces::children(),
        }
    }

    #[track_caller]
    fn wait_until_at_most(self) {
        let mut now = Self::now();
        let mut check = || {
            now = Self::now();
            // Fewer, if objects of the previous test were still being closed.
            let uses_more = now.descriptors > self.descriptors || now.segments > self.segments;
            (!uses_more && now.children <= self.children).then_some(())
        };
        let back = (0..2000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(5));
            check()
        });
        assert!(back.is_some(), "held before: {self:?}, now: {now:?}");
    }
}

/// Runs the rounds against one device; afterwards, neither the device nor the process may hold more than
/// before.
fn rounds(
    copy: CopyPath,
    role: &'static str,
    count: u64,
    mut round: impl FnMut(u64, &Device, Child) -> Duration,
) {
    let _gate = one_at_a_time();
    let files = traces::files();
    let before_device = ResourceUse::now();
    let device = device(copy);
    let mut bystander = UndisturbedConn::new(&device);
    let before_rounds = ResourceUse::now();
    let bytes = traces::segment_bytes();
    let mut longest = Duration::ZERO;
    let mut children = ChildPool::new(role);
    for i in 0..count {
        let took = round(i, &device, children.child());
        assert!(took < NOTICE_MAX, "round {i}: the survivor took {took:?}");
        longest = longest.max(took);
        bystander.check(i);
    }
    drop(children);
    before_rounds.wait_until_at_most();
    // A page of a ring may stay committed if it is shared with a ring in use.
    let more = traces::segment_bytes().saturating_sub(bytes);
    assert!(more < 256 << 10, "{more} bytes of shared memory stay committed after {count} rounds");
    println!(
        "{count} {role}s killed ({copy:?}): the survivor took {longest:?} at most; {more} B stay committed"
    );
    let UndisturbedConn { end, agent } = bystander;
    agent.end();
    drop((end, device));
    before_device.wait_until_at_most();
    let new: Vec<_> =
        traces::files().difference(&files).filter(|f| f.contains("nicety-shm")).cloned().collect();
    assert!(new.is_empty(), "left behind: {new:?}");
}

/// Goal: after kill -9 of a peer in the middle of traffic in both directions, the survivor gets a completion
/// for everything posted, in order, and one `Disconnected`; its other connections keep working, and its other
/// memory and its use of descriptors, mappings and shared memory do not change. Method: seeded storms of all
/// operations with a child that is killed at a seeded time, as initiator, target or both; measured from the
/// time it was reaped.
#[test]
fn peers_are_killed_in_the_middle_of_traffic() {
    let mut rng = Rng::new(21);
    rounds(CopyPath::Auto, "storm", 150, |i, device, child| {
        let mode = [Mode::Both, Mode::Initiator, Mode::Target][i as usize % 3];
        storm_round(device, child, CopyPath::Auto, mode, &mut rng)
    });
}

/// Goal: as above, where the owner copies.
#[test]
fn peers_are_killed_in_the_middle_of_traffic_by_service() {
    let mut rng = Rng::new(22);
    rounds(CopyPath::Service, "storm", 60, |i, device, child| {
        let mode = [Mode::Both, Mode::Initiator, Mode::Target][i as usize % 3];
        storm_round(device, child, CopyPath::Service, mode, &mut rng)
    });
}

/// Goal: kill -9 in the middle of connecting, registering or destroying leaves no half-created object.
/// Method: a child does nothing else until it is killed at a seeded time; every accepted connection ends with
/// exactly one event.
#[test]
fn peers_are_killed_while_they_connect_and_destroy() {
    let mut rng = Rng::new(23);
    rounds(CopyPath::Auto, "churn", 100, |_, device, child| churn_round(device, child, &mut rng));
}

/// Child: listens on the given port, or on any; reports the port.
pub(crate) fn listen_role() {
    let port = recv_line().expect("a port").parse().expect("a number");
    let end = Endpoint::new(CopyPath::Auto, 4096);
    let listener = end.cm.listen(at(port), 8).expect("a listener");
    send_line(listener.addr().port());
    recv_line();
}

/// Goal: the port of a killed process is free immediately, and its name removed. Method: one child listens
/// and is killed, another one listens on the same port right away, twenty times.
#[test]
fn port_of_a_killed_process_is_free_immediately() {
    let _gate = one_at_a_time();
    let mut port = 0;
    for _ in 0..20 {
        let mut child = Child::start("listen");
        let got = child.request(port).parse().expect("a port");
        assert!(port == 0 || got == port);
        port = got;
        assert!(traces::is_listening(port));
        child.kill();
    }
    until("end of the name", || (!traces::is_listening(port)).then_some(()));
}
