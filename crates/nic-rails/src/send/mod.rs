//! The sending half of a queue pair: when a request may start, on which lanes, and how it completes.

pub(crate) mod pace;
pub(crate) mod request;
pub(crate) mod sending;
pub(crate) mod sends;
