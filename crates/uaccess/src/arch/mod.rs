//! Accesses in assembly whose faults are in the exception table, for each processor architecture.
//!
//! | function | contents |
//! |---|---|
//! | `detect_features` | detects what copies may use |
//! | `copy` | [`copy_last_byte_last`](crate::copy_last_byte_last) |
//! | `fetch_add`, `compare_swap` | atomics on eight bytes |
//! | `touch_to_read`, `touch_to_write` | accesses that change nothing |

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::{compare_swap, copy, detect_features, fetch_add, touch_to_read, touch_to_write};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{compare_swap, copy, detect_features, fetch_add, touch_to_read, touch_to_write};
