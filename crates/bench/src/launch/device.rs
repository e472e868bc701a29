//! The rails of a device.

use crate::experiment::Rails;

/// The rails of a device that is open, for experiments that use them one by one.
pub(super) fn rails(device: &str) -> Rails {
    let names = fabric::rails_of(device).unwrap_or_else(|_| vec![device.to_owned()]);
    Rails { names, open: fabric::open }
}
