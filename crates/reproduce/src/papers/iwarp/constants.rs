//! Values that the paper states rather than measures: the machine, versions, and how connections are established (3).

use super::setups::{ALL, CARD, RING};
use crate::claims::check::{Check, NO_TOLERANCE};
use crate::claims::claim::ClaimTable;
use crate::claims::whatif::key;

const UNUSED: &str = "nothing in the model depends on it";
const BUILT: &str = "how our MPI connects when it connects at the start";

/// Bytes of a packet that the paper counts in the MTU and the machine file does not.
const HEADERS: f64 = 60.0;

pub(super) fn table(table: &mut ClaimTable) {
    table.unused(&["IW-007"], "nothing in the model depends on how many use the library");
    hardware(table);
    connections(table);
    table.unused(&["IW-078", "IW-079", "IW-080", "IW-081"], UNUSED);
}

/// Section 4 on the machines.
fn hardware(table: &mut ClaimTable) {
    table.method(&["IW-013", "IW-060", "IW-071"], "nodes that processes sit on", 4.0);
    table.unused(&["IW-014", "IW-015"], "each rank has a processor of its own, up to eight of a node");
    table.unused(&["IW-016", "IW-017"], UNUSED);
    let link = CARD.parameter(key::LINK_RATE);
    table.input(&["IW-018"], "link.rate_mbps, in Gb/s", link * 8.0 / 1e3);
    table.input(&["IW-019"], "bus.width_bytes: a byte of each lane", CARD.parameter(key::BUS_WIDTH));
    table.unused(&["IW-020"], "the modelled switch has as many ports as there are cards");
    let mtu = CARD.parameter("link.mtu_bytes") + HEADERS;
    table.input(&["IW-021"], "link.mtu_bytes, with the headers of IP, TCP, MPA, DDP and RDMAP", mtu);
    table.method(&["IW-059", "IW-068", "IW-077"], "processes of a collective operation", 32.0);
    table.method(&["IW-070"], "processes of a kernel", 16.0);
}

/// Section 3 on connections.
fn connections(table: &mut ClaimTable) {
    table.method(
        &["IW-008"],
        "messages of a modelled connection: request, answer, and that it is ready",
        3.0,
    );
    table.method(&["IW-011"], "messages of the connecting side by which the other one is established", 1.0);
    let counts = |of: &str| RING.connections(of);
    let pairs = (ALL * (ALL - 1) / 2) as f64;
    table.checks(
        &["IW-009"],
        "of 32 processes that all connect at the start, one of each pair asks, and that is the higher rank",
        [
            Check::alike("requests, and pairs", counts("requests"), pairs.into(), NO_TOLERANCE),
            Check::alike("answers, and pairs", counts("answers"), pairs.into(), NO_TOLERANCE),
            Check::alike("requests of the lower rank", counts("lower"), 0.0.into(), NO_TOLERANCE),
        ],
    );
    table.check(
        &["IW-010"],
        "no request of 32 processes is to another rank than the one below that before it",
        Check::alike("requests out of order", counts("disorder"), 0.0.into(), NO_TOLERANCE),
    );
    table.unused(&["IW-082"], BUILT);
    table.unused(
        &["IW-012"],
        "a modelled queue pair sends once it is established, the passive one by its peer's message",
    );
    table.not_modelled(&["IW-083", "IW-084"], "our MPI has one queue pair for all that two processes do");
    table.unused(&["IW-085", "IW-086"], "how the fast path of our MPI is built");
}
