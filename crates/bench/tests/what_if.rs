//! What-ifs as physics: a changed part of a machine changes what passes it, in the direction and at most by the factor that
//! physics allows, and nothing else. No value of a card is compared with a number.

use bench::experiment::{Cell, Settings};
use bench::launch::world::measure;
use results::variant::variant;

/// The result of an experiment on a card with some values changed.
fn of(card: &str, values: &str, experiment: &str, factors: &[(&str, &str)], size: u64) -> f64 {
    let options =
        if values.is_empty() { "payload=hole".to_owned() } else { format!("payload=hole,{values}") };
    let cell = Cell { experiment: experiment.into(), variant: variant(factors), size, ..Cell::default() };
    let settings = Settings { inline: 0, verify: false, ..Settings::default() };
    let device = format!("model:{card}({options})");
    measure(&device, &cell, &settings).unwrap_or_else(|why| panic!("{device} {cell}: {why}")).value
}

/// By what factor a change raises a result.
fn change(card: &str, values: &str, experiment: &str, factors: &[(&str, &str)], size: u64) -> f64 {
    of(card, values, experiment, factors, size) / of(card, "", experiment, factors, size)
}

#[track_caller]
fn between(value: f64, low: f64, high: f64) {
    assert!((low..=high).contains(&value), "{value} is not within {low} to {high}");
}

/// Writes from and to memory of a kind.
fn write(memory: &'static str) -> [(&'static str, &'static str); 3] {
    [("op", "write"), ("source", memory), ("sink", memory)]
}

const NIC_MEMORY: &str = "mt23108-nicmem";
const LARGE: u64 = 1 << 20;

/// Links twice as fast help streams that the link limits, at most twofold, and no streams that the bus limits; a small
/// message gains less than a tenth.
#[test]
fn links_twice_as_fast_help_what_the_link_limits() {
    const TWICE: &str = "link.rate_mbps=2000";
    between(change(NIC_MEMORY, TWICE, "bandwidth", &write("nic"), LARGE), 1.2, 2.0);
    between(change(NIC_MEMORY, TWICE, "bandwidth", &write("host"), LARGE), 0.999, 1.01);
    between(change(NIC_MEMORY, TWICE, "latency", &write("host"), 8), 0.9, 1.0);
    between(change("t3b", "link.rate_mbps=2500", "bandwidth", &write("host"), LARGE), 1.2, 2.0);
}

/// A bus at half its clock halves streams of host memory, about, and leaves streams within the card; small messages lose
/// less than their time on the bus.
#[test]
fn a_bus_of_half_the_clock_slows_what_passes_it() {
    const HALF: &str = "bus.clock_mhz=66.5";
    between(change(NIC_MEMORY, HALF, "bandwidth", &write("host"), LARGE), 0.5, 0.6);
    between(change(NIC_MEMORY, HALF, "bandwidth", &write("nic"), LARGE), 0.99, 1.0);
    between(change(NIC_MEMORY, HALF, "latency", &write("host"), 8), 1.0, 1.15);
}

/// A translation cache four times as large holds four times as many buffers, and changes nothing for one.
#[test]
fn a_larger_translation_cache_moves_the_knee() {
    let rate = |values: &str, buffers: &str| {
        let factors = [("buffers", buffers), ("quantity", "bandwidth"), ("scheme", "1")];
        of("mt23108-vapi", values, "reuse", &factors, 512 << 10)
    };
    const FOUR_TIMES: &str = "translation.cache_entries=4096";
    let full = rate("", "1");
    between(rate(FOUR_TIMES, "1") / full, 0.999, 1.001);
    between(rate("", "16") / full, 0.1, 0.9);
    between(rate(FOUR_TIMES, "16") / full, 0.99, 1.01);
    between(rate(FOUR_TIMES, "100") / full, 0.1, 0.9);
}

/// A wake-up that takes 10 us more makes a wait that sleeps that much longer, once in each direction, and leaves a wait
/// that polls as it was.
#[test]
fn a_slower_wake_up_slows_who_sleeps() {
    let late = |wait: &str| {
        let factors = [("op", "send"), ("source", "host"), ("sink", "host"), ("wait", wait)];
        let [base, slow] = ["interrupt.wake_up_ns=5000", "interrupt.wake_up_ns=15000"]
            .map(|values| of(NIC_MEMORY, values, "blocking", &factors, 8));
        slow - base
    };
    between(late("event"), 9.0, 21.0);
    between(late("poll"), 0.0, 0.0);
}

/// Memory of the card twice as fast helps streams that use it, and no others.
#[test]
fn faster_memory_of_the_card_helps_what_uses_it() {
    const TWICE: &str = "nic_memory.rate_mbps=4000";
    between(change(NIC_MEMORY, TWICE, "bandwidth", &write("host"), LARGE), 0.999, 1.001);
    let copy = [("op", "copy"), ("source", "nic"), ("sink", "nic")];
    between(change(NIC_MEMORY, TWICE, "nicmem", &copy, LARGE), 1.1, 2.0);
}

/// Calls twice as slow cost the processor twice as much, and a stream of large messages nothing.
#[test]
fn slower_calls_cost_the_processor_only() {
    const SLOW: &str = "host.post_send_ns=1440";
    let post = [("op", "send")];
    between(change(NIC_MEMORY, SLOW, "post", &post, 8), 1.9, 2.1);
    between(change(NIC_MEMORY, SLOW, "bandwidth", &write("host"), LARGE), 0.999, 1.001);
}
