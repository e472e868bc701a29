//! [`roce`]: the requests of a trace as a capture of RoCE v2 packets, for Wireshark.
//!
//! The packets are made up: a device in software sends none. A request becomes one packet when it is posted, and its completion the
//! acknowledgement, response or NAK that a card would get then. The data of messages are not in a trace: packets have other bytes
//! instead, without which Wireshark reports them as malformed. Formats: IBA volume 1, chapter 9, and annex A17.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use crate::format::flag;
use crate::job::{Job, Process};
use crate::names::{Event, Operation};
use crate::pcapng::{header, packet, udp};
use crate::read::{Class, Object, Record, What};
use crate::select::Selection;

/// The UDP port of RoCE v2 (IBA annex A17.3.1).
const ROCE_PORT: u16 = 4791;
/// The most data of a packet. On a card, a longer message is several packets of this path MTU.
const DATA_MAX: usize = 1024;
/// In place of data. Wireshark takes zeros for the header of another protocol, SMB Direct.
const DATA_BYTE: u8 = 0xff;
/// The invariant CRC at the end of a packet (IBA annex A17.3.3).
const CRC_BYTES: usize = 4;

const COMMENT: &str = "Made up by nicety from a trace: one RoCE v2 packet for each request, and one for its completion, at the times at \
                       which the program posted and polled. No such packets were sent. Data are bytes 0xff, checksums are zeros. A message of more \
                       than 1 KiB is one packet with 1 KiB; the RETH of a write or read has its true length.";

/// Operation codes of reliable connections (IBA 9.2.1).
mod opcode {
    pub(super) const SEND: u8 = 0x04;
    pub(super) const SEND_IMM: u8 = 0x05;
    pub(super) const WRITE: u8 = 0x0a;
    pub(super) const WRITE_IMM: u8 = 0x0b;
    pub(super) const READ: u8 = 0x0c;
    pub(super) const READ_RESPONSE: u8 = 0x10;
    pub(super) const ACKNOWLEDGE: u8 = 0x11;
    pub(super) const ATOMIC_ACKNOWLEDGE: u8 = 0x12;
    pub(super) const COMPARE_SWAP: u8 = 0x13;
    pub(super) const FETCH_ADD: u8 = 0x14;
    pub(super) const SEND_INVALIDATE: u8 = 0x17;
}

/// The number of a queue pair in packets: 0 and 1 are those of management, whose packets Wireshark shows differently.
fn packet_number(object: &Object) -> u32 {
    match object.reported_number() {
        number @ 0..=1 => number | 0x80_0000,
        number => number,
    }
}

/// The ends of a queue pair's connection.
#[derive(Clone, Copy)]
struct Ends {
    local: SocketAddr,
    peer: SocketAddr,
    number: u32,
    peer_number: u32,
}

/// The requests that are selected, as a capture.
#[must_use]
pub fn roce(job: &Job, selection: &Selection) -> Vec<u8> {
    let ends = ends(job);
    let base_ns = job.processes.iter().map(|process| process.trace.start_unix_ns).min().unwrap_or(0);
    let mut packets: Vec<(u64, Vec<u8>)> = Vec::new();
    for (number, process) in job.processes.iter().enumerate() {
        let mut next_psn: BTreeMap<u32, u32> = BTreeMap::new();
        for request in &process.requests.all {
            let posted = &process.trace.records[request.posted];
            let Some(ends) = ends.get(&(number, posted.fields.object)).filter(|_| posted.what == What::Send)
            else {
                continue;
            };
            let psn = next_psn.entry(posted.fields.object).or_default();
            let own = *psn;
            *psn = psn.wrapping_add(1) & 0x00ff_ffff;
            if !selection.wants(process, posted) {
                continue;
            }
            let mut add = |time_ps: u64, bytes: Vec<u8>| {
                let ns = base_ns.saturating_add(process.axis_ps(time_ps) / 1000);
                packets.push((ns, packet(ns, &bytes)));
            };
            add(posted.fields.time_ps, request_packet(posted, ends, own));
            let done = request.completed.filter(|_| !request.is_implied).map(|at| &process.trace.records[at]);
            if let Some((done, answer)) = done.and_then(|done| Some((done, answer(posted, done, ends, own)?)))
            {
                add(done.fields.time_ps, answer);
            }
        }
    }
    packets.sort_by_key(|(ns, _)| *ns);
    let mut file = header(COMMENT, "trace");
    packets.iter().for_each(|(_, packet)| file.extend_from_slice(packet));
    file
}

/// The connections of all queue pairs, by process and object.
fn ends(job: &Job) -> BTreeMap<(usize, u32), Ends> {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut found = BTreeMap::new();
    let mut by_ends = BTreeMap::new();
    for (number, process) in job.processes.iter().enumerate() {
        let locals = locals(process);
        for (id, object) in process.trace.objects.iter().filter(|(_, object)| object.class == Class::Qp) {
            let (local, peer) =
                locals.get(id).copied().unwrap_or((nowhere, object.name.parse().unwrap_or(nowhere)));
            let own_number = packet_number(object);
            let own = Ends { local, peer, number: own_number, peer_number: own_number };
            by_ends.insert((local, peer), own.number);
            found.insert((number, *id), own);
        }
    }
    for ends in found.values_mut() {
        // Without the trace of the peer, its number is unknown, and the own one distinguishes the connection.
        ends.peer_number = by_ends.get(&(ends.peer, ends.local)).copied().unwrap_or(ends.number);
    }
    found
}

/// Both addresses of queue pairs, from the events of their connections: `LOCAL with PEER`.
fn locals(process: &Process) -> BTreeMap<u32, (SocketAddr, SocketAddr)> {
    let events = process
        .trace
        .records
        .iter()
        .filter(|record| record.what == What::Event && record.fields.code == Event::Established as u8);
    let of = |record: &Record| {
        let (local, peer) = record.text.as_deref()?.split_once(" with ")?;
        Some((record.fields.object, (local.parse().ok()?, peer.parse().ok()?)))
    };
    events.filter_map(of).collect()
}

/// A packet of a reliable connection: a base transport header (IBA 9.2), further headers, and the length of the data.
struct Message {
    code: u8,
    is_solicited: bool,
    wants_answer: bool,
    psn: u32,
    headers: Vec<u8>,
    data: usize,
}

impl Message {
    /// The IP packet from one end to the queue pair `number` of the other end.
    fn datagram(&self, (from, from_number): (SocketAddr, u32), (to, number): (SocketAddr, u32)) -> Vec<u8> {
        let data = self.data.min(DATA_MAX);
        // The data end at a multiple of four bytes, and the base transport header counts the added bytes (IBA 9.2.4).
        let pad = data.next_multiple_of(4) - data;
        let [_, high, middle, low] = number.to_be_bytes();
        let [_, psn_high, psn_middle, psn_low] = self.psn.to_be_bytes();
        let flags = u8::from(self.is_solicited) << 7 | (pad as u8) << 4;
        let asks = u8::from(self.wants_answer) << 7;
        let mut content =
            vec![self.code, flags, 0xff, 0xff, 0, high, middle, low, asks, psn_high, psn_middle, psn_low];
        content.extend_from_slice(&self.headers);
        content.resize(content.len() + data, DATA_BYTE);
        content.resize(content.len() + pad + CRC_BYTES, 0);
        // A card chooses the source port so that the packets of a connection take one way.
        let from = SocketAddr::new(from.ip(), 0xc000 | (from_number as u16 & 0x3fff));
        udp(from, SocketAddr::new(to.ip(), ROCE_PORT), &content)
    }
}

fn request_packet(posted: &Record, ends: &Ends, psn: u32) -> Vec<u8> {
    let fields = &posted.fields;
    let has = |flag: u8| fields.flags & flag != 0;
    let is = |operation: Operation| fields.code == operation as u8;
    let code = if is(Operation::Write) {
        if has(flag::IMM) { opcode::WRITE_IMM } else { opcode::WRITE }
    } else if is(Operation::Read) {
        opcode::READ
    } else if is(Operation::CompareSwap) {
        opcode::COMPARE_SWAP
    } else if is(Operation::FetchAdd) {
        opcode::FETCH_ADD
    } else if has(flag::IMM) {
        opcode::SEND_IMM
    } else if has(flag::INVALIDATE) {
        opcode::SEND_INVALIDATE
    } else {
        opcode::SEND
    };
    let mut headers = Vec::new();
    let is_atomic = is(Operation::CompareSwap) || is(Operation::FetchAdd);
    if !is(Operation::Send) {
        headers.extend_from_slice(&fields.remote.to_be_bytes());
        headers.extend_from_slice(&fields.other.to_be_bytes());
        // The values of atomics are not recorded.
        if is_atomic {
            headers.extend_from_slice(&[0; 16]);
        } else {
            headers.extend_from_slice(&fields.bytes.to_be_bytes());
        }
    }
    if has(flag::IMM) || has(flag::INVALIDATE) {
        headers.extend_from_slice(&fields.extra.to_be_bytes());
    }
    let data = if is(Operation::Read) || is_atomic { 0 } else { fields.bytes as usize };
    let (is_solicited, wants_answer) = (has(flag::SOLICITED), has(flag::SIGNALED));
    let message = Message { code, is_solicited, wants_answer, psn, headers, data };
    message.datagram((ends.local, ends.number), (ends.peer, ends.peer_number))
}

/// What the peer answers; `None` if a card has no packet for that status.
fn answer(posted: &Record, done: &Record, ends: &Ends, psn: u32) -> Option<Vec<u8>> {
    // The syndromes of IBA 9.7.5.2.1: acknowledgement without a limit of credits, RNR NAK, NAK codes.
    let syndrome = match crate::names::status(done.fields.result) {
        "SUCCESS" => 0x1f,
        "RNR_RETRY_EXC_ERR" => 0x20,
        "REM_INV_REQ_ERR" => 0x61,
        "REM_ACCESS_ERR" => 0x62,
        "REM_OP_ERR" => 0x63,
        _ => return None,
    };
    let is = |operation: Operation| posted.fields.code == operation as u8 && syndrome == 0x1f;
    let (code, data) = if is(Operation::Read) {
        (opcode::READ_RESPONSE, posted.fields.bytes as usize)
    } else if is(Operation::CompareSwap) || is(Operation::FetchAdd) {
        (opcode::ATOMIC_ACKNOWLEDGE, 0)
    } else {
        (opcode::ACKNOWLEDGE, 0)
    };
    // The acknowledgement header: the syndrome, and the number of messages so far.
    let [_, high, middle, low] = psn.wrapping_add(1).to_be_bytes();
    let mut headers = vec![syndrome, high, middle, low];
    if code == opcode::ATOMIC_ACKNOWLEDGE {
        // The value before the operation is not recorded.
        headers.extend_from_slice(&[0; 8]);
    }
    let message = Message { code, is_solicited: false, wants_answer: false, psn, headers, data };
    Some(message.datagram((ends.peer, ends.peer_number), (ends.local, ends.number)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Fields, entry, kind};
    use crate::read::tests::File;

    /// A file with a queue pair 0x30 whose connection is established.
    fn connected() -> File {
        let mut file = File::new();
        file.qp(3, false);
        file.entry(entry::OBJECT, &[2 | 1 << 32, 1], "");
        let text = file.entry(entry::TEXT, &[], "10.0.0.9:55 with 10.0.0.1:7");
        let code = Event::Established as u8;
        file.record(Fields { kind: kind::EVENT, code, object: 3, extra: text, ..Fields::default() });
        file
    }

    /// The packets of a request and of its completion, behind the headers of IP and UDP.
    fn exchange(request: Fields, result: u16) -> [Vec<u8>; 2] {
        let mut file = connected();
        let fields = Fields { kind: kind::SEND, flags: request.flags | flag::SIGNALED, object: 3, ..request };
        file.record(fields);
        file.completion(9_000, 0x30, request.id, result);
        let capture = roce(&Job::new(vec![("x".into(), file.read())]), &Selection::default());
        let packets = crate::pcapng::tests::packets(&capture);
        let contents = packets.into_iter().map(|(_, packet)| {
            let udp_len = usize::from(packet[24]) << 8 | usize::from(packet[25]);
            assert_eq!(udp_len + 20, packet.len());
            packet[28..].to_vec()
        });
        contents.collect::<Vec<_>>().try_into().expect("two packets")
    }

    #[test]
    fn requests_and_completions_become_packets() {
        let mut file = connected();
        file.record(Fields {
            time_ps: 5_000,
            kind: kind::SEND,
            code: Operation::Write as u8,
            flags: flag::SIGNALED,
            object: 3,
            id: 7,
            bytes: 300,
            other: 0x0102_0304,
            remote: 0x1122_3344_5566_7788,
            ..Fields::default()
        });
        file.completion(9_000, 0x30, 7, 6);
        let capture = roce(&Job::new(vec![("x".into(), file.read())]), &Selection::default());
        let packets = crate::pcapng::tests::packets(&capture);
        assert_eq!(packets.len(), 2);
        let (time, write) = &packets[0];
        assert_eq!((*time, write.len()), (5, 20 + 8 + 28 + 300 + 4));
        assert_eq!(write[12..20], [10, 0, 0, 9, 10, 0, 0, 1]);
        assert_eq!(write[22..24], ROCE_PORT.to_be_bytes());
        assert_eq!(write[28..40], [opcode::WRITE, 0, 0xff, 0xff, 0, 0, 0, 0x30, 0x80, 0, 0, 0]);
        assert_eq!(
            write[40..56],
            [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 1, 2, 3, 4, 0, 0, 1, 0x2c]
        );
        assert!(write[56..356].iter().all(|byte| *byte == DATA_BYTE) && write[356..] == [0; 4]);
        let (time, nak) = &packets[1];
        assert_eq!((*time, nak[28], nak[40]), (9, opcode::ACKNOWLEDGE, 0x62));
        assert_eq!(nak[12..20], [10, 0, 0, 1, 10, 0, 0, 9]);
        assert_eq!(nak[22..24], ROCE_PORT.to_be_bytes());
    }

    /// Goal: Wireshark finds the end of the data. Method: lengths that are no multiple of four bytes, and that exceed a packet.
    #[test]
    fn data_are_padded_and_limited() {
        for (bytes, data, pad) in
            [(0, 0, 0), (1, 4, 3), (301, 304, 3), (302, 304, 2), (1023, 1024, 1), (5000, 1024, 0)]
        {
            let request = Fields { code: Operation::Write as u8, bytes, ..Fields::default() };
            let [write, _] = exchange(request, 0);
            assert_eq!((write.len(), write[1]), (12 + 16 + data + 4, pad << 4), "{bytes}");
            assert_eq!(write[24..28], bytes.to_be_bytes());
        }
        let flags = flag::SOLICITED;
        let [send, _] = exchange(Fields { flags, bytes: 2, ..Fields::default() }, 0);
        assert_eq!((send[0], send[1], send.len()), (opcode::SEND, 0x80 | 2 << 4, 12 + 4 + 4));
    }

    #[test]
    fn numbers_of_management_are_not_used() {
        let numbers = [0, 1, 2, 0x5d_0000].map(|number: u64| {
            packet_number(&Object {
                class: Class::Qp,
                device: 1,
                created_ps: 0,
                words: [number << 32, 0, 0, 0],
                name: "".into(),
            })
        });
        assert_eq!(numbers, [0x80_0000, 0x80_0001, 2, 0x5d_0000]);
    }

    #[test]
    fn operations_have_their_headers() {
        let fields = |operation, flags| Fields {
            code: operation as u8,
            flags,
            bytes: 8,
            extra: 0x0506_0708,
            ..Fields::default()
        };
        for (operation, flags, code, len, answer_code, answer_len) in [
            (Operation::Send, 0, opcode::SEND, 8, opcode::ACKNOWLEDGE, 4),
            (Operation::Send, flag::IMM, opcode::SEND_IMM, 4 + 8, opcode::ACKNOWLEDGE, 4),
            (Operation::Send, flag::INVALIDATE, opcode::SEND_INVALIDATE, 4 + 8, opcode::ACKNOWLEDGE, 4),
            (Operation::Write, flag::IMM, opcode::WRITE_IMM, 16 + 4 + 8, opcode::ACKNOWLEDGE, 4),
            (Operation::Read, 0, opcode::READ, 16, opcode::READ_RESPONSE, 4 + 8),
            (Operation::CompareSwap, 0, opcode::COMPARE_SWAP, 28, opcode::ATOMIC_ACKNOWLEDGE, 4 + 8),
            (Operation::FetchAdd, 0, opcode::FETCH_ADD, 28, opcode::ATOMIC_ACKNOWLEDGE, 4 + 8),
        ] {
            let [request, answer] = exchange(fields(operation, flags), 0);
            assert_eq!((request[0], request.len()), (code, 12 + len + 4), "{operation:?}");
            assert_eq!((answer[0], answer.len()), (answer_code, 12 + answer_len + 4), "{operation:?}");
            assert_eq!(answer[12..16], [0x1f, 0, 0, 1]);
            if flags != 0 {
                assert_eq!(request[len..len + 4], [5, 6, 7, 8], "before the 8 bytes of data and the CRC");
            }
        }
        let [_, refused] = exchange(fields(Operation::Read, 0), 6);
        assert_eq!((refused[0], refused.len(), refused[12]), (opcode::ACKNOWLEDGE, 12 + 4 + 4, 0x62));
    }
}
