//! The copy path for private memory where the kernel forbids process_vm_readv/writev(2): the owner's NIC
//! thread copies, in chunks through a bounce buffer in its segment. This takes two copies instead of one, and
//! the owner must be running. A probe at connection time chooses it, and the device's notes report it.
//!
//! This is the requester's side; the owner's side is [`crate::receive::service_server`]. One request at a time per
//! queue pair. The requester fills the words and makes `turn` odd; the owner makes it even.

use std::sync::atomic::Ordering;

use verbs::RemoteAddr;

use crate::copy::atomic::AtomicOp;
use crate::copy::place::{self, CopyDirection, CopyError, SgList};
use crate::memory::layout::{ServiceWords, service_op};
use crate::peer::queue_pair::PeerQp;

/// Requests of one queue pair to its peer's NIC thread.
#[derive(Default)]
pub(crate) struct ServiceClient {
    /// The copy in progress.
    job: Option<CopyJob>,
    /// Number of requests so far.
    requests: u32,
}

/// A copy in progress.
#[derive(Default)]
struct CopyJob {
    /// Offset in the message of the piece that is being copied.
    from: u64,
    /// Number of bytes of the piece that have been copied.
    done: u64,
    /// Number of bytes requested, if a request is outstanding.
    requested: Option<u64>,
    /// Everything before this offset in the message has been copied.
    copied_up_to: u64,
}

/// A request to the owner.
struct ServiceRequest {
    kind: u32,
    remote: RemoteAddr,
    len: u64,
    operand: [u64; 2],
}

impl ServiceClient {
    /// Whether the piece of a message that begins at `from` has been copied already.
    pub(crate) fn has_copied(&self, from: u64) -> bool {
        self.job.as_ref().is_some_and(|job| job.copied_up_to > from)
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
        remote: RemoteAddr,
        direction: CopyDirection,
    ) -> Option<Result<(), CopyError>> {
        let kind = if direction == CopyDirection::Out { service_op::WRITE } else { service_op::READ };
        let result = self.continue_copy(link, local, remote, kind)?;
        self.job = None;
        Some(result)
    }

    /// Copies the piece of a message that begins at `from`; `None` while it is in progress.
    pub(crate) fn deliver(
        &mut self,
        link: &PeerQp,
        part: &SgList,
        target: RemoteAddr,
        from: u64,
    ) -> Option<Result<(), CopyError>> {
        if let Some(job) = &mut self.job
            && job.from != from
        {
            *job = CopyJob { from, copied_up_to: job.copied_up_to, ..CopyJob::default() };
        }
        let result = self.continue_copy(link, part, target, service_op::DELIVER)?;
        if let Some(job) = &mut self.job {
            job.copied_up_to = from + part.total();
        }
        Some(result)
    }

    /// Carries out an atomic; `None` while it is in progress, else the old value.
    pub(crate) fn atomic(
        &mut self,
        link: &PeerQp,
        remote: RemoteAddr,
        op: AtomicOp,
    ) -> Option<Result<u64, CopyError>> {
        let words = &link.qp.service.0;
        let job = self.job.get_or_insert_default();
        if job.requested.is_none() {
            let (kind, operand) = match op {
                AtomicOp::CompareSwap(compare, swap) => (service_op::COMPARE_SWAP, [compare, swap]),
                AtomicOp::FetchAdd(add) => (service_op::FETCH_ADD, [add, 0]),
            };
            job.requested = Some(8);
            self.send_request(link, &ServiceRequest { kind, remote, len: 8, operand });
            return None;
        }
        let result = poll_answer(words)?;
        self.job = None;
        Some(result.map(|()| words.operand[0].load(Ordering::Relaxed)))
    }

    fn continue_copy(
        &mut self,
        link: &PeerQp,
        local: &SgList,
        remote: RemoteAddr,
        kind: u32,
    ) -> Option<Result<(), CopyError>> {
        let words = &link.qp.service.0;
        let job = self.job.get_or_insert_default();
        if let Some(len) = job.requested {
            if let Err(fault) = poll_answer(words)? {
                return Some(Err(fault));
            }
            if kind == service_op::READ && len > 0 {
                let bounce = link.peer.table.map.bytes(words.bounce.load(Ordering::Relaxed), len);
                let Some(bounce) = bounce else { return Some(Err(CopyError::Access)) };
                // SAFETY: `len` bytes in the peer's segment, into checked local memory. Test: the conformance
                // suite on `shm(copy=service)`.
                let copied =
                    unsafe { place::copy_mapped(&local.part(job.done, len), bounce, CopyDirection::In) };
                if let Err(fault) = copied {
                    return Some(Err(fault));
                }
            }
            job.done += len;
            job.requested = None;
        }
        // Not `==`: a peer can shorten its receive meanwhile.
        if job.done >= local.total() {
            return Some(Ok(()));
        }
        let bounce = words.bounce.load(Ordering::Acquire);
        let len = (local.total() - job.done).min(service_op::BOUNCE);
        if bounce == 0 {
            job.requested = Some(0);
            self.send_request(
                link,
                &ServiceRequest {
                    kind: service_op::ALLOC_BOUNCE,
                    remote: RemoteAddr::default(),
                    len: 0,
                    operand: [0; 2],
                },
            );
            return None;
        }
        if kind != service_op::READ {
            let Some(buffer) = link.peer.table.map.bytes(bounce, len) else {
                return Some(Err(CopyError::Access));
            };
            // SAFETY: as above, in the other direction.
            let copied =
                unsafe { place::copy_mapped(&local.part(job.done, len), buffer, CopyDirection::Out) };
            if let Err(fault) = copied {
                return Some(Err(fault));
            }
        }
        job.requested = Some(len);
        let remote = remote.offset(job.done);
        self.send_request(link, &ServiceRequest { kind, remote, len, operand: [0; 2] });
        None
    }

    fn send_request(&mut self, link: &PeerQp, request: &ServiceRequest) {
        let words = &link.qp.service.0;
        words.kind.store(request.kind, Ordering::Relaxed);
        words.addr.store(request.remote.addr, Ordering::Relaxed);
        words.len.store(request.len, Ordering::Relaxed);
        words.key.store(request.remote.rkey, Ordering::Relaxed);
        words.operand.iter().zip(request.operand).for_each(|(word, v)| word.store(v, Ordering::Relaxed));
        self.requests = self.requests.wrapping_add(1);
        words.turn.store(self.requests.wrapping_mul(2).wrapping_sub(1), Ordering::Release);
        link.kick();
    }
}

/// The answer to the outstanding request, if it has arrived.
fn poll_answer(words: &ServiceWords) -> Option<Result<(), CopyError>> {
    if !words.turn.load(Ordering::Acquire).is_multiple_of(2) {
        return None;
    }
    Some(if words.refused.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(CopyError::Access) })
}
