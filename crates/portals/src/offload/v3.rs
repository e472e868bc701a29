//! Posting a receive as in Portals 3.3: an entry (`PtlMEAttach`), its memory (`PtlMDAttach`), and its
//! activation, unless there are events that the process has not read (`PtlMDUpdate`). Each of the three calls
//! waits for its result; `PtlPost` does all in one.

use super::Offload;
use super::command::Command;
use crate::engine::ListId;
use crate::objects::entry::Entry;
use crate::objects::error::Result;
use crate::objects::handles::EntryHandle;
use crate::objects::region::Region;

/// An entry that accepts no messages yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draft(u64);

impl Offload {
    /// Creates an entry without memory (`PtlMEAttach`).
    ///
    /// # Errors
    /// As [`Offload::append`].
    pub fn me_attach(&mut self, place: ListId, entry: &Entry) -> Result<Draft> {
        let entry = Entry { region: Region::new(0, 0), ..Self::plain(entry)? };
        self.call_for_number(&Command::Draft { place, entry }).map(Draft)
    }

    /// Assigns memory to an entry (`PtlMDAttach`).
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no such entry.
    pub fn md_attach(&mut self, draft: Draft, region: &Region, user_ptr: u64) -> Result<()> {
        let command =
            Command::Attach { draft: draft.0, addr: region.address(0), len: region.len(), user_ptr };
        self.call_for_number(&command).map(drop)
    }

    /// Activates an entry (`PtlMDUpdate`); returns `None` and does nothing if there are events that the
    /// process has not read.
    ///
    /// # Errors
    /// [`crate::Error::ArgInvalid`] for no such entry or one without memory; as [`crate::Engine::append`].
    pub fn md_update(&mut self, draft: Draft) -> Result<Option<EntryHandle>> {
        let seen = self.taken as u32;
        let linked = self.outcome(&Command::Update { draft: draft.0, seen })?;
        Ok(linked.map(EntryHandle::from_number))
    }

    /// All three calls in one (`PtlPost`); `None` as [`Offload::md_update`].
    ///
    /// # Errors
    /// As [`Offload::append`].
    pub fn post(&mut self, place: ListId, entry: &Entry, user_ptr: u64) -> Result<Option<EntryHandle>> {
        let (entry, seen) = (Self::plain(entry)?, Some(self.taken as u32));
        let linked = self.outcome(&Command::Append { place, entry, user_ptr, seen })?;
        Ok(linked.map(EntryHandle::from_number))
    }
}
