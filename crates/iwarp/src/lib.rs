//! iWARP as state machines: MPA (RFC 5044, RFC 6581), DDP (RFC 5041) and RDMAP (RFC 5040, RFC 7306).
//!
//! Bytes in, bytes out. There is no socket, no clock, no thread and no unsafe code here.

#![forbid(unsafe_code)]

pub mod crc;
pub mod ddp;
pub mod mpa;
pub mod rdmap;
pub mod rx;
pub mod terminate;
pub mod tx;
pub mod wire;
