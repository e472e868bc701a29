//! `nicety mpirun --agent`: the part of mpirun on another host. It runs a crew, reads orders from standard input, and reports
//! events on standard output; when standard input ends, it kills all processes.

use std::time::Instant;

use rustix::event::PollFlags;
use rustix::stdio::{stdin, stdout};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};

use super::crew::{Crew, ProcessFd};
use super::event_loop::{PollEntry, Signals, wait_ready};
use super::hosts;
use super::message::{AgentInfo, CrewEvent, Frames, ORDER_LEN_MAX, Order};
use crate::failure::{FAILED, Failure, OK, Outcome};

/// Bytes queued for mpirun above which no more output of processes is read.
const ROOM: usize = 1 << 20;
/// Size of a write in bytes: a pipe reported as writable takes this much without blocking (PIPE_BUF).
const PIECE: usize = 4096;

#[derive(Clone, Copy)]
enum PollSource {
    Signals,
    Orders,
    Output,
    Crew(u32, ProcessFd),
}

struct Agent {
    crew: Crew,
    signals: Signals,
    frames: Frames,
    out: Vec<u8>,
    /// Whether mpirun can still send orders, and whether it can still read events.
    can_receive: bool,
    can_send: bool,
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
    let hello = CrewEvent::Hello(AgentInfo { version, host: hosts::own_name(), cores, addresses });
    let mut agent = Agent {
        crew: Crew::new(),
        signals: Signals::install()?,
        frames: Frames::new(ORDER_LEN_MAX),
        out: hello.encode(),
        can_receive: true,
        can_send: true,
        is_gone: false,
    };
    loop {
        agent.encode_events();
        if agent.is_gone && agent.out.is_empty() {
            return Ok(if agent.can_send { OK } else { FAILED });
        }
        for watch in agent.wait_ready()? {
            agent.handle(watch);
        }
        if agent.crew.deadline().is_some_and(|at| at <= Instant::now()) {
            agent.crew.reap_and_kill();
        }
    }
}

impl Agent {
    /// Encodes the crew's events as output; discards them once the output is closed.
    fn encode_events(&mut self) {
        while let Some(event) = self.crew.next_event() {
            self.is_gone |= event == CrewEvent::Finished;
            self.out.extend(event.encode());
        }
        if !self.can_send {
            self.out.clear();
        }
    }

    /// Sleeps until a descriptor is ready or a deadline of the crew has passed.
    fn wait_ready(&self) -> Result<Vec<PollSource>, Failure> {
        let (orders, output) = (stdin(), stdout());
        let mut wanted: Vec<PollEntry<'_, PollSource>> =
            vec![(PollSource::Signals, self.signals.fd(), PollFlags::IN)];
        if self.can_receive {
            wanted.push((PollSource::Orders, orders, PollFlags::IN));
        }
        if !self.out.is_empty() {
            wanted.push((PollSource::Output, output, PollFlags::OUT));
        }
        let crew = self.crew.poll_entries(self.out.len() < ROOM);
        wanted.extend(crew.map(|((number, part), fd, flags)| (PollSource::Crew(number, part), fd, flags)));
        wait_ready(&wanted, self.crew.deadline())
            .map_err(|why| Failure::run(format!("cannot wait: {why}; check the memory of this host")))
    }

    /// Handles a descriptor that is ready.
    fn handle(&mut self, watch: PollSource) {
        match watch {
            PollSource::Signals => {
                for signal in self.signals.take_pending() {
                    match signal {
                        SIGCHLD => self.crew.reap_and_kill(),
                        SIGHUP | SIGINT | SIGTERM => self.crew.give_order(Order::Kill),
                        _ => {}
                    }
                }
            }
            PollSource::Orders => self.read_orders(),
            PollSource::Output => {
                let n = self.out.len().min(PIECE);
                match rustix::io::write(stdout(), &self.out[..n]) {
                    Ok(n) => drop(self.out.drain(..n)),
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                    Err(_) => {
                        self.can_send = false;
                        self.crew.give_order(Order::Kill);
                    }
                }
            }
            PollSource::Crew(number, part) => self.crew.handle_ready((number, part)),
        }
    }

    /// Reads and carries out orders. Kills all processes if the input has ended or is malformed.
    fn read_orders(&mut self) {
        let mut bytes = vec![0; 64 << 10];
        match rustix::io::read(stdin(), &mut bytes[..]) {
            Ok(n) if n > 0 => self.frames.push(&bytes[..n]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            _ => return self.kill_all(),
        }
        loop {
            let order = match self.frames.next() {
                Ok(None) => return,
                Ok(Some(frame)) => Order::decode(frame),
                Err(_) => None,
            };
            match order {
                Some(order) => self.crew.give_order(order),
                None => return self.kill_all(),
            }
        }
    }

    /// Standard input has ended or is malformed: kills all processes.
    fn kill_all(&mut self) {
        self.can_receive = false;
        self.crew.give_order(Order::Kill);
    }
}
