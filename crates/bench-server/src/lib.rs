//! The server of `nicety serve`. Every client sends its whole plan and gets a fresh process.
//!
//! Admission ([`bench::launch::admission`]) and the workers are part of `bench`: a run on one machine admits its client by the same
//! code, and a server's workers are those of a run.
//!
//! | file | what it holds |
//! |---|---|
//! | `serve` | [`serve()`]: one thread that serves all connections |
//! | `sessions` | admitted clients: the queue, and a process for each |
//! | `agents` | programs that clients may have started |
//! | `device` | the device that the server opens for a client |

#![forbid(unsafe_code)]

mod agents;
mod device;
mod serve;
mod sessions;

pub use serve::{OpenServer, Serving, serve, serve_with};
