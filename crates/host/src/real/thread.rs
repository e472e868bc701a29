//! Starting a thread, or learning why there can be none.

use std::hint::black_box;
use std::io::{ErrorKind, Result};
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

use rustix::process::{Resource, getrlimit};

/// Bytes of a thread's stack: the standard library's default.
const STACK: usize = 2 << 20;
/// What the standard library and the allocator take in the new thread before any code of ours runs, at most, in bytes.
const BESIDES: usize = 256 << 10;

/// Starts a thread.
///
/// # Errors
/// The system's, and `OutOfMemory` where the process may not have so much memory more.
pub(super) fn begin(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = Builder::new().name(name.into()).stack_size(STACK);
    if [Resource::Data, Resource::As].into_iter().all(|limit| getrlimit(limit).current.is_none()) {
        return thread.spawn(body);
    }
    // Where memory is limited, the standard library panics in the new thread if it finds none there for the handling of
    // signals, and the process aborts. So that is looked for before; nothing else is started until the thread has it.
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(STACK + BESIDES).map_err(|_| ErrorKind::OutOfMemory)?;
    drop(black_box(room));
    let (begins, begun) = sync_channel::<()>(0);
    let handle = thread.spawn(move || {
        drop(begins);
        body();
    })?;
    // An error is what the thread's dropping its end makes.
    let _ = begun.recv();
    Ok(handle)
}
