//! Posting a receive as Portals 3.3 has it: an entry (`PtlMEAttach`), memory for it (`PtlMDAttach`), and then that it takes messages,
//! unless one has come that the process does not know of (`PtlMDUpdate`). Three calls, of which each waits for its result; `PtlPost`
//! is all three in one.

use super::Offload;
use super::order::Order;
use crate::engine::ListId;
use crate::objects::entry::Entry;
use crate::objects::error::Result;
use crate::objects::handles::EntryHandle;
use crate::objects::region::Region;

/// An entry that takes no message yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draft(u64);

impl Offload {
    /// Makes an entry without memory (`PtlMEAttach`).
    ///
    /// # Errors
    /// As [`Offload::append`].
    pub fn me_attach(&mut self, place: ListId, entry: &Entry) -> Result<Draft> {
        let entry = Entry { region: Region::new(0, 0), ..Self::plain(entry)? };
        self.number(&Order::Draft { place, entry }).map(Draft)
    }

    /// Gives an entry memory (`PtlMDAttach`).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no such entry.
    pub fn md_attach(&mut self, draft: Draft, region: &Region, user_ptr: u64) -> Result<()> {
        let order = Order::Attach { draft: draft.0, addr: region.address(0), len: region.len(), user_ptr };
        self.number(&order).map(drop)
    }

    /// Has an entry take messages (`PtlMDUpdate`); `None` if there are events that the process has not taken: then nothing is done.
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no such entry or one without memory; as [`crate::Engine::append`].
    pub fn md_update(&mut self, draft: Draft) -> Result<Option<EntryHandle>> {
        let seen = self.taken as u32;
        let linked = self.outcome(&Order::Update { draft: draft.0, seen })?;
        Ok(linked.map(EntryHandle::from_number))
    }

    /// All three in one call (`PtlPost`); `None` as [`Offload::md_update`].
    ///
    /// # Errors
    /// As [`Offload::append`].
    pub fn post(&mut self, place: ListId, entry: &Entry, user_ptr: u64) -> Result<Option<EntryHandle>> {
        let (entry, seen) = (Self::plain(entry)?, Some(self.taken as u32));
        let linked = self.outcome(&Order::Append { place, entry, user_ptr, seen })?;
        Ok(linked.map(EntryHandle::from_number))
    }
}
