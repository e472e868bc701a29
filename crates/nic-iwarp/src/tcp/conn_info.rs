//! The addresses of a connection's ends, and the read depths that the handshake revealed.

use std::net::{Ipv4Addr, SocketAddr};

use iwarp::mpa::{Enhanced, Negotiated, Revision};
use rustix::net::getsockname;
use verbs::{ConnInfo, Depths};

use crate::config::MARKER_READS;
use nic_util::fork::ForkSafeFd;

/// The content of connection events: the local address and that of `peer`. The peer's address is determined once,
/// when connecting or accepting, because a socket whose peer has gone no longer knows it.
pub(crate) fn info(socket: &ForkSafeFd, peer: SocketAddr, depths: Option<Depths>) -> ConnInfo {
    let local = getsockname(socket).ok().and_then(|addr| SocketAddr::try_from(addr).ok());
    ConnInfo { depths, ..ConnInfo::of_ends(local.unwrap_or((Ipv4Addr::UNSPECIFIED, 0).into()), peer) }
}

/// The depths that a request asks for, if it contains any.
pub(crate) fn requested(enhanced: Option<&Enhanced>) -> Option<Depths> {
    enhanced
        .map(|e| Depths { responder_resources: program_depth(e.ird), initiator_depth: program_depth(e.ord) })
}

/// The negotiated depths in the peer's view; revision 1 negotiates none.
pub(crate) fn negotiated(negotiated: &Negotiated) -> Option<Depths> {
    let (theirs, ours) = (program_depth(negotiated.ord), program_depth(negotiated.ird));
    let depths = Depths { responder_resources: theirs, initiator_depth: ours };
    (negotiated.revision != Revision::V1).then_some(depths)
}

/// The program's part of a depth: the rest is for the NICs' own flush markers.
fn program_depth(depth: u16) -> u8 {
    u8::try_from(depth.saturating_sub(MARKER_READS)).unwrap_or(u8::MAX)
}
