//! The setup of the NIC memory paper: the card, and the cases.

use crate::claims::quantity::Tuning;
use crate::claims::setup::{Ends, HOST_HOST, HOST_NIC, NIC_HOST, NIC_NIC, Setup};

/// The card of the paper, measured as it states: a window of 1000 messages. Every request of a ping-pong is signaled,
/// the default of the interface.
pub(crate) const MT23108: Setup = Setup {
    card: "model:mt23108-nicmem",
    tuning: Tuning { window: 1000, burst_bytes: 8 << 20, signal: 1 },
    options: "",
};

/// The cases that use NIC memory.
pub(crate) const NIC_CASES: [Ends; 3] = [NIC_NIC, NIC_HOST, HOST_NIC];
/// All cases, in the order of the paper.
pub(crate) const CASES: [Ends; 4] = [HOST_HOST, NIC_NIC, NIC_HOST, HOST_NIC];
