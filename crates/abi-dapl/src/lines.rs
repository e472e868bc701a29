//! [`Line`]: the lines of dat.conf that the registry has told of.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use ffi::lock;

/// A line of dat.conf: one adapter. The registry finds it again by its table's name and by what the adapter says of its thread
/// safety, so each has a table of its own, for as long as the process lives.
#[derive(Clone)]
pub(crate) struct Line {
    /// The device's name.
    pub(crate) device: String,
    /// The functions behind all handles of the adapter: a [`Provider`](crate::provider::Provider), of which nothing else is known
    /// here.
    functions: &'static (dyn Send + Sync),
}

impl Line {
    /// The table as the registry finds it behind handles.
    pub(crate) fn functions(&self) -> *mut c_void {
        std::ptr::from_ref(self.functions).cast_mut().cast()
    }
}

/// Lines by adapter's name and thread safety.
static LINES: Mutex<BTreeMap<(String, bool), Line>> = Mutex::new(BTreeMap::new());

fn lines() -> MutexGuard<'static, BTreeMap<(String, bool), Line>> {
    lock(&LINES)
}

/// The line of an adapter.
pub(crate) fn line(ia_name: &str, is_thread_safe: bool) -> Option<Line> {
    lines().get(&(ia_name.to_owned(), is_thread_safe)).cloned()
}

/// Remembers a line; one that is new gets the functions that are made for it.
pub(crate) fn add<T: Send + Sync + 'static>(
    name: String,
    is_thread_safe: bool,
    device: String,
    make: impl FnOnce() -> &'static T,
) -> Line {
    let mut lines = lines();
    let new = || Line { device: String::new(), functions: make() };
    let line = lines.entry((name, is_thread_safe)).or_insert_with(new);
    line.device = device;
    line.clone()
}
