//! The portal table entries that messages use, and the conversion of Portals errors.

use crate::error::{Class, Error};

/// The entry for messages.
pub(super) const MESSAGES: u32 = 0;
/// The entry for data that receivers get.
pub(super) const READS: u32 = 1;

/// The MPI error for an error of Portals.
pub(super) fn failed(error: portals::Error) -> Error {
    let class = if error == portals::Error::NoSpace { Class::NO_MEM } else { Class::INTERN };
    Error::new(class, format_args!("Portals returned an error: {error}"))
}
