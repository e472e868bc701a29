//! The fast path for short messages, which complete before the call returns: one store into the receiver's memory, or one poll of
//! what a sender has stored. Everything else takes the general path, which also reports errors. The fast path serves callers in
//! real time only: it charges nothing to simulated time.

use crate::comm::communicator::Comm;
use crate::comm::context::Plane;
use crate::memory::Piece;
use crate::p2p::calls::PeerTag;
use crate::p2p::matching::{MatchCriteria, TagCriteria};
use crate::p2p::operation::{PlainReceive, PlainSourceRanks};
use crate::p2p::wire::MatchKey;
use crate::req::request::RequestId;
use crate::status::{ANY_SOURCE, ANY_TAG};

/// Polls for a message before a receive is posted. Other threads that wait for the engine's lock wait hardly longer for this many
/// polls than for a short message.
const POLLS: u32 = 128;

/// The tag of a receive, where `Some(None)` matches any tag; `None` if the tag is not valid.
#[inline]
fn wanted_tag(tag: i32) -> Option<Option<i32>> {
    match tag {
        ANY_TAG => Some(None),
        tag if tag >= 0 => Some(Some(tag)),
        _ => None,
    }
}

impl Comm {
    /// Sends bytes as [`Comm::send`] does, if they can be stored into the receiver's memory immediately. Returns whether they were;
    /// if not, nothing has happened.
    #[inline]
    pub fn try_send(&self, piece: Piece, to: PeerTag) -> bool {
        let (Some(process), Ok(context)) = (self.peers().process(to.rank), self.context(Plane::PointToPoint))
        else {
            return false;
        };
        let match_key = MatchKey { context, tag: to.tag };
        to.tag >= 0 && self.core().with(|engine| engine.try_send(process, match_key, piece))
    }

    /// Posts a receive of bytes as [`Comm::begin_receive`] does, if no unexpected message could match it; returns `None` otherwise,
    /// and nothing has happened.
    #[inline]
    pub fn try_post_receive(&self, into: Piece, from: PeerTag) -> Option<RequestId> {
        let (source, sources) = match from.rank {
            ANY_SOURCE if self.peers().has_world_ranks() => {
                (None, PlainSourceRanks::Identity(self.peers().size() as u32))
            }
            rank => (Some(self.peers().process(rank)?), PlainSourceRanks::One(rank)),
        };
        let wanted = MatchCriteria {
            context: self.context(Plane::PointToPoint).ok()?,
            source,
            tag: wanted_tag(from.tag)?,
        };
        let plain = PlainReceive { into, sources };
        self.core()
            .with(|engine| engine.post_plain_receive(wanted, plain, self.id()))
            .map(RequestId::operation)
    }

    /// Receives bytes as [`Comm::receive`] does, if the next message that the source stores within a few polls matches and is not
    /// too long. Returns its tag and its length; if `None`, nothing has happened.
    #[inline]
    pub fn try_receive(&self, into: Piece, from: PeerTag) -> Option<(i32, usize)> {
        let (process, context) = (self.peers().process(from.rank)?, self.context(Plane::PointToPoint).ok()?);
        let tag = wanted_tag(from.tag)?;
        self.core().with(|engine| {
            engine.try_receive(process, &TagCriteria { context, tag }, into, self.core().polls(POLLS))
        })
    }
}
