//! The library's allocator, and whether it has enough memory for more objects.

use ffi::ReserveAlloc;

use crate::answer::{Answer, Fault};
use crate::constants as c;

/// Allocations fall back to a reserve when the process has no more memory.
#[global_allocator]
static OWN: ReserveAlloc = ReserveAlloc::new();

/// An error for calls that create objects, unless there is memory for more.
#[inline]
pub(crate) fn check_for_more() -> Answer<()> {
    if OWN.has_memory() { Ok(()) } else { Err(no_more()) }
}

/// The error if there is no memory for another object.
#[cold]
fn no_more() -> Fault {
    let text = "there is no memory for more objects; free some, or raise the limit (is data limited? see ulimit -d and -v)";
    Fault::new(c::MPI_ERR_NO_MEM, text.to_owned())
}
