//! `nicety devices`, end to end.

use crate::common::{json, nicety};

#[test]
fn the_shared_memory_device_is_there_with_its_limits() {
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

#[test]
fn text_says_what_it_is_for_and_limits_come_on_demand() {
    let short = nicety(["devices"]);
    assert!(short.out.starts_with("shm  available\n"), "{}", short.out);
    assert!(short.out.contains("nicety bench --device shm"), "{}", short.out);
    assert!(!short.out.contains("max_qp"));
    let long = nicety(["devices", "-v"]);
    assert!(long.out.contains("max_qp") && long.out.contains("queue pairs"), "{}", long.out);
}
