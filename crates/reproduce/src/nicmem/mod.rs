//! The paper about NIC memory on the MT23108: how each of its rows is computed.
//!
//! | file | sections of the paper |
//! |---|---|
//! | `constants` | 2, 3, and what an experiment is run with |
//! | `basic` | 3.1 local copies, 3.2 latency |
//! | `streams` | 3.2 to 3.4: bandwidth one way and both ways, one port and two |
//! | `patterns` | 3.5 hotspot, 4.3 forwarding chain |
//! | `packing` | 4.2 data in pieces |

mod basic;
mod constants;
mod packing;
mod patterns;
mod streams;

/// What the figures vary.
pub(super) mod figure {
    pub(in super::super) use super::packing::BLOCKS;
    pub(in super::super) use super::patterns::{CHAIN_NODES, CHAIN_SIZES, NODES, SLAVES};
}

use super::claim::Table;
use super::quantity::Tuning;
use super::setup::{Ends, HOST_HOST, HOST_NIC, NIC_HOST, NIC_NIC, Setup};

/// The card of the paper, measured as it says: a window of 1000 messages. Every request of a ping-pong is signalled, which
/// the interface did unless told otherwise.
pub(super) const SETUP: Setup = Setup {
    card: "model:mt23108-nicmem",
    tuning: Tuning { window: 1000, burst_bytes: 8 << 20, signal: 1 },
    options: "",
};

/// The cases that use NIC memory.
const NIC_CASES: [Ends; 3] = [NIC_NIC, NIC_HOST, HOST_NIC];
/// All cases, in the order of the paper.
pub(super) const CASES: [Ends; 4] = [HOST_HOST, NIC_NIC, NIC_HOST, HOST_NIC];

/// All rows of the paper.
pub(super) fn table(table: &mut Table) {
    constants::hardware(table);
    constants::method(table);
    constants::limits(table);
    constants::next_generation(table);
    basic::local_copy(table);
    basic::latency(table);
    streams::one_way(table);
    streams::both_ways(table);
    streams::two_ports_one_way(table);
    streams::two_ports_both_ways(table);
    patterns::hotspot(table);
    patterns::chain(table);
    packing::time(table);
    packing::cpu(table);
}
