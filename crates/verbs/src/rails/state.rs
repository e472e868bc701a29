//! How far a queue pair has come.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::QpState;

pub(super) const INIT: u8 = 0;
/// `Init` to the program.
pub(super) const CONNECTING: u8 = 1;
pub(super) const READY_TO_RECEIVE: u8 = 2;
pub(super) const READY_TO_SEND: u8 = 3;
pub(super) const ERROR: u8 = 4;

/// One of these, in their order.
pub(super) struct State(AtomicU8);

impl State {
    pub(super) fn new() -> Self {
        Self(AtomicU8::new(INIT))
    }

    pub(super) fn now(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }

    /// Goes from one state to another; whether it was there.
    pub(super) fn advance(&self, from: u8, to: u8) -> bool {
        self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    pub(super) fn fail(&self) {
        self.0.store(ERROR, Ordering::Release);
    }

    /// As the API has it.
    pub(super) fn of_api(&self) -> QpState {
        match self.now() {
            INIT | CONNECTING => QpState::Init,
            READY_TO_RECEIVE => QpState::ReadyToReceive,
            READY_TO_SEND => QpState::ReadyToSend,
            _ => QpState::Error,
        }
    }
}
