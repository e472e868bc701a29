//! [`Entry`]: what a user gives to a list, and which messages it takes.

use crate::objects::handles::CtHandle;
use crate::objects::options::EntryOptions;
use crate::objects::process::{Process, Source};
use crate::objects::region::Region;

/// A list entry, matching or not (`ptl_le_t`, `ptl_me_t`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The memory that it opens.
    pub region: Region,
    /// What counts its messages.
    pub counter: Option<CtHandle>,
    /// For which user it is; for all with `None`.
    pub uid: Option<u32>,
    /// What it may and may not.
    pub options: EntryOptions,
    /// From whom it takes messages.
    pub source: Source,
    /// The bits that a message has to have.
    pub match_bits: u64,
    /// But for these.
    pub ignore_bits: u64,
    /// With `MANAGE_LOCAL`: it leaves its list when fewer bytes than that are left; 0 is never.
    pub min_free: u64,
}

/// What of a message decides which entry takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) initiator: Process,
    pub(crate) match_bits: u64,
    pub(crate) remote_offset: u64,
    pub(crate) length: u64,
}

impl Entry {
    /// An entry of an interface without matching, which takes every message.
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

    /// Whether it takes a message, when `local` bytes of its memory have been taken.
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
