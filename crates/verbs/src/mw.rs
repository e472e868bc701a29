//! [`Mw`]: memory windows, whose range and rights change by requests of a send queue.

use crate::provider::{MwOps, no_windows};
use crate::{MwKind, Pd, Result};

/// A memory window (`ibv_mw`): a key that gives peers access to a part of a region, with fewer rights. It gives access to
/// nothing until it is bound ([`crate::SendOp::BindMw`]). Dropping it ends the access.
pub struct Mw {
    ops: Box<dyn MwOps>,
    kind: MwKind,
}

impl std::fmt::Debug for Mw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mw({:?}, rkey {:#x})", self.kind, self.rkey())
    }
}

impl Mw {
    /// The key that it was created with. The upper 24 bits of its keys stay; each binding chooses the lower eight.
    pub fn rkey(&self) -> u32 {
        self.ops.rkey()
    }

    /// Which queue pairs may use it.
    pub fn kind(&self) -> MwKind {
        self.kind
    }
}

impl Pd {
    /// Creates a memory window that is not bound (`ibv_alloc_mw`).
    ///
    /// # Errors
    /// [`crate::Error::Unsupported`] without windows ([`crate::RegionCap::max_mw`]); [`crate::Error::Limit`] if there are too many.
    pub fn alloc_mw(&self, kind: MwKind) -> Result<Mw> {
        if self.device().attr().regions.max_mw == 0 {
            return Err(no_windows(self.device().name()));
        }
        Ok(Mw { ops: self.ops().alloc_mw(kind)?, kind })
    }
}
