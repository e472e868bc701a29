//! Protection domains and regions of the API.

use std::sync::Arc;

use verbs::provider::{MrOps, PdOps, QpOps, QpParts, SrqOps};
use verbs::{Access, AtomicCap, Buf, Error, MemoryKind, Result, SrqInit};

use crate::qp::{QpHandle, access_flags};
use crate::queues::srq::SrqHandle;
use crate::raw::memory::{Domain, Region};
use crate::shared::Shared;

/// A protection domain.
pub(crate) struct PdHandle {
    pub(crate) shared: Arc<Shared>,
    pub(crate) domain: Arc<Domain>,
}

impl PdOps for PdHandle {
    fn reg_mr(&self, buf: &Buf, access: Access) -> Result<Box<dyn MrOps>> {
        self.shared.check()?;
        if buf.kind() == MemoryKind::Nic {
            return Err(Error::Foreign { what: "the NIC memory" });
        }
        if access.contains(Access::REMOTE_ATOMIC) && self.shared.attr.atomic_cap == AtomicCap::None {
            let what = "regions for atomics";
            return Err(Error::Unsupported { device: self.shared.name().to_owned(), what });
        }
        let (addr, len) = (buf.addr(), buf.len() as u64);
        let region =
            Region::new(&self.domain, buf, access_flags(access)).map_err(|why| match why.raw_os_error() {
                Some(libc::EFAULT) => Error::Memory { addr, len, why: why.to_string() },
                _ => self.shared.refused(format!("to register {len} bytes"), why),
            })?;
        Ok(Box::new(MrHandle { region, addr, shared: self.shared.clone() }))
    }

    fn create_qp(&self, init: &QpParts) -> Result<Arc<dyn QpOps>> {
        self.shared.check()?;
        Ok(Arc::new(QpHandle::new(&self.shared, &self.domain, init)?))
    }

    fn create_srq(&self, init: SrqInit) -> Result<Arc<dyn SrqOps>> {
        self.shared.check()?;
        Ok(Arc::new(SrqHandle::new(&self.shared, &self.domain, init)?))
    }
}

/// A memory region of the API, at the address of its memory.
struct MrHandle {
    region: Region,
    addr: u64,
    shared: Arc<Shared>,
}

impl MrOps for MrHandle {
    fn lkey(&self) -> u32 {
        self.region.lkey
    }

    fn rkey(&self) -> u32 {
        self.region.rkey
    }

    fn addr(&self) -> u64 {
        self.addr
    }

    fn dereg(mut self: Box<Self>) -> Result<()> {
        self.shared.check()?;
        self.region.dereg().map_err(|why| match why.raw_os_error() {
            Some(libc::EBUSY) => Error::Busy { what: "the memory region", why: why.to_string() },
            _ => Error::system("the card refuses to deregister a region", why),
        })
    }
}
