//! [`Flow`]: sequence numbers of messages between two programs, and the messages kept until the target has
//! accepted them.

use std::collections::{BTreeMap, VecDeque};

use super::work::{Address, ControlMessage, FirmwareMessage};

/// A message that may have to be retransmitted.
#[derive(Debug)]
struct UnackedMessage {
    message: FirmwareMessage,
    /// The chain to resume when it is accepted.
    chain: Option<u32>,
}

/// Messages of one program to another.
#[derive(Debug, Default)]
struct Outgoing {
    next: u64,
    unacked: VecDeque<UnackedMessage>,
}

/// Both halves of a card's flow control.
#[derive(Debug, Default)]
pub(super) struct Flow {
    outgoing: BTreeMap<(Address, Address), Outgoing>,
    /// The expected number of the next message.
    incoming: BTreeMap<(Address, Address), u64>,
}

impl Flow {
    /// Assigns the number of a message and keeps a copy.
    pub(super) fn track(&mut self, message: &mut FirmwareMessage, chain: Option<u32>) {
        let outgoing = self.outgoing.entry((message.from, message.to)).or_default();
        message.number = outgoing.next;
        outgoing.next += 1;
        outgoing.unacked.push_back(UnackedMessage { message: message.clone(), chain });
    }

    /// Whether a message is the next one of its sender.
    pub(super) fn is_next(&self, message: &FirmwareMessage) -> bool {
        self.incoming.get(&(message.from, message.to)).copied().unwrap_or(0) == message.number
    }

    /// Accepts a message.
    pub(super) fn accept(&mut self, message: &FirmwareMessage) {
        self.incoming.insert((message.from, message.to), message.number + 1);
    }

    /// Drops accepted messages; returns the chains that waited for them.
    pub(super) fn acknowledge(&mut self, control: &ControlMessage) -> Vec<u32> {
        let Some(outgoing) = self.outgoing.get_mut(&(control.from, control.to)) else { return Vec::new() };
        let mut chains = Vec::new();
        while outgoing.unacked.front().is_some_and(|unacked| unacked.message.number < control.next) {
            chains.extend(outgoing.unacked.pop_front().and_then(|unacked| unacked.chain));
        }
        chains
    }

    /// The messages to retransmit, in order.
    pub(super) fn unacked_from(&self, control: &ControlMessage) -> Vec<FirmwareMessage> {
        let unacked =
            self.outgoing.get(&(control.from, control.to)).into_iter().flat_map(|outgoing| &outgoing.unacked);
        unacked
            .filter(|unacked| unacked.message.number >= control.next)
            .map(|unacked| unacked.message.clone())
            .collect()
    }
}
