//! Commands that the program itself suggests: none of them is refused.

use std::collections::BTreeSet;
use std::path::Path;

use crate::common::{nicety, nicety_in};

/// The words of a command as a shell has them, without what it is piped into and without the remark behind it.
fn words(line: &str) -> Vec<String> {
    let command = line.trim().split("  ").next().unwrap_or_default().split(" | ").next().unwrap_or_default();
    command.split(' ').map(|word| word.trim_matches('\'').to_owned()).collect()
}

/// The measurements that a text suggests.
fn suggested(text: &str) -> Vec<Vec<String>> {
    // At the beginning of a line, or behind what it is for.
    let commands = text.lines().map(|line| line.split_once(": ").map_or(line, |(_, rest)| rest).trim());
    let is_one = |line: &&str| line.starts_with("nicety bench ") && !line.contains("[OPTIONS]");
    commands.filter(is_one).map(|line| words(line)[1..].to_vec()).collect()
}

/// Goal: what the program suggests works. Method: every measurement in its help, its list of devices and its explanations
/// is asked for, but not made.
#[test]
fn every_suggested_measurement_is_accepted() {
    let mut texts = vec![nicety(["bench", "--help"]).out, nicety(["devices"]).out, nicety([""; 0]).out];
    texts.push(nicety(["devices", "--verbose"]).out);
    let list = nicety(["explain"]).out;
    let names: BTreeSet<&str> = list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let explained =
        names.iter().map(|name| nicety(["explain", name])).filter(|ended| ended.status == Some(0));
    let explained: Vec<String> = explained.map(|ended| ended.out).collect();
    assert!(explained.len() >= 25, "{list}");
    assert!(explained.iter().all(|text| !suggested(text).is_empty()), "every page suggests something");
    texts.extend(explained);
    // The plan of the example in the help lies there.
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/examples");
    for command in texts.iter().flat_map(|text| suggested(text)) {
        let ended = nicety_in(&examples, command.iter().map(String::as_str).chain(["--dry-run"]));
        assert_eq!(ended.status, Some(0), "nicety {}: {ended:?}", command.join(" "));
    }
}
