//! Small messages (5.2), and the breakdown of their time (5.5): Figures 4, 9 and 10.

use super::setups::{
    CARDS_SERIAL, CARDS_THREADS, LARGEST, ONE, PORTS_SERIAL, PORTS_THREADS, RailSetup, SMALL, above, from,
};
use crate::claims::check::{Check, NO_MARGIN, NO_TOLERANCE};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::whatif;

/// Both engines over both kinds of rails.
const SERIALS: [(&str, RailSetup); 2] = [("ports", PORTS_SERIAL), ("cards", CARDS_SERIAL)];

pub(super) fn table(table: &mut ClaimTable) {
    ranges(table);
    comparisons(table);
    causes(table);
    breakdown(table);
    breakdown_claims(table);
}

fn ranges(table: &mut ClaimTable) {
    let how = "least and greatest time of a write, 8 B to 4 KiB: a twentieth of an operation";
    table.range(&["MR-048"], how, SMALL.map(|n| ONE.latency(n)));
    table.range(&["MR-049"], how, SMALL.map(|n| PORTS_THREADS.latency(n)));
    table.range(&["MR-050"], how, SMALL.map(|n| CARDS_THREADS.latency(n)));
    let how = "least time of a write, 8 B to 4 KiB";
    table.number(&["MR-056"], how, Quantity::least(SMALL.map(|n| PORTS_SERIAL.latency(n))));
    table.number(&["MR-057"], how, Quantity::least(SMALL.map(|n| CARDS_SERIAL.latency(n))));
    table.number(
        &["MR-052"],
        "two cards with threads less a single rail, mean of 8 to 64 B",
        Quantity::mean([8, 16, 32, 64].map(|n| CARDS_THREADS.latency(n) - ONE.latency(n))),
    );
    table.number(&["MR-054"], "time of a write of 4 KiB", CARDS_THREADS.latency(4096));
    table.number(
        &["MR-055"],
        "time of a write of 4 KiB over that of a single rail, as a factor",
        CARDS_THREADS.latency(4096) / ONE.latency(4096),
    );
}

fn comparisons(table: &mut ClaimTable) {
    let gain = |case: RailSetup| move |n| ONE.latency(n) / case.latency(n);
    let how = "largest size, 8 B to 4 KiB, at which the time is not shorter by 5 %";
    table.number(&["MR-053", "MR-059"], how, above(&SMALL, gain(CARDS_THREADS)));
    table.number(&["MR-060"], how, above(&SMALL, gain(PORTS_THREADS)));
    table.checks(
        &["MR-051"],
        "longer over two ports with threads than over a single rail at 8 B to 1 KiB, but by a quarter at most: slightly",
        [8, 64, 128, 256, 512, 1024].into_iter().flat_map(|n| {
            let (one, ports) = (ONE.latency(n), PORTS_THREADS.latency(n));
            let what = format!("{n} B, us");
            [
                Check::below(what.clone(), one.clone(), ports.clone(), NO_MARGIN),
                Check::at_most(what, ports, one, 0.25),
            ]
        }),
    );
    for (row, (_, case)) in [(&["MR-061"], SERIALS[0]), (&["MR-062"], SERIALS[1])] {
        table.checks(
            row,
            "not shorter than over a single rail at any size from 8 B to 4 KiB",
            SMALL
                .map(|n| Check::at_most(format!("{n} B, us"), ONE.latency(n), case.latency(n), NO_TOLERANCE)),
        );
    }
    table.checks(
        &["MR-141"],
        "with threads at most half longer than over a single rail at 8 B to 4 KiB",
        [("ports", PORTS_THREADS), ("cards", CARDS_THREADS)].into_iter().flat_map(|(name, case)| {
            SMALL.map(|n| Check::at_most(format!("{name}, {n} B, us"), case.latency(n), ONE.latency(n), 0.5))
        }),
    );
}

fn causes(table: &mut ClaimTable) {
    let calm = |case: RailSetup, n| case.with(whatif::NO_TURNS).latency(n);
    // The additional time of one thread for both rails over a single rail, with and without the cost of switching
    // between them.
    let half = |name: &str, case: RailSetup| {
        let beyond = |late: Quantity| late - ONE.latency(512);
        Check::below(format!("{name}, us"), beyond(calm(case, 512)), beyond(case.latency(512)), 0.5)
    };
    table.checks(
        &["MR-058"],
        "at 512 B one thread over two ports takes longer than over two cards, which share nothing; and more than half of what \
         it takes beyond a single rail goes if waiting at one rail does not hold up waiting at the other",
        [
            Check::below("ports and cards, us", CARDS_SERIAL.latency(512), PORTS_SERIAL.latency(512), NO_MARGIN),
            half("ports", PORTS_SERIAL),
        ],
    );
    table.checks(
        &["MR-029"],
        "more than half of what one thread takes at 512 B beyond a single rail goes if waiting at one rail does not hold up \
         waiting at the other",
        [half("cards", CARDS_SERIAL)],
    );
    let wait = |case: RailSetup| case.wait(512);
    table.checks(
        &["MR-111"],
        "if waiting at one rail does not hold up waiting at the other, less than half of the waits at 512 B is left",
        [Check::below("us", wait(CARDS_SERIAL.with(whatif::NO_TURNS)), wait(CARDS_SERIAL), 0.5)],
    );
    let free = CARDS_THREADS.with(whatif::FREE_THREADS);
    table.checks(
        &["MR-108"],
        "if threads began and joined at once, the time of a write of 8 to 128 B would be shorter by 5 % at least",
        [8, 32, 128].map(|n| Check::below(format!("{n} B, us"), free.latency(n), CARDS_THREADS.latency(n), 0.05)),
    );
}

fn breakdown(table: &mut ClaimTable) {
    let how = "from the first post until the last of 20 writes is posted";
    table.number(&["MR-102"], how, ONE.post(512));
    table.number(&["MR-103"], how, CARDS_THREADS.post(512));
    table.number(&["MR-104"], how, CARDS_SERIAL.post(512));
    table.number(&["MR-114"], how, ONE.post(4096));
    table.number(&["MR-115"], how, CARDS_SERIAL.post(4096));
    table.number(
        &["MR-113"],
        "posting with threads less posting over a single rail",
        CARDS_THREADS.post(4096) - ONE.post(4096),
    );
    let how = "in waits for the peer's answers";
    table.number(&["MR-105"], how, ONE.wait(512));
    table.number(&["MR-106"], how, CARDS_THREADS.wait(512));
    table.number(&["MR-109"], how, CARDS_SERIAL.wait(512));
    table.number(&["MR-116"], how, ONE.wait(4096));
    table.number(&["MR-117"], how, CARDS_THREADS.wait(4096));
    table.number(&["MR-118"], how, CARDS_SERIAL.wait(4096));
    let more = |n| (CARDS_SERIAL.wait(n) - ONE.wait(n)) / ONE.wait(n);
    table.number(
        &["MR-110"],
        "how many times more than over a single rail: the difference over it",
        more(512),
    );
    table.exactly(
        &["MR-119"],
        "how many times that of a single rail it is, whole ones: more than twice, and not three times",
        (CARDS_SERIAL.wait(4096) / ONE.wait(4096) - 0.5).rounded(1.0),
    );
    table.exactly(
        &["MR-107"],
        "smallest size, 8 B to 4 KiB, from which on an operation is shorter by 5 % with threads",
        from(&SMALL, |n| ONE.latency(n) / CARDS_THREADS.latency(n)),
    );
}

fn breakdown_claims(table: &mut ClaimTable) {
    let ratio = |n| CARDS_SERIAL.wait(n) / ONE.wait(n);
    table.checks(
        &["MR-120"],
        "the ratio at 4 KiB is less than that at 512 B by 20 % at least",
        [Check::below("times", ratio(4096), ratio(512), 0.2)],
    );
    table.checks(
        &["MR-142"],
        "posting 20 writes of 512 B with threads and over a single rail, within 50 %",
        [Check::alike("us", CARDS_THREADS.post(512), ONE.post(512), 0.5)],
    );
    table.checks(
        &["MR-143"],
        "posting 20 writes of 4 KiB and of 512 B by one thread, within 10 %",
        [Check::alike("us", CARDS_SERIAL.post(4096), CARDS_SERIAL.post(512), 0.1)],
    );
    table.checks(
        &["MR-129"],
        "posting 20 writes of 2 MiB takes as long as of 512 B, within 10 %: no call waits for its data",
        [Check::alike("us", ONE.post(LARGEST), ONE.post(512), 0.1)],
    );
    table.checks(
        &["MR-028"],
        "one thread posts to two cards for longer than to one, by 40 % at least; at 2 MiB their data overlap: more than 1.5 \
         times the bandwidth",
        [
            Check::below("posting, us", ONE.post(512) * 1.4, CARDS_SERIAL.post(512), NO_MARGIN),
            Check::below("MB/s", ONE.unidirectional(LARGEST) * 1.5, CARDS_SERIAL.unidirectional(LARGEST), NO_MARGIN),
        ],
    );
}
