//! The receiving half of a connection: parses the stream and places payload.

pub(crate) mod lookup;
pub(crate) mod recv_half;
