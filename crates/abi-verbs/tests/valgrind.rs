//! Runs verbs programs under valgrind.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use common::{Names, ends, has};

/// Goal: valgrind reports no error in an unmodified program, with the shipped suppressions and its leak check.
#[test]
fn valgrind_reports_nothing_of_a_ping_pong() {
    if !has("valgrind", "valgrind") || !has("ibv_rc_pingpong", "ibverbs-utils") {
        return;
    }
    let names = Names::new();
    let suppressions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../share/nicety.supp");
    let script = names.path().join("checked");
    let text = format!(
        "#!/bin/sh\nexec valgrind -q --error-exitcode=9 --leak-check=full --suppressions={suppressions} \
         ibv_rc_pingpong \"$@\"\n"
    );
    fs::write(&script, text).expect("written");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("permissions");
    let program = script.to_str().expect("text");
    for device in ["shm", "iwarp@127.0.0.1"] {
        let said = ends(&names, device, [program; 2], ["-n 20 -g 0", "-n 20 -g 0 127.0.0.1"]).concat();
        assert!(!said.contains("=="), "{device}: {said}");
    }
}
