//! The setups of the thesis: networks, sizes.

use crate::claims::quantity::{Quantity, Tuning};
use crate::claims::setup::Setup;

const TUNING: Tuning = Tuning { window: VERY_LARGE, burst_bytes: 8 << 20, signal: 1 };
/// The thesis calls its window "very large".
const VERY_LARGE: u32 = 1000;

/// The InfiniBand card under VAPI.
pub(crate) const VAPI: Setup = Setup { card: "model:mt23108-vapi", tuning: TUNING, options: "" };
/// The InfiniBand card under IBAL.
pub(crate) const IBAL: Setup = Setup { card: "model:mt23108-ibal", tuning: TUNING, options: "" };
/// Both libraries of the first card, with their names.
pub(crate) const VAPI_AND_IBAL: [(&str, Setup); 2] = [("VAPI", VAPI), ("IBAL", IBAL)];
/// Myrinet under GM.
pub(crate) const MYRINET: Setup = Setup { card: "model:myrinet-gm", tuning: TUNING, options: "" };
/// Quadrics under Elanlib.
pub(crate) const QUADRICS: Setup = Setup { card: "model:quadrics-elan3", tuning: TUNING, options: "" };
/// The three networks of chapter 4.
pub(crate) const THREE: [(&str, Setup); 3] =
    [("InfiniBand", VAPI), ("Myrinet", MYRINET), ("Quadrics", QUADRICS)];

/// Bytes of a small message.
pub(crate) const SMALL: u64 = 4;
/// Sizes of Figures 3.1 and 3.3(a).
pub(crate) const LATENCY_SIZES: [u64; 6] = [4, 16, 64, 256, 1 << 10, 4 << 10];
/// Sizes of Figures 3.2 and 3.3(b).
pub(crate) const SWEEP: [u64; 10] =
    [64, 256, 1 << 10, 2 << 10, 4 << 10, 16 << 10, 64 << 10, 128 << 10, 256 << 10, 1 << 20];
/// Sizes of Figures 4.2, 4.3 and 4.5.
pub(crate) const COARSE: [u64; 6] = [64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20];

/// Bandwidth in units of 2^20 bytes per second.
pub(crate) fn in_mib(bandwidth: Quantity) -> Quantity {
    bandwidth * (1e6 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claims::setup::LARGE;

    #[test]
    fn peaks_are_looked_for_among_sizes_of_the_figure() {
        assert!(LARGE.iter().all(|n| SWEEP.contains(n)));
    }
}
