//! Data path: the peer's memory. Copies between local memory and memory that the peer's protection table
//! allows: mapped, by the kernel, or through the owner.

use std::sync::atomic::AtomicU64;

use verbs::{Access, RemoteAddr, WcStatus};

use crate::copy::atomic::{AtomicOp, process_vm_atomic, store_old};
use crate::copy::place::{self, CopyDirection, CopyError, SgList};
use crate::memory::atomic_lock::AtomicLock;
use crate::memory::table::Location;
use crate::memory::tlb::Tlb;
use crate::peer::device::CopyMethod;
use crate::peer::queue_pair::PeerQp;
use crate::send::service_client::ServiceClient;

/// Why a request cannot continue now.
pub(crate) enum StopReason {
    Wait,
    Fail(WcStatus),
}

impl From<CopyError> for StopReason {
    fn from(fault: CopyError) -> Self {
        Self::Fail(match fault {
            CopyError::Local => WcStatus::LocProtErr,
            CopyError::Access => WcStatus::RemAccessErr,
            CopyError::Gone => WcStatus::RetryExcErr,
        })
    }
}

/// State of one queue pair's accesses to its peer's memory, kept between requests.
#[derive(Default)]
pub(crate) struct Transfer {
    /// The remote region used last.
    pub(crate) remote_tlb: Tlb,
    /// The copy that the owner was asked to make.
    pub(crate) service: ServiceClient,
    /// Number of acquisitions of the peer's lock for atomics.
    atomic_locks: u32,
}

impl Transfer {
    /// RDMA: copies between local memory and one range of the peer.
    #[inline]
    pub(crate) fn rdma(
        &mut self,
        link: &PeerQp,
        local: &SgList,
        remote: RemoteAddr,
        direction: CopyDirection,
    ) -> Result<(), StopReason> {
        let len = local.total();
        if len == 0 {
            return Ok(());
        }
        let need = if direction == CopyDirection::Out { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
        if let Some(at) = self.remote_tlb.find(remote.rkey, need, remote.addr, len) {
            // SAFETY: as in `copy`.
            return Ok(unsafe { place::copy_mapped(local, at, direction) }?);
        }
        let place = link.peer.table.check_remote(remote.rkey, link.domain(), need, remote.addr, len);
        let place = place.ok_or(StopReason::Fail(WcStatus::RemAccessErr))?;
        if mapped(link, place, len).is_some() {
            self.remote_tlb.insert(&link.peer.table, remote.rkey);
        }
        self.copy(link, local, place, remote, direction)
    }

    /// Copies between local memory and a checked location of the peer, which is that of `remote`.
    fn copy(
        &mut self,
        link: &PeerQp,
        local: &SgList,
        place: Location,
        remote: RemoteAddr,
        direction: CopyDirection,
    ) -> Result<(), StopReason> {
        if let Some(at) = mapped(link, place, local.total()) {
            // SAFETY: both sides were checked against protection tables, whose entries remain until this side
            // has left ([`crate::peer::queue_pair::AccessGuard`]; the send lock for its own). Test: the
            // conformance suite; `violations` in it.
            return Ok(unsafe { place::copy_mapped(local, at, direction) }?);
        }
        match (place, link.peer.copy_method) {
            (Location::Private(at) | Location::Anywhere(at), CopyMethod::Kernel { pid })
            | (Location::Anywhere(at), CopyMethod::Direct { pid }) => {
                let mut target = SgList::new();
                target.push(at as *mut u8, local.total());
                Ok(place::process_vm_copy(pid, local, &target, direction)?)
            }
            (Location::Private(_) | Location::Anywhere(_), CopyMethod::Service) => {
                match self.service.copy(link, local, remote, direction) {
                    Some(result) => Ok(result?),
                    None => Err(StopReason::Wait),
                }
            }
            // A peer's table that names memory outside its segment.
            _ => Err(StopReason::Fail(WcStatus::RemAccessErr)),
        }
    }

    /// Copies a part of a message, which begins at `from`, to a checked location of a receive, which is that of `target`.
    pub(crate) fn deliver(
        &mut self,
        link: &PeerQp,
        part: &SgList,
        place: Location,
        target: RemoteAddr,
        from: u64,
    ) -> Result<(), StopReason> {
        if let (Some(_), CopyMethod::Service) = (place.private_address(), link.peer.copy_method) {
            return match self.service.deliver(link, part, target, from) {
                Some(Err(CopyError::Access)) => Err(StopReason::Fail(WcStatus::RemOpErr)),
                Some(result) => Ok(result?),
                None => Err(StopReason::Wait),
            };
        }
        self.copy(link, part, place, target, CopyDirection::Out).map_err(|stop| match stop {
            StopReason::Fail(WcStatus::RemAccessErr) => StopReason::Fail(WcStatus::RemOpErr),
            other => other,
        })
    }

    /// Carries out an atomic; returns the 8 bytes fetched.
    pub(crate) fn atomic(
        &mut self,
        link: &PeerQp,
        local: &SgList,
        remote: RemoteAddr,
        op: AtomicOp,
    ) -> Result<u32, StopReason> {
        if local.total() != 8 {
            return Err(StopReason::Fail(WcStatus::LocLenErr));
        }
        if !remote.addr.is_multiple_of(8) {
            return Err(StopReason::Fail(WcStatus::RemInvReqErr));
        }
        let refused = || StopReason::Fail(WcStatus::RemAccessErr);
        let need = Access::REMOTE_ATOMIC;
        let place = link.peer.table.check_remote(remote.rkey, link.domain(), need, remote.addr, 8);
        let place = place.ok_or_else(refused)?;
        let at = mapped(link, place, 8).map(<*mut u8>::cast::<u64>);
        if at.is_some_and(|at| !at.is_aligned()) {
            return Err(StopReason::Fail(WcStatus::RemInvReqErr));
        }
        let old = match (at, place, link.peer.copy_method) {
            // SAFETY: checked, aligned, mapped until we have left. Test: `atomics` of the conformance suite.
            (Some(at), Location::Nic(_), _) => op.apply(unsafe { AtomicU64::from_ptr(at) }),
            (Some(at), _, _) => {
                let _lock = self.lock_atomics(link)?;
                // SAFETY: as above, except that a program may have unmapped it.
                unsafe { op.apply_at(at) }?
            }
            (None, Location::Private(at) | Location::Anywhere(at), CopyMethod::Kernel { pid })
            | (None, Location::Anywhere(at), CopyMethod::Direct { pid }) => {
                let _lock = self.lock_atomics(link)?;
                process_vm_atomic(pid, at, op)?
            }
            (None, Location::Private(_) | Location::Anywhere(_), CopyMethod::Service) => {
                self.service.atomic(link, remote, op).ok_or(StopReason::Wait)??
            }
            _ => return Err(refused()),
        };
        Ok(store_old(local, old)?)
    }

    /// Takes the lock for atomics on the peer's private memory. If it stays taken for long, kicks the peer,
    /// which checks the holder.
    fn lock_atomics<'l>(&mut self, link: &'l PeerQp) -> Result<AtomicLock<'l>, StopReason> {
        self.atomic_locks = self.atomic_locks.wrapping_add(1);
        AtomicLock::try_lock(&link.peer.table.map, link.index, self.atomic_locks).ok_or_else(|| {
            link.kick();
            StopReason::Wait
        })
    }
}

/// A pointer to a checked location of the peer, if this process has it mapped.
#[inline]
fn mapped(link: &PeerQp, place: Location, len: u64) -> Option<*mut u8> {
    match (place, link.peer.copy_method) {
        (Location::Nic(offset), _) => link.peer.table.map.bytes(offset, len),
        // In this process, and so checked against the private record (`table`).
        (Location::Private(at), CopyMethod::Direct { .. }) => Some(at as *mut u8),
        _ => None,
    }
}
