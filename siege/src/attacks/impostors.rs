//! Programs that pass themselves off as processes of an MPI job, on `shm` and on `iwarp`: bytes that are no request, and valid requests of a
//! job with another key. None is accepted, honest processes connect at once meanwhile, and memory comes back.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use auth::{Attempt, Identity, Key, Nonces, OFFER, Refusal, Seed};
use datatypes::{Basic, Datatype};
use host::{Rng, Span};
use mpi::{Board, Bootstrap as _, Buffer, Config, Gauge, Mode, PROTOCOL, Port, Process, With};
use rustix::net::{AddressFamily, SocketType};
use verbs::{Buf, Cm, CmEvent, ConnParam, Cq, Device, QpInit};

use crate::attack::{Attack, Budget, Tally};
use crate::child::{Child, hear, say};
use crate::traces::{resident_bytes, segment_bytes, settled};

pub(crate) const ATTACK: Attack = Attack {
    name: "impostors",
    about: "20,000 programs that say they are processes of an MPI job, on shm and on iwarp; honest ones connect meanwhile",
    weight: 3,
    late_max: Duration::from_secs(1),
    run,
};

/// The role of the job that is attacked.
pub(super) const ROLE: &str = "impostors-job";
/// Impostors of a whole crowd, and of one where there is little time.
const CROWD: u32 = 20_000;
const SMALL: u32 = 2000;
/// Impostors before the first count of memory: by then tables have their size.
const FIRST: u32 = 500;
/// Bytes by which the job's memory may have grown in the end.
const GROWTH_MAX: u64 = 1 << 20;
/// Processes of the job. All but the first connect to it, one after the other.
const RANKS: u32 = 3;
/// Connections from one address, since a closed one holds its port for a while.
const OF_ADDRESS: u32 = 5000;
const PATIENCE: Duration = Duration::from_secs(10);
/// MPA's request and reply, which differ in byte 7: revision 2, with the depths of reads (RFC 5044 section 7.1.1, RFC 6581 section 9).
const FRAME: [u8; 24] = *b"MPA ID Req Frame\x50\x02\x00\x04\xc0\x10\xc0\x10";
const HEAD: usize = 20;
const DEPTHS: usize = 4;
/// The bit of a reply's flags by which it rejects.
const REJECT: u8 = 0x20;

fn run(budget: &mut Budget, tally: &mut Tally) -> Result<()> {
    while budget.goes_on() {
        let count = if budget.left() > Duration::from_secs(30) { CROWD } else { SMALL };
        for device in ["shm", "iwarp"] {
            tally.tried += 1;
            match besiege(device, count, &mut budget.rng, tally) {
                Ok(()) => tally.survived += 1,
                Err(why) => tally.note(format!("{device}: {why:#}")),
            }
        }
    }
    Ok(())
}

/// What an impostor was answered.
enum Answer {
    /// Nothing but the end of the connection, or a rejection without data.
    Nothing,
    /// A rejection with these bytes.
    Rejected(Vec<u8>),
}

/// Attacks a new job on a device.
fn besiege(device: &str, count: u32, rng: &mut Rng, tally: &mut Tally) -> Result<()> {
    let mut job = Child::start(ROLE)?;
    let place = job.ask(device)?;
    let (addr, seed) = place.split_once(' ').context("no place")?;
    let addr: SocketAddr = addr.parse()?;
    let mut crowd = Impostors::new(device, addr, Seed::from_hex(seed).context("no seed")?)?;
    let mut challenged = 0;
    for at in 0..FIRST {
        challenged += u32::from(crowd.come(at, rng)?);
    }
    let before: u64 = job.ask("memory")?.parse()?;
    for at in FIRST..count {
        challenged += u32::from(crowd.come(at, rng)?);
        // One process connects in the middle of it, while others come, and one at the end.
        if at == count / 2 {
            job.tell("connect")?;
        }
    }
    let mut late = job.heard()?.parse::<u64>()?;
    late = late.max(job.ask("connect")?.parse()?);
    tally.noticed(Duration::from_micros(late));
    let after: u64 = job.ask("memory")?.parse()?;
    let grown = after.saturating_sub(before);
    let refused: u32 = job.ask("refused")?.parse()?;
    job.tell("end")?;
    job.end(PATIENCE)?;
    tally.left_over += u64::from(grown > GROWTH_MAX);
    if tally.tried <= 2 || grown > GROWTH_MAX {
        tally.note(format!(
            "{device}: {count} impostors, {challenged} challenged, {refused} refused; {grown} bytes stay; honest ones took {late} us"
        ));
    }
    ensure!(challenged >= count / 4, "only {challenged} of {count} requests were valid forms");
    ensure!(refused >= challenged, "{refused} of {challenged} requests were counted");
    Ok(())
}

/// Programs without the job's key that reach one of its processes.
struct Impostors {
    addr: SocketAddr,
    seed: Seed,
    key: Key,
    nonces: Nonces,
    /// How they speak to a device: by verbs on `shm`, as bytes on `iwarp`.
    shm: Option<Peer>,
}

/// An end on `shm`.
struct Peer {
    device: Device,
    cm: Cm,
    cq: Cq,
}

impl Impostors {
    fn new(device: &str, addr: SocketAddr, seed: Seed) -> Result<Self> {
        let key = Key::random()?;
        let shm = match device {
            "shm" => {
                let device = fabric::open("shm", &host::real::host())?;
                Some(Peer { cm: device.create_cm()?, cq: device.create_cq(16)?, device })
            }
            _ => None,
        };
        Ok(Self { addr, seed, nonces: Nonces::new(key.clone()), key, shm })
    }

    /// Connects, and is refused; whether it was answered by a challenge, as only requests in a valid form are.
    fn come(&mut self, at: u32, rng: &mut Rng) -> Result<bool> {
        let (said, is_valid) = self.words(rng);
        let answer = match &self.shm {
            Some(peer) => peer.ask(self.addr, said)?,
            None => ask_iwarp(self.addr, &said, at, rng)?,
        };
        match answer {
            Answer::Rejected(bytes) if Refusal::parse(&bytes, PROTOCOL).is_some() => {
                ensure!(is_valid, "{} bytes of garbage were answered by a challenge", bytes.len());
                Ok(true)
            }
            Answer::Rejected(bytes) => {
                ensure!(bytes.is_empty(), "a rejection says {bytes:02x?}");
                Ok(false)
            }
            Answer::Nothing => Ok(false),
        }
    }

    /// The private data of a request: one of another job with the right challenge or none, one cut short or longer, or other bytes.
    fn words(&mut self, rng: &mut Rng) -> (Vec<u8>, bool) {
        let bytes: Vec<u8> = (0..24).map(|_| rng.next_u64() as u8).collect();
        let (mut from, mut to) = ([0; 12], [0; 12]);
        from.copy_from_slice(&bytes[..12]);
        to.copy_from_slice(&bytes[12..]);
        // Rank 1 of its own job asks for rank 0 of a guessed one.
        from[8..].copy_from_slice(&1_u32.to_le_bytes());
        to[8..].copy_from_slice(&0_u32.to_le_bytes());
        let (from, to) = (Identity(from), Identity(to));
        let challenge = self.seed.challenge(PROTOCOL, from, 0);
        let about = (challenge, self.nonces.next_nonce());
        let request =
            Attempt::new(PROTOCOL, self.key.clone(), (from, to), about, [7; OFFER]).request().to_vec();
        match rng.below(4) {
            0 | 1 => (request, true),
            2 => (request[..rng.below(request.len() as u64) as usize].to_vec(), false),
            _ => ((0..rng.below(200)).map(|_| rng.next_u64() as u8).collect(), false),
        }
    }
}

impl Peer {
    fn ask(&self, addr: SocketAddr, said: Vec<u8>) -> Result<Answer> {
        let qp = self.device.alloc_pd()?.create_qp(&QpInit::new(&self.cq))?;
        self.cm.connect(&qp, addr, &ConnParam::with_private_data(said))?;
        match self.cm.get_event(self.device.host().after(Span::from_secs(10)))? {
            CmEvent::Rejected { private_data, .. } => Ok(Answer::Rejected(private_data)),
            CmEvent::ConnectFailed { .. } => Ok(Answer::Nothing),
            other => bail!("an impostor has {other:?}"),
        }
    }
}

/// Says it in MPA's request, or now and then a part of that, and reads until the end.
fn ask_iwarp(addr: SocketAddr, said: &[u8], at: u32, rng: &mut Rng) -> Result<Answer> {
    let mut stream = connected(addr, at)?;
    let mut frame = FRAME.to_vec();
    let length = u16::try_from(DEPTHS + said.len())?;
    frame[HEAD - 2..HEAD].copy_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(said);
    // The end of the stream comes before the end of the frame.
    let is_cut = rng.below(8) == 0;
    if is_cut {
        frame.truncate(rng.below(frame.len() as u64) as usize);
    }
    stream.write_all(&frame)?;
    if is_cut {
        return Ok(Answer::Nothing);
    }
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(why) if why.kind() == ErrorKind::ConnectionReset => {}
        Err(why) => return Err(why).context("it is not answered"),
    }
    if answer.is_empty() {
        return Ok(Answer::Nothing);
    }
    ensure!(answer.starts_with(b"MPA ID Rep Frame"), "an impostor reads {answer:02x?}");
    ensure!(
        answer.get(16).is_some_and(|flags| flags & REJECT != 0),
        "an impostor is accepted: {answer:02x?}"
    );
    Ok(Answer::Rejected(answer.get(HEAD + DEPTHS..).unwrap_or_default().to_vec()))
}

/// A connection from one of some addresses of the loopback.
fn connected(addr: SocketAddr, at: u32) -> Result<TcpStream> {
    let own = Ipv4Addr::from(u32::from(Ipv4Addr::new(127, 0, 16, 1)) + at / OF_ADDRESS);
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    rustix::net::bind(&socket, &SocketAddr::from((own, 0)))?;
    rustix::net::connect(&socket, &addr)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A child: a job whose processes are threads. The first one is attacked, and does nothing until it is told to.
pub(super) fn job() -> Result<()> {
    let name = hear()?.context("a device's name")?;
    let host = host::real::host();
    let board = Board::new(RANKS);
    let start = |rank| -> Result<Process> {
        let device = fabric::open(&name, &host)?;
        let address = device.attr().port_addrs.first().copied().unwrap_or(Ipv4Addr::LOCALHOST.into());
        let ports = vec![Port { device, address, fabric: "fabric".into() }];
        let config = Config { ports, node: "here".into(), ..Config::default() };
        Ok(Process::start(&host, &config, board.seat(rank, &host))?)
    };
    let processes: Vec<Process> = std::thread::scope(|scope| {
        let starting: Vec<_> = (0..RANKS).map(|rank| scope.spawn(move || start(rank))).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Process>>| match thread.join() {
            Ok(process) => process,
            Err(_) => bail!("a process panicked"),
        };
        starting.into_iter().map(join).collect::<Result<_>>()
    })?;
    // The note of a process, which all programs of the user are assumed to know: its host, its seed, and where it listens.
    let note = board.seat(0, &host).get("mpi-0")?;
    let mut words = note.split(',').skip(1);
    let (seed, port) = (words.next().context("a seed")?, words.next().context("a port")?);
    say(format!("{} {seed}", port.split(';').next().unwrap_or_default()))?;
    let mut honest = processes[1..].iter();
    while let Some(word) = hear()? {
        match &*word {
            "memory" => say(settled(0, || resident_bytes() + segment_bytes()))?,
            "connect" => say(exchange(&processes[0], honest.next().context("no more processes")?)?)?,
            "refused" => say(processes[0].gauge(Gauge::ConnectionsRefused))?,
            _ => break,
        }
    }
    // They have to leave at the same time.
    std::thread::scope(|scope| {
        processes.into_iter().for_each(|process| drop(scope.spawn(move || process.finalize())));
    });
    Ok(())
}

/// The microseconds of a first message from a process to the attacked one, which makes their connection.
fn exchange(attacked: &Process, honest: &Process) -> Result<u128> {
    let bytes = || -> Result<Buffer> { Ok(Buffer::of(&Buf::alloc(8)?, 0, 8, &Datatype::from(Basic::Byte))?) };
    let began = Instant::now();
    let rank = honest.world().rank();
    std::thread::scope(|scope| -> Result<()> {
        let sender = scope.spawn(|| -> Result<()> {
            Ok(honest.world().send(Mode::Standard, &bytes()?, With { rank: 0, tag: 1 })?)
        });
        attacked.world().receive(bytes()?, With { rank, tag: 1 })?;
        match sender.join() {
            Ok(sent) => sent,
            Err(_) => bail!("the sender panicked"),
        }
    })?;
    Ok(began.elapsed().as_micros())
}
