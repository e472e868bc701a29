//! Starts threads, and reports why one cannot be started.

use std::hint::black_box;
use std::io::{ErrorKind, Result};
use std::sync::mpsc::sync_channel;
use std::thread::{Builder, JoinHandle};

use rustix::process::{Resource, getrlimit};

/// Bytes of a thread's stack: the default of the standard library.
const STACK: usize = 2 << 20;
/// Maximum number of bytes that the standard library and the allocator take in a new thread before any of our code
/// runs.
const OVERHEAD: usize = 256 << 10;

/// Starts a thread.
///
/// # Errors
/// The operating system's error, and `OutOfMemory` if the limits of the process do not allow that much more memory.
pub(super) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = Builder::new().name(name.into()).stack_size(STACK);
    if [Resource::Data, Resource::As].into_iter().all(|limit| getrlimit(limit).current.is_none()) {
        return thread.spawn(body);
    }
    // With limited memory, the standard library panics in the new thread if it cannot allocate its signal stack, and
    // the process aborts. So the memory is checked first; no other thread is started by us until this one has it.
    let mut room = Vec::<u8>::new();
    room.try_reserve_exact(STACK + OVERHEAD).map_err(|_| ErrorKind::OutOfMemory)?;
    drop(black_box(room));
    let (begins, begun) = sync_channel::<()>(0);
    let handle = thread.spawn(move || {
        drop(begins);
        body();
    })?;
    // An error is expected: the thread drops its sender without sending.
    let _ = begun.recv();
    Ok(handle)
}
