//! [`Fragments`]: fragments of long messages, which follow their RTS without a CTS, whether a receive has matched the RTS or not.

use host::SlotKey;

use crate::p2p::operation::ArrivedData;

/// The destination of a message's fragments.
#[derive(Debug)]
enum FragmentSink {
    /// No receive has matched the message; these bytes of it have arrived.
    Unexpected(Vec<u8>),
    /// The receive that matched the message.
    Receive(SlotKey),
    /// They are dropped: the message was cancelled, or its communicator is freed.
    Dropped,
}

/// The fragments of one message.
#[derive(Debug)]
struct FragmentedMessage {
    from: u32,
    /// The sender's number for its request.
    id: u64,
    /// Bytes that have not arrived.
    left: usize,
    sink: FragmentSink,
}

/// Messages whose fragments have not all arrived, or that wait for a receive.
#[derive(Debug, Default)]
pub(crate) struct Fragments(Vec<FragmentedMessage>);

impl Fragments {
    /// Searches the latest messages first: many older ones may wait for a receive.
    fn find(&self, from: u32, id: u64) -> Option<usize> {
        self.0.iter().rposition(|message| (message.from, message.id) == (from, id))
    }

    /// Registers an RTS that announces this many bytes in fragments.
    pub(crate) fn announce(&mut self, from: u32, id: u64, bytes: u32) {
        self.0.push(FragmentedMessage {
            from,
            id,
            left: bytes as usize,
            sink: FragmentSink::Unexpected(Vec::new()),
        });
    }

    /// A receive has matched an RTS: returns the bytes that have arrived. Later fragments are for the receive.
    pub(crate) fn attach_receive(&mut self, from: u32, id: u64, key: SlotKey) -> Vec<u8> {
        let Some(at) = self.find(from, id) else { return Vec::new() };
        let sink = std::mem::replace(&mut self.0[at].sink, FragmentSink::Receive(key));
        self.remove_if_complete(at);
        match sink {
            FragmentSink::Unexpected(bytes) => bytes,
            FragmentSink::Receive(_) | FragmentSink::Dropped => Vec::new(),
        }
    }

    /// A fragment has arrived: returns the receive that it is for, if one has matched its message.
    pub(crate) fn store(&mut self, from: u32, id: u64, part: ArrivedData<'_>) -> Option<SlotKey> {
        let at = self.find(from, id)?;
        let message = &mut self.0[at];
        // A peer that sends more than it has announced is faulty: the fragment is dropped.
        message.left = message.left.checked_sub(part.len())?;
        let key = match &mut message.sink {
            FragmentSink::Unexpected(bytes) => {
                bytes.extend(part.to_vec().ok()?);
                return None;
            }
            FragmentSink::Receive(key) => Some(*key),
            FragmentSink::Dropped => None,
        };
        self.remove_if_complete(at);
        key
    }

    /// Removes a message once all its fragments have arrived.
    fn remove_if_complete(&mut self, at: usize) {
        if self.0[at].left == 0 {
            self.0.swap_remove(at);
        }
    }

    /// Drops the fragments of a message, both arrived and expected.
    pub(crate) fn discard(&mut self, from: u32, id: u64) {
        if let Some(at) = self.find(from, id) {
            self.0[at].sink = FragmentSink::Dropped;
            self.remove_if_complete(at);
        }
    }

    /// Removes the messages of a lost process. Fragments that have arrived can still be received.
    pub(crate) fn remove_process(&mut self, process: u32) {
        self.0
            .retain(|message| message.from != process || matches!(message.sink, FragmentSink::Unexpected(_)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fragments_are_kept_until_a_receive_matches() {
        let (mut parts, key) = (Fragments::default(), SlotKey::from_number(1 << 32));
        for (from, id) in [(3, 7), (3, 8), (4, 7)] {
            parts.announce(from, id, 6);
        }
        assert_eq!(parts.store(3, 7, ArrivedData::Bytes(b"abcd")), None);
        assert_eq!(parts.store(3, 7, ArrivedData::Bytes(b"too long")), None);
        assert_eq!(parts.attach_receive(3, 7, key), b"abcd");
        assert_eq!(parts.store(3, 7, ArrivedData::Bytes(b"ef")), Some(key));
        assert_eq!(parts.store(3, 7, ArrivedData::Bytes(b"")), None, "all fragments have arrived");
        assert_eq!(parts.store(3, 8, ArrivedData::Bytes(b"ghijkl")), None);
        parts.remove_process(3);
        assert_eq!(parts.attach_receive(3, 8, key), b"ghijkl", "arrived fragments are kept");
        parts.discard(4, 7);
        assert_eq!(parts.store(4, 7, ArrivedData::Bytes(b"mnopqr")), None);
        assert!(parts.0.is_empty());
    }
}
