//! One-sided communication.
//!
//! | file | what it holds |
//! |---|---|
//! | `window` | memory that others reach |
//! | `onesided` | operations on it |

pub(super) mod onesided;
pub(super) mod window;

pub(crate) use onesided::*;
pub(crate) use window::*;
