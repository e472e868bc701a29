//! Data path: placement, the only code that writes into user memory. From the engine, to the peer's memory.
//!
//! Three ways into the other side's memory: mapped (NIC memory, or the same process), across processes by
//! process_vm_readv/writev(2), or asking the owner (module `service`) where the kernel forbids that.

use std::mem::MaybeUninit;
use std::sync::atomic::{Ordering, compiler_fence, fence};

/// Pieces in a work request, at most.
pub(super) const SGE_MAX: usize = 16;

/// Local memory of one request: up to [`SGE_MAX`] pieces that the protection table allowed.
pub(super) struct Pieces {
    list: [MaybeUninit<libc::iovec>; SGE_MAX],
    count: usize,
    total: u64,
}

impl Pieces {
    #[inline]
    pub(super) fn new() -> Self {
        Self { list: [const { MaybeUninit::uninit() }; SGE_MAX], count: 0, total: 0 }
    }

    /// Appends a piece; nothing happens beyond the maximum, which posting has checked.
    #[inline]
    pub(super) fn push(&mut self, at: *mut u8, len: u64) {
        if self.count < SGE_MAX && len > 0 {
            self.list[self.count].write(libc::iovec { iov_base: at.cast(), iov_len: len as usize });
            self.count += 1;
            self.total += len;
        }
    }

    #[inline]
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    #[inline]
    fn as_slice(&self) -> &[libc::iovec] {
        // SAFETY: the first `count` entries are written. Test: scatter_and_gather_cut_alike.
        unsafe { std::slice::from_raw_parts(self.list.as_ptr().cast(), self.count) }
    }

    /// The pieces of the bytes `from..from+len`.
    pub(super) fn part(&self, mut from: u64, mut len: u64) -> Self {
        let mut part = Self::new();
        for piece in self.as_slice() {
            let size = piece.iov_len as u64;
            let take = size.saturating_sub(from).min(len);
            // SAFETY: from < size where anything is taken, so the pointer stays in the piece.
            part.push(piece.iov_base.cast::<u8>().wrapping_add(from.min(size) as usize), take);
            from = from.saturating_sub(size);
            len -= take;
        }
        part
    }
}

/// Why a copy did not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The memory is registered but not (any more) mapped, or not writable, on the side that owns it.
    Access,
    /// The other process is gone.
    Gone,
}

/// Copies `n` bytes such that whoever sees the last byte sees all.
///
/// # Safety
/// Both ranges must be mapped; they may overlap, and others may write them meanwhile.
#[inline]
pub(super) unsafe fn copy_last_byte_last(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the caller's contract; pointer arithmetic stays inside the two ranges. Test: copies_every_size.
    unsafe {
        match n {
            0 => {}
            1 => dst.write_volatile(src.read()),
            2 => dst.cast::<[u8; 2]>().write_volatile(src.cast::<[u8; 2]>().read()),
            4 => dst.cast::<u32>().write_unaligned(src.cast::<u32>().read_unaligned()),
            8 => dst.cast::<u64>().write_unaligned(src.cast::<u64>().read_unaligned()),
            _ if n < 8 => {
                std::ptr::copy(src, dst, n - 1);
                compiler_fence(Ordering::SeqCst);
                dst.add(n - 1).write_volatile(src.add(n - 1).read());
            }
            _ => {
                let last = src.add(n - 8).cast::<u64>().read_unaligned();
                std::ptr::copy(src, dst, n - 8);
                fence(Ordering::Release);
                compiler_fence(Ordering::SeqCst);
                dst.add(n - 8).cast::<u64>().write_unaligned(last);
            }
        }
    }
}

/// Begins to fetch the line of a word that will be read soon.
#[inline]
pub(super) fn fetch_soon<T>(word: &T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint that reads nothing architecturally, of a line that a reference proves mapped.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

/// Copies all pieces, in order, to mapped memory.
///
/// # Safety
/// `dst` must have room for [`Pieces::total`] bytes, and the pieces must be mapped.
#[inline]
pub(super) unsafe fn gather(src: &Pieces, mut dst: *mut u8) {
    for piece in src.as_slice() {
        // SAFETY: the caller's contract.
        unsafe {
            copy_last_byte_last(dst, piece.iov_base.cast(), piece.iov_len);
            dst = dst.add(piece.iov_len);
        }
    }
}

/// Copies mapped memory, in order, to all pieces.
///
/// # Safety
/// `src` must hold [`Pieces::total`] bytes, and the pieces must be mapped.
#[inline]
pub(super) unsafe fn scatter(mut src: *const u8, dst: &Pieces) {
    for piece in dst.as_slice() {
        // SAFETY: the caller's contract.
        unsafe {
            copy_last_byte_last(piece.iov_base.cast(), src, piece.iov_len);
            src = src.add(piece.iov_len);
        }
    }
}

/// Which way bytes go, seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// From local pieces to the other process.
    Out,
    /// From the other process to local pieces.
    In,
}

/// Copies between local pieces and pieces of another process's private memory.
pub(super) fn across(pid: i32, local: &Pieces, remote: &Pieces, way: Way) -> Result<(), Fault> {
    let total = local.total().min(remote.total());
    let mut done = 0;
    while done < total {
        let (l, r) = (local.part(done, total - done), remote.part(done, total - done));
        let (l, r) = (l.as_slice(), r.as_slice());
        // SAFETY: the local pieces are mapped (the protection table says so); the kernel checks the remote ones.
        let n = unsafe {
            let (lp, ln, rp, rn) = (l.as_ptr(), l.len() as u64, r.as_ptr(), r.len() as u64);
            match way {
                Way::Out => libc::process_vm_writev(pid, lp, ln, rp, rn, 0),
                Way::In => libc::process_vm_readv(pid, lp, ln, rp, rn, 0),
            }
        };
        match n {
            n if n > 0 => done += n as u64,
            0 => return Err(Fault::Access),
            _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) => {
                return Err(Fault::Gone);
            }
            _ => return Err(Fault::Access),
        }
    }
    Ok(())
}

/// Whether this process may read another's memory: what it reads at `addr` must be `expected`.
pub(super) fn probe(pid: i32, addr: u64, expected: u64) -> std::io::Result<()> {
    let mut word = 0_u64;
    let (mut local, mut remote) = (Pieces::new(), Pieces::new());
    local.push((&raw mut word).cast(), 8);
    remote.push(addr as *mut u8, 8);
    // SAFETY: the local word is ours; the kernel checks the remote address.
    let n = unsafe {
        libc::process_vm_readv(pid, local.as_slice().as_ptr(), 1, remote.as_slice().as_ptr(), 1, 0)
    };
    match n {
        8 if word == expected => Ok(()),
        n if n >= 0 => {
            Err(std::io::Error::other("it read something else; is the peer in another PID namespace?"))
        }
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_every_size() {
        let src: Vec<u8> = (0..300_u32).map(|i| i as u8 ^ 0x5a).collect();
        for n in 0..260 {
            for shift in 0..9 {
                let mut dst = vec![0_u8; 300];
                // SAFETY: both have 300 bytes, and n + shift < 300.
                unsafe { copy_last_byte_last(dst.as_mut_ptr().add(shift), src.as_ptr().add(1), n) };
                assert_eq!(dst[shift..shift + n], src[1..=n], "{n} bytes at {shift}");
                assert!(dst[..shift].iter().chain(&dst[shift + n..]).all(|&b| b == 0));
            }
        }
    }

    #[test]
    fn scatter_and_gather_cut_alike() {
        let mut bytes: Vec<u8> = (0..100).collect();
        let mut pieces = Pieces::new();
        let base = bytes.as_mut_ptr();
        for (from, len) in [(10_usize, 5), (50, 0), (0, 7), (90, 3)] {
            pieces.push(base.wrapping_add(from), len);
        }
        let expected = [10, 11, 12, 13, 14, 0, 1, 2, 3, 4, 5, 6, 90, 91, 92];
        let mut out = [0_u8; 15];
        // SAFETY: 15 bytes on both sides.
        unsafe { gather(&pieces, out.as_mut_ptr()) };
        assert_eq!(out, expected);
        for from in 0..15_u64 {
            for len in 0..=(15 - from) {
                let part = pieces.part(from, len);
                assert_eq!(part.total(), len);
                let mut got = vec![0_u8; len as usize];
                // SAFETY: `len` bytes on both sides.
                unsafe { gather(&part, got.as_mut_ptr()) };
                assert_eq!(got, expected[from as usize..(from + len) as usize]);
            }
        }
    }

    #[test]
    fn across_reports_a_process_that_is_gone() {
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let pid = child.id() as i32;
        child.wait().expect("its end");
        let mut word = 0_u64;
        let mut piece = Pieces::new();
        piece.push((&raw mut word).cast(), 8);
        assert_eq!(across(pid, &piece, &piece, Way::In), Err(Fault::Gone));
    }
}
