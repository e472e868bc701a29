//! Measures what the machine itself can do between two processes: the bound for every measured number.
//!
//! Nothing here is a NIC. [`Region`] is memory, private or shared; [`Region::bounce`] passes one cache line
//! (or one line for each direction) back and forth, [`Region::futex_rounds`] a wake-up, [`Region::copy_to`]
//! is memcpy, [`PeerMemory::write_from`] process_vm_writev, [`empty_syscalls`] the way into the kernel and
//! back, [`Tcp`] a plain socket. The caller reads the clock. No reference to a region's bytes exists: they
//! are accessed by copies and atomics only.

mod copies;
mod tcp;

pub use copies::{COPY_LEN, CopyCost, PlacedCopy, copy_costs};
pub use tcp::{Nonces, Tcp, nonces};

use std::ffi::c_void;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, Mode, OFlags};
use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

/// Distance of the two lines of a mailbox: beyond the reach of the prefetcher that fetches line pairs.
const MAILBOX_GAP: usize = 256;
/// Polls between two calls of `give_up`.
const POLLS_PER_GIVE_UP_CHECK: u64 = 1 << 16;
/// Polls before each further one is preceded by a yield, for two processes on one core.
const POLLS_BEFORE_YIELD: u64 = 1 << 14;

/// The end of a ping-pong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sends first.
    Ping,
    /// Answers.
    Pong,
}

/// How many cache lines a ping-pong uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// One line that both write: the least that two cores can exchange.
    One,
    /// One line for each direction, as one-way messages to separate buffers need.
    Two,
}

/// Page-aligned memory of this process; shared if it was created or opened so.
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
    fd: Option<OwnedFd>,
}

// SAFETY: `base..base+len` stays mapped as long as the region lives and is reached by raw copies and atomics
// only, from any thread. Test: two_threads_bounce.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and no pointer into it outlives the region. Test: all of this file.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast::<c_void>(), self.len) };
    }
}

impl Region {
    /// Memory of this process alone.
    ///
    /// # Errors
    /// The system's error, for length 0 or too little memory.
    pub fn private(len: usize) -> io::Result<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: an anonymous mapping at an address of the kernel's choice disturbs nothing. Test:
        // copy_to_copies_the_given_length.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, prot, flags) }?;
        Ok(Self { base: non_null(base)?, len, fd: None })
    }

    /// Memory that another process of this user can [`open`](Self::open); it has no name and leaves nothing behind.
    ///
    /// # Errors
    /// The system's error.
    pub fn shared(len: usize) -> io::Result<Self> {
        let fd = rustix::fs::memfd_create("nicety-floor", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        Self::map(fd, len)
    }

    /// Maps the shared region that process `pid` has as descriptor `fd`.
    ///
    /// # Errors
    /// The system's error if there is no such descriptor or it belongs to another user; `InvalidData` if the
    /// region is smaller.
    pub fn open(pid: u32, fd: i32, len: usize) -> io::Result<Self> {
        let path = format!("/proc/{pid}/fd/{fd}");
        let fd = rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let size = rustix::fs::fstat(&fd)?.st_size;
        if u64::try_from(size).unwrap_or(0) < len as u64 {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the shared region is too small"));
        }
        Self::map(fd, len)
    }

    fn map(fd: OwnedFd, len: usize) -> io::Result<Self> {
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing; the file is a memory
        // file of at least `len` bytes that nobody truncates. Test: opened_region_shares_the_bytes.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, prot, flags, fd.as_fd(), 0) }?;
        Ok(Self { base: non_null(base)?, len, fd: Some(fd) })
    }

    /// The descriptor, for the other process to open; `None` for private memory.
    #[must_use]
    pub fn fd(&self) -> Option<i32> {
        self.fd.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// The address in this process.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.base.as_ptr().addr() as u64
    }

    /// The length in bytes.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Sets every byte, which also makes every page present.
    pub fn fill(&self, byte: u8) {
        // SAFETY: the whole range is mapped writable and no reference to it exists. Test: copy_to_copies_the_given_length.
        unsafe { std::ptr::write_bytes(self.base.as_ptr(), byte, self.len) };
    }

    /// Reads one byte, for checks; `None` beyond the end.
    #[must_use]
    pub fn byte(&self, offset: usize) -> Option<u8> {
        // SAFETY: in bounds by the condition; volatile because another process may write it. Test:
        // copy_to_copies_the_given_length.
        (offset < self.len).then(|| unsafe { self.base.as_ptr().add(offset).read_volatile() })
    }

    /// Copies the first `len` bytes to the beginning of another region by memcpy, `times` times.
    ///
    /// # Errors
    /// `InvalidInput` if either region is smaller, or both are the same.
    pub fn copy_to(&self, to: &Self, len: usize, times: u64) -> io::Result<()> {
        if len > self.len || len > to.len || self.base == to.base {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the copy does not fit"));
        }
        for _ in 0..times {
            let (from, to) = std::hint::black_box((self.base.as_ptr(), to.base.as_ptr()));
            // SAFETY: both ranges are mapped and have `len` bytes; two mappings never overlap. A peer that
            // writes at the same time mixes the bytes, nothing worse. Test: copy_to_copies_the_given_length.
            unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        }
        Ok(())
    }

    fn word(&self, offset: usize) -> io::Result<&AtomicU64> {
        if !offset.is_multiple_of(8) || offset + 8 > self.len {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the region is too small"));
        }
        // SAFETY: aligned (the base is a page) and in bounds; lives as long as `self`. Test: two_threads_bounce.
        Ok(unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast::<u64>()) })
    }

    fn half_word(&self, offset: usize) -> io::Result<&AtomicU32> {
        self.word(offset)?;
        // SAFETY: `word` has checked more than this needs. Test: two_threads_wake_each_other.
        Ok(unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast::<u32>()) })
    }

    /// Passes a token back and forth `rounds` times and returns the next `from`. Both ends call it with the
    /// same `lines`, `from` (0 at first) and `rounds`; polls are `spacing` cycles apart. `give_up` is called
    /// from time to time.
    ///
    /// # Errors
    /// `TimedOut` if `give_up` returns true; `InvalidInput` for a region smaller than a page.
    pub fn bounce(
        &self,
        (role, lines): (Role, Lines),
        from: u64,
        rounds: u64,
        spacing: u64,
        give_up: &dyn Fn() -> bool,
    ) -> io::Result<u64> {
        let near = self.word(0)?;
        let far = if lines == Lines::One { near } else { self.word(MAILBOX_GAP)? };
        let (mine, theirs) = if role == Role::Ping { (near, far) } else { (far, near) };
        for token in (from..from + 2 * rounds).step_by(2) {
            match role {
                Role::Ping => {
                    mine.store(token + 1, Ordering::Release);
                    poll_for(theirs, token + 2, spacing, give_up)?;
                }
                Role::Pong => {
                    poll_for(theirs, token + 1, spacing, give_up)?;
                    mine.store(token + 2, Ordering::Release);
                }
            }
        }
        Ok(from + 2 * rounds)
    }

    /// Wakes the peer and is woken `rounds` times through a futex, without spinning; returns the next `from`.
    ///
    /// # Errors
    /// As [`bounce`](Self::bounce).
    pub fn futex_rounds(
        &self,
        role: Role,
        from: u32,
        rounds: u32,
        give_up: &dyn Fn() -> bool,
    ) -> io::Result<u32> {
        // In the other half of the page, so that an earlier bounce has no effect here.
        let word = self.half_word(2048)?;
        let mut token = from;
        for _ in 0..rounds {
            if role == Role::Ping {
                set_and_wake(word, token.wrapping_add(1));
                wait_for_value(word, token.wrapping_add(2), give_up)?;
            } else {
                wait_for_value(word, token.wrapping_add(1), give_up)?;
                set_and_wake(word, token.wrapping_add(2));
            }
            token = token.wrapping_add(2);
        }
        Ok(token)
    }
}

fn non_null(base: *mut c_void) -> io::Result<NonNull<u8>> {
    NonNull::new(base.cast::<u8>()).ok_or_else(|| io::Error::other("mapped at address 0"))
}

#[inline]
fn poll_for(word: &AtomicU64, value: u64, spacing: u64, give_up: &dyn Fn() -> bool) -> io::Result<()> {
    let mut polls = 0u64;
    while word.load(Ordering::Acquire) != value {
        spin_for(spacing);
        polls += 1;
        if polls > POLLS_BEFORE_YIELD {
            std::thread::yield_now();
        }
        if polls.is_multiple_of(POLLS_PER_GIVE_UP_CHECK) && give_up() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the other process does not answer"));
        }
    }
    Ok(())
}

/// Spins for `cycles` without accessing memory.
#[inline]
fn spin_for(cycles: u64) {
    if cycles == 0 {
        return;
    }
    #[cfg(target_arch = "x86_64")]
    {
        // SAFETY: RDTSC reads a counter and touches no memory. Test: two_threads_bounce.
        let began = unsafe { std::arch::x86_64::_rdtsc() };
        // SAFETY: as above.
        while unsafe { std::arch::x86_64::_rdtsc() }.wrapping_sub(began) < cycles {}
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::spin_loop();
}

fn set_and_wake(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Release);
    // Only a bad address or an unknown flag can fail here, and neither can occur.
    let _ = futex::wake(word, futex::Flags::empty(), 1);
}

fn wait_for_value(word: &AtomicU32, value: u32, give_up: &dyn Fn() -> bool) -> io::Result<()> {
    let second = futex::Timespec { tv_sec: 1, tv_nsec: 0 };
    loop {
        let seen = word.load(Ordering::Acquire);
        if seen == value {
            return Ok(());
        }
        // Woken, changed before, interrupted by a signal, or timed out: check again in all cases.
        if futex::wait(word, futex::Flags::empty(), seen, Some(&second))
            .is_err_and(|e| e == rustix::io::Errno::TIMEDOUT)
            && give_up()
        {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the other process does not answer"));
        }
    }
}

/// Private memory of another process, as described by that process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerMemory {
    pid: i32,
    addr: u64,
    len: usize,
}

impl PeerMemory {
    /// `len` bytes at `addr` of process `pid`.
    ///
    /// # Errors
    /// `InvalidInput` for this process itself, whose memory must not be written without the compiler's
    /// knowledge.
    pub fn new(pid: u32, addr: u64, len: usize) -> io::Result<Self> {
        match i32::try_from(pid) {
            Ok(other) if other > 0 && pid != std::process::id() => Ok(Self { pid: other, addr, len }),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "not another process")),
        }
    }

    /// Copies the first `len` bytes of a region to the beginning of this memory by process_vm_writev(2),
    /// `times` times.
    ///
    /// # Errors
    /// The kernel's error: no permission, no such process, no such memory; `InvalidInput` if the copy does
    /// not fit.
    pub fn write_from(&self, from: &Region, len: usize, times: u64) -> io::Result<()> {
        if len > from.len || len > self.len {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the copy does not fit"));
        }
        let local = libc::iovec { iov_base: from.base.as_ptr().cast::<c_void>(), iov_len: len };
        let remote_base = std::ptr::with_exposed_provenance_mut::<c_void>(self.addr as usize);
        let remote = libc::iovec { iov_base: remote_base, iov_len: len };
        for _ in 0..times {
            // SAFETY: `local` is mapped (checked above); the kernel checks `remote`, which is never of this
            // process (`new`). Test: peer_memory_refuses_bad_addresses_and_this_process.
            let written = unsafe { libc::process_vm_writev(self.pid, &local, 1, &remote, 1, 0) };
            match usize::try_from(written) {
                Err(_) => return Err(io::Error::last_os_error()),
                Ok(written) if written < len => {
                    return Err(io::Error::other("process_vm_writev wrote only a part"));
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }
}

/// Makes `times` system calls that do nothing (getppid).
pub fn empty_syscalls(times: u64) {
    for _ in 0..times {
        // SAFETY: getppid takes nothing, touches nothing and cannot fail. Test: empty_syscalls_return.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn patience() -> impl Fn() -> bool {
        let began = Instant::now();
        move || began.elapsed() > Duration::from_secs(60)
    }

    #[test]
    fn copy_to_copies_the_given_length() {
        let (from, to) = (Region::private(5000).expect("memory"), Region::shared(5000).expect("memory"));
        from.fill(7);
        from.copy_to(&to, 4999, 2).expect("fits");
        assert_eq!((to.byte(0), to.byte(4998), to.byte(4999)), (Some(7), Some(7), Some(0)));
        assert!(from.copy_to(&to, 5001, 1).is_err());
        assert!(from.copy_to(&from, 1, 1).is_err());
        assert_eq!(to.byte(5000), None);
    }

    #[test]
    fn opened_region_shares_the_bytes() {
        let one = Region::shared(4096).expect("memory");
        let fd = one.fd().expect("shared");
        let two = Region::open(std::process::id(), fd, 4096).expect("own descriptor");
        one.fill(9);
        assert_eq!(two.byte(4095), Some(9));
        assert!(Region::open(std::process::id(), fd, 4097).is_err());
        assert!(Region::open(std::process::id(), -1, 1).is_err());
        assert_eq!(Region::private(1).expect("memory").fd(), None);
    }

    #[test]
    fn two_threads_bounce() {
        for lines in [Lines::One, Lines::Two] {
            let page = Region::shared(4096).expect("memory");
            std::thread::scope(|s| {
                s.spawn(|| page.bounce((Role::Pong, lines), 0, 500, 25, &patience()).expect("answered"));
                assert_eq!(page.bounce((Role::Ping, lines), 0, 500, 0, &patience()).expect("answered"), 1000);
            });
        }
    }

    #[test]
    fn two_threads_wake_each_other() {
        let page = Region::shared(4096).expect("memory");
        std::thread::scope(|s| {
            s.spawn(|| page.futex_rounds(Role::Pong, 0, 100, &patience()).expect("answered"));
            assert_eq!(page.futex_rounds(Role::Ping, 0, 100, &patience()).expect("answered"), 200);
        });
    }

    #[test]
    fn bounce_fails_on_timeout_and_for_a_small_region() {
        let page = Region::shared(4096).expect("memory");
        let why = page.bounce((Role::Ping, Lines::One), 0, 1, 0, &|| true).expect_err("no peer");
        assert_eq!(why.kind(), io::ErrorKind::TimedOut);
        let why = page.futex_rounds(Role::Ping, 0, 1, &|| true).expect_err("no peer");
        assert_eq!(why.kind(), io::ErrorKind::TimedOut);
        let small = Region::private(8).expect("memory");
        assert!(small.futex_rounds(Role::Ping, 0, 1, &|| true).is_err());
    }

    /// A forked child has the same mappings as this process, but `sleep` is another program, so only the
    /// refusals are certain: its memory is not at our address.
    #[test]
    fn peer_memory_refuses_bad_addresses_and_this_process() {
        let from = Region::private(4096).expect("memory");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let peer = PeerMemory::new(child.id(), 8, 4096).expect("another process");
        assert!(peer.write_from(&from, 4096, 1).is_err(), "nothing is mapped at address 8");
        assert!(peer.write_from(&from, 4097, 1).is_err());
        child.kill().expect("killed");
        child.wait().expect("reaped");
        assert!(PeerMemory::new(std::process::id(), 8, 1).is_err());
        assert!(PeerMemory::new(0, 8, 1).is_err());
    }

    #[test]
    fn empty_syscalls_return() {
        empty_syscalls(10);
    }
}
