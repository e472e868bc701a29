//! The state of a queue pair.

use std::sync::atomic::{AtomicU8, Ordering};

use verbs::QpState;

pub(crate) const INIT: u8 = 0;
/// `Init` to the program.
pub(crate) const CONNECTING: u8 = 1;
pub(crate) const READY_TO_RECEIVE: u8 = 2;
pub(crate) const READY_TO_SEND: u8 = 3;
pub(crate) const ERROR: u8 = 4;

/// One of the states above, in their order.
pub(crate) struct QpStateCell(AtomicU8);

impl QpStateCell {
    pub(crate) fn new() -> Self {
        Self(AtomicU8::new(INIT))
    }

    pub(crate) fn get(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }

    /// Changes from one state to another; returns whether it was in the first.
    pub(crate) fn advance(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(crate) fn fail(&self) {
        self.0.store(ERROR, Ordering::Release);
    }

    /// The state as the API defines it.
    pub(crate) fn to_api(&self) -> QpState {
        match self.get() {
            INIT | CONNECTING => QpState::Init,
            READY_TO_RECEIVE => QpState::ReadyToReceive,
            READY_TO_SEND => QpState::ReadyToSend,
            _ => QpState::Error,
        }
    }
}
