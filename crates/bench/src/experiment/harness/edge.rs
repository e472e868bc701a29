//! [`Edge`]: a pair of ranks, and the messages between them, which the client relays, as each other rank knows only
//! the client.
//!
//! Every rank of a cell calls these in the same order. Ranks at neither end return immediately, except for the
//! client, which relays the messages.

use serde::Serialize;
use serde::de::DeserializeOwned;
use verbs::{Mr, RemoteAddr};

use crate::experiment::{Fault, Session};

/// A connection to be: `from` connects to `to`, over this port at both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Edge {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) port: usize,
}

impl Edge {
    /// The client connects to the server.
    pub(crate) const PAIR: Self = Self { from: 0, to: 1, port: 0 };

    /// From one rank to another, over the first port.
    pub(crate) const fn between(from: usize, to: usize) -> Self {
        Self { from, to, port: 0 }
    }
}

/// Sends `what` from rank `from` to rank `to`, where it is returned.
pub(crate) fn carry<T: Serialize + DeserializeOwned>(
    session: &mut Session<'_>,
    (from, to): (usize, usize),
    what: Option<&T>,
) -> Result<Option<T>, Fault> {
    let me = session.rank as usize;
    if let (true, Some(what)) = (me == from, what) {
        session.send_info_to(to, what)?;
    } else if me == to {
        return Ok(Some(session.receive_info_from(from)?));
    } else if session.is_client() {
        let what: T = session.receive_info_from(from)?;
        session.send_info_to(to, &what)?;
    }
    Ok(None)
}

/// Sends the address of a region from one rank to another.
pub(crate) fn carry_place(
    session: &mut Session<'_>,
    ends: (usize, usize),
    mine: Option<&Mr>,
) -> Result<Option<RemoteAddr>, Fault> {
    let mine = mine.map(|mr| mr.remote(0)).map(|RemoteAddr { addr, rkey }| (addr, rkey));
    let theirs = carry(session, ends, mine.as_ref())?;
    Ok(theirs.map(|(addr, rkey)| RemoteAddr { addr, rkey }))
}

/// A barrier of all ranks.
pub(crate) fn meet(session: &mut Session<'_>) -> Result<(), Fault> {
    let others = 1..=session.controls.len();
    if session.is_client() {
        others.clone().try_for_each(|rank| session.receive_info_from(rank))?;
        return others.into_iter().try_for_each(|rank| session.send_info_to(rank, &()));
    }
    session.send_info(&())?;
    session.receive_info()
}
