//! [`Card`]: one card with its host: the occupancy of its resources, its firmware programs, and its incoming
//! long messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use host::world::Node;
use host::{EventCount, Span, Time};
use verbs::Firmware;

use super::flow::Flow;
use super::transfer_time::TransferTime;
use super::work::HostWrite;

/// A loaded firmware program.
pub(super) struct LoadedFirmware {
    pub(super) domain: u32,
    /// Removed while it runs.
    pub(super) firmware: Option<Box<dyn Firmware>>,
    pub(super) wakeup: Arc<EventCount>,
    pub(super) effects: HostWrites,
    pub(super) wants_turn: bool,
    /// The timing of the last record that its host could see.
    pub(super) last_timing: Option<TransferTime>,
}

/// A program's writes to host memory, which become visible in the order of the calls.
#[derive(Default)]
pub(super) struct HostWrites {
    issued: u64,
    shown: u64,
    ready: BTreeMap<u64, (Time, HostWrite)>,
    /// When the last one becomes visible.
    last: Time,
}

impl HostWrites {
    /// The sequence number of the next write.
    pub(super) fn take_sequence_number(&mut self) -> u64 {
        self.issued += 1;
        self.issued - 1
    }

    /// A write could be visible at `at`; returns all writes that are visible in order now, with their times.
    pub(super) fn ready(&mut self, ticket: u64, at: Time, effect: HostWrite) -> Vec<(Time, HostWrite)> {
        self.ready.insert(ticket, (at, effect));
        let mut seen = Vec::new();
        while let Some((at, effect)) = self.ready.remove(&self.shown) {
            self.shown += 1;
            self.last = self.last.max(at);
            seen.push((self.last, effect));
        }
        seen
    }
}

/// A card and its host.
pub(super) struct Card {
    pub(super) node: Node,
    pub(super) programs: BTreeMap<u16, LoadedFirmware>,
    /// Until when the card's processor, the kernel, and the engines of both directions are busy.
    pub(super) processor: Time,
    pub(super) kernel: Time,
    /// Total time that the kernel has spent in interrupts.
    pub(super) interrupted: Span,
    pub(super) transmitter: Time,
    pub(super) receiver: Time,
    /// Number of incoming long messages, by source card.
    streams: BTreeMap<usize, u32>,
    pub(super) flow: Flow,
    /// Messages for which there was no stream.
    pub(super) refused: u64,
}

impl Card {
    pub(super) fn new(node: Node) -> Self {
        Self {
            node,
            programs: BTreeMap::new(),
            processor: Time::ZERO,
            kernel: Time::ZERO,
            interrupted: Span::ZERO,
            transmitter: Time::ZERO,
            receiver: Time::ZERO,
            streams: BTreeMap::new(),
            flow: Flow::default(),
            refused: 0,
        }
    }

    /// A long message from that card starts to arrive; returns whether there is a stream for it.
    pub(super) fn open_stream(&mut self, source: usize, most: usize) -> bool {
        let has_room = self.streams.contains_key(&source) || self.streams.len() < most;
        if has_room {
            *self.streams.entry(source).or_default() += 1;
        } else {
            self.refused += 1;
        }
        has_room
    }

    /// A long message was delivered or dropped.
    pub(super) fn close_stream(&mut self, source: usize) {
        if let Some(count) = self.streams.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.streams.remove(&source);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_become_visible_in_the_order_of_the_calls() {
        let (mut effects, us) = (HostWrites::default(), |n| Time::ZERO + Span::from_us(n));
        let wakeup = || HostWrite::Notify(Arc::new(EventCount::new()));
        let tickets =
            [effects.take_sequence_number(), effects.take_sequence_number(), effects.take_sequence_number()];
        let mut at = |ticket: usize, time| -> Vec<Time> {
            let seen = effects.ready(tickets[ticket], us(time), wakeup());
            seen.into_iter().map(|(at, _)| at).collect()
        };
        assert_eq!(at(1, 5), []);
        assert_eq!(at(0, 7), [us(7), us(7)]);
        assert_eq!(at(2, 9), [us(9)]);
    }
}
