//! UD queue pairs on devices without datagrams: each is a connected queue pair of the device whose peer, a *bridge*, is in this
//! process, and a socket carries the datagrams that cross the bridge.
//!
//! So receives, requests, completions and notifications are the device's own. This module adds the destination of each request, the
//! sender of each receive, and dropping datagrams without a receive. Datagrams move when their program posts or polls, and otherwise by
//! a thread. There is one socket per device and process.
//!
//! | file | contents |
//! |---|---|
//! | `frame` | the wire format, and the 40-byte global route header of a receive |
//! | `socket` | AF_UNIX for devices that reach only this host, UDP for others |
//! | `counts` | counters of datagrams by outcome |
//! | `bridge` | [`Bridge`]: the peer of one queue pair |
//! | `datagrams` | [`Datagrams`]: moves datagrams between bridges and the socket |

mod bridge;
mod counts;
mod datagrams;
mod frame;
mod socket;

pub(crate) use bridge::{Bridge, Destination};
pub(crate) use datagrams::Datagrams;
pub(crate) use frame::MTU;
