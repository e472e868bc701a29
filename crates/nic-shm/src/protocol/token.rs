//! Random numbers: of devices, and the one that this process was born with.

use std::sync::OnceLock;

use verbs::{Error, Result};

/// A random number that this process was born with; it stays at its address, for peers to probe.
pub(crate) fn process_token() -> Result<&'static u64> {
    static TOKEN: OnceLock<u64> = OnceLock::new();
    match TOKEN.get() {
        Some(token) => Ok(token),
        None => {
            let fresh = random()?;
            Ok(TOKEN.get_or_init(|| fresh))
        }
    }
}

/// 63 random bits, and one that is set: never 0.
pub(crate) fn random() -> Result<u64> {
    let bytes = host::random().map_err(|why| Error::system("cannot make a device's token", why))?;
    Ok(u64::from_ne_bytes(bytes) | 1)
}
