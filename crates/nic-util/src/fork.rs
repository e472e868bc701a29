//! Fork guard: a forked child cannot reach any peer through a device that it inherits.
//!
//! A device belongs to the process that opened it. After fork(2) the child has its descriptors and mappings,
//! too: it would keep connections open that the parent's death should end, and could write into memory that
//! the parent and its peers share. So in the child, every descriptor of a device is replaced by /dev/null
//! under the same number, and every segment by private memory full of zeros. A child that does not use the
//! device then does no harm. Neither does a child that uses it: calls are refused, and dropping does nothing.
//! Private memory needs no protection: peers write to the parent's pages, and the child has a copy.
//!
//! This depends on pthread_atfork(3): children of a bare clone(2) keep what they inherit.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use verbs::{Error, Result};

/// The resources that a child must not keep.
struct Resources {
    descriptors: BTreeSet<RawFd>,
    /// Mappings of shared memory: address, length, and length of the accessible part, in bytes.
    mappings: BTreeMap<usize, (usize, usize)>,
}

static RESOURCES: Mutex<Resources> =
    Mutex::new(Resources { descriptors: BTreeSet::new(), mappings: BTreeMap::new() });

/// Number of forks between the process that registered the handlers and this one.
static FORKS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Held while this thread forks, so that no other thread changes the belongings.
    static FORK_LOCK: RefCell<Option<MutexGuard<'static, Resources>>> = const { RefCell::new(None) };
}

fn resources() -> MutexGuard<'static, Resources> {
    // Nothing panics while it holds the lock.
    RESOURCES.lock().unwrap_or_else(|e| e.into_inner())
}

/// Identifies the process in which an object was created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkGuard(u32);

impl ForkGuard {
    /// A guard for this process. Registers the fork handlers on the first call.
    pub fn current() -> Result<Self> {
        static READY: OnceLock<Result<OwnedFd>> = OnceLock::new();
        match READY.get_or_init(register) {
            Ok(_) => Ok(Self(FORKS.load(Ordering::Relaxed))),
            Err(why) => Err(why.clone()),
        }
    }

    /// Whether the guard was created in an ancestor of this process.
    #[inline]
    pub fn is_forked(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.0
    }

    /// Refuses a call in a forked child.
    #[inline]
    pub fn check(self) -> Result<()> {
        if self.is_forked() { Err(Error::Forked) } else { Ok(()) }
    }
}

/// The descriptor of /dev/null that replaces all others in a child; set before the handlers are registered.
static DEV_NULL: OnceLock<RawFd> = OnceLock::new();

fn register() -> Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let dev_null = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())
        .map_err(|e| Error::system("cannot open /dev/null, which forked children need", e))?;
    DEV_NULL.get_or_init(|| dev_null.as_raw_fd());
    // SAFETY: the handlers are functions that live as long as the program. Test: crates/fabric/tests/forks.rs.
    match unsafe {
        libc::pthread_atfork(Some(before_fork), Some(after_fork_in_parent), Some(after_fork_in_child))
    } {
        0 => Ok(dev_null),
        errno => Err(Error::system("cannot prepare for forks", std::io::Error::from_raw_os_error(errno))),
    }
}

extern "C" fn before_fork() {
    // While a thread exits, its thread-local lock may be gone: such a child keeps what it inherits.
    let _ = FORK_LOCK.try_with(|fork_lock| fork_lock.replace(Some(resources())));
}

extern "C" fn after_fork_in_parent() {
    let _ = FORK_LOCK.try_with(RefCell::take);
}

extern "C" fn after_fork_in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let inherited = FORK_LOCK.try_with(RefCell::take).ok().flatten();
    let (Some(inherited), Some(dev_null)) = (inherited, DEV_NULL.get()) else { return };
    for descriptor in &inherited.descriptors {
        // SAFETY: the descriptor is ours and stays open, but no longer reaches a peer. dup3(2) is
        // async-signal-safe.
        unsafe { libc::dup3(*dev_null, *descriptor, libc::O_CLOEXEC) };
    }
    for (&at, &(len, open)) in &inherited.mappings {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let at = at as *mut libc::c_void;
        // SAFETY: the range is mapped by a segment, and the child has a single thread; references into the
        // range are to atomics, for which zero is a valid value. Both calls are plain system calls.
        unsafe {
            libc::mmap(at, len, libc::PROT_NONE, flags, -1, 0);
            libc::mprotect(at, open, libc::PROT_READ | libc::PROT_WRITE);
        }
    }
}

/// A descriptor of a device, which a forked child cannot use.
#[derive(Debug)]
pub struct ForkSafeFd(OwnedFd);

impl From<OwnedFd> for ForkSafeFd {
    fn from(fd: OwnedFd) -> Self {
        resources().descriptors.insert(fd.as_raw_fd());
        Self(fd)
    }
}

impl AsFd for ForkSafeFd {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for ForkSafeFd {
    fn drop(&mut self) {
        // Before the descriptor is closed: afterwards another one may have this number.
        resources().descriptors.remove(&self.0.as_raw_fd());
    }
}

/// Registers shared memory that was mapped at `at`; none of it may be accessed yet.
pub fn mapped(at: *mut u8, len: usize) {
    resources().mappings.insert(at.addr(), (len, 0));
}

/// Records that the first `open` bytes of the mapping at `at` may be accessed.
pub fn grown(at: *mut u8, open: usize) {
    if let Some(mapping) = resources().mappings.get_mut(&at.addr()) {
        mapping.1 = open;
    }
}

/// Removes the mapping at `at` and unmaps it by `unmap`.
pub fn unmapped(at: *mut u8, unmap: impl FnOnce()) {
    let mut resources = resources();
    resources.mappings.remove(&at.addr());
    unmap();
}
