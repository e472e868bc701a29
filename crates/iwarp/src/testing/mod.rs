//! Two endpoints in one process, for tests: memory with canaries, an endpoint that drives a connection, and a pair of
//! them.
//!
//! [`Endpoint`] is also the shortest example of a driver. It has no sockets and no clock: bytes move from one vector
//! to the other endpoint in pieces of any size, and a test can cut, delay, join or damage them.

mod endpoint;
mod memory;
mod pair;

pub use endpoint::{Endpoint, EndpointEvent};
pub use memory::{Memory, Rights};
pub use pair::{Pair, Splitter, run_handshake};
