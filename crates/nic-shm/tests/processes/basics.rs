//! Every operation between two processes, with every way to copy private memory.

use nic_shm::CopyPath;
use verbs::{MemoryKind, SendOp, WcOpcode, WcStatus};

use crate::support::agent::Agent;
use crate::support::device;
use crate::support::endpoint::Endpoint;
use crate::support::{Rng, digest, one_at_a_time};

pub(crate) const KINDS: [MemoryKind; 2] = [MemoryKind::Host, MemoryKind::Nic];
const LEN: usize = 1 << 20;

/// Writes, reads and sends `len` bytes at `offset`, in both directions, from one kind of memory to another.
fn move_bytes(
    end: &mut Endpoint,
    agent: &mut Agent,
    [own, theirs]: [MemoryKind; 2],
    offset: usize,
    len: usize,
) {
    let (at, n) = (offset as u64, len as u32);
    let fill = |end: &Endpoint, seed: u64| {
        let bytes = Rng::new(seed).bytes(len);
        end.region(own).buf().write(offset, &bytes).expect("fits");
        digest(&bytes)
    };
    let want = fill(end, 1);
    end.post(1, SendOp::Write(end.peer.of(theirs).offset(at)), own, at, n);
    end.sent_ok(1);
    assert_eq!(agent.digest(theirs, offset, len), want, "write {own:?} to {theirs:?}");

    agent.fill(theirs, offset, len, 2);
    end.post(2, SendOp::Read(end.peer.of(theirs).offset(at)), own, at, n);
    assert_eq!(end.sent_ok(2).byte_len, n);
    let got = end.region(own).buf().to_vec(offset..offset + len).expect("inside");
    assert_eq!(digest(&got), digest(&Rng::new(2).bytes(len)), "read {theirs:?} to {own:?}");

    for (id, op) in [(3, SendOp::Send), (4, SendOp::SendImm(9))] {
        let want = fill(end, id);
        agent.post_recv(id + 100, theirs, offset, len);
        end.post(id, op, own, at, n);
        end.sent_ok(id);
        let imm = if id == 4 { "Some(9)" } else { "None" };
        assert_eq!(agent.received(), format!("{} Success Recv {len} {imm} false", id + 100));
        assert_eq!(agent.digest(theirs, offset, len), want, "send {own:?} to {theirs:?}");
    }

    let want = fill(end, 5);
    agent.post_recv(105, theirs, 0, 0);
    end.post(5, SendOp::WriteImm(end.peer.of(theirs).offset(at), 10), own, at, n);
    end.sent_ok(5);
    assert_eq!(agent.received(), format!("105 Success RecvWriteImm {len} Some(10) false"));
    assert_eq!(agent.digest(theirs, offset, len), want, "write with immediate {own:?} to {theirs:?}");

    agent.fill(theirs, offset, len, 6);
    end.post_recv(6, own, at, n);
    assert_eq!(agent.send(106, theirs, offset, len), "106 Success Send 0 None false");
    let wc = end.received();
    assert_eq!((wc.status, wc.wr_id, wc.byte_len, wc.imm), (WcStatus::Success, 6, n, Some(77)));
    let got = end.region(own).buf().to_vec(offset..offset + len).expect("inside");
    assert_eq!(digest(&got), digest(&Rng::new(6).bytes(len)), "their send {theirs:?} to {own:?}");
}

fn every_operation(copy: CopyPath) {
    let _gate = one_at_a_time();
    let mut end = Endpoint::new(copy, LEN);
    let mut agent = Agent::start(&mut end, copy, LEN);
    for own in KINDS {
        for theirs in KINDS {
            for (offset, len) in [(0, 1), (7, 96), (1, 97), (4095, 65_537), (0, LEN)] {
                move_bytes(&mut end, &mut agent, [own, theirs], offset, len);
            }
        }
    }
    atomics_and_invalidation(&mut end, &mut agent);
    end.check_canaries();
    agent.end();
    end.disconnected();
}

fn atomics_and_invalidation(end: &mut Endpoint, agent: &mut Agent) {
    for kind in KINDS {
        let zeros = digest(&[0; 8]);
        end.region(MemoryKind::Host).buf().fill(0);
        end.post(1, SendOp::Write(end.peer.of(kind)), MemoryKind::Host, 0, 8);
        end.sent_ok(1);
        assert_eq!(agent.digest(kind, 0, 8), zeros);
        let remote = end.peer.of(kind);
        for (id, op, old) in [
            (2, SendOp::FetchAdd { remote, add: 5 }, 0_u64),
            (3, SendOp::CompareSwap { remote, compare: 5, swap: 50 }, 5),
            (4, SendOp::CompareSwap { remote, compare: 5, swap: 60 }, 50),
            (5, SendOp::FetchAdd { remote, add: u64::MAX }, 50),
        ] {
            end.post(id, op, MemoryKind::Host, 8, 8);
            end.sent_ok(id);
            assert_eq!(end.host.buf().to_vec(8..16).expect("inside"), old.to_le_bytes(), "{op:?}");
        }
        assert_eq!(agent.digest(kind, 0, 8), digest(&49_u64.to_le_bytes()));
    }
    agent.post_recv(1, MemoryKind::Host, 0, 8);
    end.post(6, SendOp::SendInv(end.peer.nic.rkey), MemoryKind::Host, 0, 8);
    end.sent_ok(6);
    assert_eq!(agent.received(), "1 Success Recv 8 None true");
    end.post(7, SendOp::Write(end.peer.nic), MemoryKind::Host, 0, 8);
    let wc = end.sent();
    assert_eq!((wc.wr_id, wc.status, wc.opcode), (7, WcStatus::RemAccessErr, WcOpcode::Write));
}

/// Goal: every operation moves the right bytes between processes, in all four placements. Method: seeded
/// bytes, digests computed by the receiving process, guard bytes around all regions.
#[test]
fn every_operation_between_processes() {
    every_operation(CopyPath::Auto);
}

/// Goal: as above, where the owner copies.
#[test]
fn every_operation_between_processes_by_service() {
    every_operation(CopyPath::Service);
}

/// Goal: large messages arrive complete. Method: 64 MiB in each direction and form, digests on both sides.
#[test]
fn messages_of_64_mib_between_processes() {
    let _gate = one_at_a_time();
    const LARGE: usize = 64 << 20;
    for (copy, kinds) in [
        (CopyPath::Auto, [MemoryKind::Host, MemoryKind::Host]),
        (CopyPath::Auto, [MemoryKind::Host, MemoryKind::Nic]),
        (CopyPath::Service, [MemoryKind::Nic, MemoryKind::Host]),
    ] {
        let mut end = Endpoint::new(copy, LARGE);
        let mut agent = Agent::start(&mut end, copy, LARGE);
        move_bytes(&mut end, &mut agent, kinds, 0, LARGE);
        agent.end();
    }
}

/// Goal: concurrent atomics of several processes on one word lose nothing, in NIC memory and in private
/// memory. Method: two agents and this process add 1 concurrently; the word and the sum of all old values
/// must be exact.
#[test]
fn concurrent_increments_add_up() {
    let _gate = one_at_a_time();
    for (copy, count) in [(CopyPath::Auto, 3000_u64), (CopyPath::Service, 300)] {
        let device = device(copy);
        let mut first = Endpoint::on(&device, 4096);
        let queue = || device.create_cq(64).expect("a completion queue");
        let mut second = Endpoint::with(&device, first.pd.clone(), queue(), queue(), 4096);
        second.shown = first.shown;
        let mut agents = [Agent::start(&mut first, copy, 4096), Agent::start(&mut second, copy, 4096)];
        for kind in KINDS {
            agents.iter_mut().for_each(|a| a.start_adding(kind, count));
            let word = first.region(kind).buf().word(0).expect("aligned");
            let mut sum = 0;
            let mut total = 2 * count;
            if kind == MemoryKind::Nic {
                // Atomic with respect to the processors as well.
                total += count;
                sum = (0..count).map(|_| word.fetch_add(1, std::sync::atomic::Ordering::SeqCst)).sum();
            }
            sum += agents.iter().map(|a| a.0.recv_line().parse::<u64>().expect("a sum")).sum::<u64>();
            assert_eq!(word.load(std::sync::atomic::Ordering::SeqCst), total, "{kind:?} {copy:?}");
            assert_eq!(sum, total * (total - 1) / 2, "two operations saw the same value: {kind:?} {copy:?}");
        }
        agents.into_iter().for_each(Agent::end);
    }
}
