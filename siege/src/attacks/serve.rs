//! `nicety serve` with clients that are silent, greedy, slow, unresponsive or lying: an honest client must be answered
//! within a second whatever the others do, and nothing may be left after they have gone.
//!
//! One server has a token, another none. In a round some connections follow one row of the table of [`ClientBehaviour`]; then an
//! honest client connects and must learn its place in the queue or that its device is open; then the others hang up,
//! and the server must return to its initial state: no additional process, descriptor or thread.

use std::ffi::OsString;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bench::experiment::{Cell, Round, Settings, Word};
use bench::launch::WorkerCommand;
use bench::launch::wire::{self, FRAME_MAX, Frame, HELLO_MAX, Hello, Lock, Setup};
use bench::token::{Party, Token};
use bench_server::Serving;
use results::variant::variant;
use serde_json::{Value, json};

use crate::attack::{Attack, Budget, Tally};
use crate::child::{Child, send_to_parent};
use host::Rng;

pub(crate) const ATTACK: Attack = Attack {
    name: "serve",
    about: "silent, greedy, slow, non-reading and lying clients of `nicety serve`, together with an honest one",
    weight: 3,
    late_max: Duration::from_secs(1),
    run,
};

const TOKEN: &str = "known to honest clients";
/// How long a wrong message may wait for its answer, and a server may need to release the remains of an attack.
const PATIENCE: Duration = Duration::from_secs(1);
const SETTLING: Duration = Duration::from_secs(8);
/// Numbers that are too large for every field.
const HUGE: [u64; 4] = [1 << 62, u64::MAX, 1 << 32, (1 << 31) + 1];

/// What a hostile client does.
#[derive(Clone, Copy, Debug)]
enum ClientBehaviour {
    /// Connects and sends nothing.
    Silent,
    /// Sends part of a frame, then nothing.
    Partial,
    /// Sends a frame a byte at a time.
    Dribble,
    /// Sends its request, then nothing.
    Abandoned,
    /// Sends requests, and does not read the answers.
    Deaf,
    /// Sends bytes of no protocol.
    Garbage,
    /// Authenticates with a wrong proof.
    WrongToken,
    /// One number of the set-up is huge.
    Settings,
    /// One number of a cell or a round is huge.
    Numbers,
    /// Makes the server do work that only clients do, for as long as valid numbers allow.
    Burn,
    /// Names files as devices.
    Paths,
    /// Puts escape sequences into every text.
    Escapes,
    /// Connects and disconnects, as fast as it can.
    Flood,
}

const WAYS: [ClientBehaviour; 13] = [
    ClientBehaviour::Silent,
    ClientBehaviour::Abandoned,
    ClientBehaviour::Burn,
    ClientBehaviour::Numbers,
    ClientBehaviour::Paths,
    ClientBehaviour::Partial,
    ClientBehaviour::Dribble,
    ClientBehaviour::Deaf,
    ClientBehaviour::Garbage,
    ClientBehaviour::WrongToken,
    ClientBehaviour::Settings,
    ClientBehaviour::Escapes,
    ClientBehaviour::Flood,
];

/// Child: a server that forwards its log.
pub(crate) fn server() -> Result<()> {
    let locked = crate::child::receive_from_parent()?.context("whether there is a token")? == "locked";
    let token = locked.then(|| Token::new(TOKEN)).transpose().map_err(anyhow::Error::msg)?;
    let serving = Serving { listen: ([127, 0, 0, 1], 0).into(), device: None, token, agent: None };
    let args: [OsString; 2] = ["--role".into(), "serve-worker".into()];
    let command = WorkerCommand { program: std::env::current_exe()?, args: args.into() };
    let stop = AtomicBool::new(false);
    Ok(bench_server::serve_with(&command, &serving, &stop, &mut |line| drop(send_to_parent(line)))?)
}

/// Child of that child: the process of one client.
pub(crate) fn worker() -> Result<()> {
    // The server receives its result.
    let _ = bench::launch::worker_main();
    Ok(())
}

/// How clients reach a server.
#[derive(Clone)]
pub(super) struct Access {
    pub(super) addr: SocketAddr,
    token: Option<Token>,
}

/// A server under attack.
struct AttackedServer {
    child: Child,
    access: Access,
    before: [usize; 3],
}

/// Starts a server, with a token or without.
pub(super) fn start(locked: bool) -> Result<(Child, Access)> {
    let mut child = Child::start("serve-server")?;
    let line = child.request(if locked { "locked" } else { "open" })?;
    let addr = line.strip_prefix("listening at ").context("no address")?.parse()?;
    let token = locked.then(|| Token::new(TOKEN)).transpose().map_err(anyhow::Error::msg)?;
    Ok((child, Access { addr, token }))
}

impl AttackedServer {
    fn start(locked: bool) -> Result<Self> {
        let (child, access) = start(locked)?;
        let mut target = Self { child, access, before: [0; 3] };
        target.before = target.resource_counts();
        Ok(target)
    }

    /// Its current descriptors, threads and processes.
    fn resource_counts(&self) -> [usize; 3] {
        let own = format!("/proc/{}", self.child.pid().as_raw_nonzero());
        let count = |what: &str| std::fs::read_dir(format!("{own}/{what}")).map_or(0, Iterator::count);
        let tasks = std::fs::read_dir(format!("{own}/task")).into_iter().flatten().flatten();
        let children = tasks
            .map(|task| std::fs::read_to_string(task.path().join("children")).unwrap_or_default())
            .map(|pids| pids.split_whitespace().count())
            .sum();
        [count("fd"), count("task"), children]
    }

    /// What it still holds above its initial state, after it had time to release it.
    fn left_over(&self) -> u64 {
        let began = Instant::now();
        loop {
            let more: usize = self
                .resource_counts()
                .iter()
                .zip(self.before)
                .map(|(now, then)| now.saturating_sub(then))
                .sum();
            if more == 0 || began.elapsed() > SETTLING {
                return more as u64;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Access {
    fn connect(&self) -> Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.addr, Duration::from_secs(5))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(3)))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(stream)
    }

    /// A connection after the greeting.
    fn greeted(&self) -> Result<TcpStream> {
        let mut stream = self.connect()?;
        let ours = Hello::own(self.token.as_ref())?;
        wire::write(&mut stream, &ours)?;
        let theirs = Hello::read(&mut stream)?;
        if let Some(lock) = Lock::new(self.token.as_ref(), &ours, &theirs, Party::Client)? {
            wire::write(&mut stream, &lock.proof(Party::Client))?;
            lock.check(wire::read(&mut stream, FRAME_MAX)?, Party::Server)?;
        }
        Ok(stream)
    }

    /// A connection that has requested a device.
    fn connect_with_request(&self, device: &str) -> Result<TcpStream> {
        let mut stream = self.greeted()?;
        wire::write(&mut stream, &setup(device))?;
        Ok(stream)
    }
}

pub(super) fn setup(device: &str) -> Frame {
    Frame::Setup(Setup { device: device.to_owned(), settings: Settings::default(), core: None })
}

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("siege-serve").tempdir()?;
    let files = Files::new(folder.path())?;
    let mut targets = [AttackedServer::start(false)?, AttackedServer::start(true)?];
    let mut round = budget.rng.below(WAYS.len() as u64) as usize;
    while budget.has_time_left() {
        let target = &mut targets[budget.rng.below(2) as usize];
        let way = WAYS[round % WAYS.len()];
        round += 1;
        tally.tried += 1;
        // An attack's own errors, such as a failed connect when the server is full, are no failure of the server.
        let mut hostile = Hostile { target, files: &files, rng: &mut budget.rng, unanswered: Vec::new() };
        let held = hostile.attack(way);
        let wrong = hostile.unanswered;
        tally.hung += wrong.len() as u64;
        wrong.iter().for_each(|what| tally.add_note(format!("{way:?}: {what}")));
        let answered = honest(&target.access);
        drop(held);
        let left = target.left_over();
        tally.left_over += left;
        if left > 0 {
            tally.add_note(format!(
                "{way:?}: {left} left over, of descriptors, threads, processes: {:?}",
                target.resource_counts()
            ));
        }
        let raw = raw_lines(&target.child);
        raw.iter().for_each(|line| tally.add_note(format!("{way:?}: raw text in the log: {line:?}")));
        tally.outside += raw.len() as u64;
        match answered {
            Ok(after) => {
                tally.record_reaction(after);
                if after > PATIENCE / 2 {
                    tally.add_note(format!("{way:?}: an honest client was answered after {after:?}"));
                }
            }
            Err(ref why) => tally.add_note(format!("{way:?}: an honest client was not answered: {why:#}")),
        }
        tally.survived += u64::from(answered.is_ok() && left == 0 && raw.is_empty() && target.child.runs());
    }
    Ok(())
}

/// Lines of the log that a terminal would act on.
fn raw_lines(server: &Child) -> Vec<String> {
    let lines = std::iter::from_fn(|| server.receive_within(Duration::ZERO));
    lines.filter(|line| line.contains(char::is_control)).collect()
}

/// An honest client; returns how long it took to learn its place or to get its device. It reconnects if it is turned
/// away unheard, as `nicety bench` does.
pub(super) fn honest(access: &Access) -> Result<Duration> {
    let began = Instant::now();
    let mut last = None;
    for _ in 0..5 {
        match access.connect_with_request("shm").and_then(|mut stream| {
            let answer: Frame = wire::read(&mut stream, FRAME_MAX)?;
            match answer {
                Frame::Wait { .. } => Ok(()),
                Frame::Opened { .. } => Ok(wire::write(&mut stream, &Frame::Word { word: Word::Bye })?),
                other => bail!("{other:?}"),
            }
        }) {
            Ok(()) => return Ok(began.elapsed()),
            Err(why) => last = Some(why),
        }
    }
    Err(last.context("never called")?)
}

/// Files that a server must not open.
struct Files {
    names: Vec<String>,
}

impl Files {
    fn new(folder: &Path) -> Result<Self> {
        let path = |name: &str| folder.join(name);
        std::fs::write(path("there.toml"), "[nothing]\n")?;
        rustix::fs::mkfifoat(rustix::fs::CWD, path("fifo.toml"), rustix::fs::Mode::from_raw_mode(0o600))?;
        let names = ["there.toml", "missing.toml", "fifo.toml"];
        Ok(Self { names: names.map(|name| path(name).display().to_string()).into() })
    }
}

/// The attacker of the server.
struct Hostile<'a> {
    target: &'a AttackedServer,
    files: &'a Files,
    rng: &'a mut Rng,
    /// Wrong messages that got no answer.
    unanswered: Vec<String>,
}

impl Hostile<'_> {
    /// Attacks in this way; returns the connections that it leaves open.
    fn attack(&mut self, way: ClientBehaviour) -> Vec<TcpStream> {
        let count = match way {
            ClientBehaviour::Silent => 400,
            ClientBehaviour::Flood => 2000,
            ClientBehaviour::Abandoned => 40,
            ClientBehaviour::Partial | ClientBehaviour::Garbage | ClientBehaviour::WrongToken => 100,
            ClientBehaviour::Dribble
            | ClientBehaviour::Deaf
            | ClientBehaviour::Burn
            | ClientBehaviour::Escapes
            | ClientBehaviour::Paths => 6,
            ClientBehaviour::Settings | ClientBehaviour::Numbers => 12,
        };
        let mut held = Vec::new();
        for _ in 0..count {
            held.extend(self.start_client(way).ok().flatten());
        }
        held
    }

    fn start_client(&mut self, way: ClientBehaviour) -> Result<Option<TcpStream>> {
        let access = &self.target.access;
        Ok(match way {
            ClientBehaviour::Silent => Some(access.connect()?),
            ClientBehaviour::Flood => {
                drop(access.connect()?);
                None
            }
            ClientBehaviour::Partial => Some(self.part_of_a_hello()?),
            ClientBehaviour::Dribble => Some(self.dribbled()?),
            ClientBehaviour::Abandoned => Some(access.connect_with_request("shm")?),
            ClientBehaviour::Deaf => Some(self.deaf()?),
            ClientBehaviour::Garbage => {
                let mut stream = access.connect()?;
                let bytes: Vec<u8> = (0..self.rng.below(3000)).map(|_| self.rng.next_u64() as u8).collect();
                stream.write_all(&bytes)?;
                Some(stream)
            }
            ClientBehaviour::WrongToken => Some(self.wrong_token()?),
            ClientBehaviour::Settings => self.settings()?,
            ClientBehaviour::Numbers => self.numbers()?,
            ClientBehaviour::Burn => self.burn()?,
            ClientBehaviour::Paths => self.paths()?,
            ClientBehaviour::Escapes => self.escapes()?,
        })
    }

    fn part_of_a_hello(&mut self) -> Result<TcpStream> {
        let mut bytes = Vec::new();
        wire::write(&mut bytes, &Hello::own(None)?)?;
        bytes.truncate(1 + self.rng.below(bytes.len() as u64 - 1) as usize);
        let mut stream = self.target.access.connect()?;
        stream.write_all(&bytes)?;
        Ok(stream)
    }

    /// A set-up that is sent a byte every few milliseconds, for a while.
    fn dribbled(&mut self) -> Result<TcpStream> {
        let mut stream = self.target.access.greeted()?;
        let mut bytes = Vec::new();
        wire::write(&mut bytes, &setup("shm"))?;
        for byte in bytes.iter().take(10) {
            stream.write_all(&[*byte])?;
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(stream)
    }

    /// Requests nonexistent devices again and again, and reads nothing.
    fn deaf(&mut self) -> Result<TcpStream> {
        let mut stream = self.target.access.connect_with_request("shm")?;
        let cell = Cell { experiment: "nothing".into(), size: 8, ..Cell::default() };
        let word = Frame::Word { word: Word::Begin { cell, rank: 1 } };
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(50) && wire::write(&mut stream, &word).is_ok() {}
        Ok(stream)
    }

    fn wrong_token(&mut self) -> Result<TcpStream> {
        let mut stream = self.target.access.connect()?;
        let wrong = Token::random()?;
        wire::write(&mut stream, &Hello::own(Some(&wrong))?)?;
        let theirs: Hello = wire::read(&mut stream, HELLO_MAX)?;
        ensure!(
            theirs.nonce.is_some() == self.target.access.token.is_some(),
            "it says whether it has a token"
        );
        wire::write(&mut stream, &Frame::Proof { proof: "00".repeat(32) })?;
        wire::write(&mut stream, &setup("shm"))?;
        self.expect_no(&mut stream, "a wrong token".to_owned());
        Ok(stream)
    }

    /// One number of the set-up is out of bounds.
    fn settings(&mut self) -> Result<Option<TcpStream>> {
        let all = ["window", "burst", "signal", "inline", "connections", "mops", "patience_ms"];
        let (name, number) = (*self.rng.one_of(&all), *self.rng.one_of(&HUGE));
        let mut frame = serde_json::to_value(setup("shm"))?;
        frame["settings"][name] = number.into();
        let mut stream = self.target.access.greeted()?;
        wire::write(&mut stream, &frame)?;
        self.expect_no(&mut stream, format!("{name} = {number}"));
        Ok(Some(stream))
    }

    /// One number of a message is out of bounds, or the length of a frame is.
    fn numbers(&mut self) -> Result<Option<TcpStream>> {
        let number = *self.rng.one_of(&HUGE);
        let Some(mut stream) = self.opened()? else { return Ok(None) };
        let begin = |cell: Value, rank: u64| json!({"frame": "word", "word": {"say": "begin", "cell": cell, "rank": rank}});
        let cell = |size: u64| json!({"experiment": "bandwidth", "variant": {"op": "send", "source": "host", "sink": "host"}, "size": size});
        let round = |name: &str| {
            let mut word = json!({"say": "round", "lead_in": 0, "samples": 1, "batch": 1});
            word[name] = number.into();
            json!({"frame": "word", "word": word})
        };
        let (name, frame) = match self.rng.below(6) {
            0 => ("size", begin(cell(number), 1)),
            1 => ("rank", begin(cell(8), number)),
            2 => ("lead_in", round("lead_in")),
            3 => ("samples", round("samples")),
            4 => ("batch", round("batch")),
            _ => {
                stream.write_all(&u32::MAX.to_be_bytes())?;
                self.expect_no(&mut stream, "a frame of 4 GiB".to_owned());
                return Ok(Some(stream));
            }
        };
        wire::write(&mut stream, &frame)?;
        self.expect_no(&mut stream, format!("{name} = {number}"));
        Ok(Some(stream))
    }

    /// Requests client work with the largest valid numbers, in three messages.
    fn burn(&mut self) -> Result<Option<TcpStream>> {
        let Some(mut stream) = self.opened()? else { return Ok(None) };
        let variant = variant(&[("op", "reg")]);
        let cell = Cell { experiment: "reg".into(), variant, size: 4096, twin: false };
        let round = Round { lead_in: 0, samples: 1 << 18, batch: 1 << 20 };
        for word in [Word::Begin { cell, rank: 1 }, Word::Ready, Word::Round(round)] {
            wire::write(&mut stream, &Frame::Word { word })?;
        }
        self.expect_no(&mut stream, "registrations without end".to_owned());
        Ok(Some(stream))
    }

    /// Names files as devices: the answer must be the same whether the file exists.
    fn paths(&mut self) -> Result<Option<TcpStream>> {
        for file in self.files.names.clone() {
            for device in
                [format!("model:{file}"), format!("rails(model:{file},shm)"), format!("model:{file}@0")]
            {
                let mut stream = self.target.access.connect_with_request(&device)?;
                match self.expect_no(&mut stream, format!("the device {device}")) {
                    Some(why) if why.contains("cannot be read") || why.contains("nothing") => {
                        self.unanswered.push(format!("{device} was looked for: {why}"));
                    }
                    _ => {}
                }
            }
        }
        Ok(None)
    }

    fn escapes(&mut self) -> Result<Option<TcpStream>> {
        let evil = "\x1b]0;owned\x07\x1b[2J\r\n";
        let mut stream = self.target.access.connect_with_request(&format!("shm{evil}"))?;
        self.expect_no(&mut stream, "escape sequences".to_owned());
        let Some(mut stream) = self.opened()? else { return Ok(None) };
        let word = Word::Failed { why: evil.to_owned(), local: false };
        wire::write(&mut stream, &Frame::Word { word })?;
        self.expect_no(&mut stream, "a failure in escape sequences".to_owned());
        Ok(Some(stream))
    }

    /// A connection with a process; `None` if the server is full.
    fn opened(&mut self) -> Result<Option<TcpStream>> {
        let mut stream = self.target.access.connect_with_request("shm")?;
        Ok(matches!(wire::read(&mut stream, FRAME_MAX)?, Frame::Opened { .. }).then_some(stream))
    }

    /// Waits for a refusal, or for the end of the connection; returns the refusal's reason.
    fn expect_no(&mut self, stream: &mut TcpStream, what: String) -> Option<String> {
        let began = Instant::now();
        let limit = 2 * PATIENCE;
        loop {
            let left = limit.saturating_sub(began.elapsed()).max(Duration::from_millis(1));
            if stream.set_read_timeout(Some(left)).is_err() {
                return None;
            }
            match wire::read::<Frame>(stream, FRAME_MAX) {
                Ok(Frame::Refused { why } | Frame::Word { word: Word::Failed { why, .. } }) => {
                    return Some(why);
                }
                Ok(_) => {}
                Err(wire::WireError::Silent) => {
                    self.unanswered.push(format!("no answer to {what}"));
                    return None;
                }
                // A closed connection is an answer.
                Err(_) => return None,
            }
        }
    }
}
