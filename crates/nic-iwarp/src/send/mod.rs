//! The sending half of a connection: from requests to FPDUs, and which requests have arrived.

pub(crate) mod flush_markers;
pub(crate) mod send_half;
