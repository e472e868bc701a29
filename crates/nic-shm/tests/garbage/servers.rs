//! Listeners that are not NICs, to which a NIC connects.

use std::os::fd::AsFd;
use std::time::Duration;

use nic_shm::CopyPath;
use verbs::{CmEvent, CmFailure, ConnParam};

use crate::raw::{PROCESS_AT, RawListener, ReadResult, borrowed, event_fd, full_pipe, real_request, short};
use crate::support::device;
use crate::support::endpoint::{Endpoint, at, deadline};
use crate::support::{PATIENCE, Rng, one_at_a_time, traces, until};

/// The answer of a false server.
#[derive(Clone, Copy, Debug)]
enum Reply {
    Nothing,
    End,
    Random,
    Cut,
    Changed,
    NoDescriptors,
    WrongDescriptors,
    OutOfTurn,
    Another,
}

const REPLIES: [Reply; 9] = [
    Reply::Nothing,
    Reply::End,
    Reply::Random,
    Reply::Cut,
    Reply::Changed,
    Reply::NoDescriptors,
    Reply::WrongDescriptors,
    Reply::OutOfTurn,
    Reply::Another,
];

/// Goal: whatever the answer to a connect request, connecting fails with the cause, the queue pair can be
/// connected elsewhere unless it was linked, and no descriptor leaks. Method: false servers with each kind of
/// answer, ten times; afterwards the same device connects to a proper one.
#[test]
fn connect_fails_on_false_servers() {
    let _gate = one_at_a_time();
    let (mut real, fds, _requester) = real_request();
    real[6] = 2;
    let (_read, full) = full_pipe();
    let not_a_segment = event_fd();
    let device = device(CopyPath::Auto);
    let listener = RawListener::new();
    let before = {
        drop(Endpoint::on(&device, 4096));
        traces::descriptors()
    };
    let mut rng = Rng::new(41);
    for reply in REPLIES.into_iter().cycle().take(90) {
        let end = Endpoint::on(&device, 4096);
        let param = ConnParam { timeout: host::Span::from_ms(60), ..end.param() };
        end.cm.connect(&end.qp, at(listener.port), &param).expect("asked");
        let raw = listener.accept();
        assert!(matches!(raw.read_answer(PATIENCE), ReadResult::Packet(..)));
        let mut packet = real.clone();
        packet[PROCESS_AT..PROCESS_AT + 8].copy_from_slice(&rng.next_u64().to_le_bytes());
        match reply {
            Reply::Nothing | Reply::End => {}
            Reply::Random => raw.send(&rng.bytes(100), &borrowed(&fds)),
            Reply::Cut => raw.send(&packet[..30], &borrowed(&fds)),
            Reply::Changed => {
                // Another token than the segment's, or another version.
                packet[if rng.below(2) == 0 { 8 } else { 4 }] ^= 0x55;
                raw.send(&packet, &borrowed(&fds));
            }
            Reply::NoDescriptors => raw.send(&packet, &[]),
            Reply::WrongDescriptors => {
                let segment = if rng.below(2) == 0 { &fds[0] } else { &not_a_segment };
                raw.send(&packet, &[segment.as_fd(), full.as_fd()]);
            }
            Reply::OutOfTurn => raw.send(&short(3), &[]),
            Reply::Another => raw.send(b"HTTP/1.1 400 Bad Request\r\n\r\n", &[]),
        }
        let keep = (!matches!(reply, Reply::End)).then_some(raw);
        match (reply, end.cm.get_event(deadline())) {
            (Reply::Nothing, Ok(CmEvent::ConnectFailed { why: CmFailure::TimedOut, .. })) => {}
            (Reply::End, Ok(CmEvent::ConnectFailed { why: CmFailure::PeerGone, .. })) => {}
            (Reply::Nothing | Reply::End, other) => panic!("{reply:?}: {other:?}"),
            (_, Ok(CmEvent::ConnectFailed { why: CmFailure::Protocol(_), .. })) => {}
            (_, other) => panic!("{reply:?}: {other:?}"),
        }
        drop(keep);
        std::thread::sleep(Duration::from_millis(1));
        assert!(end.cm.poll_event().is_none(), "one event is enough");
    }
    until("return of all descriptors", || (traces::descriptors() <= before).then_some(()));
    let mut server = Endpoint::new(CopyPath::Auto, 4096);
    let proper = server.listen();
    let end = Endpoint::on(&device, 4096);
    end.cm.connect(&end.qp, proper.addr(), &end.param()).expect("asked");
    server.accept();
    assert!(matches!(end.cm.get_event(deadline()), Ok(CmEvent::Established { .. })));
}
