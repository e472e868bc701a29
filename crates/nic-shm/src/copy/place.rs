//! Data path: placement. Copies from the engine to the peer's memory.
//!
//! There are three ways to access the other side's memory: mapped (NIC memory, or the same process), across
//! processes by process_vm_readv/writev(2), or through the owner (module `service_client`) where the kernel forbids
//! that.

use std::ops::Range;

use crate::copy::bounce;
use nic_util::sg_list::is_accessible;
pub(crate) use nic_util::sg_list::{
    Fault as FaultSide, SGE_MAX, SgList, copy_last_byte_last, gather, scatter,
};
use nic_util::string_moves;

/// Why a copy failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyError {
    /// The initiator's own memory is registered but not mapped any more, or not writable.
    Local,
    /// The peer's memory is registered but not accessible any more.
    Access,
    /// The other process has ended.
    Gone,
}

/// The direction of a copy, seen from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyDirection {
    /// From local memory to the other process.
    Out,
    /// From the other process to local memory.
    In,
}

/// Copies between local memory and private memory of another process. Blocks whose distance would slow the kernel down
/// ([`string_moves`]) go through a bounce buffer: the kernel copies at distance 0, and this process does the rest.
pub(crate) fn process_vm_copy(
    pid: i32,
    local: &SgList,
    remote: &SgList,
    direction: CopyDirection,
) -> Result<(), CopyError> {
    let total = local.total().min(remote.total());
    let mut done = 0;
    while done < total {
        let slow = next_slow_block(local, remote, done, direction);
        let direct = slow.as_ref().map_or(total, |block| block.start) - done;
        done += if direct > 0 {
            let (l, r) = (local.part(done, direct), remote.part(done, direct));
            process_vm(pid, l.as_slice(), r.as_slice(), direction)
        } else {
            let len = slow.map_or(0, |block| block.end - block.start).min(bounce::LEN as u64);
            bounced(pid, &local.part(done, len), &remote.part(done, len), direction)
        }
        .map_err(|error| match error {
            // The kernel does not report which side failed.
            CopyError::Access if !is_accessible(local, direction == CopyDirection::In) => CopyError::Local,
            error => error,
        })?;
    }
    Ok(())
}

/// The first block from offset `from` on that is contiguous on both sides, long enough for a bounce buffer to pay, and at a
/// slow distance; as offsets in the whole copy.
fn next_slow_block(
    local: &SgList,
    remote: &SgList,
    from: u64,
    direction: CopyDirection,
) -> Option<Range<u64>> {
    let (mut locals, mut remotes) = (local.as_slice().iter(), remote.as_slice().iter());
    let (mut l, mut r) = (*locals.next()?, *remotes.next()?);
    let mut at = 0;
    loop {
        let skipped = (from.saturating_sub(at) as usize).min(l.iov_len).min(r.iov_len);
        let len = l.iov_len.min(r.iov_len);
        let (here, there) = (l.iov_base.addr() + skipped, r.iov_base.addr() + skipped);
        let (target, source) = if direction == CopyDirection::Out { (there, here) } else { (here, there) };
        if len - skipped >= bounce::BLOCK_MIN && string_moves::is_slow_distance(target, source) {
            return Some(at + skipped as u64..at + len as u64);
        }
        at += len as u64;
        advance(&mut l, len, &mut locals)?;
        advance(&mut r, len, &mut remotes)?;
    }
}

/// Removes the first `len` bytes of a piece, which becomes the next one if nothing is left. `None` after the last.
fn advance(piece: &mut libc::iovec, len: usize, rest: &mut std::slice::Iter<'_, libc::iovec>) -> Option<()> {
    piece.iov_len -= len;
    piece.iov_base = piece.iov_base.wrapping_byte_add(len);
    if piece.iov_len == 0 {
        *piece = *rest.next()?;
    }
    Some(())
}

/// Copies up to [`bounce::LEN`] bytes through a buffer at the same offset in its page as the remote memory. Returns the number
/// of bytes copied, at least 1.
fn bounced(pid: i32, local: &SgList, remote: &SgList, direction: CopyDirection) -> Result<u64, CopyError> {
    let offset = remote.as_slice().first().map_or(0, |piece| piece.iov_base.addr());
    bounce::with_buffer(offset, |at| {
        let buffer = [libc::iovec { iov_base: at.cast(), iov_len: local.total() as usize }];
        // SAFETY: the buffer has room for the bytes, and no other copy uses it now. Test: copies_at_slow_distances_are_whole.
        unsafe {
            if direction == CopyDirection::Out {
                gather(local, at).map_err(|_| CopyError::Local)?;
            }
            let copied = process_vm(pid, &buffer, remote.as_slice(), direction)?;
            if direction == CopyDirection::In {
                scatter(at, &local.part(0, copied)).map_err(|_| CopyError::Local)?;
            }
            Ok(copied)
        }
    })
    // Only in a thread that ends.
    .unwrap_or_else(|| process_vm(pid, local.as_slice(), remote.as_slice(), direction))
}

/// One system call. Returns the number of bytes copied, at least 1; [`CopyError::Access`] if either side is not accessible.
fn process_vm(
    pid: i32,
    local: &[libc::iovec],
    remote: &[libc::iovec],
    direction: CopyDirection,
) -> Result<u64, CopyError> {
    let local = split_last_byte(local, direction);
    let local = local.as_slice();
    // SAFETY: the protection table allows the local memory; the kernel checks both sides.
    let n = unsafe {
        let (lp, ln, rp, rn) = (local.as_ptr(), local.len() as u64, remote.as_ptr(), remote.len() as u64);
        match direction {
            CopyDirection::Out => libc::process_vm_writev(pid, lp, ln, rp, rn, 0),
            CopyDirection::In => libc::process_vm_readv(pid, lp, ln, rp, rn, 0),
        }
    };
    match n {
        n if n > 0 => Ok(n as u64),
        n if n < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) => {
            Err(CopyError::Gone)
        }
        _ => Err(CopyError::Access),
    }
}

/// Copies between local memory and memory of the peer that this process has mapped.
///
/// # Safety
/// `at` has room for all entries; as with [`copy_last_byte_last`], neither side needs to be mapped.
#[inline]
pub(crate) unsafe fn copy_mapped(
    local: &SgList,
    at: *mut u8,
    direction: CopyDirection,
) -> Result<(), CopyError> {
    // SAFETY: the caller's contract.
    let moved = unsafe {
        match direction {
            CopyDirection::Out => gather(local, at),
            CopyDirection::In => scatter(at, local),
        }
    };
    moved.map_err(|side| match (side, direction) {
        (FaultSide::Source, CopyDirection::Out) | (FaultSide::Target, CopyDirection::In) => CopyError::Local,
        _ => CopyError::Access,
    })
}

/// Splits off the last outgoing byte as a separate entry, which the kernel then copies separately. It copies
/// with string moves, whose stores may become visible in any order, but not before those of an earlier one
/// (Intel SDM vol. 3, 9.2.4). So a process that sees the last byte sees all.
fn split_last_byte(list: &[libc::iovec], direction: CopyDirection) -> SplitIovecs {
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut split = SplitIovecs { list: [nothing; SGE_MAX + 1], count: list.len() };
    split.list[..list.len()].copy_from_slice(list);
    if direction == CopyDirection::Out
        && let Some(last) = list.len().checked_sub(1)
        && split.list[last].iov_len > 1
    {
        let rest = &mut split.list[last];
        rest.iov_len -= 1;
        let at = rest.iov_base.cast::<u8>().wrapping_add(rest.iov_len).cast();
        split.list[last + 1] = libc::iovec { iov_base: at, iov_len: 1 };
        split.count += 1;
    }
    split
}

/// A list of entries whose last one may be split.
struct SplitIovecs {
    list: [libc::iovec; SGE_MAX + 1],
    count: usize,
}

impl SplitIovecs {
    fn as_slice(&self) -> &[libc::iovec] {
        &self.list[..self.count]
    }
}

/// The pid of this process, for accesses to its own memory by the kernel.
pub(crate) fn own_pid() -> i32 {
    std::process::id() as i32
}

/// Checks that this process may read another's memory: it must read `expected` at `addr`.
pub(crate) fn probe_kernel_copy(pid: i32, addr: u64, expected: u64) -> std::io::Result<()> {
    let mut word = 0_u64;
    let (mut local, mut remote) = (SgList::new(), SgList::new());
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
    fn last_byte_is_copied_separately() {
        let mut bytes = [0_u8; 64];
        for count in 1..=SGE_MAX {
            let mut list = SgList::new();
            (0..count).for_each(|i| list.push(bytes.as_mut_ptr().wrapping_add(i * 4), 1 + i as u64 % 3));
            let (out, back) = (CopyDirection::Out, CopyDirection::In);
            let every = |list: &[libc::iovec]| -> Vec<usize> {
                list.iter().flat_map(|p| (0..p.iov_len).map(|i| p.iov_base.addr() + i)).collect()
            };
            for direction in [out, back] {
                let split = split_last_byte(list.as_slice(), direction);
                assert_eq!(every(split.as_slice()), every(list.as_slice()), "{count} {direction:?}");
                assert!(direction == back || split.as_slice().last().is_some_and(|last| last.iov_len == 1));
            }
        }
        assert!(split_last_byte(&[], CopyDirection::Out).as_slice().is_empty());
    }

    /// Goal: copies whose blocks go through the bounce buffer arrive whole. Method: this process copies to itself, both ways,
    /// with one piece and with several, around the lengths of a block and of the buffer, at every kind of distance.
    #[test]
    fn copies_at_slow_distances_are_whole() {
        let len = 3 * bounce::LEN + 8192;
        let src: Vec<u8> = (0..len as u32).map(|i| (i * 31 + i / 251) as u8).collect();
        let mut dst = vec![0_u8; len + 2 * 4096];
        let lengths = [bounce::BLOCK_MIN, bounce::LEN, bounce::LEN + 1, 3 * bounce::LEN + 5];
        for n in lengths.into_iter().flat_map(|n| [n - 1, n]) {
            for distance in [0, 1, 8, 15, 16, 40] {
                for (direction, pieces) in [(CopyDirection::In, 1), (CopyDirection::Out, 3)] {
                    let start = (src.as_ptr().addr() + distance).wrapping_sub(dst.as_ptr().addr()) % 4096;
                    dst.fill(0);
                    let (mut from, mut to) = (SgList::new(), SgList::new());
                    from.push(src.as_ptr().cast_mut(), n as u64);
                    for piece in 0..pieces {
                        let (begin, end) = (n * piece / pieces, n * (piece + 1) / pieces);
                        to.push(dst.as_mut_ptr().wrapping_add(start + begin), (end - begin) as u64);
                    }
                    let (local, remote) =
                        if direction == CopyDirection::In { (&to, &from) } else { (&from, &to) };
                    let copied = if n <= bounce::LEN {
                        bounced(own_pid(), local, remote, direction)
                    } else {
                        process_vm_copy(own_pid(), local, remote, direction).map(|()| n as u64)
                    };
                    assert_eq!(copied, Ok(n as u64));
                    assert!(dst[start..start + n] == src[..n], "{n} bytes at {distance}, {direction:?}");
                    assert!(dst[..start].iter().chain(&dst[start + n..]).all(|byte| *byte == 0));
                }
            }
        }
    }

    /// Goal: of a list, exactly the blocks at slow distances are found. Method: pieces of both sides that begin at different
    /// offsets; a processor without slow distances finds none.
    #[test]
    fn slow_blocks_are_found_in_lists() {
        string_moves::detect();
        let page = |n: usize| std::ptr::without_provenance_mut::<u8>(n * 4096);
        let is_slow = string_moves::is_slow_distance(8, 0);
        let (mut local, mut remote) = (SgList::new(), SgList::new());
        local.push(page(100), 10_000);
        local.push(page(200).wrapping_add(10_000 - 8192 + 8), 20_000);
        remote.push(page(300), 30_000);
        let found = |from, direction| next_slow_block(&local, &remote, from, direction);
        let wanted = |range: Range<u64>| is_slow.then_some(range);
        assert_eq!(found(0, CopyDirection::In), wanted(10_000..30_000));
        assert_eq!(found(12_000, CopyDirection::In), wanted(12_000..30_000));
        assert_eq!(found(30_000 - 10, CopyDirection::In), None, "what is left is short");
        assert_eq!(found(0, CopyDirection::Out), None, "8 bytes before, not behind");
    }

    /// Goal: a side that is not accessible is named, through the bounce buffer as well.
    #[test]
    fn bounced_copies_name_the_side_that_failed() {
        uaccess::arm().expect("a handler");
        let mut bytes = vec![0_u8; bounce::BLOCK_MIN];
        let (mut good, mut bad) = (SgList::new(), SgList::new());
        good.push(bytes.as_mut_ptr(), bytes.len() as u64);
        bad.push(std::ptr::without_provenance_mut(4096), bytes.len() as u64);
        for direction in [CopyDirection::In, CopyDirection::Out] {
            assert_eq!(bounced(own_pid(), &bad, &good, direction), Err(CopyError::Local), "{direction:?}");
            assert_eq!(bounced(own_pid(), &good, &bad, direction), Err(CopyError::Access), "{direction:?}");
        }
    }

    #[test]
    fn process_vm_copy_reports_an_ended_process() {
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let pid = child.id() as i32;
        child.wait().expect("its end");
        let mut word = 0_u64;
        let mut piece = SgList::new();
        piece.push((&raw mut word).cast(), 8);
        assert_eq!(process_vm_copy(pid, &piece, &piece, CopyDirection::In), Err(CopyError::Gone));
    }
}
