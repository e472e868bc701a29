//! A connection: its socket, the protocol's state machine and its two halves, how it ends, and which thread polls it.

pub(crate) mod active_conn;
pub(crate) mod context;
pub(crate) mod end_reason;
pub(crate) mod failure;
pub(crate) mod poll_owner;
pub(crate) mod qp_conn;
