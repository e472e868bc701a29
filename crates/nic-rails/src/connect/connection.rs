//! State of a queue pair's connection and of each of its lanes.

use std::net::SocketAddr;
use std::sync::Arc;

use host::Time;
use verbs::{ConnInfo, ConnParam, Qp};

use crate::RAILS_MAX;
use crate::connect::cm_events::CmEvents;

/// The phase of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ConnPhase {
    #[default]
    None,
    Connecting,
    Accepting,
    Up,
    Ended,
}

/// The state of a lane of an established connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LaneState {
    #[default]
    Up,
    /// The lane has failed; this side is about to close its own end.
    Failed,
    /// This side has closed its end, and waits until all requests on it have completed.
    Draining,
    /// This side has written a lane report about the failure, and waits for the peer's report.
    Reported,
    /// Both ends have closed the lane and agreed on what was delivered.
    Down,
}

/// A lane of a connection.
#[derive(Default)]
pub(crate) struct LaneLink {
    pub(crate) health: LaneState,
    /// The number of the attempt that connected it, and the number of the last attempt.
    pub(crate) generation: u32,
    pub(crate) tried: u32,
    /// When failover must have finished, or when the next attempt starts.
    pub(crate) due: Option<Time>,
    /// When this side closed it.
    pub(crate) closed: Option<Time>,
    /// The attempt and the queue pair that will replace it.
    pub(crate) attempt: Option<(u32, Arc<Qp>)>,
    /// The address at which it is connected again, at the accepting side.
    pub(crate) join_addr: Option<SocketAddr>,
}

/// The connection of a queue pair.
#[derive(Default)]
pub(crate) struct Connection {
    pub(crate) phase: ConnPhase,
    /// The channel for its events.
    pub(crate) cm: Option<Arc<CmEvents>>,
    /// Lanes that have been requested or accepted, for which therefore events come; lanes that are connected; and lanes
    /// that have failed before all were connected. Bit masks.
    pub(crate) begun: u8,
    pub(crate) up: u8,
    pub(crate) gone: u8,
    pub(crate) param: ConnParam,
    pub(crate) token: u64,
    /// Whether this is the connecting side.
    pub(crate) is_active: bool,
    /// The accepting program's private data.
    pub(crate) answer: Vec<u8>,
    /// The addresses of the first lane, which the programs know. The accepting side has them from the request, as the
    /// connection may have to be reported before that lane's own event.
    pub(crate) info: Option<ConnInfo>,
    pub(crate) deadline: Option<Time>,
    pub(crate) lanes: [LaneLink; RAILS_MAX],
}

impl Connection {
    /// Whether all lanes have been requested or accepted.
    pub(crate) fn has_begun(&self, lanes: usize) -> bool {
        self.begun.count_ones() as usize == lanes
    }

    /// Whether a lane is connected.
    pub(crate) fn is_up(&self, lane: usize) -> bool {
        self.lanes[lane].health == LaneState::Up
    }
}
