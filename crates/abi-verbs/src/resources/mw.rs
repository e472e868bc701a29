//! [`Mw`]: memory windows, and the operations that bind them.

use rdma_abi::numbers as n;
use rdma_abi::verbs::*;
use verbs::{Access, MwBind, MwKind, SendOp};

use crate::answer::Answer;
use crate::errno::{errno, missing};
use crate::objects::{Context, Pd};
use crate::resources::mr::{self, Mr};
use crate::slab::{Handle, Held, Object, Slab};

/// A memory window.
pub(crate) struct Mw {
    mw: verbs::Mw,
    pd: Held<Pd>,
}

impl Object for Mw {
    type C = ibv_mw;
    const NAME: &'static str = "ibv_mw";
    const END: Option<&'static str> = Some("ibv_dealloc_mw");
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Mw> = Slab::new();
        &SLAB
    }
}

pub(crate) fn alloc(pd: Handle<Pd>, kind: i32) -> Answer<Handle<Mw>> {
    let pd = pd.lookup()?;
    let mw_kind = match kind.cast_unsigned() {
        n::IBV_MW_TYPE_1 => MwKind::Type1,
        n::IBV_MW_TYPE_2 => MwKind::Type2,
        _ => return Err(errno!(INVAL, "type is {kind}; there are IBV_MW_TYPE_1 (1) and IBV_MW_TYPE_2 (2)")),
    };
    let mw = pd.pd.alloc_mw(mw_kind)?;
    let (context, rkey) = (Context::address(pd.context()), mw.rkey());
    let seen = ibv_mw { context, pd: pd.handle().cast(), rkey, handle: 0, _type: kind };
    let mw = Mw::slab().insert(seen, Mw { mw, pd })?;
    pd.users.join();
    Ok(mw)
}

pub(crate) fn dealloc(mw: Handle<Mw>) -> Answer {
    mw.lookup()?.remove()?.pd.users.leave();
    Ok(())
}

/// The request that binds a window, which gets this key.
fn binding(mw: Held<Mw>, kind: MwKind, rkey: u32, info: &ibv_mw_bind_info) -> Answer<SendOp> {
    if mw.mw.kind() != kind {
        return Err(errno!(
            INVAL,
            "the window has another type: ibv_bind_mw binds windows of type 1, IBV_WR_BIND_MW and ibv_wr_bind_mw those of type 2"
        ));
    }
    let access = mr::rights(info.mw_access_flags | n::IBV_ACCESS_LOCAL_WRITE)?;
    if info.mw_access_flags & n::IBV_ACCESS_ZERO_BASED != 0 {
        return Err(errno!(
            OPNOTSUPP,
            "mw_access_flags has IBV_ACCESS_ZERO_BASED, which windows do not have; remove it"
        ));
    }
    let region = Handle::<Mr>::from_ptr(info.mr).lookup_optional()?;
    let lkey = region.map_or(0, |region| region.c_part().lkey);
    if region.is_none() && info.length != 0 {
        return Err(missing("bind_info.mr"));
    }
    Ok(SendOp::BindMw(MwBind {
        rkey,
        lkey,
        addr: info.addr,
        len: info.length,
        access: access & Access::REMOTE,
    }))
}

/// The operation of `IBV_WR_BIND_MW`.
#[cold]
pub(crate) fn type_2(mw: *mut ibv_mw, rkey: u32, info: &ibv_mw_bind_info) -> Answer<SendOp> {
    let mw = Handle::<Mw>::from_ptr(mw).lookup()?;
    let op = binding(mw, MwKind::Type2, rkey, info)?;
    mw.update_c(|seen| seen.rkey = rkey);
    Ok(op)
}

/// The binding of a window of type 1, with its next key.
pub(crate) fn type_1(mw: Held<Mw>, info: &ibv_mw_bind_info) -> Answer<(SendOp, u32)> {
    let before = mw.c_part().rkey;
    let rkey = before & 0xffff_ff00 | (before.wrapping_add(1) & 0xff);
    Ok((binding(mw, MwKind::Type1, rkey, info)?, rkey))
}
