//! Protection domains.

use rdma_abi::verbs::ibv_pd;

use crate::answer::Answer;
use crate::objects::{Context, Pd};
use crate::slab::{Handle, Object};
use crate::usage::UseCount;

pub(crate) fn ibv_alloc_pd(context: Handle<Context>) -> Answer<Handle<Pd>> {
    let pd = context.lookup()?.engine.device.alloc_pd()?;
    let seen = ibv_pd { context: Context::address(context), handle: 0 };
    Pd::slab().insert(seen, Pd { pd, context, users: UseCount::default() })
}

pub(crate) fn ibv_dealloc_pd(pd: Handle<Pd>) -> Answer {
    let pd = pd.lookup()?;
    pd.users.check_none("memory regions, queue pairs, shared receive queues and address handles")?;
    pd.remove().map(drop)
}
