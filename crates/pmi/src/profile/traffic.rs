//! [`Traffic`]: messages and bytes that a process has sent, by protocol. MPI counts, the launcher reports.

/// A protocol. Eager messages contain their data. For others the sender announces the data by an RTS first (rendezvous).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Proto {
    /// To this process itself: a copy.
    Own,
    /// Stored in the cache line that both processes write in turn, or if that is in use, as [`Proto::EagerRing`].
    EagerLine,
    /// Stored in a ring in the receiver's NIC memory.
    EagerRing,
    /// Written by RDMA to memory that the receiver polls (`fast_path` of MPI's configuration).
    EagerWrite,
    /// Sent within the work request.
    EagerInline,
    /// Copied to a registered slot, and sent from there.
    EagerCopy,
    /// Stored in fragments in a ring in the receiver's NIC memory.
    EagerFrag,
    /// Sent from the program's memory as one message; the receiver names the memory for the data when it has the header.
    EagerDirect,
    /// The receiver reads the data by RDMA, and sends a FIN.
    RndvGet,
    /// Both sides copy pieces, which they claim through a shared word.
    RndvShm,
}

impl Proto {
    /// All protocols, each at its own index.
    pub const ALL: [Self; 10] = [
        Self::Own,
        Self::EagerLine,
        Self::EagerRing,
        Self::EagerWrite,
        Self::EagerInline,
        Self::EagerCopy,
        Self::EagerFrag,
        Self::EagerDirect,
        Self::RndvGet,
        Self::RndvShm,
    ];

    /// Its name, in tables and counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::Own => "self",
            Self::EagerLine => "eager/line",
            Self::EagerRing => "eager/ring",
            Self::EagerWrite => "eager/write",
            Self::EagerInline => "eager/inline",
            Self::EagerCopy => "eager/copy",
            Self::EagerFrag => "eager/frag",
            Self::EagerDirect => "eager/direct",
            Self::RndvGet => "rndv/get",
            Self::RndvShm => "rndv/shm-both",
        }
    }
}

/// A number of messages, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MessageTotals {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of their data.
    pub bytes: u64,
}

/// Messages sent, by protocol. The owner counts under the engine's lock, so that a count costs an addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic([MessageTotals; Proto::ALL.len()]);

impl Traffic {
    /// Counts a message with `bytes` bytes of data.
    #[inline(always)]
    pub fn count(&mut self, proto: Proto, bytes: usize) {
        let totals = &mut self.0[proto as usize];
        totals.messages += 1;
        totals.bytes += bytes as u64;
    }

    /// Sets the numbers of one protocol.
    pub(super) fn set(&mut self, proto: Proto, totals: MessageTotals) {
        self.0[proto as usize] = totals;
    }

    /// The counts of one protocol.
    pub fn for_protocol(&self, proto: Proto) -> MessageTotals {
        self.0[proto as usize]
    }

    /// The total of all protocols.
    pub fn all(&self) -> MessageTotals {
        let sum = |sum: MessageTotals, of: &MessageTotals| MessageTotals {
            messages: sum.messages.saturating_add(of.messages),
            bytes: sum.bytes.saturating_add(of.bytes),
        };
        self.0.iter().fold(MessageTotals::default(), sum)
    }

    /// The difference from an earlier state.
    pub fn since(&self, then: &Self) -> Self {
        let mut since = *self;
        for (mine, then) in since.0.iter_mut().zip(then.0) {
            mine.messages = mine.messages.saturating_sub(then.messages);
            mine.bytes = mine.bytes.saturating_sub(then.bytes);
        }
        since
    }

    /// Adds another process's counts. They saturate, because a rank may report invented numbers.
    pub fn add(&mut self, other: &Self) {
        for (mine, other) in self.0.iter_mut().zip(other.0) {
            mine.messages = mine.messages.saturating_add(other.messages);
            mine.bytes = mine.bytes.saturating_add(other.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_kept_by_protocol_and_add_up() {
        let mut traffic = Traffic::default();
        traffic.count(Proto::EagerLine, 8);
        traffic.count(Proto::EagerLine, 0);
        let mut other = Traffic::default();
        other.count(Proto::RndvGet, 1 << 20);
        traffic.add(&other);
        assert_eq!(traffic.for_protocol(Proto::EagerLine), MessageTotals { messages: 2, bytes: 8 });
        assert_eq!(traffic.all(), MessageTotals { messages: 3, bytes: (1 << 20) + 8 });
        assert_eq!(traffic.since(&other).all(), MessageTotals { messages: 2, bytes: 8 });
    }

    #[test]
    fn each_protocol_is_at_its_index() {
        for (at, proto) in Proto::ALL.into_iter().enumerate() {
            assert_eq!(proto as usize, at, "{}", proto.name());
        }
    }
}
