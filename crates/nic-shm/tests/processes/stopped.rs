//! A target whose threads are stopped: the initiator does all the work.

use std::time::Duration;

use nic_shm::CopyPath;
use verbs::{Error, MemoryKind, SendOp};

use crate::basics::KINDS;
use crate::support::agent::Agent;
use crate::support::endpoint::{Endpoint, within};
use crate::support::{Rng, digest, one_at_a_time};

const LEN: usize = 1 << 20;
/// Size of the parts for sends, writes and atomics.
const PART: usize = LEN / 4;

/// Sends, writes, reads and atomics on memory of `kind` at the stopped agent; all must complete.
fn work_on_stopped(end: &Endpoint, kind: MemoryKind, bytes: &[u8]) {
    let (n, host) = (PART as u32, MemoryKind::Host);
    let remote = end.peer.of(kind);
    end.host.buf().write(0, bytes).expect("fits");
    for id in 0..3 {
        end.post(id, SendOp::SendImm(id as u32), host, 0, n - id as u32);
        end.sent_ok(id);
    }
    end.post(3, SendOp::Write(remote.offset(PART as u64)), host, 0, n);
    end.sent_ok(3);
    end.post(4, SendOp::WriteImm(remote.offset(2 * PART as u64), 4), host, 0, n);
    end.sent_ok(4);
    end.post(5, SendOp::Read(remote.offset(PART as u64)), host, PART as u64, n);
    end.sent_ok(5);
    assert_eq!(end.host.buf().to_vec(PART..2 * PART).expect("inside"), bytes, "read back while stopped");
    let word = remote.offset(3 * PART as u64);
    for id in 6..16 {
        end.post(id, SendOp::FetchAdd { remote: word, add: 1 }, host, 3 * PART as u64, 8);
        end.sent_ok(id);
    }
    end.post(16, SendOp::CompareSwap { remote: word, compare: 10, swap: 11 }, host, 3 * PART as u64, 8);
    end.sent_ok(16);
}

/// Goal: no operation of an initiator needs the target's threads. Method: SIGSTOP, wait until the kernel
/// reports it as stopped, do every operation on both kinds of memory and wait for all completions, check that
/// it is still stopped; then SIGCONT: the target finds the data and its own completions, in order.
#[test]
fn operations_on_a_stopped_target_complete() {
    let _gate = one_at_a_time();
    let mut end = Endpoint::new(CopyPath::Auto, LEN);
    let mut agent = Agent::start(&mut end, CopyPath::Auto, LEN);
    for (round, kind) in KINDS.into_iter().enumerate() {
        let bytes = Rng::new(round as u64).bytes(PART);
        (0..4).for_each(|id| agent.post_recv(id, kind, 0, PART));
        agent.0.stop();
        work_on_stopped(&end, kind, &bytes);
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", agent.0.pid())).expect("a process");
        assert!(stat.contains(") T "), "{stat}");
        agent.0.resume();
        for id in 0..3 {
            let len = PART - id;
            assert_eq!(agent.received(), format!("{id} Success Recv {len} Some({id}) false"));
        }
        assert_eq!(agent.received(), format!("3 Success RecvWriteImm {PART} Some(4) false"));
        for part in 0..3 {
            assert_eq!(agent.digest(kind, part * PART, PART), digest(&bytes), "part {part} of {kind:?}");
        }
        assert_eq!(agent.digest(kind, 3 * PART, 8), digest(&11_u64.to_le_bytes()));
    }
    end.check_canaries();
    agent.end();
}

/// Goal: with `copy=service`, NIC memory of a stopped target is accessed as usual; an access to private
/// memory waits for the target and is then served. Method: both kinds of write to a stopped target; the
/// second completes only after SIGCONT.
#[test]
fn service_copy_waits_for_a_stopped_target() {
    let _gate = one_at_a_time();
    let mut end = Endpoint::new(CopyPath::Service, LEN);
    let mut agent = Agent::start(&mut end, CopyPath::Service, LEN);
    let bytes = Rng::new(3).bytes(LEN);
    end.host.buf().write(0, &bytes).expect("fits");
    agent.post_recv(9, MemoryKind::Nic, 0, LEN);
    agent.0.stop();
    end.post(1, SendOp::Write(end.peer.nic), MemoryKind::Host, 0, LEN as u32);
    end.sent_ok(1);
    end.post(2, SendOp::Send, MemoryKind::Host, 0, LEN as u32);
    end.sent_ok(2);
    end.post(3, SendOp::Write(end.peer.host), MemoryKind::Host, 0, LEN as u32);
    let early = end.send_cq.wait(within(Duration::from_millis(150)));
    assert!(matches!(early, Err(Error::TimedOut { .. })), "a stopped owner copied: {early:?}");
    agent.0.resume();
    end.sent_ok(3);
    assert_eq!(agent.received(), format!("9 Success Recv {LEN} None false"));
    for kind in KINDS {
        assert_eq!(agent.digest(kind, 0, LEN), digest(&bytes), "{kind:?}");
    }
    agent.end();
}
