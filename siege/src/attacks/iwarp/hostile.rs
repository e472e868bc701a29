//! Peers with valid MPA framing and CRCs and one false field: every field of every kind of segment, by table. The
//! victim ends such a connection or is unharmed; no byte outside of its region changes, and it serves others.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Result, ensure};
use iwarp::crc::Crc;
use verbs::{CmEvent, ConnParam, SendOp, SendWr};

use super::endpoints::{DeviceWithMemory, Round};
use crate::attack::{Attack, Budget, Tally};
use crate::resources::ResourceCounts;
use host::Rng;

pub(crate) const ATTACK: Attack = Attack {
    name: "hostile-iwarp",
    about: "iWARP peers with a false value in one field of one segment, and valid CRCs",
    weight: 1,
    late_max: Duration::from_millis(1000),
    run,
};

/// A kind of segment: its DDP and RDMAP control bytes, and the fields after them, with their sizes in bytes and correct
/// values.
struct SegmentKind {
    ddp: u8,
    rdmap: u8,
    fields: &'static [(usize, CorrectValue)],
}

/// The correct value of a field.
#[derive(Clone, Copy)]
enum CorrectValue {
    Is(u64),
    /// The victim's STag, and the start address of its region.
    Tag,
    Begin,
}

use CorrectValue::{Begin, Is, Tag};

const TAGGED: &[(usize, CorrectValue)] = &[(4, Tag), (8, Begin), (8, Is(7))];
const fn untagged(ddp: u8, rdmap: u8, fields: &'static [(usize, CorrectValue)]) -> SegmentKind {
    SegmentKind { ddp, rdmap, fields }
}

/// RDMAP's word, queue number, message number, offset; then the payload.
const KINDS: &[SegmentKind] = &[
    SegmentKind { ddp: 0xc1, rdmap: 0x40, fields: TAGGED },
    SegmentKind { ddp: 0x81, rdmap: 0x40, fields: TAGGED },
    SegmentKind { ddp: 0xc1, rdmap: 0x42, fields: TAGGED },
    untagged(0x41, 0x43, &[(4, Is(0)), (4, Is(0)), (4, Is(2)), (4, Is(0)), (8, Is(1))]),
    untagged(0x01, 0x43, &[(4, Is(0)), (4, Is(0)), (4, Is(2)), (4, Is(0)), (8, Is(1))]),
    untagged(0x41, 0x44, &[(4, Tag), (4, Is(0)), (4, Is(2)), (4, Is(0)), (8, Is(1))]),
    untagged(0x41, 0x48, &[(4, Is(0)), (4, Is(0)), (4, Is(2)), (4, Is(0)), (8, Is(1))]),
    untagged(
        0x41,
        0x41,
        &[
            (4, Is(0)),
            (4, Is(1)),
            (4, Is(1)),
            (4, Is(0)),
            (4, Is(9)),
            (8, Is(0)),
            (4, Is(64)),
            (4, Tag),
            (8, Begin),
        ],
    ),
    untagged(
        0x41,
        0x4a,
        &[
            (4, Is(0)),
            (4, Is(1)),
            (4, Is(1)),
            (4, Is(0)),
            (4, Is(0)),
            (4, Is(5)),
            (4, Tag),
            (8, Begin),
            (8, Is(1)),
            (8, Is(0)),
            (8, Is(0)),
            (8, Is(0)),
        ],
    ),
    untagged(0x41, 0x4b, &[(4, Is(0)), (4, Is(3)), (4, Is(1)), (4, Is(0)), (4, Is(0)), (8, Is(1))]),
    untagged(
        0x41,
        0x47,
        &[(4, Is(0)), (4, Is(2)), (4, Is(1)), (4, Is(0)), (4, Is(0x1001_c000)), (2, Is(22))],
    ),
];

/// A false value, derived from the correct one.
fn false_value(right: u64, size: usize, rng: &mut Rng) -> u64 {
    let all = u64::MAX >> (64 - 8 * size as u32);
    let value = match rng.below(9) {
        0 => 0,
        1 => all,
        2 => all ^ all >> 1,
        3 => all >> 1,
        4 => right.wrapping_add(1),
        5 => right.wrapping_sub(1),
        6 => right ^ 1 << rng.below(8 * size as u64),
        7 => right.wrapping_add(rng.below(1 << 17)),
        _ => rng.next_u64(),
    };
    value & all
}

/// An FPDU of a kind with a false value in field `wrong`: 0 is its length, 1 and 2 are the control bytes. With 99, all
/// are correct.
fn fpdu(kind: &SegmentKind, wrong: usize, node: &DeviceWithMemory, rng: &mut Rng) -> Vec<u8> {
    let mut put = |number: usize, size: usize, right: u64, out: &mut Vec<u8>| {
        let value = if number == wrong { false_value(right, size, rng) } else { right };
        out.extend(&value.to_be_bytes()[8 - size..]);
    };
    let mut segment = Vec::new();
    put(1, 1, kind.ddp.into(), &mut segment);
    put(2, 1, kind.rdmap.into(), &mut segment);
    for (number, (size, right)) in kind.fields.iter().enumerate() {
        let right = match *right {
            Is(value) => value,
            Tag => node.region.rkey().into(),
            Begin => node.region.addr(),
        };
        put(number + 3, *size, right, &mut segment);
    }
    let mut out = Vec::new();
    put(0, 2, segment.len() as u64, &mut out);
    out.extend(segment);
    out.resize((out.len()).next_multiple_of(4), 0);
    let crc = Crc::compute(&out).to_wire();
    out.extend(crc);
    out
}

/// A connection request with CRCs, from a peer that wants to begin with a Send; the Send follows.
const REQUEST: &[u8] = b"MPA ID Req Frame\x50\x02\x00\x04\xc0\x10\x00\x10";

fn request() -> Vec<u8> {
    REQUEST.to_vec()
}

fn first_send(node: &DeviceWithMemory, rng: &mut Rng) -> Vec<u8> {
    let kind = untagged(0x41, 0x43, &[(4, Is(0)), (4, Is(0)), (4, Is(1)), (4, Is(0))]);
    fpdu(&kind, 99, node, rng)
}

/// Reads until the stream ends or has been silent for a quarter of a second.
fn read_to_close(stream: &mut TcpStream) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_millis(20)))?;
    let mut bytes = [0; 4096];
    loop {
        match stream.read(&mut bytes) {
            Ok(n) if n > 0 => {}
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => return Ok(()),
        }
    }
}

/// One hostile peer from its request to its end.
fn attack_once(b: &DeviceWithMemory, addr: SocketAddr, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_nodelay(true)?;
    stream.write_all(&request())?;
    let wait = |millis| host::real::host().after(host::Span::from_ms(millis));
    let CmEvent::ConnectRequest(request) = b.cm.get_event(wait(2000))? else {
        anyhow::bail!("an event of another connection")
    };
    let end = b.queue_pair(true)?;
    b.cm.accept(request, &end.qp, &ConnParam::default())?;
    let mut reply = [0; 24];
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.read_exact(&mut reply)?;
    stream.write_all(&first_send(b, rng))?;
    ensure!(matches!(b.cm.get_event(wait(2000))?, CmEvent::Established { .. }), "no connection");
    // The victim has a read outstanding, so read responses are expected.
    let sges = [b.region.sge(0, 64)];
    end.qp.post_send(&SendWr::new(1, SendOp::Read(b.region.remote(0)), &sges))?;
    let kind = rng.one_of(KINDS);
    let wrong = rng.below(kind.fields.len() as u64 + 3) as usize;
    let words = fpdu(kind, wrong, b, rng);
    // The victim may have closed the connection.
    let _ = stream.write_all(&words);
    read_to_close(&mut stream)?;
    drop(stream);
    let began = std::time::Instant::now();
    let CmEvent::Disconnected { .. } = b.cm.get_event(wait(5000))? else { anyhow::bail!("no end") };
    let wc = end.send_cq.wait(wait(5000))?;
    tally.record_reaction(began.elapsed());
    let outside = b.count_changed_canaries()?;
    tally.outside += outside;
    tally.survived += u64::from(outside == 0);
    if outside > 0 {
        tally.add_note(format!("opcode {:#x}, field {wrong}: {words:02x?}, {wc:?}", kind.rdmap));
    }
    while b.device.poll_async_event().is_some() {}
    Ok(())
}

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let (a, b) = (
        DeviceWithMemory::open("iwarp@127.0.0.1(crc=on)")?,
        DeviceWithMemory::open("iwarp@127.0.0.1(crc=on)")?,
    );
    let listener = b.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    let before = ResourceCounts::now();
    while budget.has_time_left() {
        tally.tried += 1;
        if tally.tried.is_multiple_of(50) {
            let mut honest = Round::begin(&a, &b, listener.addr(), tally.tried)?;
            honest.run(8, Duration::from_secs(5))?;
            honest.ensure_established()?;
            honest.finish(true, tally)?;
        } else {
            attack_once(&b, listener.addr(), &mut budget.rng, tally)?;
        }
    }
    before.report_growth(Duration::from_secs(5), tally);
    Ok(())
}
