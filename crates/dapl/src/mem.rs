//! [`Pz`], [`Lmr`]: protection zones, and registered memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Buf, Mr, Pd, RemoteAddr, Sge};

use crate::attr::MemPriv;
use crate::error::OrDevice;
use crate::ia::IaInner;
use crate::sync::{UseCount, UseGuard};
use crate::{Error, ErrorKind, Ia, Label, Result, Subtype};

/// A protection zone (`DAT_PZ`); cheap to clone.
#[derive(Clone)]
pub struct Pz(pub(crate) Arc<PzInner>);

pub(crate) struct PzInner {
    pub(crate) ia: Arc<IaInner>,
    _use: UseGuard,
    pub(crate) pd: Pd,
    pub(crate) uses: UseCount,
    label: AtomicU64,
}

impl std::fmt::Debug for Pz {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pz({:?})", self.0.pd)
    }
}

impl Pz {
    /// Creates a protection zone (`dat_pz_create`).
    ///
    /// # Errors
    /// `InsufficientResources`.
    pub fn create(ia: &Ia) -> Result<Self> {
        let pd = ia.0.device.alloc_pd().or_device(Subtype::ResourceProtectionDomain)?;
        let label = AtomicU64::new(ia.0.next_label());
        let inner = PzInner { ia: ia.0.clone(), _use: ia.0.uses.add(), pd, uses: UseCount::default(), label };
        Ok(Self(Arc::new(inner)))
    }

    /// Checks that no object uses it, so that it may be freed (`dat_pz_free`).
    ///
    /// # Errors
    /// `InvalidState`.
    pub fn check_unused(&self) -> Result<()> {
        if self.0.uses.any() { Err(Error::state(Subtype::PzInUse)) } else { Ok(()) }
    }

    /// Its label in attributes.
    pub fn label(&self) -> Label {
        self.0.label.load(Ordering::Relaxed)
    }

    /// Changes its label.
    pub fn set_label(&self, label: Label) {
        self.0.label.store(label, Ordering::Relaxed);
    }
}

/// A local memory region (`DAT_LMR`). Dropping it deregisters the memory.
pub struct Lmr {
    pz: Pz,
    _use: (UseGuard, UseGuard),
    mr: Mr,
    privileges: MemPriv,
    pub(crate) uses: UseCount,
}

impl std::fmt::Debug for Lmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lmr({:?})", self.mr)
    }
}

impl Lmr {
    /// Registers all of `buf` (`dat_lmr_create`). Several adapters may register the same buffer, each with contexts of its
    /// own.
    ///
    /// # Errors
    /// `InsufficientResources`; `LengthError` for more than the device's limit; `InvalidParameter` for memory that is not
    /// mapped, or not with these privileges.
    pub fn create(pz: &Pz, buf: &Buf, privileges: MemPriv) -> Result<Self> {
        let ia = &pz.0.ia;
        if buf.len() as u64 > ia.device.attr().max_mr_size {
            return Err(Error::new(ErrorKind::LengthError, Subtype::None));
        }
        let mr = pz.0.pd.reg_mr(buf, privileges.access()).or_device(Subtype::ResourceMemoryRegion)?;
        Ok(Self {
            pz: pz.clone(),
            _use: (ia.uses.add(), pz.0.uses.add()),
            mr,
            privileges,
            uses: UseCount::default(),
        })
    }

    /// Identifies it in local requests (`DAT_LMR_CONTEXT`).
    pub fn lmr_context(&self) -> u32 {
        self.mr.lkey()
    }

    /// Identifies it in peers' requests (`DAT_RMR_CONTEXT`).
    pub fn rmr_context(&self) -> u32 {
        self.mr.rkey()
    }

    /// The address of its first byte, as used in requests.
    pub fn address(&self) -> u64 {
        self.mr.addr()
    }

    /// The registered memory.
    pub fn buf(&self) -> &Buf {
        self.mr.buf()
    }

    /// The protection zone that it belongs to.
    pub fn pz(&self) -> &Pz {
        &self.pz
    }

    /// Its access rights.
    pub fn privileges(&self) -> MemPriv {
        self.privileges
    }

    /// A segment of it for a local request (`DAT_LMR_TRIPLET`).
    pub fn segment(&self, offset: u64, length: u32) -> Sge {
        self.mr.sge(offset, length)
    }

    /// An address in it for a peer's request (`DAT_RMR_TRIPLET`).
    pub fn remote(&self, offset: u64) -> RemoteAddr {
        self.mr.remote(offset)
    }

    /// Checks that no remote region is bound to it, so that it may be freed (`dat_lmr_free`).
    ///
    /// # Errors
    /// `InvalidState`.
    pub fn check_unused(&self) -> Result<()> {
        if self.uses.any() { Err(Error::state(Subtype::LmrInUse)) } else { Ok(()) }
    }

    /// Deregisters it, and returns whether that succeeded.
    ///
    /// # Errors
    /// `InvalidState` when a peer is stopped in the middle of an access; see [`verbs::Mr::dereg`].
    pub fn free(self) -> Result<()> {
        self.mr.dereg().or_device(Subtype::LmrInUse)
    }
}
