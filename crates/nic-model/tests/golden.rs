//! Detects changed times: a fixed set of operations on each machine takes the times in the tables in
//! `tests/golden`, to the picosecond, with the same events in the same order.

#[path = "support/golden.rs"]
mod golden;
#[path = "support/storm.rs"]
mod storm;

/// Goal: a change of the model that changes a time shows which one. Method: recompute all tables and compare
/// them line by line.
#[test]
fn times_equal_the_golden_tables() {
    let changed: Vec<String> = golden::names().iter().filter_map(|name| change(name)).collect();
    assert!(
        changed.is_empty(),
        "virtual time has changed:\n{}\nIf it was to change, write the tables anew and say why in the commit:\n    \
         cargo run -p nic-model --example golden -- --bless",
        changed.join("\n")
    );
}

/// The differences in a table.
fn change(name: &str) -> Option<String> {
    let golden = std::fs::read_to_string(golden::path(name)).unwrap_or_default();
    let diff = golden::diff(&golden, &golden::table(name));
    (!diff.is_empty()).then(|| format!("tests/golden/{name}.txt\n{diff}"))
}

#[test]
fn differences_are_shown_line_by_line() {
    assert_eq!(golden::diff("a\nb\n", "a\nb\n"), "");
    assert_eq!(golden::diff("a\nb\n", "a\nc\nd\n"), "-b\n+c\n+d\n");
    assert_eq!(golden::diff("a\nb\n", "a\n"), "-b\n");
}
