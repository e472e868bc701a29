//! Traces of what a program did with its devices: the format of the file, its reader, and the requests in it. No I/O.
//!
//! A process that is traced maps its file and writes records of a fixed size into a ring, so that the file is bounded and outlives
//! a crash. A table before the ring describes objects and threads, and is never overwritten. `docs/reference/trace-files.md`
//! describes the bytes.
//!
//! | module | contents |
//! |---|---|
//! | `format` | places and sizes in the file, and the encoding of records |
//! | `names` | what the numbers in records mean, as words |
//! | `pcapng` | captures for Wireshark: blocks and packets |
//! | `read` | a file becomes a [`Trace`]; whatever its bytes are, the result is a trace or an error |
//! | `job` | traces of several processes on one axis of time |
//! | `requests` | each request from its posting to its completion, the depths of queues, and waits |
//! | `queues` | what happened to each queue, in numbers |
//! | `select` | which records a reader wants to see |
//! | `text` | a trace as lines |
//! | `roce` | the requests of a trace as a capture of RoCE v2 packets |
//! | `chrome` | a trace as events for Perfetto and Chrome |

#![forbid(unsafe_code)]

mod chrome;
pub mod format;
mod job;
pub mod names;
pub mod pcapng;
mod queues;
mod read;
mod requests;
mod roce;
mod select;
mod text;

pub use chrome::chrome;
pub use job::{Job, Process};
pub use queues::{Queue, queues};
pub use read::{Class, Object, Record, Trace, TraceError, What, read};
pub use requests::{Depth, Request, Requests, Wait};
pub use roce::roce;
pub use select::Selection;
pub use text::{describe, text, time_span};
