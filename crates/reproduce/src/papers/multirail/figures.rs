//! The paper's figures: 4 to 10.

use super::setups::{CARDS_SERIAL, CARDS_THREADS, ONE, PORTS_SERIAL, PORTS_THREADS, RailSetup, SMALL, SWEEP};
use crate::papers::figure::{Axis, BYTES, FigurePlan, MB, US};
use crate::papers::published::MULTIRAIL;

/// Bars of Figures 9 and 10, from left to right.
const BARS: [RailSetup; 3] = [ONE, CARDS_THREADS, CARDS_SERIAL];

fn figure(number: &'static str, experiment: &'static str, title: &'static str) -> FigurePlan {
    FigurePlan::new(MULTIRAIL, number, experiment, title)
}

/// All figures of the paper.
pub(crate) fn plans() -> Vec<FigurePlan> {
    let mut all = vec![latency()];
    all.extend(streams());
    all.extend(breakdowns());
    all
}

/// Figure 4: latency.
fn latency() -> FigurePlan {
    let five = [
        ("single rail", ONE),
        ("two ports, one thread", PORTS_SERIAL),
        ("two ports, threads", PORTS_THREADS),
        ("two cards, one thread", CARDS_SERIAL),
        ("two cards, threads", CARDS_THREADS),
    ];
    let empty = figure("4", "latency", "Time of a write, by rails").axes(BYTES, US);
    let curve =
        |plan: FigurePlan, (name, case): (&str, RailSetup)| plan.curve(name, SMALL, |n| case.latency(n));
    five.into_iter().fold(empty, curve).published_range(0, "MR-048").published_point(4, "MR-054", 4096)
}

/// Figures 5 to 8.
fn streams() -> [FigurePlan; 4] {
    let (ports, cards) = ([PORTS_SERIAL, PORTS_THREADS], [CARDS_SERIAL, CARDS_THREADS]);
    [
        stream("5", "bandwidth_multiport", "Bandwidth over two ports", RailSetup::unidirectional, ports)
            .published_level(0, "MR-064")
            .published_level(2, "MR-070"),
        stream("6", "bandwidth_multihca", "Bandwidth over two cards", RailSetup::unidirectional, cards)
            .published_level(0, "MR-064")
            .published_level(1, "MR-075")
            .published_level(2, "MR-076"),
        stream("7", "bibw_multiport", "Both ways over two ports", RailSetup::bidirectional, ports)
            .published_point(0, "MR-082", 2 << 20)
            .published_point(2, "MR-086", 2 << 20),
        stream("8", "bibw_multihca", "Both ways over two cards", RailSetup::bidirectional, cards)
            .published_point(0, "MR-082", 2 << 20)
            .published_level(1, "MR-089")
            .published_point(2, "MR-092", 128 << 10)
            .published_point(2, "MR-095", 2 << 20),
    ]
}

/// Figures 9 and 10.
fn breakdowns() -> [FigurePlan; 2] {
    let small = figure("9", "breakdown_512", "Where the time goes at 512 B");
    let large = figure("10", "breakdown_4k", "Where the time goes at 4 KiB");
    [
        bars(small, 512, [Some("MR-102"), Some("MR-103"), Some("MR-104")], ["MR-105", "MR-106", "MR-109"]),
        bars(large, 4096, [Some("MR-114"), None, Some("MR-115")], ["MR-116", "MR-117", "MR-118"]),
    ]
}

/// A figure of bars: for each, posting and waiting.
fn bars(
    plan: FigurePlan,
    size: u64,
    posts: [Option<&'static str>; 3],
    waits: [&'static str; 3],
) -> FigurePlan {
    let x =
        Axis::named("rails, and what serves them", &["one rail", "two, a thread each", "two, one thread"]);
    let y = Axis { title: "time of 20 writes (µs)", ..US };
    let mut plan = plan
        .axes(x, y)
        .bars()
        .curve("posting", 1..=3, |bar| BARS[bar as usize - 1].post(size))
        .curve("waiting", 1..=3, |bar| BARS[bar as usize - 1].wait(size));
    for (bar, (post, wait)) in (1..).zip(posts.into_iter().zip(waits)) {
        plan = plan.published_point(1, wait, bar);
        plan = if let Some(post) = post { plan.published_point(0, post, bar) } else { plan };
    }
    plan
}

/// A figure of bandwidth by size: a single rail, one thread for both rails, a thread for each.
fn stream(
    number: &'static str,
    experiment: &'static str,
    title: &'static str,
    of: fn(RailSetup, u64) -> crate::claims::quantity::Quantity,
    [serial, threads]: [RailSetup; 2],
) -> FigurePlan {
    figure(number, experiment, title)
        .axes(BYTES, MB)
        .curve("single rail", SWEEP, |n| of(ONE, n))
        .curve("one thread", SWEEP, |n| of(serial, n))
        .curve("threads", SWEEP, |n| of(threads, n))
}
