//! A connection: its socket, the protocol's machine and the two halves, how it ends, and who polls it.

pub(crate) mod context;
pub(crate) mod end;
pub(crate) mod link;
pub(crate) mod poll_owner;
pub(crate) mod stream;
