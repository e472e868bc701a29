//! [`Agents`]: programs that a server starts for its clients. A client requests one by [`bench::launch::call_agent`].
//!
//! Once the server has accepted, the connection is the program's standard input and output, and the program ends when the connection
//! closes. A server starts programs only with `--allow-run`, and only for clients that share its token.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use bench::launch::WorkerCommand;
use bench::launch::admission::Client;
use bench::launch::guest::{describe, spawn};
use bench::launch::wire::{self, Frame};
use bench::launch::{now, since};

/// Programs running at the same time.
const AGENTS_MAX: usize = 64;
/// Time for the programs to exit on their own when the server ends.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between two checks whether they have exited.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// All programs; dropping ends and reaps them.
pub(super) struct Agents {
    command: Option<WorkerCommand>,
    running: Vec<(SocketAddr, Child)>,
}

impl Agents {
    pub(super) fn new(command: Option<&WorkerCommand>) -> Self {
        Self { command: command.cloned(), running: Vec::new() }
    }

    /// Starts a program for a client; or that client and why not.
    pub(super) fn add(&mut self, client: Client) -> Result<(), (Box<Client>, String)> {
        let Some(command) = &self.command else {
            let why = "it starts no programs; start it with --allow-run and a token";
            return Err((Box::new(client), why.to_owned()));
        };
        if self.running.len() >= AGENTS_MAX {
            let why = format!("it already runs programs for {AGENTS_MAX} clients; try again later");
            return Err((Box::new(client), why));
        }
        let peer = client.peer;
        let started = client.stream.try_clone().and_then(|output| {
            // Before the program says anything. A client that does not hear this has gone, and so will the program.
            let _ = wire::write(&mut &client.stream, &Frame::Runs);
            let input = client.stream.try_clone()?;
            spawn(command, OwnedFd::from(input), Some(OwnedFd::from(output)))
        });
        match started {
            Ok(child) => self.running.push((peer, child)),
            Err(why) => return Err((Box::new(client), format!("it cannot start a process: {why}"))),
        }
        Ok(())
    }

    /// Reaps the programs that have exited, and returns how each ended.
    pub(super) fn reap(&mut self) -> Vec<(SocketAddr, String)> {
        let mut ended = Vec::new();
        self.running.retain_mut(|(peer, child)| {
            let how = match child.try_wait() {
                Ok(None) => return true,
                Ok(Some(status)) if status.success() => "its programs have ended".to_owned(),
                Ok(Some(status)) => format!("the process that ran its programs {}", describe(status)),
                Err(why) => format!("the process that ran its programs is lost: {why}"),
            };
            ended.push((*peer, how));
            false
        });
        ended
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        for (_, child) in &self.running {
            // It is not reaped yet, so its number is its own.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
        let began = now();
        while !self.running.is_empty() && since(began) < EXIT_TIMEOUT {
            self.reap();
            std::thread::sleep(CHECK_INTERVAL);
        }
        for (_, child) in &mut self.running {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bench::launch::wire::Hello;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    fn shell(script: &str) -> WorkerCommand {
        WorkerCommand { program: "/bin/sh".into(), args: vec!["-c".into(), script.into()] }
    }

    /// A client as the door has it, and its own end.
    fn client() -> (Client, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let far = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
        let (stream, peer) = listener.accept().expect("a client");
        (Client { stream, peer, hello: Hello::own(None).expect("random") }, far)
    }

    fn ended(agents: &mut Agents) -> String {
        loop {
            if let Some((_, how)) = agents.reap().pop() {
                return how;
            }
            std::thread::sleep(CHECK_INTERVAL);
        }
    }

    #[test]
    fn program_uses_the_connection_as_its_streams() {
        let mut agents = Agents::new(Some(&shell("read line; echo heard $line; exit 3")));
        let (client, mut far) = client();
        assert!(agents.add(client).is_ok());
        let word: Frame = wire::read(&mut far, wire::FRAME_MAX).expect("a word");
        assert_eq!(word, Frame::Runs);
        far.write_all(b"it\n").expect("sent");
        assert!(ended(&mut agents).contains("status 3"));
        drop(agents);
        let mut output = String::new();
        far.read_to_string(&mut output).expect("text");
        assert_eq!(output, "heard it\n");
    }

    #[test]
    fn server_without_allow_run_starts_no_program() {
        let (client, _far) = client();
        let (_, why) = Agents::new(None).add(client).expect_err("nothing to start");
        assert!(why.contains("--allow-run"), "{why}");
    }

    #[test]
    fn programs_are_limited_and_end_with_the_server() {
        let mut agents = Agents::new(Some(&shell("exec sleep 1000")));
        let mut ends = Vec::new();
        for _ in 0..AGENTS_MAX {
            let (client, far) = client();
            assert!(agents.add(client).is_ok());
            ends.push(far);
        }
        let (client, _far) = client();
        let (_, why) = agents.add(client).expect_err("one too many");
        assert!(why.contains("already runs programs for 64 clients"), "{why}");
        let pids: Vec<Pid> = agents.running.iter().map(|(_, child)| Pid::from_child(child)).collect();
        drop(agents);
        assert!(pids.into_iter().all(|pid| rustix::process::test_kill_process(pid).is_err()));
    }
}
