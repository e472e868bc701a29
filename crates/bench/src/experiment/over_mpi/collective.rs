//! [`Call`]: repeats one collective operation on all ranks.

use datatypes::{Basic, Datatype, Op, Operator};
use mpi::{Buffer, CollKind as Kind, Collective, Comm, Process};
use verbs::Buf;
use verbs::host::Span;

use super::super::harness::pattern;
use super::super::harness::timing::sample_spans;
use super::super::{Fault, Round, Session, Side};
use super::join::join;
use results::variant::factor;

/// Bytes of an element to reduce: `MPI_FLOAT`.
const FLOAT: usize = 4;
const ROOT: i32 = 0;
/// The level of calls that follow each other.
const ROW: &str = "row";
/// Calls of a row.
const IN_ROW: u64 = 16;

/// The operation of one rank in a collective, and its memory.
pub(super) struct Call {
    kind: Kind,
    comm: Comm,
    call: Collective,
    source: Buf,
    sink: Buf,
    /// The time of this rank's calls, in ps; at the root, of all ranks' together.
    spent: Buf,
    adding: Collective,
    /// Bytes of a block, or of a vector.
    size: usize,
    /// Elements of each rank's block of a reduced vector.
    counts: Vec<i64>,
    rank: usize,
    ranks: usize,
    seed: u64,
    /// Calls follow each other without a barrier between them.
    in_row: bool,
    /// Last field, so that it outlives pending operations.
    _process: Process,
}

/// Maximum bytes that a rank sends and receives.
pub(super) fn bytes(kind: Kind, size: u64, ranks: u64) -> (u64, u64) {
    match kind {
        Kind::Barrier => (0, 0),
        Kind::Bcast => (0, size),
        Kind::Gather | Kind::Allgather => (size, size * ranks),
        Kind::Scatter => (size * ranks, size),
        Kind::Alltoall => (size * ranks, size * ranks),
        _ => (size, size),
    }
}

impl Call {
    pub(super) fn prepare(session: &mut Session<'_>, kind: Kind, ranks: u32) -> Result<Self, Fault> {
        let size = if kind == Kind::Barrier { 0 } else { session.cell.length()? as usize };
        if kind.reduces() && !size.is_multiple_of(FLOAT) {
            return Err(Fault::Meaningless(format!("numbers of {FLOAT} bytes in a vector of {size}")));
        }
        let process = join(session, ranks)?;
        let (given, got) = bytes(kind, size as u64, ranks.into());
        let (source, sink) = (Buf::alloc((given as usize).max(1))?, Buf::alloc((got as usize).max(1))?);
        let spent = Buf::alloc(2 * size_of::<u64>())?;
        let number = Datatype::from(Basic::Uint64);
        let adding = Collective::Reduce {
            input: Some(Buffer::of(&spent, 0, 1, &number)?),
            output: Buffer::of(&spent, size_of::<u64>(), 1, &number)?,
            op: Op::from(Operator::Sum),
            root: ROOT,
        };
        let (elements, ranks) = (size / FLOAT, ranks as usize);
        let counts = (0..ranks).map(|rank| (elements / ranks + usize::from(rank < elements % ranks)) as i64);
        let mut side = Self {
            kind,
            comm: process.world().clone(),
            call: Collective::Barrier,
            source,
            sink,
            spent,
            adding,
            size,
            counts: counts.collect(),
            rank: session.rank as usize,
            ranks,
            seed: session.settings.seed,
            in_row: session.cell.variant.is(factor::CALLS, ROW),
            _process: process,
        };
        side.call = side.call()?;
        Ok(side)
    }

    fn call(&self) -> Result<Collective, Fault> {
        let (block, all) = (self.size as i64, (self.size * self.ranks) as i64);
        let byte = Datatype::from(Basic::Byte);
        let is_root = self.rank == ROOT as usize;
        let given = |count| Buffer::of(&self.source, 0, count, &byte);
        let got = |count| Buffer::of(&self.sink, 0, count, &byte);
        let at_root = |buffer: mpi::Result<Buffer>| if is_root { buffer } else { Ok(Buffer::empty()) };
        let float = Datatype::from(Basic::Float);
        let elements = (self.size / FLOAT) as i64;
        let vector = || -> mpi::Result<_> {
            let output = Buffer::of(&self.sink, 0, elements, &float)?;
            Ok((Some(Buffer::of(&self.source, 0, elements, &float)?), output, Op::from(Operator::Sum)))
        };
        Ok(match self.kind {
            Kind::Barrier => Collective::Barrier,
            Kind::Bcast => Collective::Bcast { buffer: got(block)?, root: ROOT },
            Kind::Gather => {
                Collective::Gather { input: Some(given(block)?), output: at_root(got(all))?, root: ROOT }
            }
            Kind::Scatter => {
                Collective::Scatter { input: at_root(given(all))?, output: Some(got(block)?), root: ROOT }
            }
            Kind::Allgather => Collective::Allgather { input: Some(given(block)?), output: got(all)? },
            Kind::Alltoall => Collective::Alltoall { input: Some(given(all)?), output: got(all)? },
            Kind::Reduce => {
                let (input, output, op) = vector()?;
                Collective::Reduce { input, output, op, root: ROOT }
            }
            Kind::Allreduce => {
                let (input, output, op) = vector()?;
                Collective::Allreduce { input, output, op }
            }
            Kind::ReduceScatter => {
                let (input, _, op) = vector()?;
                let output = Buffer::of(&self.sink, 0, self.counts[self.rank], &float)?;
                Collective::ReduceScatter { input, output, counts: self.counts.clone(), op }
            }
            Kind::Scan => {
                let (input, output, op) = vector()?;
                Collective::Scan { input, output, op }
            }
            Kind::Exscan => {
                let (input, output, op) = vector()?;
                Collective::Exscan { input, output, op }
            }
        })
    }

    /// Mean time of `count` calls over all ranks; each call begins when all ranks have arrived, or is one of a
    /// series.
    fn operate(&self, s: &Session<'_>, count: u64) -> Result<Span, Fault> {
        let calls = if self.in_row { IN_ROW } else { 1 };
        let mut mine = Span::ZERO;
        for _ in 0..count {
            self.comm.collective(&Collective::Barrier)?;
            let began = s.host.now();
            (0..calls).try_for_each(|_| self.comm.collective(&self.call))?;
            mine += Span::from_ps((s.host.now() - began).as_ps() / calls);
        }
        self.spent.write(0, &mine.as_ps().to_ne_bytes())?;
        self.comm.collective(&self.adding)?;
        let mut all = [0; size_of::<u64>()];
        self.spent.read(size_of::<u64>(), &mut all)?;
        Ok(Span::from_ps(u64::from_ne_bytes(all) / self.ranks as u64))
    }

    /// Contents of the block sent from one rank to another.
    fn contents(&self, from: usize, to: usize) -> u64 {
        self.seed ^ ((from as u64) << 20) ^ ((to as u64) << 40)
    }

    /// Fills the send buffer of this rank.
    fn fill(&self) -> Result<(), Fault> {
        let (me, n) = (self.rank, self.ranks);
        let block =
            |to: usize, contents: u64| pattern::fill(&self.source, to * self.size, self.size, contents);
        match self.kind {
            Kind::Barrier => Ok(()),
            Kind::Bcast if me == ROOT as usize => {
                pattern::fill(&self.sink, 0, self.size, self.contents(me, 0))
            }
            Kind::Bcast => Ok(()),
            Kind::Gather | Kind::Allgather => block(0, self.contents(me, 0)),
            Kind::Scatter if me != ROOT as usize => Ok(()),
            Kind::Scatter | Kind::Alltoall => (0..n).try_for_each(|to| block(to, self.contents(me, to))),
            _ => write_floats(&self.source, self.size / FLOAT, |at| element(at, me)),
        }
    }

    /// Checks the receive buffer of this rank.
    fn compare(&self) -> Result<(), Fault> {
        let (me, n, root) = (self.rank, self.ranks, ROOT as usize);
        let block = |at: usize, contents| pattern::compare(&self.sink, at * self.size, self.size, contents);
        let sums = |first: usize, count: usize, of: std::ops::Range<usize>| {
            let expected = |at: usize| of.clone().map(|rank| element(first + at, rank)).sum();
            compare_floats(&self.sink, count, expected)
        };
        let elements = self.size / FLOAT;
        match self.kind {
            Kind::Barrier => Ok(()),
            Kind::Bcast => block(0, self.contents(root, 0)),
            Kind::Gather if me != root => Ok(()),
            Kind::Gather | Kind::Allgather => (0..n).try_for_each(|from| block(from, self.contents(from, 0))),
            Kind::Scatter => block(0, self.contents(root, me)),
            Kind::Alltoall => (0..n).try_for_each(|from| block(from, self.contents(from, me))),
            Kind::Reduce if me != root => Ok(()),
            Kind::Reduce | Kind::Allreduce => sums(0, elements, 0..n),
            Kind::ReduceScatter => {
                let first: i64 = self.counts[..me].iter().sum();
                sums(first as usize, self.counts[me] as usize, 0..n)
            }
            Kind::Scan => sums(0, elements, 0..me + 1),
            Kind::Exscan if me == 0 => Ok(()),
            Kind::Exscan => sums(0, elements, 0..me),
        }
    }
}

/// An element of a rank's vector: small whole numbers, whose sums are exact in any order.
fn element(at: usize, rank: usize) -> f32 {
    (at % 5 + rank % 7 + 1) as f32
}

fn write_floats(buf: &Buf, count: usize, value: impl Fn(usize) -> f32) -> Result<(), Fault> {
    let bytes: Vec<u8> = (0..count).flat_map(|at| value(at).to_ne_bytes()).collect();
    Ok(buf.write(0, &bytes)?)
}

fn compare_floats(buf: &Buf, count: usize, expected: impl Fn(usize) -> f32) -> Result<(), Fault> {
    let bytes = buf.to_vec(0..count * FLOAT)?;
    let (elements, _) = bytes.as_chunks::<FLOAT>();
    for (at, element) in elements.iter().enumerate() {
        let (found, expected) = (f32::from_ne_bytes(*element), expected(at));
        if found != expected {
            return Err(Fault::Corrupt(format!("element {at} of {count} is {found} and not {expected}")));
        }
    }
    Ok(())
}

impl Side for Call {
    fn warm(&mut self, _session: &mut Session<'_>) -> Result<(), Fault> {
        self.source.fill(0);
        self.sink.fill(0);
        Ok(())
    }

    fn round(&mut self, s: &mut Session<'_>, round: Round, readings: &mut Vec<f64>) -> Result<(), Fault> {
        sample_spans(s, round, readings, |s, count, _| self.operate(s, count))
    }

    fn verify(&mut self, session: &mut Session<'_>) -> Result<(), Fault> {
        self.sink.fill(0xff);
        self.fill()?;
        self.operate(session, 1)?;
        self.compare()
    }
}
