//! [`Mr`]: memory regions of the program's memory.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Mutex;

use ffi::lock;
use rdma_abi::numbers as n;
use rdma_abi::verbs::ibv_mr;
use verbs::{Access, Buf, ImplicitMr};

use crate::answer::Answer;
use crate::errno::{Errno, errno};
use crate::objects::{Context, Pd};
use crate::slab::{Handle, Held, Object, Slab};

/// A memory region.
pub(crate) struct Mr(Mutex<MrState>);

/// What `ibv_rereg_mr(3)` may change.
struct MrState {
    mr: Registered,
    pd: Held<Pd>,
}

enum Registered {
    Buffer(verbs::Mr),
    AllMemory(ImplicitMr),
}

impl Registered {
    fn keys(&self) -> (u32, u32) {
        match self {
            Self::Buffer(mr) => (mr.lkey(), mr.rkey()),
            Self::AllMemory(mr) => (mr.lkey(), mr.rkey()),
        }
    }

    fn has_windows(&self) -> bool {
        matches!(self, Self::Buffer(mr) if mr.has_windows())
    }

    fn dereg(self) -> verbs::Result<()> {
        match self {
            Self::Buffer(mr) => mr.dereg(),
            Self::AllMemory(mr) => mr.dereg(),
        }
    }
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

/// Flags without a right: relaxed ordering and huge pages need no action, `register` handles the others.
const OTHER: u32 =
    n::IBV_ACCESS_OPTIONAL_RANGE | n::IBV_ACCESS_HUGETLB | n::IBV_ACCESS_ZERO_BASED | n::IBV_ACCESS_ON_DEMAND;

/// Converts access flags of C.
///
/// # Errors
/// [`Errno::INVAL`] for undefined flags and contradictions.
pub(crate) fn rights(flags: u32) -> Answer<Access> {
    let table = [
        (n::IBV_ACCESS_LOCAL_WRITE, Access::LOCAL_WRITE),
        (n::IBV_ACCESS_REMOTE_WRITE, Access::REMOTE_WRITE),
        (n::IBV_ACCESS_REMOTE_READ, Access::REMOTE_READ),
        (n::IBV_ACCESS_REMOTE_ATOMIC, Access::REMOTE_ATOMIC),
        (n::IBV_ACCESS_MW_BIND, Access::BIND),
    ];
    let known = table.iter().fold(OTHER, |known, (flag, _)| known | flag);
    if flags & !known != 0 {
        return Err(errno!(
            INVAL,
            "access is {flags:#x}, of which {:#x} is no flag of ibv_access_flags; remove it",
            flags & !known
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

/// Creates the object that C sees for a region of a buffer.
pub(crate) fn insert(pd: Held<Pd>, mr: verbs::Mr, addr: *mut c_void) -> Answer<Handle<Mr>> {
    let length = mr.buf().len();
    insert_any(pd, Registered::Buffer(mr), addr, length)
}

fn insert_any(pd: Held<Pd>, mr: Registered, addr: *mut c_void, length: usize) -> Answer<Handle<Mr>> {
    let (lkey, rkey) = mr.keys();
    let context = Context::address(pd.context());
    let seen = ibv_mr { context, pd: pd.handle().cast(), addr, length, handle: 0, lkey, rkey };
    let mr = Mr::slab().insert(seen, Mr(Mutex::new(MrState { mr, pd })))?;
    pd.users.join();
    Ok(mr)
}

/// The program's memory, which need not be mapped yet if it is registered on demand.
fn memory(addr: *mut c_void, length: usize, flags: u32) -> Answer<Buf> {
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
    Ok(if flags & n::IBV_ACCESS_ON_DEMAND != 0 { buf.on_demand() } else { buf })
}

/// Registers memory that requests address at `iova`, or at its own address.
fn register(
    pd: Handle<Pd>,
    addr: *mut c_void,
    length: usize,
    iova: Option<u64>,
    flags: u32,
) -> Answer<Handle<Mr>> {
    let (pd, access) = (pd.lookup()?, rights(flags)?);
    if flags & n::IBV_ACCESS_ON_DEMAND != 0 && length == usize::MAX {
        return register_all(pd, addr, access);
    }
    let buf = memory(addr, length, flags)?;
    let iova = if flags & n::IBV_ACCESS_ZERO_BASED != 0 { Some(0) } else { iova };
    let mr = match iova.filter(|iova| *iova != buf.addr()) {
        Some(iova) => pd.pd.reg_mr_at(&buf, iova, access)?,
        None => pd.pd.reg_mr(&buf, access)?,
    };
    insert(pd, mr, addr)
}

/// Registers all memory of the process: an implicit on-demand region.
fn register_all(pd: Held<Pd>, addr: *mut c_void, access: Access) -> Answer<Handle<Mr>> {
    if !addr.is_null() {
        return Err(errno!(
            INVAL,
            "addr is {addr:?} and length SIZE_MAX: a region of all memory (implicit ODP) has addr NULL"
        ));
    }
    uaccess::arm().map_err(|why| {
        let errno = Errno(why.raw_os_error().unwrap_or(libc::EIO));
        errno.because(format_args!(
            "the system does not let this library handle faults of registered memory: {why}"
        ))
    })?;
    // SAFETY: the program passes the key to its peers, and faults of requests have been made errors. Test:
    // `regions_in_c_are_changed_and_addressed` in tests/programs.rs.
    let mr = unsafe { pd.pd.reg_all(access) }?;
    insert_any(pd, Registered::AllMemory(mr), addr, usize::MAX)
}

pub(crate) fn ibv_reg_mr(
    pd: Handle<Pd>,
    addr: *mut c_void,
    length: usize,
    access: i32,
) -> Answer<Handle<Mr>> {
    register(pd, addr, length, None, access.cast_unsigned())
}

pub(crate) fn ibv_reg_mr_iova(
    pd: Handle<Pd>,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: i32,
) -> Answer<Handle<Mr>> {
    register(pd, addr, length, Some(iova), access.cast_unsigned())
}

pub(crate) fn ibv_reg_mr_iova2(
    pd: Handle<Pd>,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: u32,
) -> Answer<Handle<Mr>> {
    register(pd, addr, length, Some(iova), access)
}

/// Returns 0, or one of `enum ibv_rereg_mr_err_code` with errno(3) set.
pub(crate) fn ibv_rereg_mr(
    mr: Handle<Mr>,
    flags: i32,
    pd: Handle<Pd>,
    addr: *mut c_void,
    length: usize,
    access: i32,
) -> i32 {
    let changed = mr
        .lookup()
        .and_then(|mr| change(mr, flags.cast_unsigned(), pd, (addr, length), access.cast_unsigned()));
    let Err(why) = changed else { return 0 };
    why.report("ibv_rereg_mr");
    why.store();
    // After the second, the region gives no access any more; after the first, it is as before.
    let code = if why == Errno::BUSY { n::IBV_REREG_MR_ERR_CMD } else { n::IBV_REREG_MR_ERR_INPUT };
    code.cast_signed()
}

fn change(
    held: Held<Mr>,
    flags: u32,
    pd: Handle<Pd>,
    (addr, length): (*mut c_void, usize),
    access: u32,
) -> Answer {
    let known =
        n::IBV_REREG_MR_CHANGE_TRANSLATION | n::IBV_REREG_MR_CHANGE_PD | n::IBV_REREG_MR_CHANGE_ACCESS;
    if flags == 0 || flags & !known != 0 {
        return Err(errno!(
            INVAL,
            "flags is {flags:#x}; pass at least one of IBV_REREG_MR_CHANGE_TRANSLATION, _PD and _ACCESS, and nothing else"
        ));
    }
    let asks = |flag| flags & flag != 0;
    let mut state = lock(&held.0);
    let pd = if asks(n::IBV_REREG_MR_CHANGE_PD) { pd.lookup()? } else { state.pd };
    let new_access = asks(n::IBV_REREG_MR_CHANGE_ACCESS).then(|| rights(access)).transpose()?;
    let on_demand = if asks(n::IBV_REREG_MR_CHANGE_ACCESS) { access } else { 0 };
    let new_memory = asks(n::IBV_REREG_MR_CHANGE_TRANSLATION).then(|| memory(addr, length, on_demand));
    let new_memory = new_memory.transpose()?;
    let Registered::Buffer(mr) = &mut state.mr else {
        return Err(errno!(
            OPNOTSUPP,
            "a region of all memory (implicit ODP) cannot change; register another one"
        ));
    };
    pd.pd.rereg_mr(mr, new_memory.as_ref(), new_access)?;
    pd.users.join();
    std::mem::replace(&mut state.pd, pd).users.leave();
    held.update_c(|seen| {
        seen.pd = pd.handle().cast();
        if new_memory.is_some() {
            (seen.addr, seen.length) = (addr, length);
        }
    });
    Ok(())
}

pub(crate) fn ibv_dereg_mr(mr: Handle<Mr>) -> Answer {
    if lock(&mr.lookup()?.0).mr.has_windows() {
        return Err(errno!(
            BUSY,
            "memory windows are bound to the region; invalidate or free them (ibv_dealloc_mw) first"
        ));
    }
    let MrState { mr, pd } =
        mr.lookup()?.remove()?.0.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    pd.users.leave();
    Ok(mr.dereg()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_are_told_from_wishes() {
        let wishes = n::IBV_ACCESS_HUGETLB | n::IBV_ACCESS_ON_DEMAND | 1 << 20 | 1 << 29;
        assert_eq!(rights(wishes | n::IBV_ACCESS_LOCAL_WRITE), Ok(Access::LOCAL_WRITE));
        assert_eq!(rights(0xf), Ok(Access::ALL));
        assert_eq!(rights(n::IBV_ACCESS_REMOTE_WRITE), Err(Errno::INVAL));
        for bit in (8..20).chain(30..32) {
            assert_eq!(rights(1 << bit), Err(Errno::INVAL), "bit {bit}");
        }
    }
}
