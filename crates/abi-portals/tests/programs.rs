//! C programs, built with our header and run with our library. Their sources are in tests/c.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The library that cargo built for this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this test");
    let places = own.ancestors().skip(1).take(2).map(|place| place.join("libnicety_portals.so"));
    let found = places.max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok());
    found.filter(|path| Path::exists(path)).expect("cargo builds the library for its tests")
}

/// Whether there is a C compiler; prints what is skipped otherwise.
fn has_compiler() -> bool {
    let probe = Command::new("cc").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let there = probe.is_ok_and(|status| status.success());
    if !there {
        eprintln!("SKIPPED: no C compiler here; apt-get install gcc");
    }
    there
}

/// Builds a program and runs it on a device; it must succeed. Returns its output; `None` without a compiler.
fn run(name: &str, device: &str) -> Option<String> {
    run_with(name, &[], &[("NICETY_DEVICE", device)])
}

/// As [`run`], with arguments and variables.
fn run_with(name: &str, words: &[&str], variables: &[(&str, &str)]) -> Option<String> {
    let output = output_of(name, words, variables)?;
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name}, {variables:?}, ends with {}: {said}{wrong}", output.status);
    Some(said.into_owned())
}

/// As [`run_with`], whatever its exit status.
fn output_of(name: &str, words: &[&str], variables: &[(&str, &str)]) -> Option<Output> {
    if !has_compiler() {
        return None;
    }
    let (folder, crate_dir) = (tempfile::tempdir().expect("a folder"), Path::new(env!("CARGO_MANIFEST_DIR")));
    let place = |file: &str| folder.path().join(file);
    // The first name is for the linker, the second one for the loader.
    for name in ["libportals.so", "libportals.so.4"] {
        std::os::unix::fs::symlink(library(), place(name)).expect("a link");
    }
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Werror", "-I"]).arg(crate_dir.join("include"));
    cc.arg("-o").arg(place(name)).arg(crate_dir.join(format!("tests/c/{name}.c")));
    cc.arg("-L").arg(folder.path()).arg("-lportals").arg(format!("-Wl,-rpath,{}", folder.path().display()));
    let built = cc.output().expect("cc runs");
    assert!(built.status.success(), "{name}: {}", String::from_utf8_lossy(&built.stderr));
    let mut program = Command::new(place(name));
    // A program's processes create the user's key when they need one.
    program.args(words).envs(variables.iter().copied());
    program.env_remove("NICETY_JOB_KEY").env("NICETY_KEY_FILE", place("key"));
    Some(program.output().expect("it starts"))
}

#[test]
fn messages_go_both_ways_on_shm() {
    assert!(run("pair", "shm").is_none_or(|said| said == "both are done\n"));
}

#[test]
fn messages_go_both_ways_on_iwarp() {
    assert!(run("pair", "iwarp").is_none_or(|said| said == "both are done\n"));
}

/// Text of a variable cannot control the terminal.
#[test]
fn error_lines_have_no_control_characters_of_variables() {
    for name in ["NICETY_DEVICE", "NICETY_PORTALS_FLOW", "NICETY_PORTALS_ENGINE"] {
        let Some(output) = output_of("pair", &[], &[(name, "\u{1b}[2J\nworse")]) else { return };
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(said.starts_with("nicety: ") && said.contains("\\u{1b}[2J\\nworse"), "{name}: {said:?}");
        assert!(!said.contains('\u{1b}') && !said.contains("\nworse"), "{name}: {said:?}");
    }
}

#[test]
fn invalid_handles_and_pointers_return_errors() {
    assert!(run("nonsense", "shm").is_none_or(|said| said.starts_with("all answered")));
}

/// The log of failed calls names the call, the argument or object, and the remedy.
#[test]
fn failed_calls_are_explained() {
    let variables = [("NICETY_DEVICE", "shm"), ("NICETY_LOG", "errors")];
    let Some(output) = output_of("nonsense", &[], &variables) else { return };
    let log = String::from_utf8_lossy(&output.stderr);
    for (call, words) in [
        ("PtlNIInit", "the library is not initialized; call PtlInit first (PTL_NO_INIT)"),
        ("PtlNIInit", "options is 0x1; pass one of PTL_NI_MATCHING and PTL_NI_NO_MATCHING"),
        ("PtlNIInit", "iface is 17; pass PTL_IFACE_DEFAULT"),
        ("PtlNIInit", "pid is in use, or this process has another; pass PTL_PID_ANY"),
        ("PtlNIFini", "is no handle of an interface; pass what PtlNIInit has returned"),
        ("PtlNIStatus", "status_register is 3"),
        ("PtlNIStatus", "status is NULL; pass the address"),
        ("PtlSetMap", "ni_handle is not PTL_NI_LOGICAL"),
        ("PtlEQAlloc", "eq_handle is NULL"),
        ("PtlEQAlloc", "an event queue has at most 4194304 slots; pass less (PTL_NO_SPACE)"),
        ("PtlEQGet", "is not one of an event queue (PtlEQAlloc)"),
        ("PtlEQPoll", "size is 0; pass the number of handles"),
        ("PtlCTPoll", "tests is NULL"),
        ("PtlCTInc", "increment has a success and a failure count"),
        ("PtlPTAlloc", "options is 0x10, which has unknown bits"),
        ("PtlPTAlloc", "pt_index_req is beyond max_pt_index"),
        ("PtlPTAlloc", "needs an event queue; pass eq_handle (PTL_PT_EQ_NEEDED)"),
        ("PtlMDBind", "md.options is 0x100000, which has unknown bits"),
        ("PtlMDBind", "elements (max_iovecs); pass fewer"),
        ("PtlPut", "offset and length exceed the descriptor"),
        ("PtlPut", "ack_req is 4; pass PTL_NO_ACK_REQ"),
        ("PtlAtomic", "pass values of ptl_op_t and ptl_datatype_t"),
        ("PtlSwap", "operand is NULL"),
        ("PtlLEAppend", "call the PtlME function instead"),
        ("PtlMEAppend", "ptl_list is 2; pass PTL_PRIORITY_LIST"),
        ("PtlMEAppend", "pt_index names no allocated portal table entry"),
        ("PtlMESearch", "ptl_search_op is 2; pass PTL_SEARCH_ONLY"),
        ("PtlMEUnlink", "was unlinked already, by a message or by a call; unlink it once"),
        ("PtlMDRelease", "is not one of a memory descriptor (PtlMDBind)"),
        ("PtlStartBundle", "was closed by PtlNIFini, or never opened; call PtlNIInit first"),
    ] {
        let start = format!("nicety: {call}: ");
        let is_there = log.lines().any(|line| line.starts_with(&start) && line.contains(words));
        assert!(is_there, "{call}: {words}: {log}");
    }
    assert!(!log.contains("PTL_EQ_EMPTY"), "waiting without a result is no failure: {log}");
    assert!(log.contains("more like this one: PtlAtomicSync: the library is not initialized"), "{log}");
}

#[test]
fn limits_of_zero_are_the_defaults_and_others_are_bounded() {
    assert!(run("limits", "shm").is_none_or(|said| said == "limits are granted\n"));
}

/// 64 processes put to a process with room for 16 messages; checks whether it ever refused some.
fn flood(kind: &str, device: &str, flow: &str) {
    let variables = [("NICETY_DEVICE", device), ("NICETY_PORTALS_FLOW", flow)];
    let said = run_with("flood", &["64", "40", kind], &variables);
    let how = if kind == "flowctrl" { "at times" } else { "never" };
    assert!(said.is_none_or(|said| said == format!("64 senders of 40 messages each: disabled {how}\n")));
}

/// Goal: senders repeat messages that were refused because the receiver's portal table entry was full;
/// nothing is lost, duplicated or reordered.
#[test]
fn refused_messages_are_repeated_without_loss() {
    flood("flowctrl", "shm", "drop");
}

/// Goal: the interface delays messages without room, and refuses none.
#[test]
fn replay_delays_messages_without_refusing_any() {
    flood("replay", "shm", "replay");
}

/// The unit test `structure_layout_matches_c` checks the same numbers on the library's structures.
#[test]
fn structure_layout_matches_header() {
    assert!(run("layout", "shm").is_none_or(|said| said == "32 32 64 28 40 80 72 96 40\n"));
}
