//! The receiving half of a connection: what the bytes of the stream are for, and into place with them.

pub(crate) mod lookup;
pub(crate) mod receiving;
