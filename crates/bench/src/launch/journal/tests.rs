//! Journals: what is kept across crashes and changes, and what is refused.

use super::*;
use crate::plan::Plan;

fn plan(sizes: &[u64]) -> CheckedPlan {
    let plan = Plan {
        experiments: vec!["post".into()],
        device: "model:mt23108-vapi".into(),
        sizes: Some(sizes.to_vec()),
        ..Plan::default()
    };
    plan.check().expect("sound")
}

fn sample(value: f64) -> Sample {
    let record = crate::experiment::driver::Record {
        rounds: vec![vec![value, 1.5e6]],
        messages: 1,
        ..Default::default()
    };
    Sample {
        clock: results::schema::ClockInfo::default(),
        sampling: crate::launch::world::plan(1).into(),
        record,
        switches: 0,
    }
}

/// A journal in which every cell of the plan was measured, but for the last.
fn begun(path: &Path, plan: &CheckedPlan) -> usize {
    let (mut journal, found) = Journal::open(path, "text", std::iter::once(plan)).expect("begun");
    assert_eq!(found, Found::default());
    let mut keeping = Keeping::new(&mut journal, plan);
    let count = plan.cells.len() - 1;
    (0..count).for_each(|index| keeping.measured(index, 0, &sample(index as f64)));
    keeping.cannot(count, "a reason");
    keeping.sync().expect("kept");
    count
}

#[test]
fn what_was_measured_is_there_again_and_nothing_else() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("j");
    let plan = plan(&[8, 64]);
    let count = begun(&path, &plan);
    let (mut journal, found) = Journal::open(&path, "text", std::iter::once(&plan)).expect("there");
    assert_eq!((found.kept, found.aside, found.changed, found.torn), (count, 0, false, 0));
    assert!(found.since.is_some());
    let mut keeping = Keeping::new(&mut journal, &plan);
    let kept = keeping.kept();
    assert_eq!(kept.len(), count);
    assert!(kept.iter().all(|(index, launch, s)| *launch == 0 && s.record == sample(*index as f64).record));
    assert!(keeping.is_done(0, 0) && !keeping.is_done(0, 1) && !keeping.is_done(count, 0));
    assert_eq!(keeping.never(), [(count, "a reason".to_owned())]);
}

/// Goal: a crash costs the line that was being written. Method: the file is cut at every place of its last two lines, and
/// each time written on and read again.
#[test]
fn a_line_that_was_cut_off_costs_itself() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("j");
    let plan = plan(&[8]);
    let count = begun(&path, &plan);
    let whole = std::fs::read(&path).expect("file");
    let ends: Vec<usize> = (0..whole.len()).filter(|i| whole[*i] == b'\n').collect();
    let from = ends[ends.len() - 3] + 1;
    for cut in (from..whole.len()).step_by(7).chain([0, 5, 40]) {
        std::fs::write(&path, &whole[..cut]).expect("file");
        let kept = whole[..cut].iter().filter(|b| **b == b'\n').count().saturating_sub(2).min(count);
        let torn = cut - whole[..cut].iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let (journal, found) = Journal::open(&path, "text", std::iter::once(&plan)).expect("there");
        assert_eq!((found.kept, found.torn, found.unreadable), (kept, torn as u64, 0), "cut at {cut}");
        drop(journal);
        let (_, again) = Journal::open(&path, "text", std::iter::once(&plan)).expect("mended");
        assert_eq!((again.kept, again.torn, again.unreadable), (kept, 0, 0), "cut at {cut}");
    }
    let mut spoiled = whole.clone();
    spoiled[from + 3] ^= 0x40;
    std::fs::write(&path, &spoiled).expect("file");
    let (_, found) = Journal::open(&path, "text", std::iter::once(&plan)).expect("there");
    assert_eq!((found.kept, found.unreadable), (count - 1, 1));
}

/// Goal: a rerun says of a part what the run before said. Method: three openings within a second; the second measures nothing.
#[test]
fn surroundings_are_those_of_each_opening_that_measured() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("j");
    let plan = plan(&[8, 64]);
    let at = |cores| Environment { date: "2026-11-22T20:42:38Z".into(), cores, ..Environment::default() };
    for (cores, measures) in [(1, Some(0)), (2, None), (3, Some(1))] {
        let (mut journal, _) = Journal::open(&path, "text", std::iter::once(&plan)).expect("opened");
        let mut keeping = Keeping::new(&mut journal, &plan);
        keeping.surroundings(&Environment { pinned_cores: vec![0], ..at(cores) });
        measures.into_iter().for_each(|index| keeping.measured(index, 0, &sample(1.0)));
        keeping.surroundings(&at(cores));
    }
    let (mut journal, _) = Journal::open(&path, "text", std::iter::once(&plan)).expect("opened");
    let mut keeping = Keeping::new(&mut journal, &plan);
    assert_eq!(keeping.before(), []);
    assert_eq!(keeping.kept().len(), 2);
    assert_eq!(keeping.before(), [at(1), at(3)]);
}

#[test]
fn a_changed_plan_keeps_what_still_belongs_to_it() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("j");
    let (old, new) = (plan(&[8, 64]), plan(&[64, 512]));
    begun(&path, &old);
    let same = old.cells.iter().filter(|c| new.cells.contains(c)).count();
    let (_, found) = Journal::open(&path, "other", std::iter::once(&new)).expect("there");
    assert!(found.changed && found.kept > 0 && found.kept <= same, "{found:?}");
    assert_eq!(found.kept + found.aside, old.cells.len() - 1);
    // What was set aside comes back with the plan.
    let (_, found) = Journal::open(&path, "text", std::iter::once(&old)).expect("there");
    assert_eq!((found.kept, found.aside), (old.cells.len() - 1, 0));
    // A setting on which values depend makes it another measurement.
    let set = std::collections::BTreeMap::from([("inline".to_owned(), "0".to_owned())]);
    let other = Plan {
        experiments: vec!["post".into()],
        device: "model:mt23108-vapi".into(),
        sizes: Some(vec![8, 64]),
        set,
        ..Plan::default()
    };
    let (_, found) =
        Journal::open(&path, "text", std::iter::once(&other.check().expect("sound"))).expect("there");
    assert_eq!(found.kept, 0);
}

#[test]
fn another_machine_another_program_and_another_file_are_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("j");
    let plan = plan(&[8]);
    begun(&path, &plan);
    let whole = std::fs::read_to_string(&path).expect("file");
    let refused = |text: &str| {
        std::fs::write(&path, text).expect("file");
        let why = Journal::open(&path, "text", std::iter::once(&plan)).expect_err("refused").to_string();
        assert_eq!(std::fs::read_to_string(&path).expect("file"), text, "it is as it was");
        assert!(why.contains("--fresh") && !why.contains('\n'), "{why}");
        why
    };
    let who = who();
    assert!(refused(&whole.replace(&who.program, "0123")).contains("the build of nicety 0123"));
    let why = refused(&whole.replace(&format!("\"cores\":{}", who.cores), "\"cores\":9999"));
    assert!(why.contains("usable cores 9999"), "{why}");
    // A build with other names of fields.
    let renamed = whole.replace(&who.program, "0123").replace("\"half_width_target\"", "\"target\"");
    assert!(renamed.contains("\"target\"") && refused(&renamed).contains("the build of nicety 0123"));
    assert!(refused("Dear diary,\n").contains("no head"));
    assert!(refused("Dear diary").contains("no head"));
    assert!(refused(&whole.replace(KIND, "nicety-journal/9")).contains("nicety-journal/9"));
    std::fs::remove_file(&path).expect("file");
    begun(&path, &plan);
    let (_open, _) = Journal::open(&path, "text", std::iter::once(&plan)).expect("there");
    let busy = Journal::open(&path, "text", std::iter::once(&plan)).expect_err("locked").to_string();
    assert!(busy.contains("is in use"), "{busy}");
}

/// Goal: a file that is no journal cannot fill the memory, and is left as it is. Method: a line of holes beyond the limit behind
/// what was measured, a device that never ends, and a file beyond the limit.
#[test]
fn journals_with_endless_lines_are_refused_and_left_alone() {
    let dir = tempfile::tempdir().expect("directory");
    let (path, plan) = (dir.path().join("j"), plan(&[8]));
    begun(&path, &plan);
    let whole = std::fs::metadata(&path).expect("file").len();
    let said = || match Journal::open(&path, "text", std::iter::once(&plan)) {
        Err(JournalError::Foreign { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    for (len, what) in [
        (whole + LINE_MAX + 1, "a line exceeds 64 MiB"),
        (FILE_MAX, "a line exceeds 64 MiB"),
        (FILE_MAX + 1, "it exceeds 4 GiB"),
    ] {
        File::options().write(true).open(&path).expect("file").set_len(len).expect("holes");
        assert_eq!(said(), what);
        assert_eq!(std::fs::metadata(&path).expect("file").len(), len, "it is as it was");
    }
    std::fs::remove_file(&path).expect("file");
    std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
    assert_eq!(said(), "a line exceeds 64 MiB");
}

/// A journal at the limit is read, and one with a line more is not.
#[test]
fn journal_is_read_up_to_limit_of_openings() {
    let dir = tempfile::tempdir().expect("directory");
    let (path, plan) = (dir.path().join("j"), plan(&[8]));
    begun(&path, &plan);
    // `begun` has written one such line.
    let more = "{\"line\":\"opened\",\"date\":\"\",\"text\":\"\"}\n";
    let mut file = File::options().append(true).open(&path).expect("file");
    file.write_all(more.repeat(OPENINGS_MAX - 1).as_bytes()).expect("written");
    Journal::open(&path, "text", std::iter::once(&plan)).expect("at the limit; it adds an opening");
    match Journal::open(&path, "text", std::iter::once(&plan)) {
        Err(JournalError::Foreign { what, .. }) => assert_eq!(what, "it has more than 262144 openings"),
        other => panic!("{other:?}"),
    }
}
