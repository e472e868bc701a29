//! Values that the paper states rather than measures: the machine (sections 2 and 3), constants of its experiments,
//! limits derived from the machine, and the next card, which it only discusses.

use super::setups::MT23108;
use crate::claims::check::{Check, NO_MARGIN};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::NIC_NIC;
use crate::claims::whatif::key;

const VERSION: &str = "names a version of software, of which nothing in the model depends";
const UNUSED: &str = "nothing in the model depends on it";

/// 10^6 bytes per second of the bus: width times clock.
pub(super) fn bus_peak() -> Quantity {
    MT23108.parameter(key::BUS_WIDTH) * MT23108.parameter(key::BUS_CLOCK)
}

/// Data rate of a port in one direction, in 10^6 bytes per second.
pub(super) fn link_peak() -> Quantity {
    MT23108.parameter(key::LINK_RATE)
}

/// Gb/s on the wire of a port in one direction: 10 bits for 8.
fn link_bits() -> Quantity {
    link_peak() * (10.0 / 1000.0)
}

/// Sections 2.1 and 3.
pub(super) fn hardware(table: &mut ClaimTable) {
    let parameter = |key| MT23108.parameter(key);
    table.input(&["NM-002", "NM-023"], "bus.width_bytes, in bits", parameter(key::BUS_WIDTH) * 8.0);
    table.input(&["NM-003", "NM-024"], key::BUS_CLOCK, parameter(key::BUS_CLOCK));
    table.input(&["NM-004"], key::PORTS, parameter(key::PORTS));
    table.input(&["NM-005"], "link.rate_mbps, with the line code", link_bits());
    table.unused(&["NM-006"], "the rating of the memory; the model has the clock at which it runs");
    table.input(&["NM-007"], "nic_memory.rate_mbps over 8 bytes", parameter(key::NIC_MEMORY) / 8.0);
    table.unused(&["NM-008", "NM-009", "NM-010"], UNUSED);
    table.input(&["NM-011"], "both directions", link_bits() * 2.0);
    table.method(&["NM-012"], "taken off in link.rate_mbps", 0.8);
    table.input(&["NM-013"], "both directions, after the line code", link_peak() * (2.0 * 8.0 / 1000.0));
    table.input(&["NM-014"], "both directions, after the line code", link_peak() * 2.0);
    table.method(&["NM-015"], "10^6 bytes, as all results here", 1e6);
    table.input(&["NM-016"], "two ports, both directions", link_peak() * 2.0 * parameter(key::PORTS));
    table.input(&["NM-017"], key::NIC_MEMORY, parameter(key::NIC_MEMORY));
    table.input(&["NM-018"], "width times clock", bus_peak());
    table.method(&["NM-019"], "nodes of the longest chain and the largest hotspot", 8.0);
    table.unused(&["NM-020", "NM-021", "NM-022", "NM-025", "NM-026", "NM-027"], UNUSED);
    table.not_modelled(&["NM-135", "NM-136"], VERSION);
    table.checks(
        &["NM-137"],
        "peak of nic-to-nic through one port reaches 90 % of the link's data rate",
        [Check::below("MB/s", link_peak() * 0.9, MT23108.peak("write", NIC_NIC, 1), NO_MARGIN)],
    );
    table.not_modelled(
        &["NM-139"],
        "the model has the card's DMA, but no programmed access of the processor to NIC memory",
    );
}

/// The parameters of the experiments.
pub(super) fn method(table: &mut ClaimTable) {
    let window = f64::from(MT23108.tuning.window);
    table.method(&["NM-042"], "the window of all streams", window);
    table.method(&["NM-064"], "writes cross the bus of the target only", 1.0);
    table.method(&["NM-066"], "ports over which each message is split", 2.0);
    table.method(&["NM-074"], "a message is two writes, one for each port", 2.0);
    table.method(&["NM-092"], "message size of the hotspot", 2048.0);
    table.method(&["NM-100"], "blocks of a message", 8.0);
    table.method(&["NM-101"], "blocks of 8 to 64 KiB; the largest", 64.0);
    table.method(&["NM-102"], "gap of one block", 1.0);
    table.method(&["NM-103"], "reuse measured", 0.0);
    table.method(&["NM-104"], "reuse measured", 20.0);
    table.method(&["NM-105"], "reuse measured", 80.0);
    table.method(&["NM-106"], "reuse measured", 100.0);
    table.method(&["NM-116"], "into host memory, and out of it again", 2.0);
    table.method(&["NM-117"], "message size measured", 4096.0);
    table.method(&["NM-118"], "message size measured", 65536.0);
    table.method(&["NM-119"], "message size measured", 1_048_576.0);
    table.method(
        &["NM-127"],
        "NIC memory, the card's interconnect, its engines, and the link are modelled",
        4.0,
    );
    table.method(&["NM-141", "NM-143"], "cases measured", 4.0);
    table.method(&["NM-142"], "cases measured, and memcpy", 5.0);
    table.unused(&["NM-144"], "a definition: the improvements here are computed against host-to-host");
}

/// Limits that follow from the machine.
pub(super) fn limits(table: &mut ClaimTable) {
    table.input(&["NM-059"], "bus: width times clock", bus_peak());
    table.input(&["NM-061", "NM-071"], "two links' worth of data", link_peak() * 2.0);
    table.input(&["NM-062", "NM-084"], key::NIC_MEMORY, MT23108.parameter(key::NIC_MEMORY));
    table.input(&["NM-083"], "four links' worth of data", link_peak() * 4.0);
    table.method(&["NM-085", "NM-089"], "each of the two buses carries one direction", 2.0);
}

/// Section 5: the MT25208.
pub(super) fn next_generation(table: &mut ClaimTable) {
    table.not_modelled(
        &["NM-129", "NM-130", "NM-131", "NM-132", "NM-133", "NM-134"],
        "the MT25208 is only discussed in the paper, never measured; it has no model",
    );
}
