//! Where the ends of a connection are, and what the handshake told of the peer's depths.

use std::net::{Ipv4Addr, SocketAddr};

use iwarp::mpa::{Enhanced, Negotiated, Revision};
use rustix::net::getsockname;
use verbs::{ConnInfo, Depths};

use crate::config::QUESTIONS;
use nic_util::fork::Fd;

/// What events tell of the connection of a socket to `peer`. Its address is asked for once, by whoever connects or accepts: a
/// socket whose peer has gone does not know it any more.
pub(crate) fn info(socket: &Fd, peer: SocketAddr, depths: Option<Depths>) -> ConnInfo {
    let local = getsockname(socket).ok().and_then(|addr| SocketAddr::try_from(addr).ok());
    ConnInfo { depths, ..ConnInfo::of_ends(local.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()), peer) }
}

/// What a request asks for, if it says so.
pub(crate) fn asked(enhanced: Option<&Enhanced>) -> Option<Depths> {
    enhanced.map(|e| Depths { responder_resources: programs(e.ird), initiator_depth: programs(e.ord) })
}

/// What was agreed on, seen from the other end; revision 1 agrees on nothing.
pub(crate) fn agreed(negotiated: &Negotiated) -> Option<Depths> {
    let (theirs, ours) = (programs(negotiated.ord), programs(negotiated.ird));
    let depths = Depths { responder_resources: theirs, initiator_depth: ours };
    (negotiated.revision != Revision::V1).then_some(depths)
}

/// The program's part of a depth: the rest is for questions of the NICs' own.
fn programs(depth: u16) -> u8 {
    u8::try_from(depth.saturating_sub(QUESTIONS)).unwrap_or(u8::MAX)
}
