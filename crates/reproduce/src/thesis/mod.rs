//! The thesis on InfiniBand (under VAPI and IBAL), Myrinet and Quadrics: how its rows are computed.
//!
//! Its MB is 2^20 bytes (`X1` in the contradictions), so bandwidths are converted.
//!
//! | file | sections of the thesis |
//! |---|---|
//! | `constants` | 1, 3.1, 4.1, and what an experiment is run with |
//! | `calls` | 3.2 and 4.2: Tables 3.1 and 4.1 |
//! | `basic` | 3.3.1 to 3.3.3, 4.3.1 to 4.3.3: latency, bandwidth, both ways |
//! | `host` | 3.3.4 to 3.3.6, 4.3.4 to 4.3.6: overhead, notification, blocking |
//! | `features` | 3.3.7 to 3.3.10, 4.3.7, 4.3.8: buffers, connections, pieces, packets, hot spots |
//! | `figures` | all of its figures |

mod basic;
mod calls;
mod constants;
mod features;
pub(super) mod figures;
mod host;

use super::claim::Table;
use super::quantity::{Quantity, Tuning};
use super::setup::Setup;

const TUNING: Tuning = Tuning { window: VERY_LARGE, burst_bytes: 8 << 20, signal: 1 };
/// "Very large", says the thesis of its window.
const VERY_LARGE: u32 = 1000;

/// The InfiniBand card under VAPI.
pub(super) const VAPI: Setup = Setup { card: "model:mt23108-vapi", tuning: TUNING, options: "" };
/// The InfiniBand card under IBAL.
pub(super) const IBAL: Setup = Setup { card: "model:mt23108-ibal", tuning: TUNING, options: "" };
/// Both.
pub(super) const BOTH: [(&str, Setup); 2] = [("VAPI", VAPI), ("IBAL", IBAL)];
/// Myrinet under GM.
pub(super) const MYRINET: Setup = Setup { card: "model:myrinet-gm", tuning: TUNING, options: "" };
/// Quadrics under Elanlib. A put is done when its event says so, and nobody has to take a completion before the next one.
pub(super) const QUADRICS: Setup =
    Setup { card: "model:quadrics-elan3", tuning: Tuning { signal: 64, ..TUNING }, options: "" };
/// The three networks of chapter 4.
pub(super) const THREE: [(&str, Setup); 3] =
    [("InfiniBand", VAPI), ("Myrinet", MYRINET), ("Quadrics", QUADRICS)];

/// Bytes of a small message.
pub(super) const SMALL: u64 = 4;
/// Sizes of Figures 3.1 and 3.3(a).
pub(super) const LATENCIES: [u64; 6] = [4, 16, 64, 256, 1 << 10, 4 << 10];
/// Sizes of Figures 3.2 and 3.3(b).
pub(super) const SWEEP: [u64; 10] =
    [64, 256, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20];
/// Sizes of Figures 4.2, 4.3 and 4.5.
pub(super) const COARSE: [u64; 6] = [64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20];

/// Bandwidth in units of 2^20 bytes per second.
pub(super) fn in_mib(bandwidth: Quantity) -> Quantity {
    bandwidth * (1e6 / f64::from(1 << 20))
}

/// All rows.
pub(super) fn table(table: &mut Table) {
    constants::table(table);
    calls::table(table);
    basic::table(table);
    host::table(table);
    features::table(table);
}

#[cfg(test)]
mod tests {
    use super::super::setup::LARGE;
    use super::*;

    #[test]
    fn peaks_are_looked_for_among_sizes_of_the_figure() {
        assert!(LARGE.iter().all(|n| SWEEP.contains(n)));
    }
}
