//! The owner's side of [`crate::send::service_client`]: the NIC thread accesses this device's memory for a peer that
//! may not.
//!
//! Each word that the peer writes is read once: it may change at any time.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use verbs::Access;

use crate::connection::Connection;
use crate::copy::atomic::{AtomicOp, process_vm_atomic};
use crate::copy::place::{self, CopyDirection, SgList, own_pid};
use crate::memory::allocator::Ring;
use crate::memory::atomic_lock::AtomicLock;
use crate::memory::layout::{ServiceWords, service_op, state};
use crate::memory::table::Location;
use nic_util::sync::Spin;

/// State of serving the peer of one queue pair.
#[derive(Default)]
pub(crate) struct ServiceServer {
    /// The offset of the bounce buffer through which this device copies for the peer, once allocated.
    bounce: OnceLock<u64>,
}

impl ServiceServer {
    /// Carries out the peer's request, if there is one; returns whether to check again soon. `enter` takes a
    /// lock for which deregistration waits.
    pub(crate) fn serve<L>(
        &self,
        connection: &Connection,
        rings: &Spin<Vec<Ring>>,
        enter: impl FnOnce() -> L,
    ) -> bool {
        let words = &connection.words.service.0;
        let request_turn = words.turn.load(Ordering::Acquire);
        if request_turn.is_multiple_of(2) {
            return false;
        }
        let table = &connection.device.table;
        let Some(atomic_lock) = AtomicLock::try_lock(&table.map, connection.index, request_turn) else {
            return true;
        };
        let lock = enter();
        // A thread that fails the queue pair waits for the lock: no request is carried out afterwards.
        let may = connection.state() != state::ERROR;
        let done = may.then(|| self.carry_out(connection, rings, words)).flatten();
        drop(lock);
        drop(atomic_lock);
        words.refused.store(done.is_none().into(), Ordering::Relaxed);
        words.turn.store(request_turn.wrapping_add(1), Ordering::Release);
        connection.kick();
        false
    }

    fn carry_out(
        &self,
        connection: &Connection,
        rings: &Spin<Vec<Ring>>,
        words: &ServiceWords,
    ) -> Option<()> {
        let kind = words.kind.load(Ordering::Relaxed);
        if kind == service_op::ALLOC_BOUNCE {
            let at = self.bounce_offset(connection, rings)?;
            words.bounce.store(at, Ordering::Release);
            return Some(());
        }
        let need = match kind {
            service_op::READ => Access::REMOTE_READ,
            service_op::WRITE => Access::REMOTE_WRITE,
            service_op::COMPARE_SWAP | service_op::FETCH_ADD => Access::REMOTE_ATOMIC,
            service_op::DELIVER => Access::LOCAL_WRITE,
            _ => return None,
        };
        let atomic = requested_atomic(words, kind);
        // An atomic always changes 8 bytes, whatever length the peer gives.
        let len = if atomic.is_some() { 8 } else { words.len.load(Ordering::Relaxed) };
        let (at, key) = (words.addr.load(Ordering::Relaxed), words.key.load(Ordering::Relaxed));
        let table = &connection.device.table;
        let place = table.check_remote(key, connection.domain(), need, at, len)?;
        let at = place.private_address()?;
        if let Some(op) = atomic {
            let old = apply_atomic(place, at, op)?;
            words.operand[0].store(old, Ordering::Relaxed);
            return Some(());
        }
        if len > service_op::BOUNCE {
            return None;
        }
        // The peer does not choose the location of the buffer.
        let bounce = table.map.bytes(*self.bounce.get()?, service_op::BOUNCE)?;
        let mut memory = SgList::new();
        memory.push(at as *mut u8, len);
        if let Location::Anywhere(_) = place {
            let mut buffer = SgList::new();
            buffer.push(bounce, len);
            let direction = if kind == service_op::READ { CopyDirection::In } else { CopyDirection::Out };
            return place::process_vm_copy(own_pid(), &buffer, &memory, direction).ok();
        }
        // SAFETY: checked just now, and deregistration waits for the lock that the caller holds; the buffer
        // has `len` bytes. Test: the conformance suite on `shm(copy=service)`.
        let copied = unsafe {
            match kind {
                service_op::READ => place::gather(&memory, bounce),
                _ => place::scatter(bounce, &memory),
            }
        };
        copied.ok()
    }

    /// The offset of the bounce buffer, allocated at the first call only, however often the peer requests it.
    fn bounce_offset(&self, connection: &Connection, rings: &Spin<Vec<Ring>>) -> Option<u64> {
        if let Some(at) = self.bounce.get() {
            return Some(*at);
        }
        let ring = connection.device.memory.alloc_ring(service_op::BOUNCE).ok()?;
        let at = *self.bounce.get_or_init(|| ring.at);
        rings.lock().push(ring);
        Some(at)
    }
}

/// The atomic that the peer requested, if any.
fn requested_atomic(words: &ServiceWords, kind: u32) -> Option<AtomicOp> {
    let operand = |i: usize| words.operand[i].load(Ordering::Relaxed);
    match kind {
        service_op::COMPARE_SWAP => Some(AtomicOp::CompareSwap(operand(0), operand(1))),
        service_op::FETCH_ADD => Some(AtomicOp::FetchAdd(operand(0))),
        _ => None,
    }
}

/// Carries out an atomic on 8 checked bytes of this process; returns the old value.
fn apply_atomic(place: Location, at: u64, op: AtomicOp) -> Option<u64> {
    let pointer = at as *mut u64;
    if !pointer.is_aligned() {
        return None;
    }
    if let Location::Anywhere(_) = place {
        return process_vm_atomic(own_pid(), at, op).ok();
    }
    // SAFETY: checked by the caller for 8 bytes, aligned, kept as above.
    unsafe { op.apply_at(pointer) }.ok()
}
