//! The setups of the paper: one card, where its messages are matched, and its flow control.

use crate::claims::quantity::{Quantity, Tuning};
use crate::claims::setup::Setup;

/// The window of the streaming benchmark; all else is the experiments' own.
const TUNING: Tuning = Tuning { window: 64, burst_bytes: 1, signal: 1 };

pub(crate) const CARD: &str = "model:seastar";
/// Matching on the card.
pub(crate) const NIC: Setup = Setup { card: CARD, tuning: TUNING, options: "" };
/// Matching in the kernel.
pub(crate) const HOST: Setup = NIC.with("mode.match_kind=host");
/// Both with the flow control of the paper.
pub(crate) const NIC_CORPSE: Setup = NIC.with("mode.flow_kind=corpse");
pub(crate) const HOST_CORPSE: Setup = NIC.with("mode.match_kind=host,mode.flow_kind=corpse");
/// The kernel with that of Cray.
pub(crate) const HOST_COP: Setup = NIC.with("mode.match_kind=host,mode.flow_kind=cop");

/// Bytes of an extremely small message, of a larger one, and of a reduction or gather.
pub(crate) const SMALL: u64 = 8;
pub(crate) const LARGER: u64 = 1 << 10;
pub(crate) const BLOCK: u64 = 16;
/// Sizes of a figure.
pub(crate) const SWEEP: [u64; 12] =
    [1, 8, 16, 32, 128, 512, 2 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20];
/// Nodes of a figure.
pub(crate) const NODES: [u64; 5] = [4, 16, 64, 256, 1024];

/// The measured quantities of a setup, as used in the tables.
pub(crate) trait PortalsQuantities {
    /// A cell of one of the experiments.
    fn portals_cell(self, experiment: &str, factors: &[(&str, &str)], size: u64) -> Quantity;
    /// Microseconds one way.
    fn portals_latency(self, size: u64) -> Quantity;
    /// Latency after `entries` entries that do not match.
    fn latency_behind(self, entries: u64) -> Quantity;
    /// Microseconds of that which a component takes, at the small size.
    fn component(self, component: &str) -> Quantity;
    /// Interrupts of a message.
    fn interrupts(self, size: u64) -> Quantity;
    /// 10^6 bytes per second of a ping-pong.
    fn rate(self, size: u64) -> Quantity;
    /// 10^6 bytes per second of a stream: `uni` or `bi`.
    fn stream(self, op: &str, size: u64) -> Quantity;
    /// Messages of a window that arrive before their receives, which are posted in three calls as they arrive.
    fn late_posts(self) -> Quantity;
    /// Microseconds, or orders, of posting.
    fn posting(self, op: &str, quantity: &str) -> Quantity;
    /// Microseconds of a collective operation.
    fn collective(self, op: &str, nodes: u64) -> Quantity;
}

impl PortalsQuantities for Setup {
    fn portals_cell(self, experiment: &str, factors: &[(&str, &str)], size: u64) -> Quantity {
        self.portals(experiment, factors, size)
    }

    fn portals_latency(self, size: u64) -> Quantity {
        self.portals_cell("portals-latency", &[("quantity", "time")], size)
    }

    fn latency_behind(self, entries: u64) -> Quantity {
        let entries = entries.to_string();
        self.portals_cell("portals-latency", &[("quantity", "time"), ("queues", &entries)], SMALL)
    }

    fn component(self, component: &str) -> Quantity {
        self.portals_cell("portals-latency", &[("quantity", component)], SMALL)
    }

    fn interrupts(self, size: u64) -> Quantity {
        self.portals_cell("portals-latency", &[("quantity", "interrupts")], size)
    }

    fn rate(self, size: u64) -> Quantity {
        Quantity::from(size as f64) / self.portals_latency(size)
    }

    fn stream(self, op: &str, size: u64) -> Quantity {
        self.portals_cell("portals-bandwidth", &[("op", op)], size)
    }

    fn late_posts(self) -> Quantity {
        self.portals_cell("portals-bandwidth", &[("op", "late"), ("quantity", "unexpected")], SMALL)
    }

    fn posting(self, op: &str, quantity: &str) -> Quantity {
        self.portals_cell("portals-post", &[("op", op), ("quantity", quantity)], LARGER)
    }

    fn collective(self, op: &str, nodes: u64) -> Quantity {
        let nodes = nodes.to_string();
        self.portals_cell("portals-collective", &[("op", op), ("ranks", &nodes)], BLOCK)
    }
}
