//! The connection of a queue pair: how far it has come, and how each of its lanes is.

use std::net::SocketAddr;
use std::sync::Arc;

use host::Time;
use verbs::{ConnInfo, ConnParam, Qp};

use crate::RAILS_MAX;
use crate::connect::cm_events::CmEvents;

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Phase {
    #[default]
    None,
    Connecting,
    Accepting,
    Up,
    Over,
}

/// How a lane of a connection that is up is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Health {
    #[default]
    Up,
    /// It has died; this side is about to close its own end.
    Dying,
    /// This side has closed it, and waits until everything on it has come back.
    Draining,
    /// This side has written so to the peer, and waits for the same from there.
    Told,
    /// Both ends have closed it, and have settled what that means.
    Down,
}

/// A lane of a connection.
#[derive(Default)]
pub(crate) struct LaneLink {
    pub(crate) health: Health,
    /// Which time it is that it is connected, and which time it has been tried.
    pub(crate) generation: u32,
    pub(crate) tried: u32,
    /// When its death is to be settled, or the next attempt begins.
    pub(crate) due: Option<Time>,
    /// When this side closed it.
    pub(crate) closed: Option<Time>,
    /// The queue pair that is to take its place.
    pub(crate) joining: Option<(u32, Arc<Qp>)>,
    /// Where it is joined, at the accepting side.
    pub(crate) door: Option<SocketAddr>,
}

/// The connection of a queue pair.
#[derive(Default)]
pub(crate) struct Connection {
    pub(crate) phase: Phase,
    /// Where its events go.
    pub(crate) cm: Option<Arc<CmEvents>>,
    /// Lanes that have been asked for or accepted, of which therefore news come; those that have come up; and those that
    /// have gone before all were up. By bits.
    pub(crate) begun: u8,
    pub(crate) up: u8,
    pub(crate) gone: u8,
    pub(crate) param: ConnParam,
    pub(crate) token: u64,
    /// Whether this side connected.
    pub(crate) is_active: bool,
    /// What the accepting side said to the program.
    pub(crate) answer: Vec<u8>,
    /// Where the ends of the first lane are: the addresses that the programs know. On the accepting side known from the request
    /// on, as it may be told of the whole before it hears of that lane.
    pub(crate) info: Option<ConnInfo>,
    pub(crate) deadline: Option<Time>,
    pub(crate) lanes: [LaneLink; RAILS_MAX],
}

impl Connection {
    /// Whether all of its so many lanes have been asked for or accepted.
    pub(crate) fn has_begun(&self, lanes: usize) -> bool {
        self.begun.count_ones() as usize == lanes
    }

    /// Whether a lane lives.
    pub(crate) fn is_up(&self, lane: usize) -> bool {
        self.lanes[lane].health == Health::Up
    }
}
