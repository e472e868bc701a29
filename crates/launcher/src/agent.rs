//! `nicety mpirun --agent`: the part of mpirun on another host. It runs a crew, reads orders from standard input, and reports
//! events on standard output; when standard input ends, it kills all processes.

use std::time::Instant;

use rustix::event::PollFlags;
use rustix::stdio::{stdin, stdout};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use super::crew::{Crew, Part};
use super::hosts;
use super::message::{Frames, Hello, News, ORDER_LEN_MAX, Order};
use super::wake::{Signals, Wanted, wait};
use crate::failure::{FAILED, Failure, OK, Outcome};

/// Bytes queued for mpirun above which no more output of processes is read.
const ROOM: usize = 1 << 20;
/// Size of a write in bytes: a pipe reported as writable takes this much without blocking (PIPE_BUF).
const PIECE: usize = 4096;

#[derive(Clone, Copy)]
enum Watch {
    Signals,
    Orders,
    News,
    Crew(u32, Part),
}

struct Agent {
    crew: Crew,
    signals: Signals,
    frames: Frames,
    out: Vec<u8>,
    /// Whether mpirun can still send orders, and whether it can still read news.
    is_told: bool,
    is_heard: bool,
    is_gone: bool,
}

/// Serves mpirun of another host on standard input and output until all processes have ended. `version` is the version of this
/// program.
///
/// # Errors
/// If the system refuses resources that the agent needs.
pub fn run(version: String) -> Outcome {
    let cores = host::real::allowed_cores().len() as u32;
    let addresses = hosts::own_addresses();
    let hello = News::Hello(Hello { version, host: hosts::own_name(), cores, addresses });
    let mut agent = Agent {
        crew: Crew::new(),
        signals: Signals::install()?,
        frames: Frames::new(ORDER_LEN_MAX),
        out: hello.encode(),
        is_told: true,
        is_heard: true,
        is_gone: false,
    };
    loop {
        agent.collect();
        if agent.is_gone && agent.out.is_empty() {
            return Ok(if agent.is_heard { OK } else { FAILED });
        }
        for watch in agent.sleep()? {
            agent.serve(watch);
        }
        if agent.crew.deadline().is_some_and(|at| at <= Instant::now()) {
            agent.crew.look();
        }
    }
}

impl Agent {
    fn collect(&mut self) {
        while let Some(news) = self.crew.news() {
            self.is_gone |= news == News::Gone;
            self.out.extend(news.encode());
        }
        if !self.is_heard {
            self.out.clear();
        }
    }

    fn sleep(&self) -> Result<Vec<Watch>, Failure> {
        let (orders, news) = (stdin(), stdout());
        let mut wanted: Vec<Wanted<'_, Watch>> = vec![(Watch::Signals, self.signals.fd(), PollFlags::IN)];
        if self.is_told {
            wanted.push((Watch::Orders, orders, PollFlags::IN));
        }
        if !self.out.is_empty() {
            wanted.push((Watch::News, news, PollFlags::OUT));
        }
        let crew = self.crew.wanted(self.out.len() < ROOM);
        wanted.extend(crew.map(|((number, part), fd, flags)| (Watch::Crew(number, part), fd, flags)));
        wait(&wanted, self.crew.deadline())
            .map_err(|why| Failure::run(format!("cannot wait: {why}; check the memory of this host")))
    }

    fn serve(&mut self, watch: Watch) {
        match watch {
            Watch::Signals => {
                for signal in self.signals.come() {
                    match signal {
                        SIGCHLD => self.crew.look(),
                        SIGHUP | SIGINT | SIGTERM => self.crew.order(Order::Kill),
                        _ => {}
                    }
                }
            }
            Watch::Orders => self.obey(),
            Watch::News => {
                let n = self.out.len().min(PIECE);
                match rustix::io::write(stdout(), &self.out[..n]) {
                    Ok(n) => drop(self.out.drain(..n)),
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                    Err(_) => {
                        self.is_heard = false;
                        self.crew.order(Order::Kill);
                    }
                }
            }
            Watch::Crew(number, part) => self.crew.ready((number, part)),
        }
    }

    fn obey(&mut self) {
        let mut bytes = vec![0; 64 << 10];
        match rustix::io::read(stdin(), &mut bytes[..]) {
            Ok(n) if n > 0 => self.frames.push(&bytes[..n]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            _ => return self.leave(),
        }
        loop {
            let order = match self.frames.next() {
                Ok(None) => return,
                Ok(Some(frame)) => Order::decode(frame),
                Err(_) => None,
            };
            match order {
                Some(order) => self.crew.order(order),
                None => return self.leave(),
            }
        }
    }

    /// Standard input has ended or is malformed: kills all processes.
    fn leave(&mut self) {
        self.is_told = false;
        self.crew.order(Order::Kill);
    }
}
