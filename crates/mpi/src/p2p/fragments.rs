//! [`Parts`]: those parts of long messages that come by themselves. They follow their message's request, whether a receive has matched
//! that or not.

use host::SlotKey;

use crate::p2p::operation::Brought;

/// Whose parts are.
#[derive(Debug)]
enum Whose {
    /// No receive has matched their message; what has come of them is here.
    Nobodys(Vec<u8>),
    /// This receive's.
    Of(SlotKey),
    /// Nobody wants them any more.
    Unwanted,
}

/// The parts of one message.
#[derive(Debug)]
struct Message {
    from: u32,
    /// The sender's name for its request.
    id: u64,
    /// Bytes that have not come.
    left: usize,
    whose: Whose,
}

/// Messages of which parts are to come, or that wait with theirs for a receive.
#[derive(Debug, Default)]
pub(crate) struct Parts(Vec<Message>);

impl Parts {
    /// The latest first: parts come behind their request, which may stand behind many that no receive has matched.
    fn find(&self, from: u32, id: u64) -> Option<usize> {
        self.0.iter().rposition(|message| (message.from, message.id) == (from, id))
    }

    /// A request says that so many bytes come by themselves.
    pub(crate) fn expect(&mut self, from: u32, id: u64, bytes: u32) {
        self.0.push(Message { from, id, left: bytes as usize, whose: Whose::Nobodys(Vec::new()) });
    }

    /// A receive has matched a request: what has come of its parts. The others are the receive's when they come.
    pub(crate) fn take(&mut self, from: u32, id: u64, key: SlotKey) -> Vec<u8> {
        let Some(at) = self.find(from, id) else { return Vec::new() };
        let whose = std::mem::replace(&mut self.0[at].whose, Whose::Of(key));
        self.end_of(at);
        match whose {
            Whose::Nobodys(bytes) => bytes,
            Whose::Of(_) | Whose::Unwanted => Vec::new(),
        }
    }

    /// A part has come: the receive that it is for, if one has matched its message.
    pub(crate) fn arrive(&mut self, from: u32, id: u64, part: Brought<'_>) -> Option<SlotKey> {
        let at = self.find(from, id)?;
        let message = &mut self.0[at];
        // More than was told of is a lie, and means nothing.
        message.left = message.left.checked_sub(part.len())?;
        let key = match &mut message.whose {
            Whose::Nobodys(bytes) => {
                bytes.extend(part.to_vec().ok()?);
                return None;
            }
            Whose::Of(key) => Some(*key),
            Whose::Unwanted => None,
        };
        self.end_of(at);
        key
    }

    /// Forgets a message that somebody has seen to, if all of it has come.
    fn end_of(&mut self, at: usize) {
        if self.0[at].left == 0 {
            self.0.swap_remove(at);
        }
    }

    /// Nobody wants a message any more.
    pub(crate) fn give_up(&mut self, from: u32, id: u64) {
        if let Some(at) = self.find(from, id) {
            self.0[at].whose = Whose::Unwanted;
            self.end_of(at);
        }
    }

    /// From a process that is lost nothing comes any more; what has come may still be received.
    pub(crate) fn lose(&mut self, process: u32) {
        self.0.retain(|message| message.from != process || matches!(message.whose, Whose::Nobodys(_)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_wait_for_a_receive_or_go_to_it() {
        let (mut parts, key) = (Parts::default(), SlotKey::from_number(1 << 32));
        for (from, id) in [(3, 7), (3, 8), (4, 7)] {
            parts.expect(from, id, 6);
        }
        assert_eq!(parts.arrive(3, 7, Brought::Bytes(b"abcd")), None);
        assert_eq!(parts.arrive(3, 7, Brought::Bytes(b"too long")), None);
        assert_eq!(parts.take(3, 7, key), b"abcd");
        assert_eq!(parts.arrive(3, 7, Brought::Bytes(b"ef")), Some(key));
        assert_eq!(parts.arrive(3, 7, Brought::Bytes(b"")), None, "all have come");
        assert_eq!(parts.arrive(3, 8, Brought::Bytes(b"ghijkl")), None);
        parts.lose(3);
        assert_eq!(parts.take(3, 8, key), b"ghijkl", "what has come counts");
        parts.give_up(4, 7);
        assert_eq!(parts.arrive(4, 7, Brought::Bytes(b"mnopqr")), None);
        assert!(parts.0.is_empty());
    }
}
