//! Rules at run time: a socket of the process that takes them from processes of the same user, one line each.
//!
//! Its name is abstract, `nicety-faults/UID/PID`: it needs no file, and ends with the process. Each side checks by the
//! system that the other one belongs to the same user. A line is a rule (`on=write nth=3 status=RETRY_EXC_ERR`), `list`
//! or `clear`; the answer is `ok` with lines of text, or `error` with the reason. Then the process closes the connection.

use std::io::{self, BufReader, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use host::bounded::{read_all, read_line};
use host::{EventCount, Host, Span};
use rustix::net::sockopt::socket_peercred;
use rustix::process::{geteuid, getpid};
use verbs::{Error, Result};

use crate::rule::Rule;
use crate::shared::Shared;

/// A longer line is no rule.
const LINE_BYTES_MAX: u64 = 4096;
/// A longer answer is not one of ours.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// How long a client may take for its line, and a server for its answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the thread waits after a connection that it could not accept.
const PAUSE: Span = Span::from_ms(10);

/// The devices of this process that take rules, and the process in which the socket was opened.
static SERVED: Mutex<(Vec<Weak<Shared>>, Option<i32>)> = Mutex::new((Vec::new(), None));

fn served() -> MutexGuard<'static, (Vec<Weak<Shared>>, Option<i32>)> {
    SERVED.lock().unwrap_or_else(|e| e.into_inner())
}

fn live() -> Vec<Arc<Shared>> {
    served().0.iter().filter_map(Weak::upgrade).collect()
}

fn name(pid: i32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("nicety-faults/{}/{pid}", geteuid().as_raw()))
}

/// Whether the other side belongs to the same user.
fn is_own_user(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|other| other.uid == geteuid())
}

/// Takes rules for a device over the socket of this process, which opens with the first device.
///
/// # Errors
/// The system's, if the socket or its thread cannot be created.
pub(crate) fn serve(shared: &Arc<Shared>) -> Result<()> {
    let mut served = served();
    served.0.retain(|known| known.strong_count() != 0);
    served.0.push(Arc::downgrade(shared));
    let own = getpid().as_raw_nonzero().get();
    if served.1 == Some(own) {
        return Ok(());
    }
    let what = "cannot open the socket that takes rules of faults (another process may have its name)";
    let listener = name(own).and_then(|name| UnixListener::bind_addr(&name));
    let listener = listener.map_err(|why| Error::system(what, why))?;
    let host = shared.host().clone();
    let run = move || accept_all(&host, &listener);
    let started = shared.host().spawn("nicety-faults-in", None, run);
    started.map_err(|why| Error::system("cannot start the thread that takes rules of faults", why))?;
    served.1 = Some(own);
    Ok(())
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
    let devices = live();
    if devices.is_empty() {
        return Err("no device of faults is open; open faults(DEVICE) first".into());
    }
    let lines = |device: &Arc<Shared>| device.engine.report();
    match line {
        "list" => Ok(devices.iter().flat_map(lines).map(|line| line + "\n").collect()),
        "clear" => {
            devices.iter().for_each(|device| device.engine.clear());
            Ok(String::new())
        }
        rule => {
            let rule: Rule = rule.parse().map_err(|why: crate::BadRule| why.to_string())?;
            for device in &devices {
                device.add(rule.clone(), "run time".into()).map_err(|why| why.to_string())?;
            }
            Ok(String::new())
        }
    }
}

/// Whether a process of this user takes rules.
#[must_use]
pub fn serves(pid: i32) -> bool {
    name(pid).and_then(|name| UnixStream::connect_addr(&name)).is_ok_and(|stream| is_own_user(&stream))
}

/// Sends a line to a process of this user; returns its answer.
///
/// # Errors
/// A sentence: the process takes no rules, or what it answers.
pub fn request(pid: i32, line: &str) -> std::result::Result<String, String> {
    let none = |why: io::Error| {
        format!(
            "process {pid} takes no rules of faults: {why}; start it by nicety run --faults FILE, or with the device faults(shm), \
             as the same user"
        )
    };
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
        Some(("error", why)) => Err(why.trim_end().to_owned()),
        _ => Err(format!("process {pid} gives no answer; it may have ended")),
    }
}

/// What each rule of the process's devices did, for its end.
#[must_use]
pub fn remaining_report() -> Vec<String> {
    let own = getpid().as_raw_nonzero().get();
    if served().1 != Some(own) {
        // A forked child, whose parent reports.
        return Vec::new();
    }
    live().iter().flat_map(|device| device.engine.report()).collect()
}
