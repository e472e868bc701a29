//! Random programs of puts, gets and accumulates on windows of all kinds, by seed, against a model in memory: in worlds, under
//! loss, delay and stalls, each twice with equal traces, and in threads.
//!
//! A program consists of rounds. In each, a word of a member is put by one rank, reduced into by all, read by one, or unchanged,
//! depending on the seed; so all ranks know the contents after each round. The kind of epoch also depends on the seed.

mod support;

use datatypes::{Basic, Datatype, Operator};
use mpi::{Assert, Buffer, Collective, Connect, Info, LockKind, Process, TargetRange, Window};
use support::{Play, TestRng, each_seed, in_threads, typed};
use verbs::host::world::Ended;

/// Seeds per network condition, unless `NICETY_SEEDS` sets another number.
const SEEDS: u64 = 8;
/// Words of each member, and rounds of a program.
const WORDS: usize = 24;
const ROUNDS: u64 = 6;

const WEATHERS: &[&str] = &[
    "model:mt23108-vapi",
    "model:mt23108-vapi(faults.loss_ppm=5000)",
    "model:mt23108-nicmem(faults.delay_ns=20000)",
    "model:connectx-single(faults.stall_ppm=20000,faults.stall_ns=50000)",
    // Without atomics.
    "model:quadrics-elan3",
];

/// The action on a word in a round.
#[derive(Clone, Copy, Debug)]
enum Action {
    Nothing,
    /// By one rank.
    Put(usize),
    Get(usize),
    /// By all ranks.
    Reduce(Operator),
}

/// The actions of a round, by member and word.
fn plan(rng: &mut TestRng, ranks: usize) -> Vec<Vec<Action>> {
    let operators = [Operator::Sum, Operator::Max, Operator::Bxor];
    let mut last = Action::Nothing;
    let mut one = |_| {
        // Often the same as for the previous word, so that there are runs.
        if rng.below(3) > 0 {
            return last;
        }
        last = match rng.below(4) {
            0 => Action::Nothing,
            1 => Action::Put(rng.below(ranks)),
            2 => Action::Get(rng.below(ranks)),
            _ => Action::Reduce(operators[rng.below(3)]),
        };
        last
    };
    (0..ranks).map(|_| (0..WORDS).map(&mut one).collect()).collect()
}

/// The value that a rank puts, or reduces by, in a round.
fn value(round: u64, by: usize, to: usize, word: usize) -> u64 {
    (round * 31 + by as u64 * 7 + to as u64 * 3 + word as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}

fn reduced(operator: Operator, there: u64, with: u64) -> u64 {
    match operator {
        Operator::Sum => there.wrapping_add(with),
        Operator::Max => there.max(with),
        _ => there ^ with,
    }
}

/// The members' words after a round.
fn after(round: u64, plan: &[Vec<Action>], before: &[Vec<u64>]) -> Vec<Vec<u64>> {
    let ranks = plan.len();
    let word = |to: usize, word: usize| {
        let there = before[to][word];
        match plan[to][word] {
            Action::Nothing | Action::Get(_) => there,
            Action::Put(by) => value(round, by, to, word),
            Action::Reduce(operator) => {
                (0..ranks).fold(there, |there, by| reduced(operator, there, value(round, by, to, word)))
            }
        }
    };
    (0..ranks).map(|to| (0..WORDS).map(|at| word(to, at)).collect()).collect()
}

fn words_of(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_ne_bytes)).collect()
}

/// A window of some kind onto this rank's words, and the displacement of the first word of each rank.
fn window(process: &Process, kind: usize, memory: &mut [u8], may_share: bool) -> (Window, Vec<i64>) {
    let (world, len) = (process.world(), memory.len() as i64);
    let (address, info) = (memory.as_mut_ptr().expose_provenance(), Info::default());
    let window = match kind {
        // SAFETY: the caller keeps the memory until it has freed the window.
        0 => unsafe { Window::create(world, address, len, 8, info) },
        1 => Window::allocate(world, len, 8, info),
        2 if may_share => Window::allocate_shared(world, len, 8, info),
        _ => Window::create_dynamic(world, info),
    }
    .expect("a window");
    if kind < 2 || (kind == 2 && may_share) {
        return (window, vec![0; world.size() as usize]);
    }
    // SAFETY: as above.
    unsafe { window.attach(address, len) }.expect("new");
    let mut all = vec![0; world.size() as usize * 8];
    let mut mine = (address as u64).to_ne_bytes();
    let (input, output) = (support::buffer(&mut mine), support::buffer(&mut all));
    world.collective(&Collective::Allgather { input: Some(input), output }).expect("all");
    (window, words_of(&all).into_iter().map(|address| address as i64).collect())
}

/// One rank's operations of a round, in random order, and the values it has read.
struct Turn<'a> {
    window: &'a Window,
    places: &'a [i64],
    me: usize,
    /// Bytes of a displacement unit.
    unit: i64,
    rng: TestRng,
    round: u64,
}

impl Turn<'_> {
    fn at(&self, to: usize, word: usize, count: usize) -> TargetRange {
        let displacement = self.places[to] + word as i64 * 8 / self.unit;
        TargetRange { rank: to as i32, displacement, count: count as i64, datatype: Basic::Uint64.into() }
    }

    /// Executes this rank's actions on one member. `own` keeps the data of puts and gets until the epoch's end.
    fn play(&mut self, to: usize, actions: &[Action], own: &mut Vec<(usize, usize, Vec<u8>, bool)>) {
        let mut word = 0;
        while word < WORDS {
            let is_same =
                |other: &&Action| std::mem::discriminant(*other) == std::mem::discriminant(&actions[word]);
            let is_mine = |action: &Action| match action {
                Action::Nothing => false,
                Action::Put(by) | Action::Get(by) => *by == self.me,
                Action::Reduce(_) => true,
            };
            let most = 1 + self.rng.below(6);
            let run =
                actions[word..].iter().take(most).take_while(is_same).take_while(|action| is_mine(action));
            let count = run.count();
            if count == 0 {
                word += 1;
                continue;
            }
            let values = (word..word + count).flat_map(|at| value(self.round, self.me, to, at).to_ne_bytes());
            let mut bytes: Vec<u8> = values.collect();
            let is_read = matches!(actions[word], Action::Get(_));
            if let Action::Reduce(_) = actions[word] {
                for at in word..word + count {
                    let Action::Reduce(operator) = actions[at] else { continue };
                    let origin = typed(&mut bytes[(at - word) * 8..][..8], 1, &Basic::Uint64.into());
                    let place = self.at(to, at, 1);
                    self.window.accumulate(&origin, &place, &operator.into()).expect("inside");
                }
            } else {
                self.move_words(to, word, count, &mut bytes, is_read);
            }
            own.push((to, word, bytes, is_read));
            word += count;
        }
    }

    /// Puts or gets words, in one of several ways.
    fn move_words(&mut self, to: usize, word: usize, count: usize, bytes: &mut [u8], is_read: bool) {
        let uint = Datatype::from(Basic::Uint64);
        let buffer = typed(bytes, count as i64, &uint);
        let mut place = self.at(to, word, count);
        match self.rng.below(3) {
            0 if is_read => {
                let read = Operator::NoOp.into();
                return self.window.get_accumulate(&Buffer::empty(), &buffer, &place, &read).expect("inside");
            }
            1 => {
                // The same words as blocks of a type.
                let blocks: Vec<i64> = (0..count as i64).collect();
                place.datatype = Datatype::indexed_block(1, &blocks, &uint).expect("a type");
                place.datatype.commit();
                place.count = 1;
            }
            _ => {}
        }
        if is_read { self.window.get(&buffer, &place) } else { self.window.put(&buffer, &place) }
            .expect("inside");
    }
}

fn play(process: &Process, seed: u64, may_share: bool) {
    let world = process.world();
    let (me, ranks) = (world.rank() as usize, world.size() as usize);
    let mut rng = TestRng::new(seed);
    let mut memory = vec![0; WORDS * 8];
    let (window, places) = window(process, rng.below(4), &mut memory, may_share);
    let mut expected = vec![vec![0; WORDS]; ranks];
    let unit = if places[0] == 0 { 8 } else { 1 };
    for round in 1..=ROUNDS {
        let (plan, epoch) = (plan(&mut rng, ranks), rng.below(4));
        let own_dice = TestRng::new(seed ^ round << 8 ^ (me as u64) << 40);
        let mut turn = Turn { window: &window, places: &places, me, unit, rng: own_dice, round };
        let mut own = Vec::new();
        window.fence(Assert::default()).expect("idle");
        if epoch == 1 {
            window.lock_all(Assert::default()).expect("idle");
        }
        let first = turn.rng.below(ranks);
        for to in (first..ranks).chain(0..first) {
            let kind = if epoch == 2 { LockKind::Exclusive } else { LockKind::Shared };
            if epoch >= 2 {
                window.lock(kind, to as i32, Assert::default()).expect("free at last");
            }
            turn.play(to, &plan[to], &mut own);
            if epoch >= 2 {
                window.unlock(to as i32).expect("locked");
            } else if epoch == 1 && turn.rng.below(2) == 0 {
                window.flush(to as i32).expect("locked");
            }
        }
        if epoch == 1 {
            window.unlock_all().expect("locked");
        }
        window.fence(Assert::default()).expect("idle");
        for (to, word, bytes, _) in own.iter().filter(|(.., is_read)| *is_read) {
            let read = words_of(bytes);
            assert_eq!(
                read,
                expected[*to][*word..][..read.len()],
                "seed {seed}, round {round}: words of {to}"
            );
        }
        expected = after(round, &plan, &expected);
        let base = if window.base() == 0 { memory.as_ptr().expose_provenance() } else { window.base() };
        let mut bytes = vec![0; WORDS * 8];
        // SAFETY: within this rank's part, which no process writes between the fences.
        unsafe {
            std::ptr::copy_nonoverlapping(
                std::ptr::with_exposed_provenance(base),
                bytes.as_mut_ptr(),
                bytes.len(),
            )
        };
        assert_eq!(words_of(&bytes), expected[me], "seed {seed}, behind round {round}");
    }
    window.free().expect("an end");
}

fn run(card: &'static str, seed: u64) -> Ended {
    let ranks = 2 + (seed % 3) as u32;
    Play { card, seed, ..Play::new(ranks) }.run(move |process| play(process, seed, false))
}

#[test]
fn random_windows_match_the_model() {
    for card in WEATHERS {
        each_seed(SEEDS, card, |seed| run(card, seed));
    }
}

/// With mapped parts, with parts that only the device can reach, and with too little mappable memory for all.
#[test]
fn random_windows_match_the_model_by_all_protocols() {
    fn all(process: &Process) {
        (1..=25).for_each(|seed| play(process, seed, true));
    }
    for (device, ranks) in [("shm", 2), ("shm", 4), ("shm(dm=12K)", 3), ("iwarp", 3)] {
        in_threads(device, ranks, Connect::OnDemand, all);
    }
}
