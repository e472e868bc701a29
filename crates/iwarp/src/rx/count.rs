//! Counts the peer's messages that were received completely, which is the content of a receipt
//! ([`crate::open_requests`]).

/// How a message names its destination memory (RFC 5041 section 1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BufferModel {
    Tagged,
    Untagged,
}

/// The number of received messages, in the order in which the peer sent them.
///
/// The peer reads a count of N as its first N messages. So the count stops at the first message that ends inside
/// another one: peers that use receipts never send this, and without CRCs a flipped bit may have hidden the end of
/// the other message.
#[derive(Debug, Default)]
pub(super) struct MessageCount {
    /// Number of messages, modulo 2^32.
    received: u32,
    /// Messages delivered since the last [`Self::count_delivered`]; they count when the driver has handled their delivery.
    delivered: u32,
    /// Model of the message that has begun and not ended.
    open: Option<BufferModel>,
    stopped: bool,
}

impl MessageCount {
    /// Records a delivered segment. `last` marks the last segment of its message, `counts` a message that receipts
    /// count.
    #[inline]
    pub(super) fn segment(&mut self, model: BufferModel, last: bool, counts: bool) {
        self.stopped |= self.open.is_some_and(|open| open != model);
        self.delivered += u32::from(last && counts && !self.stopped);
        self.open = (!last).then_some(model);
    }

    /// Counts the delivered messages, because the driver has handled them.
    #[inline]
    pub(super) fn count_delivered(&mut self) {
        self.received = self.received.wrapping_add(std::mem::take(&mut self.delivered));
    }

    pub(super) fn received(&self) -> u32 {
        self.received
    }
}

#[cfg(test)]
mod tests {
    use super::BufferModel::{Tagged, Untagged};
    use super::*;

    fn count(segments: &[(BufferModel, bool)]) -> u32 {
        let mut count = MessageCount::default();
        for &(model, last) in segments {
            count.segment(model, last, true);
            count.count_delivered();
        }
        count.received()
    }

    #[test]
    fn message_is_counted_after_its_last_segment() {
        assert_eq!(count(&[(Tagged, false), (Tagged, false)]), 0);
        assert_eq!(
            count(&[(Tagged, false), (Tagged, true), (Untagged, true), (Untagged, false), (Untagged, true)]),
            3
        );
    }

    /// Goal: the count never covers a message that has not arrived. Method: the end of one message is hidden, in both
    /// models.
    #[test]
    fn count_stops_at_unfinished_message() {
        assert_eq!(count(&[(Untagged, true), (Untagged, false), (Tagged, true), (Untagged, true)]), 1);
        assert_eq!(count(&[(Untagged, true), (Tagged, false), (Untagged, true), (Tagged, true)]), 1);
    }
}
