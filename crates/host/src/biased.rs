//! [`BiasedLock`]: a biased lock, which costs its usual thread two stores instead of an atomic exchange.
//!
//! An exchange takes as long as twenty instructions, and a short message passes half a dozen locks that only one thread
//! ever takes. Here such a thread becomes the lock's *owner*: it stores that it is inside and then checks that it is
//! still the owner. Another thread first revokes the ownership, then makes every running thread of the process execute
//! a full fence (membarrier(2)): either the owner sees that it was revoked, or it is seen inside. From then on all
//! threads use an exchange, until the former owner has taken the lock often enough in a row to pay for another system
//! call.
//!
//! Only for threads of one process. Without membarrier(2) there are no owners.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    thread::yield_now,
};
#[cfg(not(loom))]
use std::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence, fence},
    thread::yield_now,
};

/// Exchanges in a row by one thread before it becomes the owner. A membarrier takes at most as long as a thousand
/// exchanges.
const EXCHANGES_TO_OWN: u32 = 1000;

/// Mask of the mode in the lower bits of the word: how the lock is taken. The bits above hold a thread's number.
const MODE: u64 = 3;
/// Taken by an exchange; the word names the thread that took it last.
const UNOWNED: u64 = 0;
/// Taken by an exchange; the word names the former owner, whose ownership has been revoked.
const REVOKED: u64 = 1;
/// Taken by the owner only, without an exchange.
const OWNED: u64 = 2;
/// Cannot be taken: the owner's rights are being revoked.
const REVOKING: u64 = 3;

/// A value behind a lock for short sections that one thread enters far more often than all others.
#[derive(Debug, Default)]
pub struct BiasedLock<T> {
    /// A thread's number, and the mode. In modes `UNOWNED` and `REVOKED` only the thread that has exchanged `held`
    /// changes the word.
    word: AtomicU64,
    /// The owner is inside. Only the owner writes this; it may do so late, when it has lost its ownership already.
    inside: AtomicBool,
    /// A thread that exchanged this is inside.
    held: AtomicBool,
    /// How often in a row the thread named in the word has taken the lock by an exchange.
    exchanges: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives out one reference at a time. Test: loom_biased_excludes.
unsafe impl<T: Send> Send for BiasedLock<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

impl<T> BiasedLock<T> {
    /// A free lock without an owner.
    pub fn new(value: T) -> Self {
        Self {
            word: AtomicU64::new(UNOWNED),
            inside: AtomicBool::new(false),
            held: AtomicBool::new(false),
            exchanges: AtomicU32::new(0),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, without locking: the caller has exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        #[cfg(not(loom))]
        return self.value.get_mut();
        // SAFETY: the caller has exclusive access. Test: the models of locks that are taken apart.
        #[cfg(loom)]
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Takes the lock if it is free. While an owner's rights are being revoked, the lock counts as taken, and may seem
    /// so a moment longer.
    #[inline]
    pub fn try_lock(&self) -> Option<BiasedGuard<'_, T>> {
        let me = own_word();
        match self.enter_owned(me) {
            Some(guard) => Some(guard),
            None => self.try_lock_exchange(me, EXCHANGES_TO_OWN),
        }
    }

    /// Takes the lock; spins until it is free and yields every 64 turns.
    #[inline]
    pub fn lock(&self) -> BiasedGuard<'_, T> {
        let me = own_word();
        match self.enter_owned(me) {
            Some(guard) => guard,
            None => self.lock_exchange(me, EXCHANGES_TO_OWN),
        }
    }

    /// Waits until the threads that are inside now have left. For a caller that has withdrawn a right and then made all
    /// threads execute a full fence: after this, no section that saw the right is still running. The owner stays the
    /// owner.
    pub fn wait_for_holders(&self) {
        let mut turns = 0;
        for flag in [&self.inside, &self.held] {
            while flag.load(Ordering::Acquire) {
                pause(&mut turns);
            }
        }
    }

    /// Takes the lock as its owner, if `me` is the owner and not inside.
    #[inline]
    fn enter_owned(&self, me: u64) -> Option<BiasedGuard<'_, T>> {
        // A thread that runs coroutines may be inside already, in another coroutine.
        if self.word.load(Ordering::Relaxed) != me || self.inside.load(Ordering::Relaxed) {
            return None;
        }
        self.inside.store(true, Ordering::Relaxed);
        // Partner: the heavy fence in `revoke_owner`. The ownership must not be read before `inside` is visible.
        light();
        if self.word.load(Ordering::Acquire) == me {
            return Some(BiasedGuard { lock: self, flag: &self.inside });
        }
        self.inside.store(false, Ordering::Release);
        None
    }

    /// Spins until it has taken the lock, as its owner or by an exchange. After `enough` exchanges in a row the thread `me`
    /// becomes the owner.
    #[inline(never)]
    fn lock_exchange(&self, me: u64, enough: u32) -> BiasedGuard<'_, T> {
        let mut turns = 0;
        loop {
            if let Some(guard) = self.enter_owned(me).or_else(|| self.try_lock_exchange(me, enough)) {
                return guard;
            }
            pause(&mut turns);
        }
    }

    #[inline(never)]
    fn try_lock_exchange(&self, me: u64, enough: u32) -> Option<BiasedGuard<'_, T>> {
        let word = self.word.load(Ordering::Relaxed);
        if word & MODE == OWNED && word != me {
            self.revoke_owner(word);
        }
        if self.held.load(Ordering::Relaxed)
            || self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return None;
        }
        // In modes UNOWNED and REVOKED the word cannot change from here on. Acquire: an owner whose rights were revoked
        // may still be inside.
        let word = self.word.load(Ordering::Acquire);
        if matches!(word & MODE, OWNED | REVOKING) || self.inside.load(Ordering::Acquire) {
            self.held.store(false, Ordering::Release);
            return None;
        }
        let flag = if self.becomes_owner(word, me, enough) { &self.inside } else { &self.held };
        Some(BiasedGuard { lock: self, flag })
    }

    /// Counts how often in a row the caller, who has exchanged `held`, has done so. After `enough` times it becomes the
    /// owner and is inside as the owner.
    #[inline]
    fn becomes_owner(&self, word: u64, me: u64, enough: u32) -> bool {
        let exchanges = if (word ^ me) & !MODE == 0 {
            self.exchanges.load(Ordering::Relaxed).saturating_add(1)
        } else {
            0
        };
        if word & MODE == UNOWNED && exchanges == 0 {
            self.word.store(me & !MODE | UNOWNED, Ordering::Relaxed);
        }
        self.exchanges.store(exchanges, Ordering::Relaxed);
        if exchanges != enough || !has_membarrier() {
            return false;
        }
        self.inside.store(true, Ordering::Relaxed);
        self.word.store(me, Ordering::Release);
        self.held.store(false, Ordering::Release);
        true
    }

    /// Revokes the owner's rights: the owner may still be inside, but cannot enter again without an exchange.
    #[cold]
    fn revoke_owner(&self, word: u64) {
        let revoking = word & !MODE | REVOKING;
        if self.word.compare_exchange(word, revoking, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            // Partner: the light fence in `enter_owned`. `inside` must not be read before the owner can see that it
            // lost its rights.
            heavy();
            self.exchanges.store(0, Ordering::Relaxed);
            self.word.store(word & !MODE | REVOKED, Ordering::Release);
        }
    }
}

/// Spins for a moment; yields the processor every 64 turns.
fn pause(turns: &mut u32) {
    *turns = turns.wrapping_add(1);
    if cfg!(loom) || turns.is_multiple_of(64) {
        yield_now();
    } else {
        spin_loop();
    }
}

/// The word of a lock that the calling thread owns: no other living thread has it. A thread that ends holds no lock, and
/// whatever reuses its memory for a new thread has waited for that end: the new thread may take over its locks.
#[inline]
fn own_word() -> u64 {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
    return thread_pointer() | OWNED;
    #[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom)))))]
    numbered_word()
}

/// The address of the calling thread's control block: a multiple of 64, and never 0. In a shared library it takes one
/// instruction, where a thread-local variable takes a function call.
#[cfg(all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))))]
#[inline]
fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: the first word of the control block is its own address (ELF Handling for Thread-Local Storage, 4.4.6, which
    // compilers rely on). Test: own_words_of_living_threads_differ.
    unsafe {
        std::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    pointer
}

/// A word that no thread has had before in this process.
#[cfg_attr(
    all(target_arch = "x86_64", target_os = "linux", not(any(miri, loom))),
    expect(dead_code, reason = "for other processors")
)]
fn numbered_word() -> u64 {
    thread_local! {
        static OWN_WORD: Cell<u64> = const { Cell::new(0) };
    }
    OWN_WORD.with(|cell| match cell.get() {
        0 => assign_word(cell),
        me => me,
    })
}

#[cold]
fn assign_word(cell: &Cell<u64>) -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    let me = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed) << 2 | OWNED;
    cell.set(me);
    me
}

/// The cheap side of an asymmetric fence, for the frequent path.
#[inline]
fn light() {
    #[cfg(not(loom))]
    compiler_fence(Ordering::SeqCst);
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

/// The expensive side: every running thread of this process executes a full fence.
fn heavy() {
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    barrier::pass();
}

/// Whether the expensive side exists. Under loom all threads of a model belong to one thread of the system, so models
/// pass thread numbers themselves.
#[cold]
fn has_membarrier() -> bool {
    #[cfg(not(loom))]
    return barrier::is_there();
    #[cfg(loom)]
    true
}

#[cfg(not(loom))]
mod barrier {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, membarrier, membarrier_query};

    fn register() -> bool {
        membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
    }

    /// Whether this process can make its threads execute a fence.
    pub(super) fn is_there() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| {
            membarrier_query().contains_command(MembarrierCommand::PrivateExpedited) && register()
        })
    }

    /// Makes every running thread of this process execute a full fence.
    pub(super) fn pass() {
        let pass = || membarrier(MembarrierCommand::PrivateExpedited);
        // A forked child is not registered.
        if pass().is_ok() || (register() && pass().is_ok()) {
            return;
        }
        // membarrier has been forbidden since it was registered. No store stays in a store buffer for this long.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Exclusive access to the value of a [`BiasedLock`], until dropped.
#[derive(Debug)]
pub struct BiasedGuard<'a, T> {
    lock: &'a BiasedLock<T>,
    /// The flag that marks the lock as taken.
    flag: &'a AtomicBool,
}

impl<T> Drop for BiasedGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.flag.store(false, Ordering::Release);
    }
}

#[cfg(not(loom))]
impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while it holds the lock. Test: threads_exclude_each_other_while_owners_change.
        unsafe { &*self.lock.value.get() }
    }
}

#[cfg(not(loom))]
impl<T> DerefMut for BiasedGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(loom)]
impl<T> Deref for BiasedGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: as above; loom's cell checks it.
        self.lock.value.with(|p| unsafe { &*p })
    }
}

#[cfg(loom)]
impl<T> DerefMut for BiasedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; loom's cell checks it.
        self.lock.value.with_mut(|p| unsafe { &mut *p })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn is_owned<T>(lock: &BiasedLock<T>) -> bool {
        lock.word.load(Ordering::Relaxed) & MODE == OWNED
    }

    /// Goal: no two living threads have the same word, a thread keeps its own, and the word's lower bits are the mode.
    #[test]
    fn own_words_of_living_threads_differ() {
        let all_alive = std::sync::Barrier::new(8);
        let word = || {
            let first = own_word();
            all_alive.wait();
            (first, own_word())
        };
        let words: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(word)).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        assert!(words.iter().all(|(first, second)| first == second && first & MODE == OWNED));
        let different: std::collections::BTreeSet<u64> =
            words.iter().map(|(first, _)| first & !MODE).collect();
        assert_eq!(different.len(), words.len());
    }

    /// Takes the lock `times` times; returns how often it did so as the owner.
    fn take(lock: &BiasedLock<u64>, times: u32) -> u32 {
        let mut owned = 0;
        for _ in 0..times {
            let mut held = lock.lock();
            *held += 1;
            owned += u32::from(std::ptr::eq(held.flag, &raw const lock.inside));
        }
        owned
    }

    /// Goal: a thread that takes the lock again and again owns it, until another thread comes; then again after as many
    /// times.
    #[test]
    fn frequent_user_becomes_owner() {
        let lock = Arc::new(BiasedLock::new(0));
        assert_eq!(take(&lock, EXCHANGES_TO_OWN), 0);
        if !has_membarrier() {
            return;
        }
        assert_eq!(take(&lock, 5), 5);
        let other = lock.clone();
        let owned = std::thread::spawn(move || take(&other, 3 * EXCHANGES_TO_OWN)).join().expect("no panic");
        assert_eq!(owned, 0, "it has an owner, which may return");
        assert_eq!(take(&lock, EXCHANGES_TO_OWN - 1), 0);
        assert_eq!((take(&lock, 1), is_owned(&lock)), (1, true));
        assert_eq!(*lock.lock(), u64::from(EXCHANGES_TO_OWN) * 5 + 5);
    }

    /// Goal: the owner cannot take the lock twice, as coroutines of one thread might try; an owner that is inside when
    /// its rights are revoked stays inside.
    #[test]
    fn owner_inside_excludes_all_others() {
        let lock = Arc::new(BiasedLock::new(0));
        take(&lock, EXCHANGES_TO_OWN + 1);
        let held = lock.lock();
        assert!(lock.try_lock().is_none());
        let other = lock.clone();
        let taken = move || other.try_lock().is_some();
        assert!(!std::thread::spawn(taken.clone()).join().expect("no panic"));
        assert!(!is_owned(&lock) && lock.try_lock().is_none());
        drop(held);
        assert!(std::thread::spawn(taken).join().expect("no panic"));
        assert!(lock.try_lock().is_some());
    }

    /// Goal: sections never overlap while owners change. Method: bursts of one thread, long enough to become the owner,
    /// while others take the lock occasionally.
    #[test]
    fn threads_exclude_each_other_while_owners_change() {
        let lock = Arc::new(BiasedLock::new(0_u64));
        let threads: Vec<_> = [1_u32, 3, 700]
            .into_iter()
            .map(|rest| {
                let lock = lock.clone();
                std::thread::spawn(move || {
                    for turn in 0..60_000_u32 {
                        *lock.lock() += 1;
                        if turn.is_multiple_of(3000 / rest) {
                            std::thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(*lock.lock(), 180_000);
    }

    #[test]
    fn wait_for_holders_returns_after_they_have_left() {
        let lock = Arc::new(BiasedLock::new(0));
        for times in [1, EXCHANGES_TO_OWN + 1] {
            take(&lock, times);
            let held = lock.lock();
            let (other, passed) = (lock.clone(), Arc::new(std::sync::atomic::AtomicBool::new(false)));
            let said = passed.clone();
            let thread = std::thread::spawn(move || {
                other.wait_for_holders();
                said.store(true, Ordering::Release);
            });
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(!passed.load(Ordering::Acquire));
            drop(held);
            thread.join().expect("no panic");
        }
        assert!(!has_membarrier() || is_owned(&lock), "pass revokes no owner");
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;

    /// The word of a lock owned by the `n`th thread of a model.
    fn thread(n: u64) -> u64 {
        n << 2 | OWNED
    }

    fn take(lock: &BiasedLock<u32>, me: u64, enough: u32) {
        let mut held = lock.enter_owned(me).unwrap_or_else(|| lock.lock_exchange(me, enough));
        *held += 1;
    }

    /// A lock owned by the first thread.
    fn owned() -> Arc<BiasedLock<u32>> {
        let lock = Arc::new(BiasedLock::new(0));
        lock.word.store(thread(1), Ordering::Relaxed);
        lock
    }

    fn check(bound: usize, model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(bound);
        builder.check(model);
    }

    /// Goal: sections of an owner and of another thread never overlap, while the owner's rights are revoked and while
    /// it becomes the owner again. Method: both enter twice; loom's cell reports overlaps. NICETY_WIDE allows a third
    /// preemption, which takes minutes.
    #[test]
    fn loom_biased_excludes() {
        check(if std::env::var_os("NICETY_WIDE").is_some() { 3 } else { 2 }, || {
            let lock = owned();
            let other = lock.clone();
            let guest = loom::thread::spawn(move || (0..2).for_each(|_| take(&other, thread(2), 100)));
            (0..3).for_each(|_| take(&lock, thread(1), 1));
            guest.join().unwrap();
            assert_eq!(*lock.lock_exchange(thread(3), 100), 5);
        });
    }

    /// Tries to take the lock, at most twice; returns how often it succeeded.
    fn try_take(lock: &BiasedLock<u32>, me: u64, enough: u32) -> u32 {
        for _ in 0..2 {
            if let Some(mut held) = lock.enter_owned(me).or_else(|| lock.try_lock_exchange(me, enough)) {
                *held += 1;
                return 1;
            }
            yield_now();
        }
        0
    }

    /// Goal: an owner and two threads that revoke its rights at the same time exclude each other. Method: a bounded
    /// number of tries each, as a model of three threads that wait for each other does not terminate.
    #[test]
    fn loom_owner_and_two_others_exclude_each_other() {
        check(2, || {
            let lock = owned();
            let guests = [2, 3].map(|n| {
                let lock = lock.clone();
                loom::thread::spawn(move || try_take(&lock, thread(n), 100))
            });
            let mut taken = try_take(&lock, thread(1), 1);
            for guest in guests {
                taken += guest.join().unwrap();
            }
            assert_eq!(*lock.lock_exchange(thread(4), 100), taken);
        });
    }

    /// Goal: a thread that has withdrawn a right and then called `pass` finds no section that saw the right. Method:
    /// the right to access a cell.
    #[test]
    fn loom_no_holder_remains_after_wait_for_holders() {
        check(3, || {
            let shared = Arc::new((owned(), AtomicBool::new(true), UnsafeCell::new(0)));
            let owner = {
                let shared = shared.clone();
                loom::thread::spawn(move || {
                    for _ in 0..2 {
                        let _held = shared.0.enter_owned(thread(1)).expect("its own");
                        // As real users do, which read their rights under such a lock.
                        light();
                        if shared.1.load(Ordering::Relaxed) {
                            // SAFETY: the right is granted, and a thread that withdraws it waits.
                            shared.2.with_mut(|p| unsafe { *p += 1 });
                        }
                    }
                })
            };
            shared.1.store(false, Ordering::Relaxed);
            heavy();
            shared.0.wait_for_holders();
            // SAFETY: no section that has the right may be running.
            shared.2.with_mut(|p| unsafe { *p += 1 });
            owner.join().unwrap();
        });
    }
}
