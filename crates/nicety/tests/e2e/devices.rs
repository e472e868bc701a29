//! `nicety devices`, end to end.

use crate::common::{Ended, command, json, nicety};

#[test]
fn shm_is_listed_with_its_limits() {
    let ended = nicety(["devices", "--json"]);
    assert_eq!(ended.status, Some(0));
    let document = json(&ended.out);
    assert_eq!(document["schema"], "nicety-devices/1");
    let shm = &document["devices"][0];
    assert_eq!((&shm["name"], &shm["available"]), (&"shm".into(), &true.into()));
    let limits = shm["limits"].as_array().expect("limits");
    let limit =
        |name: &str| limits.iter().find(|limit| limit["name"] == name).expect("the limit")["value"].as_u64();
    assert!(limit("max_qp").is_some_and(|n| n >= 1));
    assert!(limit("max_msg_size").is_some_and(|n| n >= 1 << 30));
}

/// Goal: the list can be read without scrolling. Method: it fits a terminal of 24 lines and 80 columns, together with its
/// command line.
#[test]
fn device_list_fits_one_screen_and_verbose_adds_details() {
    let mut list = command();
    let short: Ended = list.arg("devices").env("COLUMNS", "80").output().expect("the command runs").into();
    assert!(short.out.lines().count() <= 22, "{}", short.out);
    assert!(short.out.lines().all(|line| line.chars().count() <= 80), "{}", short.out);
    for name in [
        "  shm ",
        "  iwarp ",
        "  hw ",
        "  rails(shm,shm) ",
        "  model:connectx-multihca ",
        "nicety bench --device shm",
    ] {
        assert!(short.out.contains(name), "{name}: {}", short.out);
    }
    assert!(!short.out.contains("max_qp"));
    let long = nicety(["devices", "-v"]);
    for detail in [
        "shm  available\n",
        "max_qp",
        "queue pairs",
        "engine=one|threads",
        "faults(shm)  available\n",
        "rules=FILE",
        "programs that the NIC runs itself",
    ] {
        assert!(long.out.contains(detail), "{detail}: {}", long.out);
    }
}
