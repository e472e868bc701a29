//! Forked children: whatever they do with an inherited device has no effect on other processes.
#![allow(unsafe_code, reason = "fork(2) has no safe form")]

#[path = "../../nic-util/tests/support/mod.rs"]
mod support;

use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use verbs::{
    Access, Buf, Cm, CmEvent, ConnParam, Cq, Device, Error, Mr, Pd, Qp, QpInit, RecvWr, SendOp, SendWr,
};

use crate::support::child::{Child, recv_line, send_line};
use crate::support::endpoint::{at, deadline, within};
use crate::support::{one_at_a_time, until};

/// Forks; the child calls `body` and exits, successfully unless it panics.
fn fork_child(body: impl FnOnce()) -> Pid {
    // SAFETY: the child works only on its own copies, and exits without running the parent's exit handlers.
    match unsafe { libc::fork() } {
        0 => {
            let fine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!fine)) }
        }
        pid => Pid::from_raw(pid).expect("a child"),
    }
}

/// Waits for a child's successful exit.
#[track_caller]
fn wait_for_success(pid: Pid) {
    let status = until("end of the child", || waitpid(Some(pid), WaitOptions::NOHANG).expect("a child"));
    assert_eq!(status.1.exit_status(), Some(0), "{status:?}");
}

/// One end of a connection.
struct Endpoint {
    device: Device,
    cm: Cm,
    cq: Cq,
    pd: Pd,
    mr: Mr,
    qp: Qp,
}

impl Endpoint {
    fn open(kind: &str) -> Self {
        let host = host::real::host();
        let device = match kind {
            "shm" => nic_shm::open(&host, &Default::default()),
            "iwarp" => nic_iwarp::open(&host, &Default::default()),
            "faults" => {
                let below = nic_shm::open(&host, &Default::default()).expect("a device");
                let rules = ["on=request nth=1000 status=RETRY_EXC_ERR", "on=recv nth=1000 delay=1ms"];
                let rules = rules.map(|rule| (rule.parse().expect("a rule"), "test".to_owned())).to_vec();
                nic_faults::open(&below, nic_faults::FaultsConfig { rules, seed: 0, has_control: true })
            }
            _ => nic_rails::open(
                vec![
                    nic_iwarp::open(&host, &Default::default()).expect("a rail"),
                    nic_iwarp::open(&host, &Default::default()).expect("a rail"),
                ],
                &Default::default(),
            ),
        }
        .expect("a device");
        let (cm, cq) = (device.create_cm().expect("a channel"), device.create_cq(64).expect("a queue"));
        let pd = device.alloc_pd().expect("a domain");
        let mr = pd.reg_mr(&Buf::alloc(4096).expect("memory"), Access::ALL).expect("a region");
        let qp = pd.create_qp(&QpInit::new(&cq)).expect("a queue pair");
        Self { device, cm, cq, pd, mr, qp }
    }

    fn accept(&self) {
        let Ok(CmEvent::ConnectRequest(request)) = self.cm.get_event(deadline()) else {
            panic!("no request")
        };
        self.cm.accept(request, &self.qp, &ConnParam::default()).expect("accepted");
        self.wait_established();
    }

    fn wait_established(&self) {
        let event = self.cm.get_event(deadline());
        assert!(matches!(event, Ok(CmEvent::Established { .. })), "{event:?}");
    }

    fn connect(&self, port: u16) {
        self.cm.connect(&self.qp, at(port), &ConnParam::default()).expect("asked");
        self.wait_established();
    }

    fn send(&self, wr_id: u64) {
        self.qp.post_send(&SendWr::new(wr_id, SendOp::Send, &[self.mr.sge(0, 8)])).expect("posted");
    }

    fn receive(&self, wr_id: u64) {
        self.qp.post_recv(&RecvWr::new(wr_id, &[self.mr.sge(64, 64)])).expect("posted");
    }

    #[track_caller]
    fn expect_completion(&self, wr_id: u64) {
        let wc = self.cq.wait(deadline()).expect("a completion");
        assert!(wc.is_ok() && wc.wr_id == wr_id, "{wc:?}");
    }

    /// A child's attempts: every call is refused with the right error.
    fn check_calls_are_refused(&self) {
        let expect_forked =
            |what: &str, result: Result<(), Error>| assert_eq!(result, Err(Error::Forked), "{what}");
        expect_forked("a domain", self.device.alloc_pd().map(drop));
        expect_forked("a queue", self.device.create_cq(16).map(drop));
        expect_forked("a channel", self.device.create_cm().map(drop));
        expect_forked("NIC memory", self.device.alloc_dm(64).map(drop));
        expect_forked("a region", self.pd.reg_mr(&Buf::alloc(64).expect("memory"), Access::ALL).map(drop));
        expect_forked("a queue pair", self.pd.create_qp(&QpInit::new(&self.cq)).map(drop));
        expect_forked("a send", self.qp.post_send(&SendWr::new(1, SendOp::Send, &[self.mr.sge(0, 8)])));
        expect_forked("a receive", self.qp.post_recv(&RecvWr::new(1, &[self.mr.sge(0, 8)])));
        expect_forked("a poll", self.cq.poll(&mut [Default::default()]).map(drop));
        expect_forked("a wait", self.cq.wait(deadline()).map(drop));
        expect_forked("listening", self.cm.listen(at(0), 1).map(drop));
        expect_forked("an event", self.cm.get_event(None).map(drop));
        expect_forked("disconnecting", self.cm.disconnect(&self.qp));
    }
}

/// Goal: children that sleep, use or drop the device leave the parent's connection unchanged. Method: messages both ways
/// after each.
fn check_children_are_harmless(kind: &str) {
    let _gate = one_at_a_time();
    let (near, far) = (Endpoint::open(kind), Endpoint::open(kind));
    let listener = far.cm.listen(at(0), 16).expect("a listener");
    std::thread::scope(|scope| {
        scope.spawn(|| far.accept());
        near.connect(listener.addr().port());
    });
    let check_messages = |wr_id: u64| {
        far.receive(wr_id);
        near.send(wr_id);
        near.expect_completion(wr_id);
        far.expect_completion(wr_id);
    };
    check_messages(1);
    let sleeper = fork_child(|| std::thread::sleep(Duration::from_secs(60)));
    check_messages(2);
    if kind != "rails" {
        wait_for_success(fork_child(|| near.check_calls_are_refused()));
    }
    check_messages(3);
    // The child drops its copies; the parent's are not affected.
    let copies = || (std::ptr::from_ref(&near), std::ptr::from_ref(&far));
    wait_for_success(fork_child(|| {
        let (near, far) = copies();
        // SAFETY: the child drops its own copy of each, once, and ends.
        unsafe { (drop(std::ptr::read(far)), drop(std::ptr::read(near))) };
    }));
    check_messages(4);
    wait_for_success(fork_child(|| {
        let own = (Endpoint::open(kind), Endpoint::open(kind));
        let listener = own.1.cm.listen(at(0), 16).expect("a listener");
        std::thread::scope(|scope| {
            scope.spawn(|| own.1.accept());
            own.0.connect(listener.addr().port());
        });
    }));
    check_messages(5);
    kill_process(sleeper, Signal::KILL).expect("it sleeps");
    waitpid(Some(sleeper), WaitOptions::empty()).expect("its end");
}

#[test]
fn children_do_not_affect_shm() {
    check_children_are_harmless("shm");
}

#[test]
fn children_do_not_affect_iwarp() {
    check_children_are_harmless("iwarp");
}

#[test]
fn children_do_not_affect_faults() {
    check_children_are_harmless("faults");
}

#[test]
fn children_do_not_affect_rails() {
    check_children_are_harmless("rails");
}

/// Goal: a child can drop what it inherits, whatever locks the parent's threads held at the fork. Method: continuous
/// messages while children are forked, so that the rails' own threads are busy.
#[test]
fn children_drop_rails_in_the_middle_of_traffic() {
    let _gate = one_at_a_time();
    let (near, far) = (Endpoint::open("rails"), Endpoint::open("rails"));
    let listener = far.cm.listen(at(0), 16).expect("a listener");
    std::thread::scope(|scope| {
        scope.spawn(|| far.accept());
        near.connect(listener.addr().port());
        let traffic = scope.spawn(|| {
            for wr_id in 0..30_000 {
                far.receive(wr_id);
                near.send(wr_id);
                near.expect_completion(wr_id);
                far.expect_completion(wr_id);
            }
        });
        while !traffic.is_finished() {
            let copies = (std::ptr::from_ref(&near), std::ptr::from_ref(&far));
            wait_for_success(fork_child(|| {
                let (near, far) = copies;
                // SAFETY: the child drops its own copy of each, once, and ends.
                unsafe { (drop(std::ptr::read(far)), drop(std::ptr::read(near))) };
            }));
        }
    });
}

/// Child: connects, forks a child of its own that sleeps, and waits to be killed.
fn parent_role() {
    let (kind, port) =
        (recv_line().expect("a kind"), recv_line().and_then(|port| port.parse().ok()).expect("a port"));
    let side = Endpoint::open(&kind);
    side.connect(port);
    let sleeper = fork_child(|| std::thread::sleep(Duration::from_secs(60)));
    send_line(sleeper.as_raw_nonzero());
    recv_line();
}

/// Goal: the peers of a killed process detect its end, although a child of it survives. Method: a child with a child of its
/// own.
fn check_death_is_detected(kind: &str) {
    let _gate = one_at_a_time();
    let far = Endpoint::open(kind);
    let listener = far.cm.listen(at(0), 16).expect("a listener");
    let mut child = Child::start("parent");
    child.send_line(kind);
    child.send_line(listener.addr().port());
    far.accept();
    let sleeper = Pid::from_raw(child.recv_line().parse().expect("a number")).expect("a process");
    child.kill();
    let event = far.cm.get_event(within(Duration::from_secs(10)));
    let _ = kill_process(sleeper, Signal::KILL);
    assert!(matches!(event, Ok(CmEvent::Disconnected { .. })), "{event:?}");
}

#[test]
fn death_of_a_parent_is_detected_on_shm() {
    check_death_is_detected("shm");
}

#[test]
fn death_of_a_parent_is_detected_on_iwarp() {
    check_death_is_detected("iwarp");
}

#[test]
fn death_of_a_parent_is_detected_on_rails() {
    check_death_is_detected("rails");
}

/// Goal: a child does not hold the shared-memory segments of its parent's device. Method: counts the child's descriptors of
/// segments.
#[test]
fn children_hold_no_descriptors() {
    let _gate = one_at_a_time();
    let segments = || {
        let links = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
        let names = links.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        names.filter(|name| name.to_string_lossy().contains("nicety-shm")).count()
    };
    let side = Endpoint::open("shm");
    assert!(segments() > 0);
    wait_for_success(fork_child(|| assert_eq!(segments(), 0, "segments that the child holds")));
    drop(side);
}

/// The children's entry point; does nothing in an ordinary run.
#[test]
fn child_entry() {
    support::child::enter(&[("parent", parent_role)]);
}
