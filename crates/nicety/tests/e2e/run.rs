//! `nicety run`, end to end: the program replaces its process, so the caller's child is the program itself.

use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{command, nicety};

/// A file that takes the place of the library, in a folder of its own.
fn library() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("library.so");
    std::fs::write(&path, "").expect("a file");
    let path = path.display().to_string();
    (folder, path)
}

#[test]
fn run_replaces_itself_by_the_program() {
    let (_folder, library) = library();
    for kind in [&["--dat"][..], &[]] {
        let mut started = command()
            .args(
                [&["run"], kind, &["--library", &library, "--", "sh", "-c", "echo $$; exec sleep 600"]]
                    .concat(),
            )
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        let mut said = String::new();
        BufReader::new(started.stdout.take().expect("piped")).read_line(&mut said).expect("a line of output");
        let program = said.trim().parse::<u32>().expect("a number");
        let is_same = program == started.id();
        let pid = |number: u32| Pid::from_raw(number.cast_signed()).expect("a process");
        kill_process(pid(started.id()), Signal::TERM).expect("it is ours");
        let status = started.wait().expect("it ends");
        if !is_same {
            // Not replaced: the program would be left running.
            let _ = kill_process(pid(program), Signal::KILL);
        }
        assert!(is_same, "{kind:?}: {program} is not the one that was started");
        assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{kind:?}");
    }
}

#[test]
fn faults_are_part_of_the_devices_and_wrong_ones_are_refused() {
    let (folder, library) = library();
    let rules = folder.path().join("rules.toml");
    std::fs::write(&rules, "[[fault]]\non = \"write\"\nnth = 3\nstatus = \"RETRY_EXC_ERR\"\n")
        .expect("a file");
    let path = rules.canonicalize().expect("a path").display().to_string();
    let ended = nicety(["run", "--print-env", "--library", &library, "--faults", &path, "--chaos", "7"]);
    assert!(ended.out.contains(&format!("faults(shm,rules={path},chaos=7)")), "{ended:?}");
    let ended = nicety(["run", "--library", &library, "--chaos", "7", "--", "true"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.err.contains("chaos with seed 7:\n") && ended.err.contains("on="), "{ended:?}");
    std::fs::write(&rules, "[[fault]]\non = \"write\"\nstatus = \"NONE\"\n").expect("a file");
    let ended = nicety(["run", "--library", &library, "--faults", &path, "--", "true"]);
    assert_eq!(ended.status, Some(2), "{ended:?}");
    assert!(ended.err.contains("rules.toml:3: status = NONE is unknown; there is LOC_LEN_ERR"), "{ended:?}");
}

#[test]
fn rule_reaches_a_running_process() {
    let device = fabric::open("faults(shm)", &host::real::host()).expect("a device");
    let own = std::process::id().to_string();
    let ended = nicety(["fault", &own, "on=alloc_pd", "nth=2", "error=ENOMEM"]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(0), ""), "{ended:?}");
    device.alloc_pd().expect("the first");
    device.alloc_pd().expect_err("the second");
    let ended = nicety(["fault", &own, "list"]);
    assert!(
        ended.out.contains("rule 1 (run time: on=alloc_pd nth=2 error=ENOMEM) fired 1 times in 2"),
        "{ended:?}"
    );
    let ended = nicety(["fault", &own, "on=alloc_pd"]);
    assert!(ended.status == Some(2) && ended.err.contains("the rule says nothing that happens"), "{ended:?}");
    let ended = nicety(["fault", "1", "list"]);
    assert!(ended.status == Some(2) && ended.err.contains("nicety run --faults FILE"), "{ended:?}");
    assert_eq!(nicety(["fault", &own, "clear"]).status, Some(0));
    device.alloc_pd().expect("no rule is left");
}

#[test]
fn udapl_program_and_its_children_read_dat_conf() {
    let (_folder, library) = library();
    let line = format!("nicety u2.0 nonthreadsafe default {library} nicety.2.0 \"shm(dm=1M)\" \"\"");
    // The child closes the descriptors that it inherited.
    let script = format!(
        "grep -qxF '{line}' $DAT_OVERRIDE && sh -c 'exec 3<&- 4<&- 5<&- 6<&-; grep -c threadsafe $0' $DAT_OVERRIDE && exit 7"
    );
    let ended =
        nicety(["run", "--dat", "--device", "shm(dm=1M)", "--library", &library, "--", "sh", "-c", &script]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(7), "2\n"), "{ended:?}");
}
