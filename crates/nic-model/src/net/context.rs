//! [`Context`]: an opened device.

use std::collections::VecDeque;

use verbs::AsyncEvent;

/// An opened device: one of possibly several users of a card.
pub(super) struct Context {
    card: usize,
    /// Its single port, if it is not the whole card.
    port: Option<usize>,
    events: VecDeque<AsyncEvent>,
}

impl Context {
    /// A user of a card, or of one of its ports.
    pub(super) fn new(card: usize, port: Option<usize>) -> Self {
        Self { card, port, events: VecDeque::new() }
    }

    pub(super) fn card(&self) -> usize {
        self.card
    }

    pub(super) fn port(&self) -> Option<usize> {
        self.port
    }

    /// Queues an event for the user.
    pub(super) fn push(&mut self, event: AsyncEvent) {
        self.events.push_back(event);
    }

    /// The oldest event.
    pub(super) fn poll(&mut self) -> Option<AsyncEvent> {
        self.events.pop_front()
    }
}
