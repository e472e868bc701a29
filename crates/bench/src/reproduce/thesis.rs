//! The thesis on VAPI and IBAL: how the rows of its basic tests are computed.
//!
//! Its MB is 2^20 bytes (`X1` in the contradictions), so bandwidths are converted.

use super::check::Check;
use super::claim::Table;
use super::quantity::{Quantity, Tuning};
use super::setup::{HOST_HOST, Setup, raises};
use super::whatif::{self, key};

const TUNING: Tuning = Tuning { window: VERY_LARGE, burst_bytes: 8 << 20, signal: 1 };
/// "Very large", says the thesis of its window.
const VERY_LARGE: u32 = 1000;

/// The card under VAPI.
pub(super) const VAPI: Setup = Setup { card: "model:mt23108-vapi", tuning: TUNING, options: "" };
/// The card under IBAL.
pub(super) const IBAL: Setup = Setup { card: "model:mt23108-ibal", tuning: TUNING, options: "" };
/// Both.
pub(super) const BOTH: [(&str, Setup); 2] = [("VAPI", VAPI), ("IBAL", IBAL)];

/// Bytes of a small message.
pub(super) const SMALL: u64 = 4;
/// Sizes of Figures 3.1 and 3.3(a).
pub(super) const LATENCIES: [u64; 6] = [4, 16, 64, 256, 1 << 10, 4 << 10];
/// Sizes of Figures 3.2 and 3.3(b).
pub(super) const SWEEP: [u64; 10] =
    [64, 256, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20];

const OTHERS: &str = "compares with Myrinet and Quadrics, which have no model yet";

/// Bandwidth in units of 2^20 bytes per second.
pub(super) fn in_mib(bandwidth: Quantity) -> Quantity {
    bandwidth * (1e6 / f64::from(1 << 20))
}

/// All rows that are covered.
pub(super) fn table(table: &mut Table) {
    hardware(table);
    method(table);
    calls(table);
    call_claims(table);
    latency(table);
    bandwidth(table);
    windows(table);
    bilat(table);
    bibw(table);
}

fn hardware(table: &mut Table) {
    table.unused(
        &["MT-037", "MT-038", "MT-039", "MT-040", "MT-041", "MT-044", "MT-045", "MT-046", "MT-047", "MT-048"],
        "nothing in the model depends on it",
    );
    table.method(&["MT-036", "MT-043"], "nodes there are; the tests here use two", 8.0);
    table.input(&["MT-042", "MT-049"], key::PORTS, VAPI.parameter(key::PORTS));
    table.input(&["MT-050", "MT-052"], "bus.width_bytes, in bits", VAPI.parameter(key::BUS_WIDTH) * 8.0);
    table.input(&["MT-051", "MT-053"], key::BUS_CLOCK, VAPI.parameter(key::BUS_CLOCK));
    table.none(
        &["MT-225", "MT-226", "MT-227", "MT-228", "MT-229"],
        "names a version of software, of which nothing in the model depends",
    );
}

fn method(table: &mut Table) {
    table.method(&["MT-010"], "a message posts one receive and one send", 2.0);
    table.method(&["MT-011"], "half of the round trip is reported", 0.5);
    table.method(&["MT-012"], "windows posted at first", 1.0);
    table.method(&["MT-013", "MT-014", "MT-015"], "half a window is awaited, then posted", 0.5);
    table.method(&["MT-016"], "at most one window is outstanding", 1.0);
}

/// Tables 3.1 and 4.1.
fn calls(table: &mut Table) {
    let rows: [([&'static [&'static str]; 2], [&str; 3]); 8] = [
        ([&["MT-061", "MT-148"], &["MT-062"]], ["reg", "op", "reg"]),
        ([&["MT-063", "MT-151"], &["MT-064"]], ["reg", "op", "dereg"]),
        ([&["MT-065", "MT-154"], &["MT-066"]], ["post", "op", "recv"]),
        ([&["MT-067", "MT-157"], &["MT-068"]], ["post", "op", "send"]),
        ([&["MT-069", "MT-160"], &["MT-070"]], ["poll", "state", "full"]),
        ([&["MT-071"], &["MT-072"]], ["poll", "state", "empty"]),
        ([&["MT-073"], &["MT-074"]], ["connect", "step", "call"]),
        ([&["MT-075"], &["MT-076"]], ["connect", "step", "destroy"]),
    ];
    for (ids, [experiment, key, level]) in rows {
        for (rows, (_, setup)) in ids.into_iter().zip(BOTH) {
            table.number(
                rows,
                format!("{experiment}, {key} {level}: time of the call"),
                setup.call(experiment, key, level),
            );
        }
    }
    let memory = |setup: Setup| ["reg", "dereg"].map(|op| setup.call("reg", "op", op));
    let how = "registration and deregistration of 4 KiB";
    table.range(&["MT-077"], how, memory(VAPI));
    table.range(&["MT-078"], how, memory(IBAL));
}

/// Claims about the calls.
fn call_claims(table: &mut Table) {
    let each = [
        ("post", "op", "send"),
        ("post", "op", "recv"),
        ("poll", "state", "full"),
        ("poll", "state", "empty"),
    ];
    table.checks(
        &["MT-079"],
        "every post and poll takes longer under IBAL",
        each.map(|(e, k, v)| {
            Check::below(format!("{e} {v}, us"), VAPI.call(e, k, v), IBAL.call(e, k, v), 0.0)
        }),
    );
    table.checks(
        &["MT-080"],
        "post and poll together are less than half of the latency of a small write",
        BOTH.map(|(name, setup)| {
            let spent = setup.call("post", "op", "send") + setup.call("poll", "state", "full");
            Check::below(format!("{name}, us"), spent, setup.latency("write", HOST_HOST, SMALL) * 0.5, 0.0)
        }),
    );
    table.checks(
        &["MT-081"],
        "each takes more than ten times the latency of a small write",
        BOTH.into_iter().flat_map(|(name, setup)| {
            ["call", "destroy"].map(|step| {
                let small = setup.latency("write", HOST_HOST, SMALL) * 10.0;
                Check::below(format!("{name} {step}, us"), small, setup.call("connect", "step", step), 0.0)
            })
        }),
    );
    table.none(&["MT-240"], "the device API has reliable connections only, so there is nothing to try");
    table.none(&["MT-163", "MT-164", "MT-166", "MT-167", "MT-168"], OTHERS);
}

/// Figures 3.1 and 4.1.
fn latency(table: &mut Table) {
    let small = |setup: Setup, op| setup.latency(op, HOST_HOST, SMALL);
    let how = "half the round trip of 4 B";
    table.number(&["MT-082", "MT-171"], how, small(VAPI, "write"));
    table.number(&["MT-083", "MT-172"], how, small(VAPI, "send"));
    table.number(&["MT-084"], how, small(IBAL, "write"));
    table.number(&["MT-085"], how, small(IBAL, "send"));
    let order = |setup: Setup| {
        LATENCIES.map(|n| {
            let at = |op| setup.latency(op, HOST_HOST, n);
            Check::below(format!("{n} B, us"), at("write"), at("send"), 0.0)
        })
    };
    table.checks(&["MT-086"], "a write is faster than a send from 4 B to 4 KiB", order(VAPI));
    table.checks(&["MT-087"], "a write is faster than a send from 4 B to 4 KiB", order(IBAL));
    table.checks(
        &["MT-088"],
        "a poll that costs 2 us more lengthens a send by 1 us at least, a write by at most 0.1 us",
        BOTH.into_iter().flat_map(|(name, setup)| {
            let slow = setup.with(whatif::POLL_SLOWER);
            let longer = |op| small(slow, op) - small(setup, op);
            [
                Check::below(format!("{name}, send, us"), 1.0.into(), longer("send"), 0.0),
                Check::below(format!("{name}, write, us"), longer("write"), 0.1.into(), 0.0),
            ]
        }),
    );
    table.none(&["MT-170"], OTHERS);
}

fn uni(setup: Setup, op: &str, size: u64) -> Quantity {
    setup.bandwidth(op, HOST_HOST, 1, size)
}

/// Figures 3.2 and 4.2.
fn bandwidth(table: &mut Table) {
    let peak = |setup: Setup, op| in_mib(setup.peak(op, HOST_HOST, 1));
    let how = "largest bandwidth of writes, 16 KiB to 1 MiB, in 2^20 bytes per second";
    table.number(&["MT-089", "MT-177"], how, peak(VAPI, "write"));
    table.number(&["MT-090"], how, peak(IBAL, "write"));
    let alike = |setup: Setup| [Check::alike("MB/s", peak(setup, "send"), peak(setup, "write"), 0.03)];
    table.checks(&["MT-091"], "peaks of sends and writes within 3 %", alike(VAPI));
    table.checks(&["MT-092"], "peaks of sends and writes within 3 %", alike(IBAL));
    let pair = |n| (n, uni(IBAL, "write", n), uni(VAPI, "write", n));
    table.sizes(
        &["MT-093"],
        "smallest and largest size, 64 B to 1 MiB, at which writes under IBAL are slower by 1 % at least",
        SWEEP.map(pair).into(),
        0.01,
    );
    let slower = [1 << 10, 4 << 10, 16 << 10]
        .map(|n| Check::below(format!("{n} B, MB/s"), uni(IBAL, "write", n), uni(VAPI, "write", n), 0.0));
    let cheap = uni(IBAL.with(whatif::POST_AS_VAPI), "write", 1 << 10);
    table.checks(
        &["MT-250"],
        "IBAL is slower than VAPI at 1, 4 and 16 KiB, and posting as cheap as VAPI's raises it by 5 % at least at 1 KiB, \
         where it weighs most",
        slower.into_iter().chain([raises("cheap posts, MB/s", cheap, uni(IBAL, "write", 1 << 10))]),
    );
    table.none(&["MT-181", "MT-189"], OTHERS);
}

/// Figure 4.3.
fn windows(table: &mut Table) {
    let slow = VAPI.with(whatif::POST_SLOWER);
    let at = |window| uni(slow.window(window), "write", 256);
    table.checks(
        &["MT-017"],
        "where posting takes 20 us, so that the card drains faster than the processor posts, a window of 16 gives \
         what one of 64 does at 256 B, within 5 %",
        [Check::alike("MB/s", at(16), at(64), 0.05)],
    );
    table.none(&["MT-180"], OTHERS);
}

/// Figures 3.3(a) and 4.4.
fn bilat(table: &mut Table) {
    let worse = |setup: Setup| {
        ["write", "send"].into_iter().flat_map(move |op| {
            LATENCIES.map(|n| {
                let what = format!("{op} of {n} B, us");
                Check::below(what, setup.latency(op, HOST_HOST, n), setup.bilat(op, n), 0.0)
            })
        })
    };
    let how = "longer than one way from 4 B to 4 KiB, writes and sends";
    table.checks(&["MT-094", "MT-182"], how, worse(VAPI));
    table.checks(&["MT-095"], how, worse(IBAL));
}

/// Figures 3.3(b) and 4.5.
fn bibw(table: &mut Table) {
    let peak = |setup: Setup, op| in_mib(setup.bipeak(op, HOST_HOST, 1));
    let against = |what: &str, a, b| Check::alike(format!("{what}, MB/s"), a, b, 0.05);
    table.checks(
        &["MT-096"],
        "peaks within 5 %",
        [
            against("VAPI and IBAL, writes", peak(VAPI, "write"), peak(IBAL, "write")),
            against("VAPI and IBAL, sends", peak(VAPI, "send"), peak(IBAL, "send")),
            against("sends and writes, VAPI", peak(VAPI, "send"), peak(VAPI, "write")),
            against("sends and writes, IBAL", peak(IBAL, "send"), peak(IBAL, "write")),
        ],
    );
    let both = || BOTH.map(|(_, setup)| peak(setup, "write"));
    let how = "largest bandwidth of writes both ways together, 16 KiB to 1 MiB, in 2^20 bytes per second";
    table.number(&["MT-097"], format!("{how}; mean of VAPI and IBAL"), Quantity::mean(both()));
    table.number(&["MT-185"], how, peak(VAPI, "write"));
    let bus = VAPI.parameter(key::BUS_WIDTH) * VAPI.parameter(key::BUS_CLOCK) / 1000.0;
    table.input(&["MT-098"], "width times clock", bus);
    table.number(
        &["MT-099"],
        "peak both ways over peak one way; the larger of VAPI and IBAL",
        Quantity::greatest(
            BOTH.map(|(_, setup)| setup.bipeak("write", HOST_HOST, 1) / setup.peak("write", HOST_HOST, 1)),
        ),
    );
    table.checks(
        &["MT-100"],
        "a bus twice as fast raises the bandwidth of 64 KiB both ways by 5 % at least",
        BOTH.map(|(name, setup)| {
            let at = |setup: Setup| setup.bibw("write", HOST_HOST, 1, 64 << 10);
            raises(format!("{name}, MB/s"), at(setup.with(whatif::BUS_TWICE)), at(setup))
        }),
    );
    table.none(&["MT-188"], OTHERS);
}

#[cfg(test)]
mod tests {
    use super::super::setup::LARGE;
    use super::*;

    #[test]
    fn peaks_are_looked_for_among_sizes_of_the_figure() {
        assert!(LARGE.iter().all(|n| SWEEP.contains(n)));
    }
}
