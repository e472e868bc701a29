//! Barrier algorithms.

pub(crate) mod direct;
pub(crate) mod dissemination;
pub(crate) mod flat;
pub(crate) mod recursive_doubling;
pub(crate) mod tree;

use crate::schedule::{Peer, Span, Step};

/// Sends an empty message.
pub(crate) fn send_signal(peer: usize) -> Option<Step> {
    Some(Step::Send { peer: Peer::Local(peer), span: Span::EMPTY })
}

/// Waits for an empty message.
pub(crate) fn wait_signal(peer: usize) -> Option<Step> {
    Some(Step::Receive { peer: Peer::Local(peer), span: Span::EMPTY })
}
