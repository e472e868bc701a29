//! The paper about NIC memory on the MT23108: how each of its rows is computed.
//!
//! | file | sections of the paper |
//! |---|---|
//! | `constants` | 2, 3, and what an experiment is run with |
//! | `basic` | 3.1 local copies, 3.2 latency |
//! | `streams` | 3.2 to 3.4: bandwidth one way and both ways, one port and two |
//! | `patterns` | 3.5 hotspot, 4.3 forwarding chain |
//! | `packing` | 4.2 data in pieces |
//! | `setups` | the measured quantities |

mod basic;
mod constants;
mod packing;
mod patterns;
mod setups;
mod streams;

/// The parameters that the figures vary.
pub(crate) mod figure {
    pub(crate) use super::packing::BLOCKS;
    pub(crate) use super::patterns::{CHAIN_NODES, CHAIN_SIZES, NODES, SLAVES};
}

use crate::claims::claim::ClaimTable;
pub(crate) use setups::*;

/// All rows of the paper.
pub(crate) fn table(table: &mut ClaimTable) {
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
