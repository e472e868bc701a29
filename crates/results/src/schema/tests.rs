//! Result files: the documented example, round trips, and files that are cut off, foreign or from a newer schema.

use super::*;

/// The example of the documentation, so that it cannot go stale.
fn example() -> &'static str {
    let doc = include_str!("../../../../docs/reference/results-schema.md");
    let start = doc.find("```json\n").expect("an example") + 8;
    let end = start + doc[start..].find("```").expect("its end");
    &doc[start..end]
}

fn run() -> Run {
    Run::from_json(example()).expect("the documented example is valid")
}

#[test]
fn the_documented_example_is_read_and_survives_a_round_trip() {
    let run = run();
    let result = &run.results[0];
    assert_eq!(result.variant.get(crate::variant::factor::OP), Some("write"));
    assert_eq!(result.ci95, Some([0.118, 0.123]));
    assert_eq!(result.floor.as_ref().map(|f| f.ratio), Some(1.2));
    assert!(result.launches[0].stop.reached());
    assert!(!result.higher_is_better());
    assert_eq!(run.parameters[0].origin, Origin::Flag);
    let again = Run::from_json(&run.to_json().expect("json")).expect("read back");
    assert_eq!(again, run);
}

/// Goal: the documentation of the CSV names every column, and none that there is not.
#[test]
fn the_columns_of_the_csv_are_documented() {
    let mut text = Vec::new();
    run().to_csv(&mut text).expect("csv");
    let text = String::from_utf8(text).expect("text");
    let head: std::collections::BTreeSet<&str> = text.lines().next().expect("a header").split(',').collect();
    let rows = include_str!("../../../../docs/reference/results-csv.md")
        .lines()
        .filter(|line| line.starts_with("| `"));
    let named = rows.flat_map(|row| row.split('|').nth(1).expect("a column").split('`').skip(1).step_by(2));
    assert_eq!(named.collect::<std::collections::BTreeSet<&str>>(), head);
}

#[test]
fn the_required_keys_are_always_written() {
    let run = Run { results: vec![Measurement::default()], ..Run::default() };
    let value: serde_json::Value = serde_json::from_str(&run.to_json().expect("json")).expect("value");
    for key in ["schema", "environment", "parameters", "results"] {
        assert!(value.get(key).is_some(), "{key}");
    }
    let required =
        ["experiment", "device", "variant", "size_bytes", "metric", "unit", "clock", "n", "median"];
    for key in required.iter().chain(&["ci95", "floor"]) {
        assert!(value["results"][0].get(key).is_some(), "{key}");
    }
    assert!(value["results"][0]["variant"].is_object());
}

#[test]
fn unknown_fields_are_ignored_within_a_version() {
    let text = example().replacen("\"cores\"", "\"later_field\": [1], \"cores\"", 1);
    assert_eq!(Run::from_json(&text).expect("readable"), run());
}

/// Every proper prefix of a file is called cut off, whatever byte it ends at.
#[test]
fn a_truncated_file_is_called_truncated() {
    let text = example().trim_end();
    for end in 0..text.len() {
        let error = Run::from_json(&text[..end]).expect_err("truncated");
        assert!(matches!(error, ReadError::Truncated { .. }), "at {end}: {error}");
    }
}

#[test]
fn each_wrong_file_has_its_own_error_in_one_line_that_names_the_file() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("run.json");
    let newer = example().replacen("nicety-results/1", "nicety-results/2", 1);
    let invalid = example().replacen("\"size_bytes\": 8", "\"size_bytes\": -8", 1);
    let cases: [(&[u8], &str); 10] = [
        (b"", "cut off"),
        (&newer.as_bytes()[..newer.len() - 9], "cut off"),
        (b"{\"schema\": \"\xc3", "cut off"),
        (b"size,latency\n1,2\n", "not JSON"),
        (b"\x7fELF\x02\xff", "not JSON"),
        (b"[1, 2]", "schema is absent"),
        (b"{\"schema\": 7}", "schema is 7"),
        (b"{\"schema\": \"other/1\"}", "schema is \"other/1\""),
        (newer.as_bytes(), "version 2 is newer than 1"),
        (invalid.as_bytes(), "`-8`"),
    ];
    for (bytes, expected) in cases {
        std::fs::write(&path, bytes).expect("write");
        let message = Run::read(&path).expect_err(expected).to_string();
        assert!(message.contains(expected), "{message} lacks {expected}");
        assert!(message.contains("run.json") && message.lines().count() == 1, "{message}");
    }
    let absent = Run::read(dir.path().join("absent.json")).expect_err("absent");
    assert!(matches!(absent, ReadError::Open { .. }));
}

#[test]
fn newer_schema_is_distinguished_from_a_wrong_one_even_if_its_body_is_unreadable() {
    let error = Run::from_json("{\"schema\": \"nicety-results/12\", \"results\": 3}").expect_err("newer");
    assert!(matches!(error, ReadError::Newer { found: 12, .. }), "{error}");
    let error = Run::from_json("{\"schema\": \"nicety-results/0\"}").expect_err("wrong");
    assert!(matches!(error, ReadError::WrongKind { .. }), "{error}");
}

/// NaN would become null and the file unreadable; the writer refuses and the old file stays.
#[test]
fn a_number_that_is_not_finite_is_refused_and_the_old_file_stays() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("run.json");
    run().write(&path).expect("first");
    let mut bad = run();
    bad.results[0].median = f64::NAN;
    assert!(matches!(bad.write(&path), Err(WriteError::NotFinite { .. })));
    bad.results[0].median = 1.0;
    bad.results[0].mean = Some(f64::INFINITY);
    let message = bad.write(&path).expect_err("infinite mean").to_string();
    assert!(message.contains("latency shm"), "{message}");
    assert_eq!(Run::read(&path).expect("old file"), run());
    assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 1, "no temporary file stays");
}

#[test]
fn writing_into_a_missing_directory_names_the_file() {
    let dir = tempfile::tempdir().expect("dir");
    let message = run().write(dir.path().join("absent/run.json")).expect_err("no directory").to_string();
    assert!(message.contains("absent/run.json") && message.lines().count() == 1, "{message}");
}

#[cfg(unix)]
#[test]
fn writing_through_a_link_keeps_the_link_and_a_device_stays_a_device() {
    let dir = tempfile::tempdir().expect("dir");
    let (real, link) = (dir.path().join("real.json"), dir.path().join("link.json"));
    run().write(&real).expect("first");
    std::os::unix::fs::symlink(&real, &link).expect("link");
    Run::default().write(&link).expect("through the link");
    assert!(std::fs::symlink_metadata(&link).expect("link").is_symlink());
    assert_eq!(Run::read(&real).expect("read"), Run::default());
    run().write("/dev/null").expect("device");
    assert!(!std::fs::metadata("/dev/null").expect("device").is_file());
}

#[test]
fn csv_has_one_row_for_each_result_and_quotes_what_needs_it() {
    let mut run = run();
    run.results[0].note = Some("a \"quoted\", note".to_owned());
    run.results.push(Measurement::default());
    let mut text = Vec::new();
    run.to_csv(&mut text).expect("csv");
    let mut reader = csv::Reader::from_reader(text.as_slice());
    let headers = reader.headers().expect("headers").clone();
    let rows: Vec<csv::StringRecord> = reader.records().map(|r| r.expect("row")).collect();
    let cell = |row: usize, key: &str| {
        let column = headers.iter().position(|h| h == key).expect("column");
        rows[row][column].to_owned()
    };
    assert_eq!(rows.len(), 2);
    assert_eq!(cell(0, "variant"), "op=write;sink=nic;source=nic");
    assert_eq!(cell(0, "median"), "0.12");
    assert_eq!(cell(0, "p99"), "");
    assert_eq!(cell(0, "note"), "a \"quoted\", note");
    assert_eq!(cell(1, "ci95_low"), "");
}

#[test]
fn cells_differ_by_any_factor() {
    let a = run().results[0].clone();
    let mut b = a.clone();
    b.median = 7.0;
    assert_eq!(a.cell(), b.cell());
    b.variant = b.variant.with(crate::variant::factor::SINK, "host");
    assert_ne!(a.cell(), b.cell());
}

/// Goal: files with more than a report can process are refused, and files at the limit are not. Method: each kind of
/// list at its limit and one beyond.
#[test]
fn counts_of_a_file_are_accepted_up_to_their_limits() {
    let result = |i: usize, device: usize, variant: String| Measurement {
        device: format!("d{device}"),
        size_bytes: i as u64,
        variant: [("op", variant)].into_iter().collect(),
        ..Measurement::default()
    };
    let results = |count: usize, devices: usize, variants: usize| Run {
        results: (0..count).map(|i| result(i, i % devices, (i % variants).to_string())).collect(),
        ..Run::default()
    };
    let launches = |count: usize| {
        let mut run = results(1, 1, 1);
        run.results[0].launches = vec![Launch::default(); count];
        run
    };
    let parameters = |count| Run { parameters: vec![Parameter::default(); count], ..Run::default() };
    for (fits, run, what) in [
        (true, results(RESULTS_MAX, 1, 1), ""),
        (false, results(RESULTS_MAX + 1, 1, 1), "65537 results"),
        (true, results(128, 128, 1), ""),
        (false, results(129, 129, 1), "129 devices"),
        (true, results(CURVES_MAX, 1, CURVES_MAX), ""),
        (false, results(CURVES_MAX + 1, 1, CURVES_MAX + 1), "4097 curves"),
        (true, launches(1000), ""),
        (false, launches(1001), "1001 launches"),
        (true, parameters(1024), ""),
        (false, parameters(1025), "1025 parameters"),
    ] {
        match Run::from_json(&run.to_json().expect("JSON")) {
            Ok(read) => assert!(fits && read == run, "{what}"),
            Err(error) => assert!(!fits && error.to_string().contains(what), "{what}: {error}"),
        }
    }
}
