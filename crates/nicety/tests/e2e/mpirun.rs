//! `nicety mpirun`, end to end. Every job must leave no process behind.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::common::{Ended, command, signal, wait};
use crate::stage::{Stage, lines, remark, remarks, rest, sorted};

#[test]
fn ranks_get_rank_and_size_and_exchange_addresses() {
    let stage = Stage::new();
    let who = "echo $PMI_RANK of $PMI_SIZE, $MPI_LOCALRANKID of $MPI_LOCALNRANKS, $NICETY_DEVICE";
    let ended = stage.run(&["-np", "3", "--tag", "--device", "iwarp", "sh", "-c", who]);
    assert_eq!((ended.status, remarks(&ended)), (Some(0), vec![]));
    let expected = [0, 1, 2].map(|rank| format!("[{rank}] {rank} of 3, {rank} of 3, iwarp"));
    assert_eq!(sorted(&ended.out), expected);
    let ring = stage.rank("ring", "ring");
    let ended = stage.run(&["-n", "4", &ring]);
    assert_eq!((ended.status, remarks(&ended)), (Some(0), vec![]));
    let expected = [0, 1, 2, 3].map(|rank| format!("rank {rank} finds at{}", (rank + 1) % 4));
    assert_eq!(sorted(&ended.out), expected);
}

/// Goal: the ranks' profiles are printed as tables and written to a page, and ranks without a profile are named.
#[test]
fn profile_is_printed_at_the_end() {
    let stage = Stage::new();
    let tell = "tell() { pmi put kvsname=$kvs key=profile-$PMI_RANK-$1 value=$2; }
join
tell 0 watched:2000000000,call:MPI_Send:10:10000
tell 1 00000:5000,sent:$(( (PMI_RANK + 1) % PMI_SIZE )):eager/ring:10:5000";
    let rank = stage.rank("told", &format!("{tell}\necho $NICETY_PROFILE; leave"));
    let ended = stage.run(&["-n", "2", "--profile", &rank]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(0), "1\n1\n"), "{ended:?}");
    let row = |name: &str| {
        let words = ended.err.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        words.into_iter().find(|line| line.starts_with(name)).unwrap_or_default()
    };
    assert_eq!(row("profile:"), "profile: 2 ranks, watched for 2.00 ms each, 50 % of it in MPI", "{ended:?}");
    assert_eq!(row("MPI_Send"), "MPI_Send 20 2.00 ms 100 % 100.00 us rank 0 1.00 ms 9.8 KiB");
    let page = fs::read_to_string(stage.path("nicety-profile.html")).expect("a page");
    assert!(ended.err.ends_with("nicety-profile.html\n") && page.contains("rank 1 to rank 0"), "{ended:?}");
    // One rank is killed before it has sent a profile, another sends an invalid one.
    let killed = stage
        .rank("killed", &format!("[ $PMI_RANK = 1 ] && {{ join; kill -9 $$; }}\n{tell}\nleave; sleep 1000"));
    let ended = stage.run(&["-n", "2", "--profile=p.html", &killed]);
    assert_eq!(ended.status, Some(137), "{ended:?}");
    assert!(
        ended.err.contains("Rank 1 is missing: it left")
            || ended.err.contains("Ranks 0, 1 are missing: they left"),
        "{ended:?}"
    );
    assert!(stage.path("p.html").exists());
    let wrong =
        stage.rank("wrong", "join; pmi put kvsname=$kvs key=profile-$PMI_RANK-0 value=nonsense; leave");
    let ended = stage.run(&["-n", "1", "--profile=p.html", &wrong]);
    let page = fs::read_to_string(stage.path("p.html")).expect("a page");
    assert!(ended.err.contains("Rank 0 is missing") && page.contains("Rank 0 is missing"), "{ended:?}");
    let refused = stage.run(&["-n", "1", "--profile=/nowhere/p.html", &rank]);
    assert!(refused.status == Some(2) && refused.err.contains("mkdir -p /nowhere"), "{refused:?}");
    assert_eq!(stage.run(&["-n", "1", &rank]).out, "\n", "nobody is asked for one");
}

#[test]
fn first_failure_determines_the_exit_status() {
    let stage = Stage::new();
    let ended = stage.run(&["-n", "2", "sh", "-c", "[ $PMI_RANK = 0 ] || exit 7; sleep 1000"]);
    let line = remark(&ended, 7);
    assert!(line.contains("rank 1 on ") && line.contains(") exited with 7; ending the other rank"), "{line}");
    let late = stage.rank("late", "join; leave; exit 3");
    let ended = stage.run(&["-n", "1", &late]);
    assert!(remark(&ended, 3).contains("exited with 3 after MPI_Finalize"), "{ended:?}");
    let abort = stage
        .rank("abort", "join; [ $PMI_RANK = 0 ] && pmi abort exitcode=9 message=so it is; pmi barrier_in");
    let ended = stage.run(&["-n", "3", &abort]);
    let line = remark(&ended, 9);
    assert!(
        line.contains("rank 0 on ")
            && line.contains("aborted the job with 9: so it is; ending the other 2 ranks"),
        "{line}"
    );
    for (code, status) in [(0, 0), (256, 1)] {
        let abort = stage.rank(
            &format!("abort-{code}"),
            &format!("join; [ $PMI_RANK = 0 ] && pmi abort exitcode={code}; pmi barrier_in"),
        );
        let ended = stage.run(&["-n", "2", &abort]);
        assert!(remark(&ended, status).contains(&format!("aborted the job with {code}")), "{ended:?}");
    }
}

#[test]
fn rank_that_leaves_waiting_peers_ends_the_job() {
    let stage = Stage::new();
    let waiting = "join; [ $PMI_RANK = 1 ] || { pmi barrier_in; sleep 1000; }\n";
    for (name, end, status, what) in [
        ("killed", "kill -9 $$", 137, "was killed by signal 9 (SIGKILL); ending the other"),
        ("failed", "exit 3", 3, "exited with 3 without MPI_Finalize; ending the other"),
        ("vanished", "exit 0", 1, "exited with 0 without MPI_Finalize; ending the other"),
        ("closed", "eval \"exec $PMI_FD>&-\"; sleep 1000", 1, "closed its connection to mpirun"),
        ("nonsense", "echo nonsense >&$PMI_FD; sleep 1000", 1, "violated the PMI protocol"),
    ] {
        let rank = stage.rank(name, &format!("{waiting}{end}"));
        let ended = stage.run(&["-n", "3", &rank]);
        let line = remark(&ended, status);
        assert!(line.contains("rank 1 on ") && line.contains(what), "{name}: {line}");
    }
    let silent = stage.rank("silent", "[ $PMI_RANK = 1 ] && exit 0; join; pmi barrier_in; sleep 1000");
    let ended = stage.run(&["-n", "2", &silent]);
    assert!(remark(&ended, 1).contains("rank 1 on "), "{ended:?}");
    assert!(ended.err.contains("without MPI_Init, which other ranks have called"), "{ended:?}");
}

/// Goal: processes started by ranks end with the job, even if they ignore requests to end. Method: sleeping children, some of
/// which ignore all signals except SIGKILL, of ranks that succeed and of ranks that fail.
#[test]
fn children_of_ranks_end_with_the_job() {
    let stage = Stage::new();
    let ended = stage.run(&["-n", "2", "sh", "-c", "sleep 1000 & exit 0"]);
    assert_eq!((ended.status, remarks(&ended)), (Some(0), vec![]));
    let deaf = "trap '' TERM INT; (trap '' TERM INT; sleep 1000) & sleep 1000; sleep 1000";
    let ended = stage.run(&["-n", "1", "sh", "-c", deaf, ":", "-n", "1", "sh", "-c", "exit 4"]);
    remark(&ended, 4);
}

/// Goal: other processes cannot connect to PMI. Method: checks that no process of a job, neither `mpirun` nor an agent, has a
/// listening socket.
#[test]
fn launchers_and_agents_have_no_listening_socket() {
    let stage = Stage::new();
    let rsh = stage.rsh();
    let own = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    assert!(has_listener("/proc/self"), "{own:?} is found");
    for hosts in [&[][..], &["--host", "a,b", "--rsh", &rsh]] {
        let rank = stage.rank("rank", "join; echo up; read -r line; leave");
        let args = [&["-n", "2"], hosts, &[rank.as_str()]].concat();
        let (mut mpirun, mut out) = stage.start(&args);
        assert_eq!(lines(&mut out, 2), ["up", "up"]);
        let processes = stage.processes();
        assert!(processes.len() >= 3, "{processes:?}");
        for process in processes {
            let (path, _) = process.split_once(':').expect("a path");
            // Some processes run only for a moment, such as a command of a rank's script.
            assert!(!has_listener(path), "{process}");
        }
        mpirun.kill().expect("it runs");
        assert_eq!(wait(&mut mpirun), None);
        stage.is_empty();
    }
}

/// Whether a process (a folder of proc(5)) has a listening socket; false if it has ended in the meantime.
fn has_listener(process: &str) -> bool {
    let table = |name: &str| fs::read_to_string(format!("{process}/net/{name}")).unwrap_or_default();
    // Listening: state 0A of TCP, flag SO_ACCEPTCON of Unix sockets.
    let of_tcp = ["tcp", "tcp6"].map(table).join("\n");
    let inode_of_tcp = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(3) == Some(&"0A")).then(|| words[9].to_owned())
    };
    let inode_of_unix = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(3) == Some(&"00010000")).then(|| words[6].to_owned())
    };
    let listening: Vec<String> = of_tcp
        .lines()
        .filter_map(inode_of_tcp)
        .chain(table("unix").lines().filter_map(inode_of_unix))
        .map(|inode| format!("socket:[{inode}]"))
        .collect();
    let held = fs::read_dir(format!("{process}/fd")).into_iter().flatten().flatten();
    held.filter_map(|entry| fs::read_link(entry.path()).ok())
        .any(|held| listening.iter().any(|socket| held.as_os_str() == socket.as_str()))
}

#[test]
fn ranks_end_if_mpirun_is_killed() {
    let stage = Stage::new();
    let rsh = stage.rsh();
    for hosts in [&[][..], &["--host", "a,b", "--rsh", &rsh]] {
        let rank = stage.rank("rank", "trap '' TERM HUP; join; sleep 1000 & echo up; sleep 1000; sleep 1000");
        let args = [&["-n", "2"], hosts, &[rank.as_str()]].concat();
        let (mut mpirun, mut out) = stage.start(&args);
        assert_eq!(lines(&mut out, 2), ["up", "up"]);
        mpirun.kill().expect("it runs");
        assert_eq!(wait(&mut mpirun), None);
        stage.is_empty();
    }
}

#[test]
fn signals_are_forwarded_to_ranks() {
    let stage = Stage::new();
    let rsh = stage.rsh();
    for hosts in [&[][..], &["--host", "a,b", "--rsh", &rsh]] {
        let with = |body: &str| {
            let args = [&["-n", "2"], hosts, &["sh", "-c", body]].concat();
            let (mpirun, mut out) = stage.start(&args);
            assert_eq!(lines(&mut out, 2), ["up", "up"]);
            (mpirun, out)
        };
        let patient = "trap 'echo usr; exit 0' USR1; sleep 1000 & echo up; wait";
        let (mpirun, mut out) = with(patient);
        signal(&mpirun, Signal::USR1);
        assert_eq!(lines(&mut out, 2), ["usr", "usr"]);
        let ended = rest(mpirun);
        assert_eq!((ended.status, remarks(&ended)), (Some(0), vec![]));
        // A rank that does not handle the signal dies of it; mpirun prints no remark about that.
        let (mpirun, _out) = with("echo up; sleep 1000; :");
        signal(&mpirun, Signal::TERM);
        let ended = rest(mpirun);
        assert_eq!((ended.status, remarks(&ended)), (Some(143), vec![]));
        let (mpirun, mut out) =
            with("trap 'echo no' INT; trap '' TERM; echo up; while :; do sleep 0.05; done");
        signal(&mpirun, Signal::INT);
        assert_eq!(lines(&mut out, 2), ["no", "no"]);
        signal(&mpirun, Signal::INT);
        let ended = rest(mpirun);
        assert_eq!((ended.status, remarks(&ended)), (Some(130), vec![]));
        stage.is_empty();
    }
}

#[test]
fn standard_input_goes_to_selected_ranks() {
    let stage = Stage::new();
    let rsh = stage.rsh();
    // More than a pipe holds, without a newline at the end.
    let input = "line of input\n".repeat(20_000) + "end";
    for hosts in [&[][..], &["--host", "a,b", "--rsh", &rsh]] {
        for (to, readers) in
            [(&[][..], 1), (&["--stdin", "1"], 1), (&["--stdin", "all"], 2), (&["--stdin", "none"], 0)]
        {
            let args = [hosts, to, &["-n", "2", "sh", "-c", "cat >in$PMI_RANK"]].concat();
            let (mut mpirun, _out) = stage.start(&args);
            // The write fails if no rank reads.
            let _ = mpirun.stdin.take().expect("its input").write_all(input.as_bytes());
            let ended = rest(mpirun);
            assert_eq!((ended.status, remarks(&ended)), (Some(0), vec![]), "{args:?}");
            let read = |rank: &str| fs::read_to_string(stage.path(rank)).expect("a file") == input;
            let found: Vec<&str> = ["in0", "in1"].into_iter().filter(|rank| read(rank)).collect();
            assert_eq!(found.len(), readers, "{args:?}: {found:?}");
            assert!(to != ["--stdin", "1"] || found == ["in1"], "{found:?}");
            stage.is_empty();
        }
    }
}

/// Goal: ranks' output arrives completely and in whole lines, on both streams. Method: four ranks write lines in pieces at the
/// same time.
#[test]
fn output_lines_of_ranks_are_not_mixed() {
    let stage = Stage::new();
    let rsh = stage.rsh();
    let body = "i=0; while [ $i -lt 300 ]; do printf %s $PMI_RANK-; printf '%s\\n' $i; echo e$PMI_RANK-$i >&2; i=$((i+1)); done";
    for hosts in [&[][..], &["--host", "a,b", "--rsh", &rsh]] {
        let args = [&["-n", "4"], hosts, &["sh", "-c", body]].concat();
        let ended = stage.run(&args);
        let all = |before: &str| -> Vec<String> {
            let mut all: Vec<String> =
                (0..4).flat_map(|rank| (0..300).map(move |i| format!("{before}{rank}-{i}"))).collect();
            all.sort();
            all
        };
        assert_eq!(sorted(&ended.out), all(""));
        let mut errors = remarks(&ended);
        errors.sort_unstable();
        assert_eq!(errors, all("e"));
    }
}

#[test]
fn closed_output_pipe_ends_the_job() {
    let stage = Stage::new();
    let (mpirun, mut out) = stage.start(&["-n", "2", "yes"]);
    assert_eq!(lines(&mut out, 1), ["y"]);
    drop(out);
    let ended = rest(mpirun);
    assert_eq!((ended.status, remarks(&ended)), (Some(141), vec![]));
    stage.is_empty();
}

#[test]
fn programs_have_their_own_variables_and_directories() {
    let stage = Stage::new();
    fs::create_dir(stage.path("sub")).expect("a directory");
    let print = "echo $PMI_RANK $A $B $(basename \"$PWD\")";
    let name = stage.dir.path().file_name().expect("a name").to_str().expect("text");
    let args =
        ["-n", "2", "-x", "A=1", "sh", "-c", print, ":", "-np", "1", "-x", "A=2", "-x", "B", "--wdir", "sub"];
    let output = stage.mpirun(&[&args[..], &["sh", "-c", print]].concat()).env("B", "b").output();
    let ended: Ended = output.expect("the command runs").into();
    assert_eq!(
        sorted(&ended.out),
        [format!("0 1 b {name}"), format!("1 1 b {name}"), "2 2 b sub".to_owned()]
    );
    let dry = stage.run(&["--dry-run", "-n", "2", "-x", "A=a b", "sh", ":", "--wdir", "/tmp", "cat", "-u"]);
    let expected: Vec<&str> = dry.out.lines().filter(|line| line.contains("A='a b' sh")).collect();
    assert_eq!((dry.status, expected.len()), (Some(0), 2), "{dry:?}");
    assert!(
        dry.out.lines().any(|line| line.starts_with("rank 2  ") && line.ends_with("cd /tmp && cat -u")),
        "{dry:?}"
    );
}

#[test]
fn job_ends_at_its_timeout() {
    let stage = Stage::new();
    let ended = stage.run(&["-n", "2", "--timeout", "0.3", "sleep", "1000"]);
    assert!(remark(&ended, 124).contains("--timeout 0.3 has expired, and 2 ranks still run"), "{ended:?}");
}

/// Goal: after a timeout, mpirun names the calls that ranks wait in, on all hosts. Method: ranks write the notes that our library
/// writes; one writes none, and one something else.
#[test]
fn timeout_names_the_calls_that_ranks_wait_in() {
    let stage = Stage::new();
    let rsh = stage.rsh();
    let note = r#"note() { printf 'nicety-calls-1\n%s' "$1" 1<>/proc/self/fd/$NICETY_CALLS_FD; }
case $PMI_RANK in 0|3) note .MPI_Recv ;; 1) note . ;; 2) ;; 4) note '.MPI_Wait, MPI_Barrier' ;; 5) note "x$(printf '\033')" ;; esac
sleep 1000"#;
    for hosts in [&[][..], &["--host", "a:3,b:3", "--rsh", &rsh]] {
        let ended = stage.run(&[hosts, &["-n", "6", "--timeout", "4", "bash", "-c", note]].concat());
        assert_eq!(ended.status, Some(124), "{ended:?}");
        let lines = remarks(&ended);
        assert_eq!(lines[0], "nicety: --timeout 4 has expired, and 6 ranks still run");
        let waits = [
            "nicety: rank 1 waited in no MPI call",
            "nicety: rank 0, rank 3 waited in MPI_Recv",
            "nicety: rank 4 waited in MPI_Wait, MPI_Barrier",
        ];
        assert_eq!(lines[1..], waits, "{ended:?}");
    }
    let without = stage.run(&["sh", "-c", "echo ${NICETY_CALLS_FD-unset}"]);
    assert_eq!(without.out, "unset\n", "there is no timeout");
}

#[test]
fn ranks_are_bound_to_cores_in_turn() {
    let stage = Stage::new();
    let print = "grep Cpus_allowed_list /proc/self/status";
    let bound = stage.run(&["-n", "2", "--bind", "core", "sh", "-c", print]);
    let free = stage.run(&["-n", "1", "sh", "-c", print]);
    let lists = [bound.out.lines().collect::<Vec<_>>(), free.out.lines().collect()].concat();
    assert_eq!(lists.len(), 3, "{bound:?} {free:?}");
    // With one core, or two threads of one core, all three are equal.
    let is_smaller = lists[0].len() <= lists[2].len() && lists[1].len() <= lists[2].len();
    assert!(is_smaller && (lists[0] != lists[1] || lists[0] == lists[2]), "{lists:?}");
}

/// Goal: the remark about shared cores can be suppressed, for scripts that read standard error. Method: more ranks than any
/// machine has cores, without and with the option.
#[test]
fn oversubscribe_suppresses_the_warning() {
    let stage = Stage::new();
    let said = |options: &[&str]| stage.run(&[options, &["-n", "300", "true"]].concat()).err;
    assert!(
        said(&[]).contains("300 ranks share")
            || std::thread::available_parallelism().is_ok_and(|n| n.get() >= 300)
    );
    assert_eq!(said(&["--oversubscribe", "--allow-run-as-root"]), "");
}

/// Goal: ranks do not share cores if there are enough, and are not bound otherwise. Method: compares the kernel's affinity list
/// of each rank with that of a single rank, which may use all cores.
#[test]
fn ranks_are_bound_to_shares_of_the_cores() {
    let stage = Stage::new();
    let print = "grep Cpus_allowed_list /proc/self/status";
    let lists = |ranks: &str| {
        let ended = stage.run(&["-n", ranks, "sh", "-c", print]);
        ended.out.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let (all, two, many) = (lists("1"), lists("2"), lists("300"));
    assert_eq!((all.len(), two.len(), many.len()), (1, 2, 300));
    if two[0] == two[1] {
        assert_eq!(two[0], all[0], "two on one core: they are bound to nothing");
    } else {
        assert!(two.iter().all(|list| *list != all[0]), "{two:?} of {all:?}");
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    assert!(cores >= 300 || many.iter().all(|list| *list == all[0]), "{many:?}");
}

#[test]
fn each_host_is_reached_by_its_own_agent() {
    let stage = Stage::new();
    let rsh = stage.rsh();
    let ring = stage.rank("ring", "ring; echo nodes $MPI_LOCALRANKID of $MPI_LOCALNRANKS");
    let ended = stage.run(&["--host", "a:2,b:1", "--rsh", &rsh, "-n", "3", "--tag", &ring]);
    assert_eq!((ended.status, remarks(&ended)), (Some(0), vec![]));
    let expected = [
        "[0] nodes 0 of 2",
        "[0] rank 0 finds at1",
        "[1] nodes 1 of 2",
        "[1] rank 1 finds at2",
        "[2] nodes 0 of 1",
        "[2] rank 2 finds at0",
    ];
    assert_eq!(sorted(&ended.out), expected);
    fs::write(stage.path("hosts"), "a slots=1\nlocalhost:1 # here\n").expect("a file");
    let ended = stage.run(&["--hostfile", "hosts", "--rsh", &rsh, "-n", "2", &ring]);
    assert_eq!((ended.status, ended.out.lines().count()), (Some(0), 4), "{ended:?}");
    let ended = stage.run(&[
        "--host",
        "a,b",
        "--rsh",
        &rsh,
        "-n",
        "2",
        "sh",
        "-c",
        "[ $PMI_RANK = 0 ] || exit 6; sleep 1000",
    ]);
    assert!(remark(&ended, 6).contains("rank 1 on b (pid "), "{ended:?}");
    let ended = stage.run(&["--host", "a", "--rsh", &rsh, "-n", "2", "./missing"]);
    assert!(
        remark(&ended, 1).contains(" on a: ./missing cannot be started: there is no such file; "),
        "{ended:?}"
    );
}

/// Goal: all processes of an mpirun share a key, for programs that get none by PMI, and nobody else can read it. Method: ranks
/// print their key; the command lines that reach another host are recorded and searched for it.
#[test]
fn job_key_is_on_no_command_line() {
    let stage = Stage::new();
    let rsh = stage.program("rsh", "#!/bin/sh\necho \"$*\" >> lines\nshift\nexec sh -c \"$*\"\n");
    let say = stage.program(
        "say",
        "#!/bin/sh\necho $NICETY_JOB_KEY $OTHER\ntr '\\0' ' ' < /proc/$PPID/cmdline >> lines\n",
    );
    let key = |variables: &[&str]| {
        let args = ["--host", "localhost,a", "--rsh", &rsh, "-n", "2"];
        let mut mpirun = stage.mpirun(&[&args[..], variables, &[&say]].concat());
        let ended = Ended::from(mpirun.env("NICETY_JOB_KEY", "of another job").output().expect("it runs"));
        assert_eq!((ended.status, remarks(&ended)), (Some(0), vec![]));
        let (one, other) = ended.out.trim().split_once('\n').expect("two lines");
        assert_eq!(one, other, "on both hosts");
        one.to_owned()
    };
    let (first, second) = (key(&["-x", "OTHER=secret"]), key(&["-x", "OTHER=secret"]));
    let first = first.strip_suffix(" secret").expect("the other variable");
    assert!(first.len() == 32 && first.bytes().all(|byte| byte.is_ascii_hexdigit()), "{first}");
    assert_ne!(format!("{first} secret"), second, "each job has its own");
    let lines = fs::read_to_string(stage.path("lines")).expect("command lines");
    assert!(lines.contains("a exec ") && lines.contains("mpirun --agent"), "{lines}");
    let of_mpirun = lines.matches("OTHER=secret").count();
    assert_eq!(of_mpirun, 2, "on mpirun's own command line alone: {lines}");
    assert!(!lines.contains(first) && !lines.contains("another job"), "{lines}");
    assert_eq!(key(&["-x", "NICETY_JOB_KEY=mine"]), "mine", "it may be chosen");
}

/// Goal: a job whose hosts reach each other by a public address prints one warning. Method: hosts with network namespaces of
/// their own.
#[test]
fn public_network_gives_a_warning() {
    let stage = Stage::new();
    let rsh = |name: &str, network: &str| {
        let text = format!(
            "#!/bin/sh\nhost=$1; shift\n\
             exec unshare --user --map-root-user --net sh -c \"ip link set lo up; ip address add {network}.$host/24 dev lo; $*\"\n"
        );
        stage.program(name, &text)
    };
    if !Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "ip", "address"])
        .output()
        .is_ok_and(|ended| ended.status.success())
    {
        eprintln!("SKIPPED: no networks of their own here");
        return;
    }
    let run = |rsh: &str| {
        let ended = stage.run(&["--host", "1,2", "--rsh", rsh, "-n", "4", "true"]);
        assert_eq!(ended.status, Some(0), "{ended:?}");
        remarks(&ended).into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(run(&rsh("inside", "10.9.8")), Vec::<String>::new());
    let said = run(&rsh("outside", "203.0.113"));
    assert!(
        said.len() == 1 && said[0].contains("1 reaches 2 by 203.0.113.2, which is not a private address"),
        "{said:?}"
    );
}

#[test]
fn unreachable_host_ends_the_job() {
    let stage = Stage::new();
    let refuse = stage.program(
        "refuse",
        "#!/bin/sh\n[ $1 = a ] || { echo $1: no route >&2; exit 255; }\nshift\nexec sh -c \"$*\"\n",
    );
    let ended = stage.run(&["--host", "a,b", "--rsh", &refuse, "-n", "2", "sleep", "1000"]);
    let line = remark(&ended, 1);
    assert!(line.contains("the host b is lost: ./refuse ended (exit status: 255): b: no route; "), "{line}");
    let ended = stage.run(&["--host", "a", "--rsh", "./no-such-rsh", "sh"]);
    assert!(remark(&ended, 1).contains("./no-such-rsh cannot be started: "), "{ended:?}");
    // A host that vanishes while the job runs.
    let rsh =
        stage.program("dying", "#!/bin/sh\nshift\nexec 3<&0\nsh -c \"$*\" <&3 & echo $! >agent; wait\n");
    let (mpirun, mut out) =
        stage.start(&["--host", "a,b", "--rsh", &rsh, "-n", "2", "sh", "-c", "echo up; sleep 1000"]);
    lines(&mut out, 2);
    let agent: i32 =
        fs::read_to_string(stage.path("agent")).expect("a file").trim().parse().expect("a number");
    let agent = rustix::process::Pid::from_raw(agent).expect("a process");
    rustix::process::kill_process(agent, Signal::KILL).expect("it runs");
    let ended = rest(mpirun);
    assert!(remark(&ended, 1).contains(" is lost: ./dying ended"), "{ended:?}");
    stage.is_empty();
}

/// `nicety serve` at an address that does not count as this host, with its secret in a file of a stage.
struct Hired {
    server: Child,
    /// `serve:PORT`.
    via: String,
}

impl Hired {
    const ADDR: &str = "127.0.0.2";

    fn new(stage: &Stage, more: &[&str]) -> Self {
        let file = stage.path("token");
        fs::write(&file, "0123456789abcdef").expect("a file");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("a mode");
        let mut serve = command();
        serve.args(["serve", "--listen", "127.0.0.2:0", "--token-file"]).arg(&file).args(more);
        let mut server =
            serve.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the command runs");
        let mut log = BufReader::new(server.stdout.take().expect("its output"));
        let first = lines(&mut log, 1).remove(0);
        let (_, port) = first.rsplit_once(':').expect("an address");
        let via = format!("serve:{port}");
        std::thread::spawn(move || log.lines().count());
        Self { server, via }
    }

    /// The arguments of a job of this many ranks: the first runs on this host, the others on the server's.
    fn args<'a>(&'a self, stage: &'a Stage, ranks: &'a str, program: &[&'a str]) -> Vec<&'a str> {
        let hosts = ["--host", "localhost,127.0.0.2:3", "--via", &self.via, "--token-file", "token"];
        [&hosts[..], &["-n", ranks, "-x", &stage.mark], program].concat()
    }
}

impl Drop for Hired {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

#[test]
fn hosts_are_reached_through_a_server() {
    let stage = Stage::new();
    let hired = Hired::new(&stage, &["--allow-run"]);
    let ring =
        stage.rank("ring", "ring; echo local $MPI_LOCALRANKID of $MPI_LOCALNRANKS, token $NICETY_TOKEN");
    let ended = stage.run(&hired.args(&stage, "3", &["--tag", &ring]));
    assert_eq!((ended.status, remarks(&ended)), (Some(0), vec![]));
    let expected = [
        "[0] local 0 of 1, token",
        "[0] rank 0 finds at1",
        "[1] local 0 of 2, token",
        "[1] rank 1 finds at2",
        "[2] local 1 of 2, token",
        "[2] rank 2 finds at0",
    ];
    assert_eq!(sorted(&ended.out), expected);
    let ended = stage.run(&hired.args(&stage, "2", &["sh", "-c", "[ $PMI_RANK = 0 ] || exit 6; sleep 1000"]));
    assert!(remark(&ended, 6).contains(&format!("rank 1 on {} (pid ", Hired::ADDR)), "{ended:?}");
}

#[test]
fn ranks_of_a_server_end_with_mpirun_and_with_the_server() {
    let stage = Stage::new();
    let mut hired = Hired::new(&stage, &["--allow-run"]);
    let rank = ["sh", "-c", "trap '' TERM HUP; echo up; sleep 1000; sleep 1000"];
    let (mut mpirun, mut out) = stage.start(&hired.args(&stage, "2", &rank));
    assert_eq!(lines(&mut out, 2), ["up", "up"]);
    mpirun.kill().expect("it runs");
    assert_eq!(wait(&mut mpirun), None);
    stage.is_empty();
    let (mpirun, mut out) = stage.start(&hired.args(&stage, "2", &rank));
    assert_eq!(lines(&mut out, 2), ["up", "up"]);
    signal(&hired.server, Signal::TERM);
    assert!(remark(&rest(mpirun), 137).contains("rank 1 on 127.0.0.2 "));
    wait(&mut hired.server);
    stage.is_empty();
}

#[test]
fn server_runs_no_program_without_option_and_token() {
    let stage = Stage::new();
    let hired = Hired::new(&stage, &["--allow-run"]);
    let plain = Hired::new(&stage, &[]);
    let ended = stage.run(&plain.args(&stage, "2", &["sleep", "1000"]));
    let line = remark(&ended, 1);
    assert!(line.contains("the host 127.0.0.2 is lost: ") && line.contains("with --allow-run"), "{line}");
    let mut args = hired.args(&stage, "2", &["sleep", "1000"]);
    let file = args.iter().position(|word| *word == "--token-file").expect("an option");
    (args[file], args[file + 1]) = ("--token", "fedcba9876543210");
    let line = stage.run(&args);
    assert!(remark(&line, 1).contains("tokens of the two sides differ"), "{line:?}");
    args.drain(file..file + 2);
    stage.run(&args).is_error(2, "needs the secret");
    let refused = command().args(["serve", "--allow-run"]).output().expect("the command runs");
    Ended::from(refused).is_error(2, "every client could run programs as this user");
}

#[test]
fn rank_spawns_processes() {
    let stage = Stage::new();
    let child = stage.rank("child", "join; pmi get kvsname=$kvs key=parent; echo child $PMI_RANK of $PMI_SIZE $PMI_SPAWNED ${answer##*value=}; leave");
    let lines = "mcmd=spawn\\nnprocs=2\\nexecname=NAME\\ntotspawns=1\\nspawnssofar=1\\nargcnt=0\\npreput_num=1\\n\
                 preput_key_0=parent\\npreput_val_0=me\\ninfo_num=0\\nendcmd\\n";
    let spawn = |name: &str| {
        format!(
            "join; printf '{}' >&$PMI_FD; read -r answer <&$PMI_FD; echo $answer; leave",
            lines.replace("NAME", name)
        )
    };
    let parent = stage.rank("parent", &spawn(&child));
    let ended = stage.run(&["-n", "1", &parent]);
    assert_eq!(
        sorted(&ended.out),
        ["child 0 of 2 1 me", "child 1 of 2 1 me", "cmd=spawn_result rc=0 errcodes=0,0"],
        "{ended:?}"
    );
    let refused = stage.rank("refused", &spawn("./missing"));
    let ended = stage.run(&["-n", "1", &refused]);
    assert_eq!(
        (ended.status, ended.out.as_str()),
        (Some(0), "cmd=spawn_result rc=1 errcodes=1,1\n"),
        "{ended:?}"
    );
    assert!(remarks(&ended)[0].contains("rank 0 cannot spawn processes: ./missing"), "{ended:?}");
}

#[test]
fn job_that_cannot_run_is_refused_in_one_line() {
    let stage = Stage::new();
    fs::write(stage.path("plain"), "").expect("a file");
    stage.run(&["no-such-program"]).is_error(2, "there is no program no-such-program in PATH");
    stage.run(&["./plain"]).is_error(2, "it is not executable");
    stage.run(&["-n", "2"]).is_error(2, "no program is given");
    stage.run(&["-n", "0", "sh"]).is_error(2, "0");
    stage.run(&["--stdin", "x", "sh"]).is_error(2, "is not a rank");
    stage.run(&["--timeout", "never", "sh"]).is_error(2, "not a number of seconds");
    stage.run(&["--host", "a", "--hostfile", "b", "sh"]).is_error(2, "cannot be combined with");
    stage.run(&["--hostfile", "none", "sh"]).is_error(2, "cannot be read");
    stage.program("broken", "#!/no/such/interpreter\n");
    let ended = stage.run(&["-n", "2", "./broken"]);
    assert!(remark(&ended, 1).contains("its interpreter does not exist; "), "{ended:?}");
}

#[test]
fn too_many_ranks_for_the_limits_are_refused() {
    let stage = Stage::new();
    let mut limited = Command::new("sh");
    let (name, value) = stage.mark.split_once('=').expect("a variable");
    let script = "ulimit -n 100; exec \"$0\" mpirun -n 40 sleep 1000";
    limited.args(["-c", script, env!("CARGO_BIN_EXE_nicety")]).env(name, value).current_dir(stage.dir.path());
    let ended: Ended = limited.output().expect("sh").into();
    stage.is_empty();
    let line = remark(&ended, 1);
    assert!(line.contains("40 ranks on one host need ") && line.contains("but the limit is 100; "), "{line}");
}

/// Writes after the end of the rank that started it, when mpirun asks all remaining processes to end.
const LATE: &str =
    "trap '' TERM; (until grep -q '^State:.Z' /proc/$$/status; do :; done; echo late) & exit 0";

/// Goal: output that cannot be written is an error, at any time. Method: standard output is a full device; whole lines,
/// unfinished lines, and output of a rank's child after all ranks have ended.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let stage = Stage::new();
    for script in ["echo hello", "printf hello", LATE] {
        let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let mut mpirun = stage.mpirun(&["--oversubscribe", "-n", "2", "sh", "-c", script]);
        let ended: Ended = mpirun.stdout(full).output().expect("the command runs").into();
        stage.is_empty();
        assert_eq!(ended.status, Some(1), "{script}: {ended:?}");
        let said = "nicety: cannot write to standard output: No space left on device";
        assert!(ended.err.starts_with(said) && ended.err.contains("; "), "{script}: {ended:?}");
        assert_eq!(ended.err.lines().count(), 1, "{script}: {ended:?}");
    }
}

/// The same for standard error, where the failure itself cannot be reported.
#[test]
fn errors_that_cannot_be_written_are_a_status() {
    let stage = Stage::new();
    for script in ["echo hello >&2", "printf hello >&2", &LATE.replace("late", "late >&2")] {
        let full = fs::File::options().write(true).open("/dev/full").expect("/dev/full");
        let mut mpirun = stage.mpirun(&["--oversubscribe", "-n", "2", "sh", "-c", script]);
        let ended: Ended = mpirun.stderr(full).output().expect("the command runs").into();
        stage.is_empty();
        assert_eq!((ended.status, ended.out.as_str()), (Some(1), ""), "{script}: {ended:?}");
    }
}

/// Goal: if the reader of the output has gone, the job ends without a message, with the status that shells report for SIGPIPE.
#[test]
fn output_without_reader_is_status_141() {
    let stage = Stage::new();
    for script in ["echo hello", "printf hello", LATE, "while echo hello; do :; done"] {
        let mut mpirun = stage.mpirun(&["--oversubscribe", "-n", "2", "sh", "-c", script]);
        let mut mpirun =
            mpirun.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the command runs");
        drop(mpirun.stdout.take());
        let ended = rest(mpirun);
        stage.is_empty();
        assert_eq!((ended.status, ended.err.as_str()), (Some(141), ""), "{script}: {ended:?}");
    }
}

/// Goal: mpirun needs no /proc, neither to start ranks nor to report failures. Method: a mount namespace with an empty /proc.
#[test]
fn ranks_start_without_proc() {
    let stage = Stage::new();
    let mpirun = stage.mpirun(&["--oversubscribe", "-n", "2", "sh", "-c", "echo rank $PMI_RANK"]);
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "sh", "-c", "mount -t tmpfs none /proc || exit 77; exec \"$@\"", "sh"]);
    unshare.arg(mpirun.get_program()).args(mpirun.get_args()).current_dir(stage.dir.path());
    let ended: Ended = unshare.output().expect("unshare").into();
    if ended.status == Some(77) || ended.err.contains("unshare failed") {
        eprintln!("SKIPPED: /proc cannot be hidden here: {}", ended.err);
        return;
    }
    assert_eq!((ended.status, sorted(&ended.out)), (Some(0), vec!["rank 0", "rank 1"]), "{ended:?}");
}

/// Writes a library in which every process is a job of one rank, like other MPI libraries without their launcher, and a program
/// linked to it. `None` without a compiler.
fn other_mpi(stage: &Stage) -> Option<()> {
    let library = "int MPI_Init(void *a, void *b) { return 0; }\nint size(void) { return 1; }\n";
    let program = "#include <stdio.h>\nint size(void);\nint main(void) { printf(\"rank 0 of %d\\n\", size()); return 0; }\n";
    fs::write(stage.path("l.c"), library).expect("a source");
    fs::write(stage.path("p.c"), program).expect("a source");
    fs::write(stage.path("x.c"), "int other(void) { return 1; }\n").expect("a source");
    fs::create_dir(stage.path("lib")).expect("a directory");
    let lines = [
        "cc -shared -fPIC -Wl,-soname,libmpi.so.41 -o lib/libmpi.so.41 l.c",
        "cc -shared -fPIC -Wl,-soname,libother.so.1 -o libother.so.1 x.c",
        "cc -o p p.c lib/libmpi.so.41",
        "cc -o both -Wl,--no-as-needed p.c lib/libmpi.so.41 ./libother.so.1",
        "cc -static -o static x.c -Wl,--defsym=main=other",
    ];
    let compiles = |line: &str| {
        let status = Command::new("sh").args(["-c", line]).current_dir(stage.dir.path()).status();
        status.is_ok_and(|status| status.success())
    };
    if !lines.into_iter().all(compiles) {
        eprintln!("SKIPPED: there is no C compiler here");
        return None;
    }
    fs::remove_file(stage.path("libother.so.1")).expect("a file");
    Some(())
}

#[test]
fn missing_mpi_library_is_named() {
    let stage = Stage::new();
    let Some(()) = other_mpi(&stage) else { return };
    for place in [&["-n", "2"][..], &["-n", "1"], &["-n", "2", "--host", "a", "--rsh", &stage.rsh()]] {
        let ended = stage.run(&[place, &["./p"]].concat());
        assert_eq!(ended.status, Some(127), "{ended:?}");
        let said = "nicety: ./p needs libmpi.so.41 (Open MPI), which the loader cannot find; recompile it with `nicety mpicc`";
        let hints = ended.err.lines().filter(|line| line.starts_with(said)).count();
        assert_eq!(hints, 1, "{place:?}: {ended:?}");
        assert!(ended.err.contains("exited with 127"), "{ended:?}");
    }
}

#[test]
fn ranks_linked_to_another_mpi_library_get_a_hint() {
    let stage = Stage::new();
    let Some(()) = other_mpi(&stage) else { return };
    let ended = stage.run(&["--oversubscribe", "-n", "2", "-x", "LD_LIBRARY_PATH=lib", "./p"]);
    assert_eq!((ended.status, ended.out.as_str()), (Some(0), "rank 0 of 1\nrank 0 of 1\n"), "{ended:?}");
    assert_eq!(ended.err.lines().count(), 1, "{ended:?}");
    assert!(
        ended.err.starts_with("nicety: ./p is linked to libmpi.so.41 (Open MPI), so no rank has joined"),
        "{ended:?}"
    );
}

/// Goal: mpirun does not mention MPI libraries when they are not the cause. Method: programs without one, a script and a shell
/// whose command is missing, a static program, an interpreter, a job of one rank, and a program that lacks another library.
#[test]
fn programs_without_mpi_library_get_no_hint() {
    let stage = Stage::new();
    let Some(()) = other_mpi(&stage) else { return };
    let script = stage.program("script", "#!/bin/sh\nexit 127\n");
    let search = ["-x", "LD_LIBRARY_PATH=lib"];
    for (args, status) in [
        (&["-n", "2", "hostname"][..], 0),
        (&["-n", "2", "sh", "-c", "no-such-program-here"], 127),
        (&["-n", "2", &script], 127),
        (&["-n", "2", "./static"], 1),
        (&["-n", "2", "perl", "-e", "print 1"], 0),
        (&["-n", "1", search[0], search[1], "./p"], 0),
        (&["-n", "2", search[0], search[1], "./both"], 127),
    ] {
        let ended = stage.run(&[&["--oversubscribe"], args].concat());
        assert_eq!(ended.status, Some(status), "{args:?}: {ended:?}");
        let lines: Vec<&str> = ended.err.lines().filter(|line| line.starts_with("nicety: ")).collect();
        assert_eq!(lines.len(), usize::from(status != 0), "{args:?}: {ended:?}");
        assert!(!lines.iter().any(|line| line.contains("libmpi")), "{args:?}: {ended:?}");
    }
}
