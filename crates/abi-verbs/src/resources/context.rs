//! Opening and closing devices.

use ffi::lock;

use crate::answer::Answer;
use crate::discovery::device::Device;
use crate::event_queue::EventQueue;
use crate::objects::Context;
use crate::slab::{Handle, Object};
use crate::{tables, thread};

/// Opens another context of a device.
///
/// # Errors
/// The device's errors, and those of the system.
pub(crate) fn open(handle: Handle<Device>) -> Answer<Handle<Context>> {
    let device = handle.lookup()?;
    let engine = thread::engine_of(&device.name)?;
    let events = EventQueue::new()?;
    let seen = tables::context(handle.cast(), events.fd());
    let context = Context::slab().insert(seen, Context { engine: engine.clone(), device: handle, events })?;
    let mut contexts = lock(&engine.contexts);
    contexts.retain(|context| context.lookup().is_ok());
    contexts.push(context);
    Ok(context)
}

pub(crate) fn ibv_open_device(device: Handle<Device>) -> Answer<Handle<Context>> {
    open(device)
}

pub(crate) fn ibv_close_device(context: Handle<Context>) -> Answer {
    context.lookup()?.remove().map(drop)
}
