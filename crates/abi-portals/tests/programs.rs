//! Programs in C, built with our header against our library. The sources are in tests/c.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The library that cargo has built for this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this test");
    let places = own.ancestors().skip(1).take(2).map(|place| place.join("libnicety_portals.so"));
    let found = places.max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok());
    found.filter(|path| Path::exists(path)).expect("cargo builds the library for its tests")
}

/// Whether there is a C compiler; without one, says what is skipped.
fn has_compiler() -> bool {
    let probe = Command::new("cc").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let there = probe.is_ok_and(|status| status.success());
    if !there {
        eprintln!("SKIPPED: no C compiler here; apt-get install gcc");
    }
    there
}

/// Builds a program and runs it on a device; it must succeed. What it says; nothing without a compiler.
fn run(name: &str, device: &str) -> Option<String> {
    if !has_compiler() {
        return None;
    }
    let (folder, crate_dir) = (tempfile::tempdir().expect("a folder"), Path::new(env!("CARGO_MANIFEST_DIR")));
    let place = |file: &str| folder.path().join(file);
    std::os::unix::fs::symlink(library(), place("libportals.so")).expect("a link");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-Wall", "-Werror", "-I"]).arg(crate_dir.join("include"));
    cc.arg("-o").arg(place(name)).arg(crate_dir.join(format!("tests/c/{name}.c")));
    cc.arg("-L").arg(folder.path()).arg("-lportals").arg(format!("-Wl,-rpath,{}", folder.path().display()));
    let built = cc.output().expect("cc runs");
    assert!(built.status.success(), "{name}: {}", String::from_utf8_lossy(&built.stderr));
    let output = Command::new(place(name)).env("NICETY_DEVICE", device).output().expect("it starts");
    let (said, wrong) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{name} on {device} ends with {}: {said}{wrong}", output.status);
    Some(said.into_owned())
}

#[test]
fn messages_go_both_ways_on_shm() {
    assert!(run("pair", "shm").is_none_or(|said| said == "both are done\n"));
}

#[test]
fn messages_go_both_ways_on_iwarp() {
    assert!(run("pair", "iwarp").is_none_or(|said| said == "both are done\n"));
}

#[test]
fn nonsense_is_answered() {
    assert!(run("nonsense", "shm").is_none_or(|said| said.starts_with("all answered")));
}

/// The same numbers are asked of the library's structures by its unit test `structures_lie_as_c_has_them`.
#[test]
fn structures_lie_as_in_the_header() {
    assert!(run("layout", "shm").is_none_or(|said| said == "32 32 64 28 40 80 72 96 40\n"));
}
