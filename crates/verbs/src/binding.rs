//! [`MwBind`]: what memory windows are bound to.

use crate::access::Access;

/// Which queue pairs may use a window (IBA 10.6.7; `ibv_mw_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MwKind {
    /// Those of its domain. It may be bound again while it is bound.
    Type1,
    /// The one that bound it (type 2B). It must be invalidated before it is bound again, and its peer may invalidate it by
    /// [`crate::SendOp::SendInv`].
    Type2,
}

/// What a window is bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MwBind {
    /// The window's key from now on: as [`crate::Mw::rkey`] except for the lower eight bits.
    pub rkey: u32,
    /// The local key of the region, which has [`Access::BIND`] and, for writes and atomics, [`Access::LOCAL_WRITE`].
    pub lkey: u32,
    /// The first byte, as requests address the region.
    pub addr: u64,
    /// The number of bytes; 0 unbinds a window of type 1.
    pub len: u64,
    /// The rights of peers; others have no effect.
    pub access: Access,
}
