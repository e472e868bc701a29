//! Two ends in one process, for tests: memory with canaries, an endpoint that drives a connection, and a pair of them.
//!
//! [`Endpoint`] is also the shortest example of a driver. Nothing here knows of sockets or clocks: bytes are taken from one
//! vector and given to the other end in pieces of whatever size a test likes, cut, delayed, joined or damaged.

mod endpoint;
mod memory;
mod pair;

pub use endpoint::{Endpoint, Log};
pub use memory::{Memory, Rights};
pub use pair::{Chop, Pair, shake_hands};
