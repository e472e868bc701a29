//! The contexts that librdmacm has opened, with a protection domain for each: one per device.

use std::sync::Mutex;

use ffi::lock;

use crate::objects::{Context, Engine, Pd};
use crate::slab::{Handle, Held};

/// A context of librdmacm and its protection domain: one per device, opened when an identifier needs it. A child of fork(2) has its
/// own.
pub(crate) struct Shared {
    pub(crate) process: u32,
    pub(crate) device: usize,
    pub(crate) context: Handle<Context>,
    pub(crate) pd: Handle<Pd>,
}

pub(crate) static SHARED: Mutex<Vec<Shared>> = Mutex::new(Vec::new());

/// The open contexts.
pub(crate) fn contexts() -> Vec<Held<Context>> {
    lock(&SHARED).iter().filter_map(|shared| shared.context.lookup().ok()).collect()
}

/// The protection domain of identifiers on a context for which the program passes none.
pub(crate) fn domain(context: Handle<Context>) -> Option<Handle<Pd>> {
    lock(&SHARED).iter().find(|shared| shared.context == context).map(|shared| shared.pd)
}

/// The context of an engine's device.
pub(crate) fn context_of(engine: &Engine) -> Option<Handle<Context>> {
    let found = contexts().into_iter().find(|context| std::ptr::eq(&raw const *context.engine, engine));
    found.map(Held::handle)
}
