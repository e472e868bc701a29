//! The models as a test of the benchmarks: the real experiments measure a card with chosen values, and must report
//! those values.

use bench::experiment::{Cell, Fault, Settings};
use bench::launch::world::measure;
use results::variant::variant;

const CARD: &str = "model:mt23108-nicmem";

/// The result of an experiment for the card with these values instead of its own.
fn reported(values: &str, experiment: &str, factors: &[(&str, &str)], size: u64) -> f64 {
    tried(values, experiment, factors, size)
        .unwrap_or_else(|why| panic!("{experiment} {factors:?} with {values}: {why}"))
}

/// The same, or why it reports nothing.
fn tried(values: &str, experiment: &str, factors: &[(&str, &str)], size: u64) -> Result<f64, Fault> {
    let device = if values.is_empty() { CARD.to_owned() } else { format!("{CARD}({values})") };
    let cell = Cell { experiment: experiment.into(), variant: variant(factors), size, ..Cell::default() };
    let settings = Settings { inline: 0, signal: 1, ..Settings::default() };
    measure(&device, &cell, &settings).map(|measured| measured.value)
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
    // Bursts of 512 bytes, one after the other: 571 ns on the bus, plus its latency.
    let reads = "dma.outstanding_requests=1,dma.read_latency_ns=1989";
    within(reported(reads, "bandwidth", &host, 1 << 20), 200.0, 1.0);
    // Without headers and gaps a link carries data only.
    let link = "link.rate_mbps=300,link.gap_bytes=0,link.header_bytes=0,link.address_bytes=0";
    within(reported(link, "bandwidth", &host, 1 << 20), 300.0, 1.0);
    let nic = [("op", "copy"), ("source", "nic"), ("sink", "nic")];
    within(
        reported(
            "nic_memory.rate_mbps=1000,nic_memory.efficiency_ratio=1,nic_memory.open_ns=0",
            "nicmem",
            &nic,
            1 << 20,
        ),
        500.0,
        1.0,
    );
}

/// Goal: virtual time measures what repeats, as real time does, and not the first use of each page. Method: a card whose
/// translation of a page takes 100 us at its first use; MPI uses all slots of its rings in turn.
#[test]
fn the_first_use_of_pages_is_no_part_of_a_latency() {
    let device = |miss: &str| format!("model:quadrics-elan3(translation.miss_ns={miss})");
    let latency = |miss: &str| {
        let cell = Cell {
            experiment: "mpi-latency".into(),
            variant: variant(&[("layer", "mpi")]),
            size: 8,
            ..Cell::default()
        };
        measure(&device(miss), &cell, &Settings::default()).expect("measured").value
    };
    within(latency("100000"), latency("0"), 0.1);
}

/// Goal: nothing is lost between a card and a latency. Method: a switch that takes 2 us more makes each message,
/// which passes it once, 2 us slower; polling sees that to within one poll.
#[test]
fn latency_grows_by_what_was_added() {
    let write = [("op", "write"), ("source", "host"), ("sink", "host")];
    let base = reported("", "latency", &write, 8);
    let slow = reported("switch.latency_ns=2200", "latency", &write, 8);
    within(slow - base, 2.0, 2.0);
}

const HOST: [(&str, &str); 3] = [("op", "send"), ("source", "host"), ("sink", "host")];

/// The factors of a send between host memory, and some more.
fn send<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    HOST.iter().chain(more).copied().collect()
}

/// A message costs the processor the configured post and poll, and no idle poll.
#[test]
fn overhead_is_that_of_post_and_poll() {
    let values = "host.post_send_ns=1500,host.poll_full_ns=2000,host.poll_empty_ns=700";
    for (part, us) in [("both", 3.5), ("post", 1.5), ("poll", 2.0)] {
        within(reported(values, "overhead", &send(&[("part", part)]), 8), us, 0.1);
    }
}

/// Goal: the cost of notifying the target is found. Method: each message that takes a receive costs 3 us more; plain
/// writes take none.
#[test]
fn notification_costs_what_was_put_in() {
    let write = [("op", "write"), ("source", "host"), ("sink", "host"), ("by", "imm"), ("part", "extra")];
    let extra = |receive: f64, poll: f64| {
        // Polls are so short that their phase does not matter.
        let values = format!(
            "transport.receive_message_ns={receive},host.poll_full_ns={poll},host.poll_empty_ns=20,host.poll_word_ns=20"
        );
        reported(&values, "notify", &write, 64)
    };
    let base = extra(700.0, 1000.0);
    within(extra(3700.0, 1000.0) - base, 3.0, 5.0);
    within(extra(700.0, 3000.0) - base, 2.0, 5.0);
}

#[test]
fn sleeping_costs_the_interrupt_and_the_wake_up() {
    let values = "interrupt.latency_ns=7000,interrupt.wake_up_ns=5000,interrupt.woken_threads=1";
    within(reported(values, "blocking", &send(&[("wait", "event"), ("part", "extra")]), 8), 12.0, 5.0);
}

/// Goal: the share of the processor that is left is found. Method: posting takes so long that 4 messages each way
/// take 3 to 60 % of an iteration's time, which the experiment itself reports as a bandwidth.
#[test]
fn the_share_left_for_computing_is_found() {
    const SIZE: u64 = 64 << 10;
    for post_us in [1.0, 10.0, 50.0] {
        let values =
            format!("host.post_send_ns={},host.post_receive_ns=1000,host.poll_full_ns=500", post_us * 1000.0);
        let share = reported(&values, "availability", &send(&[("quantity", "share")]), SIZE);
        let bandwidth = reported(&values, "availability", &send(&[("compute", "0")]), SIZE);
        let (iteration, work) = (8.0 * SIZE as f64 / bandwidth, 4.0 * (post_us + 1.0) + 8.0 * 0.5);
        within(share, 100.0 * (1.0 - work / iteration), 1.0);
        within(100.0 - share, 100.0 * work / iteration, 5.0);
    }
}

/// Bandwidth stays while the computation fits into the time of the messages, and falls beyond.
#[test]
fn bandwidth_falls_where_computing_no_longer_fits() {
    let at = |percent| reported("", "availability", &send(&[("compute", percent)]), 1 << 20);
    let alone = at("0");
    within(at("90"), alone, 1.0);
    within(at("200"), alone / 2.0, 3.0);
}

#[test]
fn the_translation_cache_is_as_large_as_was_put_in() {
    for entries in [100, 704, 3000] {
        let values = format!("translation.cache_entries={entries}");
        let found = reported(&values, "reuse", &[("scheme", "fit"), ("pages", "8192")], 8);
        within(found, f64::from(entries), 1.0);
    }
    let vast = tried("translation.cache_entries=100000", "reuse", &[("scheme", "fit"), ("pages", "2048")], 8);
    let why = vast.expect_err("no knee").to_string();
    assert!(why.contains("no knee found") && why.contains("2048 pages"), "{why}");
}

/// Scheme 1 loses bandwidth if the buffers' pages exceed the card's translation cache, and not before; scheme 2 the
/// more, the fewer messages use the common buffer.
#[test]
fn reuse_shows_in_bandwidth_as_the_cache_says() {
    const SIZE: u64 = 64 << 10;
    // 16 pages each: 8 buffers fit at either side, 20 do not.
    let values = "translation.cache_entries=160,translation.miss_ns=20000";
    let first = |buffers| {
        let factors = [("quantity", "bandwidth"), ("scheme", "1"), ("buffers", buffers)];
        reported(values, "reuse", &factors, SIZE)
    };
    within(first("8"), first("1"), 2.0);
    assert!(first("20") < 0.7 * first("8"));
    let latency = |buffers| {
        let factors = [("quantity", "latency"), ("scheme", "1"), ("buffers", buffers)];
        reported(values, "reuse", &factors, 4096)
    };
    // A source and a sink of a page each for every buffer.
    within(latency("75"), latency("1"), 1.0);
    assert!(latency("100") > latency("1") + 20.0);
    let second = |share| {
        let factors = [("quantity", "bandwidth"), ("scheme", "2"), ("reuse", share)];
        reported(values, "reuse", &factors, SIZE)
    };
    let all = [second("100"), second("75"), second("50"), second("0")];
    assert!(all.windows(2).all(|w| w[1] < 0.98 * w[0]), "{all:?}");
}

/// Each further segment costs its sender the configured time.
#[test]
fn segments_cost_what_was_put_in() {
    let latency = |ns: u32, pieces| {
        let values = format!("transport.send_segment_ns={ns}");
        reported(&values, "segments", &[("quantity", "latency"), ("segments", pieces)], 1024)
    };
    within(latency(1100, "8") - latency(100, "8"), 7.0, 5.0);
    within(latency(1100, "1"), latency(100, "1"), 0.1);
}

/// If the wire is the limit, a packet of n bytes and 256 more takes its share of it.
#[test]
fn the_mtu_divides_messages_as_asked() {
    let values = "link.rate_mbps=300,link.gap_bytes=100,link.header_bytes=156,link.address_bytes=0";
    for (mtu, share) in [("256", 0.5), ("1024", 0.8), ("2048", 8.0 / 9.0)] {
        let found = reported(values, "mtu", &[("quantity", "bandwidth"), ("mtu", mtu)], 1 << 20);
        within(found, 300.0 * share, 2.0);
    }
    let too_large = tried("", "mtu", &[("quantity", "latency"), ("mtu", "4096")], 64);
    let why = too_large.expect_err("refused").to_string();
    assert!(why.contains("MTU") && why.contains("2048"), "{why}");
}

/// No connection's state is ever missing in the model, so none is found to be.
#[test]
fn connections_cost_nothing_where_nothing_is_missed() {
    for quantity in ["latency", "bandwidth"] {
        let over = |qps| reported("", "connections", &[("quantity", quantity), ("qps", qps)], 64);
        within(over("64"), over("1"), 3.0);
    }
}

/// Goal: a hot spot of many is served one by one. Method: posting takes so long that it alone limits the master.
#[test]
fn a_hot_spot_serves_each_at_the_rate_that_was_put_in() {
    const VALUES: &str = "host.post_send_ns=20000,host.poll_full_ns=1000,host.post_receive_ns=500";
    // Answers wait until all notes are out, and then take a poll and a receive each.
    for (op, us) in [("send", 20.0), ("send-receive", 20.0 + 1.0 + 0.5)] {
        let factors = |slaves| [("op", op), ("source", "host"), ("sink", "host"), ("slaves", slaves)];
        let time = |slaves| reported(VALUES, "hotspot", &factors(slaves), 64);
        within((time("63") - time("31")) / 32.0, us, 2.0);
    }
}

/// 1,024 simulated machines, each really there.
#[test]
fn a_thousand_machines_make_a_hot_spot() {
    let factors = [("op", "send"), ("source", "host"), ("sink", "host"), ("slaves", "1023")];
    let time = reported("host.post_send_ns=20000", "hotspot", &factors, 64);
    within(time, 1023.0 * 20.0, 5.0);
}

/// An MPI message each way posts one request, as a plain send does; a barrier of twice the ranks has one step more.
#[test]
fn mpi_costs_what_was_put_in() {
    let latency = |values, layer| reported(values, "mpi-latency", &[("layer", layer)], 8);
    for layer in ["mpi", "verbs"] {
        let more = latency("host.post_send_ns=3000", layer) - latency("host.post_send_ns=1000", layer);
        within(more, 2.0, 10.0);
    }
    assert!(latency("", "mpi") > latency("", "verbs"));
    let barrier = |ranks| reported("", "mpi-barrier", &[("ranks", ranks)], 0);
    within(barrier("64") / barrier("8"), 2.0, 15.0);
}

/// The result of an experiment over two rails for two cards with these values.
fn over_rails(values: &str, experiment: &str, factors: &[(&str, &str)], size: u64) -> f64 {
    let device = format!("model:connectx-multihca({values})");
    let cell = Cell { experiment: experiment.into(), variant: variant(factors), size, ..Cell::default() };
    measure(&device, &cell, &Settings::default()).unwrap_or_else(|why| panic!("{device}: {why}")).value
}

/// Goal: cards and threads of one machine cost each other the configured times.
#[test]
fn rails_cost_what_was_put_in() {
    let late = |values: &str, engine| over_rails(values, "rail-latency", &[("engine", engine)], 64);
    // Both in an operation of 20 writes: the client's fork and join; two turns at either end.
    let threads = late("host.thread_ns=102500", "threads") - late("host.thread_ns=2500", "threads");
    within(threads, 5.0, 5.0);
    let turns = late("software.turn_ns=100000", "serial") - late("software.turn_ns=0", "serial");
    within(turns, 4.0 * 100.0 / 20.0, 5.0);
    let post = [("engine", "single"), ("part", "post")];
    let drained = "doorbell.drain_ns=2000,host.post_send_ns=100,chipset.asleep_ratio=1";
    within(over_rails(drained, "rail-breakdown", &post, 64), 19.0 * 2.0 + 0.1, 1.0);
    let fast = |values: &str, engine| over_rails(values, "rail-bandwidth", &[("engine", engine)], 1 << 20);
    within(fast("chipset.read_mbps=1000", "threads"), 1000.0, 1.0);
    within(fast("chipset.asleep_ratio=0.5", "single"), 900.0, 1.0);
    within(fast("chipset.asleep_ratio=0.5", "threads"), fast("", "threads"), 0.1);
    let both = |ratio: &str| {
        let chipset = "chipset.read_mbps=0,chipset.write_mbps=0,chipset.banks_rows=0";
        let values = format!("bus.other_ratio={ratio},{chipset}");
        over_rails(&values, "rail-bibw", &[("engine", "threads")], 1 << 20)
    };
    within(both("0") / both("0.25"), 1.25, 1.0);
}

/// Goal: how the programs of one library wait is no property of the card. Method: uDAPL's waits take 100 us more; a send of
/// plain verbs, a write, and a message of MPI take what they did.
#[test]
fn waits_of_udapl_cost_no_other_program() {
    let wakes = ["software.wake_ns=0", "software.wake_ns=100000"];
    let [quick, slow] = wakes.map(|values| over_rails(values, "rail-latency", &[("engine", "single")], 64));
    // One of each side in an operation of 20 writes.
    within(slow - quick, 200.0 / 20.0, 1.0);
    let send = [("op", "send"), ("source", "host"), ("sink", "host")];
    for (experiment, factors) in [("latency", &send[..]), ("mpi-latency", &[("layer", "mpi")])] {
        let [quick, slow] = wakes.map(|values| over_rails(values, experiment, factors, 4));
        assert_eq!(quick, slow, "{experiment}");
        assert!(slow < 5.0, "{experiment} takes {slow} us, more than its messages");
    }
}

/// Goal: computation takes virtual time at the given rate, and the result is the published one on a card, too.
/// Method: a single rank computes all that NAS counts; four share it, and find each other over the card.
#[test]
fn computing_takes_what_was_put_in() {
    let kernel = |experiment: &str, ranks: &str, mops: u32| {
        let variant = variant(&[("class", "S"), ("ranks", ranks)]);
        let cell = Cell { experiment: experiment.into(), variant, ..Cell::default() };
        let settings = Settings { mops, ..Settings::default() };
        let measured = measure(CARD, &cell, &settings).unwrap_or_else(|why| panic!("{cell}: {why}"));
        assert_eq!(measured.unit, "s");
        measured.value
    };
    // IS ranks 2^16 keys ten times; CG's operations are counted by NAS' formula, and its matrix has a few places less.
    // Of vectors, all ranks of a column of CG's grid compute the same part.
    for (experiment, operations, more) in [("nas-is", 655_360.0, 10.0), ("nas-cg", 66.65e6, 12.0)] {
        within(kernel(experiment, "1", 1), operations / 1e6, 1.0);
        let four = kernel(experiment, "4", 1);
        within(four, operations / 4e6, more);
        assert!(four > operations / 4e6, "messages take time, too: {four}");
    }
}

/// Goal: ranks of one machine share its card, and communicate by the device chosen for that; two runs are identical.
/// Method: two pairs that stream over one card or two; sums of eight ranks, where two of three rounds are within a
/// machine.
#[test]
fn ranks_of_one_machine_share_its_card() {
    let of = |experiment: &str, factors: &[(&str, &str)], size: u64| {
        let cell = Cell { experiment: experiment.into(), variant: variant(factors), size, ..Cell::default() };
        let once = || {
            measure("model:t3b", &cell, &Settings::default()).unwrap_or_else(|why| panic!("{cell}: {why}"))
        };
        let measured = once();
        assert_eq!(measured, once(), "{cell}");
        measured.value
    };
    let rate = |factors: &[(&str, &str)]| of("mpi-rate", factors, 256 << 10);
    within(rate(&[("ranks", "4")]) / rate(&[("ranks", "4"), ("per-node", "2")]), 2.0, 5.0);
    let sum = |more: &[(&str, &str)]| {
        of("mpi-allreduce", &[&[("ranks", "8"), ("path", "ring"), ("calls", "row")], more].concat(), 8)
    };
    let inside = [("per-node", "4"), ("inside", "model:t3b-memory")];
    assert!(sum(&inside) < 0.6 * sum(&[]), "{} and {}", sum(&inside), sum(&[]));
}
