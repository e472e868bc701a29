//! Opening and closing devices.

use crate::answer::Answer;
use crate::discovery::device::Device;
use crate::mailbox::Mailbox;
use crate::objects::Context;
use crate::slab::{Handle, Object};
use crate::{tables, thread};

/// Opens another context of a device.
///
/// # Errors
/// The device's errors, and those of the system.
pub(crate) fn open(handle: Handle<Device>) -> Answer<Handle<Context>> {
    let device = handle.look()?;
    let engine = thread::of(&device.name)?;
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
