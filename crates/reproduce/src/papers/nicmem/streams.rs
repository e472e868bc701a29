//! Bandwidth of streams: one way (section 3.2, Figure 5), both ways (3.3, Figure 6), over two ports (3.4, Figures 7, 8).

use super::constants::{bus_peak, link_peak};
use super::setups::{MT23108, NIC_CASES};
use crate::claims::check::{Check, NO_MARGIN, NO_TOLERANCE};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::{
    Ends, HOST_HOST, HOST_NIC, NIC_HOST, NIC_NIC, SWEEP, Setup, case, leaves, raises,
};
use crate::claims::whatif;

/// The size at which causes are tested.
const PROBED: u64 = 64 << 10;
/// Messages that the paper may call small.
const SMALL: [u64; 3] = [64, 256, 1 << 10];

fn unidirectional(setup: Setup, ends: Ends, ports: u32) -> Quantity {
    setup.bandwidth("write", ends, ports, PROBED)
}

fn bidirectional(setup: Setup, ends: Ends, ports: u32) -> Quantity {
    setup.bibw("write", ends, ports, PROBED)
}

fn peak(ends: Ends, ports: u32) -> Quantity {
    MT23108.peak("write", ends, ports)
}

fn bipeak(ends: Ends, ports: u32) -> Quantity {
    MT23108.bipeak("write", ends, ports)
}

/// Section 3.2: streams one way.
pub(super) fn one_way(table: &mut ClaimTable) {
    let how = "largest bandwidth, 16 KiB to 1 MiB";
    table.number(&["NM-043"], how, peak(HOST_HOST, 1));
    table.number(&["NM-044", "NM-076"], how, peak(NIC_NIC, 1));
    table.number(&["NM-045"], how, peak(NIC_HOST, 1));
    table.number(&["NM-046"], how, peak(HOST_NIC, 1));
    let gain = |ends, size| {
        MT23108.bandwidth("write", ends, 1, size).above(MT23108.bandwidth("write", HOST_HOST, 1, size))
    };
    let how = "least and greatest gain over host-to-host, 64 B to 1 MiB";
    table.range(&["NM-047"], how, SWEEP.map(|n| gain(NIC_NIC, n)));
    table.range(&["NM-048"], how, SWEEP.map(|n| gain(NIC_HOST, n)));
    let how = "least and greatest gain over host-to-host, 64 B to 1 KiB";
    table.range(&["NM-049"], how, SMALL.map(|n| gain(HOST_NIC, n)));
    let close = |size| {
        let at = |ends| MT23108.bandwidth("write", ends, 1, size);
        Check::alike("host-to-nic against host-to-host, MB/s", at(HOST_NIC), at(HOST_HOST), 0.03)
    };
    table.checks(
        &["NM-050"],
        "host-to-nic is within 3 % of host-to-host from 64 KiB on",
        [64 << 10, 256 << 10, 1 << 20].map(close),
    );
    let fast = MT23108.with(whatif::BUS_TWICE);
    table.checks(
        &["NM-051"],
        "with a bus twice as fast host-to-host gains 5 % at least, nic-to-nic and nic-to-host at most 2 %",
        [
            raises(
                "host-to-host, MB/s",
                unidirectional(fast, HOST_HOST, 1),
                unidirectional(MT23108, HOST_HOST, 1),
            ),
            leaves("nic-to-nic, MB/s", unidirectional(fast, NIC_NIC, 1), unidirectional(MT23108, NIC_NIC, 1)),
            leaves(
                "nic-to-host, MB/s",
                unidirectional(fast, NIC_HOST, 1),
                unidirectional(MT23108, NIC_HOST, 1),
            ),
        ],
    );
    bottleneck(table);
}

/// Section 5 sums up the card's limits, section 4.1 where NIC memory avoids them.
fn bottleneck(table: &mut ClaimTable) {
    let change = |options| unidirectional(MT23108.with(options), HOST_HOST, 1);
    let base = || unidirectional(MT23108, HOST_HOST, 1);
    table.checks(
        &["NM-128"],
        "host-to-host gains 5 % at least from a bus twice as fast, at most 2 % from link or NIC memory twice as fast",
        [
            raises("bus, MB/s", change(whatif::BUS_TWICE), base()),
            leaves("link, MB/s", change(whatif::LINK_TWICE), base()),
            leaves("NIC memory, MB/s", change(whatif::NIC_MEMORY_TWICE), base()),
        ],
    );
    let halfway = |what, a, b| Check::below(what, a, b, 1.0 / 3.0);
    table.checks(
        &["NM-098"],
        "nic-to-nic is half as fast again as host-to-host: two ports one way, one and two ports both ways",
        [
            halfway("two ports, MB/s", peak(HOST_HOST, 2), peak(NIC_NIC, 2)),
            halfway("both ways, MB/s", bipeak(HOST_HOST, 1), bipeak(NIC_NIC, 1)),
            halfway("two ports, both ways, MB/s", bipeak(HOST_HOST, 2), bipeak(NIC_NIC, 2)),
        ],
    );
}

/// Section 3.3: streams both ways.
pub(super) fn both_ways(table: &mut ClaimTable) {
    let how = "largest bandwidth both ways together, 16 KiB to 1 MiB";
    table.number(&["NM-054"], how, bipeak(HOST_HOST, 1));
    table.number(&["NM-055"], how, bipeak(NIC_NIC, 1));
    table.number(&["NM-056"], how, bipeak(NIC_HOST, 1));
    table.number(&["NM-057"], how, bipeak(HOST_NIC, 1));
    table.number(
        &["NM-058"],
        "peak both ways over peak one way, the least of the three cases with NIC memory",
        Quantity::least(NIC_CASES.map(|ends| bipeak(ends, 1) / peak(ends, 1))),
    );
    let slow = MT23108.with(whatif::BUS_HALF);
    table.checks(
        &["NM-060"],
        "a bus half as fast leaves nic-to-nic within 2 %",
        [leaves("MB/s", bidirectional(slow, NIC_NIC, 1), bidirectional(MT23108, NIC_NIC, 1))],
    );
    let change = |options| bidirectional(MT23108.with(options), NIC_NIC, 1);
    table.checks(
        &["NM-145"],
        "link and NIC memory twice as fast raise nic-to-nic by 5 % at least, a bus twice as fast by at most 2 %",
        [
            raises("link and NIC memory, MB/s", change(whatif::LINK_AND_NIC_MEMORY_TWICE), bidirectional(MT23108, NIC_NIC, 1)),
            leaves("bus, MB/s", change(whatif::BUS_TWICE), bidirectional(MT23108, NIC_NIC, 1)),
        ],
    );
    table.checks(
        &["NM-063"],
        "peak of nic-to-nic reaches 90 % of the link's data rate both ways",
        [Check::at_most("MB/s", link_peak() * 2.0 * 0.9, bipeak(NIC_NIC, 1), NO_TOLERANCE)],
    );
    table.checks(
        &["NM-065"],
        "peaks above what one bus can carry",
        [NIC_HOST, HOST_NIC].map(|ends| Check::below(case(ends), bus_peak(), bipeak(ends, 1), NO_MARGIN)),
    );
}

/// Section 3.4, Figure 7.
pub(super) fn two_ports_one_way(table: &mut ClaimTable) {
    let how = "largest bandwidth over two ports, 16 KiB to 1 MiB";
    table.number(&["NM-067"], how, peak(HOST_HOST, 2));
    table.number(&["NM-068", "NM-075"], how, peak(NIC_NIC, 2));
    table.number(&["NM-069"], how, peak(NIC_HOST, 2));
    table.number(&["NM-070"], how, peak(HOST_NIC, 2));
    let fast = MT23108.with(whatif::BUS_TWICE);
    let link = MT23108.with(whatif::LINK_TWICE);
    table.checks(
        &["NM-072"],
        "each gains 5 % at least from a bus twice as fast, at most 2 % from links twice as fast",
        [HOST_HOST, NIC_HOST, HOST_NIC].into_iter().flat_map(|ends| {
            let (of, base) = (case(ends), || unidirectional(MT23108, ends, 2));
            [
                raises(format!("{of}, bus, MB/s"), unidirectional(fast, ends, 2), base()),
                leaves(format!("{of}, links, MB/s"), unidirectional(link, ends, 2), base()),
            ]
        }),
    );
    table.checks(
        &["NM-073"],
        "peak with two ports is below that with one, by 15 % at most",
        [HOST_HOST, HOST_NIC].into_iter().flat_map(|ends| {
            [
                Check::below(case(ends), peak(ends, 2), peak(ends, 1), NO_MARGIN),
                Check::at_most(case(ends), peak(ends, 1) * 0.85, peak(ends, 2), NO_TOLERANCE),
            ]
        }),
    );
    table.checks(
        &["NM-077"],
        "a bus half as fast leaves nic-to-nic within 2 %",
        [leaves(
            "MB/s",
            unidirectional(MT23108.with(whatif::BUS_HALF), NIC_NIC, 2),
            unidirectional(MT23108, NIC_NIC, 2),
        )],
    );
}

/// Section 3.4, Figure 8.
pub(super) fn two_ports_both_ways(table: &mut ClaimTable) {
    let how = "largest bandwidth over two ports both ways together, 16 KiB to 1 MiB";
    table.number(&["NM-078"], how, bipeak(HOST_HOST, 2));
    table.number(&["NM-079"], how, bipeak(NIC_NIC, 2));
    table.number(&["NM-080"], how, bipeak(NIC_HOST, 2));
    table.number(&["NM-081"], how, bipeak(HOST_NIC, 2));
    let change = |options, ends| bidirectional(MT23108.with(options), ends, 2);
    let base = |ends| bidirectional(MT23108, ends, 2);
    let by_bus = |ends| {
        [
            raises("bus, MB/s", change(whatif::BUS_TWICE, ends), base(ends)),
            leaves("links, MB/s", change(whatif::LINK_TWICE, ends), base(ends)),
        ]
    };
    let how = "5 % at least from a bus twice as fast, at most 2 % from links twice as fast";
    table.checks(&["NM-082"], how, by_bus(HOST_HOST));
    table.checks(&["NM-086"], how, by_bus(NIC_HOST));
    let order = |what, a, b| Check::below(what, bipeak(a, 2), bipeak(b, 2), NO_MARGIN);
    table.checks(&["NM-087"], "peaks", [order("MB/s", NIC_NIC, NIC_HOST)]);
    table.not_modelled(
        &["NM-088"],
        "a suspicion that the paper's own one-port figure speaks against (N3): the same mix reaches 1859 MB/s there; \
         the model has no penalty for mixing reads and writes",
    );
    table.checks(&["NM-090"], "peaks", [order("MB/s", HOST_NIC, NIC_NIC), order("MB/s", HOST_NIC, NIC_HOST)]);
    table.checks(
        &["NM-091"],
        "faster DMA reads raise host-to-nic by 5 % at least",
        [raises("MB/s", change(whatif::DMA_READ_FASTER, HOST_NIC), base(HOST_NIC))],
    );
}
