//! Tests collective operations against a naive model: random calls by seed, in one group, between two and among neighbours, with
//! every algorithm, in worlds and in more threads than there are cores.

mod support;

use std::sync::Arc;

use collectives::Algorithm;
use datatypes::{Basic, Datatype, Op, Operator, UserFunction};
use mpi::{
    Buffer, Class, CollKind, Collective, Comm, Connect, DistGraph, Grid, MatchEngine, Matcher, PROC_NULL,
    Process, ROOT, Request, Topology,
};
use support::{Play, TestRng, in_threads, typed};

/// A two by two matrix; of plain numbers only the first entry counts.
type Element = [u64; 4];

fn multiply(a: Element, b: Element) -> Element {
    let cell = |row: usize, column: usize| {
        a[2 * row].wrapping_mul(b[column]).wrapping_add(a[2 * row + 1].wrapping_mul(b[2 + column]))
    };
    [cell(0, 0), cell(0, 1), cell(1, 0), cell(1, 1)]
}

struct Multiply;

impl UserFunction for Multiply {
    fn apply(&self, left: &[u8], right: &mut [u8], count: i64, datatype: &Datatype) -> datatypes::Result<()> {
        let layout = Layout { is_matrix: true, datatype: datatype.clone() };
        for at in 0..count as usize {
            let product = multiply(layout.get(left, at), layout.get(right, at));
            layout.put(right, at, product);
        }
        Ok(())
    }
}

/// Plain numbers, or matrices followed by a gap.
#[derive(Clone, Debug)]
struct Layout {
    is_matrix: bool,
    datatype: Datatype,
}

impl Layout {
    fn new(is_matrix: bool) -> Self {
        let number = Datatype::from(Basic::Uint64);
        let matrix = || Datatype::contiguous(4, &number).and_then(|four| Datatype::resized(&four, 0, 40));
        let datatype = if is_matrix { matrix().expect("a type") } else { number };
        datatype.commit();
        Self { is_matrix, datatype }
    }

    fn extent(&self) -> usize {
        self.datatype.extent() as usize
    }

    fn words(&self) -> usize {
        if self.is_matrix { 4 } else { 1 }
    }

    fn get(&self, bytes: &[u8], at: usize) -> Element {
        let mut element = [0; 4];
        for (word, value) in element.iter_mut().enumerate().take(self.words()) {
            let from = at * self.extent() + 8 * word;
            *value = u64::from_ne_bytes(bytes[from..from + 8].try_into().expect("eight bytes"));
        }
        element
    }

    fn put(&self, bytes: &mut [u8], at: usize, element: Element) {
        for (word, value) in element.iter().enumerate().take(self.words()) {
            let to = at * self.extent() + 8 * word;
            bytes[to..to + 8].copy_from_slice(&value.to_ne_bytes());
        }
    }

    fn op(&self) -> Op {
        if self.is_matrix {
            Op::User { function: Arc::new(Multiply), commutative: false }
        } else {
            Operator::Sum.into()
        }
    }

    fn fold(&self, elements: impl Iterator<Item = Element>) -> Element {
        let op = |a: Element, b: Element| {
            if self.is_matrix { multiply(a, b) } else { [a[0].wrapping_add(b[0]), 0, 0, 0] }
        };
        elements.reduce(op).expect("at least one")
    }
}

/// A buffer under construction: blocks of elements at given positions.
struct Memory {
    layout: Layout,
    bytes: Vec<u8>,
}

impl Memory {
    fn new(layout: &Layout, elements: usize) -> Self {
        // The last element's gap is outside of the buffer.
        Self { layout: layout.clone(), bytes: vec![0xa7; (elements + 1) * layout.extent()] }
    }

    fn buffer(&mut self, first: usize, count: usize) -> Buffer {
        let from = first * self.layout.extent();
        typed(&mut self.bytes[from..], count as i64, &self.layout.datatype)
    }

    fn fill(&mut self, first: usize, count: usize, value: impl Fn(usize) -> Element) {
        (0..count).for_each(|at| self.layout.put(&mut self.bytes, first + at, value(at)));
    }
}

/// A call with its memory, and the expected output.
struct Prepared {
    text: String,
    call: Collective,
    _input: Memory,
    output: Memory,
    expected: Vec<u8>,
}

impl Prepared {
    fn check(&self) {
        assert!(self.output.bytes == self.expected, "{}", self.text);
    }
}

/// The parameters of a random call that all ranks know.
#[derive(Clone, Debug)]
struct Plan {
    kind: CollKind,
    layout: Layout,
    seed: u64,
    ranks: usize,
    root: usize,
    count: usize,
    in_place: bool,
    /// Blocks have different sizes and explicit positions.
    varies: bool,
}

impl Plan {
    fn random(rng: &mut TestRng, kind: CollKind, ranks: usize) -> Self {
        let layout = Layout::new(rng.below(2) == 0);
        let counts = [0, 1, 2, 7, 40, 700, 2500];
        Self {
            kind,
            layout,
            seed: rng.below(1 << 20) as u64,
            ranks,
            root: rng.below(ranks),
            count: counts[rng.below(counts.len())],
            in_place: rng.below(3) == 0,
            varies: rng.below(3) == 0,
        }
    }

    /// An element of rank `rank`'s block `block`.
    fn value(&self, rank: usize, block: usize, element: usize) -> Element {
        let seed = (self.seed + 1) * 1_000_003 + (rank * 7919 + block * 104_729 + element * 31) as u64;
        [seed, seed ^ 0x5555, seed.wrapping_mul(31), seed | 1]
    }

    /// Elements in the block of a rank, or between two ranks.
    fn len(&self, number: usize) -> usize {
        if self.varies { self.count + number % 3 } else { self.count }
    }

    /// The starts of the blocks: with gaps and in another order, if they vary.
    fn starts(&self, lens: &[usize]) -> Vec<usize> {
        let before = |at: usize| {
            if self.varies { lens[at + 1..].iter().map(|len| len + 1).sum() } else { lens[..at].iter().sum() }
        };
        (0..lens.len()).map(before).collect()
    }

    fn blocks(&self, lens: &[usize]) -> (Memory, Vec<usize>) {
        (Memory::new(&self.layout, lens.iter().sum::<usize>() + lens.len()), self.starts(lens))
    }

    fn prepare(&self, me: usize) -> Prepared {
        match self.kind {
            CollKind::Barrier | CollKind::Bcast => self.bcast(me),
            CollKind::Gather | CollKind::Allgather => self.gather(me),
            CollKind::Scatter => self.scatter(me),
            CollKind::Alltoall => self.alltoall(me),
            CollKind::ReduceScatter => self.reduce_scatter(me),
            CollKind::Reduce | CollKind::Allreduce | CollKind::Scan | CollKind::Exscan => self.reduce(me),
        }
    }

    fn done(
        &self,
        me: usize,
        call: Collective,
        input: Memory,
        output: Memory,
        expected: Vec<u8>,
    ) -> Prepared {
        Prepared { text: format!("rank {me} of {self:?}"), call, _input: input, output, expected }
    }

    fn bcast(&self, me: usize) -> Prepared {
        let (input, mut output) = (Memory::new(&self.layout, 0), Memory::new(&self.layout, self.count));
        if self.kind == CollKind::Barrier {
            let expected = output.bytes.clone();
            return self.done(me, Collective::Barrier, input, output, expected);
        }
        let mut expected = Memory::new(&self.layout, self.count);
        expected.fill(0, self.count, |at| self.value(self.root, 0, at));
        if me == self.root {
            output.fill(0, self.count, |at| self.value(me, 0, at));
        }
        let call = Collective::Bcast { buffer: output.buffer(0, self.count), root: self.root as i32 };
        self.done(me, call, input, output, expected.bytes)
    }

    fn gather(&self, me: usize) -> Prepared {
        let to_all = self.kind == CollKind::Allgather;
        let lens: Vec<usize> = (0..self.ranks).map(|rank| self.len(rank)).collect();
        let mut input = Memory::new(&self.layout, lens[me]);
        input.fill(0, lens[me], |at| self.value(me, 0, at));
        let (mut output, starts) = self.blocks(&lens);
        let mut expected = self.blocks(&lens).0;
        let gets = to_all || me == self.root;
        if gets {
            for rank in 0..self.ranks {
                expected.fill(starts[rank], lens[rank], |at| self.value(rank, 0, at));
            }
        }
        let gives = (!(self.in_place && gets)).then(|| input.buffer(0, lens[me]));
        if gives.is_none() {
            output.fill(starts[me], lens[me], |at| self.value(me, 0, at));
        }
        let each =
            |output: &mut Memory| starts.iter().zip(&lens).map(|(s, l)| output.buffer(*s, *l)).collect();
        let whole = |output: &mut Memory| output.buffer(0, self.count * self.ranks);
        let root = self.root as i32;
        let call = match (to_all, self.varies) {
            (true, true) => Collective::Allgatherv { input: gives, output: each(&mut output) },
            (true, false) => Collective::Allgather { input: gives, output: whole(&mut output) },
            (false, true) => Collective::Gatherv { input: gives, output: each(&mut output), root },
            (false, false) => Collective::Gather { input: gives, output: whole(&mut output), root },
        };
        self.done(me, call, input, output, expected.bytes)
    }

    fn scatter(&self, me: usize) -> Prepared {
        let lens: Vec<usize> = (0..self.ranks).map(|rank| self.len(rank)).collect();
        let (mut input, starts) = self.blocks(&lens);
        for rank in 0..self.ranks {
            input.fill(starts[rank], lens[rank], |at| self.value(self.root, rank, at));
        }
        let (mut output, mut expected) =
            (Memory::new(&self.layout, lens[me]), Memory::new(&self.layout, lens[me]));
        let gets = (!(self.in_place && me == self.root)).then(|| output.buffer(0, lens[me]));
        if gets.is_some() {
            expected.fill(0, lens[me], |at| self.value(self.root, me, at));
        }
        let root = self.root as i32;
        let call = if self.varies {
            let each = starts.iter().zip(&lens).map(|(start, len)| input.buffer(*start, *len));
            Collective::Scatterv { input: each.collect(), output: gets, root }
        } else {
            Collective::Scatter { input: input.buffer(0, self.count * self.ranks), output: gets, root }
        };
        self.done(me, call, input, output, expected.bytes)
    }

    fn alltoall(&self, me: usize) -> Prepared {
        let lens: Vec<usize> = (0..self.ranks).map(|rank| self.len(rank + me)).collect();
        let (mut input, starts) = self.blocks(&lens);
        let (mut output, _) = self.blocks(&lens);
        let mut expected = self.blocks(&lens).0;
        for rank in 0..self.ranks {
            let from = if self.in_place { &mut output } else { &mut input };
            from.fill(starts[rank], lens[rank], |at| self.value(me, rank, at));
            expected.fill(starts[rank], lens[rank], |at| self.value(rank, me, at));
        }
        let each =
            |memory: &mut Memory| starts.iter().zip(&lens).map(|(s, l)| memory.buffer(*s, *l)).collect();
        let all = self.count * self.ranks;
        let call = if self.varies {
            let gives = (!self.in_place).then(|| each(&mut input));
            Collective::Alltoallw { input: gives, output: each(&mut output) }
        } else {
            let gives = (!self.in_place).then(|| input.buffer(0, all));
            Collective::Alltoall { input: gives, output: output.buffer(0, all) }
        };
        self.done(me, call, input, output, expected.bytes)
    }

    fn reduce_scatter(&self, me: usize) -> Prepared {
        let lens: Vec<usize> = (0..self.ranks).map(|rank| self.len(rank)).collect();
        let (total, mine) = (lens.iter().sum(), lens[me]);
        let (mut input, mut output) = (Memory::new(&self.layout, total), Memory::new(&self.layout, total));
        let from = if self.in_place { &mut output } else { &mut input };
        from.fill(0, total, |at| self.value(me, 0, at));
        let begin: usize = lens[..me].iter().sum();
        let mut expected = Memory { layout: self.layout.clone(), bytes: output.bytes.clone() };
        expected.fill(0, mine, |at| {
            self.layout.fold((0..self.ranks).map(|rank| self.value(rank, 0, begin + at)))
        });
        let gives = (!self.in_place).then(|| input.buffer(0, total));
        let gets = output.buffer(0, if self.in_place { total } else { mine });
        let counts = lens.iter().map(|len| *len as i64).collect();
        let call = Collective::ReduceScatter { input: gives, output: gets, counts, op: self.layout.op() };
        self.done(me, call, input, output, expected.bytes)
    }

    fn reduce(&self, me: usize) -> Prepared {
        let (count, op, root) = (self.count, self.layout.op(), self.root as i32);
        let (mut input, mut output) = (Memory::new(&self.layout, count), Memory::new(&self.layout, count));
        let (gets, of) = match self.kind {
            CollKind::Reduce => (me == self.root, 0..self.ranks),
            CollKind::Allreduce => (true, 0..self.ranks),
            CollKind::Scan => (true, 0..me + 1),
            _ => (me > 0, 0..me),
        };
        let in_place = self.in_place && (gets || self.kind != CollKind::Reduce);
        let from = if in_place { &mut output } else { &mut input };
        from.fill(0, count, |at| self.value(me, 0, at));
        let mut expected = Memory { layout: self.layout.clone(), bytes: output.bytes.clone() };
        if gets {
            expected.fill(0, count, |at| self.layout.fold(of.clone().map(|rank| self.value(rank, 0, at))));
        }
        let (input_buffer, output_buffer) =
            ((!in_place).then(|| input.buffer(0, count)), output.buffer(0, count));
        let call = match self.kind {
            CollKind::Reduce => Collective::Reduce { input: input_buffer, output: output_buffer, op, root },
            CollKind::Allreduce => Collective::Allreduce { input: input_buffer, output: output_buffer, op },
            CollKind::Scan => Collective::Scan { input: input_buffer, output: output_buffer, op },
            _ => Collective::Exscan { input: input_buffer, output: output_buffer, op },
        };
        self.done(me, call, input, output, expected.bytes)
    }
}

/// Random calls of some kinds on a communicator: blocking, several nonblocking at once, or persistent.
fn play(comm: &Comm, seed: u64, kinds: &[CollKind], rounds: usize) {
    let mut rng = TestRng::new(seed);
    let (me, ranks) = (comm.rank() as usize, comm.size() as usize);
    for _ in 0..rounds {
        let at_once = 1 + rng.below(3);
        let mut plans = Vec::new();
        for _ in 0..at_once {
            let kind = kinds[rng.below(kinds.len())];
            plans.push(Plan::random(&mut rng, kind, ranks));
        }
        let prepared: Vec<Prepared> = plans.iter().map(|plan| plan.prepare(me)).collect();
        match rng.below(3) {
            0 => prepared.iter().for_each(|it| comm.collective(&it.call).expect("valid")),
            1 => {
                let begin = |it: &Prepared| comm.icollective(&it.call).expect("valid");
                let mut requests: Vec<Request> = prepared.iter().map(begin).collect();
                let statuses = Request::wait_all(&mut requests.iter_mut().collect::<Vec<_>>());
                assert!(statuses.iter().all(|status| status.error.is_none()), "{statuses:?}");
            }
            _ => {
                let init = |it: &Prepared| comm.collective_init(&it.call).expect("valid");
                let mut requests: Vec<Request> = prepared.iter().map(init).collect();
                // In the opposite order at odd ranks, and a second time if the first one has not changed the input.
                let again = plans.iter().all(|plan| !plan.in_place);
                for _ in 0..if again { 2 } else { 1 } {
                    if me % 2 == 0 {
                        requests.iter_mut().for_each(|request| request.start().expect("inactive"));
                    } else {
                        requests.iter_mut().rev().for_each(|request| request.start().expect("inactive"));
                    }
                    let statuses = Request::wait_all(&mut requests.iter_mut().collect::<Vec<_>>());
                    assert!(statuses.iter().all(|status| status.error.is_none()), "{statuses:?}");
                }
            }
        }
        prepared.iter().for_each(Prepared::check);
    }
}

/// On all ranks, and on parts at the same time.
fn random_calls(process: &Process, seed: u64) {
    let world = process.world();
    play(world, seed, &CollKind::ALL, 8);
    let part = world.split(world.rank() % 2, -world.rank()).expect("split").expect("a colour");
    play(&part, seed + 100, &CollKind::ALL, 6);
}

#[test]
fn collectives_match_a_reference() {
    for seed in 1..=40 {
        let ranks = 1 + (seed % 9) as u32;
        let play = Play { seed, ..Play::new(ranks) };
        let once = play.run(move |process| random_calls(process, seed));
        if seed.is_multiple_of(10) {
            assert_eq!(
                once,
                play.run(move |process| random_calls(process, seed)),
                "seed {seed}: another world"
            );
        }
    }
}

#[test]
fn collectives_by_portals_match_a_reference() {
    for seed in 1..=12 {
        let match_engine = MatchEngine::Portals(Matcher::Caller);
        let play = Play { seed, match_engine, ..Play::new(1 + (seed % 9) as u32) };
        play.run(move |process| random_calls(process, seed));
    }
}

#[test]
fn collectives_match_a_reference_with_faults() {
    for (at, card) in [
        "model:mt23108-vapi(faults.loss_ppm=5000)",
        "model:mt23108-nicmem(faults.delay_ns=20000)",
        "model:mt23108-vapi(faults.stall_ppm=20000,faults.stall_ns=50000)",
    ]
    .into_iter()
    .enumerate()
    {
        for seed in 1..=8 {
            let seed = seed + 1000 * at as u64;
            Play { card, seed, ..Play::new(2 + (seed % 5) as u32) }
                .run(move |process| random_calls(process, seed));
        }
    }
}

/// Each algorithm of each kind, selected by name.
#[test]
fn every_algorithm_matches_a_reference() {
    for kind in CollKind::ALL {
        for algorithm in Algorithm::all_for(kind) {
            let algorithms: &'static [_] = Box::leak(Box::new([(kind, algorithm.name)]));
            for ranks in [2, 3, 4, 7, 8] {
                let body = move |process: &Process| play(process.world(), u64::from(ranks), &[kind], 6);
                Play { algorithms, ..Play::new(ranks) }.run(body);
            }
        }
    }
}

/// Four times as many ranks as cores.
#[test]
fn collectives_go_on_with_more_ranks_than_cores() {
    fn all(process: &Process) {
        (1..=10).for_each(|seed| random_calls(process, seed));
    }
    in_threads("shm", 8, Connect::OnDemand, all);
}

/// Goal: messages through the leaders of hosts give the right results. Method: nominal hosts with two and three ranks, and a real
/// device, since simulated machines do not distinguish hosts.
#[test]
fn collectives_between_hosts_match_a_reference() {
    fn all(process: &Process) {
        (1..=10).for_each(|seed| random_calls(process, seed));
    }
    support::in_threads_of_hosts("shm", 7, 3, all);
    support::in_threads_of_hosts("shm", 5, 2, all);
}

/// Two groups of different sizes do each collective once.
fn intercommunicator_collectives(process: &Process) {
    let world = process.world();
    let (side, mine) = (i32::from(world.rank() >= 2), world.split(i32::from(world.rank() >= 2), 0));
    let mine = mine.expect("split").expect("a colour");
    let inter = mine.intercomm_create(0, Some(world), if side == 0 { 2 } else { 0 }, 1).expect("made");
    let layout = Layout::new(false);
    let (me, near, far) = (inter.rank() as u64, inter.size() as usize, inter.peers().size() as usize);
    let given = |side: i32, rank: usize, block: usize| {
        [(1000 * side) as u64 + 100 * rank as u64 + block as u64, 0, 0, 0]
    };
    let sum = |side: i32, ranks: usize, block: usize| {
        layout.fold((0..ranks).map(|rank| given(side, rank, block)))[0]
    };
    let other = 1 - side;
    let run = |call: Collective| inter.collective(&call).expect("valid");
    let words = |memory: &Memory, count: usize| -> Vec<u64> {
        (0..count).map(|at| layout.get(&memory.bytes, at)[0]).collect()
    };
    let (mut input, mut output) = (Memory::new(&layout, 20), Memory::new(&layout, 20));
    input.fill(0, 20, |block| given(side, me as usize, block));

    run(Collective::Barrier);
    let wanted: Vec<u64> = (0..far).map(|rank| given(other, rank, 0)[0]).collect();
    run(Collective::Allgather { input: Some(input.buffer(0, 1)), output: output.buffer(0, far) });
    assert_eq!(words(&output, far), wanted);
    run(Collective::Alltoall { input: Some(input.buffer(0, far)), output: output.buffer(0, far) });
    let wanted: Vec<u64> = (0..far).map(|rank| given(other, rank, me as usize)[0]).collect();
    assert_eq!(words(&output, far), wanted);
    let op = || layout.op();
    run(Collective::Allreduce { input: Some(input.buffer(0, 3)), output: output.buffer(0, 3), op: op() });
    assert_eq!(words(&output, 3), (0..3).map(|at| sum(other, far, at)).collect::<Vec<_>>());
    let counts = vec![12 / near as i64; near];
    let (input_12, mine) = (Some(input.buffer(0, 12)), 12 / near);
    run(Collective::ReduceScatter { input: input_12, output: output.buffer(0, mine), counts, op: op() });
    let begin = me as usize * mine;
    assert_eq!(words(&output, mine), (begin..begin + mine).map(|at| sum(other, far, at)).collect::<Vec<_>>());
    // The root is rank 1 of the first group, then rank 0 of the second.
    for (root_side, root_rank) in [(0, 1), (1, 0)] {
        let root = match (side == root_side, me as i32 == root_rank) {
            (true, true) => ROOT,
            (true, false) => PROC_NULL,
            (false, _) => root_rank,
        };
        let (is_root, gives) = (root == ROOT, side != root_side);
        let mut data = Memory::new(&layout, 2);
        if is_root {
            data.fill(0, 2, |at| [77 + at as u64, 0, 0, 0]);
        }
        run(Collective::Bcast { buffer: data.buffer(0, 2), root });
        assert_eq!(words(&data, 2) == [77, 78], is_root || gives);
        run(Collective::Gather { input: Some(input.buffer(0, 1)), output: output.buffer(0, far), root });
        if is_root {
            assert_eq!(
                words(&output, far),
                (0..far).map(|rank| given(other, rank, 0)[0]).collect::<Vec<_>>()
            );
        }
        run(Collective::Reduce {
            input: Some(input.buffer(0, 2)),
            output: output.buffer(0, 2),
            op: op(),
            root,
        });
        if is_root {
            assert_eq!(words(&output, 2), [sum(other, far, 0), sum(other, far, 1)]);
        }
        run(Collective::Scatter { input: input.buffer(0, far), output: Some(output.buffer(0, 1)), root });
        if gives {
            assert_eq!(words(&output, 1), [given(root_side, root_rank as usize, me as usize)[0]]);
        }
    }
    let scan = Collective::Scan { input: Some(input.buffer(0, 1)), output: output.buffer(0, 1), op: op() };
    assert_eq!(inter.collective(&scan).expect_err("of one group only").class, Class::COMM);
    let in_place = Collective::Allreduce { input: None, output: output.buffer(0, 1), op: op() };
    assert_eq!(inter.collective(&in_place).expect_err("of one group only").class, Class::BUFFER);
}

/// A grid that is periodic in one dimension, its parts, and a ring as a distributed graph.
fn among_neighbours(process: &Process) {
    let world = process.world();
    let layout = Layout::new(false);
    let (mut input, mut output) = (Memory::new(&layout, 8), Memory::new(&layout, 8));
    let words = |memory: &Memory, count: usize| -> Vec<u64> {
        (0..count).map(|at| layout.get(&memory.bytes, at)[0]).collect()
    };
    let missing = world
        .collective(&Collective::NeighborAlltoall { input: input.buffer(0, 4), output: output.buffer(0, 4) });
    assert_eq!(missing.expect_err("no topology").class, Class::TOPOLOGY);
    let grid = Grid::new(&[2, 2], &[false, true]).expect("a grid");
    let comm = world.cart_create(grid.clone(), false).expect("made");
    assert_eq!(comm.is_some(), world.rank() < 4);
    if let Some(comm) = comm {
        let me = comm.rank();
        assert_eq!(comm.topology(), Some(&Topology::Grid(grid.clone())));
        assert_eq!(comm.dup().expect("a copy").topology(), comm.topology());
        input.fill(0, 4, |at| [10 * me as u64 + at as u64, 0, 0, 0]);
        let call = Collective::NeighborAlltoall { input: input.buffer(0, 4), output: output.buffer(0, 4) };
        comm.collective(&call).expect("valid");
        let untouched = u64::from_ne_bytes([0xa7; 8]);
        // A message sent downwards is received from above.
        let from =
            |dimension: usize, by: i32, block: u64| match grid.shift(me, dimension, by).expect("inside").1 {
                PROC_NULL => untouched,
                rank => 10 * rank as u64 + block,
            };
        assert_eq!(words(&output, 4), [from(0, -1, 1), from(0, 1, 0), from(1, -1, 3), from(1, 1, 2)]);
        let row = comm.cart_sub(&[false, true]).expect("a part");
        assert_eq!((row.size(), row.rank()), (2, me % 2));
        assert_eq!(row.topology(), Some(&Topology::Grid(Grid::new(&[2], &[true]).expect("a grid"))));
    }
    // Each rank specifies the edge that starts at the next rank.
    let (me, size) = (world.rank(), world.size());
    let edge = [(me + 1) % size, (me + 2) % size, me];
    let ring = world.dist_graph_create(&vec![edge], true, false).expect("made");
    let (before, after) = ((me + size - 1) % size, (me + 1) % size);
    let wanted = DistGraph {
        sources: vec![before],
        destinations: vec![after],
        weights: Some([vec![(me + size - 2) % size], vec![before]]),
    };
    assert_eq!(ring.topology(), Some(&Topology::DistGraph(wanted)));
    input.fill(0, 2, |at| [me as u64 + 100 * at as u64, 0, 0, 0]);
    let call =
        Collective::NeighborAllgatherv { input: input.buffer(0, 2), output: vec![output.buffer(3, 2)] };
    let mut request = ring.collective_init(&call).expect("valid");
    for _ in 0..2 {
        request.start().expect("inactive");
        assert_eq!(request.wait().class(), Class::SUCCESS);
        assert_eq!(words(&output, 5)[3..], [before as u64, before as u64 + 100]);
    }
    let none = DistGraph { sources: vec![size], ..DistGraph::default() };
    assert_eq!(world.dist_graph_create_adjacent(none, false).expect_err("no rank").class, Class::RANK);
}

/// Goal: with reordering, neighbours are on one host, and each member knows its own place. Method: a grid of eight on two hosts
/// with alternating ranks, and the same as graphs; count the edges between hosts, and check the sources of the data.
fn reordering_places_neighbours_together(process: &Process) {
    let world = process.world();
    let host = |rank: i32| rank % 2;
    let grid = Grid::new(&[2, 4], &[false, false]).expect("dimensions");
    let far = |comm: &Comm| {
        let mut of = vec![0; 8 * comm.size() as usize];
        let mut mine = (world.rank() as u64).to_ne_bytes();
        let (input, output) = (support::buffer(&mut mine), support::buffer(&mut of));
        comm.collective(&Collective::Allgather { input: Some(input), output }).expect("all");
        let of: Vec<i32> = of.chunks_exact(8).map(|rank| i32::from(rank[0])).collect();
        let edges = (0..8).flat_map(|at| {
            let down = grid.shift(at, 0, 1).expect("a dimension").1;
            [down, grid.shift(at, 1, 1).expect("a dimension").1].map(|to| (at, to))
        });
        let edges = edges.filter(|(_, to)| *to != PROC_NULL);
        edges.filter(|(at, to)| host(of[*at as usize]) != host(of[*to as usize])).count()
    };
    let cart = |reorder| world.cart_create(grid.clone(), reorder).expect("made").expect("all are in it");
    let (as_they_are, placed) = (cart(false), cart(true));
    assert_eq!((far(&as_they_are), far(&placed)), (6, 2));
    // The same edges, specified by each rank for itself, and by rank 0 for all.
    let around = |rank: i32| {
        let ends =
            (0..2).flat_map(|dimension| <[i32; 2]>::from(grid.shift(rank, dimension, 1).expect("one")));
        ends.filter(|end| *end != PROC_NULL).collect::<Vec<i32>>()
    };
    let mine = around(world.rank());
    let own = DistGraph { sources: mine.clone(), destinations: mine, weights: None };
    let adjacent = world.dist_graph_create_adjacent(own, true).expect("made");
    let all = (0..8).flat_map(|at| around(at).into_iter().map(move |to| [at, to, 3]));
    let all = if world.rank() == 0 { all.collect() } else { Vec::new() };
    let graph = world.dist_graph_create(&all, true, true).expect("made");
    for comm in [&placed, &adjacent, &graph] {
        assert_eq!(far(comm), 2);
        let neighbours = around(comm.rank());
        let mut mine = [comm.rank() as u8];
        let mut got = vec![9; if comm.rank() % 4 == 0 || comm.rank() % 4 == 3 { 2 } else { 3 }];
        if let Some(Topology::Grid(_)) = comm.topology() {
            continue;
        }
        let call = Collective::NeighborAllgather {
            input: support::buffer(&mut mine),
            output: support::buffer(&mut got),
        };
        comm.collective(&call).expect("valid");
        got.sort_unstable();
        let mut expected: Vec<u8> = neighbours.iter().map(|rank| *rank as u8).collect();
        expected.sort_unstable();
        assert_eq!(got, expected);
        let Some(Topology::DistGraph(edges)) = comm.topology() else { panic!("a graph") };
        assert_eq!(edges.sources.len(), neighbours.len());
        assert!(edges.weights.iter().flatten().flatten().all(|weight| *weight == 3));
    }
}

#[test]
fn topologies_use_host_locality() {
    support::in_threads_of_hosts("shm", 8, 2, reordering_places_neighbours_together);
}

/// A nonblocking and a blocking operation, in opposite orders.
fn nonblocking_collectives_have_their_own_order(process: &Process) {
    let world = process.world();
    let layout = Layout::new(false);
    let mut sum = Memory::new(&layout, 1);
    sum.fill(0, 1, |_| [1 + world.rank() as u64, 0, 0, 0]);
    let call = Collective::Allreduce { input: None, output: sum.buffer(0, 1), op: layout.op() };
    let mut request = if world.rank() == 0 {
        let request = world.icollective(&call).expect("valid");
        world.collective(&Collective::Barrier).expect("valid");
        request
    } else {
        world.collective(&Collective::Barrier).expect("valid");
        world.icollective(&call).expect("valid")
    };
    assert_eq!(request.wait().class(), Class::SUCCESS);
    assert_eq!(layout.get(&sum.bytes, 0)[0], 6);
}

/// Every wrong argument is reported before anything is sent, so that later calls still work.
fn wrong_calls_are_named(process: &Process) {
    let world = process.world();
    let layout = Layout::new(false);
    let mut memory = Memory::new(&layout, 8);
    let class = |call: &Collective| world.collective(call).expect_err("wrong").class;
    for root in [-1, 2, ROOT, PROC_NULL] {
        assert_eq!(class(&Collective::Bcast { buffer: memory.buffer(0, 1), root }), Class::ROOT);
    }
    let matrix = Layout::new(true);
    let mut matrices = Memory::new(&matrix, 2);
    let (buffer, op) = (matrices.buffer(0, 1), Operator::Sum.into());
    assert_eq!(class(&Collective::Allreduce { input: None, output: buffer, op }), Class::OP);
    let output = memory.buffer(0, 3);
    assert_eq!(class(&Collective::Allgather { input: None, output }), Class::COUNT);
    let output = vec![memory.buffer(0, 1)];
    assert_eq!(class(&Collective::Alltoallw { input: None, output }), Class::COUNT);
    for counts in [vec![1], vec![-1, 1], vec![i64::MAX, 1]] {
        let (output, op) = (memory.buffer(0, 1), layout.op());
        assert_eq!(class(&Collective::ReduceScatter { input: None, output, counts, op }), Class::COUNT);
    }
    let root = 1 - world.rank();
    assert_eq!(class(&Collective::Gather { input: None, output: Buffer::empty(), root }), Class::BUFFER);
    // Members with mismatched arguments.
    let len = if world.rank() == 0 { 4 } else { 2 };
    let cut = world.collective(&Collective::Bcast { buffer: memory.buffer(0, len), root: 0 });
    assert_eq!(cut.err().map(|error| error.class), (world.rank() == 1).then_some(Class::TRUNCATE));
    let few = world.collective(&Collective::Bcast { buffer: memory.buffer(0, len), root: 1 });
    assert_eq!(few.err().map(|error| error.class), (world.rank() == 0).then_some(Class::NOT_SAME));
    world.collective(&Collective::Barrier).expect("all is well");
}

/// Goal: no member reads data of another operation when short operations follow each other without a pause. Method: random
/// operations that need no messages with shared memory, alternating between several short-lived communicators, with slow ranks.
fn short_collectives_in_sequence(process: &Process) {
    let kinds = [
        CollKind::Barrier,
        CollKind::Bcast,
        CollKind::Reduce,
        CollKind::Allreduce,
        CollKind::Allgather,
        CollKind::Alltoall,
    ];
    let world = process.world();
    let (me, ranks) = (world.rank() as usize, world.size() as usize);
    let mut rng = TestRng::new(7);
    for _ in 0..4 {
        let comms = [world.clone(), world.dup().expect("made")];
        for _ in 0..60 {
            let kind = kinds[rng.below(kinds.len())];
            let plan = Plan::random(&mut rng, kind, ranks);
            let plan = Plan { count: [0, 1, 2, 7, 40][rng.below(5)], varies: false, ..plan };
            let prepared = plan.prepare(me);
            if rng.below(ranks) == me {
                (0..rng.below(4)).for_each(|_| std::thread::yield_now());
            } else {
                rng.below(4);
            }
            comms[rng.below(2)].collective(&prepared.call).expect("valid");
            prepared.check();
        }
    }
}

/// Goal: lent memory is read before it is reused, and no member waits forever, when long and short operations follow each other
/// without a pause. Method: as above, with all sizes, each in the same memory as the one before, with slow ranks.
fn long_collectives_in_sequence(process: &Process) {
    let kinds = [
        CollKind::Barrier,
        CollKind::Bcast,
        CollKind::Reduce,
        CollKind::Allreduce,
        CollKind::Allgather,
        CollKind::Alltoall,
    ];
    let world = process.world();
    let (me, ranks) = (world.rank() as usize, world.size() as usize);
    let mut rng = TestRng::new(11);
    let comms = [world.clone(), world.dup().expect("made")];
    for _ in 0..120 {
        let kind = kinds[rng.below(kinds.len())];
        let plan = Plan::random(&mut rng, kind, ranks);
        let plan = Plan { count: [1, 1023, 1024, 1025, 3000, 40_000][rng.below(6)], varies: false, ..plan };
        let prepared: Vec<Prepared> = (0..4).map(|_| plan.prepare(me)).collect();
        let (comm, laggard) = (&comms[rng.below(2)], rng.below(ranks));
        let lag = rng.below(4);
        for one in &prepared {
            (0..if laggard == me { lag } else { 0 }).for_each(|_| std::thread::yield_now());
            comm.collective(&one.call).expect("valid");
        }
        prepared.iter().for_each(Prepared::check);
    }
}

/// Sizes below and above what a member can show.
const SIZES: [usize; 6] = [8, 8 << 10, (8 << 10) + 8, 16 << 10, 200_000, 1 << 20];

/// Goal: members with different sizes get errors and do not wait for each other, for any combination of protocols; later calls
/// work. Method: one member passes fewer or more bytes than the others. The root of a broadcast that has already sent its data need
/// not detect the mismatch.
fn sizes_that_differ_are_errors(process: &Process, pairs: &[(usize, usize)]) {
    let world = process.world();
    let (me, ranks) = (world.rank(), world.size() as usize);
    let odd = ranks as i32 - 1;
    let most = pairs.iter().map(|(usual, other)| *usual.max(other)).max().unwrap_or(0);
    let (mut input, mut output) = (vec![1; ranks * most], vec![2; ranks * most]);
    for (usual, other) in pairs {
        let bytes = *if me == odd { other } else { usual };
        let numbers = |bytes: &mut [u8]| typed(bytes, bytes.len() as i64 / 8, &Basic::Uint64.into());
        let op = || Operator::Sum.into();
        for kind in
            [CollKind::Bcast, CollKind::Allgather, CollKind::Alltoall, CollKind::Reduce, CollKind::Allreduce]
        {
            let (all, text) = (bytes * ranks, format!("{kind:?}: {usual} bytes, but {other} at rank {odd}"));
            let call = match kind {
                CollKind::Bcast => Collective::Bcast { buffer: numbers(&mut output[..bytes]), root: 0 },
                CollKind::Allgather => Collective::Allgather {
                    input: Some(numbers(&mut input[..bytes])),
                    output: numbers(&mut output[..all]),
                },
                CollKind::Alltoall => Collective::Alltoall {
                    input: Some(numbers(&mut input[..all])),
                    output: numbers(&mut output[..all]),
                },
                CollKind::Reduce => Collective::Reduce {
                    input: Some(numbers(&mut input[..bytes])),
                    output: numbers(&mut output[..bytes]),
                    op: op(),
                    root: 0,
                },
                _ => Collective::Allreduce {
                    input: Some(numbers(&mut input[..bytes])),
                    output: numbers(&mut output[..bytes]),
                    op: op(),
                },
            };
            let error = world.collective(&call).err().map(|error| error.class);
            let must = match kind {
                CollKind::Bcast => me == odd,
                CollKind::Reduce => me == 0,
                _ => true,
            };
            assert!(error.is_some() || !must, "{text}");
            assert!(
                error.is_none_or(|class| [Class::TRUNCATE, Class::NOT_SAME].contains(&class)),
                "{text}: {error:?}"
            );
        }
        world.collective(&Collective::Barrier).expect("all is well");
    }
}

/// Goal: members that make different calls, or use different roots, get errors that name the others' calls. Method: the last rank
/// calls a barrier, or passes another root, where the others wait for its data.
fn calls_that_differ_are_errors(process: &Process) {
    let world = process.world();
    let odd = world.rank() == world.size() - 1;
    let (mut mine, mut all) = ([1; 8], vec![0; 8 * world.size() as usize]);
    let gather = |mine: &mut [u8], all: &mut [u8]| Collective::Allgather {
        input: Some(support::buffer(mine)),
        output: support::buffer(all),
    };
    let call = if odd { Collective::Barrier } else { gather(&mut mine, &mut all) };
    let error = world.collective(&call).expect_err("they differ");
    assert!([Class::TRUNCATE, Class::NOT_SAME].contains(&error.class), "{error}");
    if world.size() == 2 {
        // Each rank would be its own root.
        return;
    }
    // An eager message could satisfy the rank with the wrong root, so the limit is lowered below the default of small jobs.
    process.set_eager_max(8 << 10).expect("a limit");
    let mut long = vec![world.rank() as u8; 100_000];
    let root = if odd { 1 } else { 0 };
    let mut request = world.icollective(&Collective::Bcast { buffer: support::buffer(&mut long), root });
    let status = request.as_mut().expect("valid").wait();
    assert!(status.error.is_some() || !odd, "{status:?}");
    // Without shared memory, the last rank waits for a message that nobody sends.
    let text = status.error.map_or(String::new(), |error| error.text.clone());
    let names =
        text.contains("bcast of 100000 bytes") || text.contains("has given up") || text.contains("belong");
    assert!(!odd || names, "{text}");
    world.collective(&Collective::Barrier).expect("all is well");
}

macro_rules! bodies {
    ($($name:ident $ranks:literal)*) => {
        mod model {
            $(#[test] fn $name() { super::Play::new($ranks).run(super::$name); })*
        }
        mod shm {
            $(#[test] fn $name() { super::in_threads("shm", $ranks, mpi::Connect::OnDemand, super::$name); })*
        }
    };
}

#[test]
fn long_collectives_of_two_in_sequence() {
    in_threads("shm", 2, Connect::OnDemand, long_collectives_in_sequence);
}

/// With shared memory, which members use after some calls.
#[test]
fn size_mismatches_do_not_deadlock() {
    fn all(process: &Process) {
        (0..20).for_each(|_| process.world().collective(&Collective::Barrier).expect("all call it"));
        let pairs = SIZES.into_iter().flat_map(|a| SIZES.map(|b| (a, b))).filter(|(a, b)| a != b);
        sizes_that_differ_are_errors(process, &pairs.collect::<Vec<_>>());
    }
    (2..=4).for_each(|ranks| in_threads("shm", ranks, Connect::OnDemand, all));
}

/// With messages: some members would wait for a message that nobody sends.
#[test]
fn members_that_disagree_ask_each_other() {
    fn all(process: &Process) {
        sizes_that_differ_are_errors(process, &[(8, 200_000), (200_000, 8)]);
        calls_that_differ_are_errors(process);
    }
    for (device, ranks) in [("shm", 18), ("iwarp", 2), ("iwarp", 3), ("iwarp", 5)] {
        in_threads(device, ranks, Connect::OnDemand, all);
    }
}

bodies! {
    intercommunicator_collectives 5
    among_neighbours 5
    wrong_calls_are_named 2
    short_collectives_in_sequence 5
    long_collectives_in_sequence 5
    nonblocking_collectives_have_their_own_order 3
}
