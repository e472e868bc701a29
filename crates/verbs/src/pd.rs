//! [`Pd`]: protection domains. Queue pairs can access only regions of their own domain.

use std::ops::Range;
use std::sync::Arc;

use crate::provider::PdOps;
use crate::{Access, Buf, Device, Error, ImplicitMr, Mr, Result};

/// A protection domain (`ibv_pd`); freed with its last object.
#[derive(Clone)]
pub struct Pd {
    ops: Arc<dyn PdOps>,
    device: Device,
}

impl std::fmt::Debug for Pd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pd({:?})", self.device)
    }
}

impl Pd {
    pub(crate) fn new(ops: Arc<dyn PdOps>, device: Device) -> Self {
        Self { ops, device }
    }

    /// The device of the domain.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Registers all of `buf`, host or NIC memory (`ibv_reg_mr`, `ibv_reg_dm_mr`).
    ///
    /// # Errors
    /// [`Error::Invalid`] for remote write or atomic access without local write access (IBA 10.6.3.1); [`Error::Limit`]
    /// if there are too many regions; [`Error::Foreign`] for another device's NIC memory; [`Error::Memory`] for memory
    /// of a program ([`Buf::from_program`]) that is not mapped for reading and, with local write access, for writing.
    pub fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Mr> {
        self.reg_mr_range(buf, 0..buf.len(), access)
    }

    /// Registers a part of `buf`.
    ///
    /// # Errors
    /// As [`Pd::reg_mr`]; [`Error::Limit`] if the range ends outside.
    pub fn reg_mr_range(&self, buf: &Buf, range: Range<usize>, access: Access) -> Result<Mr> {
        let part = buf.slice(range)?;
        self.device.check_region(&part, access)?;
        Ok(Mr::new(self.ops.reg_mr(&part, access)?, part, access))
    }

    /// Registers all of `buf`, which requests address as if its first byte were at `addr` (`ibv_reg_mr_iova2`): with 0, by
    /// offsets.
    ///
    /// # Errors
    /// As [`Pd::reg_mr`]; [`Error::Unsupported`] without [`RegionCap::any_address`](crate::RegionCap::any_address);
    /// [`Error::Invalid`] if the addresses of the region wrap.
    pub fn reg_mr_at(&self, buf: &Buf, addr: u64, access: Access) -> Result<Mr> {
        self.device.check_region(buf, access)?;
        if !self.device.attr().regions.any_address {
            return self.device.unsupported("regions at other addresses than those of their memory");
        }
        if addr.checked_add(buf.len() as u64).is_none() {
            let len = buf.len();
            return Err(Error::Invalid(format!(
                "{len} bytes at the address {addr:#x} wrap; pass a smaller address"
            )));
        }
        Ok(Mr::new(self.ops.reg_mr_at(buf, addr, access)?, buf.clone(), access))
    }

    /// Moves a region into this domain and, if given, to other memory and rights; its keys stay (`ibv_rereg_mr`). Requests
    /// that use it meanwhile fail, and later ones follow the changed region. With other memory its address becomes the one
    /// of that memory.
    ///
    /// # Errors
    /// As [`Pd::reg_mr`]; [`Error::Unsupported`] without [`RegionCap::rereg`](crate::RegionCap::rereg), and
    /// [`Error::Invalid`] while windows are bound to it: the region is as before. [`Error::Busy`] as [`Mr::dereg`]: the
    /// region is lost.
    pub fn rereg_mr(&self, mr: &mut Mr, buf: Option<&Buf>, access: Option<Access>) -> Result<()> {
        let access = access.unwrap_or(mr.access());
        self.device.check_region(buf.unwrap_or(mr.buf()), access)?;
        if !self.device.attr().regions.rereg {
            return self.device.unsupported("regions that change");
        }
        mr.change(&self.ops, buf, access)
    }

    /// Registers all memory of the process under one key, including future mappings: an implicit on-demand region
    /// (`ibv_reg_mr` of address 0 and `SIZE_MAX` with `IBV_ACCESS_ON_DEMAND`). For libraries that are passed arbitrary
    /// addresses: they need no registration for each buffer, and no registration cache.
    /// [`DeviceAttr::implicit_mr`](crate::DeviceAttr::implicit_mr) contains the rights that it may have; without remote
    /// rights, peers can access registered memory only.
    ///
    /// **Memory that its owner unmaps.** A request accesses the memory that is mapped at its address while it is
    /// executed. Peers' requests to an address without a mapping, or without the required protection, fail as
    /// [`RemAccessErr`](crate::WcStatus::RemAccessErr) and do nothing else; a new mapping at the address is accessed
    /// instead. So a program must notify its peers before it unmaps memory, as with a region that is deregistered, but
    /// need not notify the NIC. Local requests are different: their elements are used like any pointer.
    ///
    /// # Safety
    /// Memory that is named by an element of this region ([`ImplicitMr::sge`]) must stay mapped, for reading or
    /// (receives, reads, atomics) writing, until the request has completed. With remote rights, every peer that has the
    /// key may read or write any byte of this process: pass it only to peers that are trusted as much. No reference to
    /// bytes that requests or peers change may be alive while they do.
    ///
    /// # Errors
    /// [`Error::Unsupported`] beyond the device's rights; [`Error::Invalid`] and [`Error::Limit`] as [`Pd::reg_mr`].
    pub unsafe fn reg_all(&self, access: Access) -> Result<ImplicitMr> {
        access.check()?;
        match self.device.attr().implicit_mr {
            None => self.device.unsupported("regions of all memory"),
            Some(most) if !most.contains(access) => self.device.unsupported("peers' access to all memory"),
            Some(_) => Ok(ImplicitMr::new(self.ops.reg_all(access)?, access)),
        }
    }

    /// The implementation, for the NIC's crate.
    pub fn ops(&self) -> &Arc<dyn PdOps> {
        &self.ops
    }
}

impl Device {
    /// Checks the memory and the rights of a registration.
    pub(crate) fn check_region(&self, buf: &Buf, access: Access) -> Result<()> {
        access.check()?;
        Error::check_limit("the region's size in bytes", buf.len() as u64, self.attr().max_mr_size)?;
        if buf.is_on_demand() && !self.attr().regions.on_demand {
            return self.unsupported("regions of memory that is mapped on demand");
        }
        buf.check_presence(access)
    }

    /// Creates a protection domain (`ibv_alloc_pd`).
    ///
    /// # Errors
    /// [`Error::Limit`] if there are too many.
    pub fn alloc_pd(&self) -> Result<Pd> {
        Ok(Pd::new(self.ops().alloc_pd()?, self.clone()))
    }
}
