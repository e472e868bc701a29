//! Sections VI-A, VI-C and VI-E: two nodes.

use super::setups::{HOST, HOST_CORPSE, LARGER, NIC, NIC_CORPSE, PortalsQuantities, SMALL};
use crate::claims::check::{Check, NO_MARGIN, NO_TOLERANCE};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::Setup;
use crate::claims::whatif;

/// Maximum number of entries in the search for the crossing, and its step.
const DEPTHS: u64 = 150;
const STEP: usize = 5;
/// Entries over which the slope is measured.
const DEEP: u64 = 100;

pub(super) fn table(table: &mut ClaimTable) {
    latency(table);
    bandwidth(table);
    streams(table);
    profile(table);
    protocol(table);
    queues(table);
}

fn gap(size: u64) -> Quantity {
    HOST.portals_latency(size) - NIC.portals_latency(size)
}

/// Latency, as in Figure 1(a).
fn latency(table: &mut ClaimTable) {
    table.number(&["AP-048"], "what the card saves at 8 B", gap(SMALL));
    table.number(&["AP-049"], "what it saves at 1 KiB", gap(LARGER));
    table.checks(
        &["AP-050"],
        "the card takes less at 1 B, 8 B, 32 B and 2 KiB",
        [1, SMALL, 32, 2 << 10].map(|n| {
            Check::below(format!("{n} B, us"), NIC.portals_latency(n), HOST.portals_latency(n), NO_MARGIN)
        }),
    );
    table.number(&["AP-051"], "interrupts of a message of 8 B in the kernel", HOST.interrupts(SMALL));
    table.number(&["AP-052"], "interrupts of a message of 1 KiB in the kernel", HOST.interrupts(LARGER));
    let how = "reduction of the latency at 8 B in per cent";
    table.number(&["AP-100"], how, NIC.portals_latency(SMALL).below(HOST.portals_latency(SMALL)));
}

/// Bandwidth, as in Figure 1(b).
fn bandwidth(table: &mut ClaimTable) {
    let peak = Quantity::greatest([512 << 10, 2 << 20, 8 << 20].map(|n| NIC.rate(n)));
    table.number(&["AP-055"], "the largest from 512 KiB to 8 MiB", peak / 1e3);
    let large = 8 << 20;
    table.check(
        &["AP-057"],
        "at 8 MiB both are alike within 2 %",
        Check::alike("MB/s", NIC.rate(large), HOST.rate(large), 0.02),
    );
    table.checks(
        &["AP-058"],
        "at 64 B, 1 KiB and 4 KiB the card is above the kernel by 25 % at least",
        [64, LARGER, 4 << 10].map(|n| Check::above(format!("{n} B, MB/s"), NIC.rate(n), HOST.rate(n), 0.25)),
    );
    let gain = |n: u64| NIC.rate(n).above(HOST.rate(n));
    table.within(&["AP-101"], "gains at 8, 16 and 32 KiB in per cent", [8, 16, 32].map(|k| gain(k << 10)));
}

/// Streams of messages, as in Figure 2.
fn streams(table: &mut ClaimTable) {
    let small = [16, 256, LARGER];
    table.checks(
        &["AP-059"],
        "at 16 B, 256 B and 1 KiB the card is above the kernel by 25 % at least",
        small
            .map(|n| Check::above(format!("{n} B, MB/s"), NIC.stream("uni", n), HOST.stream("uni", n), 0.25)),
    );
    let over = |nic: Setup, host: Setup, n| nic.stream("uni", n) / host.stream("uni", n);
    table.checks(
        &["AP-060"],
        "at 16 B, 256 B and 1 KiB the card's ratio to the kernel is less with the protocol",
        small.map(|n| {
            Check::below(format!("{n} B"), over(NIC_CORPSE, HOST_CORPSE, n), over(NIC, HOST, n), NO_MARGIN)
        }),
    );
    table.checks(
        &["AP-061"],
        "at 16 B, 256 B and 1 KiB the protocol leaves the kernel a larger share of its bandwidth than the card",
        small.map(|n| {
            Check::above(format!("{n} B"), over(HOST_CORPSE, HOST, n), over(NIC_CORPSE, NIC, n), NO_MARGIN)
        }),
    );
    table.check(
        &["AP-119"],
        "at 16 B the card carries more messages than the kernel, by 25 % at least",
        Check::above("MB/s", NIC.stream("uni", 16), HOST.stream("uni", 16), 0.25),
    );
    let large = 1 << 20;
    table.number(
        &["AP-062"],
        "both ways over one way at 1 MiB",
        NIC.stream("bi", large) / NIC.stream("uni", large),
    );
    table.checks(
        &["AP-063"],
        "both ways at 16 B, 256 B and 1 KiB the protocol costs 2 % at least",
        small.map(|n| {
            Check::below(format!("{n} B, MB/s"), NIC_CORPSE.stream("bi", n), NIC.stream("bi", n), 0.02)
        }),
    );
}

/// The breakdown of the time, as in Figure 4.
fn profile(table: &mut ClaimTable) {
    let both = [("card", NIC), ("kernel", HOST)];
    let share = |setup: Setup, part: &str| setup.component(part) / setup.portals_latency(SMALL);
    table.checks(
        &["AP-076"],
        "hypertransport has a fifth of the latency at least, at 8 B in both modes",
        both.map(|(name, setup)| Check::above(name, share(setup, "hypertransport"), 0.2.into(), NO_MARGIN)),
    );
    table.checks(
        &["AP-077"],
        "at 8 B writes that are seen at once would halve hypertransport",
        both.map(|(name, setup)| {
            let seen = match name {
                "card" => NIC.with(whatif::SEEN_AT_ONCE),
                _ => HOST.with(whatif::SEEN_AT_ONCE_HOST),
            };
            Check::below(
                format!("{name}, us"),
                seen.component("hypertransport"),
                setup.component("hypertransport"),
                0.5,
            )
        }),
    );
    let slivers = both.map(|(name, setup)| {
        ["router", "library"].map(|part| {
            Check::at_most(format!("{part}, {name}"), share(setup, part), 0.1.into(), NO_TOLERANCE)
        })
    });
    table.checks(
        &["AP-078"],
        "router and library have a tenth of the latency at most each, at 8 B in both modes",
        slivers.into_iter().flatten(),
    );
    let alike =
        |part: &str| Check::alike(format!("{part}, us"), HOST.component(part), NIC.component(part), 0.25);
    table.check(&["AP-080"], "notify at 8 B in both modes, within 25 %", alike("notify"));
    table.check(&["AP-081"], "polling at 8 B in both modes, within 25 %", alike("polling"));
    let more = |part: &str| {
        Check::above(format!("{part}, us"), NIC.component(part), HOST.component(part), NO_MARGIN)
    };
    table.checks(
        &["AP-084"],
        "transmit and receive at 8 B take longer on the card",
        [more("transmit"), more("receive")],
    );
    table.checks(
        &["AP-085"],
        "at 8 B portals takes half at most on the card, and interrupts nothing",
        [
            Check::at_most(
                "portals, us",
                NIC.component("portals"),
                HOST.component("portals") * 0.5,
                NO_TOLERANCE,
            ),
            Check::at_most("interrupt, us", NIC.component("interrupt"), 0.001.into(), NO_TOLERANCE),
        ],
    );
    table.unused(&["AP-086"], "the model knows where all of its time goes");
    table.check(
        &["AP-124"],
        "at 8 B library has a tenth of the latency at most on the card",
        Check::at_most("share", share(NIC, "library"), 0.1.into(), NO_TOLERANCE),
    );
}

/// The protocol's cost in a ping-pong.
fn protocol(table: &mut ClaimTable) {
    let minimal = |n: u64| {
        [
            Check::above(
                format!("{n} B, us"),
                NIC_CORPSE.portals_latency(n),
                NIC.portals_latency(n),
                NO_MARGIN,
            ),
            Check::at_most(format!("{n} B, us"), NIC_CORPSE.portals_latency(n), NIC.portals_latency(n), 0.05),
        ]
    };
    table.checks(&["AP-054"], "at 8 B the protocol adds something, and 5 % at most", minimal(SMALL));
    table.checks(&["AP-102"], "at 1 KiB the protocol adds something, and 5 % at most", minimal(LARGER));
    let added = (NIC_CORPSE.portals_latency(SMALL) - NIC.portals_latency(SMALL)) * 1e3;
    table.check(
        &["AP-120"],
        "at 8 B it adds less than half of firmware.protocol_ns at both ends",
        Check::below("ns", added, NIC.parameter("firmware.protocol_ns"), NO_MARGIN),
    );
}

/// Lists of posted receives, as in Figure 7.
fn queues(table: &mut ClaimTable) {
    let slope = |setup: Setup| (setup.latency_behind(DEEP) - setup.latency_behind(0)) * (1e3 / DEEP as f64);
    table.number(&["AP-095"], "what 100 entries add to the latency, for each", slope(NIC));
    let depths =
        (0..=DEPTHS).step_by(STEP).map(|q| (q as f64, HOST.latency_behind(q) / NIC.latency_behind(q)));
    table.number(
        &["AP-096"],
        "the last number of entries, in steps of 5, behind which the card is not slower",
        Quantity::last(depths.collect(), 1.0.into()),
    );
    let missing = HOST.with(whatif::EVERY_ENTRY_MISSES);
    table.number(
        &["AP-097"],
        "an entry in the kernel that is fetched from memory over one that is not",
        slope(missing) / slope(HOST),
    );
    table.checks(
        &["AP-098", "AP-126"],
        "behind 100 entries the kernel loses if it fetches each from memory, and wins as it is",
        [
            Check::above("fetched, us", missing.latency_behind(DEEP), NIC.latency_behind(DEEP), NO_MARGIN),
            Check::below("as it is, us", HOST.latency_behind(DEEP), NIC.latency_behind(DEEP), NO_MARGIN),
        ],
    );
}
