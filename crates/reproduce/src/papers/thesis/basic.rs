//! Latency, bandwidth, and both ways simultaneously (3.3.1 to 3.3.3, 4.3.1 to 4.3.3).

use super::setups::{IBAL, LATENCY_SIZES, MYRINET, QUADRICS, SMALL, SWEEP, VAPI, VAPI_AND_IBAL, in_mib};
use crate::claims::check::{Check, NO_MARGIN};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::{HOST_HOST, Setup, raises};
use crate::claims::whatif::{self, key};

/// Bytes of the messages with which windows are compared.
const WINDOWED: u64 = 4 << 10;

pub(super) fn table(table: &mut ClaimTable) {
    latency(table);
    bandwidth(table);
    windows(table);
    bilat(table);
    bibw(table);
    three_latencies(table);
    three_bandwidths(table);
}

/// Figures 3.1 and 4.1.
fn latency(table: &mut ClaimTable) {
    let small = |setup: Setup, op| setup.latency(op, HOST_HOST, SMALL);
    let how = "half the round trip of 4 B";
    table.number(&["MT-082", "MT-171"], how, small(VAPI, "write"));
    table.number(&["MT-083", "MT-172"], how, small(VAPI, "send"));
    table.number(&["MT-084"], how, small(IBAL, "write"));
    table.number(&["MT-085"], how, small(IBAL, "send"));
    let order = |setup: Setup| {
        LATENCY_SIZES.map(|n| {
            let at = |op| setup.latency(op, HOST_HOST, n);
            Check::below(format!("{n} B, us"), at("write"), at("send"), NO_MARGIN)
        })
    };
    table.checks(&["MT-086"], "a write is faster than a send from 4 B to 4 KiB", order(VAPI));
    table.checks(&["MT-087"], "a write is faster than a send from 4 B to 4 KiB", order(IBAL));
    table.checks(
        &["MT-088"],
        "a poll that costs 2 us more lengthens a send by 1 us at least, a write by at most 0.1 us",
        VAPI_AND_IBAL.into_iter().flat_map(|(name, setup)| {
            let slow = setup.with(whatif::POLL_SLOWER);
            let longer = |op| small(slow, op) - small(setup, op);
            [
                Check::below(format!("{name}, send, us"), 1.0.into(), longer("send"), NO_MARGIN),
                Check::below(format!("{name}, write, us"), longer("write"), 0.1.into(), NO_MARGIN),
            ]
        }),
    );
}

fn unidirectional(setup: Setup, op: &str, size: u64) -> Quantity {
    setup.bandwidth(op, HOST_HOST, 1, size)
}

/// Figures 3.2 and 4.2.
fn bandwidth(table: &mut ClaimTable) {
    let peak = |setup: Setup, op| in_mib(setup.peak(op, HOST_HOST, 1));
    let how = "largest bandwidth of writes, 16 KiB to 1 MiB, in 2^20 bytes per second";
    table.number(&["MT-089", "MT-177"], how, peak(VAPI, "write"));
    table.number(&["MT-090"], how, peak(IBAL, "write"));
    let alike = |setup: Setup| [Check::alike("MB/s", peak(setup, "send"), peak(setup, "write"), 0.03)];
    table.checks(&["MT-091"], "peaks of sends and writes within 3 %", alike(VAPI));
    table.checks(&["MT-092"], "peaks of sends and writes within 3 %", alike(IBAL));
    let pair = |n| (n, unidirectional(IBAL, "write", n), unidirectional(VAPI, "write", n));
    table.sizes(
        &["MT-093"],
        "smallest and largest size, 64 B to 1 MiB, at which writes under IBAL are slower by 1 % at least",
        SWEEP.map(pair).into(),
        0.01,
    );
    let slower = [1 << 10, 4 << 10, 16 << 10].map(|n| {
        Check::below(
            format!("{n} B, MB/s"),
            unidirectional(IBAL, "write", n),
            unidirectional(VAPI, "write", n),
            NO_MARGIN,
        )
    });
    let cheap = unidirectional(IBAL.with(whatif::POST_AS_VAPI), "write", 1 << 10);
    table.checks(
        &["MT-250"],
        "IBAL is slower than VAPI at 1, 4 and 16 KiB, and posting as cheap as VAPI's raises it by 5 % at least at 1 KiB, \
         where it weighs most",
        slower.into_iter().chain([raises("cheap posts, MB/s", cheap, unidirectional(IBAL, "write", 1 << 10))]),
    );
}

/// Figure 4.3: windows.
fn windows(table: &mut ClaimTable) {
    let slow = VAPI.with(whatif::POST_SLOWER);
    let at = |window| unidirectional(slow.window(window), "write", 256);
    table.checks(
        &["MT-017"],
        "where posting takes 20 us, so that the card drains faster than the processor posts, a window of 16 gives \
         what one of 64 does at 256 B, within 5 %",
        [Check::alike("MB/s", at(16), at(64), 0.05)],
    );
}

/// Figures 3.3(a) and 4.4: a ping-pong in both directions at once takes longer than one.
fn bilat(table: &mut ClaimTable) {
    let longer_than_one_way = |setup: Setup| {
        ["write", "send"].into_iter().flat_map(move |op| {
            LATENCY_SIZES.map(|n| {
                let what = format!("{op} of {n} B, us");
                Check::below(what, setup.latency(op, HOST_HOST, n), setup.bilat(op, n), NO_MARGIN)
            })
        })
    };
    let claim = "longer than one way from 4 B to 4 KiB, writes and sends";
    table.checks(&["MT-094", "MT-182"], claim, longer_than_one_way(VAPI));
    table.checks(&["MT-095"], claim, longer_than_one_way(IBAL));
}

/// Figures 3.3(b) and 4.5.
fn bibw(table: &mut ClaimTable) {
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
    let both = || VAPI_AND_IBAL.map(|(_, setup)| peak(setup, "write"));
    let how = "largest bandwidth of writes both ways together, 16 KiB to 1 MiB, in 2^20 bytes per second";
    table.number(&["MT-097"], format!("{how}; mean of VAPI and IBAL"), Quantity::mean(both()));
    table.number(&["MT-185"], how, peak(VAPI, "write"));
    let bus = VAPI.parameter(key::BUS_WIDTH) * VAPI.parameter(key::BUS_CLOCK) / 1000.0;
    table.input(&["MT-098"], "width times clock", bus);
    table.number(
        &["MT-099"],
        "peak both ways over peak one way; the larger of VAPI and IBAL",
        Quantity::greatest(
            VAPI_AND_IBAL
                .map(|(_, setup)| setup.bipeak("write", HOST_HOST, 1) / setup.peak("write", HOST_HOST, 1)),
        ),
    );
    table.checks(
        &["MT-100"],
        "a bus twice as fast raises the bandwidth of 64 KiB both ways by 5 % at least",
        VAPI_AND_IBAL.map(|(name, setup)| {
            let at = |setup: Setup| setup.bibw("write", HOST_HOST, 1, 64 << 10);
            raises(format!("{name}, MB/s"), at(setup.with(whatif::BUS_TWICE)), at(setup))
        }),
    );
}

/// Section 4.3.1: three latencies.
fn three_latencies(table: &mut ClaimTable) {
    let small = |setup: Setup, op| setup.latency(op, HOST_HOST, SMALL);
    let how = "half the round trip of 4 B";
    table.number(&["MT-169"], how, small(QUADRICS, "write"));
    table.number(&["MT-173"], how, small(MYRINET, "send"));
    table.number(&["MT-174"], how, small(MYRINET, "write"));
    table.checks(
        &["MT-170"],
        "a put of 4 B is faster than writes and sends of InfiniBand and Myrinet",
        [("InfiniBand", VAPI), ("Myrinet", MYRINET)].into_iter().flat_map(|(name, setup)| {
            ["write", "send"].map(|op| {
                Check::below(
                    format!("{name}, {op}, us"),
                    small(QUADRICS, "write"),
                    small(setup, op),
                    NO_MARGIN,
                )
            })
        }),
    );
    table.checks(
        &["MT-175"],
        "a send is faster than a directed send at 4, 16 and 32 B",
        [4, 16, 32].map(|n| {
            let at = |op| MYRINET.latency(op, HOST_HOST, n);
            Check::below(format!("{n} B, us"), at("send"), at("write"), NO_MARGIN)
        }),
    );
    let apart = MYRINET.with(whatif::NOTHING_MERGED);
    table.checks(
        &["MT-245"],
        "if data did not come within the descriptor, a send of 4 B would take 5 % longer at least",
        [raises("us", small(apart, "send"), small(MYRINET, "send"))],
    );
}

/// Sections 4.3.2 and 4.3.3.
fn three_bandwidths(table: &mut ClaimTable) {
    let peak = |setup: Setup| in_mib(setup.peak("write", HOST_HOST, 1));
    let bipeak = |setup: Setup| in_mib(setup.bipeak("write", HOST_HOST, 1));
    let how = "largest bandwidth of writes, 16 KiB to 1 MiB, in 2^20 bytes per second";
    table.number(&["MT-178"], how, peak(MYRINET));
    table.number(&["MT-179"], how, peak(QUADRICS));
    let how = "largest bandwidth of writes both ways together, 16 KiB to 1 MiB, in 2^20 bytes per second";
    table.number(&["MT-186"], how, bipeak(QUADRICS));
    table.number(&["MT-187"], how, bipeak(MYRINET));
    let left = |setup: Setup| {
        unidirectional(setup.window(2), "write", WINDOWED)
            / unidirectional(setup.window(64), "write", WINDOWED)
    };
    table.checks(
        &["MT-180"],
        "of its bandwidth at 4 KiB with a window of 64, InfiniBand keeps less with a window of 2 than the others",
        [("Myrinet", MYRINET), ("Quadrics", QUADRICS)]
            .map(|(name, setup)| Check::below(format!("share kept, {name}"), left(VAPI), left(setup), 0.1)),
    );
    table.checks(
        &["MT-181"],
        "the others' peaks are less than half of that of InfiniBand",
        [("Myrinet", MYRINET), ("Quadrics", QUADRICS)]
            .map(|(name, setup)| Check::below(format!("{name}, MB/s"), peak(setup), peak(VAPI), 0.5)),
    );
    table.checks(
        &["MT-188"],
        "peaks both ways",
        [Check::below("Quadrics and Myrinet, MB/s", bipeak(QUADRICS), bipeak(MYRINET), NO_MARGIN)],
    );
    table.checks(
        &["MT-189"],
        "peaks one way",
        [Check::below("Myrinet and Quadrics, MB/s", peak(MYRINET), peak(QUADRICS), NO_MARGIN)],
    );
    let both = |setup: Setup, op, n| (setup.latency(op, HOST_HOST, n), setup.bilat(op, n));
    table.checks(
        &["MT-183"],
        "longer than one way from 4 B to 4 KiB, writes and sends",
        ["write", "send"].into_iter().flat_map(|op| {
            LATENCY_SIZES.map(|n| {
                let (one, two) = both(MYRINET, op, n);
                Check::below(format!("{op} of {n} B, us"), one, two, NO_MARGIN)
            })
        }),
    );
    table.checks(
        &["MT-184"],
        "not longer than one way by more than 3 % from 4 B to 4 KiB",
        LATENCY_SIZES.map(|n| {
            let (one, two) = both(QUADRICS, "write", n);
            Check::at_most(format!("{n} B, us"), two, one, 0.03)
        }),
    );
}
