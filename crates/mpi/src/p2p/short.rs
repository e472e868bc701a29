//! Short messages that are over before a call returns: a store in the receiver's memory, a look at what a sender has stored. Whatever
//! is not so goes the long way, which also says what is wrong. It is for faces in real time: nothing is charged.

use crate::comm::communicator::Comm;
use crate::comm::context::Plane;
use crate::memory::Piece;
use crate::p2p::calls::With;
use crate::p2p::matching::{Match, Wanted};
use crate::p2p::operation::{Plain, PlainNames};
use crate::p2p::wire::Label;
use crate::req::request::RequestId;
use crate::status::{ANY_SOURCE, ANY_TAG};

/// Looks for a message before a receive begins. Others that wait for the state wait hardly longer for them than for a short message.
const LOOKS: u32 = 128;

/// Which tag a receive is for, of which none is any; nothing for one that is no tag.
#[inline]
fn wanted_tag(tag: i32) -> Option<Option<i32>> {
    match tag {
        ANY_TAG => Some(None),
        tag if tag >= 0 => Some(Some(tag)),
        _ => None,
    }
}

impl Comm {
    /// Sends bytes as [`Comm::send`], if they are stored at once where the receiver looks for them. Whether they are; nothing has
    /// happened otherwise.
    #[inline]
    pub fn send_at_once(&self, piece: Piece, to: With) -> bool {
        let (Some(process), Ok(context)) = (self.peers().process(to.rank), self.context(Plane::Point)) else {
            return false;
        };
        let label = Label { context, tag: to.tag };
        to.tag >= 0 && self.core().with(|engine| engine.send_piece(process, label, piece))
    }

    /// Begins to receive bytes as [`Comm::begin_receive`], where nothing waits that the receive could get; nothing has happened
    /// otherwise.
    #[inline]
    pub fn begin_receive_at_once(&self, into: Piece, from: With) -> Option<RequestId> {
        let (source, names) = match from.rank {
            ANY_SOURCE if self.peers().is_numbered() => {
                (None, PlainNames::Numbers(self.peers().size() as u32))
            }
            rank => (Some(self.peers().process(rank)?), PlainNames::One(rank)),
        };
        let wanted = Wanted { context: self.context(Plane::Point).ok()?, source, tag: wanted_tag(from.tag)? };
        let plain = Plain { into, names };
        self.core().with(|engine| engine.post_plain(wanted, plain, self.id())).map(RequestId::operation)
    }

    /// Receives bytes as [`Comm::receive`], if the next message that the source stores soon is the one, and not too long: its tag, and
    /// its length. Nothing has happened otherwise.
    #[inline]
    pub fn receive_at_once(&self, into: Piece, from: With) -> Option<(i32, usize)> {
        let (process, context) = (self.peers().process(from.rank)?, self.context(Plane::Point).ok()?);
        let tag = wanted_tag(from.tag)?;
        self.core().with(|engine| {
            engine.take_piece(process, &Match { context, tag }, into, self.core().looks(LOOKS))
        })
    }
}
