//! [`Rails`]: one side of the multirail benchmarks (experiments E1 to E6 of the paper).
//!
//! An operation of the client: twenty writes of the message without events, followed by an empty message, a receive,
//! and a wait for the peer's answer. The server waits for the message, which by uDAPL's rules arrives after the data
//! of all writes, and answers. Receives are posted one ahead, so that no message arrives without one. For both ways,
//! each side acts as the client, and then notifies the other that all has arrived. Over several rails, one thread
//! makes every call for one rail after the other; or a thread per rail makes that rail's calls.

use std::sync::Arc;

use verbs::host::{Host, Span, Time};
use verbs::{Buf, Device};

use super::super::harness::timing::sample_spans;
use super::super::harness::{edge, pattern};
use super::super::{Fault, Round, Session, Side};
use super::crew::{Crew, Work};
use super::rail::Rail;

/// RDMA writes of an operation (MR-022 to MR-024).
pub const WRITES: u64 = 20;

/// The threads that drive the rails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// There is only one rail.
    Single,
    /// One thread drives all rails one after the other.
    Serial,
    /// A thread each.
    Threads,
}

/// Which way data go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    /// From the client to the server.
    One,
    /// Both ways simultaneously.
    Both,
}

/// The part of an operation's time that is the reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All of it.
    All,
    /// Until the last write is posted.
    Post,
    /// Time spent waiting.
    Wait,
}

/// The actions of a side in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// Writes, notifies, and waits for the answer.
    Write,
    /// Waits, and answers.
    Answer,
    /// Writes, notifies, waits; and notifies and waits again without data.
    Exchange,
}

/// One side of an experiment over rails.
pub(super) struct Rails {
    /// Declared before the rails, as its threads use their endpoints.
    crew: Option<Crew>,
    rails: Vec<Arc<Rail>>,
    role: Role,
    part: Part,
    buf: Buf,
    size: usize,
    note: String,
}

/// Opens at most this many rails of the device under test, each as a separate device. A device with only one gets as
/// many channels over it: configuration (c) of the paper.
fn open(session: &Session<'_>, engine: Engine) -> Result<(Vec<Device>, &'static str), Fault> {
    let mut names = session.rails.names.clone();
    let mut kind = "rails";
    if engine == Engine::Single {
        names.truncate(1);
    } else if names.len() == 1 {
        names.push(names[0].clone());
        kind = "channels of a single rail";
    }
    let open = |name: &String| (session.rails.open)(name, session.host).map_err(Fault::from);
    Ok((names.iter().map(open).collect::<Result<_, _>>()?, kind))
}

impl Rails {
    pub(super) fn prepare(
        session: &mut Session<'_>,
        engine: Engine,
        flow: Flow,
        part: Part,
    ) -> Result<Self, Fault> {
        let size = session.cell.length()?;
        let (devices, kind) = open(session, engine)?;
        let count = devices.len() as u32;
        if size < count {
            return Err(Fault::Meaningless(format!("a message of {size} bytes over {count} rails")));
        }
        let buf = Buf::alloc(2 * size as usize)?;
        let each = size / count;
        let mut rails = Vec::new();
        for (device, at) in devices.iter().zip((0..count).map(|rail| rail * each)) {
            let len = if at / each == count - 1 { size - at } else { each };
            rails.push(Arc::new(Rail::connect(session, device, (&buf, size.into()), (at.into(), len))?));
        }
        let role = match (flow, session.is_client()) {
            (Flow::Both, _) => Role::Exchange,
            (Flow::One, true) => Role::Write,
            (Flow::One, false) => Role::Answer,
        };
        let crew =
            if engine == Engine::Threads { Some(crew(session.host, &rails[1..], role)?) } else { None };
        let note = format!("{count} {kind}");
        Ok(Self { crew, rails, role, part, buf, size: size as usize, note })
    }

    /// An operation; how long the part of it took that is measured.
    fn operate(&mut self, host: &Host, deadline: Option<Time>) -> Result<Span, Fault> {
        let began = host.now();
        let parts = match &mut self.crew {
            Some(crew) => {
                crew.fork();
                let mine = work(host, &self.rails[..1], self.role);
                // Whatever happened here, the others are waited for: they use the rails.
                crew.join(deadline).and(mine)?
            }
            None => work(host, &self.rails, self.role)?,
        };
        Ok(match self.part {
            Part::All => host.now() - began,
            Part::Post => parts.post,
            Part::Wait => parts.wait,
        })
    }
}

/// The parts of an operation's time.
struct Parts {
    post: Span,
    wait: Span,
}

/// The work of one thread for its rails in an operation.
fn work<R: std::ops::Deref<Target = Rail>>(host: &Host, rails: &[R], role: Role) -> Result<Parts, Fault> {
    let began = host.now();
    let each = |call: fn(&Rail) -> Result<(), Fault>| rails.iter().try_for_each(|rail| call(rail));
    if role == Role::Answer {
        each(Rail::receive)?;
        // For the next operation, before the answer that starts it.
        each(Rail::expect)?;
        each(Rail::notify)?;
        return Ok(Parts { post: Span::ZERO, wait: host.now() - began });
    }
    for _ in 0..WRITES {
        each(Rail::write)?;
    }
    let posted = host.now();
    each(Rail::notify)?;
    each(Rail::expect)?;
    let waits = host.now();
    each(Rail::receive)?;
    if role == Role::Exchange {
        each(Rail::notify)?;
        each(Rail::expect)?;
        each(Rail::receive)?;
    }
    Ok(Parts { post: posted - began, wait: host.now() - waits })
}

/// The threads of all rails but the first.
fn crew(host: &Host, rails: &[Arc<Rail>], role: Role) -> Result<Crew, Fault> {
    let one = |rail: &Arc<Rail>| -> Work {
        let (host, rail) = (host.clone(), rail.clone());
        Arc::new(move || work(&host, std::slice::from_ref(&rail), role).map(drop))
    };
    Crew::start(host, rails.iter().map(one).collect())
}

impl Side for Rails {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        self.buf.fill(0x5a);
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, deadline| {
            let mut spent = Span::ZERO;
            for _ in 0..count {
                spent += self.operate(s.host, deadline)?;
            }
            Ok(spent)
        })
    }

    /// Runs one more operation, after which every sink contains the other side's source.
    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        let (mine, theirs) = (session.settings.seed, session.settings.seed + 1);
        let (mine, theirs) = if session.is_client() { (mine, theirs) } else { (theirs, mine) };
        pattern::fill(&self.buf, 0, self.size, mine)?;
        edge::meet(session)?;
        self.operate(session.host, session.deadline())?;
        if self.role == Role::Write {
            Ok(())
        } else {
            pattern::compare(&self.buf, self.size, self.size, theirs)
        }
    }

    fn messages(&self) -> u64 {
        WRITES
    }

    fn note(&self) -> Option<String> {
        Some(self.note.clone())
    }
}
