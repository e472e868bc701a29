//! The models as the benchmarks' own test: a card with chosen values is measured by the real experiments, and what they
//! report is what was put in.

use bench::experiment::{Cell, Settings, variant};
use bench::launch::world::measure;

const CARD: &str = "model:mt23108-nicmem";

/// What an experiment reports of the card with these values instead of its own.
fn reported(values: &str, experiment: &str, factors: &[(&str, &str)], size: u64) -> f64 {
    let device = if values.is_empty() { CARD.to_owned() } else { format!("{CARD}({values})") };
    let cell = Cell { experiment: experiment.into(), variant: variant(factors), size, ..Cell::default() };
    let settings = Settings { inline: 0, signal: 1, ..Settings::default() };
    measure(&device, &cell, &settings).unwrap_or_else(|why| panic!("{cell} on {device}: {why}")).value
}

#[track_caller]
fn within(value: f64, wanted: f64, percent: f64) {
    let off = (value / wanted - 1.0).abs() * 100.0;
    assert!(off <= percent, "{value} is {off:.2} % off {wanted}");
}

#[test]
fn calls_take_what_was_put_in() {
    for (value, experiment, factors, us) in [
        ("host.post_send_ns=1500", "post", [("op", "send")], 1.5),
        ("host.post_receive_ns=900", "post", [("op", "recv")], 0.9),
        ("host.poll_full_ns=2000", "poll", [("state", "full")], 2.0),
        ("host.poll_empty_ns=333", "poll", [("state", "empty")], 0.333),
        ("host.connect_ns=500000", "connect", [("step", "call")], 500.0),
        ("host.destroy_ns=70000", "connect", [("step", "destroy")], 70.0),
    ] {
        let size = if experiment == "connect" { 0 } else { 8 };
        within(reported(value, experiment, &factors, size), us, 0.1);
    }
    within(
        reported("host.register_ns=40000,host.register_page_ns=0", "reg", &[("op", "reg")], 65536),
        40.0,
        0.1,
    );
    within(
        reported("host.deregister_ns=9000,host.deregister_page_ns=250", "reg", &[("op", "dereg")], 8192),
        9.25,
        0.1,
    );
}

#[test]
fn rates_are_those_of_what_limits() {
    let copy = [("op", "memcpy"), ("source", "host"), ("sink", "host")];
    within(reported("host.copy_mbps=500,host.copy_ns=0", "nicmem", &copy, 1 << 20), 500.0, 0.1);
    let host = [("op", "write"), ("source", "host"), ("sink", "host")];
    within(reported("dma.read_mbps=200", "bandwidth", &host, 1 << 20), 200.0, 1.0);
    // Without headers and gaps a link carries data only.
    let link = "link.rate_mbps=300,link.gap_bytes=0,link.header_bytes=0,link.address_bytes=0";
    within(reported(link, "bandwidth", &host, 1 << 20), 300.0, 1.0);
    let nic = [("op", "copy"), ("source", "nic"), ("sink", "nic")];
    within(
        reported("nic_memory.rate_mbps=1000,nic_memory.efficiency_ratio=1", "nicmem", &nic, 1 << 20),
        500.0,
        1.0,
    );
}

/// Goal: nothing is lost between a card and a latency. Method: a switch that takes 2 us more makes each message, which
/// passes it once, 2 us slower; polling sees that to within one look.
#[test]
fn latency_grows_by_what_was_added() {
    let write = [("op", "write"), ("source", "host"), ("sink", "host")];
    let base = reported("", "latency", &write, 8);
    let slow = reported("switch.latency_ns=2200", "latency", &write, 8);
    within(slow - base, 2.0, 2.0);
}
