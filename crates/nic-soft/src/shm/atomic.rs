//! Atomics of the engine: on mapped memory by the processor, on another process's private memory one at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use verbs::{Access, RemoteAddr, WcStatus};

use super::engine::{Stop, mapped};
use super::peer::{Link, Reach};
use super::place::{self, Fault, Pieces, Way};
use super::qp::{QpInner, SendSide};
use super::table::Place;
use super::turn::Turn;

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
        let place = link.peer.table.check(remote.rkey, link.pd, Access::REMOTE_ATOMIC, remote.addr, 8);
        let place = place.ok_or_else(refused)?;
        let at = mapped(link, place, 8).map(<*mut u8>::cast::<u64>);
        if at.is_some_and(|at| !at.is_aligned()) {
            return Err(Stop::Fail(WcStatus::RemInvReqErr));
        }
        let old = match (at, place, link.peer.reach) {
            // SAFETY: checked, aligned, mapped until we have left. Test: `atomics` of the conformance suite.
            (Some(at), Place::Nic(_), _) => op.apply(unsafe { AtomicU64::from_ptr(at) }),
            (Some(at), _, _) => {
                let _turn = self.turn_at(side, link)?;
                // SAFETY: as above.
                op.apply(unsafe { AtomicU64::from_ptr(at) })
            }
            (None, Place::Private(at) | Place::Anywhere(at), Reach::Kernel { pid })
            | (None, Place::Anywhere(at), Reach::Direct { pid }) => {
                let _turn = self.turn_at(side, link)?;
                atomic_across(pid, at, op)?
            }
            (None, Place::Private(at) | Place::Anywhere(at), Reach::Service) => {
                self.serve_atomic(side, link, at, remote.rkey, op).ok_or(Stop::Wait)??
            }
            _ => return Err(refused()),
        };
        Ok(store_old(local, old))
    }
}

impl QpInner {
    /// The right to an atomic on private memory of the peer. Where somebody has it for long, the peer shall look at who that is.
    fn turn_at<'l>(&self, side: &mut SendSide, link: &'l Link) -> Result<Turn<'l>, Stop> {
        let progress = &mut side.progress;
        progress.turns = progress.turns.wrapping_add(1);
        Turn::take(&link.peer.table.map, link.index, progress.turns).ok_or_else(|| {
            link.kick();
            Stop::Wait
        })
    }
}

/// An atomic on another process's private memory; the caller has its [`Turn`].
pub(super) fn atomic_across(pid: i32, at: u64, op: Atomic) -> Result<u64, Fault> {
    let mut word = 0_u64;
    let (mut local, mut remote) = (Pieces::new(), Pieces::new());
    local.push((&raw mut word).cast(), 8);
    remote.push(at as *mut u8, 8);
    place::across(pid, &local, &remote, Way::In)?;
    let cell = AtomicU64::new(word);
    let old = op.apply(&cell);
    let mut new = cell.into_inner();
    let mut local = Pieces::new();
    local.push((&raw mut new).cast(), 8);
    place::across(pid, &local, &remote, Way::Out)?;
    Ok(old)
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
