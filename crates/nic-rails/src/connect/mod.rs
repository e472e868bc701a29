//! Connecting all lanes of a queue pair: what the ends tell each other, checks of requests, and the events that come of it.

pub(crate) mod cm_events;
pub(crate) mod connection;
pub(crate) mod establish;
pub(crate) mod hello;
pub(crate) mod outcome;
pub(crate) mod screening;
pub(crate) mod tokens;
pub(crate) mod words;
