//! A launcher of one machine: `mini_launcher 4 PROGRAM ARGUMENT...` starts so many ranks, serves them, and ends with their code.
//!
//! What the ranks of a job spawn is started, too. The first rank that fails, aborts or vanishes ends all of them.

#![forbid(unsafe_code)]

use pmi::server::{Event, Job, Left, Place, RankId, Server};
use pmi::spawn::Program;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::{FdFlags, fcntl_setfd};
use std::env;
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A process, and our end of its stream until that is closed.
struct Rank {
    id: RankId,
    child: Child,
    stream: Option<UnixStream>,
}

/// The ranks of all jobs, and who serves them.
struct Launcher {
    server: Server,
    ranks: Vec<Rank>,
    jobs: u32,
    /// What to end with; the first failure counts.
    code: Option<u8>,
}

impl Launcher {
    /// Starts a job of all these programs.
    fn start(&mut self, programs: &[Program], preput: Vec<(String, String)>) -> Result<()> {
        let numbered = (0..).zip(programs);
        let of_ranks =
            || numbered.clone().flat_map(|each| std::iter::repeat_n(each, each.1.processes as usize));
        let ranks = of_ranks().map(|(appnum, _)| Place { node: 0, appnum }).collect();
        let name = format!("mini-{}-{}", std::process::id(), self.jobs);
        let ids = self.server.add_job(Job { name, ranks, universe_size: None, preput })?;
        for (&id, (_, program)) in ids.iter().zip(of_ranks()) {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            // Ours stay here; this one goes to the next process and is closed before another starts.
            fcntl_setfd(&theirs, FdFlags::empty())?;
            let mut command = Command::new(&program.file);
            command
                .args(&program.arguments)
                .env("PMI_FD", theirs.as_raw_fd().to_string())
                .env("PMI_RANK", id.rank().to_string())
                .env("PMI_SIZE", ids.len().to_string());
            if self.jobs > 0 {
                command.env("PMI_SPAWNED", "1");
            }
            let child = command.spawn().map_err(|why| format!("{}: {why}", program.file))?;
            self.ranks.push(Rank { id, child, stream: Some(ours) });
        }
        self.jobs += 1;
        Ok(())
    }

    /// Serves them until all streams are closed.
    fn serve(&mut self) -> Result<()> {
        while self.code.is_none() && self.ranks.iter().any(|rank| rank.stream.is_some()) {
            let wanted = |rank: &Rank| match self.server.transmit(rank.id) {
                [] => PollFlags::IN,
                _ => PollFlags::IN | PollFlags::OUT,
            };
            let open = self.ranks.iter().filter_map(|rank| Some((rank, rank.stream.as_ref()?)));
            let mut fds: Vec<_> =
                open.map(|(rank, stream)| PollFd::from_borrowed_fd(stream.as_fd(), wanted(rank))).collect();
            poll(&mut fds, None)?;
            for rank in &mut self.ranks {
                move_bytes(&mut self.server, rank)?;
            }
            while let Some(event) = self.server.poll_event() {
                self.act(event)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Spawn { rank, spawn } => {
                self.start(&spawn.programs, spawn.preput)?;
                self.server.spawned(rank, &[]);
            }
            Event::Abort { rank, code, message } => {
                eprintln!("rank {} aborts: {}", rank.rank(), message.escape_debug());
                self.code = Some(code as u8);
            }
            Event::Left { rank, how: Left::Vanished } => {
                eprintln!("rank {} vanished", rank.rank());
                self.code = Some(1);
            }
            Event::Left { rank, how: Left::Broken(violation) } => {
                eprintln!("rank {} is cut off: {violation}", rank.rank());
                self.code = Some(1);
            }
            Event::Finalized(_) | Event::Left { .. } => {}
        }
        Ok(())
    }

    /// Waits for all processes, or ends them if one has failed; what to end with.
    fn end(&mut self) -> Result<u8> {
        for rank in &mut self.ranks {
            if self.code.is_some() {
                // It may have ended already, which is as good.
                let _ = rank.child.kill();
            }
            let status = rank.child.wait()?;
            if !status.success() && self.code.is_none() {
                self.code = Some(status.code().unwrap_or(1) as u8);
            }
        }
        Ok(self.code.unwrap_or(0))
    }
}

/// Reads and writes what can be at once.
fn move_bytes(server: &mut Server, rank: &mut Rank) -> Result<()> {
    let Some(stream) = &mut rank.stream else { return Ok(()) };
    let mut bytes = [0; 4096];
    let n = match stream.read(&mut bytes) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => None,
        // A process that was killed with bytes unread resets its stream.
        Err(error) if error.kind() == ErrorKind::ConnectionReset => Some(0),
        read => Some(read?),
    };
    match n {
        None => {}
        Some(0) => {
            server.handle_eof(rank.id);
            rank.stream = None;
            return Ok(());
        }
        Some(n) => server.handle_bytes(rank.id, &bytes[..n]),
    }
    while !server.transmit(rank.id).is_empty() {
        match stream.write(server.transmit(rank.id)) {
            Ok(n) => server.sent(rank.id, n),
            // Its end is read next.
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::BrokenPipe) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn main() -> Result<ExitCode> {
    let mut arguments = env::args().skip(1);
    let usage = "usage: mini_launcher RANKS PROGRAM ARGUMENT...";
    let processes = arguments.next().and_then(|number| number.parse().ok()).ok_or(usage)?;
    let file = arguments.next().ok_or(usage)?;
    let program = Program { file, processes, arguments: arguments.collect(), info: Vec::new() };
    let mut launcher = Launcher { server: Server::new(), ranks: Vec::new(), jobs: 0, code: None };
    let served = launcher.start(&[program], Vec::new()).and_then(|()| launcher.serve());
    if served.is_err() {
        launcher.code = Some(1);
    }
    let code = launcher.end()?;
    served.map(|()| ExitCode::from(code))
}
