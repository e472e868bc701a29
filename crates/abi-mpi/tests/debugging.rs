//! Debugging of ranks: valgrind's report, and the core dump of a crash.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::job::run_job_to_its_end;
use common::{compile, has_compiler};

/// Writes an executable script into a folder.
fn script(folder: &Path, body: &str) -> PathBuf {
    let path = folder.join("script");
    fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
    path
}

/// Goal: valgrind finishes soon and reports no error with the shipped suppressions. Method: one rank and two, with the leak check; each
/// thread makes the calls that valgrind does not know once.
fn check_with_valgrind(device: &str) {
    let there = Command::new("valgrind").arg("--version").stdout(Stdio::null()).status();
    if !has_compiler() {
        return;
    }
    if !there.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: there is no valgrind here; apt-get install valgrind");
        return;
    }
    let ring = compile("ring", include_str!("c/ring.c"), &["-I", "tests/c", "-std=gnu11"]);
    let folder = tempfile::tempdir().expect("a folder");
    let suppressions = concat!(env!("CARGO_MANIFEST_DIR"), "/../../share/nicety.supp");
    let program = ring.path();
    let run = script(
        folder.path(),
        &format!(
            "exec timeout 600 valgrind -q --error-exitcode=9 --leak-check=full --suppressions={suppressions} {}",
            program.display()
        ),
    );
    for size in [1, 2] {
        let (ended, _) = run_job_to_its_end(&run, size, &[("NICETY_DEVICE", device)]);
        for rank in ended {
            let said = String::from_utf8_lossy(&rank.stderr);
            assert!(rank.status.success(), "{device}, {size} ranks: {}: {said}", rank.status);
            assert!(!said.contains("=="), "{device}, {size} ranks: {said}");
            assert!(said.matches("unhandled amd64-linux syscall").count() <= 4, "{device}: {said}");
        }
    }
}

#[test]
fn valgrind_reports_nothing_on_shm() {
    check_with_valgrind("shm");
}

#[test]
fn valgrind_reports_nothing_on_iwarp() {
    check_with_valgrind("iwarp");
}

/// Goal: the core dump of a crashed rank is small, and contains the memory of the program's window. Method: the limit is above the
/// accepted size, so that a larger core is truncated there and fails.
#[test]
fn the_core_of_a_rank_on_shm_is_small() {
    const MIB: u64 = 1 << 20;
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !has_compiler() {
        return;
    }
    let crash = compile("crash", include_str!("c/crash.c"), &["-std=gnu11"]);
    let folder = tempfile::tempdir().expect("a folder");
    let (place, program) = (folder.path().display().to_string(), crash.path());
    // In units of 512 bytes.
    let run = script(
        folder.path(),
        &format!("cd {place} && ulimit -c {} || exit 7\nexec {}", 128 * MIB / 512, program.display()),
    );
    let (ended, _) = run_job_to_its_end(&run, 2, &[("NICETY_DEVICE", "shm")]);
    if pattern.trim() != "core" || ended[1].status.code() == Some(7) {
        eprintln!("SKIPPED: no core is written to a file here");
        return;
    }
    let status = ended[1].status;
    assert!(std::os::unix::process::ExitStatusExt::core_dumped(&status), "{status}");
    let files = fs::read_dir(folder.path()).expect("a folder").flatten();
    let cores: Vec<u64> = files
        .filter(|file| file.file_name().to_string_lossy().starts_with("core"))
        .map(|file| file.metadata().expect("a file").len())
        .collect();
    assert_eq!(cores.len(), 1, "{cores:?}");
    assert!((MIB..64 * MIB).contains(&cores[0]), "{cores:?}");
}
