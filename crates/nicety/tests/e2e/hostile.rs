//! Hostile input: files that never end or are far too large, and text that would act on a terminal.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use crate::common::{Ended, command, made_up_run, save};

/// Address space of a command that reads a hostile file, in KiB: above what it needs, far below what the file would need.
const MEMORY_MAX_KIB: u32 = 2 << 20;

/// Runs the command in a directory, with little memory, and with `input` as its standard input.
fn confined(dir: &Path, args: &[&str], input: Stdio) -> Ended {
    let nicety = command();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &format!("ulimit -v {MEMORY_MAX_KIB} && exec timeout 100 \"$@\""), "sh"]);
    command.arg(nicety.get_program()).args(nicety.get_args()).args(args);
    for (name, value) in nicety.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(dir).stdin(input).output().expect("the command runs").into()
}

/// Command lines that read `NAME` as each kind of file that there is.
const READERS: &[&[&str]] = &[
    &["report", "NAME", "-o", "page.html"],
    &["report", "--text", "NAME"],
    &["compare", "NAME", "good.json"],
    &["compare", "good.json", "NAME"],
    &["compare", "--baseline", "kept", "good.json"],
    &["reproduce", "NM-054", "--real", "NAME"],
    &["bench", "--plan", "NAME"],
    &["bench", "latency", "--config", "NAME"],
    &["bench", "latency", "--token-file", "NAME"],
    &["bench", "latency", "--device", "model:NAME"],
    &["mpirun", "--hostfile", "NAME", "true"],
];

/// A directory in which `name` is the file that [`READERS`] read, with a good run beside it.
fn stage(name: &str, target: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    save(dir.path(), "good.json", &made_up_run(1.0, 9000.0));
    symlink(target, dir.path().join(name)).expect("a link");
    let kept = dir.path().join("data/nicety/baselines");
    fs::create_dir_all(&kept).expect("a directory");
    symlink(target, kept.join("kept.json")).expect("a link");
    dir
}

/// Goal: no file that a command reads can fill the memory. Method: each kind of file is a device that never ends, then a
/// terabyte of hole.
#[test]
fn endless_and_huge_files_are_refused_by_every_command() {
    let holes = tempfile::tempdir().expect("a directory");
    let hole = holes.path().join("hole");
    File::create(&hole).expect("a file").set_len(1 << 40).expect("a hole");
    fs::set_permissions(&hole, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("a mode");
    for target in [Path::new("/dev/zero"), &hole] {
        let dir = stage("hostile.toml", target);
        for args in READERS {
            let named: Vec<String> = args.iter().map(|word| word.replace("NAME", "hostile.toml")).collect();
            let named: Vec<&str> = named.iter().map(String::as_str).collect();
            let ended = confined(dir.path(), &named, Stdio::null());
            assert_eq!(ended.status, Some(2), "{args:?} {target:?}: {ended:?}");
            let is_refused = ["exceeds", "this is no file", "no baseline", "which has to have"];
            assert!(is_refused.iter().any(|why| ended.err.contains(why)), "{args:?} {target:?}: {ended:?}");
            assert!(ended.err.contains("; ") && ended.err.len() < 2000, "{args:?}: {ended:?}");
        }
    }
}

/// As above, for a pipe that somebody writes to without an end.
#[test]
fn endless_pipes_are_refused() {
    let dir = stage("unused", Path::new("/dev/null"));
    for args in READERS.iter().filter(|args| !args.contains(&"--baseline") && !args.contains(&"model:NAME")) {
        let mut writer = std::process::Command::new("cat")
            .arg("/dev/zero")
            .stdout(Stdio::piped())
            .spawn()
            .expect("a writer");
        let named: Vec<String> = args.iter().map(|word| word.replace("NAME", "/dev/stdin")).collect();
        let named: Vec<&str> = named.iter().map(String::as_str).collect();
        let pipe = writer.stdout.take().expect("its output");
        let ended = confined(dir.path(), &named, pipe.into());
        writer.wait().expect("it ends with its reader");
        assert_eq!(ended.status, Some(2), "{args:?}: {ended:?}");
        assert!(ended.err.contains("exceeds") || ended.err.contains("no file"), "{args:?}: {ended:?}");
    }
}

/// The time for a host file grows with its length: a quadratic one would not end before the command is stopped.
#[test]
fn host_file_at_its_limit_is_read_in_time() {
    let dir = tempfile::tempdir().expect("a directory");
    let hosts: String = (0..(4 << 20) / 9).map(|host| format!("h{host:07}\n")).collect();
    fs::write(dir.path().join("hosts"), hosts).expect("a file");
    let ended = confined(dir.path(), &["mpirun", "--hostfile", "hosts", "--dry-run", "true"], Stdio::null());
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.out.contains("h0000000 is reached by"), "{ended:?}");
}
