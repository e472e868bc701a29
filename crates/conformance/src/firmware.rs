//! Programs that the NIC runs ([`verbs::Device::load`]): their inputs, their operations, and the order of the effects.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::Env;
use super::harness::check::{assert_same_bytes, pattern};
use super::harness::conn::region;
use super::harness::env::Waiter;
use host::{ClockKind, Span};
use verbs::{Access, Device, Error, Firmware, MemoryKind, Message, Mr, NicCtx, Pd, Program, Result, Sge};

type OnCommand = Box<dyn FnMut(&mut dyn NicCtx, &[u8]) + Send>;
type OnMessage = Box<dyn FnMut(&mut dyn NicCtx, &Message<'_>) + Send>;
type OnTurn = Box<dyn FnMut(&mut dyn NicCtx) + Send>;

/// A program that is composed by the test.
struct TestFirmware {
    on_command: OnCommand,
    on_message: OnMessage,
    on_turn: OnTurn,
}

impl TestFirmware {
    fn new() -> Self {
        let on_turn = Box::new(|_: &mut dyn NicCtx| panic!("no turn was asked for"));
        Self { on_command: Box::new(|_, _| ()), on_message: Box::new(|_, _| ()), on_turn }
    }

    fn command(self, body: impl FnMut(&mut dyn NicCtx, &[u8]) + Send + 'static) -> Self {
        Self { on_command: Box::new(body), ..self }
    }

    fn message(self, body: impl FnMut(&mut dyn NicCtx, &Message<'_>) + Send + 'static) -> Self {
        Self { on_message: Box::new(body), ..self }
    }

    fn turn(self, body: impl FnMut(&mut dyn NicCtx) + Send + 'static) -> Self {
        Self { on_turn: Box::new(body), ..self }
    }
}

impl Firmware for TestFirmware {
    fn on_command(&mut self, nic: &mut dyn NicCtx, command: &[u8]) {
        (self.on_command)(nic, command);
    }

    fn on_message(&mut self, nic: &mut dyn NicCtx, message: &Message<'_>) {
        (self.on_message)(nic, message);
    }

    fn on_turn(&mut self, nic: &mut dyn NicCtx) {
        (self.on_turn)(nic);
    }
}

/// A device with memory for a program. Events are written to its first KiB, the rest is for data.
struct FirmwareSide {
    device: Device,
    pd: Pd,
    mr: Mr,
    waiter: Waiter,
}

const EVENTS: usize = 1024;
const LEN: usize = 16 << 10;

impl FirmwareSide {
    fn new(env: &Env, device: &Device) -> Self {
        let pd = device.alloc_pd().expect("a protection domain");
        let mr = region(env, &pd, MemoryKind::Host, LEN, Access::LOCAL_WRITE);
        mr.buf().fill(0);
        Self { device: device.clone(), pd, mr, waiter: env.waiter.clone() }
    }

    /// Loads a program; `None` if the device reports that it runs none, and refuses.
    #[track_caller]
    fn load(&self, program: TestFirmware) -> Option<Program> {
        let possible = self.device.attr().firmware.is_some();
        match self.device.load(&self.pd, any_address(), Box::new(program)) {
            Ok(program) => {
                assert!(possible && program.addr().port() > 0 && !program.addr().ip().is_unspecified());
                Some(program)
            }
            Err(refusal) => {
                assert!(!possible && matches!(refusal, Error::Unsupported { .. }), "{refusal:?}");
                None
            }
        }
    }

    /// The place of an event of `words` words.
    fn slot(&self, slot: usize, words: usize) -> Sge {
        self.mr.sge((slot * words * 8) as u64, (words * 8) as u32)
    }

    /// Sleeps until the last word of an event is not 0; returns all of its words.
    #[track_caller]
    fn event<const WORDS: usize>(&self, program: &Program, slot: usize) -> [u64; WORDS] {
        let at = |word| self.mr.buf().word((slot * WORDS + word) * 8).expect("aligned");
        let look = || (at(WORDS - 1).load(Ordering::Acquire) != 0).then_some(());
        let found = self.device.host().wait("an event of a program", program, self.waiter.deadline(), look);
        found.unwrap_or_else(|| panic!("no event {slot} in time"));
        std::array::from_fn(|word| at(word).load(Ordering::Relaxed))
    }
}

fn any_address() -> SocketAddr {
    (Ipv4Addr::UNSPECIFIED, 0).into()
}

/// A record of words.
fn record(words: &[u64]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Commands are executed in order and whole, and commands that are too long are refused.
pub(super) fn commands_are_executed_in_order(env: &Env) {
    let side = FirmwareSide::new(env, &env.a);
    let (slots, mut count) = ((0..50).map(|slot| side.slot(slot, 2)).collect::<Vec<_>>(), 0);
    let program = side.load(TestFirmware::new().command(move |nic, command| {
        let sum = command.iter().map(|&byte| u64::from(byte)).sum::<u64>();
        nic.event(slots[count], &record(&[sum, command.len() as u64])).expect("registered");
        nic.interrupt();
        count += 1;
    }));
    let Some(program) = program else { return };
    let most = program.cap().max_command as usize;
    let lengths = [1, 7, 8, 64, most].into_iter().cycle().take(50);
    for (slot, len) in lengths.enumerate() {
        let command = pattern(slot as u64, len);
        program.command(&command).expect("room");
        let sum = command.iter().map(|&byte| u64::from(byte)).sum();
        assert_eq!(side.event(&program, slot), [sum, len as u64]);
    }
    let refusal = program.command(&vec![0; most + 1]);
    assert!(matches!(refusal, Err(Error::Limit { .. })), "{refusal:?}");
}

/// A message carries its sender, header and payload, gathered at the sender and scattered at the receiver; its event is
/// visible only after its bytes.
pub(super) fn messages_carry_header_and_payload(env: &Env) {
    let (near, far) = (FirmwareSide::new(env, &env.a), FirmwareSide::new(env, &env.b));
    let (mut slot, mr) = (0, (far.mr.lkey(), far.mr.addr()));
    let events: Vec<_> = (0..6).map(|slot| far.slot(slot, 4)).collect();
    let receiver = far.load(TestFirmware::new().message(move |nic, message| {
        let half = message.payload_len / 2;
        let place = |offset: u64, len: u64| Sge { addr: mr.1 + offset, length: len as u32, lkey: mr.0 };
        nic.deposit(half, place(EVENTS as u64, message.payload_len - half)).expect("registered");
        nic.deposit(0, place(EVENTS as u64 + 6000, half)).expect("registered");
        let sum = message.header.iter().map(|&byte| u64::from(byte)).sum();
        let said = [message.payload_len, message.from.port().into(), sum, message.header.len() as u64];
        nic.event(events[slot], &record(&said)).expect("registered");
        nic.interrupt();
        slot += 1;
    }));
    let Some(receiver) = receiver else { return };
    let (to, pieces) = (receiver.addr(), near.mr.sge(EVENTS as u64, 0));
    let sender = near.load(TestFirmware::new().command(move |nic, command| {
        let len = u32::from_le_bytes(command[..4].try_into().expect("four"));
        let first = Sge { length: len / 3, ..pieces };
        let rest = Sge { addr: pieces.addr + u64::from(len / 3), length: len - len / 3, ..pieces };
        nic.send(to, &command[4..], &[first, rest]).expect("room");
    }));
    let sender = sender.expect("both or none");
    let most = sender.cap().max_header.min(sender.cap().max_command - 4) as usize;
    for (slot, (len, header)) in
        [(0, 1), (1, 8), (2, 3), (8, 64), (4097, most), (12_000, 9)].into_iter().enumerate()
    {
        let (bytes, header) = (pattern(slot as u64, len), pattern(99, header));
        near.mr.buf().write(EVENTS, &bytes).expect("inside");
        far.mr.buf().write(EVENTS, &vec![0; LEN - EVENTS]).expect("inside");
        sender.command(&[&(len as u32).to_le_bytes()[..], &header].concat()).expect("room");
        let sum = header.iter().map(|&byte| u64::from(byte)).sum();
        let want = [len as u64, sender.addr().port().into(), sum, header.len() as u64];
        assert_eq!(far.event(&receiver, slot), want);
        let there = |at: usize, len: usize| far.mr.buf().to_vec(at..at + len).expect("inside");
        assert_same_bytes("the second half", &there(EVENTS, len - len / 2), &bytes[len / 2..]);
        assert_same_bytes("the first half", &there(EVENTS + 6000, len / 2), &bytes[..len / 2]);
        let after = EVENTS + 6000 + len / 2;
        assert_eq!(there(after, 1), [0], "nothing behind it");
    }
}

/// Matching on the NIC: the host posts entries by commands; a message consumes the first entry with its bits. A message
/// without a match is counted, and a payload that is too long is truncated.
pub(super) fn messages_are_matched_on_the_nic(env: &Env) {
    let (near, far) = (FirmwareSide::new(env, &env.a), FirmwareSide::new(env, &env.b));
    let (place, events) = (far.mr.sge(0, 0), (0..8).map(|slot| far.slot(slot, 2)).collect::<Vec<_>>());
    let (posted, unmatched) =
        (std::sync::Arc::new(std::sync::Mutex::new(Vec::<(u8, u64)>::new())), events[7]);
    let (entries, mut seen, mut lost) = (posted.clone(), 0, 0);
    let target = far.load(
        TestFirmware::new()
            .command(move |nic, command| {
                nic.charge(Span::from_ns(40));
                entries
                    .lock()
                    .expect("no panic")
                    .push((command[0], u64::from(command[1]) * 64 + EVENTS as u64));
            })
            .message(move |nic, message| {
                let mut entries = posted.lock().expect("no panic");
                let found = entries.iter().position(|(bits, _)| *bits == message.header[0]);
                nic.charge(Span::from_ns(30) * found.unwrap_or(entries.len()) as u64);
                let Some(found) = found else {
                    lost += 1;
                    return nic.event(unmatched, &record(&[lost, lost])).expect("registered");
                };
                let (_, offset) = entries.remove(found);
                let length = message.payload_len.min(64) as u32;
                nic.deposit(0, Sge { addr: place.addr + offset, length, ..place }).expect("registered");
                nic.event(events[seen], &record(&[offset, length.into()])).expect("registered");
                nic.interrupt();
                seen += 1;
            }),
    );
    let Some(target) = target else { return };
    let (to, source) = (target.addr(), near.mr.sge(EVENTS as u64, 0));
    let sender = near.load(TestFirmware::new().command(move |nic, command| {
        let piece = Sge { length: command[1].into(), ..source };
        nic.send(to, &command[..1], &[piece]).expect("room");
    }));
    let sender = sender.expect("both or none");
    let bytes = pattern(7, 100);
    near.mr.buf().write(EVENTS, &bytes).expect("inside");
    for (bits, block) in [(1, 0), (2, 1), (1, 2)] {
        target.command(&[bits, block]).expect("room");
    }
    for (slot, (bits, len, block)) in [(1, 10, 0), (3, 5, 9), (1, 100, 2), (2, 64, 1)].into_iter().enumerate()
    {
        sender.command(&[bits, len]).expect("room");
        if bits == 3 {
            continue;
        }
        let (slot, cut) = (slot - usize::from(slot > 1), usize::from(len).min(64));
        let at = block * 64 + EVENTS;
        assert_eq!(far.event(&target, slot), [at as u64, cut as u64]);
        assert_same_bytes("matched", &far.mr.buf().to_vec(at..at + cut).expect("inside"), &bytes[..cut]);
    }
    assert_eq!(far.event(&target, 7), [1, 1], "one matched nothing");
    assert_eq!(far.mr.buf().to_vec(EVENTS + 192..EVENTS + 256).expect("inside"), [0; 64]);
}

/// A long transfer: the sender announces it, the target's program requests it once it has a buffer, and the sender's
/// program answers with the bytes. No host takes part in between.
pub(super) fn target_program_fetches_payload(env: &Env) {
    let (near, far) = (FirmwareSide::new(env, &env.a), FirmwareSide::new(env, &env.b));
    let (place, event) = (far.mr.sge(EVENTS as u64, 9000), far.slot(0, 1));
    let target = far.load(TestFirmware::new().message(move |nic, message| {
        if message.payload_len == 0 {
            return nic.send(message.from, b"give", &[]).expect("room");
        }
        nic.deposit(0, place).expect("registered");
        nic.event(event, &record(&[message.payload_len])).expect("registered");
        nic.interrupt();
    }));
    let Some(target) = target else { return };
    let (to, source, done) = (target.addr(), near.mr.sge(EVENTS as u64, 9000), near.slot(0, 1));
    let sender = near.load(
        TestFirmware::new().command(move |nic, _| nic.send(to, b"have", &[]).expect("room")).message(
            move |nic, message| {
                assert_eq!((message.from, message.header), (to, &b"give"[..]));
                nic.send(message.from, b"take", &[source]).expect("room");
                // When this is visible, the payload has been read.
                nic.event(done, &record(&[1])).expect("registered");
                nic.interrupt();
            },
        ),
    );
    let sender = sender.expect("both or none");
    let bytes = pattern(3, 9000);
    near.mr.buf().write(EVENTS, &bytes).expect("inside");
    sender.command(&[]).expect("room");
    assert_eq!(near.event(&sender, 0), [1]);
    near.mr.buf().fill(0);
    assert_eq!(far.event(&target, 0), [9000]);
    assert_same_bytes("fetched", &far.mr.buf().to_vec(EVENTS..EVENTS + 9000).expect("inside"), &bytes);
}

/// The expected result of a program's access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessResult {
    Done,
    Limit,
    Invalid,
}

fn access_result(result: Result<()>) -> AccessResult {
    match result {
        Ok(()) => AccessResult::Done,
        Err(Error::Limit { .. }) => AccessResult::Limit,
        Err(Error::Invalid(_)) => AccessResult::Invalid,
        Err(other) => panic!("neither a limit nor invalid: {other:?}"),
    }
}

/// Receives the results from a program and compares them.
#[track_caller]
fn expect_results(waiter: &Waiter, results: &Receiver<AccessResult>, want: &[AccessResult]) {
    let got: Vec<AccessResult> =
        want.iter().map(|_| waiter.until("an attempt", || results.try_recv().ok())).collect();
    assert_eq!(got, want);
}

/// Sends the test the result of an access.
fn record_access(report: &Sender<AccessResult>, result: Result<()>) {
    report.send(access_result(result)).expect("the test receives results");
}

/// A program can access registered memory of its domain, with the rights of the region, and no other; no byte beyond a
/// payload, and no record of a wrong size or alignment.
pub(super) fn program_memory_access_is_checked(env: &Env) {
    let side = FirmwareSide::new(env, &env.a);
    let read_only = region(env, &side.pd, MemoryKind::Host, 64, Access::empty());
    let elsewhere = FirmwareSide::new(env, &env.a);
    let (good, tail) = (side.mr.sge(0, 64), side.mr.sge(LEN as u64 - 32, 64));
    let (read_only, foreign) = (read_only_last(&read_only), elsewhere.mr.sge(0, 64));
    let (report, results): (Sender<AccessResult>, _) = channel();
    let report_deposit = report.clone();
    let program = side.load(
        TestFirmware::new()
            .command(move |nic, command| {
                let to = SocketAddr::new(command[..4].try_into().map(<[u8; 4]>::into).expect("four"), 1);
                let word = record(&[u64::MAX]);
                let places = [tail, read_only.1, foreign, Sge { addr: good.addr + 4, ..good }];
                for place in places {
                    record_access(&report, nic.event(place, &word));
                }
                record_access(&report, nic.event(good, &[1; 12]));
                record_access(&report, nic.event(good, &[1; 72]));
                record_access(&report, nic.deposit(0, good));
                for piece in [tail, foreign, read_only.0] {
                    record_access(&report, nic.send(to, &[], &[piece]));
                }
                record_access(&report, nic.send(to, &vec![0; 1 << 20], &[]));
            })
            .message(move |nic, message| {
                let exact = Sge { length: message.payload_len as u32, ..good };
                let more = Sge { length: exact.length + 1, ..good };
                for place in [tail, foreign, Sge { length: exact.length, ..read_only.1 }] {
                    record_access(&report_deposit, nic.deposit(0, Sge { length: 48, ..place }));
                }
                for (offset, place) in [(0, more), (1, exact), (u64::MAX, exact)] {
                    record_access(&report_deposit, nic.deposit(offset, place));
                }
                record_access(&report_deposit, nic.deposit(message.payload_len, Sge { length: 0, ..good }));
            }),
    );
    let Some(program) = program else { return };
    side.mr.buf().fill(0x5a);
    elsewhere.mr.buf().fill(0x5a);
    program.command(&[127, 0, 0, 1]).expect("room");
    let (limit, invalid) = (AccessResult::Limit, AccessResult::Invalid);
    let events = [AccessResult::Invalid; 5].into_iter().chain([limit, limit]);
    let sends = [invalid, invalid, AccessResult::Done, limit];
    expect_results(&side.waiter, &results, &events.chain(sends).collect::<Vec<_>>());
    let (to, piece) = (program.addr(), side.mr.sge(512, 48));
    let sender =
        side.load(TestFirmware::new().command(move |nic, _| nic.send(to, &[], &[piece]).expect("room")));
    sender.expect("as before").command(&[]).expect("room");
    expect_results(
        &side.waiter,
        &results,
        &[invalid, invalid, invalid, limit, limit, limit, AccessResult::Done],
    );
    for mr in [&side.mr, &elsewhere.mr] {
        assert!(
            mr.buf().to_vec(0..LEN).expect("inside").iter().all(|&byte| byte == 0x5a),
            "nothing is written"
        );
    }
}

/// Elements of read-only memory: all of it, and a place for an event.
fn read_only_last(mr: &Mr) -> (Sge, Sge) {
    (mr.sge(0, 64), mr.sge(8, 56))
}

/// An address belongs to one program at a time, and is free after unloading; messages that arrive meanwhile are lost,
/// and their sender continues.
pub(super) fn program_addresses_can_be_reused(env: &Env) {
    let (near, far) = (FirmwareSide::new(env, &env.a), FirmwareSide::new(env, &env.b));
    let (report, observed) = channel();
    let listening = |report: Sender<u8>| {
        TestFirmware::new()
            .message(move |_, message| report.send(message.header[0]).expect("the test receives results"))
    };
    let Some(first) = far.load(listening(report.clone())) else { return };
    let to = first.addr();
    let sender =
        near.load(TestFirmware::new().command(move |nic, command| nic.send(to, command, &[]).expect("room")));
    let sender = sender.expect("both or none");
    sender.command(&[1]).expect("room");
    assert_eq!(near.waiter.until("a message", || observed.try_recv().ok()), 1);
    let refusal = far.device.load(&far.pd, to, Box::new(listening(report.clone()))).map(|p| p.addr());
    assert!(matches!(refusal, Err(Error::Address { .. })), "{refusal:?}");
    let far_away = SocketAddr::from(([192, 0, 2, 1], 0));
    let refusal = far.device.load(&far.pd, far_away, Box::new(TestFirmware::new())).map(|p| p.addr());
    assert!(matches!(refusal, Err(Error::Address { .. })), "{refusal:?}");
    let foreign = near.device.load(&far.pd, any_address(), Box::new(TestFirmware::new())).map(|p| p.addr());
    assert!(matches!(foreign, Err(Error::Foreign { .. })), "{foreign:?}");
    drop(first);
    sender.command(&[2]).expect("room");
    let again = far.device.load(&far.pd, to, Box::new(listening(report))).expect("the address is free");
    assert_eq!(again.addr(), to);
    sender.command(&[4]).expect("room");
    // A message that was still in flight may have found the new program, before this one.
    let observed = || observed.try_recv().ok();
    let got = near.waiter.until("a message", observed);
    assert!(got == 4 || got == 2 && near.waiter.until("the next message", observed) == 4, "{got}");
}

/// All requests for a turn before it are answered by one turn, after everything that waited; a request during a turn
/// causes another one.
pub(super) fn turns_come_once_per_request(env: &Env) {
    let side = FirmwareSide::new(env, &env.a);
    let (events, mut turns) = ((0..3).map(|slot| side.slot(slot, 1)).collect::<Vec<_>>(), 0);
    let program = side.load(
        TestFirmware::new()
            .command(|nic, _| {
                nic.request_turn();
                nic.request_turn();
            })
            .turn(move |nic| {
                nic.event(events[turns], &record(&[turns as u64 + 1])).expect("two turns are asked for");
                nic.interrupt();
                turns += 1;
                if turns == 1 {
                    nic.request_turn();
                }
            }),
    );
    let Some(program) = program else { return };
    program.command(&[]).expect("room");
    assert_eq!((side.event(&program, 0), side.event(&program, 1)), ([1], [2]));
    side.device.host().wait("nothing", &program, side.waiter.short_time(), || None::<()>);
    assert_eq!(side.mr.buf().word(16).expect("aligned").load(Ordering::Acquire), 0, "a third turn came");
}

/// A program that sends faster than the target consumes gets an error, loses nothing, and continues in later turns.
pub(super) fn full_queues_are_reported(env: &Env) {
    const MESSAGES: u64 = 5000;
    let (near, far) = (FirmwareSide::new(env, &env.a), FirmwareSide::new(env, &env.b));
    let (event, mut next) = (far.slot(0, 1), 1);
    let target = far.load(TestFirmware::new().message(move |nic, message| {
        assert_eq!(u64::from_le_bytes(message.header.try_into().expect("eight")), next, "once and in order");
        if next == MESSAGES {
            nic.event(event, &record(&[next])).expect("registered");
            nic.interrupt();
        }
        next += 1;
    }));
    let Some(target) = target else { return };
    let (to, refusals) = (target.addr(), near.slot(0, 1));
    let mut sent = 0_u64;
    let mut refused = 0_u64;
    let mut go_on = move |nic: &mut dyn NicCtx| {
        while sent < MESSAGES {
            match nic.send(to, &(sent + 1).to_le_bytes(), &[]) {
                Ok(()) => sent += 1,
                Err(Error::QueueFull { .. }) => {
                    refused += 1;
                    nic.event(refusals, &record(&[refused])).expect("registered");
                    return nic.request_turn();
                }
                Err(other) => panic!("{other}"),
            }
        }
    };
    let (begin, begun) = channel();
    let sender = near.load(TestFirmware::new().command(|nic, _| nic.request_turn()).turn(move |nic| {
        let _ = begin.send(());
        go_on(nic);
    }));
    let sender = sender.expect("both or none");
    sender.command(&[]).expect("room");
    near.waiter.until("the first turn", || begun.try_recv().ok());
    assert_eq!(far.event(&target, 0), [MESSAGES]);
    let waits = u64::from(sender.cap().max_waiting);
    let refused = near.mr.buf().word(0).expect("aligned").load(Ordering::Acquire);
    assert!(waits >= MESSAGES || refused > 0, "{MESSAGES} messages at once where {waits} may wait");
}

/// Charged time passes on the NIC's processor in virtual time, before the effects that follow: calls of one NIC wait
/// for each other, and neither another NIC nor the host waits. In real time a charge takes no time.
pub(super) fn charges_are_time_of_the_nic(env: &Env) {
    let host = env.a.host();
    let is_virtual = host.clock() == ClockKind::Virtual;
    // Where charges take no time: so long that the test would time out otherwise.
    let call = if is_virtual { Span::from_ms(5) } else { Span::from_secs(3600) };
    let (near, far) = (FirmwareSide::new(env, &env.a), FirmwareSide::new(env, &env.b));
    let busy = |side: &FirmwareSide| {
        let (events, mut calls) = ((0..2).map(|slot| side.slot(slot, 1)).collect::<Vec<_>>(), 0);
        side.load(TestFirmware::new().command(move |nic, _| {
            nic.charge(call);
            nic.event(events[calls], &record(&[1])).expect("registered");
            nic.interrupt();
            calls += 1;
        }))
    };
    let (Some(one), Some(other)) = (busy(&near), busy(&far)) else { return };
    let began = host.now();
    for program in [&one, &one, &other] {
        program.command(&[]).expect("room");
    }
    if !is_virtual {
        // The command has been executed when the event arrives, however long the machine took.
        let _: [[u64; 1]; 2] = [near.event(&one, 1), far.event(&other, 0)];
        return;
    }
    // The host's own work does not wait for the NIC, and the NIC does not wait for the host.
    host.charge(call * 2 / 5);
    assert_eq!(host.now() - began, call * 2 / 5, "commands were carried out by the host");
    let passed = |side: &FirmwareSide, program: &Program, slot| {
        let _: [u64; 1] = side.event(program, slot);
        host.now() - began
    };
    let about = |calls: u64| call * calls..call * calls + Span::from_us(1);
    let (first, beside, second) = (passed(&near, &one, 0), passed(&far, &other, 0), passed(&near, &one, 1));
    assert!(about(1).contains(&first), "the first call took {first}");
    assert!(about(1).contains(&beside), "the other NIC's call took {beside}");
    assert!(about(2).contains(&second), "two calls took {second}");
}

/// A thread that sleeps on a program is woken by each interrupt, even by an interrupt just as it falls asleep.
pub(super) fn interrupts_wake_sleepers(env: &Env) {
    const ROUNDS: u64 = 300;
    let side = std::sync::Arc::new(FirmwareSide::new(env, &env.b));
    let slot = side.slot(0, 1);
    let program = side.load(TestFirmware::new().command(move |nic, command| {
        nic.event(slot, command).expect("registered");
        nic.interrupt();
    }));
    let Some(program) = program else { return };
    let program = std::sync::Arc::new(program);
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let (sleeper, slept_on, observed) = (side.clone(), program.clone(), seen.clone());
    let sleep = Box::new(move || {
        let (host, word) = (sleeper.device.host(), sleeper.mr.buf().word(0).expect("aligned"));
        for round in 1..=ROUNDS {
            let look = || (word.load(Ordering::Acquire) >= round).then_some(());
            // Longer than the other thread waits for this one: that thread reports a lost wake-up.
            let patience = sleeper.waiter.deadline().map(|by| by + (by - host.now()));
            host.wait("an interrupt", &*slept_on, patience, look);
            assert!(patience.is_none_or(|by| host.now() < by), "interrupt {round} woke no sleeper");
            observed.store(round, Ordering::Release);
        }
    });
    let host = env.a.host().clone();
    let command = Box::new(move || {
        let mut rng = host::Rng::new(4);
        for round in 1..=ROUNDS {
            // From no pause to long after the other thread has fallen asleep.
            let pause = Span::from_us([0, 1, 10, 60, 100, 300, 1000][rng.index(7)]);
            host.poll("a pause", host.after(pause), || None::<()>);
            program.command(&record(&[round])).expect("room");
            let observed = || (seen.load(Ordering::Acquire) >= round).then_some(());
            host.poll("the sleeper", side.waiter.deadline(), observed).expect("it woke");
        }
    });
    env.run_concurrently(vec![sleep, command]);
}
