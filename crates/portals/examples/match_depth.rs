//! The cost of matching by depth: `cargo run --release -p portals --example match_depth [ENTRIES]`.
//!
//! An empty message arrives, is delivered, and its event is read. The matching entry is the only one of its
//! list, or the first, the last, or any of many. The cases alternate; results are medians of 21 turns.

use std::time::Instant;

use portals::{
    AckReq, Action, Arrival, Engine, Entry, EntryOptions, EqHandle, Fail, Limits, List, ListId, Process,
    PtOptions, Region, Request, Source,
};

const TURNS: usize = 21;
const MESSAGES: u64 = 20_000;

/// An interface with `entries` entries of different bits in one list, which name sources and bits according
/// to `shape`.
fn interface(entries: u64, shape: Shape) -> (Engine, EqHandle) {
    let mut engine = Engine::new(Process::rank(0), 0, true, Limits::MOST);
    let eq = engine.eq_alloc(16).expect("the first");
    engine.pt_alloc(PtOptions::empty(), Some(eq), Some(0)).expect("the first");
    let options = EntryOptions::OP_PUT | EntryOptions::EVENT_LINK_DISABLE;
    for bits in 0..entries {
        let all = Entry::taking_all(Region::new(0, 0), options);
        let source =
            if shape == Shape::Source { Source::exactly(Process::rank(bits as u32)) } else { Source::ANY };
        let ignore_bits = if shape == Shape::Bits { 0 } else { 1 << 63 };
        let place = ListId { pt_index: 0, list: List::Priority };
        engine.append(place, Entry { source, match_bits: bits, ignore_bits, ..all }, bits).expect("room");
    }
    (engine, eq)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Shape {
    /// No bits are ignored, and all sources are admitted.
    Bits,
    /// One bit is ignored, and one source is admitted.
    Source,
    /// One bit is ignored, and all sources are admitted: entries cannot be hashed.
    Neither,
}

/// Nanoseconds per message; `which` selects the entry of each message.
fn turn((engine, eq): &mut (Engine, EqHandle), messages: u64, which: impl Fn(u64) -> u64) -> f64 {
    let begin = Instant::now();
    for number in 0..messages {
        let bits = which(number);
        let request = Request {
            operation: 0,
            action: Action::Put,
            ack: AckReq::None,
            initiator: Process::rank(bits as u32),
            uid: 0,
            pt_index: 0,
            match_bits: bits,
            remote_offset: 0,
            length: 0,
            hdr_data: number,
        };
        let Arrival::Deliver(delivery) = engine.arrive(&request) else { panic!("an entry takes it") };
        engine.deliver(delivery, Fail::Ok);
        let (event, _) = engine.eq_get(*eq).expect("a queue").expect("it was told");
        assert_eq!((event.user_ptr, event.hdr_data), (bits, number));
    }
    begin.elapsed().as_nanos() as f64 / messages as f64
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let entries: u64 = std::env::args().nth(1).map_or(10_000, |n| n.parse().expect("a number of entries"));
    println!(
        "{:>8}  {:>7}  {:>7}  {:>7}  {:>7}  of {entries} entries, ns a message",
        "by", "only", "first", "last", "any"
    );
    for shape in [Shape::Bits, Shape::Source, Shape::Neither] {
        let messages = if shape == Shape::Neither { MESSAGES / 100 } else { MESSAGES };
        let (mut one, mut many) = (interface(1, shape), interface(entries, shape));
        let mut times: [Vec<f64>; 4] = Default::default();
        for _ in 0..TURNS {
            times[0].push(turn(&mut one, messages, |_| 0));
            times[1].push(turn(&mut many, messages, |_| 0));
            times[2].push(turn(&mut many, messages, |_| entries - 1));
            times[3].push(turn(&mut many, messages, |number| number.wrapping_mul(7919) % entries));
        }
        let [only, first, last, any] = times.each_mut().map(|times| median(times));
        println!("{:>8}  {only:7.1}  {first:7.1}  {last:7.1}  {any:7.1}", format!("{shape:?}"));
    }
}
