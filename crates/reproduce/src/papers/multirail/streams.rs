//! Bandwidth one way (5.3) and both ways (5.4), and the conclusions (6): Figures 5 to 8.

use super::setups::{
    CARDS_SERIAL, CARDS_THREADS, LARGEST, ONE, PORTS_SERIAL, PORTS_THREADS, RailSetup, SWEEP, above, from,
};
use crate::claims::check::{Check, NO_MARGIN};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::whatif;

const PEAK: &str = "largest bandwidth of 20 writes, 32 KiB to 2 MiB";
const BIPEAK: &str = "largest bandwidth of 20 writes each way, 32 KiB to 2 MiB";

pub(super) fn table(table: &mut ClaimTable) {
    peaks(table);
    thresholds(table);
    uni_claims(table);
    bipeaks(table);
    bithresholds(table);
    conclusions(table);
}

/// By how many per cent the first peak is above the second.
fn gain(a: RailSetup, b: RailSetup) -> Quantity {
    a.peak().above(b.peak())
}

fn bigain(a: RailSetup, b: RailSetup) -> Quantity {
    a.bipeak().above(b.bipeak())
}

fn peaks(table: &mut ClaimTable) {
    table.number(&["MR-064"], PEAK, ONE.peak());
    table.number(&["MR-070"], PEAK, PORTS_THREADS.peak());
    table.number(&["MR-075"], PEAK, CARDS_SERIAL.peak());
    table.number(&["MR-076"], PEAK, CARDS_THREADS.peak());
    let how = "peak over that of a single rail";
    table.number(&["MR-001", "MR-072", "MR-121"], how, gain(PORTS_THREADS, ONE));
    table.number(&["MR-002", "MR-078", "MR-122"], how, gain(CARDS_THREADS, ONE));
    table.number(&["MR-003", "MR-077", "MR-124"], how, gain(CARDS_SERIAL, ONE));
    table.number(
        &["MR-123"],
        "peak over that of a single rail, rounded to 5 %: the paper says no improvement",
        gain(PORTS_SERIAL, ONE).rounded(5.0),
    );
    let how = "peak over that with two ports";
    table.number(&["MR-079"], how, gain(CARDS_SERIAL, PORTS_SERIAL));
    table.number(&["MR-080"], how, gain(CARDS_THREADS, PORTS_THREADS));
}

fn thresholds(table: &mut ClaimTable) {
    let ratio = |case: RailSetup| move |n| case.unidirectional(n) / ONE.unidirectional(n);
    let how = "largest size, 8 B to 2 MiB, at which the bandwidth is not above that of a single rail by 5 %";
    table.number(&["MR-069"], how, above(&SWEEP, ratio(PORTS_THREADS)));
    let how =
        "smallest size, 8 B to 2 MiB, from which on the bandwidth is above that of a single rail by 5 %";
    table.number(&["MR-073"], how, from(&SWEEP, ratio(CARDS_SERIAL)));
    table.number(&["MR-074"], how, from(&SWEEP, ratio(CARDS_THREADS)));
    let below = |n: u64| (n as f64, ONE.unidirectional(n) / PORTS_SERIAL.unidirectional(n));
    table.exactly(
        &["MR-067"],
        "smallest size, 8 B to 2 MiB, from which on the bandwidth is not below that of a single rail by 1 %",
        Quantity::last(SWEEP.map(below).into(), 1.01.into()) * 2.0,
    );
    let near = |n: u64| (n, PORTS_THREADS.peak() * 0.9, PORTS_THREADS.unidirectional(n));
    table.sizes(
        &["MR-071"],
        "smallest and largest size, 8 B to 2 MiB, at which the bandwidth is within 10 % of its peak",
        SWEEP.map(near).into(),
        NO_MARGIN,
    );
}

fn uni_claims(table: &mut ClaimTable) {
    table.checks(
        &["MR-066"],
        "peaks within 5 %",
        [Check::alike("MB/s", PORTS_SERIAL.peak(), ONE.peak(), 0.05)],
    );
    let at = |case: RailSetup| case.unidirectional(64 << 10);
    table.checks(
        &["MR-068"],
        "at 64 KiB one thread over two ports is slower than over one, and less so if waiting at one port does not hold up \
         waiting at the other",
        [
            Check::below("MB/s", at(PORTS_SERIAL), at(ONE), NO_MARGIN),
            Check::below("MB/s", at(PORTS_SERIAL), at(PORTS_SERIAL.with(whatif::NO_TURNS)), NO_MARGIN),
        ],
    );
}

fn bipeaks(table: &mut ClaimTable) {
    let at = "bandwidth of 20 writes of 2 MiB each way";
    table.number(&["MR-082"], at, ONE.bidirectional(LARGEST));
    table.number(&["MR-086"], at, PORTS_THREADS.bidirectional(LARGEST));
    table.number(&["MR-095"], at, CARDS_THREADS.bidirectional(LARGEST));
    table.number(&["MR-089"], BIPEAK, CARDS_SERIAL.bipeak());
    table.number(
        &["MR-092"],
        "bandwidth of 20 writes of 128 KiB each way",
        CARDS_THREADS.bidirectional(128 << 10),
    );
    let how = "peak over that of a single rail";
    table.number(&["MR-085"], how, bigain(PORTS_THREADS, ONE));
    table.number(&["MR-090"], how, bigain(CARDS_SERIAL, ONE));
    table.number(
        &["MR-093"],
        "at 128 KiB over the peak of a single rail",
        CARDS_THREADS.bidirectional(128 << 10).above(ONE.bipeak()),
    );
    let how = "peak over that with two ports";
    table.number(&["MR-096"], how, bigain(CARDS_SERIAL, PORTS_SERIAL));
    table.number(&["MR-097"], how, bigain(CARDS_THREADS, PORTS_THREADS));
}

fn bithresholds(table: &mut ClaimTable) {
    let ratio = |case: RailSetup| move |n| case.bidirectional(n) / ONE.bidirectional(n);
    let how = "largest size, 8 B to 2 MiB, at which the bandwidth is not above that of a single rail by 5 %";
    table.number(&["MR-087"], how, above(&SWEEP, ratio(CARDS_SERIAL)));
    table.number(&["MR-088"], how, above(&SWEEP, ratio(CARDS_THREADS)));
    // 1 and more below nine tenths of the gain.
    let short = |n: u64| {
        (n as f64, Quantity::from(0.9 * 0.68 + 1.0) / (CARDS_SERIAL.bidirectional(n) / ONE.bidirectional(n)))
    };
    table.exactly(
        &["MR-091"],
        "largest size, 8 B to 2 MiB, up to which the gain is below nine tenths of 68 %",
        Quantity::last(SWEEP.map(short).into(), (1.0 + 1e-9).into()),
    );
    let short = |n: u64| (n as f64, CARDS_THREADS.bipeak() / CARDS_THREADS.bidirectional(n));
    table.number(
        &["MR-094"],
        "size of the largest bandwidth, among the powers of two",
        Quantity::last(SWEEP.map(short).into(), (1.0 + 1e-9).into()) * 2.0,
    );
    table.checks(
        &["MR-083"],
        "the peak is not above that of a single rail by 5 %",
        [Check::at_most("MB/s", PORTS_SERIAL.bipeak(), ONE.bipeak(), 0.05)],
    );
    table.checks(
        &["MR-084"],
        "both ways as one way: peaks of one thread over two ports and of a single rail within 5 %, and below it at 4, 32 and \
         256 KiB",
        [4 << 10, 32 << 10, 256 << 10]
            .map(|n| Check::below(format!("{n} B, MB/s"), PORTS_SERIAL.bidirectional(n), ONE.bidirectional(n), NO_MARGIN))
            .into_iter()
            .chain([Check::alike("MB/s", PORTS_SERIAL.bipeak(), ONE.bipeak(), 0.05)]),
    );
}

/// The four gains over a single rail, in the order that the paper found.
fn order(of: impl Fn(RailSetup) -> Quantity, what: &str) -> Vec<Check> {
    let all = [PORTS_SERIAL, PORTS_THREADS, CARDS_SERIAL, CARDS_THREADS].map(of);
    all.windows(2).map(|pair| Check::below(what, pair[0].clone(), pair[1].clone(), 0.05)).collect()
}

/// Sections 5.4 and 6, and the abstract.
fn conclusions(table: &mut ClaimTable) {
    let both = || {
        order(RailSetup::peak, "one way, MB/s").into_iter().chain(order(RailSetup::bipeak, "both ways, MB/s"))
    };
    table.checks(
        &["MR-004", "MR-128"],
        "both ways as one way, peaks rise by 5 % at least from two ports and one thread to two threads, to two cards and one \
         thread, to two threads",
        both(),
    );
    table.checks(
        &["MR-125"],
        "two cards with threads have the largest peaks, one way and both ways",
        [ONE, PORTS_SERIAL, PORTS_THREADS, CARDS_SERIAL].into_iter().flat_map(|other| {
            [
                Check::below("one way, MB/s", other.peak(), CARDS_THREADS.peak(), 0.05),
                Check::below("both ways, MB/s", other.bipeak(), CARDS_THREADS.bipeak(), 0.05),
            ]
        }),
    );
    table.checks(
        &["MR-126"],
        "peaks of two cards are above those of two ports, with one thread and with two",
        [
            Check::below("one thread, MB/s", PORTS_SERIAL.peak(), CARDS_SERIAL.peak(), 0.05),
            Check::below("two threads, MB/s", PORTS_THREADS.peak(), CARDS_THREADS.peak(), 0.05),
        ],
    );
    table.checks(
        &["MR-144"],
        "peaks with two threads are above those with one by a fifth at least, with two ports and with two cards",
        [("ports", PORTS_SERIAL, PORTS_THREADS), ("cards", CARDS_SERIAL, CARDS_THREADS)]
            .map(|(name, one, two)| Check::below(format!("{name}, MB/s"), one.peak() * 1.2, two.peak(), NO_MARGIN)),
    );
    table.not_modelled(&["MR-127"], "MVAPICH2 is not modelled, and its results are those of other papers");
}
