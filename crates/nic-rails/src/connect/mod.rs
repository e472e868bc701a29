//! Connecting all lanes of a queue pair: the handshake, checks of requests, and the resulting events.

pub(crate) mod cm_events;
pub(crate) mod connection;
pub(crate) mod establish;
pub(crate) mod handshake;
pub(crate) mod hello;
pub(crate) mod outcome;
pub(crate) mod screening;
pub(crate) mod tokens;
