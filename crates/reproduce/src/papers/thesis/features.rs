//! Further influences on latency and bandwidth: buffers (3.3.7, 4.3.7), connections (3.3.8), segments (3.3.9), the
//! size of packets (3.3.10), and the number of peers to serve (4.3.8).

use super::setups::{IBAL, MYRINET, QUADRICS, VAPI, VAPI_AND_IBAL};
use crate::claims::check::{Check, NO_MARGIN, NO_TOLERANCE};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::{Reuse, Setup};
use crate::claims::whatif;

/// Bytes of a buffer for bandwidth, and for latency.
pub(super) const BUFFER: u64 = 512 << 10;
pub(super) const SMALL_BUFFER: u64 = 64;
pub(super) const PAGE: u64 = 4 << 10;
/// Numbers of buffers in a working set: of Figure 3.7, and of Figure 4.10.
pub(super) const SETS: [u64; 12] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 25];
pub(super) const SPARSE_SETS: [u64; 6] = [1, 5, 10, 15, 20, 25];
/// Per cent of messages that use the common buffer.
pub(super) const SHARES: [u64; 5] = [0, 25, 50, 75, 100];
/// Bandwidth that is less by this share has fallen.
const LOSS: f64 = 0.03;
/// Bytes of messages of the bandwidth tests over several connections.
const MANY: u64 = 64 << 10;
/// Bytes of the messages of the hot spots, which the thesis does not state.
pub(super) const SPOT: u64 = 64;

pub(super) fn table(table: &mut ClaimTable) {
    working_set(table);
    fresh_buffers(table);
    connections(table);
    pieces(table);
    packets(table);
    spots(table);
}

fn bandwidth(setup: Setup, reuse: Reuse) -> Quantity {
    setup.reuse("bandwidth", reuse, BUFFER)
}

/// The largest working set before bandwidth falls.
fn largest_set_at_full_bandwidth(setup: Setup, sets: &[u64]) -> Quantity {
    let all = sets.iter().map(|w| (*w as f64, bandwidth(setup, Reuse::Set(*w)))).collect();
    Quantity::last(all, bandwidth(setup, Reuse::Set(1)) * (1.0 - LOSS))
}

/// Figures 3.7(a), 3.7(b) and 4.10.
fn working_set(table: &mut ClaimTable) {
    let how = "buffers of 512 KiB in turn, at most, at which bandwidth is within 3 % of that with one";
    table.number(&["MT-116", "MT-210"], how, largest_set_at_full_bandwidth(VAPI, &SETS));
    table.number(&["MT-117"], how, largest_set_at_full_bandwidth(IBAL, &SETS));
    table.number(&["MT-208"], how, largest_set_at_full_bandwidth(MYRINET, &SPARSE_SETS));
    table.number(&["MT-209"], how, largest_set_at_full_bandwidth(QUADRICS, &SPARSE_SETS));
    table.checks(
        &["MT-118"],
        "bandwidth of 512 KiB is less by 3 % at least with 25 buffers than with one",
        VAPI_AND_IBAL.map(|(name, s)| {
            let at = |w| bandwidth(s, Reuse::Set(w));
            Check::below(format!("{name}, MB/s"), at(25), at(1), LOSS)
        }),
    );
    let same = |w| {
        let at = |s| bandwidth(s, Reuse::Set(w));
        Check::alike(format!("{w} buffers, MB/s"), at(IBAL), at(VAPI), 0.05)
    };
    table.checks(&["MT-113"], "bandwidth within 5 % at 1, 5, 10 and 25 buffers", [1, 5, 10, 25].map(same));
    let all_known = |s: Setup| s.with(whatif::LARGE_CACHE);
    table.checks(
        &["MT-234"],
        "with a cache for all pages, 25 buffers have the bandwidth of one within 2 %",
        [("InfiniBand", VAPI), ("Myrinet", MYRINET), ("Quadrics", QUADRICS)].map(|(name, s)| {
            let at = |w| bandwidth(all_known(s), Reuse::Set(w));
            Check::alike(format!("{name}, MB/s"), at(25), at(1), 0.02)
        }),
    );
    let cold = "translation.miss_ns=2000";
    table.checks(
        &["MT-241"],
        "misses that take four times as long lower the bandwidth with 25 buffers by 10 % at least under either interface",
        VAPI_AND_IBAL.map(|(name, s)| {
            let at = |s| bandwidth(s, Reuse::Set(25));
            Check::below(format!("{name}, MB/s"), at(s.with(cold)), at(s), 0.1)
        }),
    );
    let latency = |s: Setup, w| s.reuse("latency", Reuse::Set(w), SMALL_BUFFER);
    table.checks(
        &["MT-114"],
        "latency of 64 B with 25 buffers is that with one within 2 %",
        VAPI_AND_IBAL
            .map(|(name, s)| Check::alike(format!("{name}, us"), latency(s, 25), latency(s, 1), 0.02)),
    );
    table.checks(
        &["MT-242"],
        "misses that take four times as long leave the latency of 64 B with 25 buffers within 2 %",
        VAPI_AND_IBAL.map(|(name, s)| {
            Check::alike(format!("{name}, us"), latency(s.with(cold), 25), latency(s, 25), 0.02)
        }),
    );
}

/// Figures 3.7(c), 3.7(d), 4.11 and 4.12.
fn fresh_buffers(table: &mut ClaimTable) {
    let none = |s: Setup| bandwidth(s, Reuse::Fresh(0));
    let all = |s: Setup| bandwidth(s, Reuse::Fresh(100));
    let late = |s: Setup, share| s.reuse("latency", Reuse::Fresh(share), PAGE);
    let fall = |what: &str, s: Setup, margin| Check::below(format!("{what}, MB/s"), none(s), all(s), margin);
    table.checks(
        &["MT-115"],
        "latency of 64 B without reuse is that with full reuse within 2 %",
        VAPI_AND_IBAL.map(|(name, s)| {
            let at = |share| s.reuse("latency", Reuse::Fresh(share), SMALL_BUFFER);
            Check::alike(format!("{name}, us"), at(0), at(100), 0.02)
        }),
    );
    let how = "bandwidth of 512 KiB without reuse is less than with full reuse by 3 % at least";
    table.checks(&["MT-119"], how, VAPI_AND_IBAL.map(|(name, s)| fall(name, s, LOSS)));
    table.checks(&["MT-216"], how, [fall("InfiniBand", VAPI, LOSS)]);
    table.checks(
        &["MT-120"],
        "if a page that is missing took no time but its entry's on the bus, bandwidth without reuse would be that with full \
         reuse within 3 %",
        VAPI_AND_IBAL.map(|(name, s)| {
            let s = s.with(whatif::NO_MISS_COST);
            Check::alike(format!("{name}, MB/s"), none(s), all(s), 0.03)
        }),
    );
    table.checks(
        &["MT-214"],
        "bandwidth of 512 KiB without reuse is less than with full reuse by 20 % at least",
        [fall("Quadrics", QUADRICS, 0.2)],
    );
    table.checks(
        &["MT-218"],
        "bandwidth of 512 KiB without reuse is that with full reuse within 2 %",
        [Check::alike("Myrinet, MB/s", none(MYRINET), all(MYRINET), 0.02)],
    );
    let rise =
        |what: &str, s: Setup, margin| Check::below(format!("{what}, us"), late(s, 100), late(s, 0), margin);
    table.checks(
        &["MT-213"],
        "latency of 4 KiB with full reuse is less than without by 20 % at least",
        [rise("Quadrics", QUADRICS, 0.2)],
    );
    table.checks(
        &["MT-215"],
        "latency of 4 KiB with full reuse is less than without by 3 % at least",
        [rise("InfiniBand", VAPI, 0.03)],
    );
    table.checks(
        &["MT-217"],
        "latency of 4 KiB with full reuse is less than without, but by less than 10 %",
        [
            rise("Myrinet", MYRINET, 0.0),
            Check::at_most("Myrinet, us", late(MYRINET, 0), late(MYRINET, 100), 0.1),
        ],
    );
}

/// Figures 3.8 and 3.9.
fn connections(table: &mut ClaimTable) {
    let rows: [(&'static [&'static str], Setup, &str, u64, f64); 4] = [
        (&["MT-127"], VAPI, "latency", 64, 0.02),
        (&["MT-128"], IBAL, "latency", 64, 0.02),
        (&["MT-129"], VAPI, "bandwidth", MANY, 0.03),
        (&["MT-130"], IBAL, "bandwidth", MANY, 0.03),
    ];
    for (row, setup, quantity, size, tolerance) in rows {
        let at = |q: u64| setup.level("connections", quantity, ("qps", q), size);
        table.checks(
            row,
            format!("{quantity} over 8 and 64 queue pairs is that over one, within {} %", tolerance * 100.0),
            [8, 64].map(|q| Check::alike(format!("{q} queue pairs"), at(q), at(1), tolerance)),
        );
    }
}

/// Rows of the thesis decided by one check.
type Rows = &'static [&'static str];

/// Numbers of pieces that requests may have under an interface.
pub(super) fn numbers_of_pieces(setup: Setup) -> [u64; 3] {
    if setup.card == IBAL.card { [8, 16, 28] } else { [1, 8, 28] }
}

/// Figures 3.10 and 3.11.
fn pieces(table: &mut ClaimTable) {
    let rows: [(Rows, Rows, Rows, Setup); 2] =
        [(&["MT-132"], &["MT-134"], &["MT-137"], VAPI), (&["MT-133"], &["MT-135"], &["MT-138"], IBAL)];
    for (late, fast, several, setup) in rows {
        let room = |quantity, s: u64, size| setup.level("maxsge", quantity, ("sge", s), size);
        table.check(
            late,
            "latency of 64 B in one piece rises with the pieces that requests may have",
            Check::Rising(
                "us".to_owned(),
                numbers_of_pieces(setup).map(|s| room("latency", s, 64)).into(),
                NO_TOLERANCE,
            ),
        );
        let [least, _, most] = numbers_of_pieces(setup);
        table.checks(
            fast,
            "bandwidth of 4 and 64 KiB where requests may have 28 pieces is that with the fewest within 3 %",
            [4 << 10, 64 << 10].map(|n| {
                let at = |s| room("bandwidth", s, n);
                Check::alike(format!("{n} B, MB/s"), at(most), at(least), 0.03)
            }),
        );
        let pieces = |g: u64, n| setup.level("segments", "latency", ("segments", g), n);
        table.checks(
            several,
            "latency of 256 B and 4 KiB rises from one piece to 2, 4 and 8",
            [256, 4 << 10].map(|n| {
                Check::Rising(format!("{n} B, us"), [1, 2, 4, 8].map(|g| pieces(g, n)).into(), NO_TOLERANCE)
            }),
        );
    }
    let gap = |setup: Setup| {
        let at = |g: u64| setup.level("segments", "latency", ("segments", g), 256);
        at(8) - at(1)
    };
    table.checks(
        &["MT-139"],
        "what 8 pieces of 256 B together take longer than one is more by a fifth at least where each read takes 40 clocks more",
        VAPI_AND_IBAL.map(|(name, s)| Check::below(format!("{name}, us"), gap(s), gap(s.with(whatif::READS_SLOWER)), 1.0 / 6.0)),
    );
    table.checks(
        &["MT-243"],
        "if descriptors were as large as their pieces need, latency would be the same within 0.5 %",
        VAPI_AND_IBAL.map(|(name, s)| {
            let [least, _, most] = numbers_of_pieces(s);
            let at = |n| s.with(whatif::SMALL_DESCRIPTORS).level("maxsge", "latency", ("sge", n), 64);
            Check::alike(format!("{name}, us"), at(most), at(least), 0.005)
        }),
    );
}

/// Sizes of packets in Figure 3.12.
pub(super) const MTUS: [u64; 4] = [256, 512, 1024, 2048];

/// Figure 3.12: sizes of packets.
fn packets(table: &mut ClaimTable) {
    let rows: [(Rows, Rows, Rows, Setup); 2] =
        [(&["MT-140"], &["MT-142"], &["MT-144"], VAPI), (&["MT-141"], &["MT-143"], &["MT-145"], IBAL)];
    for (late, fast, order, setup) in rows {
        let at = |quantity, mtu: u64, n| setup.level("mtu", quantity, ("mtu", mtu), n);
        table.checks(
            late,
            "latency of 64 B with every MTU is that with 2048 within 2 %",
            [256, 512, 1024].map(|mtu| {
                Check::alike(format!("MTU {mtu}, us"), at("latency", mtu, 64), at("latency", 2048, 64), 0.02)
            }),
        );
        let bandwidth = |mtu| at("bandwidth", mtu, MANY);
        table.checks(
            fast,
            "bandwidth of 64 KiB with an MTU of 256 is less than with 1024 by 15 % at least, with 512 by 5 %",
            [(256, 0.15), (512, 0.05)].map(|(mtu, margin)| {
                Check::below(format!("MTU {mtu}, MB/s"), bandwidth(mtu), bandwidth(1024), margin)
            }),
        );
        table.checks(
            order,
            "bandwidth of 4, 16 and 64 KiB with an MTU of 2048 is below that with 1024",
            [4 << 10, 16 << 10, MANY].map(|n| {
                let at = |mtu| at("bandwidth", mtu, n);
                Check::below(format!("{n} B, MB/s"), at(2048), at(1024), NO_MARGIN)
            }),
        );
    }
    table.not_modelled(
        &["MT-146"],
        "parts of the model that a packet passes whole would have to tell; it is a guess of the thesis, without a test",
    );
    let loss = |setup: Setup| {
        let at = |mtu: u64| setup.level("mtu", "bandwidth", ("mtu", mtu), MANY);
        at(1024) - at(256)
    };
    table.checks(
        &["MT-147"],
        "without headers, gaps and the engine's time for each packet, an MTU of 256 loses less than half of what it does",
        VAPI_AND_IBAL.map(|(name, s)| Check::below(format!("{name}, MB/s"), loss(s.with(whatif::FREE_PACKETS)), loss(s), 0.5)),
    );
}

/// Figures 4.13 and 4.14.
fn spots(table: &mut ClaimTable) {
    // The time that each slave but the first adds to a round.
    let added = |setup: Setup, op| (setup.spot(op, 7, SPOT) - setup.spot(op, 1, SPOT)) / 6.0;
    type Bad = [(Rows, Setup); 2];
    let rows: [(&str, Rows, Bad); 2] = [
        ("send", &["MT-219"], [(&["MT-220"], VAPI), (&["MT-221"], MYRINET)]),
        ("send-receive", &["MT-222"], [(&["MT-223"], VAPI), (&["MT-224"], MYRINET)]),
    ];
    for (op, well, badly) in rows {
        table.checks(
            well,
            "what each slave but the first adds to a round is less than half of what it adds on InfiniBand and Myrinet",
            [("InfiniBand", VAPI), ("Myrinet", MYRINET)].map(|(name, setup)| {
                Check::below(format!("against {name}, us"), added(QUADRICS, op), added(setup, op), 0.5)
            }),
        );
        for (row, setup) in badly {
            table.checks(
                row,
                "each slave but the first adds 10 % of the round with one slave at least, and twice what it does on Quadrics",
                [
                    Check::below("us", setup.spot(op, 1, SPOT) * 0.1, added(setup, op), NO_MARGIN),
                    Check::below("us", added(QUADRICS, op) * 2.0, added(setup, op), NO_MARGIN),
                ],
            );
        }
    }
}
