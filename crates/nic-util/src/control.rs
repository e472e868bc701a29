//! The control socket of a process: its devices answer requests of processes of the same user, one line each.
//!
//! Its name is abstract, `nicety/UID/PID`: it needs no file, and ends with the process. Each side checks by the system that the
//! other one belongs to the same user. A line is a request, such as a rule of faults or `counters`; the service that has it
//! answers, with `ok` and lines of text, or `error` and the reason. Then the process closes the connection.

use std::io::{self, BufReader, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use host::bounded::{read_all, read_line};
use host::{EventCount, Host, Span};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{geteuid, getpid};
use verbs::{Error, Result};

use crate::sync::unpoisoned;

/// A longer line is no request.
const LINE_BYTES_MAX: u64 = 4096;
/// A longer answer is not one of ours.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// How long a client may take for its line, and a server for its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the thread waits after a connection that it could not accept.
const PAUSE: Span = Span::from_ms(10);

/// The beginning of the answer to a line that no service has.
const UNKNOWN: &str = "no device of this process knows";

/// A function of a device that answers requests of one kind.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// The line that it answers; empty for all lines that no other service has.
    pub line: &'static str,
    /// Returns text, or a sentence why not.
    pub answer: fn(&str) -> std::result::Result<String, String>,
}

/// The services of this process, and the process in which the socket was opened.
static SERVED: Mutex<(Vec<Service>, Option<i32>)> = Mutex::new((Vec::new(), None));

fn served() -> MutexGuard<'static, (Vec<Service>, Option<i32>)> {
    unpoisoned(&SERVED)
}

fn name(pid: i32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("nicety/{}/{pid}", geteuid().as_raw()))
}

/// Whether the other side belongs to the same user.
fn is_own_user(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|other| other.uid == geteuid())
}

fn own_pid() -> i32 {
    getpid().as_raw_nonzero().get()
}

/// Adds a service to the socket of this process, which opens with the first one. A second service of the same line is not added.
///
/// # Errors
/// The system's, if the socket or its thread cannot be created.
pub fn serve(host: &Host, service: Service) -> Result<()> {
    let mut served = served();
    if !served.0.iter().any(|known| known.line == service.line) {
        served.0.push(service);
    }
    let own = own_pid();
    if served.1 == Some(own) {
        return Ok(());
    }
    let what = "cannot open the control socket (another process may have its name)";
    let listener = name(own).and_then(|name| UnixListener::bind_addr(&name));
    let listener = listener.map_err(|why| Error::system(what, why))?;
    let thread_host = host.clone();
    let started = host.spawn("nicety-control", None, move || accept_all(&thread_host, &listener));
    started.map_err(|why| Error::system("cannot start the thread of the control socket", why))?;
    served.1 = Some(own);
    Ok(())
}

/// Whether this process has opened its socket: not its parent, before fork(2).
#[must_use]
pub fn is_served_here() -> bool {
    served().1 == Some(own_pid())
}

/// The thread's main function, which runs until the process ends.
fn accept_all(host: &Host, listener: &UnixListener) {
    for stream in listener.incoming() {
        match stream {
            // A client that fails is not a failure of this process.
            Ok(stream) => drop(answer(stream)),
            // Descriptors ran out, for example.
            Err(_) => host
                .wait("a free descriptor", &EventCount::new(), host.after(PAUSE), || None::<()>)
                .unwrap_or(()),
        }
    }
}

fn answer(mut stream: UnixStream) -> io::Result<()> {
    if !is_own_user(&stream) {
        return Ok(());
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = Vec::new();
    read_line(&mut BufReader::new(&stream), LINE_BYTES_MAX, &mut line)?;
    let answer = match command(String::from_utf8_lossy(&line).trim()) {
        Ok(text) => format!("ok\n{text}"),
        Err(why) => format!("error\n{why}\n"),
    };
    stream.write_all(answer.as_bytes())
}

/// Executes a line.
fn command(line: &str) -> std::result::Result<String, String> {
    // A service may take long, and others must be able to join.
    let services = served().0.clone();
    let of = |wanted: &str| services.iter().find(|service| service.line == wanted);
    match of(line).or_else(|| of("")) {
        Some(service) => (service.answer)(line),
        None => Err(format!("{UNKNOWN} '{line}'")),
    }
}

/// Sends a line to a process of this user; returns its answer. `remedy` says how a process is started that would answer.
///
/// # Errors
/// A sentence: the process has no control socket, or what it answers.
pub fn request(pid: i32, line: &str, remedy: &str) -> std::result::Result<String, String> {
    let none = |why: io::Error| format!("process {pid} has no control socket: {why}; {remedy}");
    let mut stream = name(pid).and_then(|name| UnixStream::connect_addr(&name)).map_err(none)?;
    if !is_own_user(&stream) {
        return Err(format!("the socket of process {pid} belongs to another user"));
    }
    let answer = (|| {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(format!("{line}\n").as_bytes())?;
        let answer = read_all(&mut stream, ANSWER_BYTES_MAX)?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    })()
    .map_err(|why: io::Error| format!("process {pid} does not answer: {why}"))?;
    match answer.split_once('\n') {
        Some(("ok", text)) => Ok(text.to_owned()),
        Some(("error", why)) if why.starts_with(UNKNOWN) => {
            Err(format!("process {pid}: {}; {remedy}", why.trim_end()))
        }
        Some(("error", why)) => Err(why.trim_end().to_owned()),
        _ => Err(format!("process {pid} gives no answer; it may have ended")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(line: &str) -> std::result::Result<String, String> {
        if line == "bad" { Err("a bad word".to_owned()) } else { Ok(format!("rule {line}\n")) }
    }

    /// Goal: each line reaches its service, and the rest the general one. Method: lines before and after that one is added.
    #[test]
    fn each_line_reaches_its_service() {
        let host = host::real::host();
        serve(&host, Service { line: "counters", answer: |_| Ok("1".to_owned()) }).expect("a service");
        let ask = |line: &str| request(own_pid(), line, "start it");
        let error = ask("hello").expect_err("no service");
        assert!(error.ends_with("no device of this process knows 'hello'; start it"), "{error}");
        for _ in 0..2 {
            serve(&host, Service { line: "", answer: rule }).expect("a general service");
        }
        assert_eq!(ask("hello"), Ok("rule hello\n".to_owned()));
        assert_eq!(ask("bad"), Err("a bad word".to_owned()));
        assert_eq!(ask("counters"), Ok("1".to_owned()));
        let error = request(1, "hello", "start it").expect_err("another process");
        assert!(error.starts_with("process 1 has no control socket"), "{error}");
        assert!(is_served_here());
    }
}
