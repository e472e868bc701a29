//! Atomics of the engine: on mapped memory by the processor, on another process's private memory one at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Access, RemoteAddr, WcStatus};

use super::engine::{Stop, mapped};
use super::layout::Header;
use super::mr::{self, Place};
use super::peer::{Link, Reach};
use super::place::{self, Pieces, Way};
use super::qp::{QpInner, SendSide};

impl QpInner {
    /// Carries out an atomic: 8 bytes fetched.
    pub(super) fn atomic(
        &self,
        side: &mut SendSide,
        link: &Link,
        local: &Pieces,
        remote: RemoteAddr,
        op: Atomic,
    ) -> Result<u32, Stop> {
        if local.total() != 8 {
            return Err(Stop::Fail(WcStatus::LocLenErr));
        }
        if !remote.addr.is_multiple_of(8) {
            return Err(Stop::Fail(WcStatus::RemInvReqErr));
        }
        let refused = || Stop::Fail(WcStatus::RemAccessErr);
        let place = mr::check(&link.peer.map, remote.rkey, link.pd, Access::REMOTE_ATOMIC, remote.addr, 8)
            .ok_or_else(refused)?;
        let at = match (mapped(link, place, 8), place, link.peer.reach) {
            (Some(at), ..) => at.cast::<u64>(),
            (None, Place::Private(at), Reach::Kernel { pid }) => {
                let old = self.atomic_across(link, pid, at, op)?;
                return Ok(store_old(local, old));
            }
            (None, Place::Private(at), Reach::Service) => {
                return match self.serve_atomic(side, link, at, remote.rkey, op) {
                    Some(old) => Ok(store_old(local, old?)),
                    None => Err(Stop::Wait),
                };
            }
            _ => return Err(refused()),
        };
        if !at.is_aligned() {
            return Err(Stop::Fail(WcStatus::RemInvReqErr));
        }
        // SAFETY: checked, aligned, mapped until we have left. Test: `atomics` of the conformance suite.
        let word = unsafe { AtomicU64::from_ptr(at) };
        Ok(store_old(local, op.apply(word)))
    }

    /// An atomic on another process's private memory: atomic among the users of the peer device, which pass
    /// one by one. A holder that dies is cleared by the owner's NIC thread.
    fn atomic_across(&self, link: &Link, pid: i32, at: u64, op: Atomic) -> Result<u64, Stop> {
        let holder = &link.peer.map.get::<Header>(0).ok_or(Stop::Wait)?.atomic_holder.0;
        let me = link.index as u32 + 1;
        let free = || holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if !(0..1000).any(|_| {
            free() || {
                std::hint::spin_loop();
                false
            }
        }) {
            return Err(Stop::Wait);
        }
        let mut word = 0_u64;
        let (mut local, mut remote) = (Pieces::new(), Pieces::new());
        local.push((&raw mut word).cast(), 8);
        remote.push(at as *mut u8, 8);
        let result = place::across(pid, &local, &remote, Way::In).and_then(|()| {
            let cell = AtomicU64::new(word);
            let old = op.apply(&cell);
            let mut new = cell.into_inner();
            let mut local = Pieces::new();
            local.push((&raw mut new).cast(), 8);
            place::across(pid, &local, &remote, Way::Out).map(|()| old)
        });
        holder.store(0, Ordering::Release);
        Ok(result?)
    }
}

/// Puts an atomic's result into the local memory: 8 bytes fetched.
fn store_old(local: &Pieces, old: u64) -> u32 {
    // SAFETY: the local pieces hold 8 bytes in all (checked) and are mapped.
    unsafe { place::scatter((&raw const old).cast(), local) };
    8
}

/// An atomic operation.
#[derive(Clone, Copy)]
pub(super) enum Atomic {
    /// Compare, swap.
    CompareSwap(u64, u64),
    /// Add.
    FetchAdd(u64),
}

impl Atomic {
    /// Carries it out; the old value.
    pub(super) fn apply(self, word: &AtomicU64) -> u64 {
        match self {
            Self::CompareSwap(compare, swap) => word
                .compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|found| found),
            Self::FetchAdd(add) => word.fetch_add(add, Ordering::SeqCst),
        }
    }
}
