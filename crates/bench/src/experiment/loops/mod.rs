//! The loops that several experiments measure.
//!
//! | file | contents |
//! |---|---|
//! | `pingpong` | one operation at a time, alternating or in both directions together |
//! | `stream` | many messages in flight |
//! | `traffic` | messages over several connections, with several buffers and pieces |
//! | `calls` | the time of single calls |

pub(crate) mod calls;
pub(crate) mod pingpong;
pub(crate) mod stream;
pub(crate) mod traffic;
