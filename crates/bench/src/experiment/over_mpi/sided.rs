//! [`Sided`]: puts and gets between two ranks. An epoch is a start and its completion at the origin, a post and a wait at the target.

use datatypes::{Basic, Datatype};
use mpi::{Assert, Buffer, Group, Info, Process, TargetRange, Window};
use verbs::Buf;
use verbs::host::Span;

use super::super::harness::pattern;
use super::super::harness::timing::sample_spans;
use super::super::{Fault, Round, Session, Side};
use super::join::join;

/// The operation, and the timed quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sided {
    pub(super) is_put: bool,
    /// Windows of operations in an epoch, instead of one operation in each direction alternately.
    pub(super) streams: bool,
}

/// One rank, and its memory.
pub(super) struct Epochs {
    what: Sided,
    group: Group,
    window: Window,
    is_client: bool,
    out: Buffer,
    into: Buffer,
    source: Buf,
    sink: Buf,
    at: TargetRange,
    /// Operations of an epoch.
    count: u64,
    /// An epoch has begun that has not ended.
    open: bool,
    seed: u64,
    /// Last field, so that it outlives pending operations.
    process: Process,
}

impl Epochs {
    pub(super) fn prepare(session: &mut Session<'_>, what: Sided) -> Result<Self, Fault> {
        let size = u64::from(session.cell.length()?);
        let process = join(session, 2)?;
        let count = if what.streams { u64::from(session.settings.window.max(1)) } else { 1 };
        let bytes = Datatype::from(Basic::Byte);
        let window = Window::allocate(process.world(), (size * count) as i64, 1, Info::default())?;
        let (source, sink) = (Buf::alloc(size as usize)?, Buf::alloc(size as usize)?);
        let peer = 1 - session.rank;
        Ok(Self {
            what,
            group: Group::new(vec![peer])?,
            window,
            is_client: session.is_client(),
            out: Buffer::of(&source, 0, size as i64, &bytes)?,
            into: Buffer::of(&sink, 0, size as i64, &bytes)?,
            source,
            sink,
            at: TargetRange { rank: peer as i32, displacement: 0, count: size as i64, datatype: bytes },
            count,
            open: false,
            seed: session.settings.seed,
            process,
        })
    }

    fn start(&self) -> Result<(), Fault> {
        Ok(self.window.start(&self.group, Assert::default())?)
    }

    fn post(&self) -> Result<(), Fault> {
        Ok(self.window.post(&self.group, Assert::default())?)
    }

    fn access(&self, is_put: bool) -> Result<(), Fault> {
        let mut at = self.at.clone();
        for _ in 0..self.count {
            match is_put {
                true => self.window.put(&self.out, &at)?,
                false => self.window.get(&self.into, &at)?,
            }
            at.displacement += at.count;
        }
        Ok(self.window.complete()?)
    }

    /// An epoch of one rank, then one of the other.
    fn in_turn(&self) -> Result<(), Fault> {
        for origin in [true, false] {
            if self.is_client == origin {
                self.start()?;
                self.access(self.what.is_put)?;
            } else {
                self.post()?;
                self.window.wait()?;
            }
        }
        Ok(())
    }

    /// Begins an epoch, if none has begun.
    fn open(&mut self) -> Result<(), Fault> {
        if !std::mem::replace(&mut self.open, true) {
            if self.is_client { self.start()? } else { self.post()? }
        }
        Ok(())
    }

    /// One epoch of the client, until the next one can begin: then its operations have completed at the target, too.
    fn epoch(&self, is_put: bool) -> Result<(), Fault> {
        if self.is_client {
            self.access(is_put)?;
            self.start()
        } else {
            self.window.wait()?;
            self.post()
        }
    }

    fn operate(&mut self, s: &Session<'_>, count: u64) -> Result<Span, Fault> {
        if self.what.streams {
            self.open()?;
        }
        let began = s.host.now();
        for _ in 0..count {
            if self.what.streams { self.epoch(self.what.is_put)? } else { self.in_turn()? }
        }
        Ok(s.host.now() - began)
    }
}

impl Side for Epochs {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        self.source.fill(0x5a);
        self.sink.fill(0xa5);
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, _| self.operate(s, count))?;
        // A process that leaves MPI answers nothing: its post must have been sent.
        Ok(self.process.drain()?)
    }

    /// Checks that data put can be read back by get.
    fn verify(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        pattern::fill(&self.source, 0, self.source.len(), self.seed)?;
        self.sink.fill(0);
        self.open()?;
        self.epoch(true)?;
        self.epoch(false)?;
        self.process.drain()?;
        self.open = false;
        if self.is_client {
            self.window.complete()?;
            pattern::compare(&self.sink, 0, self.sink.len(), self.seed)
        } else {
            Ok(self.window.wait()?)
        }
    }

    fn messages(&self) -> u64 {
        self.count
    }
}
