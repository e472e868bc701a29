//! Peers in another PID namespace: a pid of one namespace is invalid in the other, or means another process.

use nic_shm::CopyPath;
use verbs::{MemoryKind, SendOp, WcStatus};

use crate::support::agent::Agent;
use crate::support::child::Child;
use crate::support::endpoint::Endpoint;
use crate::support::{Rng, digest, one_at_a_time};

const LEN: usize = 200_000;

/// Goal: peers in different PID namespaces connect and access each other's private memory, through its owner
/// if the kernel gives no pid. Method: a child in a namespace below ours, where our pid is 0: writes, reads,
/// sends and atomics in both directions.
#[test]
fn operations_work_across_pid_namespaces() {
    let _gate = one_at_a_time();
    let mut end = Endpoint::new(CopyPath::Auto, LEN);
    let listener = end.listen();
    let Some(mut child) = Child::in_pid_namespace("agent") else {
        println!("SKIPPED operations_work_across_pid_namespaces: no PID namespace can be made here");
        return;
    };
    child.send_line(format!("auto {LEN} {}", listener.addr().port()));
    end.accept();
    assert_eq!(child.recv_line(), "connected");
    let mut agent = Agent(child);
    let bytes = Rng::new(5).bytes(LEN);
    for kind in [MemoryKind::Host, MemoryKind::Nic] {
        end.region(kind).buf().write(0, &bytes).expect("fits");
        end.post(1, SendOp::Write(end.peer.of(kind)), kind, 0, LEN as u32);
        end.sent_ok(1);
        assert_eq!(agent.digest(kind, 0, LEN), digest(&bytes), "what we wrote, {kind:?}");
        // By the child, which accesses our private memory through our NIC thread.
        end.post_recv(2, kind, 0, LEN as u32);
        agent.fill(kind, 0, LEN, 7);
        assert!(agent.send(3, kind, 0, LEN).contains("Success"));
        let got = end.received();
        assert_eq!((got.status, got.byte_len), (WcStatus::Success, LEN as u32));
        assert_eq!(
            digest(&end.region(kind).buf().to_vec(0..LEN).expect("inside")),
            agent.digest(kind, 0, LEN)
        );
        let word = end.region(kind).buf().word(0).expect("aligned");
        word.store(0, std::sync::atomic::Ordering::SeqCst);
        agent.start_adding(kind, 100);
        let sum: u64 = agent.0.recv_line().parse().expect("a sum");
        assert_eq!(sum, (0..100).sum::<u64>(), "the sum of the old values");
        assert_eq!(word.load(std::sync::atomic::Ordering::SeqCst), 100);
    }
    end.check_canaries();
    agent.end();
}
