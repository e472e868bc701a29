//! The copy path for private memory where the kernel forbids process_vm_readv/writev(2): the owner's NIC thread
//! copies, in chunks through a bounce buffer in its segment. Two copies instead of one, and the owner must be
//! running; chosen by a probe at connection time, and said so in the device's notes.
//!
//! One request at a time per queue pair. The asker fills the words and makes `turn` odd; the owner makes it even.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use verbs::Access;

use super::atomic::Atomic;
use super::engine::Progress;
use super::layout::{ServiceWords, state};
use super::peer::Link;
use super::place::{self, Fault, Pieces, Way};
use super::qp::{QpInner, SendSide};
use super::table::Place;
use super::turn::Turn;

/// The bounce buffer of a queue pair, made at the first request.
pub(super) const BOUNCE: u64 = 64 << 10;

pub(super) const READ: u32 = 0;
const WRITE: u32 = 1;
const COMPARE_SWAP: u32 = 2;
const FETCH_ADD: u32 = 3;
const DELIVER: u32 = 4;
const MAKE_BOUNCE: u32 = 5;

/// A copy under way.
#[derive(Default)]
pub(super) struct Job {
    /// Where in the message the piece begins that is being copied.
    from: u64,
    /// Bytes of the piece that have arrived.
    done: u64,
    /// Bytes asked for, if a request is out.
    asked: Option<u64>,
    /// Where in the message everything before has been copied.
    behind: u64,
}

impl Job {
    /// Whether the piece that begins at `from` has been copied already.
    pub(super) fn is_behind(&self, from: u64) -> bool {
        self.behind > from
    }
}

/// What is asked for.
struct Ask {
    kind: u32,
    at: u64,
    len: u64,
    key: u32,
    operand: [u64; 2],
}

fn ask(link: &Link, progress: &mut Progress, ask: &Ask) {
    let words = &link.qp.service.0;
    words.kind.store(ask.kind, Ordering::Relaxed);
    words.place.store(ask.at, Ordering::Relaxed);
    words.len.store(ask.len, Ordering::Relaxed);
    words.key.store(ask.key, Ordering::Relaxed);
    words.operand.iter().zip(ask.operand).for_each(|(word, v)| word.store(v, Ordering::Relaxed));
    progress.asks = progress.asks.wrapping_add(1);
    words.turn.store(progress.asks.wrapping_mul(2).wrapping_sub(1), Ordering::Release);
    link.kick();
}

/// The answer to what was asked, if it is there.
fn answer(words: &ServiceWords) -> Option<Result<(), Fault>> {
    if !words.turn.load(Ordering::Acquire).is_multiple_of(2) {
        return None;
    }
    Some(if words.refused.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(Fault::Access) })
}

impl QpInner {
    /// An RDMA copy; `None` while it is under way.
    pub(super) fn serve_copy(
        &self,
        side: &mut SendSide,
        link: &Link,
        local: &Pieces,
        at: u64,
        key: u32,
        way: Way,
    ) -> Option<Result<(), Fault>> {
        let kind = if way == Way::Out { WRITE } else { READ };
        let result = self.serve(side, link, local, at, key, kind)?;
        side.progress.job = None;
        Some(result)
    }

    /// The piece of a message that begins at `from`; `None` while it is under way.
    pub(super) fn serve_piece(
        &self,
        side: &mut SendSide,
        link: &Link,
        part: &Pieces,
        at: u64,
        key: u32,
        from: u64,
    ) -> Option<Result<(), Fault>> {
        if let Some(job) = &mut side.progress.job
            && job.from != from
        {
            *job = Job { from, behind: job.behind, ..Job::default() };
        }
        let result = self.serve(side, link, part, at, key, DELIVER)?;
        if let Some(job) = &mut side.progress.job {
            job.behind = from + part.total();
        }
        Some(result)
    }

    fn serve(
        &self,
        side: &mut SendSide,
        link: &Link,
        local: &Pieces,
        at: u64,
        key: u32,
        kind: u32,
    ) -> Option<Result<(), Fault>> {
        let words = &link.qp.service.0;
        let job = side.progress.job.get_or_insert_default();
        if let Some(len) = job.asked {
            if let Err(fault) = answer(words)? {
                return Some(Err(fault));
            }
            if kind == READ && len > 0 {
                let bounce = link.peer.table.map.bytes(words.bounce.load(Ordering::Relaxed), len);
                let Some(bounce) = bounce else { return Some(Err(Fault::Access)) };
                // SAFETY: `len` bytes in the peer's segment, into checked local memory. Test: the conformance
                // suite on `shm(copy=service)`.
                unsafe { place::scatter(bounce, &local.part(job.done, len)) };
            }
            job.done += len;
            job.asked = None;
        }
        // Not "equal": a peer can shorten its receive meanwhile.
        if job.done >= local.total() {
            return Some(Ok(()));
        }
        let bounce = words.bounce.load(Ordering::Acquire);
        let len = (local.total() - job.done).min(BOUNCE);
        if bounce == 0 {
            job.asked = Some(0);
            ask(link, &mut side.progress, &Ask { kind: MAKE_BOUNCE, at: 0, len: 0, key: 0, operand: [0; 2] });
            return None;
        }
        if kind != READ {
            let Some(buffer) = link.peer.table.map.bytes(bounce, len) else {
                return Some(Err(Fault::Access));
            };
            // SAFETY: as above, the other way.
            unsafe { place::gather(&local.part(job.done, len), buffer) };
        }
        job.asked = Some(len);
        let at = at.wrapping_add(job.done);
        ask(link, &mut side.progress, &Ask { kind, at, len, key, operand: [0; 2] });
        None
    }

    /// An atomic; `None` while it is under way, else the old value.
    pub(super) fn serve_atomic(
        &self,
        side: &mut SendSide,
        link: &Link,
        at: u64,
        key: u32,
        op: Atomic,
    ) -> Option<Result<u64, Fault>> {
        let words = &link.qp.service.0;
        let job = side.progress.job.get_or_insert_default();
        if job.asked.is_none() {
            let (kind, operand) = match op {
                Atomic::CompareSwap(compare, swap) => (COMPARE_SWAP, [compare, swap]),
                Atomic::FetchAdd(add) => (FETCH_ADD, [add, 0]),
            };
            job.asked = Some(8);
            ask(link, &mut side.progress, &Ask { kind, at, len: 8, key, operand });
            return None;
        }
        let result = answer(words)?;
        side.progress.job = None;
        Some(result.map(|()| words.operand[0].load(Ordering::Relaxed)))
    }

    /// The owner's side: carries out what the peer asked for, if anything; whether to look again soon. On the NIC thread.
    pub(super) fn serve_peer(self: &Arc<Self>) -> bool {
        let words = &self.shared.service.0;
        let asked = words.turn.load(Ordering::Acquire);
        if asked.is_multiple_of(2) {
            return false;
        }
        let Some(turn) = Turn::take(&self.device.segment.map, self.index, asked) else { return true };
        // Deregistering waits for whoever holds this lock.
        let side = self.enter_send();
        // Whoever fails the queue pair passes the lock: nothing is carried out once that is done.
        let done = (self.state() != state::ERROR).then(|| self.carry_out(words)).flatten();
        drop(side);
        drop(turn);
        words.refused.store(done.is_none().into(), Ordering::Relaxed);
        words.turn.store(asked.wrapping_add(1), Ordering::Release);
        if let Some(link) = self.link.get() {
            link.kick();
        }
        false
    }

    /// Each word is read once: the peer may change it at any time.
    fn carry_out(&self, words: &ServiceWords) -> Option<()> {
        let kind = words.kind.load(Ordering::Relaxed);
        if kind == MAKE_BOUNCE {
            let at = self.bounce_ring()?;
            words.bounce.store(at, Ordering::Release);
            return Some(());
        }
        let need = match kind {
            READ => Access::REMOTE_READ,
            WRITE => Access::REMOTE_WRITE,
            COMPARE_SWAP | FETCH_ADD => Access::REMOTE_ATOMIC,
            DELIVER => Access::LOCAL_WRITE,
            _ => return None,
        };
        let is_atomic = need == Access::REMOTE_ATOMIC;
        // What an atomic changes, it changes whatever length the peer says.
        let len = if is_atomic { 8 } else { words.len.load(Ordering::Relaxed) };
        let (at, key) = (words.place.load(Ordering::Relaxed), words.key.load(Ordering::Relaxed));
        let table = &self.device.table;
        let place = table.check(key, self.pd, need, at, len)?;
        let at = place.private()?;
        if let Place::Anywhere(at) = place {
            return self.carry_out_anywhere(words, kind, at, len);
        }
        if is_atomic {
            return serve_word(words, kind, at);
        }
        if len > BOUNCE {
            return None;
        }
        // Where the buffer lies is no question for the peer.
        let bounce = table.map.bytes(*self.bounce.get()?, BOUNCE)?;
        let mut memory = Pieces::new();
        memory.push(at as *mut u8, len);
        // SAFETY: checked just now, and deregistering waits for the lock that the caller holds; the buffer has `len` bytes.
        // Test: the conformance suite on `shm(copy=service)`.
        unsafe {
            match kind {
                READ => place::gather(&memory, bounce),
                _ => place::scatter(bounce, &memory),
            }
        }
        Some(())
    }

    /// Where the bounce buffer lies, made at the first call, however often the peer asks.
    fn bounce_ring(&self) -> Option<u64> {
        if let Some(at) = self.bounce.get() {
            return Some(*at);
        }
        let ring = self.device.take_ring(BOUNCE).ok()?;
        let at = *self.bounce.get_or_init(|| ring.at);
        self.rings.lock().push(ring);
        Some(at)
    }
}

/// The atomic that the peer asked for, if it asked for one.
pub(super) fn asked_atomic(words: &ServiceWords, kind: u32) -> Option<Atomic> {
    let operand = |i: usize| words.operand[i].load(Ordering::Relaxed);
    match kind {
        COMPARE_SWAP => Some(Atomic::CompareSwap(operand(0), operand(1))),
        FETCH_ADD => Some(Atomic::FetchAdd(operand(0))),
        _ => None,
    }
}

fn serve_word(words: &ServiceWords, kind: u32, at: u64) -> Option<()> {
    let pointer = at as *mut u64;
    if !pointer.is_aligned() {
        return None;
    }
    // SAFETY: checked by the caller for 8 bytes, aligned, kept as above.
    let word = unsafe { AtomicU64::from_ptr(pointer) };
    let op = asked_atomic(words, kind)?;
    words.operand[0].store(op.apply(word), Ordering::Relaxed);
    Some(())
}
