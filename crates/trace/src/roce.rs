//! [`roce`]: the requests of a trace as a capture of RoCE v2 packets, for Wireshark.
//!
//! The packets are made up: a device in software sends none. A request becomes one packet when it is posted, and its completion the
//! acknowledgement, response or NAK that a card would get then. The data of messages are not in a trace: packets have zeros instead,
//! without which Wireshark reports them as malformed. Formats: IBA volume 1, chapter 9, and annex A17.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};

use crate::format::flag;
use crate::job::{Job, Process};
use crate::names::{Event, Operation};
use crate::pcapng::{header, packet, udp};
use crate::read::{Class, Record, What};
use crate::select::Selection;

/// The UDP port of RoCE v2 (IBA annex A17.3.1).
const ROCE_PORT: u16 = 4791;
/// The longest datagram: 1,024 bytes of data with their headers. Longer messages would be several packets.
const DATAGRAM_MAX: usize = 1_100;

const COMMENT: &str = "Made up by nicety from a trace: one RoCE v2 packet for each request, and one for its completion, at the times at \
                       which the program posted and polled. No such packets were sent. Data are zeros; a message of more than 1 KiB is \
                       one short packet, whose RETH has the true length.";

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
        let mut next_psn: HashMap<u32, u32> = HashMap::new();
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
            let mut add = |time_ps: u64, bytes: (Vec<u8>, usize)| {
                let ns = base_ns.saturating_add(process.axis_ps(time_ps) / 1000);
                packets.push((ns, packet(ns, &bytes.0, bytes.1)));
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
fn ends(job: &Job) -> HashMap<(usize, u32), Ends> {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut found = HashMap::new();
    let mut by_ends = HashMap::new();
    for (number, process) in job.processes.iter().enumerate() {
        let locals = locals(process);
        for (id, object) in process.trace.objects.iter().filter(|(_, object)| object.class == Class::Qp) {
            let (local, peer) =
                locals.get(id).copied().unwrap_or((nowhere, object.name.parse().unwrap_or(nowhere)));
            let own =
                Ends { local, peer, number: object.reported_number(), peer_number: object.reported_number() };
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
fn locals(process: &Process) -> HashMap<u32, (SocketAddr, SocketAddr)> {
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

/// The base transport header (IBA 9.2): operation, destination and packet sequence number.
fn base(code: u8, is_solicited: bool, number: u32, psn: u32, wants_answer: bool) -> Vec<u8> {
    let [_, high, middle, low] = number.to_be_bytes();
    let [_, psn_high, psn_middle, psn_low] = psn.to_be_bytes();
    let flags = if is_solicited { 0x80 } else { 0 };
    let asks = if wants_answer { 0x80 } else { 0 };
    vec![code, flags, 0xff, 0xff, 0, high, middle, low, asks, psn_high, psn_middle, psn_low]
}

/// An IP packet from one end to the other, with zeros for the data and the invariant CRC; and that no bytes are missing.
fn datagram(from: SocketAddr, to: SocketAddr, number: u32, headers: &[u8], data: usize) -> (Vec<u8>, usize) {
    let mut content = headers.to_vec();
    content.resize((headers.len() + data + 4).min(DATAGRAM_MAX), 0);
    // A card chooses the source port so that the packets of a connection take one way.
    let from = SocketAddr::new(from.ip(), 0xc000 | (number as u16 & 0x3fff));
    (udp(from, SocketAddr::new(to.ip(), ROCE_PORT), &content, 0), 0)
}

fn request_packet(posted: &Record, ends: &Ends, psn: u32) -> (Vec<u8>, usize) {
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
    let mut headers = base(code, has(flag::SOLICITED), ends.peer_number, psn, has(flag::SIGNALED));
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
    datagram(ends.local, ends.peer, ends.number, &headers, data)
}

/// What the peer answers; `None` if no packet tells of that status.
fn answer(posted: &Record, done: &Record, ends: &Ends, psn: u32) -> Option<(Vec<u8>, usize)> {
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
        (opcode::ATOMIC_ACKNOWLEDGE, 8)
    } else {
        (opcode::ACKNOWLEDGE, 0)
    };
    let mut headers = base(code, false, ends.number, psn, false);
    let [_, high, middle, low] = (psn.wrapping_add(1)).to_be_bytes();
    headers.extend_from_slice(&[syndrome, high, middle, low]);
    Some(datagram(ends.peer, ends.local, ends.peer_number, &headers, data))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Fields, entry, kind};
    use crate::read::tests::File;

    #[test]
    fn requests_and_completions_become_packets() {
        let mut file = File::new();
        file.qp(3, false);
        file.entry(entry::OBJECT, &[2 | 1 << 32, 1], "");
        let text = file.entry(entry::TEXT, &[], "10.0.0.9:55 with 10.0.0.1:7");
        let code = Event::Established as u8;
        file.record(Fields { kind: kind::EVENT, code, object: 3, extra: text, ..Fields::default() });
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
        let (time, len, write) = &packets[0];
        assert_eq!((*time, *len), (5, 20 + 8 + 28 + 300 + 4));
        assert_eq!(write[12..20], [10, 0, 0, 9, 10, 0, 0, 1]);
        assert_eq!(write[22..24], ROCE_PORT.to_be_bytes());
        assert_eq!(write[28..40], [opcode::WRITE, 0, 0xff, 0xff, 0, 0, 0, 0x30, 0x80, 0, 0, 0]);
        assert_eq!(
            write[40..56],
            [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 1, 2, 3, 4, 0, 0, 1, 0x2c]
        );
        let (_, _, nak) = &packets[1];
        assert_eq!((nak[28], nak[40]), (opcode::ACKNOWLEDGE, 0x62));
        assert_eq!(nak[12..20], [10, 0, 0, 1, 10, 0, 0, 9]);
    }
}
