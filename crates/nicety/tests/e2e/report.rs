//! `nicety report`, end to end.

use std::fs;

use crate::common::{made_up_run, nicety, nicety_in, save};

#[test]
fn runs_become_one_page() {
    let dir = tempfile::tempdir().expect("directory");
    save(dir.path(), "a.json", &made_up_run(1.0, 9000.0));
    save(dir.path(), "b.json", &made_up_run(1.1, 9100.0));
    let ended = nicety_in(dir.path(), ["report", "a.json", "b.json", "-o", "both.html"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let said = ended.out.split_once('\n').expect("two lines");
    assert!(said.0.starts_with("b.json against a.json: ") && said.0.contains("in both runs"), "{ended:?}");
    assert_eq!(said.1, "Report of 2 runs: both.html (open it in a browser)\n");
    let page = fs::read_to_string(dir.path().join("both.html")).expect("the page");
    assert!(
        page.contains("</html>") && page.contains("b.json against a.json"),
        "runs are named by their files"
    );
    save(dir.path(), "c.json", &made_up_run(1.0, 9000.0));
    let ended = nicety_in(dir.path(), ["report", "a.json", "c.json"]);
    assert!(ended.out.starts_with("c.json against a.json: no difference found beyond 5.0 %; "), "{ended:?}");
    let ended = nicety_in(dir.path(), ["report", "a.json"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(dir.path().join("nicety-report.html").exists(), "the default name");
    let ended = nicety_in(dir.path(), ["report", "a.json", "-o", "-"]);
    assert!(ended.out.contains("</html>") && ended.err.is_empty());
}

#[test]
fn what_is_no_run_is_refused_and_the_old_page_stays() {
    let dir = tempfile::tempdir().expect("directory");
    let good = save(dir.path(), "good.json", &made_up_run(1.0, 9000.0));
    let whole = fs::read_to_string(&good).expect("file");
    let page = dir.path().join("page.html");
    fs::write(&page, "old").expect("file");
    let cases = [
        ("cut.json", whole[..whole.len() / 3].to_owned(), "cut off"),
        ("text.json", "hello".to_owned(), "not JSON"),
        ("newer.json", whole.replace("nicety-results/1", "nicety-results/9"), "newer"),
    ];
    for (name, text, what) in cases {
        let bad = dir.path().join(name);
        fs::write(&bad, text).expect("file");
        nicety(["report".as_ref(), good.as_os_str(), bad.as_os_str(), "-o".as_ref(), page.as_os_str()])
            .is_error(2, what);
    }
    nicety_in(dir.path(), ["report", "missing.json"]).is_error(2, "No such file");
    nicety_in(dir.path(), ["report", "good.json", "-o", "no/page.html"]).is_error(2, "mkdir -p");
    nicety_in(dir.path(), ["report", "good.json", "-o", "."]).is_error(2, "directory");
    nicety(["report"]).is_error(2, "<RUN.json>");
    assert_eq!(fs::read_to_string(&page).expect("file"), "old");
}
