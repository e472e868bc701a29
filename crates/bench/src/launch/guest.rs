//! The worker of a server's client: how a server starts it, and why it failed.
//!
//! Its standard input is the client's connection. Its standard output is a Unix socket to the server, which carries its job first;
//! the worker answers with [`WAITS`] and [`WORKS`], and at last with a line if it fails.

use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::Child;

use super::WorkerCommand;
use super::job::{Job, News, write_line};
use super::wire::{Hello, Setup};

pub use super::control_stream::{WAITS, WORKS};
pub use super::crew::{describe, spawn};

/// Starts a worker for the client at the other end of `stream`, which has said this `hello`. Returns the process, and the server's end of
/// the socket, which does not block.
///
/// # Errors
/// Where there are no descriptors or processes left.
pub fn start(
    command: &WorkerCommand,
    stream: TcpStream,
    hello: Hello,
    setup: Setup,
) -> io::Result<(Child, UnixStream)> {
    let (reports, theirs) = UnixStream::pair()?;
    write_line(&reports, &Job::Guest { hello, setup })?;
    reports.set_nonblocking(true)?;
    let child = spawn(command, OwnedFd::from(stream), Some(OwnedFd::from(theirs)))?;
    Ok((child, reports))
}

/// Why a worker failed, if the last of these lines that parses says so.
#[must_use]
pub fn failure(lines: &[u8]) -> Option<String> {
    lines.split(|byte| *byte == b'\n').rev().find_map(|line| match serde_json::from_slice(line) {
        Ok(News::Failed { why, .. }) => Some(why),
        _ => None,
    })
}
