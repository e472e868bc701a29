//! The portal table entries that messages use, and the errors of calls on them.

use crate::error::{Class, Error};

/// The entry of messages.
pub(super) const MESSAGES: u32 = 0;
/// The entry of data that receives get.
pub(super) const READS: u32 = 1;

/// The MPI error for an error of Portals.
pub(super) fn failed(error: portals::Error) -> Error {
    let class = if error == portals::Error::NoSpace { Class::NO_MEM } else { Class::INTERN };
    Error::new(class, format_args!("Portals refused: {error}"))
}
