//! What a forked child inherits of a device: nothing that reaches anybody.
//!
//! A device belongs to the process that opened it. After fork(2) the child has its descriptors and mappings, too: it would
//! keep connections open that the parent's death should end, and could write into what the parent and its peers share. So
//! in the child every descriptor of a device becomes one of /dev/null, under its own number, and every segment becomes
//! memory of the child's own, full of zeros. A child that does not touch the device is harmless then, and so is one that
//! does: calls are refused, and dropping does nothing. Private memory needs no care: peers write to the parent's, of which
//! fork has made a copy for the child.
//!
//! This hangs on pthread_atfork(3): children made by a bare clone(2) keep what they inherit.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use verbs::{Error, Result};

/// What a child must not have.
struct Belongings {
    descriptors: BTreeSet<RawFd>,
    /// Mappings of shared memory: where, how many bytes, and how many of them may be accessed.
    mappings: BTreeMap<usize, (usize, usize)>,
}

static BELONGINGS: Mutex<Belongings> =
    Mutex::new(Belongings { descriptors: BTreeSet::new(), mappings: BTreeMap::new() });

/// How many forks lie between this process and the one that registered the handlers.
static FORKS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// While this thread forks: nobody changes the belongings.
    static FORKING: RefCell<Option<MutexGuard<'static, Belongings>>> = const { RefCell::new(None) };
}

fn belongings() -> MutexGuard<'static, Belongings> {
    // Nothing panics while it holds the lock.
    BELONGINGS.lock().unwrap_or_else(|e| e.into_inner())
}

/// In which process something was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkGuard(u32);

impl ForkGuard {
    /// Here. Forks are seen from now on.
    pub fn here() -> Result<Self> {
        static READY: OnceLock<Result<OwnedFd>> = OnceLock::new();
        match READY.get_or_init(register) {
            Ok(_) => Ok(Self(FORKS.load(Ordering::Relaxed))),
            Err(why) => Err(why.clone()),
        }
    }

    /// Whether that was a parent of this process.
    #[inline]
    pub fn is_elsewhere(self) -> bool {
        FORKS.load(Ordering::Relaxed) != self.0
    }

    /// Refuses a call in a forked child.
    #[inline]
    pub fn check(self) -> Result<()> {
        if self.is_elsewhere() { Err(Error::Forked) } else { Ok(()) }
    }
}

/// The descriptor that stands for all of them in a child; set before the handlers are.
static VOID: OnceLock<RawFd> = OnceLock::new();

fn register() -> Result<OwnedFd> {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    let void = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())
        .map_err(|e| Error::system("cannot open /dev/null, which forked children need", e))?;
    VOID.get_or_init(|| void.as_raw_fd());
    // SAFETY: the handlers are functions that live as long as the program. Test: crates/fabric/tests/forks.rs.
    match unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) } {
        0 => Ok(void),
        errno => Err(Error::system("cannot prepare for forks", std::io::Error::from_raw_os_error(errno))),
    }
}

extern "C" fn before() {
    // Late in a thread's end there is no place for the lock any more: such a child keeps what it inherits.
    let _ = FORKING.try_with(|forking| forking.replace(Some(belongings())));
}

extern "C" fn in_parent() {
    let _ = FORKING.try_with(RefCell::take);
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let held = FORKING.try_with(RefCell::take).ok().flatten();
    let (Some(held), Some(void)) = (held, VOID.get()) else { return };
    for descriptor in &held.descriptors {
        // SAFETY: it is ours, and stays open, as something that reaches nobody. dup3(2) may be called here.
        unsafe { libc::dup3(*void, *descriptor, libc::O_CLOEXEC) };
    }
    for (&at, &(len, open)) in &held.mappings {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        let at = at as *mut libc::c_void;
        // SAFETY: the range is mapped by a segment, of which the child has the only thread; what refers to it are atomics,
        // for which zero is a value. Both are mere system calls.
        unsafe {
            libc::mmap(at, len, libc::PROT_NONE, flags, -1, 0);
            libc::mprotect(at, open, libc::PROT_READ | libc::PROT_WRITE);
        }
    }
}

/// A descriptor of a device: no use to a forked child.
#[derive(Debug)]
pub struct Fd(OwnedFd);

impl From<OwnedFd> for Fd {
    fn from(fd: OwnedFd) -> Self {
        belongings().descriptors.insert(fd.as_raw_fd());
        Self(fd)
    }
}

impl AsFd for Fd {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Fd {
    fn drop(&mut self) {
        // Before it is closed: afterwards the number may be somebody else's.
        belongings().descriptors.remove(&self.0.as_raw_fd());
    }
}

/// Shared memory is mapped at `at` from now on; none of it may be accessed yet.
pub fn mapped(at: *mut u8, len: usize) {
    belongings().mappings.insert(at.addr(), (len, 0));
}

/// So many bytes of what is mapped at `at` may be accessed.
pub fn grown(at: *mut u8, open: usize) {
    if let Some(mapping) = belongings().mappings.get_mut(&at.addr()) {
        mapping.1 = open;
    }
}

/// It is being unmapped, by `unmap`.
pub fn unmapped(at: *mut u8, unmap: impl FnOnce()) {
    let mut belongings = belongings();
    belongings.mappings.remove(&at.addr());
    unmap();
}
