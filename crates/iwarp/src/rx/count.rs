//! How many messages of the peer have been received whole: what a receipt says ([`crate::outcome`]).

/// RFC 5041 section 1.1: how a message names the memory that it goes to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Model {
    Tagged,
    Untagged,
}

/// A count of messages, in the order in which the peer has sent them.
///
/// The peer takes it for the first so many of its messages. So it stands still from the first message on that ends inside of
/// another one: those that give receipts send no such, and without CRCs a flipped bit may have hidden the other one's end.
#[derive(Debug, Default)]
pub(super) struct Count {
    /// Modulo 2^32.
    received: u32,
    /// What has been delivered since; it counts when the driver comes back from that.
    delivered: u32,
    /// Of what kind the message is that has begun and not ended.
    open: Option<Model>,
    stands: bool,
}

impl Count {
    /// A segment has been delivered, the `last` of its message or not; `counts` tells whether the message is one to count.
    #[inline]
    pub(super) fn segment(&mut self, model: Model, last: bool, counts: bool) {
        self.stands |= self.open.is_some_and(|open| open != model);
        self.delivered += u32::from(last && counts && !self.stands);
        self.open = (!last).then_some(model);
    }

    /// The driver comes back from the delivery.
    #[inline]
    pub(super) fn settle(&mut self) {
        self.received = self.received.wrapping_add(std::mem::take(&mut self.delivered));
    }

    pub(super) fn received(&self) -> u32 {
        self.received
    }
}

#[cfg(test)]
mod tests {
    use super::Model::{Tagged, Untagged};
    use super::*;

    fn count(segments: &[(Model, bool)]) -> u32 {
        let mut count = Count::default();
        for &(model, last) in segments {
            count.segment(model, last, true);
            count.settle();
        }
        count.received()
    }

    #[test]
    fn messages_count_when_their_last_segment_has_come() {
        assert_eq!(count(&[(Tagged, false), (Tagged, false)]), 0);
        assert_eq!(
            count(&[(Tagged, false), (Tagged, true), (Untagged, true), (Untagged, false), (Untagged, true)]),
            3
        );
    }

    /// Goal: what has not come is never covered by the count. Method: the end of one message is hidden, of either kind.
    #[test]
    fn the_count_stands_at_a_message_whose_end_is_missing() {
        assert_eq!(count(&[(Untagged, true), (Untagged, false), (Tagged, true), (Untagged, true)]), 1);
        assert_eq!(count(&[(Untagged, true), (Tagged, false), (Untagged, true), (Tagged, true)]), 1);
    }
}
