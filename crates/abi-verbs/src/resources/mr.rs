//! [`Mr`]: memory regions of the program's memory.

use std::ffi::c_void;
use std::ptr::NonNull;

use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_mr;
use verbs::{Access, Buf};

use crate::answer::Answer;
use crate::errno::errno;
use crate::objects::{Context, Pd};
use crate::slab::{Handle, Held, Object, Slab};

/// A memory region.
pub(crate) struct Mr {
    mr: verbs::Mr,
    pd: Held<Pd>,
}

impl Object for Mr {
    type C = ibv_mr;
    const NAME: &'static str = "ibv_mr";
    const END: Option<&'static str> = Some("ibv_dereg_mr");
    const PLACES: usize = 1 << 20;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Mr> = Slab::new();
        &SLAB
    }
}

/// Flags that are accepted and need no action: relaxed ordering, huge pages, memory windows.
const IGNORED: u32 = n::IBV_ACCESS_OPTIONAL_RANGE | n::IBV_ACCESS_HUGETLB | n::IBV_ACCESS_MW_BIND;
/// Flags for capabilities that our devices do not report: zero-based addresses, and on-demand paging (`ibv_odp_caps`).
const NOT_THERE: u32 = n::IBV_ACCESS_ZERO_BASED | n::IBV_ACCESS_ON_DEMAND;

/// Converts access flags of C.
///
/// # Errors
/// [`Errno::OPNOTSUPP`](crate::errno::Errno::OPNOTSUPP) for unsupported flags, [`Errno::INVAL`](crate::errno::Errno::INVAL) for undefined ones.
pub(crate) fn rights(flags: u32) -> Answer<Access> {
    let table = [
        (n::IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (n::IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (n::IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (n::IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
    ];
    let known = table.iter().fold(IGNORED | NOT_THERE, |known, (flag, _)| known | flag);
    if flags & !known != 0 {
        return Err(errno!(
            INVAL,
            "access is {flags:#x}, of which {:#x} is no flag of ibv_access_flags; remove it",
            flags & !known
        ));
    }
    if flags & NOT_THERE != 0 {
        return Err(errno!(
            OPNOTSUPP,
            "access has {:#x}: no device has zero-based regions of host memory or on-demand paging (ibv_query_device_ex says so)",
            flags & NOT_THERE
        ));
    }
    let remote = n::IBV_ACCESS_REMOTE_WRITE | n::IBV_ACCESS_REMOTE_ATOMIC;
    if flags & remote != 0 && flags & n::IBV_ACCESS_LOCAL_WRITE == 0 {
        return Err(errno!(
            INVAL,
            "access is {flags:#x}: writes and atomics of peers need local writes too; add IBV_ACCESS_LOCAL_WRITE"
        ));
    }
    Ok(table.iter().filter(|(flag, _)| flags & flag != 0).map(|(_, right)| *right).collect())
}

/// Creates the object that C sees for a region.
pub(crate) fn insert(pd: Held<Pd>, mr: verbs::Mr, addr: *mut c_void) -> Answer<Handle<Mr>> {
    let (length, lkey, rkey) = (mr.buf().len(), mr.lkey(), mr.rkey());
    let context = Context::address(pd.context());
    let seen = ibv_mr { context, pd: pd.handle().cast(), addr, length, handle: 0, lkey, rkey };
    let mr = Mr::slab().insert(seen, Mr { mr, pd })?;
    pd.users.join();
    Ok(mr)
}

fn register(pd: Handle<Pd>, addr: *mut c_void, length: usize, access: u32) -> Answer<Handle<Mr>> {
    let (pd, access) = (pd.lookup()?, rights(access)?);
    let base = NonNull::new(addr.cast::<u8>()).filter(|_| length != 0);
    let base = base.ok_or_else(|| {
        errno!(INVAL, "addr is {addr:?} and length {length}; pass mapped memory of at least one byte")
    })?;
    if base.addr().get().checked_add(length).is_none() {
        return Err(errno!(
            INVAL,
            "addr {addr:?} and length {length} wrap around the end of memory; pass a smaller length"
        ));
    }
    // SAFETY: a program knows that peers change registered memory; this library makes no reference to it. Test:
    // `memory_that_is_lost_ends_no_process` in tests/programs.rs.
    let buf = unsafe { Buf::from_program(base, length) };
    insert(pd, pd.pd.reg_mr(&buf, access)?, addr)
}

pub(crate) fn ibv_reg_mr(
    pd: Handle<Pd>,
    addr: *mut c_void,
    length: usize,
    access: i32,
) -> Answer<Handle<Mr>> {
    register(pd, addr, length, access.cast_unsigned())
}

pub(crate) fn ibv_reg_mr_iova(
    pd: Handle<Pd>,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: i32,
) -> Answer<Handle<Mr>> {
    ibv_reg_mr_iova2(pd, addr, length, iova, access.cast_unsigned())
}

pub(crate) fn ibv_reg_mr_iova2(
    pd: Handle<Pd>,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Answer<Handle<Mr>> {
    // Devices address a region by its virtual address.
    if iova != addr.addr() as u64 {
        return Err(errno!(
            OPNOTSUPP,
            "iova is {iova:#x}, but devices address a region by addr, {addr:?}; pass that as iova"
        ));
    }
    register(pd, addr, length, access)
}

pub(crate) fn ibv_dereg_mr(mr: Handle<Mr>) -> Answer {
    let Mr { mr, pd } = mr.lookup()?.remove()?;
    pd.users.leave();
    Ok(mr.dereg()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errno::Errno;

    #[test]
    fn rights_are_told_from_wishes() {
        let wishes = n::IBV_ACCESS_HUGETLB | 1 << 20 | 1 << 29;
        assert_eq!(rights(wishes | n::IBV_ACCESS_LOCAL_WRITE), Ok(Access::LOCAL_WRITE));
        assert_eq!(rights(0xf), Ok(Access::ALL));
        for flag in [n::IBV_ACCESS_ZERO_BASED, n::IBV_ACCESS_ON_DEMAND] {
            assert_eq!(rights(flag | n::IBV_ACCESS_LOCAL_WRITE), Err(Errno::OPNOTSUPP));
        }
        for bit in (8..20).chain(30..32) {
            assert_eq!(rights(1 << bit), Err(Errno::INVAL), "bit {bit}");
        }
    }
}
