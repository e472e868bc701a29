//! [`Fragments`]: fragments of long messages, which follow their RTS without a CTS, whether a receive has matched the RTS or not.

use host::SlotKey;

use crate::p2p::operation::ArrivedData;
use crate::peers::nic::FRAGMENTS_WITHOUT_CTS;

/// The destination of a message's fragments.
#[derive(Debug)]
enum FragmentSink {
    /// No receive has matched the message; these bytes of it have arrived.
    Unexpected(KeptBytes),
    /// The receive that matched the message.
    Receive(SlotKey),
    /// They are dropped: the message was cancelled, or its communicator is freed.
    Dropped,
}

/// Bytes of an unexpected message.
#[derive(Debug, Default)]
pub(crate) struct KeptBytes {
    /// Initialized memory; the first `len` bytes are in use.
    memory: Vec<u8>,
    len: usize,
}

impl KeptBytes {
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.memory[..self.len]
    }

    /// Appends data; `wanted` is the length of the whole message as its sender has announced it.
    fn append(&mut self, data: ArrivedData<'_>, wanted: usize) -> verbs::Result<()> {
        let end = self.len + data.len();
        if self.memory.len() < end {
            // A faulty sender may announce more than it sends.
            self.memory.resize(end.max(wanted.min(FRAGMENTS_WITHOUT_CTS * end)), 0);
        }
        data.copy_to(&mut self.memory[self.len..end])?;
        self.len = end;
        Ok(())
    }
}

/// The largest number and length of buffers that are kept for later unexpected messages. Without them each message of 64 KiB that
/// arrives before its receive makes the C library map, or return, memory, whose pages then fault again.
const SPARES_MAX: usize = 4;
const SPARE_BYTES: usize = 256 << 10;

/// The fragments of one message.
#[derive(Debug)]
struct FragmentedMessage {
    from: u32,
    /// The sender's number for its request.
    id: u64,
    /// Bytes of all fragments, and bytes that have not arrived.
    bytes: usize,
    left: usize,
    sink: FragmentSink,
}

/// Messages whose fragments have not all arrived, or that wait for a receive.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    messages: Vec<FragmentedMessage>,
    spares: Vec<Vec<u8>>,
}

impl Fragments {
    /// Searches the latest messages first: many older ones may wait for a receive.
    fn find(&self, from: u32, id: u64) -> Option<usize> {
        self.messages.iter().rposition(|message| (message.from, message.id) == (from, id))
    }

    /// Registers an RTS that announces this many bytes in fragments.
    pub(crate) fn announce(&mut self, from: u32, id: u64, bytes: u32) {
        self.messages.push(FragmentedMessage {
            from,
            id,
            bytes: bytes as usize,
            left: bytes as usize,
            sink: FragmentSink::Unexpected(KeptBytes::default()),
        });
    }

    /// A receive has matched an RTS: returns the bytes that have arrived. Later fragments are for the receive.
    pub(crate) fn attach_receive(&mut self, from: u32, id: u64, key: SlotKey) -> KeptBytes {
        let Some(at) = self.find(from, id) else { return KeptBytes::default() };
        let sink = std::mem::replace(&mut self.messages[at].sink, FragmentSink::Receive(key));
        self.remove_if_complete(at);
        match sink {
            FragmentSink::Unexpected(bytes) => bytes,
            FragmentSink::Receive(_) | FragmentSink::Dropped => KeptBytes::default(),
        }
    }

    /// Takes back the memory of a message whose receive has its bytes.
    pub(crate) fn reuse(&mut self, kept: KeptBytes) {
        if (1..=SPARE_BYTES).contains(&kept.memory.len()) && self.spares.len() < SPARES_MAX {
            self.spares.push(kept.memory);
        }
    }

    /// A fragment has arrived: returns the receive that it is for, if one has matched its message.
    pub(crate) fn store(&mut self, from: u32, id: u64, part: ArrivedData<'_>) -> Option<SlotKey> {
        let at = self.find(from, id)?;
        let message = &mut self.messages[at];
        // A peer that sends more than it has announced is faulty: the fragment is dropped.
        message.left = message.left.checked_sub(part.len())?;
        let key = match &mut message.sink {
            FragmentSink::Unexpected(kept) => {
                if kept.memory.is_empty() {
                    kept.memory = self.spares.pop().unwrap_or_default();
                }
                kept.append(part, message.bytes).ok()?;
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
        if self.messages[at].left == 0 {
            self.messages.swap_remove(at);
        }
    }

    /// Drops the fragments of a message, both arrived and expected.
    pub(crate) fn discard(&mut self, from: u32, id: u64) {
        if let Some(at) = self.find(from, id) {
            self.messages[at].sink = FragmentSink::Dropped;
            self.remove_if_complete(at);
        }
    }

    /// Removes the messages of a lost process. Fragments that have arrived can still be received.
    pub(crate) fn remove_process(&mut self, process: u32) {
        self.messages
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
        let kept = parts.attach_receive(3, 7, key);
        assert_eq!(kept.as_slice(), b"abcd");
        parts.reuse(kept);
        assert_eq!(parts.store(3, 7, ArrivedData::Bytes(b"ef")), Some(key));
        assert_eq!(parts.store(3, 7, ArrivedData::Bytes(b"")), None, "all fragments have arrived");
        assert_eq!(parts.store(3, 8, ArrivedData::Bytes(b"ghijkl")), None);
        parts.remove_process(3);
        assert_eq!(parts.attach_receive(3, 8, key).as_slice(), b"ghijkl", "arrived fragments are kept");
        parts.discard(4, 7);
        assert_eq!(parts.store(4, 7, ArrivedData::Bytes(b"mnopqr")), None);
        assert!(parts.messages.is_empty());
    }

    /// Goal: memory of unexpected messages is used again, and neither it nor the announcement of a peer that sends less makes this
    /// process hold more than the limits.
    #[test]
    fn memory_of_unexpected_messages_is_reused_and_bounded() {
        let (mut parts, key) = (Fragments::default(), SlotKey::from_number(1 << 32));
        let receive = |parts: &mut Fragments, id, announced, data: &[u8]| {
            parts.announce(1, id, announced);
            parts.store(1, id, ArrivedData::Bytes(data));
            let kept = parts.attach_receive(1, id, key);
            assert_eq!(kept.as_slice(), data);
            let (address, room) = (kept.memory.as_ptr(), kept.memory.len());
            parts.reuse(kept);
            (address, room)
        };
        let (first, room) = receive(&mut parts, 1, 32 << 10, &[7; 8 << 10]);
        assert_eq!(room, 32 << 10, "room for the whole message");
        assert_eq!(
            receive(&mut parts, 2, 64 << 10, b"short"),
            (first, room),
            "the same memory, without the earlier bytes"
        );
        assert_eq!(
            receive(&mut parts, 3, u32::MAX, &vec![7; 2 * room + 1]).1,
            4 * (2 * room + 1),
            "not as much as announced"
        );
        assert!(parts.spares.is_empty(), "it is too long to be kept");
        assert_eq!(receive(&mut parts, 4, u32::MAX, b"x").1, 4);
        (0..9).for_each(|_| parts.reuse(KeptBytes { memory: vec![0; 8], len: 8 }));
        assert_eq!(parts.spares.len(), SPARES_MAX);
    }
}
