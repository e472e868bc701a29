//! What tests are written with.
//!
//! | file | what it holds |
//! |---|---|
//! | `env` | [`Env`](env::Env): the devices, deadlines, and waits that name themselves |
//! | `conn` | two connected ends with queues and memory, and odd set-ups |
//! | `check` | patterns, comparisons that print what differs, memory with canaries |

pub(crate) mod check;
pub(crate) mod conn;
pub(crate) mod env;
