//! Messages between processes over any device of [`verbs`]: what MPI and Portals share below their protocols.
//!
//! | file | what it holds |
//! |---|---|
//! | `line` | [`Line`]: a cache line that both sides write in turn, for short messages that answer each other |

#![forbid(unsafe_code)]

mod line;

pub use line::{Half, Line};
