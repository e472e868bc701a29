//! [`serve`]: a peer that needs no options: every client ships what it wants measured, and gets a fresh process.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::crew::spawn;
use super::{BenchError, WorkerCommand};

/// Clients at once; more wait in the listener's queue.
const CLIENTS_MAX: usize = 64;
/// Between two looks at the stop flag.
const TICK: Duration = Duration::from_millis(100);

/// Serves clients at `listen` until `stop` is set, each in a fresh process of this very program. `log` gets one line
/// for each thing that happens; the first says the address.
///
/// # Errors
/// [`BenchError`] when the address cannot be had. What a client does wrong ends that client's process alone.
pub fn serve(listen: SocketAddr, stop: &AtomicBool, log: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    serve_with(&WorkerCommand::own()?, listen, stop, log)
}

/// The same with another program as worker.
///
/// # Errors
/// As [`serve`].
pub fn serve_with(
    command: &WorkerCommand,
    listen: SocketAddr,
    stop: &AtomicBool,
    log: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    let no =
        |e: std::io::Error| BenchError::new(format!("cannot listen at {listen}: {e}; {}", remedy(e.kind())));
    let listener = TcpListener::bind(listen).map_err(no)?;
    listener.set_nonblocking(true).map_err(no)?;
    let addr = listener.local_addr().map_err(no)?;
    log(&format!("listening at {addr}"));
    let mut clients = Clients(Vec::new());
    while !stop.load(Ordering::Relaxed) {
        clients.reap(log);
        if clients.0.len() >= CLIENTS_MAX || !ready(&listener) {
            if clients.0.len() >= CLIENTS_MAX {
                std::thread::sleep(TICK);
            }
            continue;
        }
        match listener.accept() {
            Ok((stream, peer)) => clients.begin(command, stream, peer, log),
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => {
                log(&format!("a client was lost before it was accepted: {e}"));
                std::thread::sleep(TICK);
            }
        }
    }
    log("stopping");
    Ok(())
}

/// What helps where an address cannot be had.
fn remedy(why: std::io::ErrorKind) -> &'static str {
    use std::io::ErrorKind as K;
    match why {
        K::AddrInUse => "is a server running already? Try another port",
        K::AddrNotAvailable => "give an address of this machine, or 0.0.0.0 for all it has",
        K::PermissionDenied => "ports below 1024 are the administrator's: give another",
        _ => "give another address or port",
    }
}

fn ready(listener: &TcpListener) -> bool {
    let limit = Timespec { tv_sec: 0, tv_nsec: TICK.subsec_nanos().into() };
    rustix::event::poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&limit)).is_ok_and(|n| n > 0)
}

/// The clients' processes; dropping ends and reaps them all.
struct Clients(Vec<(SocketAddr, Child)>);

impl Clients {
    fn begin(
        &mut self,
        command: &WorkerCommand,
        stream: TcpStream,
        peer: SocketAddr,
        log: &mut dyn FnMut(&str),
    ) {
        match spawn(command, OwnedFd::from(stream)) {
            Ok(child) => {
                log(&format!("{peer}: begins"));
                self.0.push((peer, child));
            }
            Err(e) => log(&format!("{peer}: refused, no process can be started: {e}")),
        }
    }

    /// Forgets those that have ended.
    fn reap(&mut self, log: &mut dyn FnMut(&str)) {
        self.0.retain_mut(|(peer, child)| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) if status.success() => {
                log(&format!("{peer}: done"));
                false
            }
            Ok(Some(status)) => {
                log(&format!("{peer}: failed ({status})"));
                false
            }
            Err(e) => {
                log(&format!("{peer}: lost: {e}"));
                false
            }
        });
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // One that has ended by itself cannot be killed, and needs not be; it is reaped all the same.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(listen: SocketAddr) -> String {
        let command = WorkerCommand { program: "/no/such/program".into(), args: Vec::new() };
        serve_with(&command, listen, &AtomicBool::new(true), &mut |_| ()).expect_err("refused").what
    }

    #[test]
    fn an_address_that_cannot_be_had_says_what_helps() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let why = refused(taken.local_addr().expect("bound"));
        assert!(why.contains("running already"), "{why}");
        // TEST-NET-1 (RFC 5737) is no machine's.
        let why = refused(SocketAddr::from(([192, 0, 2, 1], 7471)));
        assert!(!why.contains("running already") && why.contains("of this machine"), "{why}");
    }
}
