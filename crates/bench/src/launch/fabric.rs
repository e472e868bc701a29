//! Devices by name: the one place of this crate that knows where they come from.

use verbs::Device;
use verbs::host::Host;

/// Names of the kinds of devices, for messages.
#[must_use]
pub fn devices() -> Vec<String> {
    fabric::list().into_iter().map(|entry| entry.name.to_owned()).collect()
}

/// Why no device has this name, if so.
pub(crate) fn check(name: &str) -> Result<(), String> {
    fabric::check(name).map_err(|e| e.to_string())
}

/// Opens a device.
pub(super) fn open(name: &str, host: &Host) -> verbs::Result<Device> {
    fabric::open(name, host)
}

/// Whether the device of this name lives in virtual time.
pub(crate) fn is_virtual(name: &str) -> bool {
    fabric::is_virtual(name)
}
