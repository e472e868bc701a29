//! Datagrams, on devices that have none: a queue pair of type UD is one of theirs whose other end is in this process, a *bridge*,
//! and a socket carries what comes over the bridge.
//!
//! So receives, requests, their completions and notifications are the device's own. What the face adds is where a request goes,
//! whom a receive is from, and that a datagram without a receive is dropped. Datagrams move when their program posts or polls, and by a
//! thread while it does neither. One socket for each device and process.
//!
//! | file | what it holds |
//! |---|---|
//! | `frame` | what goes over the wire, and the 40 bytes that a receive begins with |
//! | `socket` | AF_UNIX for devices that reach this host alone, UDP for others |
//! | `counts` | what has become of datagrams |
//! | `bridge` | [`Bridge`]: the other end of one queue pair |
//! | `carrier` | [`Datagrams`]: between the bridges of a device and its socket |

mod bridge;
mod carrier;
mod counts;
mod frame;
mod socket;

pub(crate) use bridge::{Bridge, Destination};
pub(crate) use carrier::Datagrams;
pub(crate) use frame::MTU;
