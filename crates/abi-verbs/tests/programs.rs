//! Runs unmodified third-party programs: Debian's ibverbs-utils, perftest, rdmacm-utils, UCX and libfabric tools.

mod common;

use std::io::Read as _;

use common::{Names, await_listener, compile, ends, finish, free_port, has, has_compiler, library, pair};

#[test]
fn a_device_is_described() {
    if !has("ibv_devinfo", "ibverbs-utils") {
        return;
    }
    let names = Names::new();
    let run = |line: &[&str], device| {
        let mut command = names.command(line[0], device);
        finish(command.args(&line[1..]).spawn().expect("it starts"), line[0])
    };
    let listed = run(&["ibv_devices"], "shm;iwarp@127.0.0.1");
    assert!(listed.contains("nicety0") && listed.contains("nicety1"), "{listed}");
    let described = run(&["ibv_devinfo", "-v"], "shm");
    for line in [
        "hca_id:\tnicety0",
        "PORT_ACTIVE (4)",
        "max_qp:\t\t\t\t8192",
        "vendor_id:\t\t\t0x4e4359",
        "GID[  0]",
        "phys_state:\t\tLINK_UP",
    ] {
        assert!(described.contains(line), "{line}: {described}");
    }
    let mut rnic = names.command("ibv_devinfo", "shm");
    let rnic = rnic.env("NICETY_VERBS_KIND", "rnic").spawn().expect("it starts");
    assert!(finish(rnic, "ibv_devinfo").contains("iWARP (1)") && described.contains("InfiniBand (0)"));
    let mut wrong = names.command("ibv_devices", "smh\u{1b}[2J\nworse;shm");
    let wrong = common::said(&wrong.output().expect("it starts"));
    assert!(wrong.contains("'smh\\u{1b}[2J\\nworse', which is left out"), "{wrong:?}");
    assert!(wrong.contains("nicety0") && !wrong.contains('\u{1b}'), "{wrong:?}");
}

/// Runs a pair. The ibv_srq_pingpong that finishes first exits, though the other may still send on another of its queue pairs. A card
/// reports the missing acknowledgement half a second later, our devices immediately. Then the pair is run again, twice at most.
fn pair_that_parts(names: &Names, device: &str, line: &str) -> [String; 2] {
    let may_part = line.starts_with("ibv_srq_pingpong");
    for _ in 0..2 {
        match std::panic::catch_unwind(|| pair(names, device, line)) {
            Ok(said) => return said,
            Err(why) => {
                let has_parted =
                    why.downcast_ref::<String>().is_some_and(|why| why.contains("retry counter exceeded"));
                if !(may_part && has_parted) {
                    std::panic::resume_unwind(why);
                }
            }
        }
    }
    pair(names, device, line)
}

/// Runs pairs of Debian's programs, which check the received data where they can.
fn run_pairs(device: &str, package: &str, lines: &[&str]) {
    let names = Names::new();
    for line in lines {
        let program = line.split(' ').next().expect("a program");
        if !has(program, package) {
            return;
        }
        // Without -F, perftest ends without a report when the clock seems unsteady, as on a busy machine.
        let options = if package == "perftest" { " -F" } else { "" };
        let said = pair_that_parts(&names, device, &format!("{line}{options}"));
        for wrong in ["rror", "ailed", "invalid data"] {
            assert!(!said.concat().contains(wrong), "{line}: {said:?}");
        }
    }
}

#[test]
fn ping_pongs_run_over_queue_pairs_whose_numbers_they_exchange() {
    let lines = [
        "ibv_rc_pingpong -c",
        "ibv_rc_pingpong -c -g 0 -s 4097 -n 100",
        "ibv_rc_pingpong -c -e -s 1 -r 3",
        "ibv_rc_pingpong -N",
        "ibv_rc_pingpong -j",
        "ibv_srq_pingpong -c -q 3",
        "ibv_srq_pingpong -e",
        "ibv_ud_pingpong -n 200",
        "ibv_ud_pingpong -e -n 100 -s 2048",
    ];
    run_pairs("shm", "ibverbs-utils", &lines);
    run_pairs(
        "iwarp@127.0.0.1",
        "ibverbs-utils",
        &["ibv_rc_pingpong -c -g 0", "ibv_rc_pingpong -c -g 0 -e -s 100000", "ibv_ud_pingpong -g 0 -n 200"],
    );
}

#[test]
fn perftest_measures_each_operation() {
    let lines = [
        "ib_send_lat -n 100",
        "ib_send_lat -n 100 -e",
        "ib_send_lat -n 100 -I 64 -s 64",
        "ib_send_bw -n 100 -q 3",
        "ib_send_bw -n 100 -b",
        "ib_send_bw -n 100 -r 64 -Q 1",
        "ib_write_lat -n 100",
        "ib_write_bw -n 100 -a",
        "ib_read_lat -n 100",
        "ib_read_bw -n 100 -e",
        "ib_atomic_lat -n 100",
        "ib_atomic_bw -n 100 -A CMP_AND_SWAP",
        "ib_send_lat -n 100 -c UD",
    ];
    run_pairs("shm", "perftest", &lines);
    run_pairs(
        "iwarp@127.0.0.1",
        "perftest",
        &["ib_send_lat -n 100", "ib_write_bw -n 100", "ib_read_lat -n 100", "ib_send_lat -n 100 -c UD"],
    );
}

/// Goal: memory that is unmapped while registered kills no process, and each end gets an error for its own part. Method: every
/// operation, every way of losing memory at either end, in one process and in two, with each way of copying.
#[test]
fn memory_that_is_lost_ends_no_process() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "lost.c");
    for device in
        ["shm", "shm(copy=kernel)", "shm(copy=service)", "iwarp@127.0.0.1", "iwarp@127.0.0.1(crc=on)"]
    {
        let kind = if device.starts_with("shm") { "shm" } else { "iwarp" };
        let said = finish(names.command(&program, device).arg(kind).spawn().expect("it starts"), device);
        assert!(said.contains(", nobody dies"), "{device}: {said}");
    }
}

#[test]
fn nonsense_is_answered() {
    run_c("nonsense.c", "all refused");
}

/// The lines of functions.txt in the format of `hammer.c`.
fn functions_in_c() -> String {
    let objects = [
        "ibv_device",
        "ibv_context",
        "ibv_pd",
        "ibv_mr",
        "ibv_comp_channel",
        "ibv_cq",
        "ibv_qp",
        "ibv_srq",
        "ibv_ah",
        "rdma_cm_id",
        "rdma_event_channel",
        "rdma_cm_event",
    ];
    let table =
        include_str!("../functions.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let line = |line: &str| {
        let (head, arguments) = line.split_once('(').expect("arguments");
        let words: Vec<&str> = head.split(' ').collect();
        let name = head.rsplit([' ', '*']).next().expect("a name");
        let answer = match words[2] {
            "errno" => "NUMBER",
            "minus" | "waits" | "completes" | "long" | "steps" | "numbers" => "MINUS",
            _ if head.contains('*') => "POINTER",
            _ => "OTHER",
        };
        let takes = objects.iter().any(|object| arguments.starts_with(&format!("struct {object} *")))
            && !arguments.split(',').next().is_some_and(|first| first.contains("**"));
        format!(
            "FUNCTION({name}, {}, {answer}, {}, {})\n",
            words[1],
            u8::from(takes),
            u8::from(words[0] != "unsupported")
        )
    };
    table.map(line).collect()
}

#[test]
fn every_function_refuses_what_is_no_object() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    std::fs::write(names.path().join("functions.h"), functions_in_c()).expect("a file");
    let program = compile(&names, "hammer.c");
    let said = finish(names.command(&program, "shm").spawn().expect("it starts"), "hammer");
    assert!(said.contains("all hammered"), "{said}");
}

#[test]
fn functions_found_by_dlsym_fill_their_structures() {
    run_c("symbols.c", "all filled");
}

#[test]
fn rarely_used_calls_work_in_a_c_program() {
    run_c("every.c", "all gone through");
}

#[test]
fn regions_in_c_are_changed_and_addressed() {
    run_c("regions.c", "all regions changed");
}

#[test]
fn memory_windows_in_c_protect() {
    run_c("windows.c", "all windows closed");
}

#[test]
fn connected_pair_in_c_uses_rare_features() {
    run_c("pair.c", "all done");
}

/// Programs built for librdmacm, as server and client.
#[test]
fn connections_are_made_by_addresses() {
    let names = Names::new();
    let run = |device, programs: [&str; 2], options: [&str; 2]| {
        if !has(programs[0], "rdmacm-utils") {
            return String::new();
        }
        ends(&names, device, programs, options).concat()
    };
    for device in ["shm", "iwarp@127.0.0.1"] {
        for own_qp in ["", "-q "] {
            let [server, client] = ["-s", "-c -v"].map(|end| format!("{end} {own_qp}-a 127.0.0.1 -C 20 -V"));
            let said = run(device, ["rping"; 2], [&server, &client]);
            assert!(
                said.is_empty() || said.matches("ping data: rdma-ping-").count() == 20,
                "{device}: {said}"
            );
        }
        for programs in [["rdma_server", "rdma_client"], ["rdma_xserver", "rdma_xclient"]] {
            let said = run(device, programs, ["", "-s 127.0.0.1"]);
            assert!(said.is_empty() || said.matches("end 0").count() == 2, "{device}: {said}");
        }
    }
}

#[test]
fn perftest_runs_over_librdmacm() {
    let lines = [
        "ib_write_lat -R -n 100",
        "ib_send_bw -R -n 100 -q 2",
        "ib_read_lat -R -n 100",
        "ib_atomic_bw -R -n 100",
    ];
    run_pairs("shm", "perftest", &lines);
    run_pairs("iwarp@127.0.0.1", "perftest", &lines[..3]);
}

/// A device bound to an address connects from that address, whatever the system's route. An unreachable address is reported when it is
/// resolved. If nobody listens, posted requests are flushed, for which rping waits.
#[test]
fn a_device_connects_from_its_own_address() {
    if !has("rping", "rdmacm-utils") {
        return;
    }
    let (names, port) = (Names::new(), free_port().to_string());
    let start = |device: &str, line: &str| {
        let mut command = names.command("rping", device);
        command.args(line.split(' ')).args(["-p", &port]).spawn().expect("it starts")
    };
    let mut server = start("iwarp@127.0.0.2", "-s -a 127.0.0.2 -C 5");
    await_listener(port.parse().expect("a number"), &mut server);
    let said = finish(start("iwarp@127.0.0.3", "-c -a 127.0.0.2 -C 5 -v"), "rping");
    assert_eq!(said.matches("ping data: rdma-ping-").count(), 5, "{said}");
    finish(server, "rping");
    for (device, to, why) in [
        ("iwarp@127.0.0.3", "203.0.113.1", "rdma_resolve_addr"),
        ("shm", "203.0.113.1", "rdma_resolve_addr"),
        ("iwarp@127.0.0.3", "127.0.0.2", "REJECTED"),
        ("shm", "127.0.0.1", "REJECTED"),
    ] {
        let output = common::end(start(device, &format!("-c -a {to} -C 5 -v")), "rping");
        let said = common::said(&output);
        assert!(!output.status.success() && said.contains(why), "{device} to {to}: {said}");
    }
}

/// Listens at the name of a shared-memory device, and sends `words` to the first program that connects; `None` hangs up.
fn false_listener(port: u16, words: Option<&'static [u8]>) -> std::thread::JoinHandle<()> {
    use rustix::net::{
        AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind,
        listen, recv, send, socket_with,
    };
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket");
    let name = format!("nicety-shm/{}/{port}", rustix::process::geteuid().as_raw());
    bind(&listener, &SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name")).expect("a port");
    listen(&listener, 1).expect("a listener");
    std::thread::spawn(move || {
        let peer = accept_with(&listener, flags).expect("the program connects");
        let mut heard = [0; 4096];
        let (_, n) = recv(&peer, &mut heard, RecvFlags::empty()).expect("the program sends first");
        assert!(n > 0, "the program speaks first");
        if let Some(words) = words {
            send(&peer, words, SendFlags::NOSIGNAL).expect("said");
            // Waits for the program to exit: the test is about its reaction to the words, not to the end of the connection.
            while recv(&peer, &mut heard, RecvFlags::empty()).is_ok_and(|(_, n)| n > 0) {}
        }
    })
}

/// Goal: a program that connects on shared memory to a foreign listener gets an event soon, and ends. Method: rping connects to
/// listeners that speak another protocol or a later version, or hang up.
#[test]
fn a_peer_on_shm_that_is_not_ours_is_an_error() {
    if !has("rping", "rdmacm-utils") {
        return;
    }
    let cases: [(Option<&[u8]>, &str); 3] = [
        (Some(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "RDMA_CM_EVENT_CONNECT_ERROR"),
        (Some(b"nSHM\xff\xff\x02\0 of another version"), "RDMA_CM_EVENT_CONNECT_ERROR"),
        (None, "RDMA_CM_EVENT_"),
    ];
    for (words, event) in cases {
        let (names, port) = (Names::new(), free_port());
        let listener = false_listener(port, words);
        let mut command = names.command("rping", "shm");
        command.args(["-c", "-a", "127.0.0.1", "-v", "-p", &port.to_string()]);
        let output = common::end(command.spawn().expect("it starts"), "rping");
        listener.join().expect("a message arrives");
        let said = common::said(&output);
        assert!(
            !output.status.success() && said.contains(&format!("cma event {event}")),
            "{words:?}: {said}"
        );
    }
}

/// Goal: a server that waits for a killed client ends, and reports the reason.
#[test]
fn a_server_whose_client_is_killed_ends() {
    if !has("rping", "rdmacm-utils") {
        return;
    }
    let names = Names::new();
    for device in ["shm", "iwarp@127.0.0.1"] {
        let port = free_port().to_string();
        let start = |line: &str| {
            let mut command = names.command("rping", device);
            command.args(line.split(' ')).args(["-a", "127.0.0.1", "-p", &port]).spawn().expect("it starts")
        };
        let mut server = start("-s -v");
        await_listener(port.parse().expect("a number"), &mut server);
        let (mut client, mut heard) = (start("-c"), [0; 64]);
        // Wait until messages pass.
        server
            .stdout
            .as_mut()
            .expect("a pipe")
            .read_exact(&mut heard)
            .expect("the server prints received data");
        client.kill().expect("it runs");
        client.wait().expect("it was killed");
        // Whether it was sending or waiting determines how it ends.
        let said = common::said(&common::end(server, device));
        assert!(said.contains("DISCONNECT EVENT") || said.contains("failed status"), "{device}: {said}");
    }
}

/// If only one of the two libraries is ours, the other does not know its objects.
#[test]
fn program_with_one_of_both_libraries_gets_an_error() {
    if !has("rping", "rdmacm-utils") {
        return;
    }
    for (missing, says) in [("libibverbs.so.1", "start it by nicety run"), ("librdmacm.so.1", "")] {
        let names = Names::new();
        std::fs::remove_file(names.path().join(missing)).expect("a link");
        let theirs = format!("/usr/lib/{}-linux-gnu/{missing}", std::env::consts::ARCH);
        let mut command = names.command("rping", "shm");
        let child =
            command.args(["-s", "-a", "127.0.0.1"]).env("LD_PRELOAD", theirs).spawn().expect("it starts");
        let output = common::end(child, "rping");
        // The program ends: the kernel's librdmacm finds no device, and reports its own error.
        assert!(!output.status.success() && common::said(&output).contains(says), "{missing}: {output:?}");
    }
}

/// A program for a later libibverbs, with a function that ours lacks: the loader reports the missing version. Method: builds a library
/// of that name with such a function.
#[test]
fn a_program_of_another_generation_is_refused() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let at = |name: &str| names.path().join(name);
    std::fs::create_dir(at("later")).expect("a folder");
    std::fs::write(at("later.c"), "int ibv_of_tomorrow(void) { return 0; }\n").expect("a file");
    std::fs::write(at("later.map"), "IBVERBS_9.9 { global: ibv_of_tomorrow; };\n").expect("a file");
    std::fs::write(
        at("program.c"),
        "int ibv_of_tomorrow(void);\nint main(void) { return ibv_of_tomorrow(); }\n",
    )
    .expect("a file");
    let library = at("later/libibverbs.so.1");
    let cc = |args: &[&std::ffi::OsStr]| {
        let output = std::process::Command::new("cc").args(args).output().expect("cc runs");
        assert!(output.status.success(), "{output:?}");
    };
    let map = format!("-Wl,-soname,libibverbs.so.1,--version-script={}", at("later.map").display());
    let text = std::ffi::OsStr::new;
    cc(&[text("-shared"), text("-fPIC"), text(&map), text("-o"), library.as_ref(), at("later.c").as_ref()]);
    cc(&[text("-o"), at("program").as_ref(), at("program.c").as_ref(), library.as_ref()]);
    let child = names.command(at("program"), "shm").spawn().expect("it starts");
    let output = common::end(child, "program");
    assert!(
        !output.status.success() && common::said(&output).contains("`IBVERBS_9.9' not found"),
        "{output:?}"
    );
}

/// An existing device that cannot be opened: the program gets an error, and a line on standard error gives the reason.
#[test]
fn device_that_cannot_be_opened_gives_the_reason() {
    if !has("ibv_devinfo", "ibverbs-utils") {
        return;
    }
    let names = Names::new();
    let refused = |device: &str, limit: &str, why: &str| {
        let mut command = names.command("prlimit", device);
        let child = command.args([limit, "ibv_devinfo"]).spawn().expect("it starts");
        let output = common::end(child, device);
        let said = common::said(&output);
        let is_told = said.contains(&format!("nicety: cannot open {device}")) && said.contains(why);
        assert!(is_told && said.contains("Failed to open device") && !output.status.success(), "{output:?}");
    };
    refused("iwarp@203.0.113.1", "--nofile=1024", "this host has no such address");
    refused("shm", "--nofile=6", "Too many open files");
}

/// An unsupported function fails instead of waiting.
#[test]
fn multicast_is_refused() {
    if !has("mckey", "rdmacm-utils") {
        return;
    }
    let names = Names::new();
    let child = names.command("mckey", "shm").args(["-m", "224.0.0.1"]).spawn().expect("it starts");
    assert!(!common::end(child, "mckey").status.success());
}

/// Runs pairs of programs whose two ends take the port in different ways.
fn run_ends(device: &str, package: &str, pairs: &[[&str; 2]]) {
    let names = Names::new();
    for [server, client] in pairs {
        if !has(server.split(' ').next().expect("a program"), package) {
            return;
        }
        let port = free_port();
        let start = |line: &str| {
            let line = line.replace("PORT", &port.to_string());
            let mut words = line.split(' ');
            let mut command = names.command(words.next().expect("a program"), device);
            command.args(words).env("LD_PRELOAD", library()).env("UCX_TLS", "rc_verbs,ud_verbs");
            command.spawn().expect("it starts")
        };
        let mut waits = start(server);
        await_listener(port, &mut waits);
        let said = [finish(start(client), client), finish(waits, server)].concat();
        assert!(!said.contains("rror"), "{server} on {device}: {said}");
    }
}

#[test]
fn ucx_runs_over_queue_pairs_of_both_types() {
    let lines = [
        ["ucx_perftest -p PORT -t tag_lat -n 100", "ucx_perftest -p PORT 127.0.0.1 -t tag_lat -n 100"],
        [
            "ucx_perftest -p PORT -t tag_bw -s 1000000 -n 10",
            "ucx_perftest -p PORT 127.0.0.1 -t tag_bw -s 1000000 -n 10",
        ],
        [
            "ucx_perftest -p PORT -t am_lat -d nicety0:1 -x ud_verbs -n 100",
            "ucx_perftest -p PORT 127.0.0.1 -t am_lat -d nicety0:1 -x ud_verbs -n 100",
        ],
    ];
    ["shm", "iwarp@127.0.0.1"].into_iter().for_each(|device| run_ends(device, "ucx-utils", &lines));
}

#[test]
fn libfabric_runs_over_its_provider_for_verbs() {
    let lines =
        [["fi_pingpong -p verbs -e msg -B PORT -c", "fi_pingpong -p verbs -e msg -P PORT -c 127.0.0.1"]];
    ["shm", "iwarp@127.0.0.1"].into_iter().for_each(|device| run_ends(device, "libfabric-bin", &lines));
}

/// A preloaded library emulates the paths of devices.
#[test]
fn paths_of_devices_lead_somewhere() {
    let names = Names::new();
    let script = "test -c /dev/infiniband/uverbs0 && test -d /sys/class/infiniband/nicety0/ports/1 \
        && ! test -e /dev/infiniband/uverbs1 && ! cat /sys/class/infiniband/nicety0/none && test -r /etc/passwd \
        && echo kept >$0 && cat $0 /sys/class/infiniband/nicety0/node_type /sys/class/infiniband_verbs/uverbs0/ibdev";
    let mut shell = names.command("sh", "shm");
    shell.args(["-c", script]).arg(names.path().join("file")).env("LD_PRELOAD", library());
    let said = finish(shell.spawn().expect("it starts"), "sh");
    assert!(said.contains("kept\n1: CA\nnicety0\n"), "{said}");
}

#[test]
fn paths_of_devices_are_found_by_other_calls() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "paths.c");
    let child = names.command(&program, "shm").env("LD_PRELOAD", library()).spawn().expect("it starts");
    let said = finish(child, "paths");
    assert!(said.contains("all found"), "{said}");
}

/// The files of a port agree with the functions, for both device kinds.
#[test]
fn files_of_a_port_agree_with_functions() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "sysfs.c");
    for device in ["shm", "iwarp@127.0.0.1"] {
        for kind in ["hca", "rnic"] {
            let mut command = names.command(&program, device);
            command.arg(kind).env("NICETY_VERBS_KIND", kind).env("LD_PRELOAD", library());
            let said = finish(command.spawn().expect("it starts"), kind);
            assert!(said.contains("all agree"), "{device} as {kind}: {said}");
        }
    }
}

/// Goal: a library that chooses ports as NCCL does finds our devices, and the GIDs that contain IP addresses. Method: a program with
/// the same rules, which loads libibverbs by dlopen(3).
#[test]
fn ports_are_chosen_by_the_rules_of_nccl() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "port_check.c");
    let mut command = names.command(&program, "shm;iwarp@127.0.0.1");
    let said = finish(command.env("LD_PRELOAD", library()).spawn().expect("it starts"), "port_check");
    assert!(said.contains("all usable"), "{said}");
}

/// ibstat uses libibumad, which only reads files.
#[test]
fn ibstat_describes_the_devices() {
    if !has("ibstat", "infiniband-diags") {
        return;
    }
    let names = Names::new();
    let run = |line: &str| {
        let mut command = names.command("ibstat", "shm;iwarp@127.0.0.1");
        command.args(line.split_whitespace()).env("LD_PRELOAD", library());
        finish(command.spawn().expect("it starts"), "ibstat")
    };
    assert_eq!(run("-l"), "nicety0\nnicety1\n");
    let described = run("");
    for line in [
        "CA 'nicety0'",
        "CA 'nicety1'",
        "CA type: nicety iwarp",
        "Number of ports: 1",
        "Hardware version: 0",
        "State: Active",
        "Physical state: LinkUp",
        "Rate: 100",
        "Capability mask: 0x04010000",
        "Link layer: Ethernet",
    ] {
        assert!(described.contains(line), "{line}: {described}");
    }
    let one = run("nicety1 1");
    assert!(one.contains("CA: 'nicety1'") && one.contains("Port GUID: 0x7f00000100000000"), "{one}");
}

/// Goal: a script that searches for a device with an IPv4 address, as valkey's test does, finds it. Method: lists the devices and reads
/// the network interface of the first GID, in Python.
#[test]
fn python_finds_the_network_interface_of_a_device() {
    if !has("python3", "python3") {
        return;
    }
    let names = Names::new();
    let script = "import os\nroot = '/sys/class/infiniband/'\nfor device in os.listdir(root):\n  \
                  print(device, open(root + device + '/ports/1/gid_attrs/ndevs/0').readline().strip())";
    let mut python = names.command("python3", "shm");
    python.args(["-c", script]).env("LD_PRELOAD", library());
    assert_eq!(finish(python.spawn().expect("it starts"), "python3"), "nicety0 lo\n");
}

/// Scripts list devices and their network interfaces by ls(1).
#[test]
fn folders_of_devices_are_listed() {
    let names = Names::new();
    let script = "ls /sys/class/infiniband && ls /sys/class/infiniband/nicety1/device/net/ /dev/infiniband \
        && ls -d /etc/passwd && ls $0 && ! ls /sys/class/infiniband/nicety2";
    std::fs::create_dir(names.path().join("folder")).expect("a folder");
    std::fs::write(names.path().join("folder/file"), "").expect("a file");
    let mut shell = names.command("sh", "shm;iwarp@127.0.0.1");
    shell.args(["-c", script]).arg(names.path().join("folder")).env("LD_PRELOAD", library());
    let output = common::end(shell.spawn().expect("it starts"), "sh");
    let said = String::from_utf8_lossy(&output.stdout);
    let expected = "nicety0\nnicety1\n/dev/infiniband:\nuverbs0\nuverbs1\n\n\
        /sys/class/infiniband/nicety1/device/net/:\nlo\n/etc/passwd\nfile\n";
    assert_eq!(said, expected, "{output:?}");
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn datagrams_in_c_arrive_or_are_dropped() {
    run_c("datagrams.c", "all carried");
}

#[test]
fn services_of_datagrams_in_c_are_found() {
    run_c("services.c", "all found");
}

#[test]
fn both_ends_of_connections_in_c_meet() {
    run_c("connections.c", "all connected");
}

/// Goal: on a device that reaches only this host, only processes of the same user are peers, and other users cannot interfere. Method:
/// another user sends datagrams to every visible socket, and takes each name that this user's sockets have or could have.
#[test]
fn datagrams_and_names_of_another_user_do_nothing() {
    run_c("strangers.c", "all held");
}

#[test]
fn two_processes_find_each_other_by_ip_addresses_and_numbers() {
    run_c("gids.c", "all found");
}

/// Goal: programs that choose the GID of an IP address, as for RoCE, connect and exchange datagrams, between different addresses as
/// between hosts. Method: Debian's programs with the second GID, each end at its own address.
#[test]
fn programs_meet_by_the_gids_of_their_ip_addresses() {
    let lines: [(&str, &str, &[&str]); 5] = [
        ("ibverbs-utils", "ibv_rc_pingpong -g 1 -c -n 100", &["iwarp@127.0.0.2", "iwarp@127.0.0.3"]),
        ("ibverbs-utils", "ibv_ud_pingpong -g 1 -n 100", &["iwarp@127.0.0.2", "iwarp@127.0.0.3"]),
        ("ibverbs-utils", "ibv_rc_pingpong -g 1 -c -n 100", &["shm", "shm"]),
        ("perftest", "ib_write_bw -x 1 -n 100 -F", &["iwarp@127.0.0.3", "iwarp@127.0.0.2"]),
        ("perftest", "ib_send_lat -x 1 -n 100 -c UD -F", &["shm", "shm"]),
    ];
    let names = Names::new();
    for (package, line, devices) in lines {
        let (program, options) = line.split_once(' ').expect("options");
        if !has(program, package) {
            continue;
        }
        let port = free_port();
        let start = |device: &str| {
            let mut command = names.command(program, device);
            command.args(options.split(' ')).args(["-p", &port.to_string()]);
            command
        };
        let mut server = start(devices[0]).spawn().expect("it starts");
        await_listener(port, &mut server);
        let client = start(devices[1]).arg("127.0.0.1").spawn().expect("it starts");
        let said = [finish(client, line), finish(server, line)].concat();
        assert!(!said.contains("rror") && !said.contains("ailed"), "{line}: {said}");
    }
}

#[test]
fn identifiers_hold_their_ports() {
    run_c("ports.c", "all bound");
}

#[test]
fn values_that_cards_refuse_are_refused() {
    run_c("limits.c", "all refused");
}

/// With iWARP RNICs, private data may be as long as the length field can express.
#[test]
fn rnics_take_long_private_data() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "limits.c");
    let mut command = names.command(&program, "iwarp@127.0.0.1");
    let said =
        finish(command.arg("rnic").env("NICETY_VERBS_KIND", "rnic").spawn().expect("it starts"), "rnic");
    assert!(said.contains("all refused"), "{said}");
}

#[test]
fn messages_without_a_receive_are_tried_as_often_as_was_said() {
    run_c("retries.c", "all tried");
}

#[test]
fn queue_pairs_connect_again_after_reset() {
    run_c("reset.c", "all reset");
}

#[test]
fn queue_pairs_that_pools_reset_leave_nothing_behind() {
    run_c("reset_pool.c", "all used again");
}

#[test]
fn events_of_ends_come_after_all_else() {
    run_c("ends.c", "all ended");
}

/// Runs a program of `tests/c` on each device, with the device's name as its argument.
fn run_c(source: &str, says: &str) {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, source);
    for device in ["shm", "iwarp@127.0.0.1"] {
        let said = finish(names.command(&program, device).arg(device).spawn().expect("it starts"), device);
        assert!(said.contains(says), "{device}: {said}");
    }
}
