//! [`ConfLine`]: the lines of dat.conf that the registry has passed to this library.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard};

use ffi::lock;

/// A line of dat.conf: one adapter. The registry identifies it by its table's name and the thread safety that the adapter
/// reports, so each line has a table of its own, for as long as the process lives.
#[derive(Clone)]
pub(crate) struct ConfLine {
    /// The device's name.
    pub(crate) device: String,
    /// The functions behind all handles of the adapter: a [`Provider`](crate::provider::Provider), which is opaque here.
    functions: &'static (dyn Send + Sync),
}

impl ConfLine {
    /// The pointer to the table, for the registry.
    pub(crate) fn functions(&self) -> *mut c_void {
        std::ptr::from_ref(self.functions).cast_mut().cast()
    }
}

/// Lines by the adapter's name and thread safety.
static LINES: Mutex<BTreeMap<(String, bool), ConfLine>> = Mutex::new(BTreeMap::new());

fn lines() -> MutexGuard<'static, BTreeMap<(String, bool), ConfLine>> {
    lock(&LINES)
}

/// The line of an adapter.
pub(crate) fn line(ia_name: &str, is_thread_safe: bool) -> Option<ConfLine> {
    lines().get(&(ia_name.to_owned(), is_thread_safe)).cloned()
}

/// Adds or updates a line; `make` creates the functions of a new line.
pub(crate) fn add<T: Send + Sync + 'static>(
    name: String,
    is_thread_safe: bool,
    device: String,
    make: impl FnOnce() -> &'static T,
) -> ConfLine {
    let mut lines = lines();
    let new = || ConfLine { device: String::new(), functions: make() };
    let line = lines.entry((name, is_thread_safe)).or_insert_with(new);
    line.device = device;
    line.clone()
}
