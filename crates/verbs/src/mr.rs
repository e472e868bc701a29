//! [`Mr`]: memory regions.

use std::sync::Arc;

use crate::provider::{MrOps, PdOps};
use crate::{Access, Buf, RemoteAddr, Result, Sge};

/// A registered range of memory (`ibv_mr`). Dropping it deregisters: once that returns, no NIC accesses the memory
/// through it any more.
pub struct Mr {
    ops: Box<dyn MrOps>,
    buf: Buf,
    access: Access,
    /// Cached values of the NIC: requests on the data path use them.
    addr: u64,
    lkey: u32,
    rkey: u32,
}

impl std::fmt::Debug for Mr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Mr({:?}, lkey {:#x}, rkey {:#x}, {:?})", self.buf, self.lkey(), self.rkey(), self.access)
    }
}

impl Mr {
    pub(crate) fn new(ops: Box<dyn MrOps>, buf: Buf, access: Access) -> Self {
        let (addr, lkey, rkey) = (ops.addr(), ops.lkey(), ops.rkey());
        Self { ops, buf, access, addr, lkey, rkey }
    }

    /// The key for local work requests.
    #[inline]
    pub fn lkey(&self) -> u32 {
        self.lkey
    }

    /// The key for peers' work requests.
    #[inline]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// The address of its first byte for work requests: the virtual address for host memory, unless it was registered at
    /// another one ([`crate::Pd::reg_mr_at`]); 0 for NIC memory, whose regions are zero-based (`ibv_reg_dm_mr(3)`).
    #[inline]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// The registered memory.
    pub fn buf(&self) -> &Buf {
        &self.buf
    }

    /// The access rights of local and remote operations.
    pub fn access(&self) -> Access {
        self.access
    }

    /// An element for a local work request. Not checked here: the NIC checks it anyway.
    #[inline]
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { addr: self.addr().wrapping_add(offset), length, lkey: self.lkey() }
    }

    /// A remote address for a peer's work request.
    #[inline]
    pub fn remote(&self, offset: u64) -> RemoteAddr {
        RemoteAddr { addr: self.addr(), rkey: self.rkey() }.offset(offset)
    }

    /// Whether memory windows are bound to it. They give no access any more when it is deregistered.
    pub fn has_windows(&self) -> bool {
        self.ops.has_windows()
    }

    /// See [`crate::Pd::rereg_mr`]; what is new has been checked.
    pub(crate) fn change(&mut self, pd: &Arc<dyn PdOps>, buf: Option<&Buf>, access: Access) -> Result<()> {
        self.ops.rereg(pd, buf, access)?;
        (self.access, self.addr) = (access, self.ops.addr());
        buf.into_iter().for_each(|buf| self.buf = buf.clone());
        Ok(())
    }

    /// Deregisters and returns the result, which dropping cannot.
    ///
    /// # Errors
    /// [`crate::Error::Busy`] if a peer is stopped in the middle of an access: new accesses to the region fail, but the
    /// memory may not be reused yet. It stays mapped until the process ends.
    pub fn dereg(self) -> Result<()> {
        self.ops.dereg()
    }
}

/// All memory of the process under one key ([`crate::Pd::reg_all`]). Dropping it deregisters, as with an [`Mr`].
pub struct ImplicitMr {
    ops: Box<dyn MrOps>,
    access: Access,
}

impl std::fmt::Debug for ImplicitMr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ImplicitMr(lkey {:#x}, rkey {:#x}, {:?})", self.lkey(), self.rkey(), self.access)
    }
}

impl ImplicitMr {
    pub(crate) fn new(ops: Box<dyn MrOps>, access: Access) -> Self {
        Self { ops, access }
    }

    /// The key for local work requests.
    pub fn lkey(&self) -> u32 {
        self.ops.lkey()
    }

    /// The key for peers' work requests.
    pub fn rkey(&self) -> u32 {
        self.ops.rkey()
    }

    /// The access rights of local and remote operations.
    pub fn access(&self) -> Access {
        self.access
    }

    /// `length` bytes at `addr` of this process, for a local work request.
    pub fn sge(&self, addr: u64, length: u32) -> Sge {
        Sge { addr, length, lkey: self.lkey() }
    }

    /// The bytes at `addr` of this process, for a peer's work request.
    pub fn remote(&self, addr: u64) -> RemoteAddr {
        RemoteAddr { addr, rkey: self.rkey() }
    }

    /// Deregisters and returns the result, which dropping cannot.
    ///
    /// # Errors
    /// As [`Mr::dereg`].
    pub fn dereg(self) -> Result<()> {
        self.ops.dereg()
    }
}
