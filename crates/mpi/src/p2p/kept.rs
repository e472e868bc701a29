//! [`KeptMessages`]: long messages whose header arrived before their receive. Their data go to memory of this process, where they
//! wait for the receive.

use host::SlotKey;
use verbs::Buf;

use crate::p2p::operation::{ArrivedData, Table};

/// The state of a kept message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KeptState {
    /// Data are missing, and no receive has matched it.
    Arriving,
    /// Data are missing; this receive gets them.
    ArrivingFor(SlotKey),
    /// Data are missing; no receive can match it.
    Dropped,
    /// All data have arrived.
    Arrived,
}

/// A message in memory of this process.
#[derive(Debug)]
struct KeptMessage {
    from: u32,
    memory: Buf,
    state: KeptState,
}

/// What to do with a kept message whose data have arrived.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// It waits for a receive.
    Kept,
    /// The receive that has matched it gets these data.
    Matched(SlotKey, Buf),
}

/// A kept message that a receive has matched.
#[derive(Debug)]
pub(crate) enum Match {
    /// Its data.
    Data(Buf),
    /// Data are missing: [`KeptMessages::await_for`].
    Awaited,
    /// Its sender was lost before all data had arrived.
    Lost,
}

/// Where the rest of a message goes that a process has begun to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RestSink {
    /// To the memory of a receive.
    Receive(SlotKey),
    /// To the memory of a kept message.
    Kept(SlotKey),
}

/// The rest of a message that a process has begun to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rest {
    pub(crate) sink: RestSink,
    /// Bytes of the message that have arrived.
    pub(crate) at: u64,
    /// Bytes of the message that are missing.
    pub(crate) left: u64,
}

/// The largest number, and the bytes together, of buffers that are kept for later messages. Without them memory is mapped and
/// unmapped for each message that arrives before its receive, and its pages fault again: a seventh of the time of an allgather of
/// 1 MiB by four ranks.
const SPARES_MAX: usize = 4;
const SPARE_BYTES: usize = 8 << 20;

/// Long messages that arrived before their receives.
#[derive(Debug, Default)]
pub(crate) struct KeptMessages {
    messages: Table<KeptMessage>,
    spares: Vec<Buf>,
}

impl KeptMessages {
    /// Returns memory for a message of `len` bytes.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(crate) fn memory(&mut self, len: usize) -> verbs::Result<Buf> {
        let fitting = self.spares.iter().enumerate().filter(|(_, spare)| spare.len() >= len);
        match fitting.min_by_key(|(_, spare)| spare.len()) {
            Some((at, _)) => Ok(self.spares.swap_remove(at)),
            None => Buf::alloc(len.next_power_of_two()),
        }
    }

    /// Takes memory back that is not used any more.
    pub(crate) fn reuse(&mut self, memory: Buf) {
        let kept: usize = self.spares.iter().map(Buf::len).sum();
        if self.spares.len() < SPARES_MAX && kept + memory.len() <= SPARE_BYTES {
            self.spares.push(memory);
        }
    }

    /// Keeps a message whose data arrive in `memory`; for a receive that has matched it, if there is one.
    pub(crate) fn keep(&mut self, from: u32, memory: Buf, receive: Option<SlotKey>) -> SlotKey {
        let state = receive.map_or(KeptState::Arriving, KeptState::ArrivingFor);
        self.messages.insert(KeptMessage { from, memory, state })
    }

    /// A receive has matched a message that was kept without one: returns its data if all have arrived.
    pub(crate) fn take(&mut self, kept: SlotKey) -> Match {
        match self.messages.get_mut(kept).map(|message| message.state) {
            Some(KeptState::Arriving) => Match::Awaited,
            Some(KeptState::Arrived) => {
                self.messages.remove(kept).map_or(Match::Lost, |message| Match::Data(message.memory))
            }
            // No receive matches a message twice, so that its memory is not taken while data arrive there.
            Some(KeptState::ArrivingFor(_) | KeptState::Dropped) | None => Match::Lost,
        }
    }

    /// A receive waits for a message whose data have not all arrived.
    pub(crate) fn await_for(&mut self, kept: SlotKey, receive: SlotKey) {
        if let Some(message) = self.messages.get_mut(kept) {
            message.state = KeptState::ArrivingFor(receive);
        }
    }

    /// Stores data at an offset in the memory of a message.
    ///
    /// # Errors
    /// They exceed the memory.
    pub(crate) fn store_at(&mut self, kept: SlotKey, at: usize, data: ArrivedData<'_>) -> verbs::Result<()> {
        self.messages.get_mut(kept).map_or(Ok(()), |message| data.copy_to_buf(&message.memory, at))
    }

    /// All data of a message have arrived.
    pub(crate) fn arrived(&mut self, kept: SlotKey) -> Arrival {
        let Some(message) = self.messages.get_mut(kept) else { return Arrival::Kept };
        let state = std::mem::replace(&mut message.state, KeptState::Arrived);
        if state == KeptState::Arriving {
            return Arrival::Kept;
        }
        match (state, self.messages.remove(kept)) {
            (KeptState::ArrivingFor(receive), Some(message)) => Arrival::Matched(receive, message.memory),
            (_, message) => {
                message.into_iter().for_each(|message| self.reuse(message.memory));
                Arrival::Kept
            }
        }
    }

    /// No receive will match a message.
    pub(crate) fn discard(&mut self, kept: SlotKey) {
        match self.messages.get_mut(kept) {
            // A device may still write to its memory.
            Some(message) if message.state == KeptState::Arriving => message.state = KeptState::Dropped,
            _ => drop(self.messages.remove(kept)),
        }
    }

    /// Removes the messages of a process that is lost, or has left, except those whose data have all arrived. Its device has stopped.
    pub(crate) fn remove_process(&mut self, process: u32) {
        let is_broken =
            |message: &KeptMessage| message.from == process && message.state != KeptState::Arrived;
        let broken = self.messages.iter().filter(|(_, message)| is_broken(message)).map(|(key, _)| key);
        let broken: Vec<SlotKey> = broken.collect();
        broken.into_iter().for_each(|key| drop(self.messages.remove(key)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receive() -> SlotKey {
        SlotKey::from_number(1 << 32)
    }

    fn keep(kept: &mut KeptMessages, from: u32, receive: Option<SlotKey>) -> SlotKey {
        let memory = kept.memory(100).expect("memory");
        kept.keep(from, memory, receive)
    }

    #[test]
    fn receives_get_messages_that_have_arrived_and_wait_for_others() {
        let mut kept = KeptMessages::default();
        let [early, late, matched] = [None, None, Some(receive())].map(|receive| keep(&mut kept, 1, receive));
        assert!(matches!(kept.arrived(early), Arrival::Kept));
        assert!(matches!(kept.take(early), Match::Data(memory) if memory.len() >= 100));
        assert!(matches!(kept.take(late), Match::Awaited));
        kept.await_for(late, receive());
        assert!(matches!(kept.take(late), Match::Lost), "data still arrive in its memory");
        for message in [late, matched] {
            assert!(matches!(kept.arrived(message), Arrival::Matched(key, _) if key == receive()));
        }
        assert_eq!(kept.messages.iter().count(), 0);
    }

    /// Goal: memory that a device still writes to is not released, and a message whose data are missing is not received.
    #[test]
    fn dropped_and_lost_messages_release_their_memory() {
        let mut kept = KeptMessages::default();
        let [dropped, lost, whole] = [1, 2, 2].map(|from| keep(&mut kept, from, None));
        kept.discard(dropped);
        assert_eq!(kept.messages.iter().count(), 3, "the device writes to it");
        assert!(matches!(kept.arrived(dropped), Arrival::Kept));
        kept.arrived(whole);
        kept.remove_process(2);
        assert!(matches!(kept.take(lost), Match::Lost));
        assert!(matches!(kept.take(whole), Match::Data(_)));
        assert_eq!(kept.messages.iter().count(), 0);
    }

    #[test]
    fn memory_is_reused_and_bounded() {
        let mut kept = KeptMessages::default();
        let first = kept.memory(70_000).expect("memory");
        let address = first.addr();
        kept.reuse(first);
        assert_eq!(kept.memory(100_000).expect("memory").addr(), address, "the same memory");
        kept.reuse(Buf::alloc(2 * SPARE_BYTES).expect("memory"));
        assert!(kept.spares.is_empty(), "it is too long");
        (0..2).for_each(|_| kept.reuse(Buf::alloc(SPARE_BYTES / 2 + 1).expect("memory")));
        assert_eq!(kept.spares.len(), 1, "two are too long together");
        (0..9).for_each(|_| kept.reuse(Buf::alloc(8).expect("memory")));
        assert_eq!(kept.spares.len(), SPARES_MAX);
        assert_eq!(kept.memory(5).expect("memory").len(), 8, "the shortest that is long enough");
    }
}
