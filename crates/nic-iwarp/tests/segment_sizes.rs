//! A peer on a plain socket that cuts long messages into segments of any size. The NIC reads several segments with one call if it
//! expects their sizes; whatever they are, each byte must get to its place.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::{JoinHandle, spawn};

use host::{Host, Rng, Span};
use nic_iwarp::{IwarpConfig, open};
use verbs::{Access, Buf, CmEvent, ConnParam, Cq, QpInit, RecvWr, Wc, WcOpcode};

const PATIENCE: Span = Span::from_secs(60);
/// Bytes of the receive that gets the beginning of each message.
const SLOT: usize = 64;
const LEN: usize = 400_000;

/// Appends a segment of a Send.
fn append_segment(stream: &mut Vec<u8>, (msn, mo, last): (u32, usize, bool), payload: &[u8]) {
    let begin = stream.len();
    stream.extend(((18 + payload.len()) as u16).to_be_bytes());
    // Untagged, perhaps the last segment, DDP version 1; RDMAP version 1, Send.
    stream.extend([if last { 0x41 } else { 0x01 }, 0x43, 0, 0, 0, 0, 0, 0, 0, 0]);
    stream.extend(msn.to_be_bytes());
    stream.extend((mo as u32).to_be_bytes());
    stream.extend(payload);
    let padded = (stream.len() - begin).next_multiple_of(4);
    stream.resize(begin + padded + 4, 0);
}

/// Appends a message in segments of these sizes.
fn append_message(stream: &mut Vec<u8>, msn: u32, data: &[u8], sizes: &[usize]) {
    let mut mo = 0;
    for (number, size) in sizes.iter().enumerate() {
        append_segment(stream, (msn, mo, number + 1 == sizes.len()), &data[mo..mo + size]);
        mo += size;
    }
    assert_eq!(mo, data.len());
}

/// Accepts one connection, and sends these bytes after the handshake.
fn peer(bytes: Vec<u8>) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let addr = listener.local_addr().expect("bound");
    let peer = spawn(move || {
        let (mut stream, _): (TcpStream, _) = listener.accept().expect("somebody");
        stream.read_exact(&mut [0; 24]).expect("a request");
        stream.write_all(b"MPA ID Rep Frame\x10\x02\x00\x04\x80\x10\x80\x10").expect("open");
        stream.write_all(&bytes).expect("the peer reads");
        let _ = stream.read_to_end(&mut Vec::new());
    });
    (addr, peer)
}

fn next(cq: &Cq, host: &Host) -> Wc {
    let wc = cq.wait(host.after(PATIENCE)).expect("a completion");
    assert!(wc.is_ok(), "{wc:?}");
    wc
}

/// Receives messages of these lengths, with `spare` bytes of memory behind each rest, and compares them with the data.
fn receive_all(addr: SocketAddr, data: &[u8], lens: &[usize], spare: usize) {
    let host = host::real::host();
    let device = open(&host, &IwarpConfig::default()).expect("an iWARP device");
    let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(16).expect("a queue"));
    let cm = device.create_cm().expect("a channel");
    let memory = Buf::alloc(SLOT + LEN).expect("memory");
    let region = pd.reg_mr(&memory, Access::LOCAL_WRITE).expect("a region");
    let qp = pd.create_qp(&QpInit::new(&cq).split_receives()).expect("a queue pair");
    cm.connect(&qp, addr, &ConnParam::default()).expect("a wish");
    assert!(matches!(cm.get_event(host.after(PATIENCE)), Ok(CmEvent::Established { .. })));
    for (number, len) in lens.iter().enumerate() {
        memory.write(0, &vec![0; SLOT + LEN]).expect("inside");
        qp.post_recv(&RecvWr::new(1, &[region.sge(0, SLOT as u32)])).expect("room");
        assert_eq!(next(&cq, &host).opcode, WcOpcode::RecvBegin);
        let room = len - SLOT + spare;
        qp.post_rest(&RecvWr::new(2, &[region.sge(SLOT as u64, room as u32)])).expect("wanted");
        let wc = next(&cq, &host);
        assert_eq!((wc.opcode, wc.byte_len as usize), (WcOpcode::RecvRest, len - SLOT));
        let got = memory.to_vec(0..*len).expect("inside");
        assert!(got == data[..*len], "message {number} of {lens:?} bytes");
        if spare == 0 {
            assert_eq!(memory.to_vec(*len..SLOT + LEN), Ok(vec![0; SLOT + LEN - len]), "outside the memory");
        }
    }
}

fn data() -> Vec<u8> {
    (0..LEN).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// Goal: segments of expected and unexpected sizes, and the messages behind them, arrive whole. Method: messages in equal, growing,
/// shrinking and random segments, and without payload in some, sent together, so that one call may read several; with memory of
/// the message's size and with more.
#[test]
fn segments_of_any_size_are_placed() {
    let (data, mut rng) = (data(), Rng::new(3));
    let mut plans: Vec<Vec<usize>> = vec![
        vec![5000; 20],
        vec![60_000, 60_000, 60_000, 12],
        vec![8000, 8000, 9000, 8000, 100],
        vec![20_000, 20_000, 20_000, 20_001],
        vec![2000, 30_000, 50_000, 3000, 3000, 3000],
        vec![10_000, 10_000, 0, 10_000, 10_000, 0],
        vec![64, 4096, 4096, 4096, 4096],
        vec![3000, 2999, 2998, 2997, 2996, 2995, 2994, 2993, 2992, 2991, 2990],
    ];
    for _ in 0..20 {
        let count = 2 + rng.next_u64() % 12;
        plans.push((0..count).map(|_| 1024 + (rng.next_u64() % 20_000) as usize).collect());
    }
    let lens: Vec<usize> = plans.iter().map(|sizes| sizes.iter().sum()).collect();
    for spare in [0, 50_000] {
        let mut stream = Vec::new();
        for (number, sizes) in plans.iter().enumerate() {
            append_message(&mut stream, number as u32 + 1, &data[..lens[number]], sizes);
        }
        let (addr, peer) = peer(stream);
        receive_all(addr, &data, &lens, spare);
        peer.join().expect("it has sent everything");
    }
}

/// Goal: a segment of another message inside a message ends the connection, although its payload was read with the others. Method: the
/// third segment has the number of the next message, or a wrong offset.
#[test]
fn false_segment_inside_a_message_ends_the_connection() {
    let data = data();
    for (msn, mo) in [(2, 10_000), (1, 9_000), (1, 10_001)] {
        let mut stream = Vec::new();
        append_segment(&mut stream, (1, 0, false), &data[..5000]);
        append_segment(&mut stream, (1, 5000, false), &data[5000..10_000]);
        append_segment(&mut stream, (msn, mo, false), &data[10_000..15_000]);
        append_segment(&mut stream, (1, 15_000, true), &data[15_000..20_000]);
        let (addr, peer) = peer(stream);
        let host = host::real::host();
        let device = open(&host, &IwarpConfig::default()).expect("an iWARP device");
        let (pd, cq) = (device.alloc_pd().expect("a domain"), device.create_cq(16).expect("a queue"));
        let cm = device.create_cm().expect("a channel");
        let memory = Buf::alloc(20_000).expect("memory");
        let region = pd.reg_mr(&memory, Access::LOCAL_WRITE).expect("a region");
        let qp = pd.create_qp(&QpInit::new(&cq).split_receives()).expect("a queue pair");
        cm.connect(&qp, addr, &ConnParam::default()).expect("a wish");
        assert!(matches!(cm.get_event(host.after(PATIENCE)), Ok(CmEvent::Established { .. })));
        qp.post_recv(&RecvWr::new(1, &[region.sge(0, SLOT as u32)])).expect("room");
        assert_eq!(next(&cq, &host).opcode, WcOpcode::RecvBegin);
        qp.post_rest(&RecvWr::new(2, &[region.sge(SLOT as u64, 19_936)])).expect("wanted");
        let wc = cq.wait(host.after(PATIENCE)).expect("a completion");
        assert!(!wc.is_ok() && wc.opcode == WcOpcode::RecvRest, "{msn} {mo}: {wc:?}");
        assert!(matches!(cm.get_event(host.after(PATIENCE)), Ok(CmEvent::Disconnected { .. })));
        drop(qp);
        peer.join().expect("it has sent everything");
    }
}
