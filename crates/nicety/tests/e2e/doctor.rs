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
