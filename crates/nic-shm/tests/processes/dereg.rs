//! Deregistering memory that another process is writing to.

use std::time::{Duration, Instant};

use nic_shm::CopyPath;
use verbs::{Access, Buf, Error, MemoryKind, Mr, SendOp, WcStatus};

use crate::support::child::{Child, recv_line, send_line};
use crate::support::device;
use crate::support::endpoint::{Endpoint, Remote};
use crate::support::{Rng, one_at_a_time, until};

/// Child: for each `LEN PORT` line, connects and writes changing bytes until that is refused; reports the
/// final status.
pub(crate) fn writer_role() {
    let copy = if recv_line().as_deref() == Some("service") { CopyPath::Service } else { CopyPath::Auto };
    let mut end = Endpoint::new(copy, 16 << 20);
    while let Some(line) = recv_line() {
        let (len, port) = line.split_once(' ').expect("two words");
        let (len, port) = (len.parse::<usize>().expect("a length"), port.parse().expect("a port"));
        end.renew();
        end.connect(port);
        let local = end.host.buf().slice(0..len).expect("inside");
        let status = (1_u64..).find_map(|round| {
            local.fill(round as u8 | 1);
            end.post(round, SendOp::Write(end.peer.host), MemoryKind::Host, 0, len as u32);
            let wc = end.sent();
            (!wc.is_ok()).then_some(wc.status)
        });
        send_line(format!("{:?}", status.expect("an end")));
    }
}

/// Registers a region of `len` bytes in `buf` and waits until the writer writes to it.
fn start_writing(end: &mut Endpoint, buf: &Buf, len: usize, child: &mut Child) -> Mr {
    buf.fill(0);
    end.renew();
    let mr = end.pd.reg_mr_range(buf, 64..64 + len, Access::ALL).expect("a region");
    end.shown = Remote { host: mr.remote(0), nic: mr.remote(0) };
    let listener = end.listen();
    child.send_line(format!("{len} {}", listener.addr().port()));
    end.accept();
    let last = buf.byte(64 + len - 1).expect("inside");
    until("write", || (last.load(std::sync::atomic::Ordering::Relaxed) != 0).then_some(()));
    mr
}

fn check_nothing_written_after_dereg(copy: CopyPath, rounds: u64) {
    let mut end = Endpoint::on(&device(copy), 4096);
    let mut child = Child::start("writer");
    child.send_line(if copy == CopyPath::Service { "service" } else { "auto" });
    let mut rng = Rng::new(11);
    let buffers = [Buf::alloc(1 << 20), end.device.alloc_dm(1 << 20)].map(|b| b.expect("memory"));
    for round in 0..rounds {
        let buf = &buffers[round as usize % 2];
        let len = [8, 100, 4096, 65_536, 500_000][rng.below(5) as usize];
        let mr = start_writing(&mut end, buf, len, &mut child);
        std::thread::sleep(Duration::from_micros(rng.below(200)));
        mr.dereg().expect("no peer is stopped");
        let snapshot = buf.to_vec(0..buf.len()).expect("inside");
        assert_eq!(child.recv_line(), format!("{:?}", WcStatus::RemAccessErr));
        let later = buf.to_vec(0..buf.len()).expect("inside");
        assert!(snapshot == later, "round {round}: {len} bytes changed after deregistering");
        let outside = later[..64].iter().chain(&later[64 + len..]);
        assert!(outside.into_iter().all(|&b| b == 0), "round {round}: written outside of the region");
    }
}

/// Goal: once `dereg` has returned, no process changes the memory, and the initiator is refused. Method:
/// another process streams writes of changing bytes; the memory right after the call and after the
/// initiator's error must be the same. Seeded sizes and times, both kinds of memory.
#[test]
fn nothing_is_written_after_dereg() {
    let _gate = one_at_a_time();
    check_nothing_written_after_dereg(CopyPath::Auto, 300);
    check_nothing_written_after_dereg(CopyPath::Service, 60);
}

/// Goal: an initiator that is stopped in the middle of a write does not block its target forever. Method:
/// SIGSTOP at seeded times while it writes 16 MiB messages; `dereg` must return, with success or `Busy`.
/// After SIGCONT, the writer is refused, and this device keeps working.
#[test]
fn dereg_returns_while_a_writer_is_stopped() {
    let _gate = one_at_a_time();
    let mut end = Endpoint::on(&device(CopyPath::Auto), 4096);
    let mut child = Child::start("writer");
    child.send_line("auto");
    let mut rng = Rng::new(12);
    let (mut longest, mut busy) = (Duration::ZERO, 0);
    let len = 15 << 20;
    for round in 0..6 {
        let buf = if round % 2 == 0 { Buf::alloc(16 << 20) } else { end.device.alloc_dm(16 << 20) };
        let buf = buf.expect("memory");
        let mr = start_writing(&mut end, &buf, len, &mut child);
        std::thread::sleep(Duration::from_micros(rng.below(8000)));
        child.stop();
        let began = Instant::now();
        match mr.dereg() {
            Ok(()) => {}
            Err(Error::Busy { .. }) => busy += 1,
            Err(e) => panic!("{e}"),
        }
        longest = longest.max(began.elapsed());
        child.resume();
        assert_eq!(child.recv_line(), format!("{:?}", WcStatus::RemAccessErr));
        end.post(1, SendOp::Send, MemoryKind::Host, 0, 8);
        let flushed = end.sent();
        assert!(!flushed.is_ok(), "{flushed:?}");
        end.check_canaries();
    }
    println!("dereg with a stopped writer: {busy} of 6 busy, the longest took {longest:?}");
    // The device waits for one second.
    assert!(longest < Duration::from_secs(5), "dereg took {longest:?}");
}
