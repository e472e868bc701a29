//! Creates the [`ShmColl`] of a communicator: rank 0 allocates memory of its NIC, and the others map it.

use verbs::{Buf, Mr, RemoteAddr};

use crate::coll::shm::slots::ShmSlots;
use crate::coll::shm::state::{MEMBERS_MAX, ShmColl};
use crate::comm::communicator::Comm;
use crate::error::Result;
use crate::peers::nic::Nic;

/// Bytes in which rank 0 announces its memory: address and key. All zero if it has none.
const ANNOUNCEMENT_LEN: usize = 12;

/// Whether the members can share memory: few members on one host, each reachable through its first port, with a NIC that maps
/// peers' memory. All members reach the same result.
pub(super) fn is_possible(comm: &Comm) -> Result<bool> {
    if comm.is_inter() || !(2..=MEMBERS_MAX as i32).contains(&comm.size()) {
        return Ok(false);
    }
    comm.core().with(|engine| {
        let me = comm.core().bootstrap().rank();
        if !engine.transport.nics().first().is_some_and(Nic::maps_peers) {
            return Ok(false);
        }
        let mut others = comm.group().members().iter().filter(|process| **process != me);
        others.try_fold(true, |all, process| Ok(all && engine.transport.is_near(*process)?))
    })
}

/// Creates the state. Returns `None` if a member cannot map the memory. Collective.
pub(super) fn create(comm: &Comm) -> Result<Option<ShmColl>> {
    let (me, members) = (comm.rank() as usize, comm.size() as usize);
    connect(comm)?;
    let own = if me == 0 { new_memory(comm, members) } else { None };
    let mut announced = [0; ANNOUNCEMENT_LEN];
    if let Some(region) = &own {
        let RemoteAddr { addr, rkey } = region.remote(0);
        announced[..8].copy_from_slice(&addr.to_le_bytes());
        announced[8..].copy_from_slice(&rkey.to_le_bytes());
    }
    let announced = comm.oob()?.broadcast(comm.rank(), &announced)?;
    let memory = match &own {
        Some(region) => Some(region.buf().clone()),
        None => map(comm, &announced, members),
    };
    let slots = memory.and_then(|memory| ShmSlots::new(memory, members).ok());
    let all = comm.oob()?.allgather(comm.rank(), &[u8::from(slots.is_some())])?;
    match slots.filter(|_| !all.contains(&0)) {
        Some(slots) => {
            let processes = comm.group().members().to_vec();
            ShmColl::new(comm.core(), (me, processes), slots, own).map(Some)
        }
        None => Ok(None),
    }
}

/// Connects each member to all others, so that it can wake them and detects their loss.
fn connect(comm: &Comm) -> Result<()> {
    let me = comm.core().bootstrap().rank();
    let others = || comm.group().members().iter().filter(|process| **process != me);
    comm.core().with(|engine| others().try_for_each(|process| engine.transport.connect(*process)))?;
    comm.core().wait("a collective operation", |engine| {
        if let Some(error) = others().find_map(|process| engine.transport.lost(*process)) {
            return Some(Err(error.clone()));
        }
        others().all(|process| engine.transport.is_open(*process)).then_some(Ok(()))
    })?
}

fn new_memory(comm: &Comm, members: usize) -> Option<Mr> {
    let region = comm.core().with(|engine| engine.transport.nics()[0].mapped(ShmSlots::len(members)))?;
    ShmSlots::new(region.buf().clone(), members).ok()?.clear();
    Some(region)
}

fn map(comm: &Comm, announced: &[u8], members: usize) -> Option<Buf> {
    let (addr, rkey) = announced.split_first_chunk()?;
    let (addr, rkey) = (u64::from_le_bytes(*addr), u32::from_le_bytes(*rkey.first_chunk()?));
    if announced.iter().all(|byte| *byte == 0) {
        return None;
    }
    let (at, first) = (RemoteAddr { addr, rkey }, comm.group().process(0)?);
    comm.core().with(|engine| engine.transport.map(first, at, ShmSlots::len(members)))
}
