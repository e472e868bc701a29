//! Data path: placement. Copies from the engine to the peer's memory.
//!
//! There are three ways to access the other side's memory: mapped (NIC memory, or the same process), across
//! processes by process_vm_readv/writev(2), or through the owner (module `service`) where the kernel forbids
//! that.

use nic_util::sg_list::is_accessible;
pub(crate) use nic_util::sg_list::{
    Fault as FaultSide, SGE_MAX, SgList, copy_last_byte_last, gather, scatter,
};

/// Why a copy failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The initiator's own memory is registered but not mapped any more, or not writable.
    Local,
    /// The peer's memory is registered but not accessible any more.
    Access,
    /// The other process has ended.
    Gone,
}

/// The direction of a copy, seen from this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From local memory to the other process.
    Out,
    /// From the other process to local memory.
    In,
}

/// Copies between local memory and private memory of another process.
pub(crate) fn across(pid: i32, local: &SgList, remote: &SgList, way: Direction) -> Result<(), Fault> {
    let total = local.total().min(remote.total());
    let mut done = 0;
    while done < total {
        let (l, r) = (local.part(done, total - done), remote.part(done, total - done));
        let (l, r) = (last_byte_apart(l.as_slice(), way), r.as_slice());
        let l = l.as_slice();
        // SAFETY: the protection table allows the local memory; the kernel checks both sides.
        let n = unsafe {
            let (lp, ln, rp, rn) = (l.as_ptr(), l.len() as u64, r.as_ptr(), r.len() as u64);
            match way {
                Direction::Out => libc::process_vm_writev(pid, lp, ln, rp, rn, 0),
                Direction::In => libc::process_vm_readv(pid, lp, ln, rp, rn, 0),
            }
        };
        match n {
            n if n > 0 => done += n as u64,
            n if n < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) => {
                return Err(Fault::Gone);
            }
            // The kernel does not report which side failed.
            _ if !is_accessible(local, way == Direction::In) => return Err(Fault::Local),
            _ => return Err(Fault::Access),
        }
    }
    Ok(())
}

/// Copies between local memory and memory of the peer that this process has mapped.
///
/// # Safety
/// `at` has room for all entries; as with [`copy_last_byte_last`], neither side needs to be mapped.
#[inline]
pub(crate) unsafe fn move_mapped(local: &SgList, at: *mut u8, way: Direction) -> Result<(), Fault> {
    // SAFETY: the caller's contract.
    let moved = unsafe {
        match way {
            Direction::Out => gather(local, at),
            Direction::In => scatter(at, local),
        }
    };
    moved.map_err(|side| match (side, way) {
        (FaultSide::Source, Direction::Out) | (FaultSide::Target, Direction::In) => Fault::Local,
        _ => Fault::Access,
    })
}

/// Splits off the last outgoing byte as a separate entry, which the kernel then copies separately. It copies
/// with string moves, whose stores may become visible in any order, but not before those of an earlier one
/// (Intel SDM vol. 3, 9.2.4). So a process that sees the last byte sees all.
fn last_byte_apart(list: &[libc::iovec], way: Direction) -> Split {
    let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut split = Split { list: [nothing; SGE_MAX + 1], count: list.len() };
    split.list[..list.len()].copy_from_slice(list);
    if way == Direction::Out
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
struct Split {
    list: [libc::iovec; SGE_MAX + 1],
    count: usize,
}

impl Split {
    fn as_slice(&self) -> &[libc::iovec] {
        &self.list[..self.count]
    }
}

/// The pid of this process, for accesses to its own memory by the kernel.
pub(crate) fn own_pid() -> i32 {
    std::process::id() as i32
}

/// Checks that this process may read another's memory: it must read `expected` at `addr`.
pub(crate) fn probe(pid: i32, addr: u64, expected: u64) -> std::io::Result<()> {
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
            let (out, back) = (Direction::Out, Direction::In);
            let every = |list: &[libc::iovec]| -> Vec<usize> {
                list.iter().flat_map(|p| (0..p.iov_len).map(|i| p.iov_base.addr() + i)).collect()
            };
            for way in [out, back] {
                let split = last_byte_apart(list.as_slice(), way);
                assert_eq!(every(split.as_slice()), every(list.as_slice()), "{count} {way:?}");
                assert!(way == back || split.as_slice().last().is_some_and(|last| last.iov_len == 1));
            }
        }
        assert!(last_byte_apart(&[], Direction::Out).as_slice().is_empty());
    }

    #[test]
    fn across_reports_an_ended_process() {
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let pid = child.id() as i32;
        child.wait().expect("its end");
        let mut word = 0_u64;
        let mut piece = SgList::new();
        piece.push((&raw mut word).cast(), 8);
        assert_eq!(across(pid, &piece, &piece, Direction::In), Err(Fault::Gone));
    }
}
