//! Programs in C, built with our header and our library: alone, and as ranks of a job. The sources are in tests/c.

mod common;

use std::io::Write as _;
use std::net::Shutdown;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use common::job::{run_job, run_job_on_hosts, run_job_to_its_end};
use common::{Compiled, compile, has_compiler, run};

/// Compiles a program of tests/c.
fn program(name: &str, source: &str) -> Compiled {
    let include = concat!("-I", env!("CARGO_MANIFEST_DIR"), "/tests/c");
    compile(name, source, &[include, "-std=gnu11", "-Wall", "-Werror"])
}

#[test]
fn a_program_runs_alone() {
    if !has_compiler() {
        return;
    }
    let alone = program("alone", include_str!("c/single_process.c"));
    assert_eq!(run(Command::new(alone.path())), "all is well 1\n");
}

#[test]
fn errors_have_their_class_and_name_the_argument() {
    if !has_compiler() {
        return;
    }
    let errors = program("errors", include_str!("c/errors.c"));
    assert_eq!(run(Command::new(errors.path())), "every error is named\n");
}

/// With an error handler that returns, the log of failed calls still names the rank, the call, the argument and the cause.
#[test]
fn failed_calls_are_explained() {
    if !has_compiler() {
        return;
    }
    let errors = program("errors", include_str!("c/errors.c"));
    let mut logged = with(Command::new(errors.path()), &[("NICETY_LOG", "errors")]);
    let output = logged.output().expect("it starts");
    assert!(output.status.success());
    let log = String::from_utf8_lossy(&output.stderr);
    for (call, words) in [
        (
            "MPI_Send",
            "destination 5 is not a rank of a communicator of 1; pass a rank of the communicator or group",
        ),
        ("MPI_Isend", "destination -1"),
        ("MPI_Send", "tag -2 of a send is negative; pass 0 to MPI_TAG_UB"),
        ("MPI_Send_c", "count: -1 is negative; pass a count"),
        ("MPI_Send", "buf: "),
        ("MPI_Send", "MPI_Type_commit"),
        ("MPI_Send", "comm: "),
        ("MPI_Isend", "request: its address is NULL"),
        ("MPI_Recv", "source 5"),
        ("MPI_Recv", "room for 4; receive with a larger count, or probe for the size first (error class 15"),
        (
            "MPI_Wait",
            "request: the handle is not a request, or its request was completed or freed; pass a request",
        ),
        ("MPI_Mrecv", "message: "),
        ("MPI_Bsend", "MPI_Buffer_attach"),
        ("MPI_Allreduce", "MPI_IN_PLACE"),
        ("MPI_Gather", "recvbuf"),
        ("MPI_Comm_free", "comm: "),
        ("MPI_Info_set", "info: "),
        ("MPI_Type_free", "datatype: "),
        ("MPI_Init", "once"),
    ] {
        let start = format!("nicety: rank 0: {call}: ");
        let is_there = log.lines().any(|line| line.starts_with(&start) && line.contains(words));
        assert!(is_there, "{call}: {words}: {log}");
    }
    let mut all = with(Command::new(errors.path()), &[("NICETY_LOG", "calls")]);
    let log = String::from_utf8_lossy(&all.output().expect("it starts").stderr).into_owned();
    assert!(log.contains("nicety: rank 0: MPI_Isend = 0 ("), "{log}");
}

/// Only memory limits the number of objects and requests; errors report a shortage.
#[test]
fn objects_are_limited_by_memory() {
    if !has_compiler() {
        return;
    }
    let many = program("many", include_str!("c/many.c"));
    assert_eq!(run(Command::new(many.path())), "done\n");
    for device in ["shm", "iwarp"] {
        let mut limited = Command::new("sh");
        limited.args(["-c", "ulimit -d 100000; exec \"$0\""]).arg(many.path());
        assert_eq!(run(with(limited, &[("TEST_LIMITED", "1"), ("NICETY_DEVICE", device)])), "done\n");
    }
}

fn with(mut command: Command, variables: &[(&str, &str)]) -> Command {
    command.envs(variables.iter().copied());
    command
}

/// The default error handler ends the program with one line that names the rank, the call and the cause.
#[test]
fn a_fatal_error_prints_one_line() {
    if !has_compiler() {
        return;
    }
    let source = "#include <mpi.h>\nint main(void) {\n\
        MPI_Init(0, 0);\nint x = 0;\nMPI_Send(&x, 1, MPI_INT, 5, 0, MPI_COMM_WORLD);\nreturn 0;\n}\n";
    let output = Command::new(program("wrong", source).path()).output().expect("it starts");
    let said = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(said.starts_with("nicety: rank 0: MPI_Send: ") && said.contains('5'), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Goal: the text of a variable in an error line cannot control a terminal or forge a line. Method: an unknown device with control
/// characters in its name.
#[test]
fn error_line_has_no_control_characters_of_variables() {
    if !has_compiler() {
        return;
    }
    let alone = program("alone", include_str!("c/single_process.c"));
    let mut command = Command::new(alone.path());
    let output = command.env("NICETY_DEVICE", "\u{1b}[2J\nworse").output().expect("it starts");
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.starts_with("nicety: ") && said.contains("\\u{1b}[2J\\nworse"), "{said:?}");
    assert!(!said.trim_end().contains(char::is_control), "{said:?}");
}

/// Goal: without random numbers there are no secret keys, and so no job: an error gives the reason, where `iwarp` retried forever.
/// Method: a seccomp filter fails getrandom(2) as forbidden, unknown and not ready, in a program that runs alone.
#[test]
fn init_without_random_numbers_is_an_error() {
    if !has_compiler() {
        return;
    }
    let program = program("no_random", include_str!("c/no_random.c"));
    for device in ["shm", "iwarp"] {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EAGAIN] {
            let mut command = Command::new(program.path());
            let output =
                command.arg(errno.to_string()).env("NICETY_DEVICE", device).output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr);
            if output.status.code() == Some(77) {
                eprintln!("SKIPPED: there are no filters of system calls here: {said}");
                return;
            }
            let case = format!("{device}, {errno}: {}, {said}", output.status);
            assert!(output.status.code().is_some_and(|status| status != 0), "{case}");
            assert!(output.stdout.is_empty() && said.lines().count() == 1, "{case}");
            assert!(said.starts_with("nicety: ") && said.contains("random numbers"), "{case}");
        }
    }
}

/// Runs a program as ranks at several sizes over one device.
fn ranks(name: &str, source: &str, device: &str, sizes: &[usize]) {
    if !has_compiler() {
        return;
    }
    let program = program(name, source);
    for &size in sizes {
        let expected: Vec<String> = (0..size).map(|rank| format!("rank {rank} of {size} is done")).collect();
        assert_eq!(run_job(&program.path(), size, &[("NICETY_DEVICE", device)]), expected);
    }
}

#[test]
fn ring_messages_arrive_on_shm() {
    ranks("ring", include_str!("c/ring.c"), "shm", &[1, 2, 4]);
}

#[test]
fn ring_messages_arrive_on_iwarp() {
    ranks("ring", include_str!("c/ring.c"), "iwarp", &[2, 4]);
}

/// Two network namespaces joined by a virtual wire, created without privileges. Each exists as long as its process.
struct Wire([std::process::Child; 2]);

impl Wire {
    /// `None` if namespaces are unavailable.
    fn new() -> Option<Self> {
        let sleep = |command: &mut Command| {
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
            let mut said = String::new();
            let out = child.stdout.as_mut()?;
            std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut said).ok()?;
            (said == "there\n").then_some(child)
        };
        // They exit with this process, which holds the other end of their pipe.
        let wait = ["sh", "-c", "echo there; exec cat"];
        let first = sleep(Command::new("unshare").args(["--user", "--map-root-user", "--net"]).args(wait))?;
        let of_first = first.id().to_string();
        let enter = |net: &str| {
            let mut command = Command::new("nsenter");
            command.args(["--user", "--preserve-credentials", "--target", &of_first]);
            command.arg(format!("--net=/proc/{net}/ns/net"));
            command
        };
        let second = sleep(enter(&of_first).args(["unshare", "--net"]).args(wait))?;
        let of_second = second.id().to_string();
        let wire = Self([first, second]);
        let run = |net: &str, script: &str| {
            enter(net).args(["sh", "-ec", script]).status().is_ok_and(|status| status.success())
        };
        let laid = run(
            &of_first,
            &format!(
                "ip link add one type veth peer name two netns {of_second}; ip addr add 10.77.5.1/24 dev one; \
                 ip link set one up; ip link set lo up; ip addr add 172.17.0.1/16 dev lo"
            ),
        ) && run(
            &of_second,
            "ip addr add 10.77.5.2/24 dev two; ip link set two up; ip link set lo up; ip addr add 172.17.0.1/16 dev lo",
        );
        laid.then_some(wire)
    }

    /// A script that runs a program in the first namespace for even ranks, and in the second one for odd ranks.
    fn script(&self, program: &std::path::Path, place: &std::path::Path) {
        let [first, second] = self.0.each_ref().map(std::process::Child::id);
        let text = format!(
            "#!/bin/sh\n[ $((PMI_RANK % 2)) = 0 ] && net={first} || net={second}\n\
             exec nsenter --user --preserve-credentials --target {first} --net=/proc/$net/ns/net {}\n",
            program.display()
        );
        std::fs::write(place, text).expect("written");
        std::fs::set_permissions(place, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mine");
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        for child in self.0.iter_mut().rev() {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Goal: hosts reach each other without configuration: `shm` within a host, `iwarp` between hosts, at the address on the common
/// network. Method: ranks in two namespaces joined by a wire, which also share another, identical address.
#[test]
fn ranks_on_several_hosts_communicate() {
    if !has_compiler() {
        return;
    }
    let Some(wire) = Wire::new() else {
        eprintln!("SKIPPED: no networks of their own here");
        return;
    };
    let (ring, collectives) =
        (program("ring", include_str!("c/ring.c")), program("collectives", include_str!("c/collectives.c")));
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("run");
    for (built, variables) in [
        (&ring, &[][..]),
        (&collectives, &[]),
        (&ring, &[("NICETY_DEVICE", "iwarp")]),
        (&ring, &[("NICETY_NETWORK", "10.77.5.0/24")]),
        (&ring, &[("NICETY_LANE", "portals"), ("NICETY_NETWORK", "10.77.0.0/16")]),
    ] {
        wire.script(&built.path(), &script);
        let (ended, _) = run_job_on_hosts(&script, 4, 2, variables);
        let said: Vec<String> =
            ended.iter().map(|rank| String::from_utf8_lossy(&rank.stderr).into()).collect();
        assert!(ended.iter().all(|rank| rank.status.success()), "{variables:?}: {said:?}");
    }
    wire.script(&ring.path(), &script);
    let (ended, _) = run_job_on_hosts(&script, 2, 2, &[("NICETY_NETWORK", "10.1.0.0/16")]);
    let said = String::from_utf8_lossy(&ended[0].stderr);
    assert!(said.contains("no address of this host lies in 10.1.0.0/16; it has 10.77.5.1"), "{said}");
}

/// Goal: processes listen only where necessary. Method: two hosts with two addresses each; `NICETY_NETWORK` may select one.
#[test]
fn ranks_on_several_hosts_listen_in_the_network_that_is_used() {
    if !has_compiler() {
        return;
    }
    let Some(wire) = Wire::new() else {
        eprintln!("SKIPPED: no networks of their own here");
        return;
    };
    let program = program("listens", include_str!("c/listen_addresses.c"));
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("run");
    wire.script(&program.path(), &script);
    let listens = |variables: &[(&str, &str)]| {
        let (ended, _) = run_job_on_hosts(&script, 2, 2, variables);
        let sorted = |rank: &std::process::Output| {
            let text = String::from_utf8_lossy(&rank.stdout);
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines.join(" ")
        };
        ended.iter().map(sorted).collect::<Vec<_>>()
    };
    assert_eq!(listens(&[("NICETY_NETWORK", "10.77.5.0/24")]), ["10.77.5.1", "10.77.5.2"]);
    assert_eq!(listens(&[("NICETY_NETWORK", "10.77.0.0/16")]), ["10.77.5.1", "10.77.5.2"]);
    let both = ["10.77.5.1 172.17.0.1", "10.77.5.2 172.17.0.1"];
    assert_eq!(listens(&[]), both, "at the addresses that others are told, and nowhere else");
    assert_eq!(listens(&[("NICETY_NETWORK", "0.0.0.0/0")]), both);
}

/// Goal: every thread level allows what the standard says, with locks and without.
#[test]
fn threads_send_at_the_same_time() {
    if !has_compiler() {
        return;
    }
    let program = program("threads", include_str!("c/threads.c"));
    let levels = [&[("NICETY_DEVICE", "shm"), ("MULTIPLE", "1")][..], &[("NICETY_DEVICE", "shm")]];
    for (level, size) in levels.into_iter().flat_map(|level| [(level, 1), (level, 2), (level, 4)]) {
        let expected: Vec<String> = (0..size).map(|rank| format!("rank {rank} of {size} is done")).collect();
        assert_eq!(run_job(&program.path(), size, level), expected);
    }
}

#[test]
fn windows_are_used_on_shm() {
    ranks("windows", include_str!("c/windows.c"), "shm", &[1, 2, 4]);
}

#[test]
fn windows_are_used_on_iwarp() {
    ranks("windows", include_str!("c/windows.c"), "iwarp", &[1, 3]);
}

/// Runs the file tests at several sizes over one device.
fn files(device: &str, sizes: &[usize]) {
    if !has_compiler() {
        return;
    }
    let program = program("files", include_str!("c/files.c"));
    for &size in sizes {
        let folder = tempfile::tempdir().expect("a folder");
        let name = folder.path().join("data").display().to_string();
        let said = run_job(&program.path(), size, &[("NICETY_DEVICE", device), ("TEST_FILE", &name)]);
        assert_eq!(said.len(), size);
    }
}

#[test]
fn files_are_used_on_shm() {
    files("shm", &[1, 2, 4]);
}

#[test]
fn files_are_used_on_iwarp() {
    files("iwarp", &[2, 3]);
}

#[test]
fn sessions_need_no_init() {
    ranks("sessions", include_str!("c/sessions.c"), "shm", &[1, 3]);
}

/// Two jobs that connect through a port, and communicate over the intercommunicator in every form.
fn two_jobs(device: &str) {
    if !has_compiler() {
        return;
    }
    let program = program("ports", include_str!("c/ports.c"));
    let folder = tempfile::tempdir().expect("a folder");
    let name = folder.path().join("port").display().to_string();
    let job = |side: &str, size: usize| {
        let variables = [("NICETY_DEVICE", device), ("TEST_FILE", &name), ("TEST_SIDE", side)];
        run_job(&program.path(), size, &variables)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| job("connect", 3));
        assert_eq!(job("accept", 2).len(), 2);
        assert_eq!(other.join().expect("no panic").len(), 3);
    });
}

#[test]
fn two_jobs_connect_on_shm() {
    two_jobs("shm");
}

#[test]
fn two_jobs_connect_on_iwarp() {
    two_jobs("iwarp");
}

/// A job spawns others over PMI-1, including a program that does not exist, and communicates with them.
#[test]
fn jobs_spawn_jobs() {
    if !has_compiler() {
        return;
    }
    let program = program("spawn", include_str!("c/spawn.c"));
    for (device, size) in [("shm", 1), ("shm", 3), ("iwarp", 2)] {
        spawns_jobs(&program, (device, size), 2, &[("TEST_MISSING", "1")]);
    }
}

/// Runs a job that spawns two others in each round, and three at its end.
fn spawns_jobs(program: &Compiled, (device, size): (&str, usize), rounds: usize, more: &[(&str, &str)]) {
    let count = rounds.to_string();
    let variables = [&[("NICETY_DEVICE", device), ("TEST_ROUNDS", &count)], more].concat();
    let said = run_job(&program.path(), size, &variables);
    let parents = (0..size).map(|rank| format!("rank {rank} of {size} is done"));
    let children = [(0, 2), (1, 2)].repeat(rounds).into_iter().chain([(0, 3), (1, 3), (2, 3)]);
    let children = children.map(|(rank, size)| format!("rank {rank} of {size} is done, a child"));
    let mut expected: Vec<String> = parents.chain(children).collect();
    expected.sort();
    assert_eq!(said, expected, "{size} ranks on {device}");
}

/// A child leaves directly after its last collective: no parent reports it as lost.
#[test]
fn finalized_children_are_not_lost() {
    if !has_compiler() {
        return;
    }
    let program = program("spawn", include_str!("c/spawn.c"));
    for device in ["iwarp", "shm"] {
        spawns_jobs(&program, (device, 2), 40, &[]);
    }
}

#[test]
fn arguments_of_spawned_programs_are_unchanged() {
    if !has_compiler() {
        return;
    }
    let program = program("arguments", include_str!("c/arguments.c"));
    assert_eq!(run_job(&program.path(), 1, &[("NICETY_DEVICE", "shm")]), ["all arguments arrived"]);
}

/// A program that was started alone cannot spawn: the error says so, and arguments of all kinds were read.
#[test]
fn programs_are_spawned() {
    if !has_compiler() {
        return;
    }
    let ports = program("ports", include_str!("c/ports.c"));
    let mut alone = Command::new(ports.path());
    alone.env("TEST_SIDE", "alone");
    assert_eq!(run(alone), "rank 0 of 1 is done\n");
}

/// The example that writes its result collectively: the file does not depend on the number of ranks.
#[test]
fn heat_is_written_by_any_number_of_ranks() {
    if !has_compiler() {
        return;
    }
    let heat =
        compile("heat", include_str!("../examples/heat.c"), &["-std=gnu11", "-Wall", "-Werror", "-O2"]);
    let folder = tempfile::tempdir().expect("a folder");
    let written = |size: usize, device: &str| {
        let name = folder.path().join(format!("{device}-{size}"));
        let script = folder.path().join("run");
        let line = format!("#!/bin/sh\nexec {} {}\n", heat.path().display(), name.display());
        std::fs::write(&script, line).expect("written");
        std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("mine");
        run_job(&script, size, &[("NICETY_DEVICE", device)]);
        std::fs::read(name).expect("it is there")
    };
    let alone = written(1, "shm");
    assert_eq!(alone.len(), 120 * 96 * 8);
    assert!(alone.chunks(8).any(|cell| cell != [0; 8]), "something is warm");
    for (size, device) in [(3, "shm"), (4, "shm"), (4, "iwarp")] {
        assert!(written(size, device) == alone, "{size} ranks on {device}");
    }
}

/// The output of the examples is the same for any number of ranks and any device: life on a torus, a task farm, a sort.
#[test]
fn examples_print_correct_results() {
    if !has_compiler() {
        return;
    }
    let options = ["-std=gnu11", "-Wall", "-Werror", "-O2"];
    let halo = compile("halo", include_str!("../examples/halo.c"), &options);
    let farm = compile("farm", include_str!("../examples/farm.c"), &options);
    let sort = compile("sort", include_str!("../examples/sort.c"), &options);
    for (size, device) in [(1, "shm"), (2, "shm"), (4, "shm"), (3, "iwarp")] {
        let run = |program: &Compiled| run_job(&program.path(), size, &[("NICETY_DEVICE", device)]);
        assert_eq!(run(&halo), ["after 240 generations 5 cells live, and 0 are not as at first"]);
        let tasks = if size == 1 { 1 } else { 200 };
        assert_eq!(run(&farm), [format!("9592 primes below 100000, in {tasks} tasks")]);
        let numbers = 50_000 * size + size * (size - 1) / 2;
        assert_eq!(run(&sort), [format!("{numbers} numbers in order, and none is lost")]);
    }
}

#[test]
fn collectives_in_all_forms_on_shm() {
    ranks("collectives", include_str!("c/collectives.c"), "shm", &[1, 3, 4]);
}

#[test]
fn collectives_in_all_forms_on_iwarp() {
    ranks("collectives", include_str!("c/collectives.c"), "iwarp", &[3]);
}

#[test]
fn operators_of_programs_may_ask() {
    ranks("operators", include_str!("c/operators.c"), "shm", &[2, 3]);
}

#[test]
fn tools_observe_events_on_shm() {
    ranks("tools", include_str!("c/tools.c"), "shm", &[1, 2, 4]);
}

#[test]
fn tools_observe_events_on_iwarp() {
    ranks("tools", include_str!("c/tools.c"), "iwarp", &[2, 3]);
}

/// Goal: a launcher that asks for profiles learns what ranks called and sent, without the parts that they excluded. Method: a
/// program that switches profiling off and on and clears it; and the same program without profiling.
#[test]
fn profiles_are_sent_to_the_launcher() {
    if !has_compiler() {
        return;
    }
    let program = program("profile", include_str!("c/profile.c"));
    for device in ["shm", "iwarp"] {
        let variables = [("NICETY_DEVICE", device), ("NICETY_PROFILE", "1")];
        let (_, profiles) = run_job_to_its_end(&program.path(), 3, &variables);
        let calls = |rank: u32, name: &str| profiles[&rank].calls.get(name).map_or(0, |called| called.calls);
        assert_eq!((calls(0, "MPI_Send"), calls(1, "MPI_Recv")), (11, 11), "{profiles:?}");
        assert_eq!((calls(0, "MPI_Recv"), calls(0, "MPI_Comm_rank"), calls(2, "MPI_Send")), (0, 0, 0));
        let sent = |from: u32, to: usize| profiles[&from].sent[to].all();
        assert_eq!(sent(0, 1), mpi::MessageTotals { messages: 11, bytes: 71_000 }, "{profiles:?}");
        assert_eq!((sent(1, 0).bytes, sent(0, 2).bytes, profiles[&0].sent.len()), (0, 0, 4));
        let of_send = profiles[&0].calls["MPI_Send"];
        assert!(of_send.bytes == 71_000 && of_send.time.as_ps() > 0, "{of_send:?}");
        assert!(profiles[&0].watched > of_send.time, "{profiles:?}");
    }
    let (ended, profiles) = run_job_to_its_end(&program.path(), 2, &[("NICETY_DEVICE", "shm")]);
    assert!(ended.iter().all(|rank| rank.status.success()) && profiles.is_empty(), "{ended:?} {profiles:?}");
}

#[test]
fn ring_messages_arrive_with_all_connected_at_the_start() {
    if !has_compiler() {
        return;
    }
    let ring = program("ring", include_str!("c/ring.c"));
    let said = run_job(&ring.path(), 3, &[("NICETY_DEVICE", "shm"), ("NICETY_CONNECT", "all")]);
    assert_eq!(said.len(), 3);
}

/// Goal: programs behave the same over Portals, wherever it matches messages; an unknown transport is an error that says so.
#[test]
fn messages_go_over_portals() {
    if !has_compiler() {
        return;
    }
    let ring = program("ring", include_str!("c/ring.c"));
    let collectives = program("collectives", include_str!("c/collectives.c"));
    let windows = program("windows", include_str!("c/windows.c"));
    let lane = ("NICETY_LANE", "portals");
    for device in ["shm", "iwarp"] {
        for matcher in ["caller", "thread", "spin"] {
            let variables = [("NICETY_DEVICE", device), lane, ("NICETY_PORTALS_ENGINE", matcher)];
            assert_eq!(run_job(&ring.path(), 3, &variables).len(), 3, "{device}, {matcher}");
        }
        assert_eq!(run_job(&collectives.path(), 3, &[("NICETY_DEVICE", device), lane]).len(), 3);
        assert_eq!(run_job(&windows.path(), 2, &[("NICETY_DEVICE", device), lane]).len(), 2);
    }
}

/// Algorithms can be selected: collectives return the same results, and an unknown name is an error that lists the known ones.
#[test]
fn algorithms_are_selected_by_name() {
    if !has_compiler() {
        return;
    }
    let collectives = program("collectives", include_str!("c/collectives.c"));
    let named = "allreduce=ring,bcast=chain,barrier=tree,alltoall=pairwise";
    let said = run_job(&collectives.path(), 3, &[("NICETY_DEVICE", "shm"), ("NICETY_ALGORITHMS", named)]);
    assert_eq!(said.len(), 3);
    let refused = |named: &str| {
        let output = Command::new(collectives.path()).env("NICETY_ALGORITHMS", named).output();
        let output = output.expect("it starts");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = refused("allreduce=rign");
    assert!(said.contains("allreduce has no algorithm `rign`: it has recursive-doubling, "), "{said}");
    let said = refused("reduce-all=ring");
    assert!(said.contains("NICETY_ALGORITHMS") && said.contains("kinds are barrier, "), "{said}");
}

/// Functions that initialize or end what the others need.
const LEFT_OUT: [&str; 4] = ["MPI_Abort", "MPI_Finalize", "MPI_Init", "MPI_Init_thread"];

/// A call of a function of the table: every number is 0, every address `address`, and every handle `handle`.
fn call(line: &str, address: &str, handle: &str) -> Option<String> {
    let prototype = line.split(';').next()?;
    let (head, arguments) = prototype.trim().strip_suffix(')')?.split_once('(')?;
    let name = head.rsplit(' ').next()?;
    let value = |argument: &str| match argument {
        "void" => String::new(),
        "..." => "0".to_owned(),
        function if function.contains("_function ") || function.contains("_function_c ") => "0".to_owned(),
        pointer if pointer.contains(['*', '[']) => address.to_owned(),
        handles if handles.starts_with("MPI_") && !handles.contains("MPI_T_") => {
            let kind = handles.split(' ').next().unwrap_or_default();
            let is_number = ["MPI_Aint", "MPI_Count", "MPI_Offset"].contains(&kind);
            if is_number { "0".to_owned() } else { format!("({kind}) {handle}") }
        }
        _ => "0".to_owned(),
    };
    let arguments: Vec<String> = arguments.split(", ").map(value).collect();
    (!LEFT_OUT.contains(&name)).then(|| format!("{name}({});\n", arguments.join(", ")))
}

/// Every function tolerates zeros, null handles and invalid handles, with NULL or zeroed memory: it returns, and the process
/// survives.
#[test]
fn every_function_tolerates_invalid_arguments() {
    if !has_compiler() {
        return;
    }
    let mut source = "#include <mpi.h>\n#include <stdio.h>\nstatic long long zeros[8192];\n\
        int main(void) {\nMPI_Init(0, 0);\n\
        MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);\n"
        .to_owned();
    let table = include_str!("../functions.txt");
    let lines = || table.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let mut calls = 0;
    for (address, handle) in
        [("0", "0"), ("0", "0x400"), ("(void *) zeros", "0"), ("(void *) zeros", "0x123456789ab8")]
    {
        for call in lines().filter_map(|line| call(line, address, handle)) {
            // Memory that was not allocated cannot be freed.
            if address == "0" || !call.starts_with("MPI_Free_mem") {
                source.push_str(&call);
            }
            calls += 1;
        }
    }
    source.push_str("puts(\"alive\");\nreturn 0;\n}\n");
    assert_eq!(calls, 4 * (662 - LEFT_OUT.len()));
    assert_eq!(run(Command::new(compile("nonsense", &source, &[]).path())), "alive\n");
}

/// Ranks of a PMIx launcher find each other through its library.
#[test]
fn ranks_join_by_pmix() {
    if !has_compiler() {
        return;
    }
    let ring = program("ring", include_str!("c/ring.c"));
    let library =
        compile("libpmix.so.2", include_str!("c/pmix.c"), &["-shared", "-fPIC", "-Wl,-soname,libpmix.so.2"]);
    let folder = tempfile::tempdir().expect("a folder");
    let searched = library.path().parent().expect("a folder").to_owned();
    let rank = |rank: u32| {
        let mut command = Command::new(ring.path());
        command.env("PMIX_NAMESPACE", "job").env("PMIX_RANK", rank.to_string());
        command.env("TEST_SIZE", "3").env("TEST_FOLDER", folder.path()).env("LD_LIBRARY_PATH", &searched);
        command.stdout(Stdio::piped()).spawn().expect("it starts")
    };
    let ranks: Vec<_> = (0..3).map(rank).collect();
    let mut said: Vec<String> = ranks.into_iter().flat_map(common::job::finished).collect();
    said.sort();
    assert_eq!(said, ["rank 0 of 3 is done", "rank 1 of 3 is done", "rank 2 of 3 is done"]);
    assert!((0..3).all(|rank| folder.path().join(format!("left--{rank}")).exists()), "all have left");
}

/// A PMIx launcher without a loadable library is an error that says so. Since the machine may have the library, an invalid file of
/// its name precedes it.
#[test]
fn a_missing_pmix_library_is_an_error() {
    if !has_compiler() {
        return;
    }
    let ring = program("ring", include_str!("c/ring.c"));
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("libpmix.so.2"), "no library").expect("a file");
    let mut command = Command::new(ring.path());
    command.env("PMIX_NAMESPACE", "job").env("PMIX_RANK", "0").env("LD_LIBRARY_PATH", folder.path());
    let output = command.output().expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && said.contains("libpmix.so.2 is not found; add its directory"),
        "{said}"
    );
}

/// Goal: a rank that loses a process lets the launcher report how that one ended, and reports the loss itself otherwise. Method:
/// one of two ranks exits without leaving the job while the other waits for it; the time limit is what the launcher would have.
#[test]
fn a_lost_process_is_named() {
    if !has_compiler() {
        return;
    }
    let source = "#include <mpi.h>\n#include <unistd.h>\nint main(void) {\n\
        int rank, x;\nMPI_Init(0, 0);\nMPI_Comm_rank(MPI_COMM_WORLD, &rank);\nMPI_Barrier(MPI_COMM_WORLD);\n\
        if (rank == 1) _exit(0);\nMPI_Recv(&x, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);\nreturn 0;\n}\n";
    let (ended, _) = run_job_to_its_end(&program("lost", source).path(), 2, &[("NICETY_DEVICE", "shm")]);
    let said = String::from_utf8_lossy(&ended[0].stderr);
    assert!(!ended[0].status.success() && said.lines().count() == 1, "{said}");
    assert!(said.starts_with("nicety: rank 0: MPI_Recv: process 1 of the job is lost"), "{said}");
}

/// A process manager that sends garbage, refuses the rank or closes the connection: the program ends with one line, and does not
/// hang.
#[test]
fn a_malformed_manager_message_is_an_error() {
    if !has_compiler() {
        return;
    }
    let ring = program("ring", include_str!("c/ring.c"));
    let refusal = "cmd=response_to_init rc=-1 pmi_version=1 pmi_subversion=1\n";
    for answer in ["nonsense\n", "cmd=barrier_out\n", refusal, &"x".repeat(1 << 20), ""] {
        let (mut ours, theirs) = UnixStream::pair().expect("a pair");
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty()).expect("it is open");
        let mut command = Command::new(ring.path());
        command.env("PMI_FD", theirs.as_raw_fd().to_string()).env("PMI_RANK", "0").env("PMI_SIZE", "2");
        let child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        drop(theirs);
        // The program need not read all of it.
        let _ = ours.write_all(answer.as_bytes()).and_then(|()| ours.shutdown(Shutdown::Write));
        let output = child.wait_with_output().expect("it ends");
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(!output.status.success(), "{said}");
        assert!(
            said.starts_with("nicety: ") && said.contains("MPI_Init") && said.lines().count() == 1,
            "{said}"
        );
    }
}

/// Goal: the launcher's file names a waiting call until it ends. Method: a program receives from itself, sends to itself once it has
/// read a line, and waits for another line.
#[test]
fn call_that_waits_is_noted_for_the_launcher() {
    if !has_compiler() {
        return;
    }
    let waits = program("waits", include_str!("c/waits.c"));
    let file = tempfile::tempfile().expect("a file");
    file.write_all_at(&pmi::calls::empty_note(), 0).expect("written");
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::empty()).expect("an open file");
    let mut command = Command::new(waits.path());
    command.env(pmi::calls::CALLS_FD, file.as_raw_fd().to_string());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
    rustix::io::fcntl_setfd(&file, rustix::io::FdFlags::CLOEXEC).expect("an open file");
    let noted = |wanted: &str| {
        for _ in 0..3000 {
            let mut bytes = [0; pmi::calls::NOTE_LEN];
            file.read_exact_at(&mut bytes, 0).expect("a note");
            if pmi::calls::parse_note(&bytes).as_deref() == Some(wanted) {
                return true;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        false
    };
    assert!(noted("MPI_Recv"), "it waits in MPI_Recv");
    let mut input = child.stdin.take().expect("its input");
    input.write_all(b"send\n").expect("it reads");
    assert!(noted(""), "it waits in no call");
    drop(input);
    assert!(child.wait().expect("it ends").success());
}
