//! Random programs on one interface, compared with the slow model, and programs that a fuzzer has found.

mod program;

use host::Rng;
use program::{Dice, Pair, Seen};

/// Number of programs, and steps of each.
const PROGRAMS: u64 = if cfg!(miri) { 3 } else { 600 };
const STEPS: usize = 400;

/// Event kinds and results that must occur.
const OUTCOMES: &[&str] = &[
    "(Get, Ok)",
    "(GetOverflow, Ok)",
    "(Put, Ok)",
    "(Put, Undeliverable)",
    "(PutOverflow, Ok)",
    "(PutOverflow, Undeliverable)",
    "(Atomic, Ok)",
    "(AtomicOverflow, Ok)",
    "(FetchAtomic, Ok)",
    "(FetchAtomicOverflow, Ok)",
    "(Reply, Ok)",
    "(Reply, Dropped)",
    "(Send, Ok)",
    "(Send, Undeliverable)",
    "(Ack, Ok)",
    "(Ack, PtDisabled)",
    "(Ack, OpViolation)",
    "(Ack, Undeliverable)",
    "(PtDisabled, PtDisabled)",
    "(Link, Ok)",
    "(AutoUnlink, Ok)",
    "(AutoFree, Ok)",
    "(Search, Ok)",
    "(Search, NoMatch)",
    "(\"lost\", true)",
    "(\"refused\", Some(Dropped))",
    "(\"refused\", Some(PtDisabled))",
    "(\"refused\", Some(PermViolation))",
    "(\"unlink\", Ok(()))",
    "(\"unlink\", Err(InUse))",
    "(\"unlink\", Err(ArgInvalid))",
    "(\"release\", Ok(()))",
    "(\"release\", Err(InUse))",
    "(\"trigger\", Ok(()))",
    "(\"trigger\", Err(NoSpace))",
    "Ok(())",
    "Err(ListTooLong)",
    "Err(NoSpace)",
    "Err(ArgInvalid)",
];

/// Goal: the engine follows the standard in any order of calls. Method: compare with the model, and check
/// that every possible outcome has occurred often.
#[test]
fn programs_match_the_model() {
    let mut seen = Seen::new();
    for seed in 0..PROGRAMS {
        let mut pair = Pair::new(Dice::Seed(Rng::new(seed)));
        for step in 0..STEPS {
            let goes = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| pair.step()));
            assert!(goes.is_ok(), "program {seed}, step {step}");
        }
        for (what, count) in pair.seen {
            *seen.entry(what).or_default() += count;
        }
    }
    let often = if cfg!(miri) { 0 } else { 20 };
    let rare: Vec<&str> =
        OUTCOMES.iter().copied().filter(|what| seen.get(*what).copied().unwrap_or(0) < often).collect();
    assert!(rare.is_empty(), "{rare:?} is not or hardly in {seen:#?}");
}

/// Goal: programs found by the fuzzer keep passing.
#[test]
fn programs_of_the_corpus_go_as_in_the_model() {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/portals_engine");
    let files = std::fs::read_dir(corpus).expect("a corpus");
    let programs: Vec<Vec<u8>> =
        files.map(|file| std::fs::read(file.expect("a file").path()).expect("bytes")).collect();
    assert!(!programs.is_empty());
    programs.iter().for_each(|bytes| program::carry_out(bytes));
}
