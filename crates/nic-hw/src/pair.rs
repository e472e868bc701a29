//! [`Pair`]: a queue pair of the card with the state that the API knows.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use host::{Span, Time};
use rdma_abi::numbers as n;
use verbs::{QpState, RNR_PAUSE};

use crate::raw::cm::CmId;
use crate::raw::qp::HwQp;

/// No limit of retries was set: the peer's applies.
const PEERS_RETRY: u8 = u8::MAX;

/// A queue pair. The registry of connections holds a reference while it can name it; under the lock of the registry
/// alone, other threads than its owner's change its state.
pub(crate) struct Pair {
    pub(crate) hw: HwQp,
    state: AtomicU8,
    /// The number of its connection; 0 if it has none.
    pub(crate) connection: AtomicU64,
    rnr_retry: AtomicU8,
    rnr_timer: AtomicU8,
    /// When the card was last asked for its state, in picoseconds.
    last_query: AtomicU64,
    port: u8,
    /// The rights of peers, as `IBV_ACCESS_...`.
    access: u32,
    pub(crate) has_srq: bool,
    is_iwarp: bool,
    /// The index in the GID table, if the name of the device chooses one.
    gid_index: Option<u8>,
    /// Why it has failed, if an event said so.
    cause: OnceLock<&'static str>,
}

/// What a queue pair gets from its device.
#[derive(Clone, Copy)]
pub(crate) struct PairSettings {
    pub(crate) port: u8,
    pub(crate) access: u32,
    pub(crate) is_iwarp: bool,
    pub(crate) gid_index: Option<u8>,
}

const STATES: [QpState; 5] =
    [QpState::Reset, QpState::Init, QpState::ReadyToReceive, QpState::ReadyToSend, QpState::Error];

impl Pair {
    /// Moves a new queue pair to `Init`.
    pub(crate) fn new(hw: HwQp, settings: PairSettings, has_srq: bool) -> io::Result<Self> {
        let PairSettings { port, access, is_iwarp, gid_index } = settings;
        hw.to_init(port, access)?;
        Ok(Self {
            hw,
            state: AtomicU8::new(QpState::Init as u8),
            connection: AtomicU64::new(0),
            rnr_retry: AtomicU8::new(PEERS_RETRY),
            rnr_timer: AtomicU8::new(timer(RNR_PAUSE)),
            last_query: AtomicU64::new(0),
            port,
            access,
            has_srq,
            is_iwarp,
            gid_index,
            cause: OnceLock::new(),
        })
    }

    /// The state, as far as this side knows it.
    #[inline]
    pub(crate) fn state(&self) -> QpState {
        STATES[usize::from(self.state.load(Ordering::Acquire))]
    }

    pub(crate) fn set_state(&self, state: QpState) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Records why it has failed; the first cause stays.
    pub(crate) fn set_cause(&self, cause: &'static str) {
        let _ = self.cause.set(cause);
    }

    /// Why it has failed, if an event said so.
    pub(crate) fn cause(&self) -> Option<&'static str> {
        self.cause.get().copied()
    }

    /// Whether its card speaks iWARP.
    pub(crate) fn is_iwarp(&self) -> bool {
        self.is_iwarp
    }

    /// Whether its last query was at least `period` ago; then the caller asks the card.
    pub(crate) fn query_due(&self, now: Time, period: Span) -> bool {
        let last = self.last_query.load(Ordering::Relaxed);
        let is_due = now.since(Time::from_ps(last)) >= period;
        if is_due {
            self.last_query.store(now.as_ps(), Ordering::Relaxed);
        }
        is_due
    }

    /// Whether the card has moved it to the error state.
    pub(crate) fn has_failed(&self) -> bool {
        self.hw.state().is_ok_and(|state| matches!(state, n::IBV_QPS_ERR | n::IBV_QPS_SQE))
    }

    /// Moves it to the error state: its requests are flushed.
    pub(crate) fn fail(&self) {
        self.set_state(QpState::Error);
        // It may be there already.
        let _ = self.hw.to_state(n::IBV_QPS_ERR);
    }

    /// Moves it back to `Init` after a connection was not made. Receives that were posted are lost if the card has moved
    /// it on.
    pub(crate) fn back_to_init(&self) {
        let is_there = self.hw.state().is_ok_and(|state| state == n::IBV_QPS_INIT);
        let moved = if is_there {
            Ok(())
        } else {
            self.hw.to_state(n::IBV_QPS_RESET).and_then(|()| self.hw.to_init(self.port, self.access))
        };
        self.connection.store(0, Ordering::Release);
        self.set_state(if moved.is_ok() { QpState::Init } else { QpState::Error });
    }

    /// Moves it to RTR and RTS, with the attributes of the connection. `depths` (of responder and initiator) replace the
    /// values of librdmacm. Does nothing on iWARP, where the driver moves queue pairs.
    pub(crate) fn ready(&self, id: &CmId, depths: Option<(u8, u8)>) -> io::Result<()> {
        if self.is_iwarp {
            return Ok(());
        }
        let (mut attr, mask) = id.qp_attr(n::IBV_QPS_RTR)?;
        attr.min_rnr_timer = self.rnr_timer.load(Ordering::Relaxed);
        attr.max_dest_rd_atomic = depths.map_or(attr.max_dest_rd_atomic, |(responder, _)| responder);
        if let Some(index) = self.gid_index {
            // An address may have several entries, of other types.
            attr.ah_attr.grh.sgid_index = index;
        }
        self.hw.modify(attr, mask)?;
        let (mut attr, mask) = id.qp_attr(n::IBV_QPS_RTS)?;
        attr.max_rd_atomic = depths.map_or(attr.max_rd_atomic, |(_, initiator)| initiator);
        match self.rnr_retry.load(Ordering::Relaxed) {
            PEERS_RETRY => {}
            retries => attr.rnr_retry = retries,
        }
        self.hw.modify(attr, mask)
    }

    /// Sets the limit of retries, for a connection that is made later.
    pub(crate) fn set_rnr_retry(&self, retries: u8) {
        self.rnr_retry.store(retries, Ordering::Relaxed);
    }

    /// Sets the pause of the peer before a retry.
    pub(crate) fn set_rnr_pause(&self, pause: Span) -> io::Result<()> {
        self.rnr_timer.store(timer(pause), Ordering::Relaxed);
        if self.state() != QpState::ReadyToSend {
            return Ok(());
        }
        let mut attr = crate::raw::qp::no_attributes();
        (attr.qp_state, attr.min_rnr_timer) = (n::IBV_QPS_RTS.cast_signed(), timer(pause));
        self.hw.modify(attr, n::IBV_QP_STATE | n::IBV_QP_MIN_RNR_TIMER)
    }
}

/// Pauses by code, in units of 10 us (IBA 9.7.5.2.8, table 45); code 0 is the longest.
const PAUSES: [u64; 31] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096,
    6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
];

/// The code of the shortest pause that is no shorter than this.
fn timer(pause: Span) -> u8 {
    let code = PAUSES.iter().position(|tens| Span::from_us(tens * 10) >= pause);
    code.map_or(0, |code| code as u8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_becomes_the_code_of_one_no_shorter() {
        for (us, code) in [(0, 1), (10, 1), (11, 2), (640, 12), (641, 13), (491_520, 31), (655_360, 0)] {
            assert_eq!(timer(Span::from_us(us)), code, "{us} us");
        }
    }
}
