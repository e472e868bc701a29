//! Single cases of the standard: limits, the order of events, and which side gets which event.

use portals::{
    AckReq, Action, Arrival, CtEvent, Datatype, Engine, Entry, EntryOptions, EqHandle, Error, EventKind,
    Fail, Limits, List, ListId, MdAddr, MdOptions, MemoryDescriptor, Op, Operand, Piece, Process, PtOptions,
    Region, Request, Search, Source, Transfer,
};

const PRIORITY: ListId = ListId { pt_index: 0, list: List::Priority };
const OVERFLOW: ListId = ListId { pt_index: 0, list: List::Overflow };

fn engine(limits: Limits, options: PtOptions, slots: usize) -> (Engine, EqHandle) {
    let mut engine = Engine::new(Process::rank(0), 7, true, limits);
    let eq = engine.eq_alloc(slots).expect("the first");
    engine.pt_alloc(options, Some(eq), Some(0)).expect("the first");
    (engine, eq)
}

fn entry(options: EntryOptions, len: u64) -> Entry {
    Entry::taking_all(Region::new(0x1000, len), options | EntryOptions::OP_PUT)
}

fn put(length: u64) -> Request {
    Request {
        operation: 9,
        action: Action::Put,
        ack: AckReq::Full,
        initiator: Process::rank(3),
        uid: 7,
        pt_index: 0,
        match_bits: 5,
        remote_offset: 0,
        length,
        hdr_data: 0,
    }
}

/// Delivers a message; returns its offset and length, or why it was refused.
fn send(engine: &mut Engine, request: &Request) -> Result<(u64, u64), Fail> {
    match engine.arrive(request) {
        Arrival::Refused(answer) => Err(answer.map_or(Fail::Ok, |answer| answer.fail)),
        Arrival::Deliver(delivery) => {
            let (_, offset, mlength) = delivery.place();
            engine.deliver(delivery, Fail::Ok);
            Ok((offset, mlength))
        }
        Arrival::Wait => panic!("this interface is not patient"),
    }
}

fn kinds(engine: &mut Engine, eq: EqHandle) -> Vec<EventKind> {
    std::iter::from_fn(|| engine.eq_get(eq).expect("a queue")).map(|(event, _)| event.kind).collect()
}

#[test]
fn use_once_entry_claims_the_first_header() {
    let (mut engine, eq) = engine(Limits::default(), PtOptions::empty(), 100);
    let options = EntryOptions::MANAGE_LOCAL;
    let over = Entry { min_free: 8, ..entry(options, 20) };
    engine.append(OVERFLOW, over, 1).expect("room");
    assert_eq!(send(&mut engine, &put(10)), Ok((0, 10)));
    assert_eq!(send(&mut engine, &put(4)), Ok((10, 4)));
    use EventKind::{AutoFree, AutoUnlink, Link, Put, PutOverflow};
    assert_eq!(kinds(&mut engine, eq), [Link, Put, Put, AutoUnlink], "fewer than 8 bytes are left");
    assert_eq!(send(&mut engine, &put(1)), Err(Fail::Dropped));

    let once = engine.append(PRIORITY, entry(EntryOptions::USE_ONCE, 10), 2).expect("room");
    let (event, _) = engine.eq_get(eq).expect("a queue").expect("an overflow");
    assert_eq!((event.kind, event.start, event.mlength, event.user_ptr), (PutOverflow, 0x1000, 10, 2));
    assert_eq!((kinds(&mut engine, eq), engine.unlink(once)), (vec![AutoUnlink], Err(Error::ArgInvalid)));
    engine.append(PRIORITY, entry(EntryOptions::empty(), 10), 3).expect("room");
    assert_eq!(
        kinds(&mut engine, eq),
        [PutOverflow, AutoFree, Link],
        "the last header of the overflow entry"
    );
    assert_eq!(engine.status().drops, 1);
}

/// Goal: an entry can match a message whose data are still in flight, and gets its event when they have
/// arrived.
#[test]
fn header_with_data_in_flight_can_be_claimed() {
    let (mut engine, eq) = engine(Limits::default(), PtOptions::empty(), 100);
    let quiet = EntryOptions::EVENT_LINK_DISABLE;
    let over = engine.append(OVERFLOW, entry(quiet, 100), 1).expect("room");
    let Arrival::Deliver(delivery) = engine.arrive(&put(8)) else { panic!("the entry takes it") };
    engine.search(0, entry(quiet, 0), Search::Only, 4).expect("a table entry");
    engine.append(PRIORITY, entry(quiet | EntryOptions::USE_ONCE, 8), 2).expect("room");
    assert_eq!(kinds(&mut engine, eq), [EventKind::Search], "not told yet");
    assert_eq!((engine.unlink(over), engine.pt_free(0)), (Err(Error::InUse), Err(Error::PtInUse)));
    let answer = engine.deliver(delivery, Fail::Ok).expect("it was asked for");
    assert_eq!((answer.operation, answer.list, answer.mlength), (9, List::Overflow, 8));
    use EventKind::{AutoUnlink, Put, PutOverflow};
    assert_eq!(kinds(&mut engine, eq), [Put, PutOverflow, AutoUnlink]);
    assert_eq!((engine.unlink(over), engine.pt_free(0)), (Ok(()), Ok(())));
}

#[test]
fn flow_control_disables_for_each_of_its_three_reasons() {
    let flow = PtOptions::FLOWCTRL;
    let last = |engine: &mut Engine, eq| kinds(engine, eq).last().copied();
    let refused = Err(Fail::PtDisabled);

    let (mut engine1, eq) = engine(Limits::default(), flow, 4);
    assert_eq!(send(&mut engine1, &put(0)), refused, "no entry");
    assert_eq!(last(&mut engine1, eq), Some(EventKind::PtDisabled));
    engine1.append(PRIORITY, entry(EntryOptions::EVENT_LINK_DISABLE, 0), 0).expect("room");
    assert_eq!(send(&mut engine1, &put(0)), refused, "it stays disabled");
    assert_eq!(kinds(&mut engine1, eq), [], "and that is told once");
    engine1.pt_enable(0).expect("an entry");
    (0..4).for_each(|_| assert!(send(&mut engine1, &put(0)).is_ok()));
    assert_eq!(send(&mut engine1, &put(0)), refused, "no slot");
    assert_eq!(kinds(&mut engine1, eq).len(), 5, "four and one beyond");

    let (mut engine2, eq) = engine(Limits { max_unexpected_headers: 2, ..Limits::default() }, flow, 100);
    engine2.append(OVERFLOW, entry(EntryOptions::EVENT_LINK_DISABLE, 0), 0).expect("room");
    (0..2).for_each(|_| assert!(send(&mut engine2, &put(0)).is_ok()));
    assert_eq!((send(&mut engine2, &put(0)), last(&mut engine2, eq)), (refused, Some(EventKind::PtDisabled)));
    assert_eq!(engine2.status().drops, 1);
}

#[test]
fn limits_are_kept() {
    let limits = Limits {
        max_entries: 3,
        max_list_size: 2,
        max_mds: 1,
        max_eqs: 1,
        max_cts: 1,
        max_iovecs: 1,
        max_triggered_ops: 1,
        max_pt_index: 63,
        max_msg_size: 10,
        max_atomic_size: 8,
        ..Limits::default()
    };
    let (mut engine, eq) = engine(limits, PtOptions::empty(), 100);
    assert_eq!(engine.eq_alloc(1), Err(Error::NoSpace));
    for index in 1..=63 {
        assert_eq!(engine.pt_alloc(PtOptions::empty(), None, None), Ok(index));
    }
    assert_eq!(engine.pt_alloc(PtOptions::empty(), None, None), Err(Error::PtFull));
    assert_eq!(engine.pt_alloc(PtOptions::empty(), None, Some(63)), Err(Error::PtInUse));
    assert_eq!(engine.pt_alloc(PtOptions::empty(), None, Some(64)), Err(Error::ArgInvalid));
    assert_eq!(engine.pt_alloc(PtOptions::FLOWCTRL, None, None), Err(Error::PtEqNeeded));

    let plain = || entry(EntryOptions::empty(), 4);
    (0..2).for_each(|_| assert!(engine.append(PRIORITY, plain(), 0).is_ok()));
    assert_eq!(engine.append(PRIORITY, plain(), 0), Err(Error::ListTooLong));
    engine.append(OVERFLOW, plain(), 0).expect("the third");
    assert_eq!(engine.append(OVERFLOW, plain(), 0), Err(Error::NoSpace));
    let pieces = Region::from_pieces(&[Piece { addr: 0, len: 1 }; 2]).expect("two bytes");
    let two = Entry { region: pieces.clone(), ..plain() };
    assert_eq!(engine.search(0, two, Search::Only, 0), Err(Error::ArgInvalid));

    let ct = engine.ct_alloc().expect("the first");
    assert_eq!(engine.ct_alloc(), Err(Error::NoSpace));
    let md = |region| MemoryDescriptor { region, options: MdOptions::empty(), eq: Some(eq), counter: None };
    assert_eq!(engine.md_bind(md(pieces)), Err(Error::ArgInvalid));
    let bound = engine.md_bind(md(Region::new(0, 32))).expect("the first");
    assert_eq!(engine.md_bind(md(Region::new(0, 32))), Err(Error::NoSpace));
    let transfer = |action: Action, length, offset| Transfer {
        action,
        put: action.brings().then_some(MdAddr { md: bound, offset }),
        get: action.fetches().then_some(MdAddr { md: bound, offset }),
        length,
        ack: AckReq::None,
        target: Process::rank(1),
        pt_index: 0,
        match_bits: 0,
        remote_offset: 0,
        user_ptr: 0,
        hdr_data: 0,
    };
    let (sum, swap) = (Action::Atomic(Op::Sum, Datatype::Int32), Op::Cswap);
    let cswap = Action::Swap(swap, Datatype::Int32, Operand::default());
    for (action, length, offset, want) in [
        (Action::Put, 10, 22, Ok(())),
        (Action::Put, 11, 0, Err(Error::ArgInvalid)),
        (Action::Put, 10, 23, Err(Error::ArgInvalid)),
        (Action::Get, 1, u64::MAX, Err(Error::ArgInvalid)),
        (sum, 8, 0, Ok(())),
        (sum, 12, 0, Err(Error::ArgInvalid)),
        (sum, 6, 0, Err(Error::ArgInvalid)),
        (cswap, 4, 0, Ok(())),
        (cswap, 8, 0, Err(Error::ArgInvalid)),
        (Action::Atomic(swap, Datatype::Int32), 4, 0, Err(Error::ArgInvalid)),
        (Action::FetchAtomic(Op::Min, Datatype::FloatComplex), 8, 0, Err(Error::ArgInvalid)),
    ] {
        assert_eq!(
            engine.transfer(&transfer(action, length, offset)),
            want,
            "{action:?} of {length} at {offset}"
        );
    }
    engine.trigger(ct, 1, &transfer(Action::Put, 1, 0)).expect("the first");
    assert_eq!(engine.trigger(ct, 1, &transfer(Action::Put, 1, 0)), Err(Error::NoSpace));
    let counting = Transfer { ack: AckReq::Counting, ..transfer(Action::Put, 1, 0) };
    assert_eq!(engine.transfer(&counting), Err(Error::ArgInvalid), "the descriptor has no counter");
}

/// Goal: `max_volatile_size` limits puts and atomics from a volatile descriptor, and nothing else. Method:
/// transfers of exactly that length and of one byte more, from a volatile and an ordinary descriptor.
#[test]
fn volatile_transfer_longer_than_its_limit_is_refused() {
    let limits = Limits { max_volatile_size: 8, ..Limits::default() };
    let (mut engine, eq) = engine(limits, PtOptions::empty(), 100);
    let mut bind = |options| {
        let md = MemoryDescriptor { region: Region::new(0, 32), options, eq: Some(eq), counter: None };
        engine.md_bind(md).expect("room")
    };
    let [volatile, plain] = [MdOptions::VOLATILE, MdOptions::empty()].map(&mut bind);
    let add = Action::Atomic(Op::Sum, Datatype::Int8);
    let fetch = Action::FetchAtomic(Op::Sum, Datatype::Int8);
    for (action, md, length, want) in [
        (Action::Put, volatile, 8, Ok(())),
        (Action::Put, volatile, 9, Err(Error::ArgInvalid)),
        (add, volatile, 8, Ok(())),
        (add, volatile, 9, Err(Error::ArgInvalid)),
        (fetch, volatile, 9, Err(Error::ArgInvalid)),
        (Action::Get, volatile, 9, Ok(())),
        (Action::Put, plain, 9, Ok(())),
    ] {
        let transfer = Transfer {
            action,
            put: action.brings().then_some(MdAddr { md, offset: 0 }),
            get: action.fetches().then_some(MdAddr { md, offset: 0 }),
            length,
            ack: AckReq::None,
            target: Process::rank(1),
            pt_index: 0,
            match_bits: 0,
            remote_offset: 0,
            user_ptr: 0,
            hdr_data: 0,
        };
        assert_eq!(engine.transfer(&transfer), want, "{action:?} of {length}");
    }
}

/// Goal: counters trigger their operations in the order of thresholds, also across counters; cancelled
/// operations do not run.
#[test]
fn counters_trigger_chains() {
    let (mut engine, eq) = engine(Limits::default(), PtOptions::empty(), 100);
    let cts: Vec<_> = (0..40).map(|_| engine.ct_alloc().expect("room")).collect();
    let one = CtEvent { success: 1, failure: 0 };
    for pair in cts.windows(2) {
        engine.trigger_ct_inc(pair[0], 1, pair[1], one).expect("room");
    }
    let last = cts[39];
    let handle = engine.trigger_append(last, 1, PRIORITY, entry(EntryOptions::empty(), 4), 11).expect("room");
    engine.trigger_unlink(last, 2, handle).expect("room");
    assert_eq!(send(&mut engine, &put(0)), Err(Fail::Dropped), "it is in no list yet");
    engine.ct_inc(cts[0], one).expect("a counter");
    assert_eq!((kinds(&mut engine, eq), engine.ct_get(last)), (vec![EventKind::Link], Ok(one)));
    assert!(send(&mut engine, &put(0)).is_ok());
    engine.ct_inc(last, CtEvent { success: 0, failure: 1 }).expect("a counter");
    assert_eq!(engine.unlink(handle), Err(Error::ArgInvalid), "a failure counts, too");

    let waiting =
        engine.trigger_append(last, 9, PRIORITY, entry(EntryOptions::empty(), 4), 12).expect("room");
    engine.ct_cancel(last).expect("a counter");
    engine.ct_set(last, CtEvent { success: 9, failure: 0 }).expect("a counter");
    assert_eq!(engine.unlink(waiting), Err(Error::ArgInvalid));
    assert_eq!(send(&mut engine, &put(0)), Err(Fail::Dropped));
}

#[test]
fn first_entry_accepts_everything_without_matching() {
    let mut engine = Engine::new(Process::rank(0), 7, false, Limits::default());
    engine.pt_alloc(PtOptions::empty(), None, Some(0)).expect("the first");
    let picky = Entry {
        match_bits: 1,
        ignore_bits: 0,
        source: Source::exactly(Process::rank(8)),
        ..entry(EntryOptions::empty(), 4)
    };
    let once = Entry { options: picky.options | EntryOptions::USE_ONCE, ..picky.clone() };
    engine.append(PRIORITY, once, 1).expect("room");
    engine.append(PRIORITY, Entry { region: Region::new(0, 2), ..picky.clone() }, 2).expect("room");
    assert_eq!((send(&mut engine, &put(4)), send(&mut engine, &put(4))), (Ok((0, 4)), Ok((0, 2))));
    let local = Entry { options: EntryOptions::MANAGE_LOCAL, ..picky };
    assert_eq!(engine.append(PRIORITY, local, 3), Err(Error::ArgInvalid));
}
