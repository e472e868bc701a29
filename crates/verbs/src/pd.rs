//! [`Pd`]: protection domains. Queue pairs reach only regions of their own domain.

use std::ops::Range;
use std::sync::Arc;

use crate::provider::PdOps;
use crate::{Access, Buf, Device, Error, ImplicitMr, Mr, Qp, QpInit, Result, Srq, SrqInit};

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

    /// The device it belongs to.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Registers all of `buf`, host or NIC memory (`ibv_reg_mr`, `ibv_reg_dm_mr`).
    ///
    /// # Errors
    /// [`Error::Invalid`] for remote write or atomic access without local write access (IBA 10.6.3.1);
    /// [`Error::Limit`] when there are too many regions; [`Error::Foreign`] for another device's NIC memory; [`Error::Memory`] for
    /// memory of a program ([`Buf::of_program`]) that is not mapped for reading and, with local write access, for writing.
    pub fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Mr> {
        self.reg_mr_range(buf, 0..buf.len(), access)
    }

    /// Registers a part of `buf`.
    ///
    /// # Errors
    /// As [`Pd::reg_mr`]; [`Error::Limit`] when the range ends outside.
    pub fn reg_mr_range(&self, buf: &Buf, range: Range<usize>, access: Access) -> Result<Mr> {
        access.check()?;
        let part = buf.slice(range)?;
        Error::check_limit("the region's size in bytes", part.len() as u64, self.device.attr().max_mr_size)?;
        part.check_presence(access)?;
        Ok(Mr::new(self.ops.reg_mr(&part, access)?, part, access))
    }

    /// Registers all memory of the process under one key, whatever is mapped there now or later: an implicit on-demand region
    /// (`ibv_reg_mr` of address 0 and `SIZE_MAX` with `IBV_ACCESS_ON_DEMAND`). For libraries that are handed any address: no
    /// registration for each buffer, and no cache of registrations. [`DeviceAttr::implicit_mr`](crate::DeviceAttr::implicit_mr)
    /// says which rights it may have; where peers' are not among them, they reach registered memory only.
    ///
    /// **Memory that its owner unmaps.** A request reaches what is mapped at its address while it is carried out. Peers' requests
    /// to an address where nothing is mapped, or not for that, fail as
    /// [`RemAccessErr`](crate::WcStatus::RemAccessErr) and do nothing else; what is mapped there anew is
    /// reached instead. So whoever unmaps memory tells its peers before that, as with a region that is deregistered, but need
    /// tell no NIC. Own requests are another matter: their elements are used as any pointer is.
    ///
    /// # Safety
    /// Memory that is named by an element of this region ([`ImplicitMr::sge`]) must stay mapped, for reading or (receives, reads,
    /// atomics) writing, until the request has completed. With peers' rights, whoever has the key may read or write any byte of
    /// this process: only peers that are trusted as much may be given it. No reference to bytes that requests or peers change
    /// may be alive while they do.
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

    /// A shared receive queue (`ibv_create_srq`).
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::Invalid`] for a size of zero, [`Error::Unsupported`].
    pub fn create_srq(&self, init: SrqInit) -> Result<Srq> {
        let attr = self.device.attr();
        check_count("receives of the shared queue", init.max_wr, attr.max_srq_wr)?;
        check_count("pieces of a receive", init.max_sge, attr.max_sge)?;
        Ok(Srq::new(self.ops.create_srq(init)?, self.clone(), init))
    }

    /// A reliable connected queue pair in state `Init` (`rdma_create_qp`): receives may be posted.
    ///
    /// # Errors
    /// [`Error::Limit`] beyond the device's attributes, [`Error::Invalid`] for queues of no entries,
    /// [`Error::Foreign`] for completion queues of another device or a shared receive queue of another domain, [`Error::Unsupported`] for an MTU where
    /// connections have none of their own.
    pub fn create_qp(&self, init: &QpInit) -> Result<Qp> {
        let (attr, cap) = (self.device.attr(), &init.cap);
        check_count("send requests", cap.max_send_wr, attr.max_qp_wr)?;
        if init.srq.is_none() {
            check_count("receives", cap.max_recv_wr, attr.max_qp_wr)?;
        }
        check_count("pieces of a send request", cap.max_send_sge, attr.max_sge)?;
        check_count("pieces of a receive", cap.max_recv_sge, attr.max_sge)?;
        Error::check_limit("inline bytes", cap.max_inline.into(), attr.max_inline.into())?;
        init.mtu.map_or(Ok(()), |mtu| self.device.ops().check_mtu(mtu))?;
        for cq in [&init.send_cq, &init.recv_cq] {
            self.device.check_own(cq.device(), "the completion queue")?;
        }
        if init.srq.as_ref().is_some_and(|srq| !Arc::ptr_eq(&srq.pd().ops, &self.ops)) {
            return Err(Error::Foreign { what: "the shared receive queue" });
        }
        Ok(Qp::new(self.ops.create_qp(init)?, self.clone(), init.clone()))
    }

    /// The implementation, for its own crate.
    pub fn ops(&self) -> &Arc<dyn PdOps> {
        &self.ops
    }
}

fn check_count(what: &'static str, given: u32, limit: u32) -> Result<()> {
    if given == 0 {
        return Err(Error::Invalid(format!("the number of {what} must be at least 1")));
    }
    Error::check_limit(what, given.into(), limit.into())
}
