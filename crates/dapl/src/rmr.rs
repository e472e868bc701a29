//! [`Rmr`]: parts of registered memory that peers may access while they are bound.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use verbs::{Mr, Sge};

use crate::attr::MemPriv;
use crate::ep::Ep;
use crate::error::OrDevice;
use crate::mem::{Lmr, Pz};
use crate::sync::{UseGuard, lock};
use crate::{CompletionFlags, DtoStatus, Error, ErrorKind, Event, Label, Result, Subtype};

/// A remote memory region (`DAT_RMR`): a part of a local region that peers may access while it is bound.
///
/// Devices have no memory windows: a bind registers the part again, with a key of its own, and takes effect in the call. Its
/// completion is reported in the order of the endpoint's requests.
pub struct Rmr {
    pz: Pz,
    _use: (UseGuard, UseGuard),
    bound: Mutex<Option<Binding>>,
    label: AtomicU64,
}

struct Binding {
    mr: Mr,
    _lmr: UseGuard,
    segment: Sge,
    privileges: MemPriv,
}

/// The current binding of a remote region (`DAT_RMR_PARAM`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmrParam {
    /// The bound part; all zero while it is not bound.
    pub segment: Sge,
    /// The access rights of peers.
    pub privileges: MemPriv,
    /// Identifies it in peers' requests.
    pub rmr_context: u32,
}

impl std::fmt::Debug for Rmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rmr({:?})", self.query())
    }
}

impl Rmr {
    /// Creates an unbound region (`dat_rmr_create`).
    pub fn create(pz: &Pz) -> Self {
        let ia = &pz.0.ia;
        let label = AtomicU64::new(ia.next_label());
        Self { pz: pz.clone(), _use: (ia.uses.add(), pz.0.uses.add()), bound: Mutex::new(None), label }
    }

    /// Binds it to a part of `lmr`, or, with a length of 0, to nothing; ends any earlier bind. Returns its new context
    /// (`dat_rmr_bind`). An event reports completion, in the order of `ep`'s requests, unless it is suppressed.
    ///
    /// # Errors
    /// `InvalidState` unless `ep` is connected; `InvalidHandle` for an endpoint or region of another zone; argument 3 for a
    /// part outside of the region or another context; `PrivilegesViolation` for rights that the region does not have
    /// locally.
    pub fn bind(
        &self,
        ep: &Ep,
        lmr: &Lmr,
        segment: Sge,
        privileges: MemPriv,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<u32> {
        ep.check_bindable(&self.pz)?;
        if !Arc::ptr_eq(&lmr.pz().0, &self.pz.0) {
            return Err(Error::handle(Subtype::HandleLmr));
        }
        let bound = if segment.length == 0 { None } else { Some(Self::register(lmr, segment, privileges)?) };
        let context = bound.as_ref().map_or(0, |bound| bound.mr.rkey());
        // The old binding is dropped only when no step can fail any more, and without holding the lock.
        let old = std::mem::replace(&mut *lock(&self.bound), bound);
        drop(old);
        let event = Event::RmrBind { rmr: self.label(), cookie, status: DtoStatus::Success };
        ep.report_bind(event, flags);
        Ok(context)
    }

    fn register(lmr: &Lmr, segment: Sge, privileges: MemPriv) -> Result<Binding> {
        if segment.lkey != lmr.lmr_context() {
            return Err(Error::argument(Subtype::Arg3));
        }
        let outside = Error::argument(Subtype::Arg3);
        let from = segment.addr.checked_sub(lmr.address()).and_then(|from| usize::try_from(from).ok());
        let from = from.ok_or(outside.clone())?;
        let to =
            from.checked_add(segment.length as usize).filter(|to| *to <= lmr.buf().len()).ok_or(outside)?;
        if privileges.contains(MemPriv::REMOTE_WRITE)
            && !lmr.privileges().intersects(MemPriv::LOCAL_WRITE | MemPriv::REMOTE_WRITE)
        {
            return Err(Error::new(ErrorKind::PrivilegesViolation, Subtype::PrivilegesRdmaWrite));
        }
        let mr = lmr.pz().0.pd.reg_mr_range(lmr.buf(), from..to, privileges.access());
        let mr = mr.or_device(Subtype::ResourceMemoryRegion)?;
        Ok(Binding { mr, _lmr: lmr.uses.add(), segment, privileges })
    }

    /// Its current binding (`dat_rmr_query`).
    pub fn query(&self) -> RmrParam {
        match &*lock(&self.bound) {
            Some(bound) => RmrParam {
                segment: bound.segment,
                privileges: bound.privileges,
                rmr_context: bound.mr.rkey(),
            },
            None => RmrParam { segment: Sge::default(), privileges: MemPriv::empty(), rmr_context: 0 },
        }
    }

    /// The address of its first byte, as used in peers' requests; 0 while it is not bound.
    pub fn address(&self) -> u64 {
        lock(&self.bound).as_ref().map_or(0, |bound| bound.mr.addr())
    }

    /// The protection zone that it belongs to.
    pub fn pz(&self) -> &Pz {
        &self.pz
    }

    /// Its label in events.
    pub fn label(&self) -> Label {
        self.label.load(Ordering::Relaxed)
    }

    /// Changes its label.
    pub fn set_label(&self, label: Label) {
        self.label.store(label, Ordering::Relaxed);
    }
}
