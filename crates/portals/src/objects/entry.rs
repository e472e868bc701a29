//! [`Entry`]: what a user appends to a list, and which messages it accepts (Portals 4.3, sections 3.11 and 3.12).

use crate::objects::handles::CtHandle;
use crate::objects::options::EntryOptions;
use crate::objects::process::{Process, Source};
use crate::objects::region::Region;

/// A list entry, matching or not (`ptl_le_t`, `ptl_me_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The memory that it exposes.
    pub region: Region,
    /// Counts its messages.
    pub counter: Option<CtHandle>,
    /// The user that may access it; `None` for any.
    pub uid: Option<u32>,
    /// Permissions and other options.
    pub options: EntryOptions,
    /// The initiators that it accepts messages from.
    pub source: Source,
    /// The bits that a message must match.
    pub match_bits: u64,
    /// Bits that are not compared.
    pub ignore_bits: u64,
    /// With `MANAGE_LOCAL`: the entry is unlinked when fewer bytes than this are left; 0 is never.
    pub min_free: u64,
}

/// The fields of a message that select the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) initiator: Process,
    pub(crate) match_bits: u64,
    pub(crate) remote_offset: u64,
    pub(crate) length: u64,
}

impl Entry {
    /// An entry of a non-matching interface, which accepts every message.
    #[must_use]
    pub const fn taking_all(region: Region, options: EntryOptions) -> Self {
        Self {
            region,
            counter: None,
            uid: None,
            options,
            source: Source::ANY,
            match_bits: 0,
            ignore_bits: u64::MAX,
            min_free: 0,
        }
    }

    /// Whether it has an option.
    pub(crate) const fn is(&self, option: EntryOptions) -> bool {
        self.options.contains(option)
    }

    /// Whether it accepts a message, when `local` bytes of its memory have been used.
    pub(crate) fn takes(&self, envelope: &Envelope, local: u64) -> bool {
        (envelope.match_bits ^ self.match_bits) & !self.ignore_bits == 0
            && self.source.admits(envelope.initiator)
            && (!self.is(EntryOptions::NO_TRUNCATE) || self.fits(envelope, local))
    }

    fn fits(&self, envelope: &Envelope, local: u64) -> bool {
        let offset = if self.is(EntryOptions::MANAGE_LOCAL) { local } else { envelope.remote_offset };
        offset.checked_add(envelope.length).is_some_and(|end| end <= self.region.len())
    }
}
