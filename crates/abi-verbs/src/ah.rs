//! [`Ah`]: address handles.

use cface::Out;
use rdma_abi::verbs::{ibv_ah, ibv_ah_attr};

use crate::address;
use crate::answer::Answer;
use crate::context::Context;
use crate::errno::Errno;
use crate::pd::Pd;
use crate::slab::{Handle, Held, Object, Slab};

/// An address handle.
pub(crate) struct Ah {
    pd: Held<Pd>,
}

impl Object for Ah {
    type C = ibv_ah;
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Ah> = Slab::new();
        &SLAB
    }
}

pub(crate) fn ibv_create_ah(pd: Handle<Pd>, attr: Out<ibv_ah_attr>) -> Answer<Handle<Ah>> {
    let pd = pd.look()?;
    address::destination(&attr.get().ok_or(Errno::INVAL)?)?;
    let seen = ibv_ah { context: Context::address(pd.context()), pd: pd.handle().cast(), handle: 0 };
    let ah = Ah::slab().insert(seen, Ah { pd })?;
    pd.users.join();
    Ok(ah)
}

pub(crate) fn ibv_destroy_ah(ah: Handle<Ah>) -> Answer {
    ah.look()?.remove()?.pd.users.leave();
    Ok(())
}
