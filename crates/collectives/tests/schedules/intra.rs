//! Tests every algorithm against a naive one: 1 to 17 ranks, odd counts and zero, all roots, in place, operators that are not
//! commutative, and the cost.

use crate::run::{EXTENTS, FREE, GAP, Matrix, Rank, SIZE, World, matrix, multiply, to_bytes};
use collectives::{
    Algorithm, Blocks, Case, CollKind, Costs, ElementType, Peer, Root, SharedCores, Span, SpanBuffer, Step,
    Task,
};

const RANKS: std::ops::RangeInclusive<usize> = 1..=17;

/// One call of all ranks.
#[derive(Clone, Copy, Debug)]
struct Call {
    kind: CollKind,
    size: usize,
    root: usize,
    /// Number of elements in the block of rank `i`, or in a vector: `count + step * i`.
    count: i64,
    step: i64,
    in_place: bool,
    commutative: bool,
    placement: Placement,
}

/// The hosts of the ranks.
#[derive(Clone, Copy, Debug)]
enum Placement {
    OneHost,
    /// This many consecutive ranks on each host.
    Rows(usize),
    /// In turns on this many hosts.
    Turns(usize),
}

impl Placement {
    /// The host of each rank.
    fn hosts(self, size: usize) -> Vec<usize> {
        match self {
            Self::OneHost => Vec::new(),
            Self::Rows(ranks) => (0..size).map(|rank| rank / ranks).collect(),
            Self::Turns(hosts) => (0..size).map(|rank| rank % hosts).collect(),
        }
    }
}

/// A vector of elements with the buffer's send or receive type.
fn span(buffer: SpanBuffer, at: i64, count: i64) -> Span {
    let (datatype, extent) = match buffer {
        SpanBuffer::Input => (ElementType::Send(0), EXTENTS[0]),
        _ => (ElementType::Receive(0), EXTENTS[1]),
    };
    Span::new(buffer, datatype, at * extent, count, extent, SIZE as u64)
}

fn is_vector(kind: CollKind) -> bool {
    matches!(
        kind,
        CollKind::Bcast | CollKind::Reduce | CollKind::Allreduce | CollKind::Scan | CollKind::Exscan
    )
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

    fn blocks(&self, buffer: SpanBuffer) -> Blocks {
        if self.step == 0 {
            return Blocks::Equal { first: span(buffer, 0, self.count), count: self.size };
        }
        Blocks::Separate(
            (0..self.size).map(|rank| span(buffer, self.start(rank), self.length(rank))).collect(),
        )
    }

    /// The vector of a reduce-scatter.
    fn split(&self, buffer: SpanBuffer) -> Blocks {
        if self.step == 0 {
            return self.blocks(buffer);
        }
        let cuts: Vec<i64> =
            (0..=self.size).map(|end| (0..end).map(|rank| self.length(rank)).sum()).collect();
        Blocks::Split { whole: span(buffer, 0, cuts[self.size]), cuts: cuts.into() }
    }

    /// Blocks of an alltoall: all with one length and type, or with the length `count + step * (sender + receiver)`.
    fn alltoall_blocks(&self, buffer: SpanBuffer, rank: usize) -> Blocks {
        if self.step == 0 {
            return self.blocks(buffer);
        }
        // As for MPI_Alltoallw: a type for each rank.
        let mut at = 0;
        let spans = (0..self.size).map(|other| {
            let (count, first) = (self.length(rank + other), span(buffer, 0, 0));
            let datatype = match first.datatype {
                ElementType::Send(_) => ElementType::Send(other),
                _ => ElementType::Receive(other),
            };
            let (extent, start) = (first.extent + 8 * other as i64, at);
            at += extent * (count + 1);
            Span::new(buffer, datatype, start, count, extent, SIZE as u64)
        });
        Blocks::Separate(spans.collect())
    }

    fn task(&self, rank: usize) -> Task {
        let vector = |buffer| Blocks::single(span(buffer, 0, self.count));
        let mine = |buffer| Blocks::single(span(buffer, 0, self.length(rank)));
        let input = if self.in_place { SpanBuffer::Output } else { SpanBuffer::Input };
        let is_root = rank == self.root;
        let (input, output) = match self.kind {
            CollKind::Barrier => (Blocks::none(), Blocks::none()),
            CollKind::Bcast => (Blocks::none(), vector(SpanBuffer::Output)),
            CollKind::Gather if self.in_place && is_root => {
                let all = self.blocks(SpanBuffer::Output);
                (Blocks::single(all.block(rank)), all)
            }
            CollKind::Gather => (mine(SpanBuffer::Input), self.blocks(SpanBuffer::Output)),
            CollKind::Scatter if self.in_place && is_root => {
                let all = self.blocks(SpanBuffer::Input);
                (all.clone(), Blocks::single(all.block(rank)))
            }
            CollKind::Scatter => (self.blocks(SpanBuffer::Input), mine(SpanBuffer::Output)),
            CollKind::Allgather => {
                let all = self.blocks(SpanBuffer::Output);
                (if self.in_place { Blocks::single(all.block(rank)) } else { mine(SpanBuffer::Input) }, all)
            }
            CollKind::Alltoall => {
                (self.alltoall_blocks(input, rank), self.alltoall_blocks(SpanBuffer::Output, rank))
            }
            CollKind::Reduce if !is_root => (vector(SpanBuffer::Input), vector(SpanBuffer::Output)),
            CollKind::ReduceScatter => (self.split(input), mine(SpanBuffer::Output)),
            _ => (vector(input), vector(SpanBuffer::Output)),
        };
        let (size, root, commutative) = (self.size, Root::Rank(self.root), self.commutative);
        Task {
            rank,
            size,
            remote_size: 0,
            root,
            input,
            output,
            commutative,
            segment: 100,
            hosts: self.placement.hosts(self.size).into(),
        }
    }

    fn case(&self) -> Case {
        let bytes = SIZE as u64 * self.count as u64;
        let bytes = if self.kind == CollKind::ReduceScatter { bytes * self.size as u64 } else { bytes };
        let (kind, size, commutative) = (self.kind, self.size, self.commutative);
        let hosts = self.placement.hosts(size).into_iter().max().map_or(1, |last| last + 1);
        Case { kind, size, bytes, commutative, equal_blocks: self.step == 0, segment: 100, shared: 0, hosts }
    }

    /// The initial value of a rank's block for another, or of an element of its vector.
    fn initial(&self, rank: usize, block: usize, element: i64) -> Matrix {
        let value = matrix(rank, block * 1000 + element as usize);
        // Powers of one matrix commute.
        if self.commutative {
            (0..value[0] % 5).fold([1, 1, 1, 0], |power, _| multiply(power, [1, 1, 1, 0]))
        } else {
            value
        }
    }

    /// Writes elements of a span into a buffer, which grows as needed.
    fn write_elements(buffer: &mut Vec<u8>, span: Span, value: impl Fn(i64) -> Matrix) {
        for element in 0..span.count {
            let at = (span.displacement + element * span.extent) as usize;
            buffer.resize(buffer.len().max(at + span.extent as usize), GAP);
            buffer[at..at + SIZE].copy_from_slice(&to_bytes(value(element)));
        }
    }

    fn fold(&self, ranks: std::ops::Range<usize>, block: usize, element: i64) -> Matrix {
        let values = ranks.map(|rank| self.initial(rank, block, element));
        values.reduce(multiply).expect("at least one rank")
    }

    /// The expected value of a rank's output block; `None` if it is unspecified.
    fn expected_element(&self, rank: usize, block: usize, element: i64) -> Option<Matrix> {
        let (all, is_root) = (0..self.size, rank == self.root);
        Some(match self.kind {
            CollKind::Barrier => return None,
            CollKind::Bcast => self.initial(self.root, 0, element),
            CollKind::Gather if !is_root => return None,
            CollKind::Gather | CollKind::Allgather => self.initial(block, 0, element),
            CollKind::Scatter => self.initial(self.root, rank, element),
            CollKind::Alltoall => self.initial(block, rank, element),
            CollKind::Reduce if !is_root => return None,
            CollKind::Reduce | CollKind::Allreduce => self.fold(all, 0, element),
            CollKind::ReduceScatter => self.fold(all, rank, element),
            CollKind::Scan => self.fold(0..rank + 1, 0, element),
            CollKind::Exscan if rank == 0 => return None,
            CollKind::Exscan => self.fold(0..rank, 0, element),
        })
    }

    /// The ranks with their initial data.
    fn ranks(&self, algorithm: &Algorithm) -> Vec<Rank> {
        let rank = |rank: usize| {
            let task = self.task(rank);
            let (mut input, mut output) = (Vec::new(), Vec::new());
            for block in 0..task.output.count() {
                Self::write_elements(&mut output, task.output.block(block), |_| [0x77; 4]);
            }
            for block in 0..task.input.count() {
                let span = task.input.block(block);
                let buffer = if span.buffer == SpanBuffer::Input { &mut input } else { &mut output };
                Self::write_elements(buffer, span, |element| self.initial(rank, block, element));
            }
            if self.kind == CollKind::Bcast && rank == self.root {
                Self::write_elements(&mut output, task.output.block(0), |element| {
                    self.initial(rank, 0, element)
                });
            }
            Rank::new(algorithm.plan(&task).expect("ranks share no memory"), input, output)
        };
        (0..self.size).map(rank).collect()
    }

    /// The bytes of all messages between ranks of different hosts.
    /// The sender, receiver and bytes of each message.
    fn messages(&self, algorithm: &Algorithm) -> Vec<(usize, usize, u64)> {
        let mut messages = Vec::new();
        for rank in 0..self.size {
            let schedule = algorithm.plan(&self.task(rank)).expect("a schedule");
            for step in (0..schedule.rounds()).flat_map(|round| schedule.steps(round)) {
                if let Step::Send { peer: Peer::Local(to), span } = step {
                    messages.push((rank, *to, span.bytes));
                }
            }
        }
        messages
    }

    fn bytes_between_hosts(&self, algorithm: &Algorithm) -> u64 {
        let hosts = self.placement.hosts(self.size);
        let messages = self.messages(algorithm).into_iter();
        messages.filter(|(from, to, _)| hosts[*from] != hosts[*to]).map(|(_, _, bytes)| bytes).sum()
    }

    fn check(&self, algorithm: &Algorithm, seed: u64) {
        let ranks = self.ranks(algorithm);
        let initial: Vec<Vec<u8>> = ranks.iter().map(|rank| rank.output.clone()).collect();
        let mut world = World::new(vec![ranks], seed);
        world.run();
        for (rank, mut expected) in initial.into_iter().enumerate() {
            let (task, found) = (self.task(rank), &world.groups[0][rank].output);
            for block in 0..task.output.count() {
                let span = task.output.block(block);
                if self.expected_element(rank, block, 0).is_some() && span.buffer == SpanBuffer::Output {
                    Self::write_elements(&mut expected, span, |element| {
                        self.expected_element(rank, block, element).expect("all or none")
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
fn calls(kind: CollKind, size: usize) -> Vec<Call> {
    let rooted = matches!(kind, CollKind::Bcast | CollKind::Gather | CollKind::Scatter | CollKind::Reduce);
    let reduces = matches!(
        kind,
        CollKind::Reduce | CollKind::Allreduce | CollKind::ReduceScatter | CollKind::Scan | CollKind::Exscan
    );
    let mut calls = Vec::new();
    for root in 0..if rooted { size } else { 1 } {
        for (count, step) in [(0, 0), (1, 0), (7, 0), (19, 0), (0, 1), (3, 2)] {
            for in_place in [false, true] {
                for commutative in [false, true] {
                    let is_meaningless = (is_vector(kind) && step > 0)
                        || (in_place && matches!(kind, CollKind::Barrier | CollKind::Bcast))
                        || (!reduces && commutative)
                        || (kind == CollKind::Barrier && count > 0);
                    if !is_meaningless {
                        let placement = Placement::OneHost;
                        calls.push(Call { kind, size, root, count, step, in_place, commutative, placement });
                    }
                }
            }
        }
    }
    calls
}

fn check_kind(kind: CollKind) {
    let mut checked = 0;
    for size in RANKS {
        for call in calls(kind, size) {
            for algorithm in Algorithm::all_for(kind)
                .filter(|algorithm| algorithm.unsupported_reason(&call.case()).is_none())
            {
                call.check(algorithm, checked);
                checked += 1;
            }
        }
    }
    assert!(checked >= 17, "{kind:?}: only {checked} calls");
}

/// Goal: the algorithm for several hosts gives the right result wherever ranks are, and sends each byte to a host once. Method: rows
/// and turns of ranks; the messages between hosts are counted.
#[test]
fn hosts_exchange_each_byte_once() {
    let placements = [Placement::Rows(2), Placement::Rows(3), Placement::Turns(2), Placement::Turns(3)];
    let kinds =
        [CollKind::Barrier, CollKind::Bcast, CollKind::Allgather, CollKind::Reduce, CollKind::Allreduce];
    let mut checked = 0;
    for kind in kinds {
        for (size, placement) in RANKS.flat_map(|size| placements.map(|placement| (size, placement))) {
            for call in calls(kind, size).into_iter().map(|call| Call { placement, ..call }) {
                let Ok(algorithm) = Algorithm::by_name("hosts", &call.case()) else { continue };
                call.check(algorithm, checked);
                checked += 1;
                let vector = call.count as u64 * SIZE as u64;
                let hosts = call.case().hosts as u64;
                let sent = call.bytes_between_hosts(algorithm);
                let most = match kind {
                    CollKind::Bcast | CollKind::Reduce => vector * (hosts - 1),
                    // Leaders reduce by recursive doubling, with a fold.
                    CollKind::Allreduce => vector * hosts * u64::from(hosts.ilog2() + 1),
                    CollKind::Allgather => {
                        let all = (0..size).map(|rank| call.length(rank) as u64).sum::<u64>();
                        all * SIZE as u64 * (hosts - 1)
                    }
                    _ => 0,
                };
                assert!(sent <= most, "{call:?}: {sent} bytes between hosts, at most {most}");
            }
        }
    }
    assert!(checked > 1000, "only {checked} calls");
}

#[test]
fn hosts_are_distinguished_where_some_share_ranks() {
    let costs = Costs { alpha: 40e-6, gap: 20e-6, beta: 2e-10, gamma: 0.0, shared_cores: None };
    for (size, hosts, expected) in [(8, 2, true), (8, 4, true), (9, 2, true), (8, 8, false), (8, 1, false)] {
        for (kind, bytes) in
            [(CollKind::Allreduce, 8), (CollKind::Bcast, 1 << 20), (CollKind::Allgather, 1 << 20)]
        {
            let case = Case {
                kind,
                size,
                bytes,
                commutative: true,
                equal_blocks: true,
                segment: 0,
                shared: 0,
                hosts,
            };
            let name = collectives::choose(case, costs).algorithm.name;
            assert_eq!(name == "hosts", expected, "{kind:?} of {bytes} B by {size} on {hosts}: {name}");
        }
    }
    let call = Call {
        kind: CollKind::Reduce,
        size: 4,
        root: 0,
        count: 1,
        step: 0,
        in_place: false,
        commutative: false,
        placement: Placement::Rows(2),
    };
    let error = Algorithm::by_name("hosts", &call.case()).expect_err("operands would be swapped");
    assert!(error.to_string().contains("not commutative"), "{error}");
}

macro_rules! kinds {
    ($($name:ident $kind:ident;)*) => {$(
        #[test]
        fn $name() {
            check_kind(CollKind::$kind);
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
fn cost_equals_the_critical_path_of_a_run() {
    for kind in CollKind::ALL {
        for size in [1, 2, 3, 4, 5, 7, 8, 11, 16, 17] {
            let count = if kind == CollKind::Barrier { 0 } else { 16 * 17 };
            let placement = Placement::OneHost;
            let call =
                Call { kind, size, root: 0, count, step: 0, in_place: false, commutative: true, placement };
            for algorithm in Algorithm::all_for(kind)
                .filter(|algorithm| algorithm.unsupported_reason(&call.case()).is_none())
            {
                check_cost(call, algorithm);
            }
        }
    }
}

/// Goal: where ranks share cores, an algorithm is chosen by the messages and bytes of all ranks. Method: count those of all
/// schedules; folds and trees of other numbers of ranks than powers of two are estimated.
#[test]
fn cost_has_the_messages_and_bytes_of_all_ranks() {
    for (kind, size) in
        CollKind::ALL.into_iter().flat_map(|kind| [2, 3, 4, 7, 8, 16].map(|size| (kind, size)))
    {
        let count = if kind == CollKind::Barrier { 0 } else { 16 * 21 };
        let placement = Placement::OneHost;
        let call =
            Call { kind, size, root: 0, count, step: 0, in_place: false, commutative: true, placement };
        let supports = |algorithm: &&Algorithm| algorithm.unsupported_reason(&call.case()).is_none();
        for algorithm in Algorithm::all_for(kind).filter(supports) {
            let (messages, bytes) = algorithm.cost(&call.case()).total(&call.case());
            let all = call.messages(algorithm);
            let sent = all.iter().map(|(_, _, bytes)| *bytes).sum::<u64>() as f64;
            let exact = if size.is_power_of_two() { 1e-6 } else { 0.35 };
            for (predicted, counted) in [(messages, all.len() as f64), (bytes, sent)] {
                let differs = (predicted - counted).abs();
                let text = format!("{kind:?} by {} on {size}: {counted}, not {predicted}", algorithm.name);
                assert!(differs <= exact * counted.max(1.0), "{text}");
            }
        }
    }
}

#[test]
fn few_rounds_and_messages_are_chosen_for_shared_cores() {
    let shared_cores =
        Some(SharedCores { cores: 2.0, turn: 7e-6, long_turn: 45e-6, message: 15e-6, byte: 0.48e-9 });
    let costs = Costs { alpha: 40e-6, gap: 20e-6, beta: 2e-10, gamma: 0.0, shared_cores };
    let name = |kind, size, bytes| {
        let (commutative, equal_blocks) = (true, true);
        let case = Case { kind, size, bytes, commutative, equal_blocks, segment: 0, shared: 0, hosts: 1 };
        let text = collectives::explain(case, costs);
        (collectives::choose(case, costs).algorithm.name, text)
    };
    for (kind, size, bytes, expected) in [
        (CollKind::Allgather, 4, 64 << 10, "direct"),
        (CollKind::Alltoall, 4, 1 << 20, "direct"),
        (CollKind::Allreduce, 4, 1 << 20, "flat"),
        (CollKind::Allreduce, 2, 64 << 10, "recursive-doubling"),
        (CollKind::Allreduce, 4, 8, "flat"),
        (CollKind::Barrier, 16, 0, "flat"),
    ] {
        let (found, text) = name(kind, size, bytes);
        assert_eq!(found, expected, "{kind:?} of {bytes} B by {size}:\n{text}");
    }
}

fn check_cost(call: Call, algorithm: &Algorithm) {
    let predicted = algorithm.cost(&call.case());
    let size = call.size;
    // Parts of an uneven vector differ by an element.
    let uneven = 2.0 * (size * SIZE) as f64;
    for (what, predicted, costs, more) in [
        ("messages", predicted.messages, Costs { alpha: 1.0, ..FREE }, 0.0),
        ("further messages", predicted.further, Costs { gap: 1.0, ..FREE }, 0.0),
        ("bytes", predicted.bytes, Costs { beta: 1.0, ..FREE }, uneven),
        ("reduced", predicted.reduced, Costs { gamma: 1.0, ..FREE }, uneven),
    ] {
        let measured = World::timed(vec![call.ranks(algorithm)], costs).run();
        let text =
            format!("{:?} by {} on {size}: {what}: {measured}, not {predicted}", call.kind, algorithm.name);
        assert!(measured <= predicted + more, "{text}");
        assert!(!size.is_power_of_two() || (measured - predicted).abs() <= more / 4.0, "{text}");
    }
}
