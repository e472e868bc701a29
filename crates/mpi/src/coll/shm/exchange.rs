//! [`Exchange`]: a member's state for collective operations on [`Desks`]; [`CommExchange`]: a communicator's state for its
//! exchange.

use collectives::{Case, Kind};
use datatypes::{Basic, Datatype};
use transport::Registration;
use verbs::Mr;

use crate::coll::shm::desks::{Desks, Retired, SHOWN_MAX};
use crate::core::Core;
use crate::error::Result;
use crate::memory::Buffer;

/// Maximum number of members: each polls all others.
pub(super) const MEMBERS_MAX: usize = 16;

/// One member's part of a communicator's exchange.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) core: Core,
    /// Present until the exchange is dropped.
    desks: Option<Desks>,
    /// The memory, at rank 0.
    region: Option<Mr>,
    pub(super) me: usize,
    /// Process numbers of the members.
    pub(super) processes: Vec<u32>,
    /// Operations started.
    pub(super) number: u64,
    /// Whether, in the current operation, this member has shown bytes, has woken the others, and has met a member that lends.
    pub(super) has_shown: bool,
    pub(super) has_rung: bool,
    pub(super) meets_lender: bool,
    /// Memory that this member lends in the current operation, with its registration.
    pub(super) lent: Vec<(Buffer, Registration)>,
    /// The last operation that each member is known to have passed.
    pub(super) passed: Vec<u64>,
    /// Scratch memory for another member's operand, and for a copy of this member's own.
    rooms: [Buffer; 2],
}

impl Exchange {
    /// An exchange among `processes`; this process is at index `me`. `region` is the memory of the desks, at rank 0.
    ///
    /// # Errors
    /// There is no memory for an operand.
    pub(super) fn new(
        core: &Core,
        (me, processes): (usize, Vec<u32>),
        desks: Desks,
        region: Option<Mr>,
    ) -> Result<Self> {
        Ok(Self {
            core: core.clone(),
            desks: Some(desks),
            region,
            me,
            passed: vec![0; processes.len()],
            processes,
            number: 0,
            has_shown: false,
            has_rung: false,
            meets_lender: false,
            lent: Vec::new(),
            rooms: [Buffer::own(&[0; SHOWN_MAX])?, Buffer::nothing()],
        })
    }

    pub(super) fn desks(&self) -> &Desks {
        self.desks.as_ref().expect("there until it is dropped")
    }

    /// Grows both scratch buffers to at least this size in bytes.
    pub(super) fn make_room(&mut self, bytes: i64) -> Result<()> {
        for room in self.rooms.iter_mut().filter(|room| room.count() < bytes) {
            *room = Buffer::own_elements(Basic::Byte.into(), bytes)?;
        }
        Ok(())
    }

    /// Scratch memory for elements of an operand: one of two buffers.
    pub(super) fn room(&self, which: usize, datatype: &Datatype, count: i64) -> Result<Buffer> {
        match self.rooms[which].seen_as(count, datatype) {
            Some(room) => Ok(room),
            None => Buffer::own_elements(datatype.clone(), count),
        }
    }

    /// The other members, starting with the next rank: no two members start with the same one.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, count) = (self.me, self.processes.len());
        (1..count).map(move |distance| (me + distance) % count)
    }
}

impl Drop for Exchange {
    /// The memory stays until all members have finished with it.
    fn drop(&mut self) {
        let Some(desks) = self.desks.take() else { return };
        desks.leave(self.me);
        if let Some(region) = self.region.take() {
            self.core.keep_until_unused(Retired { desks, _region: region });
        }
    }
}

/// A communicator's exchange, made after enough calls that could use it.
#[derive(Debug, Default)]
pub(crate) struct CommExchange {
    pub(super) state: State,
    /// The last call of each kind, and whether it uses the exchange.
    pub(super) last: [Option<(Case, bool)>; Kind::ALL.len()],
}

/// Whether there is an exchange.
#[derive(Debug)]
pub(super) enum State {
    /// Not made yet, after this number of calls that could use it.
    Counting(u32),
    Impossible,
    Made(Box<Exchange>),
}

impl Default for State {
    fn default() -> Self {
        Self::Counting(0)
    }
}
