//! Protection domains.

use rdma_abi::verbs::ibv_pd;

use crate::answer::Answer;
use crate::objects::{Context, Pd};
use crate::slab::{Handle, Object};
use crate::usage::Users;

pub(crate) fn ibv_alloc_pd(context: Handle<Context>) -> Answer<Handle<Pd>> {
    let pd = context.look()?.engine.device.alloc_pd()?;
    let seen = ibv_pd { context: Context::address(context), handle: 0 };
    Pd::slab().insert(seen, Pd { pd, context, users: Users::default() })
}

pub(crate) fn ibv_dealloc_pd(pd: Handle<Pd>) -> Answer {
    let pd = pd.look()?;
    pd.users.check_none()?;
    pd.remove().map(drop)
}
