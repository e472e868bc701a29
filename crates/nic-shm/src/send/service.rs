//! The copy path for private memory where the kernel forbids process_vm_readv/writev(2): the owner's NIC
//! thread copies, in chunks through a bounce buffer in its segment. This takes two copies instead of one, and
//! the owner must be running. A probe at connection time chooses it, and the device's notes report it.
//!
//! This is the requester's side; the owner's side is [`crate::receive::serving`]. One request at a time per
//! queue pair. The requester fills the words and makes `turn` odd; the owner makes it even.

use std::sync::atomic::Ordering;

use crate::copy::atomic::Atomic;
use crate::copy::place::{self, Direction, Fault, SgList};
use crate::memory::layout::{ServiceWords, ask};
use crate::peer::queue_pair::PeerQp;

/// Requests of one queue pair to its peer's NIC thread.
#[derive(Default)]
pub(crate) struct Asking {
    /// The copy in progress.
    job: Option<Job>,
    /// Number of requests so far.
    asks: u32,
}

/// A copy in progress.
#[derive(Default)]
struct Job {
    /// Offset in the message of the piece that is being copied.
    from: u64,
    /// Number of bytes of the piece that have been copied.
    done: u64,
    /// Number of bytes requested, if a request is outstanding.
    asked: Option<u64>,
    /// Everything before this offset in the message has been copied.
    behind: u64,
}

/// A request to the owner.
struct Ask {
    kind: u32,
    at: u64,
    len: u64,
    key: u32,
    operand: [u64; 2],
}

impl Asking {
    /// Whether the piece of a message that begins at `from` has been copied already.
    pub(crate) fn is_behind(&self, from: u64) -> bool {
        self.job.as_ref().is_some_and(|job| job.behind > from)
    }

    /// Forgets the copy: the request has completed or failed.
    pub(crate) fn finish(&mut self) {
        self.job = None;
    }

    /// Makes an RDMA copy; `None` while it is in progress.
    pub(crate) fn copy(
        &mut self,
        link: &PeerQp,
        local: &SgList,
        at: u64,
        key: u32,
        way: Direction,
    ) -> Option<Result<(), Fault>> {
        let kind = if way == Direction::Out { ask::WRITE } else { ask::READ };
        let result = self.carry_on(link, local, at, key, kind)?;
        self.job = None;
        Some(result)
    }

    /// Copies the piece of a message that begins at `from`; `None` while it is in progress.
    pub(crate) fn deliver(
        &mut self,
        link: &PeerQp,
        part: &SgList,
        at: u64,
        key: u32,
        from: u64,
    ) -> Option<Result<(), Fault>> {
        if let Some(job) = &mut self.job
            && job.from != from
        {
            *job = Job { from, behind: job.behind, ..Job::default() };
        }
        let result = self.carry_on(link, part, at, key, ask::DELIVER)?;
        if let Some(job) = &mut self.job {
            job.behind = from + part.total();
        }
        Some(result)
    }

    /// Carries out an atomic; `None` while it is in progress, else the old value.
    pub(crate) fn atomic(
        &mut self,
        link: &PeerQp,
        at: u64,
        key: u32,
        op: Atomic,
    ) -> Option<Result<u64, Fault>> {
        let words = &link.qp.service.0;
        let job = self.job.get_or_insert_default();
        if job.asked.is_none() {
            let (kind, operand) = match op {
                Atomic::CompareSwap(compare, swap) => (ask::COMPARE_SWAP, [compare, swap]),
                Atomic::FetchAdd(add) => (ask::FETCH_ADD, [add, 0]),
            };
            job.asked = Some(8);
            self.ask(link, &Ask { kind, at, len: 8, key, operand });
            return None;
        }
        let result = answer(words)?;
        self.job = None;
        Some(result.map(|()| words.operand[0].load(Ordering::Relaxed)))
    }

    fn carry_on(
        &mut self,
        link: &PeerQp,
        local: &SgList,
        at: u64,
        key: u32,
        kind: u32,
    ) -> Option<Result<(), Fault>> {
        let words = &link.qp.service.0;
        let job = self.job.get_or_insert_default();
        if let Some(len) = job.asked {
            if let Err(fault) = answer(words)? {
                return Some(Err(fault));
            }
            if kind == ask::READ && len > 0 {
                let bounce = link.peer.table.map.bytes(words.bounce.load(Ordering::Relaxed), len);
                let Some(bounce) = bounce else { return Some(Err(Fault::Access)) };
                // SAFETY: `len` bytes in the peer's segment, into checked local memory. Test: the conformance
                // suite on `shm(copy=service)`.
                let copied = unsafe { place::move_mapped(&local.part(job.done, len), bounce, Direction::In) };
                if let Err(fault) = copied {
                    return Some(Err(fault));
                }
            }
            job.done += len;
            job.asked = None;
        }
        // Not `==`: a peer can shorten its receive meanwhile.
        if job.done >= local.total() {
            return Some(Ok(()));
        }
        let bounce = words.bounce.load(Ordering::Acquire);
        let len = (local.total() - job.done).min(ask::BOUNCE);
        if bounce == 0 {
            job.asked = Some(0);
            self.ask(link, &Ask { kind: ask::MAKE_BOUNCE, at: 0, len: 0, key: 0, operand: [0; 2] });
            return None;
        }
        if kind != ask::READ {
            let Some(buffer) = link.peer.table.map.bytes(bounce, len) else {
                return Some(Err(Fault::Access));
            };
            // SAFETY: as above, in the other direction.
            let copied = unsafe { place::move_mapped(&local.part(job.done, len), buffer, Direction::Out) };
            if let Err(fault) = copied {
                return Some(Err(fault));
            }
        }
        job.asked = Some(len);
        let at = at.wrapping_add(job.done);
        self.ask(link, &Ask { kind, at, len, key, operand: [0; 2] });
        None
    }

    fn ask(&mut self, link: &PeerQp, ask: &Ask) {
        let words = &link.qp.service.0;
        words.kind.store(ask.kind, Ordering::Relaxed);
        words.place.store(ask.at, Ordering::Relaxed);
        words.len.store(ask.len, Ordering::Relaxed);
        words.key.store(ask.key, Ordering::Relaxed);
        words.operand.iter().zip(ask.operand).for_each(|(word, v)| word.store(v, Ordering::Relaxed));
        self.asks = self.asks.wrapping_add(1);
        words.turn.store(self.asks.wrapping_mul(2).wrapping_sub(1), Ordering::Release);
        link.kick();
    }
}

/// The answer to the outstanding request, if it has arrived.
fn answer(words: &ServiceWords) -> Option<Result<(), Fault>> {
    if !words.turn.load(Ordering::Acquire).is_multiple_of(2) {
        return None;
    }
    Some(if words.refused.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(Fault::Access) })
}
