//! `nicety compare`, end to end: verdicts, exit statuses, and invalid files.

use std::path::Path;

use results::schema::{AaNoise, DeviceInfo};

use crate::common::{Ended, json, made_up_run, nicety, save};

fn compare(a: &Path, b: &Path, more: &[&str]) -> Ended {
    let files = [a, b].map(|path| path.as_os_str().to_owned());
    nicety(["compare".into()].into_iter().chain(files).chain(more.iter().map(Into::into)))
}

#[test]
fn equal_runs_exit_with_0() {
    let dir = tempfile::tempdir().expect("directory");
    let (a, b) = (made_up_run(1.0, 9000.0), made_up_run(1.001, 9001.0));
    let ended = compare(&save(dir.path(), "a.json", &a), &save(dir.path(), "b.json", &b), &[]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.out.contains("2 cells: 2 same"), "{}", ended.out);
    assert!(!ended.out.contains("Caution"), "{}", ended.out);
    assert_eq!(ended.err, "");
}

/// Goal: one worse cell determines the status, whether its metric is a time or a rate.
#[test]
fn regression_of_times_or_rates_exits_with_1() {
    let dir = tempfile::tempdir().expect("directory");
    let a = save(dir.path(), "a.json", &made_up_run(1.0, 9000.0));
    for (latency_us, bandwidth) in [(1.5, 9000.0), (1.0, 6000.0)] {
        let b = save(dir.path(), "b.json", &made_up_run(latency_us, bandwidth));
        let ended = compare(&a, &b, &[]);
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.out.contains("1 worse, 1 same"), "{}", ended.out);
        assert!(ended.out.contains("the machine itself differs: memcpy"), "{}", ended.out);
        assert_eq!(compare(&b, &a, &[]).status, Some(0), "the way back is an improvement");
        assert_eq!(compare(&a, &b, &["--threshold", "60%"]).status, Some(0), "within the threshold");
    }
}

/// One cell is measured twice to find the noise of a run; if that cell is noisy, regressions of other cells are still reported.
#[test]
fn noisy_reference_measurement_hides_no_regression() {
    let dir = tempfile::tempdir().expect("directory");
    let mut a = made_up_run(1.0, 9000.0);
    let aa_noise = Some(AaNoise { floor: 0.381, ratio: 1.1, launches: 6 });
    a.environment.aa_noise = aa_noise;
    a.environment.devices = vec![DeviceInfo { name: "shm".to_owned(), aa_noise, ..DeviceInfo::default() }];
    let (a, b) = (save(dir.path(), "a.json", &a), save(dir.path(), "b.json", &made_up_run(1.3, 9000.0)));
    let ended = compare(&a, &b, &[]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.out.contains("1 worse, 1 same"), "{}", ended.out);
    assert!(ended.out.contains("the old run is noisy"), "{}", ended.out);
}

#[test]
fn undecided_cells_are_reported_and_strict_exits_with_3() {
    let dir = tempfile::tempdir().expect("directory");
    let mut few = made_up_run(1.0, 9000.0);
    few.results.iter_mut().for_each(|result| result.launches.truncate(2));
    let a = save(dir.path(), "a.json", &few);
    let ended = compare(&a, &a, &[]);
    assert_eq!(ended.status, Some(0));
    assert!(ended.out.contains("NOTHING is decided: 2 of 2 cells"), "{}", ended.out);
    assert!(ended.out.contains("2 cells: 2 against 2 launches"), "{}", ended.out);
    assert_eq!(compare(&a, &a, &["--strict"]).status, Some(3));
}

/// Goal: a saved run is used by its name; invalid and unknown names are reported.
#[test]
fn baseline_is_saved_by_name_and_compared() {
    let dir = tempfile::tempdir().expect("directory");
    let (a, b) = (made_up_run(1.0, 9000.0), made_up_run(1.5, 9000.0));
    let (a, b) = (save(dir.path(), "a.json", &a), save(dir.path(), "b.json", &b));
    let compare = |more: &[&str], file: &Path| -> Ended {
        let mut command = crate::common::command();
        command.env("XDG_DATA_HOME", dir.path()).arg("compare").args(more).arg(file);
        command.output().expect("the command runs").into()
    };
    compare(&["--baseline", "main"], &b).is_error(2, "there are: none yet");
    let kept = compare(&["--save-baseline", "main"], &a);
    assert_eq!((kept.status, kept.out.as_str()), (Some(0), ""), "{kept:?}");
    assert!(dir.path().join("nicety/baselines/main.json").is_file(), "{kept:?}");
    let ended = compare(&["--baseline", "main"], &b);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.out.contains("1 worse, 1 same"), "{}", ended.out);
    compare(&["--baseline", "mian"], &b).is_error(2, "did you mean 'main'?");
    for name in ["", "../main", ".hidden", "a/b"] {
        compare(&["--save-baseline", name], &a).is_error(2, "is no name of a baseline");
    }
    compare(&[], &a).is_error(2, "nothing to compare it with");
    // The comparison uses the old baseline, which is replaced afterwards.
    assert_eq!(compare(&["--baseline", "main", "--save-baseline", "main"], &b).status, Some(1));
    assert_eq!(compare(&["--baseline", "main"], &b).status, Some(0));
}

#[test]
fn junit_has_a_test_case_per_cell() {
    let dir = tempfile::tempdir().expect("directory");
    let a = save(dir.path(), "a.json", &made_up_run(1.0, 9000.0));
    let b = save(dir.path(), "b.json", &made_up_run(1.5, 9000.0));
    let ended = compare(&a, &b, &["--junit", "-"]);
    assert_eq!(ended.status, Some(1), "{ended:?}");
    assert!(ended.out.starts_with("<?xml") && ended.err.contains("1 worse, 1 same"), "{ended:?}");
    assert!(ended.out.contains("tests=\"2\" failures=\"1\" skipped=\"0\""), "{}", ended.out);
}

#[test]
fn cells_in_one_run_only_are_listed() {
    let dir = tempfile::tempdir().expect("directory");
    let (mut a, mut b) = (made_up_run(1.0, 9000.0), made_up_run(1.0, 9000.0));
    let mut extra = a.results[0].clone();
    extra.size_bytes = 4096;
    a.results.push(extra.clone());
    extra.size_bytes = 1 << 20;
    b.results.push(extra);
    let (a, b) = (save(dir.path(), "a.json", &a), save(dir.path(), "b.json", &b));
    let ended = compare(&a, &b, &[]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert_eq!(compare(&a, &b, &["--strict"]).status, Some(3), "what has no counterpart was not compared");
    assert!(
        ended.out.contains("Only in the old run: 1 cell\n  latency one_way_latency on shm, op=write, 4 KiB")
    );
    assert!(
        ended.out.contains("Only in the new run: 1 cell\n  latency one_way_latency on shm, op=write, 1 MiB")
    );
}

#[test]
fn json_on_standard_output_is_the_only_output() {
    let dir = tempfile::tempdir().expect("directory");
    let a = save(dir.path(), "a.json", &made_up_run(1.0, 9000.0));
    let b = save(dir.path(), "b.json", &made_up_run(1.5, 9000.0));
    let ended = compare(&a, &b, &["--json", "-"]);
    assert_eq!(ended.status, Some(1));
    let document = json(&ended.out);
    assert_eq!(document["schema"], "nicety-compare/1");
    assert_eq!(document["counts"]["worse"], 1);
    assert_eq!(document["cells"][1]["verdict"], "worse");
    assert_eq!(document["cells"][1]["size_bytes"], 8);
    assert!(document["cells"][1]["ratio_ci95"][0].as_f64().is_some_and(|low| low > 1.4));
    assert!(ended.err.contains("1 worse"), "people read it on standard error");
    let file = dir.path().join("out.json");
    let ended = compare(&a, &b, &["--json", file.to_str().expect("a name")]);
    assert_eq!(json(&std::fs::read_to_string(file).expect("file")), document);
    assert!(ended.out.contains("1 worse"));
}

#[test]
fn runs_without_common_cells_are_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let a = save(dir.path(), "a.json", &made_up_run(1.0, 9000.0));
    let mut other = made_up_run(1.0, 9000.0);
    other.results.iter_mut().for_each(|result| result.device = "iwarp".to_owned());
    let b = save(dir.path(), "b.json", &other);
    compare(&a, &b, &[]).is_error(2, "no cell in common");
    other.results.clear();
    let c = save(dir.path(), "c.json", &other);
    compare(&a, &c, &[]).is_error(2, "has no results");
}

#[test]
fn files_without_results_are_refused_each_with_its_reason() {
    let dir = tempfile::tempdir().expect("directory");
    let good = save(dir.path(), "good.json", &made_up_run(1.0, 9000.0));
    let whole = std::fs::read_to_string(&good).expect("file");
    let cases = [
        ("cut.json", whole[..whole.len() / 2].to_owned(), "cut off"),
        ("text.json", "hello".to_owned(), "not JSON"),
        ("empty.json", String::new(), "cut off"),
        ("other.json", "{\"a\": 1}".to_owned(), "schema is absent"),
        ("newer.json", whole.replace("nicety-results/1", "nicety-results/2"), "newer"),
    ];
    for (name, text, what) in cases {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("file");
        compare(&good, &path, &[]).is_error(2, what);
        compare(&path, &good, &[]).is_error(2, name);
    }
    compare(&good, &dir.path().join("missing.json"), &[]).is_error(2, "No such file");
    compare(&good, dir.path(), &[]).is_error(2, "irectory");
}

#[test]
fn unwritable_outputs_are_refused_before_comparing() {
    let dir = tempfile::tempdir().expect("directory");
    let a = save(dir.path(), "a.json", &made_up_run(1.0, 9000.0));
    let missing = dir.path().join("no/where.json");
    compare(&a, &a, &["--json", missing.to_str().expect("a name")]).is_error(2, "mkdir -p");
    compare(&a, &a, &["--threshold", "5"]).is_error(2, "write 5%");
    compare(&a, &a, &["--threshold", "much"]).is_error(2, "not a share");
}
