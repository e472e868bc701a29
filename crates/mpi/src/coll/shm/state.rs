//! [`ShmColl`]: a member's state for collective operations on [`ShmSlots`]; [`CommShmColl`]: whether a communicator has one.

use collectives::{Case, CollKind};
use datatypes::{Basic, Datatype};
use transport::Registration;
use verbs::Mr;

use crate::coll::shm::ring::{OwnRing, PeerRing};
use crate::coll::shm::slots::{BCOPY_MAX, RetiredSlots, ShmSlots};
use crate::core::Core;
use crate::error::Result;
use crate::memory::Buffer;

/// Maximum number of members: each polls all others.
pub(super) const MEMBERS_MAX: usize = 16;

/// One member's state for the shared-memory collectives of a communicator.
#[derive(Debug)]
pub(super) struct ShmColl {
    pub(super) core: Core,
    /// Present until this is dropped.
    slots: Option<ShmSlots>,
    /// The memory, at rank 0.
    region: Option<Mr>,
    pub(super) me: usize,
    /// Process numbers of the members.
    pub(super) processes: Vec<u32>,
    /// Operations started.
    pub(super) number: u64,
    /// Whether, in the current operation, this member has stored what others may wait for, has woken them since, and has read data
    /// whose owner may wait until it passes the operation.
    pub(super) has_published: bool,
    pub(super) has_notified: bool,
    pub(super) is_awaited: bool,
    /// Zero-copy data of this member in the current operation, with their registration.
    pub(super) zcopy_data: Vec<(Buffer, Registration)>,
    /// The last operation that each member is known to have passed.
    pub(super) passed: Vec<u64>,
    /// The memory in which this member publishes long data, and those of the others that it has met.
    pub(super) ring: OwnRing,
    pub(super) peer_rings: Vec<Option<PeerRing>>,
    /// Scratch memory for another member's operand, for a copy of this member's own, and for a part of the result.
    scratch: [Buffer; 3],
}

impl ShmColl {
    /// The state among `processes`; this process is at index `me`. `region` is the memory of the slots, at rank 0.
    ///
    /// # Errors
    /// There is no memory for an operand.
    pub(super) fn new(
        core: &Core,
        (me, processes): (usize, Vec<u32>),
        slots: ShmSlots,
        region: Option<Mr>,
    ) -> Result<Self> {
        Ok(Self {
            core: core.clone(),
            slots: Some(slots),
            region,
            me,
            passed: vec![0; processes.len()],
            ring: OwnRing::default(),
            peer_rings: processes.iter().map(|_| None).collect(),
            processes,
            number: 0,
            has_published: false,
            has_notified: false,
            is_awaited: false,
            zcopy_data: Vec::new(),
            scratch: [Buffer::from_bytes(&[0; BCOPY_MAX])?, Buffer::empty(), Buffer::empty()],
        })
    }

    pub(super) fn slots(&self) -> &ShmSlots {
        self.slots.as_ref().expect("the slots are present until the state is dropped")
    }

    /// Grows the scratch buffers to at least this size in bytes.
    pub(super) fn grow_scratch(&mut self, bytes: i64) -> Result<()> {
        for buffer in self.scratch.iter_mut().filter(|buffer| buffer.count() < bytes) {
            *buffer = Buffer::zeroed(Basic::Byte.into(), bytes)?;
        }
        Ok(())
    }

    /// Scratch memory for elements of an operand: one of three buffers.
    pub(super) fn scratch(&self, which: usize, datatype: &Datatype, count: i64) -> Result<Buffer> {
        match self.scratch[which].as_elements(count, datatype) {
            Some(buffer) => Ok(buffer),
            None => Buffer::zeroed(datatype.clone(), count),
        }
    }

    /// The other members, starting with the next rank: no two members start with the same one.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, count) = (self.me, self.processes.len());
        (1..count).map(move |distance| (me + distance) % count)
    }
}

impl Drop for ShmColl {
    /// The memory stays until all members have finished with it.
    fn drop(&mut self) {
        let Some(slots) = self.slots.take() else { return };
        slots.leave(self.me);
        let retired =
            RetiredSlots { slots, me: self.me, region: self.region.take(), ring: self.ring.take_memory() };
        if retired.is_memory_owner() {
            self.core.keep_until_unused(retired);
        }
    }
}

/// A communicator's shared-memory collectives, set up after enough calls that could use them.
#[derive(Debug, Default)]
pub(crate) struct CommShmColl {
    pub(super) state: ShmSetup,
    /// The last call of each kind, and whether it uses shared memory.
    pub(super) last: [Option<(Case, bool)>; CollKind::ALL.len()],
}

/// Whether shared memory is set up.
#[derive(Debug)]
pub(super) enum ShmSetup {
    /// Not set up yet, after this number of calls that could use it.
    Counting(u32),
    Impossible,
    Ready(Box<ShmColl>),
}

impl Default for ShmSetup {
    fn default() -> Self {
        Self::Counting(0)
    }
}
