//! A peer on a plain socket that imitates the peculiarities of Linux siw (`docs/results/interop.md`).

use std::io::{BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

use host::{Host, Span};
use nic_iwarp::{IwarpConfig, open};
use verbs::{Cm, CmEvent, ConnParam, Cq, Qp, QpInit, RemoteAddr, SendOp, SendWr};

const PATIENCE: Span = Span::from_secs(60);
/// Start of the FPDU of a zero-length RDMA Write: length, DDP tagged and last, RDMAP Write.
const EMPTY_WRITE: [u8; 4] = [0, 14, 0xc1, 0x40];
/// Start of the FPDU of an RDMA Write with 8 bytes.
const WRITE_OF_8: [u8; 4] = [0, 22, 0xc1, 0x40];

/// Replies to one request as siw does, with a write as the first message; then `listens` reads the stream, with a
/// time limit.
fn siw(listens: fn(&mut TcpStream)) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let addr = listener.local_addr().expect("bound");
    let siw = spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a time");
        let mut request = [0; 24];
        stream.read_exact(&mut request).expect("a request");
        assert_eq!((&request[..16], request[17]), (&b"MPA ID Req Frame"[..], 2));
        stream.write_all(b"MPA ID Rep Frame\x10\x02\x00\x04\x80\x10\x80\x10").expect("open");
        listens(&mut stream);
    });
    (addr, siw)
}

/// The first four bytes of the next FPDU.
fn fpdu(stream: &mut TcpStream) -> [u8; 4] {
    tagged(stream).0
}

/// The first four bytes of the next FPDU, and its tag.
fn tagged(stream: &mut TcpStream) -> ([u8; 4], u32) {
    let (mut head, mut tag) = ([0; 4], [0; 4]);
    stream.read_exact(&mut head).expect("an FPDU");
    stream.read_exact(&mut tag).expect("its tag");
    let len = (2 + usize::from(u16::from_be_bytes([head[0], head[1]]))).next_multiple_of(4) + 4;
    stream.read_exact(&mut vec![0; len - 8]).expect("the rest of it");
    (head, u32::from_be_bytes(tag))
}

fn connect(host: &Host, addr: SocketAddr) -> (Qp, Cq, Cm) {
    let device = open(host, &IwarpConfig::default()).expect("an iWARP device");
    let (pd, cq, cm) =
        (device.alloc_pd().expect("a domain"), device.create_cq(16).expect("a queue"), device.create_cm());
    let (qp, cm) = (pd.create_qp(&QpInit::new(&cq)).expect("a queue pair"), cm.expect("a channel"));
    cm.connect(&qp, addr, &ConnParam::default()).expect("a wish");
    let event = cm.get_event(host.after(PATIENCE)).expect("an event");
    assert!(matches!(event, CmEvent::Established { .. }), "{event:?}");
    (qp, cq, cm)
}

/// siw may overlook the first message after its reply: it is repeated while siw sends nothing.
#[test]
fn first_message_is_repeated_to_silent_siw() {
    let (addr, siw) = siw(|stream| {
        for time in 0..3 {
            assert_eq!(fpdu(stream), EMPTY_WRITE, "time {time}");
        }
    });
    let host = host::real::host();
    let _connected = connect(&host, addr);
    siw.join().expect("all of them came");
}

/// Once siw has sent something, nothing is repeated.
#[test]
fn siw_that_has_sent_gets_no_repeats() {
    let (addr, siw) = siw(|stream| {
        assert_eq!(fpdu(stream), EMPTY_WRITE, "the first message");
        stream.write_all(&[0, 14, 0xc1, 0x40, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]).expect("open");
        stream.set_read_timeout(Some(Duration::from_millis(600))).expect("a time");
        let more = BufReader::new(stream).bytes().map_while(Result::ok).count();
        // A slow machine may have one repetition in flight when siw sends, but not four.
        assert!(more <= 20, "{more} bytes more");
    });
    let host = host::real::host();
    let _connected = connect(&host, addr);
    siw.join().expect("silence");
}

/// A busy siw answers zero-length reads with data, so it is sent none: a write completes when TCP has accepted it.
#[test]
fn siw_gets_no_flush_markers() {
    let (addr, siw) = siw(|stream| {
        let mut heads = vec![fpdu(stream)];
        while heads.last() != Some(&WRITE_OF_8) {
            heads.push(fpdu(stream));
        }
        assert!(heads[..heads.len() - 1].iter().all(|head| *head == EMPTY_WRITE), "{heads:x?}");
        stream.set_read_timeout(Some(Duration::from_millis(300))).expect("a time");
        let mut head = [0; 4];
        if stream.read_exact(&mut head).is_ok() {
            assert_eq!(head, EMPTY_WRITE, "at most one repetition");
        }
    });
    let host = host::real::host();
    let (qp, cq, _cm) = connect(&host, addr);
    let sink = RemoteAddr { addr: 0x1000, rkey: 0x55 };
    qp.post_send(&SendWr::inline(1, SendOp::Write(sink), &[7; 8])).expect("room");
    assert!(cq.wait(host.after(PATIENCE)).expect("a completion").is_ok());
    siw.join().expect("a write and no flush marker");
}

/// Goal: no RNR retry limit is announced to a peer that agreed on a write as the first message. Method: after the
/// limit is set, only the first message, perhaps repeated, precedes the program's write.
#[test]
fn siw_gets_no_rnr_limit() {
    let (addr, siw) = siw(|stream| {
        loop {
            match tagged(stream) {
                (WRITE_OF_8, _) => break,
                (EMPTY_WRITE, tag) => assert_eq!(tag, 1, "a first message"),
                other => panic!("{other:x?}"),
            }
        }
    });
    let host = host::real::host();
    let (qp, cq, _cm) = connect(&host, addr);
    qp.set_rnr_retry(0).expect("a limit");
    let sink = RemoteAddr { addr: 0x1000, rkey: 0x55 };
    qp.post_send(&SendWr::inline(1, SendOp::Write(sink), &[7; 8])).expect("room");
    assert!(cq.wait(host.after(PATIENCE)).expect("a completion").is_ok());
    siw.join().expect("the write and no announcement");
}
