//! Values that the paper states rather than measures: the machine, its firmware, the parameters of its experiments.

use super::setups::{BLOCK, CARD, HOST, LARGER, NIC, PortalsQuantities, SMALL};
use crate::claims::check::{Check, NO_MARGIN, NO_TOLERANCE};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::raises;
use crate::claims::whatif;

const UNUSED: &str = "nothing in the model depends on it";
const BUILT: &str = "how the model is built";
const TESTED: &str = "how the model is built; its tests hold it";
const CONSTANT: &str = "a constant of the machine file's arithmetic";

pub(super) fn table(table: &mut ClaimTable) {
    hardware(table);
    firmware(table);
    method(table);
    causes(table);
}

/// Sections II, III and V-A.
fn hardware(table: &mut ClaimTable) {
    table.method(&["AP-001", "AP-103"], CONSTANT, 500.0);
    table.unused(&["AP-002", "AP-003", "AP-004", "AP-046"], UNUSED);
    table.input(&["AP-005", "AP-014"], "firmware.memory_kib", NIC.parameter("firmware.memory_kib"));
    table.unused(&["AP-006"], "the card's own processor sets all transfers up");
    table.input(&["AP-024"], "firmware.stream_count", NIC.parameter("firmware.stream_count"));
    table.input(&["AP-029"], "kernel.trap_ns", NIC.parameter("kernel.trap_ns"));
    let nodes = ["x", "y", "z"].map(|along| match along {
        "x" => NIC.parameter("router.x_nodes"),
        "y" => NIC.parameter("router.y_nodes"),
        _ => NIC.parameter("router.z_nodes"),
    });
    let [x, y, z] = nodes;
    table.input(&["AP-042"], "router.x_nodes times y_nodes times z_nodes", x * y * z);
    let closed = |what: &str, key: &'static str, is: f64| {
        Check::alike(what, NIC.parameter(key), is.into(), NO_TOLERANCE)
    };
    table.checks(
        &["AP-043"],
        "of the three flags of router only z_torus_flag is set",
        [
            closed("x", "router.x_torus_flag", 0.0),
            closed("y", "router.y_torus_flag", 0.0),
            closed("z", "router.z_torus_flag", 1.0),
        ],
    );
    table.method(&["AP-044"], "dimensions of the mesh", 3.0);
    table.method(&["AP-045"], CONSTANT, 2.0);
    table.input(&["AP-053"], "firmware.pio_bytes", NIC.parameter("firmware.pio_bytes"));
    table.unused(&["AP-056"], "of the card after this one");
    let router =
        Quantity::Parameter("model:mt23108-vapi", "switch.latency_ns") / NIC.parameter("router.hop_ns");
    table.input(&["AP-079"], "switch.latency_ns of mt23108-vapi over router.hop_ns", router);
    table.check(
        &["AP-017"],
        "firmware.match_ns is above kernel.match_ns by a quarter at least",
        Check::above(
            "an entry, ns",
            NIC.parameter("firmware.match_ns"),
            NIC.parameter("kernel.match_ns"),
            0.25,
        ),
    );
    debug_assert_eq!(NIC.card, CARD);
}

/// Section III on the firmware.
fn firmware(table: &mut ClaimTable) {
    table.unused(&["AP-007", "AP-008", "AP-010", "AP-011", "AP-012", "AP-016"], UNUSED);
    table.input(&["AP-009"], "firmware.image_kib", NIC.parameter("firmware.image_kib"));
    table.unused(&["AP-013", "AP-015", "AP-018", "AP-020", "AP-022", "AP-023", "AP-104"], BUILT);
    table.unused(&["AP-105", "AP-107", "AP-108", "AP-109", "AP-110", "AP-112", "AP-125"], BUILT);
    table.unused(&["AP-025", "AP-115"], TESTED);
    table.unused(&["AP-082"], "of an older firmware");
    table.input(&["AP-083"], "firmware.turn_ns", NIC.parameter("firmware.turn_ns"));
    table.unused(&["AP-117", "AP-118", "AP-121", "AP-127"], UNUSED);
    table.not_modelled(&["AP-123"], "of neither usual algorithm for allgather do both grow (A12)");
    table.not_modelled(
        &["AP-128"],
        "the entries for unexpected messages have room for all of the experiments",
    );
    table.check(
        &["AP-019"],
        "at 8 B a transfer less for the header changes the latency by 5 % at most",
        Check::alike(
            "us",
            NIC.with(whatif::NO_SECOND_HEADER).portals_latency(SMALL),
            NIC.portals_latency(SMALL),
            0.05,
        ),
    );
    table.number(&["AP-021"], "interrupts of a message of 1 KiB", NIC.interrupts(LARGER));
}

/// Constants of the experiments.
fn method(table: &mut ClaimTable) {
    table.method(&["AP-047"], "messages in flight", 64.0);
    table.method(&["AP-064"], "collectives of Figure 3", 4.0);
    let block = BLOCK as f64;
    table.method(&["AP-067", "AP-068", "AP-069"], "bytes of a block or vector", block);
    table.method(&["AP-088", "AP-090", "AP-092", "AP-094"], "bytes of a block or vector", block);
    table.method(&["AP-099"], "entries of a typical list", 30.0);
    table.unused(&["AP-106"], "the benchmarks are the suite's own");
}

/// The causes of slow matching in the kernel.
fn causes(table: &mut ClaimTable) {
    table.check(
        &["AP-111"],
        "at 8 B in the kernel handlers that do not read the card's memory shorten the latency by 5 % at least",
        raises("us", HOST.portals_latency(SMALL), HOST.with(whatif::HANDLERS_WITHOUT_READS).portals_latency(SMALL)),
    );
    let gap = HOST.portals_latency(SMALL) - NIC.portals_latency(SMALL);
    table.check(
        &["AP-113"],
        "at 8 B the interrupt takes more than half of what the card saves",
        Check::above("us", HOST.component("interrupt"), gap * 0.5, NO_MARGIN),
    );
    let work = |setup: crate::claims::setup::Setup| {
        setup.component("portals") + setup.component("interrupt") + setup.component("library")
    };
    table.check(
        &["AP-114"],
        "at 8 B the host's processor has less to do by 25 % at least",
        Check::below("us", work(NIC), work(HOST), 0.25),
    );
}
