//! [`Context`]: a device as a program has opened it.

use std::sync::Arc;

use rdma_abi::verbs::{ibv_context, verbs_context};

use crate::answer::Answer;
use crate::device::Device;
use crate::engine::Engine;
use crate::event::Event;
use crate::mailbox::Mailbox;
use crate::slab::{Handle, Object, Slab};
use crate::tables;

/// An opened device.
pub(crate) struct Context {
    pub(crate) engine: Arc<Engine>,
    pub(crate) device: Handle<Device>,
    /// Asynchronous events.
    pub(crate) events: Mailbox<Event>,
}

impl Object for Context {
    type C = verbs_context;
    const HANDLE_AT: usize = std::mem::offset_of!(verbs_context, context);
    const PLACES: usize = 4096;
    fn slab() -> &'static Slab<Self> {
        static SLAB: Slab<Context> = Slab::new();
        &SLAB
    }
}

/// Opens a device once more.
///
/// # Errors
/// The device's, and what the system refuses.
pub(crate) fn open(handle: Handle<Device>) -> Answer<Handle<Context>> {
    let device = handle.look()?;
    let engine = Engine::of(&device.name)?;
    let events = Mailbox::new()?;
    let seen = tables::context(handle.cast(), events.fd());
    Context::slab().insert(seen, Context { engine, device: handle, events })
}

pub(crate) fn ibv_open_device(device: Handle<Device>) -> Answer<Handle<Context>> {
    open(device)
}

pub(crate) fn ibv_close_device(context: Handle<Context>) -> Answer {
    context.look()?.remove().map(drop)
}

impl Context {
    /// What objects have in their first field.
    pub(crate) fn address(handle: Handle<Self>) -> *mut ibv_context {
        handle.cast()
    }
}
