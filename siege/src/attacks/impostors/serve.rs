//! Impostors at a `nicety serve` that has a token. They have another token or none.

use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use anyhow::{Context, Result};
use bench::launch::wire::{self, FRAME_MAX, Frame, Hello, Lock, WireError};
use bench::token::{Party, Token};
use host::Rng;
use rustix::process::Pid;

use super::tcp::{HUGE, TcpImpostors, WireProtocol};
use super::{
    Behaviour, LATE_MAX, Listener, ListenerReport, Outcome, PATIENCE, attack_listener, count, judge,
};
use crate::attack::{Attack, Budget, Tally};
use crate::attacks::serve::{Access, honest, setup, start};
use crate::child::Child;

pub(crate) const ATTACK: Attack = Attack {
    name: "serve-impostors",
    about: "20,000 clients of `nicety serve` without its token; honest ones request a device meanwhile",
    weight: 1,
    late_max: LATE_MAX,
    run,
};

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    while budget.has_time_left() {
        let round = start(true).and_then(|(child, access)| {
            let mut crowd = TcpImpostors::new(access.addr, Client { token: Token::random()?, hello: None });
            let target = AttackedServer { child, access, asked: None };
            attack_listener(target, &mut crowd, count(budget), &mut budget.rng)
        });
        judge(tally, "nicety serve", round);
    }
    Ok(())
}

/// The attacked server.
struct AttackedServer {
    child: Child,
    access: Access,
    /// The time of the last honest client.
    asked: Option<Receiver<Result<Duration>>>,
}

impl Listener for AttackedServer {
    fn addr(&self) -> Option<SocketAddr> {
        Some(self.access.addr)
    }

    fn process(&self) -> Pid {
        self.child.pid()
    }

    fn connect(&mut self) -> Result<()> {
        let (tx, asked) = channel();
        let access = self.access.clone();
        self.asked = Some(asked);
        // The round may have ended.
        std::thread::spawn(move || drop(tx.send(honest(&access))));
        Ok(())
    }

    fn connected(&mut self) -> Result<Duration> {
        let asked = self.asked.take().context("no client has sent a request")?;
        asked.recv_timeout(PATIENCE).context("an honest client is not answered")?
    }

    /// Kills the server, which runs until a signal ends it.
    fn finish(mut self) -> Result<ListenerReport> {
        self.child.kill()?;
        Ok(ListenerReport::default())
    }
}

/// An impostor's side of the control protocol, with another token.
struct Client {
    token: Token,
    /// The greeting of the current impostor.
    hello: Option<Hello>,
}

impl WireProtocol for Client {
    /// The server's hello, whose nonce proofs use.
    fn read_greeting(&mut self, stream: &mut TcpStream) -> Result<bool> {
        match Hello::read(stream) {
            Ok(hello) => self.hello = Some(hello),
            Err(WireError::Gone(_)) => return Ok(false),
            Err(why) => return Err(why).context("no server"),
        }
        Ok(true)
    }

    fn foreign_key_message(&mut self, _: &mut Rng) -> Result<Vec<u8>> {
        let (ours, theirs) = (Hello::own(Some(&self.token))?, self.hello.as_ref().context("no hello")?);
        let lock = Lock::new(Some(&self.token), &ours, theirs, Party::Client)?.context("no token")?;
        let mut words = Vec::new();
        wire::write(&mut words, &ours)?;
        wire::write(&mut words, &lock.proof(Party::Client))?;
        wire::write(&mut words, &setup("shm"))?;
        Ok(words)
    }

    /// A hello, followed by the beginning of a 4 GiB frame.
    fn oversized_message(&mut self, _: &mut Rng) -> Result<Vec<u8>> {
        let mut words = Vec::new();
        wire::write(&mut words, &Hello::own(Some(&self.token))?)?;
        words.extend(u32::MAX.to_be_bytes());
        words.resize(HUGE, 0);
        Ok(words)
    }

    /// A server sends the reason of a refusal, and nothing else.
    fn outcome(&mut self, way: Behaviour, answer: &[u8]) -> Result<(Outcome, u64)> {
        let mut rest = answer;
        match wire::read::<Frame>(&mut rest, FRAME_MAX) {
            Ok(Frame::Refused { .. }) if rest.is_empty() => {}
            Err(WireError::Gone(_)) if answer.is_empty() => {}
            _ => return Ok((Outcome::Accepted, answer.len() as u64)),
        }
        Ok((if way == Behaviour::Foreign { Outcome::Challenged } else { Outcome::Refused }, 0))
    }
}
