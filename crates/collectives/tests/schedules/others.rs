//! Tests intercommunicators of groups of any sizes, neighbours in grids and lists, and the choice.

use crate::run::{EXTENTS, GAP, Matrix, Rank, SIZE, World, matrix, multiply, to_bytes};
use collectives::{
    Algorithm, AlgorithmError, Blocks, Case, CollKind, Costs, ElementType, Neighbours, Root, Span,
    SpanBuffer, Task, choose, explain, plan_inter, plan_neighbours, size_ranges, table,
};

fn span(buffer: SpanBuffer, at: i64, count: i64) -> Span {
    let (datatype, extent) = match buffer {
        SpanBuffer::Input => (ElementType::Send(0), EXTENTS[0]),
        _ => (ElementType::Receive(0), EXTENTS[1]),
    };
    Span::new(buffer, datatype, at * extent, count, extent, SIZE as u64)
}

/// A rank's number, unique across both groups.
fn global(group: usize, rank: usize) -> usize {
    100 * group + rank
}

/// Elements in memory, at the start of the buffer.
fn elements_in_memory(values: &[Matrix], extent: i64) -> Vec<u8> {
    values.iter().flat_map(|&value| [to_bytes(value), vec![GAP; extent as usize - SIZE]].concat()).collect()
}

const COUNT: usize = 3;

/// A call between groups of two sizes; for reduce-scatter the vector has elements for both.
struct Inter {
    kind: CollKind,
    sizes: [usize; 2],
    /// The root's rank, in group 0.
    root: usize,
}

impl Inter {
    fn task(&self, group: usize, rank: usize) -> Task {
        let (size, remote_size) = (self.sizes[group], self.sizes[1 - group]);
        let root = match group {
            0 if rank == self.root => Root::Me,
            0 => Root::Other,
            _ => Root::Rank(self.root),
        };
        let one = |buffer| Blocks::single(span(buffer, 0, COUNT as i64));
        let many = |buffer| Blocks::Equal { first: span(buffer, 0, COUNT as i64), count: remote_size };
        let (input, output) = match self.kind {
            CollKind::Gather | CollKind::Allgather => (one(SpanBuffer::Input), many(SpanBuffer::Output)),
            CollKind::Scatter => (many(SpanBuffer::Input), one(SpanBuffer::Output)),
            CollKind::Alltoall => (many(SpanBuffer::Input), many(SpanBuffer::Output)),
            CollKind::ReduceScatter => {
                let each = (COUNT * remote_size) as i64;
                let input = Blocks::Equal { first: span(SpanBuffer::Input, 0, each), count: size };
                (input, Blocks::single(span(SpanBuffer::Output, 0, each)))
            }
            _ => (one(SpanBuffer::Input), one(SpanBuffer::Output)),
        };
        Task {
            rank,
            size,
            remote_size,
            root,
            input,
            output,
            commutative: false,
            segment: 64,
            hosts: [].into(),
        }
    }

    fn fold(&self, group: usize, element: usize) -> Matrix {
        (0..self.sizes[group])
            .map(|rank| matrix(global(group, rank), element))
            .reduce(multiply)
            .expect("a rank")
    }

    /// The expected elements in a rank's output; `None` if the output is unchanged.
    fn expected(&self, group: usize, rank: usize) -> Option<Vec<Matrix>> {
        let (other, is_root) = (1 - group, group == 0 && rank == self.root);
        let blocks = |from: &dyn Fn(usize) -> usize| {
            let all = (0..self.sizes[other]).flat_map(|peer| (0..COUNT).map(move |element| (peer, element)));
            all.map(|(peer, element)| matrix(global(other, peer), from(element))).collect()
        };
        match self.kind {
            CollKind::Bcast if group == 1 => {
                Some((0..COUNT).map(|e| matrix(global(0, self.root), e)).collect())
            }
            CollKind::Gather if is_root => Some(blocks(&|element| element)),
            CollKind::Allgather => Some(blocks(&|element| element)),
            CollKind::Scatter if group == 1 => {
                Some((0..COUNT).map(|e| matrix(global(0, self.root), rank * COUNT + e)).collect())
            }
            CollKind::Alltoall => Some(blocks(&|element| rank * COUNT + element)),
            CollKind::Reduce if is_root => {
                Some((0..COUNT).map(|element| self.fold(other, element)).collect())
            }
            CollKind::Allreduce => Some((0..COUNT).map(|element| self.fold(other, element)).collect()),
            CollKind::ReduceScatter => {
                let each = COUNT * self.sizes[other];
                Some((0..each).map(|element| self.fold(other, rank * each + element)).collect())
            }
            _ => None,
        }
    }

    fn check(&self, seed: u64) {
        let rank = |group: usize, rank: usize| {
            let task = self.task(group, rank);
            let elements = |blocks: &Blocks| blocks.range(0, blocks.count())[0].count as usize;
            let values: Vec<Matrix> =
                (0..elements(&task.input)).map(|e| matrix(global(group, rank), e)).collect();
            let output: Vec<Matrix> = match self.kind {
                CollKind::Bcast => values.clone(),
                _ => vec![[9; 4]; elements(&task.output)],
            };
            let schedule = plan_inter(self.kind, &task).expect("intercommunicators have it");
            Rank::new(
                schedule,
                elements_in_memory(&values, EXTENTS[0]),
                elements_in_memory(&output, EXTENTS[1]),
            )
        };
        let groups: Vec<Vec<Rank>> =
            (0..2).map(|g| (0..self.sizes[g]).map(|r| rank(g, r)).collect()).collect();
        let before: Vec<Vec<Vec<u8>>> =
            groups.iter().map(|g| g.iter().map(|r| r.output.clone()).collect()).collect();
        let mut world = World::new(groups, seed);
        world.run();
        for (group, ranks) in before.into_iter().enumerate() {
            for (rank, unchanged) in ranks.into_iter().enumerate() {
                let expected =
                    self.expected(group, rank).map(|values| elements_in_memory(&values, EXTENTS[1]));
                let expected = expected.unwrap_or(unchanged);
                let text = format!("{:?} {:?}, root {}: {rank} of {group}", self.kind, self.sizes, self.root);
                assert!(world.groups[group][rank].output == expected, "{text}");
            }
        }
    }
}

#[test]
fn intercommunicators() {
    let kinds = [
        CollKind::Barrier,
        CollKind::Bcast,
        CollKind::Gather,
        CollKind::Scatter,
        CollKind::Allgather,
        CollKind::Alltoall,
        CollKind::Reduce,
        CollKind::Allreduce,
        CollKind::ReduceScatter,
    ];
    for kind in kinds {
        for (a, b) in (1..7).flat_map(|a| (1..7).map(move |b| (a, b))) {
            for root in 0..a {
                Inter { kind, sizes: [a, b], root }.check((a * b + root) as u64);
            }
        }
    }
    for kind in [CollKind::Scan, CollKind::Exscan] {
        assert!(plan_inter(kind, &Inter { kind, sizes: [1, 1], root: 0 }.task(0, 0)).is_none());
    }
}

/// Runs an alltoall among neighbours: block `i` of rank `r` is `matrix(r, i)`. Returns the first element of each output block.
fn exchange(all: &[Neighbours]) -> Vec<Vec<Option<Matrix>>> {
    let ranks = all.iter().enumerate().map(|(rank, neighbours)| {
        let (goes, comes) = (neighbours.destinations.len(), neighbours.sources.len());
        let blocks = |buffer, count| Blocks::Equal { first: span(buffer, 0, 1), count };
        let schedule =
            plan_neighbours(neighbours, &blocks(SpanBuffer::Input, goes), &blocks(SpanBuffer::Output, comes));
        let values: Vec<Matrix> = (0..goes).map(|block| matrix(rank, block)).collect();
        Rank::new(
            schedule,
            elements_in_memory(&values, EXTENTS[0]),
            elements_in_memory(&vec![[0; 4]; comes], EXTENTS[1]),
        )
    });
    let mut world = World::new(vec![ranks.collect()], 3);
    world.run();
    let read = |bytes: &[u8]| {
        let number =
            |at: usize| u64::from_ne_bytes(bytes[8 * at..8 * at + 8].try_into().expect("eight bytes"));
        let value = [number(0), number(1), number(2), number(3)];
        (value != [0; 4]).then_some(value)
    };
    world.groups[0].iter().map(|rank| rank.output.chunks(EXTENTS[1] as usize).map(read).collect()).collect()
}

#[test]
fn grids() {
    for (rows, columns, periodic) in
        [(1, 1, true), (2, 1, true), (2, 2, true), (3, 2, true), (3, 4, true), (3, 2, false), (1, 3, false)]
    {
        let place = |row: i64, column: i64| {
            let (r, c) = (row.rem_euclid(rows), column.rem_euclid(columns));
            (periodic || (r, c) == (row, column)).then_some((r * columns + c) as usize)
        };
        let around = |rank: i64| {
            let (row, column) = (rank / columns, rank % columns);
            vec![
                place(row - 1, column),
                place(row + 1, column),
                place(row, column - 1),
                place(row, column + 1),
            ]
        };
        let all: Vec<Neighbours> = (0..rows * columns)
            .map(|rank| Neighbours { sources: around(rank), destinations: around(rank), is_grid: true })
            .collect();
        for (rank, found) in exchange(&all).into_iter().enumerate() {
            // The neighbour below sends its upper block, and the other way around.
            let expected =
                all[rank].sources.iter().enumerate().map(|(at, peer)| peer.map(|peer| matrix(peer, at ^ 1)));
            assert_eq!(
                found,
                expected.collect::<Vec<_>>(),
                "rank {rank} of {rows}x{columns}, periodic: {periodic}"
            );
        }
    }
}

#[test]
fn lists_of_neighbours() {
    // 0 sends to 1 twice and to 2; 2 sends to itself and to 0.
    let list = |sources: &[usize], destinations: &[usize]| Neighbours {
        sources: sources.iter().map(|&rank| Some(rank)).collect(),
        destinations: destinations.iter().map(|&rank| Some(rank)).collect(),
        is_grid: false,
    };
    let all = [list(&[2], &[1, 1, 2]), list(&[0, 0], &[]), list(&[2, 0], &[2, 0])];
    let found = exchange(&all);
    assert_eq!(found[0], [Some(matrix(2, 1))]);
    assert_eq!(found[1], [Some(matrix(0, 0)), Some(matrix(0, 1))]);
    assert_eq!(found[2], [Some(matrix(2, 0)), Some(matrix(0, 2))]);
}

const COSTS: Costs = Costs { alpha: 1e-6, gap: 1e-6, beta: 1e-10, gamma: 1e-10, shared_cores: None };

fn case(kind: CollKind, size: usize, bytes: u64) -> Case {
    Case { kind, size, bytes, commutative: true, equal_blocks: true, segment: 1, shared: 0, hosts: 1 }
}

#[test]
fn short_messages_use_few_rounds_and_long_ones_few_bytes() {
    let name = |case| choose(case, COSTS).algorithm.name;
    assert_eq!(name(case(CollKind::Allreduce, 16, 8)), "recursive-doubling");
    assert_eq!(name(case(CollKind::Allreduce, 16, 1 << 24)), "rabenseifner");
    assert_eq!(name(case(CollKind::Allreduce, 17, 1 << 28)), "ring");
    assert_eq!(name(case(CollKind::Bcast, 16, 8)), "binomial");
    assert_eq!(name(case(CollKind::Bcast, 16, 1 << 24)), "chain");
    assert_eq!(name(case(CollKind::Alltoall, 16, 8)), "bruck");
    assert_eq!(name(case(CollKind::Alltoall, 16, 1 << 20)), "pairwise");
    assert_eq!(
        name(Case { commutative: false, ..case(CollKind::Allreduce, 16, 1 << 24) }),
        "recursive-doubling"
    );
    assert_eq!(name(Case { equal_blocks: false, ..case(CollKind::Gather, 16, 8) }), "linear");
}

#[test]
fn shared_memory_needs_no_messages() {
    let shared = |kind, size, bytes| Case { shared: 4096, ..case(kind, size, bytes) };
    let name = |case| choose(case, COSTS).algorithm.name;
    for kind in [
        CollKind::Barrier,
        CollKind::Bcast,
        CollKind::Allgather,
        CollKind::Alltoall,
        CollKind::Reduce,
        CollKind::Allreduce,
    ] {
        let choice = choose(shared(kind, 4, 8), COSTS);
        assert_eq!(
            (choice.algorithm.name, choice.algorithm.cost(&case(kind, 4, 8)).messages),
            ("shared", 0.0)
        );
        assert_ne!(name(case(kind, 4, 8)), "shared", "{kind:?} without shared memory");
        assert_ne!(name(shared(kind, 1, 8)), "shared", "{kind:?} of one rank");
    }
    // An algorithm that costs less for some sizes is not chosen for these: ranks could have sizes on either side.
    let slow = Costs { beta: 1e-8, gamma: 1e-8, ..COSTS };
    let many = shared(CollKind::Allreduce, 16, 4096);
    let (taken, least) = (choose(many, slow), choose(Case { shared: 0, ..many }, slow));
    assert!(taken.algorithm.name == "shared" && least.seconds < taken.seconds, "{taken:?}, {least:?}");
    // Longer data are shown in chunks: as many bytes are copied, and more lines are exchanged.
    for (kind, bytes) in [(CollKind::Bcast, 4096), (CollKind::Alltoall, 1024)] {
        let cost = |bytes| {
            Algorithm::by_name("shared", &shared(kind, 4, bytes)).map(|it| it.cost(&shared(kind, 4, bytes)))
        };
        let (short, long) = (cost(bytes).expect("possible"), cost(bytes + 1).expect("possible"));
        let is_as_much = long.bytes > short.bytes && long.bytes < short.bytes * 1.01;
        assert!(is_as_much && long.further > short.further, "{kind:?}: {short} and {long}");
    }
    assert_ne!(
        name(Case { equal_blocks: false, ..shared(CollKind::Allgather, 4, 8) }),
        "shared",
        "blocks differ"
    );
    let refused = Algorithm::by_name("shared", &case(CollKind::Bcast, 4, 8)).expect_err("no memory");
    assert!(refused.to_string().contains("share no memory"), "{refused}");
}

#[test]
fn a_pipeline_has_segments_that_cost_least() {
    let bcast = case(CollKind::Bcast, 8, 1 << 24);
    let choice = choose(bcast, COSTS);
    assert!(choice.segment > 1 << 10 && choice.segment < 1 << 24);
    for other in [choice.segment / 2, choice.segment * 2] {
        assert!(
            choice.algorithm.cost(&Case { segment: other, ..bcast }).seconds(&bcast, COSTS) > choice.seconds
        );
    }
    assert_eq!(
        choose(case(CollKind::Bcast, 2, 1 << 20), COSTS).segment,
        1 << 20,
        "two ranks wait for nobody"
    );
    assert_eq!(choose(case(CollKind::Bcast, 2, 0), COSTS).segment, 1);
}

#[test]
fn algorithms_are_found_by_name_and_refusals_give_reasons() {
    let allreduce = Case { commutative: false, ..case(CollKind::Allreduce, 6, 100) };
    assert_eq!(
        Algorithm::by_name("ring", &case(CollKind::Allreduce, 6, 100)).map(|found| found.name),
        Ok("ring")
    );
    let refused = Algorithm::by_name("ring", &allreduce).expect_err("not commutative");
    let why = "the operator is not commutative";
    assert_eq!(refused, AlgorithmError::Unsupported { kind: CollKind::Allreduce, name: "ring", why });
    let unknown = Algorithm::by_name("magic", &allreduce).expect_err("there is none");
    assert!(unknown.to_string().contains("recursive-doubling, rabenseifner, ring"), "{unknown}");
    let text = explain(allreduce, COSTS);
    assert!(text.starts_with("* recursive-doubling"), "{text}");
    assert!(
        text.contains("  ring") && text.contains("not possible: the operator is not commutative"),
        "{text}"
    );
    assert!(text.contains("4+0 messages, 400 B sent, 300 B reduced"), "{text}");
}

#[test]
fn names_are_unique_and_each_call_has_an_algorithm() {
    for kind in CollKind::ALL {
        let names: Vec<_> = Algorithm::all_for(kind).map(|algorithm| algorithm.name).collect();
        assert!((1..names.len()).all(|at| !names[..at].contains(&names[at])), "{kind:?}: {names:?}");
        for size in 1..20 {
            choose(Case { commutative: false, equal_blocks: false, ..case(kind, size, 5) }, COSTS);
        }
    }
}

#[test]
fn the_table_shows_size_ranges_and_reasons() {
    let allreduce = case(CollKind::Allreduce, 16, 0);
    let size_ranges = size_ranges(allreduce, COSTS, 1 << 24);
    assert_eq!(size_ranges[0].algorithm.name, "recursive-doubling");
    assert_eq!(size_ranges.last().map(|last| last.algorithm.name), Some("rabenseifner"));
    for pair in size_ranges.windows(2) {
        let at = |bytes| choose(Case { bytes, ..allreduce }, COSTS).algorithm.name;
        assert_eq!(at(pair[1].from - 1), pair[0].algorithm.name, "the byte before");
        assert_eq!(at(pair[1].from), pair[1].algorithm.name);
    }
    assert!(
        size_ranges[0].reason.starts_with("saves 4 sequential messages against rabenseifner (8.0"),
        "{size_ranges:?}"
    );
    let text = table(16, COSTS, 1 << 24);
    for line in ["allreduce ", "  not commutative", "  sizes differ", "barrier ", "the only one possible"] {
        assert!(text.contains(line), "no `{line}` in {text}");
    }
}

#[test]
fn flat_trees_are_chosen_where_further_messages_are_cheap() {
    let shared = Costs { alpha: 150e-9, gap: 40e-9, beta: 1.0 / 20e9, gamma: 1.0 / 10e9, shared_cores: None };
    let name = |case| choose(case, shared).algorithm.name;
    assert_eq!(name(case(CollKind::Barrier, 4, 0)), "direct");
    assert_eq!(name(case(CollKind::Bcast, 4, 8)), "flat");
    assert_eq!(name(case(CollKind::Reduce, 4, 8)), "flat");
    assert_eq!(name(case(CollKind::Allreduce, 4, 8)), "direct");
    assert_eq!(name(case(CollKind::Allgather, 4, 8)), "direct");
    assert_eq!(name(case(CollKind::Alltoall, 4, 8)), "direct");
    assert_eq!(name(case(CollKind::Barrier, 64, 0)), "recursive-doubling");
    assert_eq!(name(case(CollKind::Bcast, 64, 8)), "binomial");
}

#[test]
fn the_guide_shows_the_real_code_and_costs() {
    let guide = include_str!("../../../../docs/internals/adding-a-collective.md");
    let code = include_str!("../../src/bcast/flat.rs");
    assert!(guide.contains(&format!("```rust\n{code}```")), "the guide shows another src/bcast/flat.rs");
    let costs = Costs { alpha: 1e-6, gap: 1e-7, beta: 1e-9, gamma: 0.0, shared_cores: None };
    let text = explain(case(CollKind::Bcast, 4, 256), costs);
    assert!(guide.contains(&text), "the guide explains another choice than this:\n{text}");
}
