//! Values that the paper states rather than measures: the machine, the parameters of its experiments, and the bounds.

use super::setups::{
    CARDS, CHANNELS_SERIAL, CHANNELS_THREADS, LARGEST, PORTS, PORTS_SERIAL, PORTS_THREADS, SINGLE,
};
use crate::claims::check::{Check, NO_TOLERANCE};
use crate::claims::claim::ClaimTable;
use crate::claims::quantity::Quantity;
use crate::claims::setup::{Setup, leaves, raises};
use crate::claims::whatif::{self, key};
use bench::experiment::multirail::WRITES;
use report::bounds::{GB, Term};

const UNUSED: &str = "nothing in the model depends on it";
const BUILT: &str = "how the experiment is built";

/// GB/s of the host's slot, which the modelled machine does not limit separately (MR-010, MR-036).
const SLOT: f64 = 4.0;

pub(super) fn table(table: &mut ClaimTable) {
    hardware(table);
    method(table);
    mechanisms(table);
    theory(table);
}

/// The rates of a rail: of its link, its card's bus, and its slot.
fn rates(setup: Setup) -> [Quantity; 3] {
    let link = setup.parameter(key::LINK_RATE) / GB;
    let card = setup.parameter(key::BUS_WIDTH) * setup.parameter(key::BUS_CLOCK) / GB;
    [link, card, SLOT.into()]
}

/// A bound of the paper for two rails of this setup, in GB/s.
fn bound(term: Term, setup: Setup) -> Quantity {
    let [link, card, host] = rates(setup);
    let [outside, links] = term.factors(2).map(Quantity::from);
    outside * Quantity::least([link * links, card, host])
}

/// Sections 1 and 5.1.
fn hardware(table: &mut ClaimTable) {
    table.unused(&["MR-005"], "nothing in the model depends on how many use such networks");
    table.unused(&["MR-007"], "a mistake of the paper: immediate data have 4 bytes");
    table.input(&["MR-008", "MR-041"], key::LINK_RATE, SINGLE.parameter(key::LINK_RATE) / GB);
    let card = SINGLE.parameter(key::BUS_WIDTH) * SINGLE.parameter(key::BUS_CLOCK) / GB;
    table.input(&["MR-009", "MR-040"], "bus.width_bytes times bus.clock_mhz", card);
    table.method(&["MR-010", "MR-036"], "the slot's rate in the bounds", SLOT);
    table.input(&["MR-017"], "host.card_count", CARDS.parameter("host.card_count"));
    table.method(&["MR-019"], "taken off in link.rate_mbps and bus.clock_mhz", 0.8);
    table.unused(&["MR-030", "MR-031", "MR-032", "MR-033", "MR-034", "MR-035"], UNUSED);
    table.input(&["MR-037"], "bus.width_bytes: a byte of each lane", SINGLE.parameter(key::BUS_WIDTH));
    table.unused(&["MR-038"], "a channel of memory belongs to no slot; what both share is the chipset's");
    table.input(&["MR-039"], key::PORTS, PORTS.parameter(key::PORTS));
}

/// Section 4, and the sizes of section 5.
fn method(table: &mut ClaimTable) {
    let writes = WRITES as f64;
    table.method(&["MR-006"], "send, receive, write, read", 4.0);
    table.unused(&["MR-020"], "a message of no bytes has no bandwidth, and the paper shows none");
    table.method(&["MR-021"], "largest size measured", LARGEST as f64);
    table.method(&["MR-022", "MR-023", "MR-024"], "writes of an operation", writes);
    table.method(&["MR-025"], "parts of a message over two rails", 2.0);
    table.method(&["MR-026"], "threads of a rail", 1.0);
    table.method(&["MR-027"], "processes of a side", 1.0);
    table.unused(&["MR-045", "MR-046"], "each thread of a simulated machine has a processor of its own");
    table.method(&["MR-047"], "smallest size measured", 8.0);
    table.method(&["MR-063", "MR-081"], "largest size measured", LARGEST as f64);
    table.method(&["MR-098", "MR-101", "MR-112"], "writes of an operation", writes);
    table.method(&["MR-099"], "message size measured", 512.0);
    table.method(&["MR-100"], "message size measured", 4096.0);
    table.method(&["MR-132"], "two cards, two ports, two channels of a rail", 3.0);
}

fn mechanisms(table: &mut ClaimTable) {
    table.unused(&["MR-130"], "a rule of uDAPL, which the suite tests on every device");
    table.unused(&["MR-131", "MR-135", "MR-136", "MR-137"], BUILT);
    table.unused(&["MR-138"], "threads that are there all the time, as a team of OpenMP");
    table.unused(&["MR-139", "MR-140"], BUILT);
}

/// The theory of section 3.
fn theory(table: &mut ClaimTable) {
    const FORMULA: &str = "the formula by which the bounds beside it are computed";
    table.unused(&["MR-014", "MR-015", "MR-016"], FORMULA);
    let how = "by the values of the machine file";
    table.input(&["MR-011", "MR-042"], format!("equation (1) {how}"), bound(Term::Cards, CARDS));
    table.input(&["MR-012", "MR-043", "MR-065"], format!("equation (2) {how}"), bound(Term::Ports, PORTS));
    table.input(&["MR-013", "MR-044"], format!("equation (3) {how}"), bound(Term::Channels, SINGLE));
    table.checks(
        &["MR-018"],
        "at 2 MiB with threads two channels of a rail carry at most what two ports do, and less than two cards",
        [
            Check::at_most("ports, MB/s", CHANNELS_THREADS.unidirectional(LARGEST), PORTS_THREADS.unidirectional(LARGEST), 0.01),
            Check::below("cards, MB/s", CHANNELS_THREADS.unidirectional(LARGEST), super::setups::CARDS_THREADS.unidirectional(LARGEST), 0.05),
        ],
    );
    let wide = |options| PORTS_THREADS.with(options).unidirectional(LARGEST);
    table.checks(
        &["MR-133"],
        "over two ports with threads at 2 MiB a bus twice as fast raises the bandwidth by 5 % at least, links twice as fast \
         do not",
        [
            raises("bus, MB/s", wide(whatif::EXPRESS_TWICE), PORTS_THREADS.unidirectional(LARGEST)),
            leaves("links, MB/s", wide(whatif::EXPRESS_LINK_TWICE), PORTS_THREADS.unidirectional(LARGEST)),
        ],
    );
    table.checks(
        &["MR-134"],
        "at 4 KiB two channels of a rail take at least as long as two ports of a card, by one thread and by two",
        [
            Check::at_most("one thread, us", PORTS_SERIAL.latency(4096), CHANNELS_SERIAL.latency(4096), NO_TOLERANCE),
            Check::at_most("two threads, us", PORTS_THREADS.latency(4096), CHANNELS_THREADS.latency(4096), NO_TOLERANCE),
        ],
    );
}
