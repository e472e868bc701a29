//! The connection of a queue pair: how far it has come, and how each of its lanes is.

use std::net::SocketAddr;
use std::sync::Arc;

use host::Time;

use super::RAILS_MAX;
use super::cm_events::CmEvents;
use crate::{ConnInfo, ConnParam, Qp};

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    None,
    Connecting,
    Accepting,
    Up,
    Over,
}

/// How a lane of a connection that is up is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Health {
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
pub(super) struct LaneLink {
    pub(super) health: Health,
    /// Which time it is that it is connected, and which time it has been tried.
    pub(super) generation: u32,
    pub(super) tried: u32,
    /// When its death is to be settled, or the next attempt begins.
    pub(super) due: Option<Time>,
    /// When this side closed it.
    pub(super) closed: Option<Time>,
    /// The queue pair that is to take its place.
    pub(super) joining: Option<(u32, Arc<Qp>)>,
    /// Where it is joined, at the accepting side.
    pub(super) door: Option<SocketAddr>,
}

/// The connection of a queue pair.
#[derive(Default)]
pub(super) struct Connection {
    pub(super) phase: Phase,
    /// Where its events go.
    pub(super) cm: Option<Arc<CmEvents>>,
    /// Lanes that have been asked for or accepted, of which therefore news come; those that have come up; and those that
    /// have gone before all were up. By bits.
    pub(super) begun: u8,
    pub(super) up: u8,
    pub(super) gone: u8,
    pub(super) param: ConnParam,
    pub(super) token: u64,
    /// Whether this side connected.
    pub(super) is_active: bool,
    /// What the accepting side said to the program.
    pub(super) answer: Vec<u8>,
    /// Where the ends of the first lane are: the addresses that the programs know. On the accepting side known from the request
    /// on, as it may be told of the whole before it hears of that lane.
    pub(super) info: Option<ConnInfo>,
    pub(super) deadline: Option<Time>,
    pub(super) lanes: [LaneLink; RAILS_MAX],
}

impl Connection {
    /// Whether all of its so many lanes have been asked for or accepted.
    pub(super) fn has_begun(&self, lanes: usize) -> bool {
        self.begun.count_ones() as usize == lanes
    }

    /// Whether a lane lives.
    pub(super) fn is_up(&self, lane: usize) -> bool {
        self.lanes[lane].health == Health::Up
    }
}
