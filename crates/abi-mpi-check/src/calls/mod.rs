//! The exported functions, by subject.

mod collective;
mod environment;
mod object;
mod p2p;
mod request;
