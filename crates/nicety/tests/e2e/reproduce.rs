//! `nicety reproduce`, end to end.

use std::fs;

use crate::common::{json, nicety, nicety_in};

#[test]
fn unknown_name_is_refused_with_known_names() {
    nicety(["reproduce", "nonsense"])
        .is_error(2, "there is: accel-portals, miba-thesis, mpi-iwarp, mt23108-nicmem, multirail-udapl");
    nicety(["reproduce", "mt23108-nicmem/nonsense"]).is_error(2, "there is: bandwidth, bandwidth_2port");
    nicety(["reproduce", "NM-999"]).is_error(2, "no paper and no row");
    let ended = nicety(["reproduce", "NM-043", "--set", "bus.clock=1"]);
    assert!(ended.status == Some(2) && ended.err.contains("write clock_mhz"), "{ended:?}");
    nicety(["reproduce", "NM-001", "--json", "-", "--html", "-"])
        .is_error(2, "both write to standard output");
}

/// Goal: a single row gets its value, the same in each run.
#[test]
fn row_is_computed_the_same_each_time() {
    let run = || nicety(["reproduce", "nm-056", "--json", "-"]);
    let ended = run();
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let rows = json(&ended.out);
    assert_eq!(rows["schema"], "nicety-reproduction/2");
    let row = &rows["rows"][0];
    assert_eq!((&row["id"], &row["published"]), (&"NM-056".into(), &1857.0.into()));
    assert!(row["modelled"].as_f64().is_some_and(|value| value > 0.0), "{row}");
    assert!(ended.err.contains("NM-056"), "the table goes to standard error: {}", ended.err);
    // Goals and fitted values belong to a whole paper; for a single row they would make no sense.
    for nonsense in ["goal", " of 0 ", "0 rows", "fitted values"] {
        assert!(!ended.err.contains(nonsense), "{nonsense}: {}", ended.err);
    }
    assert!(ended.err.contains("of 1 predicted number within 10 %"), "{}", ended.err);
    assert_eq!(run().out, ended.out, "virtual time has no noise");
}

/// Goal: a changed value affects the cards, and the result mentions it.
#[test]
fn changed_machine_value_changes_results() {
    let ended = nicety(["reproduce", "MT-065", "--set", "host.post_receive_ns=1000", "--json", "-"]);
    let all = json(&ended.out);
    assert_eq!(
        (&all["changes"][0], &all["rows"][0]["modelled"]),
        (&"host.post_receive_ns=1000".into(), &1.0.into())
    );
    assert_eq!(all["rows"][0]["class"], "input", "a what-if makes no prediction");
    assert!(ended.err.contains("host.post_receive_ns=1000"), "{}", ended.err);
}

#[test]
fn rows_and_page_are_written() {
    let dir = tempfile::tempdir().expect("directory");
    let args = ["reproduce", "miba-thesis/post_recv", "--json", "rows.json", "--html", "page.html"];
    let ended = nicety_in(dir.path(), args);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.out.contains("rows.json") && ended.out.contains("page.html"), "{}", ended.out);
    let rows = json(&fs::read_to_string(dir.path().join("rows.json")).expect("the rows"));
    assert!(rows["rows"].as_array().is_some_and(|rows| rows.len() >= 3), "{rows}");
    assert!(fs::read_to_string(dir.path().join("page.html")).expect("the page").contains("MT-065"));
}

/// Goal: real measurements are shown on the page in the paper's terms, and other files are refused by name.
#[test]
fn real_measurements_are_shown_next_to_the_papers() {
    let dir = tempfile::tempdir().expect("directory");
    let lines =
        "# two processes on a desk\nlibrary,cell,turn,ns\nring,latency:4,1,6000\nmpich,latency:4,1,20000\n";
    fs::write(dir.path().join("real.csv"), lines).expect("a file");
    fs::write(dir.path().join("other.csv"), "row,value\n").expect("a file");
    let run = |file| nicety_in(dir.path(), ["reproduce", "IW-013", "--real", file, "--html", "page.html"]);
    assert_eq!(run("real.csv").status, Some(0));
    let page = fs::read_to_string(dir.path().join("page.html")).expect("the page");
    assert!(page.contains("two processes on a desk") && page.contains("70 %") && page.contains("20.00 us"));
    run("other.csv").is_error(2, "other.csv: it does not begin with the conditions");
}

/// Goal: a lower score of the paper on MPI over iWARP is noticed, and MPI takes the same virtual time in each run.
#[test]
fn iwarp_paper_score_has_not_dropped() {
    let run = |what| json(&nicety(["reproduce", what, "--json", "-"]).out);
    let all = run("mpi-iwarp");
    let again = run("mpi-iwarp/imb_barrier");
    let repeated = again["rows"].as_array().expect("rows");
    assert!(!repeated.is_empty());
    for row in repeated {
        let first = all["rows"].as_array().into_iter().flatten().find(|first| first["id"] == row["id"]);
        assert_eq!(first.map(|first| &first["modelled"]), Some(&row["modelled"]));
    }
    let rows = all["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 90);
    let score = |key: &str| all["papers"][0]["score"][key].as_u64().unwrap_or_else(|| panic!("no {key}"));
    assert_eq!((score("numeric"), score("qualitative")), (27, 7));
    assert!(score("near") >= 15 && score("holding") >= 7 && score("fitted_values") <= 5, "{}", all["score"]);
    let apart = rows.iter().find(|row| row["id"] == "IW-030").expect("a row");
    assert!(
        apart["apart"] == true && apart["modelled"].as_f64().is_some_and(|rate| rate < 1250.0),
        "{apart}"
    );
}

/// Goal: a lower score of the multirail paper is noticed. Method: computes all of its rows; the scores in docs/papers are the
/// minimum.
#[test]
fn multirail_paper_score_has_not_dropped() {
    let ended = nicety(["reproduce", "multirail-udapl", "--json", "-"]);
    let all = json(&ended.out);
    let rows = all["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 144);
    for row in rows {
        let answered = [&row["modelled"], &row["holds"], &row["reason"]].iter().any(|field| !field.is_null());
        assert!(answered, "{row}");
    }
    let score = |key: &str| all["papers"][0]["score"][key].as_u64().unwrap_or_else(|| panic!("no {key}"));
    assert_eq!((score("numeric"), score("qualitative")), (12, 24));
    assert!(score("near") >= 8 && score("holding") >= 23 && score("fitted_values") <= 9, "{}", all["score"]);
    for part in ["Table of equations (1) to (3)", "R9"] {
        assert!(ended.err.contains(part), "no {part}");
    }
}
