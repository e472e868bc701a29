//! Random tokens of devices, and of this process.

use std::sync::OnceLock;

use verbs::{Error, Result};

/// The random token of this process; it stays at its address, where peers probe it.
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

/// 63 random bits and a set lowest bit: never 0.
pub(crate) fn random() -> Result<u64> {
    let bytes = host::random().map_err(|why| Error::system("cannot make a device's token", why))?;
    Ok(u64::from_ne_bytes(bytes) | 1)
}
