//! Tests every algorithm against a naive one: 1 to 17 ranks, odd counts and zero, all roots, in place, operators that are not
//! commutative, and the cost.

use crate::run::{EXTENTS, FREE, GAP, Matrix, Rank, SIZE, World, matrix, multiply, to_bytes};
use collectives::{Algorithm, Blocks, Buffer, Case, Costs, Kind, Root, Span, Task, Type};

const RANKS: std::ops::RangeInclusive<usize> = 1..=17;

/// One call of all ranks.
#[derive(Clone, Copy, Debug)]
struct Call {
    kind: Kind,
    size: usize,
    root: usize,
    /// Number of elements in the block of rank `i`, or in a vector: `count + step * i`.
    count: i64,
    step: i64,
    in_place: bool,
    commutative: bool,
}

/// A vector of elements with the buffer's send or receive type.
fn span(buffer: Buffer, at: i64, count: i64) -> Span {
    let (datatype, extent) = match buffer {
        Buffer::Input => (Type::Send(0), EXTENTS[0]),
        _ => (Type::Receive(0), EXTENTS[1]),
    };
    Span::new(buffer, datatype, at * extent, count, extent, SIZE as u64)
}

fn is_vector(kind: Kind) -> bool {
    matches!(kind, Kind::Bcast | Kind::Reduce | Kind::Allreduce | Kind::Scan | Kind::Exscan)
}

impl Call {
    fn length(&self, rank: usize) -> i64 {
        self.count + self.step * rank as i64
    }

    /// The start of a rank's block: with gaps and in another order, if blocks differ.
    fn start(&self, rank: usize) -> i64 {
        let blocks = if self.step == 0 { 0..rank } else { rank + 1..self.size };
        blocks.map(|other| self.length(other) + i64::from(self.step != 0)).sum()
    }

    fn blocks(&self, buffer: Buffer) -> Blocks {
        if self.step == 0 {
            return Blocks::Even { first: span(buffer, 0, self.count), count: self.size };
        }
        Blocks::Anywhere(
            (0..self.size).map(|rank| span(buffer, self.start(rank), self.length(rank))).collect(),
        )
    }

    /// The vector of a reduce-scatter.
    fn cut(&self, buffer: Buffer) -> Blocks {
        if self.step == 0 {
            return self.blocks(buffer);
        }
        let cuts: Vec<i64> =
            (0..=self.size).map(|end| (0..end).map(|rank| self.length(rank)).sum()).collect();
        Blocks::Cut { whole: span(buffer, 0, cuts[self.size]), cuts: cuts.into() }
    }

    /// Blocks of an alltoall: all with one length and type, or with the length `count + step * (sender + receiver)`.
    fn exchanged(&self, buffer: Buffer, rank: usize) -> Blocks {
        if self.step == 0 {
            return self.blocks(buffer);
        }
        // As for MPI_Alltoallw: a type for each rank.
        let mut at = 0;
        let spans = (0..self.size).map(|other| {
            let (count, first) = (self.length(rank + other), span(buffer, 0, 0));
            let datatype = match first.datatype {
                Type::Send(_) => Type::Send(other),
                _ => Type::Receive(other),
            };
            let (extent, start) = (first.extent + 8 * other as i64, at);
            at += extent * (count + 1);
            Span::new(buffer, datatype, start, count, extent, SIZE as u64)
        });
        Blocks::Anywhere(spans.collect())
    }

    fn task(&self, rank: usize) -> Task {
        let vector = |buffer| Blocks::one(span(buffer, 0, self.count));
        let mine = |buffer| Blocks::one(span(buffer, 0, self.length(rank)));
        let input = if self.in_place { Buffer::Output } else { Buffer::Input };
        let is_root = rank == self.root;
        let (input, output) = match self.kind {
            Kind::Barrier => (Blocks::none(), Blocks::none()),
            Kind::Bcast => (Blocks::none(), vector(Buffer::Output)),
            Kind::Gather if self.in_place && is_root => {
                let all = self.blocks(Buffer::Output);
                (Blocks::one(all.of(rank)), all)
            }
            Kind::Gather => (mine(Buffer::Input), self.blocks(Buffer::Output)),
            Kind::Scatter if self.in_place && is_root => {
                let all = self.blocks(Buffer::Input);
                (all.clone(), Blocks::one(all.of(rank)))
            }
            Kind::Scatter => (self.blocks(Buffer::Input), mine(Buffer::Output)),
            Kind::Allgather => {
                let all = self.blocks(Buffer::Output);
                (if self.in_place { Blocks::one(all.of(rank)) } else { mine(Buffer::Input) }, all)
            }
            Kind::Alltoall => (self.exchanged(input, rank), self.exchanged(Buffer::Output, rank)),
            Kind::Reduce if !is_root => (vector(Buffer::Input), vector(Buffer::Output)),
            Kind::ReduceScatter => (self.cut(input), mine(Buffer::Output)),
            _ => (vector(input), vector(Buffer::Output)),
        };
        let (size, root, commutative) = (self.size, Root::Rank(self.root), self.commutative);
        Task { rank, size, remote: 0, root, input, output, commutative, segment: 100 }
    }

    fn case(&self) -> Case {
        let bytes = SIZE as u64 * self.count as u64;
        let bytes = if self.kind == Kind::ReduceScatter { bytes * self.size as u64 } else { bytes };
        let (kind, size, commutative) = (self.kind, self.size, self.commutative);
        Case { kind, size, bytes, commutative, even: self.step == 0, segment: 100, shared: 0 }
    }

    /// The initial value of a rank's block for another, or of an element of its vector.
    fn before(&self, rank: usize, block: usize, element: i64) -> Matrix {
        let value = matrix(rank, block * 1000 + element as usize);
        // Powers of one matrix commute.
        if self.commutative {
            (0..value[0] % 5).fold([1, 1, 1, 0], |power, _| multiply(power, [1, 1, 1, 0]))
        } else {
            value
        }
    }

    /// Writes elements of a span into a buffer, which grows as needed.
    fn put(buffer: &mut Vec<u8>, span: Span, value: impl Fn(i64) -> Matrix) {
        for element in 0..span.count {
            let at = (span.displacement + element * span.extent) as usize;
            buffer.resize(buffer.len().max(at + span.extent as usize), GAP);
            buffer[at..at + SIZE].copy_from_slice(&to_bytes(value(element)));
        }
    }

    fn fold(&self, ranks: std::ops::Range<usize>, block: usize, element: i64) -> Matrix {
        let values = ranks.map(|rank| self.before(rank, block, element));
        values.reduce(multiply).expect("at least one rank")
    }

    /// The expected value of a rank's output block; `None` if it is unspecified.
    fn after(&self, rank: usize, block: usize, element: i64) -> Option<Matrix> {
        let (all, is_root) = (0..self.size, rank == self.root);
        Some(match self.kind {
            Kind::Barrier => return None,
            Kind::Bcast => self.before(self.root, 0, element),
            Kind::Gather if !is_root => return None,
            Kind::Gather | Kind::Allgather => self.before(block, 0, element),
            Kind::Scatter => self.before(self.root, rank, element),
            Kind::Alltoall => self.before(block, rank, element),
            Kind::Reduce if !is_root => return None,
            Kind::Reduce | Kind::Allreduce => self.fold(all, 0, element),
            Kind::ReduceScatter => self.fold(all, rank, element),
            Kind::Scan => self.fold(0..rank + 1, 0, element),
            Kind::Exscan if rank == 0 => return None,
            Kind::Exscan => self.fold(0..rank, 0, element),
        })
    }

    /// The ranks with their initial data.
    fn ranks(&self, algorithm: &Algorithm) -> Vec<Rank> {
        let rank = |rank: usize| {
            let task = self.task(rank);
            let (mut input, mut output) = (Vec::new(), Vec::new());
            for block in 0..task.output.count() {
                Self::put(&mut output, task.output.of(block), |_| [0x77; 4]);
            }
            for block in 0..task.input.count() {
                let span = task.input.of(block);
                let buffer = if span.buffer == Buffer::Input { &mut input } else { &mut output };
                Self::put(buffer, span, |element| self.before(rank, block, element));
            }
            if self.kind == Kind::Bcast && rank == self.root {
                Self::put(&mut output, task.output.of(0), |element| self.before(rank, 0, element));
            }
            Rank::new(algorithm.plan(&task).expect("ranks share no memory"), input, output)
        };
        (0..self.size).map(rank).collect()
    }

    fn check(&self, algorithm: &Algorithm, seed: u64) {
        let ranks = self.ranks(algorithm);
        let before: Vec<Vec<u8>> = ranks.iter().map(|rank| rank.output.clone()).collect();
        let mut world = World::new(vec![ranks], seed);
        world.run();
        for (rank, mut expected) in before.into_iter().enumerate() {
            let (task, found) = (self.task(rank), &world.groups[0][rank].output);
            for block in 0..task.output.count() {
                let span = task.output.of(block);
                if self.after(rank, block, 0).is_some() && span.buffer == Buffer::Output {
                    Self::put(&mut expected, span, |element| {
                        self.after(rank, block, element).expect("all or none")
                    });
                }
            }
            let text = format!("{self:?} by {}: rank {rank}", algorithm.name);
            // Exscan may modify rank 0's output, and reduce the output of ranks other than the root.
            assert!(
                *found == expected,
                "{text}: {:?}",
                found.iter().zip(&expected).position(|(a, b)| a != b)
            );
        }
    }
}

/// Calls of a kind with all supported roots, lengths and in-place forms.
fn calls(kind: Kind, size: usize) -> Vec<Call> {
    let rooted = matches!(kind, Kind::Bcast | Kind::Gather | Kind::Scatter | Kind::Reduce);
    let reduces =
        matches!(kind, Kind::Reduce | Kind::Allreduce | Kind::ReduceScatter | Kind::Scan | Kind::Exscan);
    let mut calls = Vec::new();
    for root in 0..if rooted { size } else { 1 } {
        for (count, step) in [(0, 0), (1, 0), (7, 0), (19, 0), (0, 1), (3, 2)] {
            for in_place in [false, true] {
                for commutative in [false, true] {
                    let senseless = (is_vector(kind) && step > 0)
                        || (in_place && matches!(kind, Kind::Barrier | Kind::Bcast))
                        || (!reduces && commutative)
                        || (kind == Kind::Barrier && count > 0);
                    if !senseless {
                        calls.push(Call { kind, size, root, count, step, in_place, commutative });
                    }
                }
            }
        }
    }
    calls
}

fn check_kind(kind: Kind) {
    let mut checked = 0;
    for size in RANKS {
        for call in calls(kind, size) {
            for algorithm in Algorithm::of(kind).filter(|algorithm| algorithm.refuses(&call.case()).is_none())
            {
                call.check(algorithm, checked);
                checked += 1;
            }
        }
    }
    assert!(checked >= 17, "{kind:?}: only {checked} calls");
}

macro_rules! kinds {
    ($($name:ident $kind:ident;)*) => {$(
        #[test]
        fn $name() {
            check_kind(Kind::$kind);
        }
    )*};
}

kinds! {
    barrier Barrier;
    bcast Bcast;
    gather Gather;
    scatter Scatter;
    allgather Allgather;
    alltoall Alltoall;
    reduce Reduce;
    allreduce Allreduce;
    reduce_scatter ReduceScatter;
    scan Scan;
    exscan Exscan;
}

/// The critical path of a run matches the cost function: exactly where halves are equal, otherwise not longer. The clock uses one
/// of the costs at a time.
#[test]
fn costs_are_what_a_run_takes() {
    for kind in Kind::ALL {
        for size in [1, 2, 3, 4, 5, 7, 8, 11, 16, 17] {
            let count = if kind == Kind::Barrier { 0 } else { 16 * 17 };
            let call = Call { kind, size, root: 0, count, step: 0, in_place: false, commutative: true };
            for algorithm in Algorithm::of(kind).filter(|algorithm| algorithm.refuses(&call.case()).is_none())
            {
                check_cost(call, algorithm);
            }
        }
    }
}

fn check_cost(call: Call, algorithm: &Algorithm) {
    let said = algorithm.cost(&call.case());
    let size = call.size;
    // Parts of an uneven vector differ by an element.
    let uneven = 2.0 * (size * SIZE) as f64;
    for (what, said, costs, more) in [
        ("messages", said.messages, Costs { alpha: 1.0, ..FREE }, 0.0),
        ("further messages", said.further, Costs { gap: 1.0, ..FREE }, 0.0),
        ("bytes", said.bytes, Costs { beta: 1.0, ..FREE }, uneven),
        ("reduced", said.reduced, Costs { gamma: 1.0, ..FREE }, uneven),
    ] {
        let ran = World::timed(vec![call.ranks(algorithm)], costs).run();
        let text = format!("{:?} by {} on {size}: {what}: {ran}, not {said}", call.kind, algorithm.name);
        assert!(ran <= said + more, "{text}");
        assert!(!size.is_power_of_two() || (ran - said).abs() <= more / 4.0, "{text}");
    }
}
