//! [`Pd`]: protection domains.

use std::sync::atomic::{AtomicU32, Ordering};

use rdma_abi::verbs::ibv_pd;

use crate::answer::Answer;
use crate::context::Context;
use crate::errno::Errno;
use crate::slab::{Handle, Held, Object, Slab};

/// A protection domain.
pub(crate) struct Pd {
    pub(crate) pd: verbs::Pd,
    pub(crate) context: Handle<Context>,
    pub(crate) users: Users,
}

/// How many objects need this one: it does not go away before them.
#[derive(Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    pub(crate) fn join(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn leave(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    /// Says whether it may go away.
    ///
    /// # Errors
    /// [`Errno::BUSY`] while there are any.
    pub(crate) fn check_none(&self) -> Answer {
        if self.0.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(Errno::BUSY) }
    }
}

impl Object for Pd {
    type C = ibv_pd;
    const PLACES: usize = 1 << 16;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Pd> = Slab::new();
        &SLAB
    }
}

impl Held<Pd> {
    /// The context that it belongs to.
    pub(crate) fn context(self) -> Handle<Context> {
        self.context
    }
}

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
