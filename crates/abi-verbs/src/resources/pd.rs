//! Protection domains; parent domains and thread domains ([`Td`]), which say how a program uses its objects.

use ffi::In;
use rdma_abi::numbers as n;
use rdma_abi::verbs::{ibv_parent_domain_init_attr, ibv_pd, ibv_td, ibv_td_init_attr};

use crate::answer::Answer;
use crate::errno::{errno, missing};
use crate::objects::{Context, ParentDomain, Pd, Td};
use crate::slab::{Handle, Object};
use crate::usage::UseCount;

fn insert(context: Handle<Context>, pd: verbs::Pd, parent: Option<ParentDomain>) -> Answer<Handle<Pd>> {
    let seen = ibv_pd { context: Context::address(context), handle: 0 };
    Pd::slab().insert(seen, Pd { pd, context, users: UseCount::default(), parent })
}

pub(crate) fn ibv_alloc_pd(context: Handle<Context>) -> Answer<Handle<Pd>> {
    insert(context, context.lookup()?.engine.device.alloc_pd()?, None)
}

pub(crate) fn ibv_dealloc_pd(pd: Handle<Pd>) -> Answer {
    let pd = pd.lookup()?;
    pd.users
        .check_none("memory regions, queues, queue pairs, address handles, windows and parent domains")?;
    if let Some(ParentDomain { pd, td }) = pd.remove()?.parent {
        pd.users.leave();
        td.into_iter().for_each(|td| td.users.leave());
    }
    Ok(())
}

/// Creates a parent domain: another name of its domain. Allocators of the program are accepted and not called, since the memory of
/// queues is the device's; a device locks for the thread that uses a queue, so a thread domain changes nothing.
pub(crate) fn alloc_parent(
    context: Handle<Context>,
    attr: In<ibv_parent_domain_init_attr>,
) -> Answer<Handle<Pd>> {
    let attr = attr.required_or(|| missing("attr"))?;
    let known = n::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | n::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    if attr.comp_mask & !known != 0 {
        return Err(errno!(
            OPNOTSUPP,
            "attr.comp_mask is {:#x}, of which {:#x} is not supported; clear it",
            attr.comp_mask,
            attr.comp_mask & !known
        ));
    }
    let pd = Handle::<Pd>::from_ptr(attr.pd).lookup()?;
    let td = Handle::<Td>::from_ptr(attr.td).lookup_optional()?;
    if pd.parent.is_some() || pd.context != context {
        return Err(errno!(
            INVAL,
            "attr.pd is a parent domain itself, or of another context; pass a domain of this context by ibv_alloc_pd"
        ));
    }
    let parent = insert(context, pd.pd.clone(), Some(ParentDomain { pd, td }))?;
    pd.users.join();
    td.into_iter().for_each(|td| td.users.join());
    Ok(parent)
}

pub(crate) fn alloc_td(context: Handle<Context>, attr: In<ibv_td_init_attr>) -> Answer<Handle<Td>> {
    context.lookup()?;
    let attr = attr.required_or(|| missing("init_attr"))?;
    if attr.comp_mask != 0 {
        return Err(errno!(
            OPNOTSUPP,
            "init_attr.comp_mask is {:#x}, of which no bit is known; pass 0",
            attr.comp_mask
        ));
    }
    Td::slab().insert(ibv_td { context: Context::address(context) }, Td { users: UseCount::default() })
}

pub(crate) fn dealloc_td(td: Handle<Td>) -> Answer {
    let td = td.lookup()?;
    td.users.check_none("parent domains")?;
    td.remove().map(drop)
}
