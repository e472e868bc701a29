//! `nicety doctor`, end to end.

use crate::common::{json, nicety};

/// Goal: scripts can use every check, and every problem has a reason and a remedy.
#[test]
fn every_failed_check_has_a_remedy() {
    let ended = nicety(["doctor", "--json"]);
    let document = json(&ended.out);
    assert_eq!(document["schema"], "nicety-doctor/1");
    let checks = document["checks"].as_array().expect("checks");
    assert!(checks.len() >= 12, "{}", ended.out);
    for check in checks {
        let state = check["state"].as_str().expect("a state");
        assert!(["ok", "warn", "bad"].contains(&state), "{check}");
        assert!(check["found"].as_str().is_some_and(|text| !text.is_empty()), "{check}");
        if state != "ok" {
            assert!(check["why"].is_string() && check["remedy"].is_string(), "{check}");
        }
    }
    let bad = checks.iter().any(|check| check["state"] == "bad");
    assert_eq!(ended.status, Some(i32::from(bad)), "{}", ended.out);
}

#[test]
fn text_has_a_line_for_each_check_and_a_verdict() {
    let ended = nicety(["doctor"]);
    for id in
        ["cores", "pinning", "governor", "clock", "memlock", "open-files", "shared-memory", "process-access"]
    {
        assert!(ended.out.contains(&format!("  {id} ")), "{id}: {}", ended.out);
    }
    assert!(!ended.out.contains('\x1b'), "no colour in a pipe");
}

/// Goal: a report of cards can be sent to others.
#[test]
fn report_of_cards_does_not_name_this_machine() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("card.json");
    let ended = nicety(["doctor", "hw", "--report", file.to_str().expect("a path")]);
    assert_eq!(ended.status, Some(0), "{}", ended.err);
    let text = std::fs::read_to_string(&file).expect("the report");
    let document = json(&text);
    assert_eq!(document["schema"], "nicety-card-report/1");
    assert!(document["checks"].as_array().is_some_and(|checks| checks.len() >= 3), "{text}");
    assert!(document["cards"].is_array(), "{text}");
    let is_word = |word: &str| text.split(|c: char| !c.is_alphanumeric() && c != '-').any(|own| own == word);
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(!is_word(&name), "{name}: {text}");
    nicety(["doctor", "--report", "-"]).is_error(2, "nicety doctor hw --report FILE");
}
