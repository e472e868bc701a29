//! [`Access`]: access rights of a memory region.

use bitflags::bitflags;

use crate::error::{Error, Result};

bitflags! {
    /// Accesses to a region that are allowed in addition to local reads (`ibv_access_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Access: u8 {
        /// The local NIC may write: receives, results of reads and atomics.
        const LOCAL_WRITE = 1;
        /// Peers may write.
        const REMOTE_WRITE = 2;
        /// Peers may read.
        const REMOTE_READ = 4;
        /// Peers may execute atomics.
        const REMOTE_ATOMIC = 8;
        /// Memory windows may be bound to the region ([`crate::Mw`]).
        const BIND = 16;
    }
}

impl Access {
    /// All rights of requests combined.
    pub const ALL: Self =
        Self::LOCAL_WRITE.union(Self::REMOTE_WRITE).union(Self::REMOTE_READ).union(Self::REMOTE_ATOMIC);
    /// The rights of peers.
    pub const REMOTE: Self = Self::REMOTE_WRITE.union(Self::REMOTE_READ).union(Self::REMOTE_ATOMIC);

    /// IBA 10.6.3.1: a region that peers may write must be locally writable, too.
    pub(crate) fn check(self) -> Result<()> {
        let remote = Self::REMOTE_WRITE | Self::REMOTE_ATOMIC;
        if self.intersects(remote) && !self.contains(Self::LOCAL_WRITE) {
            return Err(Error::Invalid(
                "remote write or atomic access needs local write access as well; add LOCAL_WRITE".into(),
            ));
        }
        Ok(())
    }
}
