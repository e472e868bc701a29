//! [`OwnMapping`]: an I/O mapping of this end.

use verbs::Mr;

/// Memory that this end has mapped.
pub(crate) struct OwnMapping {
    pub(crate) mr: Mr,
    pub(crate) offset: u64,
    /// The entry at the peer; `None` for memory that only this end uses.
    pub(crate) index: Option<u16>,
    pub(crate) is_announced: bool,
}
