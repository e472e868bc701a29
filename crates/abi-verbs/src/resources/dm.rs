//! [`Dm`]: device memory on the NIC.

use std::ffi::{c_int, c_void};

use ffi::In;
use rdma_abi::numbers::IBV_ACCESS_ZERO_BASED;
use rdma_abi::verbs::{ibv_alloc_dm_attr, ibv_dm};
use verbs::Buf;

use crate::answer::{self, Answer};
use crate::errno::{errno, missing};
use crate::objects::{Context, Pd};
use crate::resources::mr::{self, Mr};
use crate::slab::{Handle, Object, Slab};

/// Device memory on the NIC.
pub(crate) struct Dm {
    buf: Buf,
}

impl Object for Dm {
    type C = ibv_dm;
    const NAME: &'static str = "ibv_dm";
    const END: Option<&'static str> = Some("ibv_free_dm");
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Dm> = Slab::new();
        &SLAB
    }
}

/// Maximum alignment that programs may request: a page, which all NIC memory has.
const LOG_ALIGN_MAX: u32 = 12;

pub(crate) fn alloc(context: Handle<Context>, attr: In<ibv_alloc_dm_attr>) -> Answer<Handle<Dm>> {
    let (device, attr) = (context.lookup()?, attr.required_or(|| missing("dm_attr"))?);
    if attr.comp_mask != 0 || attr.log_align_req > LOG_ALIGN_MAX || attr.length == 0 {
        return Err(errno!(
            INVAL,
            "dm_attr.length is {}, log_align_req {} and comp_mask {}; length must not be 0, log_align_req at most {LOG_ALIGN_MAX}, and \
             comp_mask 0",
            attr.length,
            attr.log_align_req,
            attr.comp_mask
        ));
    }
    let buf = device.engine.device.alloc_dm(attr.length)?;
    let seen = ibv_dm {
        context: Context::address(context),
        memcpy_to_dm: Some(memcpy_to_dm),
        memcpy_from_dm: Some(memcpy_from_dm),
        comp_mask: 0,
        handle: 0,
    };
    Dm::slab().insert(seen, Dm { buf })
}

pub(crate) fn free(dm: Handle<Dm>) -> Answer {
    dm.lookup()?.remove().map(drop)
}

pub(crate) fn register(
    pd: Handle<Pd>,
    dm: Handle<Dm>,
    offset: u64,
    length: usize,
    access: u32,
) -> Answer<Handle<Mr>> {
    let (pd, dm) = (pd.lookup()?, dm.lookup()?);
    // Such regions are zero-based, and programs must pass the flag for that (ibv_reg_dm_mr(3)).
    if access & IBV_ACCESS_ZERO_BASED == 0 {
        return Err(errno!(
            INVAL,
            "access is {access:#x}, and lacks IBV_ACCESS_ZERO_BASED, which regions of device memory need; add it"
        ));
    }
    let access = mr::rights(access & !IBV_ACCESS_ZERO_BASED)?;
    let start = usize::try_from(offset)
        .map_err(|_| errno!(INVAL, "dm_offset is {offset:#x}, beyond the memory; pass less"))?;
    let end = start
        .checked_add(length)
        .ok_or_else(|| errno!(INVAL, "dm_offset and length wrap; pass a range of the memory"))?;
    mr::insert(pd, pd.pd.reg_mr_range(&dm.buf, start..end, access)?, std::ptr::null_mut())
}

/// Offsets and lengths of copies are multiples of this, as on cards: what a program does here works there.
const COPY_UNIT: usize = 4;

/// Direction of a copy.
enum Transfer {
    /// From the program's memory.
    In(*const u8),
    /// To the program's memory.
    Out(*mut u8),
}

fn copy(dm: Handle<Dm>, at: u64, way: Transfer, len: usize) -> Answer {
    let (dm, at) = (
        dm.lookup()?,
        usize::try_from(at)
            .map_err(|_| errno!(INVAL, "dm_offset is {at:#x}, beyond the memory; pass less"))?,
    );
    let is_null = match way {
        Transfer::In(from) => from.is_null(),
        Transfer::Out(to) => to.is_null(),
    };
    if len == 0 || is_null {
        return if len == 0 { Ok(()) } else { Err(missing("host_addr")) };
    }
    if !at.is_multiple_of(COPY_UNIT) || !len.is_multiple_of(COPY_UNIT) {
        return Err(errno!(
            INVAL,
            "dm_offset is {at} and length {len}; cards copy multiples of {COPY_UNIT} bytes to and from their memory: pass such"
        ));
    }
    match way {
        Transfer::In(from) => {
            // SAFETY: a program passes as many bytes of its memory as it states, and does not change them during the call. Test:
            // `connected_pair_in_c_uses_rare_features` in tests/programs.rs.
            let bytes = unsafe { std::slice::from_raw_parts(from, len) };
            dm.buf.write(at, bytes)?;
        }
        Transfer::Out(to) => {
            // SAFETY: as above; nothing else uses them during the call.
            let bytes = unsafe { std::slice::from_raw_parts_mut(to, len) };
            dm.buf.read(at, bytes)?;
        }
    }
    Ok(())
}

extern "C" fn memcpy_to_dm(dm: *mut ibv_dm, at: u64, from: *const c_void, len: usize) -> c_int {
    answer::errno("ibv_memcpy_to_dm", || copy(Handle::from_ptr(dm), at, Transfer::In(from.cast()), len))
}

extern "C" fn memcpy_from_dm(to: *mut c_void, dm: *mut ibv_dm, at: u64, len: usize) -> c_int {
    answer::errno("ibv_memcpy_from_dm", || copy(Handle::from_ptr(dm), at, Transfer::Out(to.cast()), len))
}
