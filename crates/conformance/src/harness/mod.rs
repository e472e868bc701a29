//! Helpers for writing tests.
//!
//! | file | contents |
//! |---|---|
//! | `env` | [`Env`](env::Env): the devices, deadlines, and named waits |
//! | `conn` | two connected ends with queues and memory, and special set-ups |
//! | `check` | patterns, comparisons that print differences, memory with canaries |

pub(crate) mod check;
pub(crate) mod conn;
pub(crate) mod env;
