//! [`serve`]: the loop of the server. Every client sends its whole plan and gets a fresh process.
//!
//! One thread serves all connections and never blocks on one of them: visitors before admission ([`Admission`]), and clients with and
//! without a process ([`Sessions`]).

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bench::launch::admission::{Admission, Wish};
use bench::launch::wire::Setup;
use bench::launch::{BenchError, WorkerCommand, now, since};
use bench::token::Token;
use host::Time;
use results::plain;

use super::agents::Agents;
use super::device;
use super::sessions::Sessions;

/// Listen backlog: pending connections, as far as the system allows (net.core.somaxconn).
const BACKLOG: i32 = 4096;
/// Largest number of log lines in a second.
const LINES_PER_SECOND_MAX: u32 = 20;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Where it listens.
    pub listen: SocketAddr,
    /// The one device that it offers, whatever side of it clients name; without it, what they ask for.
    pub device: Option<String>,
    /// The secret that its clients have to have.
    pub token: Option<Token>,
    /// What is started for clients that want a program to talk to; without it, they are refused.
    pub agent: Option<WorkerCommand>,
}

impl Serving {
    /// Refuses a server that anybody could reach and use, or that runs programs for anybody.
    ///
    /// # Errors
    /// [`OpenServer`].
    pub fn check(&self) -> Result<(), OpenServer> {
        let ip = self.listen.ip();
        if self.token.is_some() {
            Ok(())
        } else if self.agent.is_some() {
            Err(OpenServer::Runs)
        } else if !ip.to_canonical().is_loopback() {
            Err(OpenServer::Listens(ip))
        } else {
            Ok(())
        }
    }
}

/// Refusal to start a server on a reachable address without a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenServer {
    /// Other machines do.
    #[error(
        "other machines can reach {0}, and could use this machine; give both sides a token: \
         `(umask 077; openssl rand -hex 16 >token)`, then --token-file token here and for `nicety bench --peer`"
    )]
    Listens(IpAddr),
    /// It runs their programs.
    #[error(
        "every client could run programs as this user; give both sides a token: \
         `(umask 077; openssl rand -hex 16 >token)`, then --token-file token here and for `nicety mpirun --via serve`"
    )]
    Runs,
}

/// Serves clients until `stop` is set, each in a fresh process of this very program. `log` gets one line for each thing
/// that happens; the first says the address.
///
/// # Errors
/// [`BenchError`] when the address cannot be had. What a client does wrong ends that client's process alone.
pub fn serve(serving: &Serving, stop: &AtomicBool, log: &mut dyn FnMut(&str)) -> Result<(), BenchError> {
    serve_with(&WorkerCommand::own()?, serving, stop, log)
}

/// As [`serve`], with another program as worker.
///
/// # Errors
/// As [`serve`].
pub fn serve_with(
    command: &WorkerCommand,
    serving: &Serving,
    stop: &AtomicBool,
    log: &mut dyn FnMut(&str),
) -> Result<(), BenchError> {
    serving.check().map_err(|why| BenchError::new(why.to_string()))?;
    let listen = serving.listen;
    let no =
        |e: std::io::Error| BenchError::new(format!("cannot listen at {listen}: {e}; {}", remedy(e.kind())));
    let listener = TcpListener::bind(listen).map_err(no)?;
    listener.set_nonblocking(true).map_err(no)?;
    // A large backlog serves a burst of connections: a client dropped here would retry only after a whole second.
    rustix::net::listen(&listener, BACKLOG).map_err(|e| no(e.into()))?;
    let addr = listener.local_addr().map_err(no)?;
    let mut log = Log { out: log, began: now(), lines: 0, lost: 0 };
    log.write(&format!("listening at {addr}"));
    let (mut admission, mut sessions) = (Admission::new(serving.token.as_ref()), Sessions::new(command));
    let mut agents = Agents::new(serving.agent.as_ref());
    while !stop.load(Ordering::Relaxed) {
        admission.wait(&listener, sessions.watched());
        admission.accept(&listener, &mut |why| log.write(why));
        let (clients, refused) = admission.read_visitors();
        for (peer, why) in refused {
            log.write(&format!("{peer}: refused: {why}"));
        }
        for (client, wish) in clients {
            let peer = client.peer;
            let added = match wish {
                Wish::Run => agents.add(client),
                Wish::Measure(setup) => {
                    match device::device_for_client(&setup.device, serving.device.as_deref()) {
                        Ok(device) => sessions.add(client, Setup { device, ..setup }),
                        Err(why) => Err((Box::new(client), format!("cannot measure {why}"))),
                    }
                }
            };
            if let Err((client, why)) = added {
                log.write(&format!("{peer}: refused: {why}"));
                admission.refuse(*client, &why);
            }
        }
        for (peer, what) in sessions.handle_events().into_iter().chain(agents.reap()) {
            log.write(&format!("{peer}: {what}"));
        }
    }
    log.write("stopping");
    Ok(())
}

/// The remedy if the server cannot listen on an address.
fn remedy(why: std::io::ErrorKind) -> &'static str {
    use std::io::ErrorKind as K;
    match why {
        K::AddrInUse => "a server may already be running; try another port",
        K::AddrNotAvailable => "give an address of this host, or 0.0.0.0 for all of them",
        K::PermissionDenied => "ports below 1024 need root; give another port",
        _ => "give another address or port",
    }
}

/// The log: one line per event, without terminal control characters, and limited in lines per second.
struct Log<'a> {
    out: &'a mut dyn FnMut(&str),
    began: Time,
    lines: u32,
    lost: u64,
}

impl Log<'_> {
    fn write(&mut self, text: &str) {
        if since(self.began) > Duration::from_secs(1) {
            if self.lost > 0 {
                (self.out)(&format!("{} more lines were suppressed", self.lost));
            }
            (self.began, self.lines, self.lost) = (now(), 0, 0);
        }
        self.lines += 1;
        if self.lines > LINES_PER_SECOND_MAX {
            self.lost += 1;
        } else {
            (self.out)(&plain::line(text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(listen: SocketAddr, token: Option<Token>) -> String {
        let command = WorkerCommand { program: "/no/such/program".into(), args: Vec::new() };
        let serving = Serving { listen, device: None, token, agent: None };
        serve_with(&command, &serving, &AtomicBool::new(true), &mut |_| ()).expect_err("refused").what
    }

    #[test]
    fn unavailable_address_is_refused_with_a_remedy() {
        let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
        let why = refused(taken.local_addr().expect("bound"), None);
        assert!(why.contains("already be running"), "{why}");
        // TEST-NET-1 (RFC 5737) is no machine's.
        let why = refused(SocketAddr::from(([192, 0, 2, 1], 7471)), Token::random().ok());
        assert!(!why.contains("already be running") && why.contains("of this host"), "{why}");
    }

    #[test]
    fn network_address_without_token_is_refused() {
        for open in ["0.0.0.0:0", "192.0.2.1:0", "[::]:0", "[::ffff:10.0.0.1]:0"] {
            let why = refused(open.parse().expect("an address"), None);
            assert!(why.contains("--token-file") && why.contains("other machines"), "{open}: {why}");
        }
        for closed in ["127.0.0.1:0", "127.9.9.9:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let listen = closed.parse().expect("an address");
            assert!(Serving { listen, device: None, token: None, agent: None }.check().is_ok(), "{closed}");
        }
    }

    #[test]
    fn running_programs_without_token_is_refused() {
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let agent = Some(WorkerCommand { program: "/bin/true".into(), args: Vec::new() });
        let serving = Serving { listen, device: None, token: None, agent };
        assert_eq!(serving.check(), Err(OpenServer::Runs));
        let token = Token::random().ok();
        assert_eq!(Serving { token, ..serving }.check(), Ok(()));
    }

    #[test]
    fn log_is_escaped_and_limited() {
        let mut lines = Vec::new();
        let mut out = |line: &str| lines.push(line.to_owned());
        let mut log = Log { out: &mut out, began: now(), lines: 0, lost: 0 };
        (0..1000).for_each(|_| log.write("\x1b[2J"));
        assert!(lines.len() < 500 && lines.iter().all(|line| !line.contains('\x1b')), "{}", lines.len());
    }
}
