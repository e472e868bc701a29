//! The sending half of a connection: from requests to FPDUs, and how far they are known to have come.

pub(crate) mod flush_markers;
pub(crate) mod sending;
