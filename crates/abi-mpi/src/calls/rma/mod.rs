//! One-sided communication (MPI 5.0, chapter 12).
//!
//! | file | what it holds |
//! |---|---|
//! | `window` | windows |
//! | `onesided` | one-sided operations and synchronisation |

pub(super) mod onesided;
pub(super) mod window;

pub(crate) use onesided::*;
pub(crate) use window::*;
