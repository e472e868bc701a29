//! [`Mr`]: memory regions.

use crate::provider::MrOps;
use crate::{Access, Buf, Pd, RemoteAddr, Result, Sge};

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
    /// another one ([`Pd::reg_mr_at`]); 0 for NIC memory, whose regions are zero-based (`ibv_reg_dm_mr(3)`).
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

    /// Changes the region, whose keys stay (`ibv_rereg_mr`). Requests that use it meanwhile fail, and those that use it
    /// later follow the changed region. With other memory its address becomes the one of that memory.
    ///
    /// # Errors
    /// As [`Pd::reg_mr`], and [`crate::Error::Unsupported`] without [`RegionCap::rereg`](crate::RegionCap::rereg): the
    /// region is as before. [`crate::Error::Busy`] as [`Mr::dereg`]: the region is lost.
    pub fn rereg(&mut self, change: &MrChange<'_>) -> Result<()> {
        let (buf, access) = (change.buf.unwrap_or(&self.buf), change.access.unwrap_or(self.access));
        let device = change.pd.device();
        device.check_region(buf, access)?;
        if !device.attr().regions.rereg {
            return device.unsupported("regions that change");
        }
        self.ops.rereg(change.pd.ops(), change.buf, access)?;
        (self.buf, self.access, self.addr) = (buf.clone(), access, self.ops.addr());
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

/// What [`Mr::rereg`] changes.
#[derive(Clone, Copy, Debug)]
pub struct MrChange<'a> {
    /// Its domain from now on, of the same device.
    pub pd: &'a Pd,
    /// Other memory.
    pub buf: Option<&'a Buf>,
    /// Other rights.
    pub access: Option<Access>,
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
