//! Data path: placement. Copies from the engine to the peer's memory.
//!
//! There are three ways to access the other side's memory: mapped (NIC memory, or the same process), across
//! processes by process_vm_readv/writev(2), or through the owner (module `service_client`) where the kernel forbids
//! that.

use nic_util::sg_list::is_accessible;
pub(crate) use nic_util::sg_list::{
    Fault as FaultSide, SGE_MAX, SgList, copy_last_byte_last, gather, scatter,
};

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

/// Copies between local memory and private memory of another process.
pub(crate) fn process_vm_copy(
    pid: i32,
    local: &SgList,
    remote: &SgList,
    direction: CopyDirection,
) -> Result<(), CopyError> {
    let total = local.total().min(remote.total());
    let mut done = 0;
    while done < total {
        let (l, r) = (local.part(done, total - done), remote.part(done, total - done));
        let (l, r) = (split_last_byte(l.as_slice(), direction), r.as_slice());
        let l = l.as_slice();
        // SAFETY: the protection table allows the local memory; the kernel checks both sides.
        let n = unsafe {
            let (lp, ln, rp, rn) = (l.as_ptr(), l.len() as u64, r.as_ptr(), r.len() as u64);
            match direction {
                CopyDirection::Out => libc::process_vm_writev(pid, lp, ln, rp, rn, 0),
                CopyDirection::In => libc::process_vm_readv(pid, lp, ln, rp, rn, 0),
            }
        };
        match n {
            n if n > 0 => done += n as u64,
            n if n < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) => {
                return Err(CopyError::Gone);
            }
            // The kernel does not report which side failed.
            _ if !is_accessible(local, direction == CopyDirection::In) => return Err(CopyError::Local),
            _ => return Err(CopyError::Access),
        }
    }
    Ok(())
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
