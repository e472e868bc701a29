//! A device over another device that records what the program does with it: every call, posted request, completion, wait and event.
//!
//! A program that is traced needs no change: it opens `trace(shm,file=FILE)` instead of `shm`. Where this device is not used, it
//! costs nothing. All devices of a process record into one file, a ring that the process maps: it is bounded, and outlives a
//! crash. The device also counts, for `nicety top`; without a file it only counts.
//!
//! | module | contents |
//! |---|---|
//! | `mapping` | the file, mapped |
//! | `recorder` | writes records, and the table of objects and threads |
//! | `counters` | live counters, and their text for Prometheus |
//! | `shared` | the state that all objects of a device share |
//! | `api` | the objects of `verbs` |

mod api;
mod counters;
mod mapping;
mod recorder;
mod shared;

pub use api::device::{TraceConfig, open, request_counters};
pub use recorder::{end, end_call, set_rank};
