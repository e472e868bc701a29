//! Programs that were not built for us: Debian's ibverbs-utils and perftest, as they are.

mod common;

use common::{Names, compile, ends, finish, has, has_compiler, pair};

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
    for line in
        ["hca_id:\tnicety0", "PORT_ACTIVE (4)", "max_qp:\t\t\t\t8192", "GID[  0]", "phys_state:\t\tLINK_UP"]
    {
        assert!(described.contains(line), "{line}: {described}");
    }
    let mut wrong = names.command("ibv_devices", "smh;shm");
    let wrong = common::said(&wrong.output().expect("it starts"));
    assert!(wrong.contains("'smh', which is left out") && wrong.contains("nicety0"), "{wrong}");
}

/// Pairs of Debian's programs, which check what they can of what arrives.
fn run_pairs(device: &str, package: &str, lines: &[&str]) {
    let names = Names::new();
    for line in lines {
        let program = line.split(' ').next().expect("a program");
        if !has(program, package) {
            return;
        }
        let said = pair(&names, device, line);
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
    ];
    run_pairs("shm", "ibverbs-utils", &lines);
    run_pairs(
        "iwarp@127.0.0.1",
        "ibverbs-utils",
        &["ibv_rc_pingpong -c -g 0", "ibv_rc_pingpong -c -g 0 -e -s 100000"],
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
    ];
    run_pairs("shm", "perftest", &lines);
    run_pairs(
        "iwarp@127.0.0.1",
        "perftest",
        &["ib_send_lat -n 100", "ib_write_bw -n 100", "ib_read_lat -n 100"],
    );
}

#[test]
fn nonsense_is_answered() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "nonsense.c");
    for device in ["shm", "iwarp@127.0.0.1"] {
        finish(names.command(&program, device).spawn().expect("it starts"), device);
    }
}

#[test]
fn a_pair_in_c_does_what_others_leave_out() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "pair.c");
    for device in ["shm", "iwarp@127.0.0.1"] {
        finish(names.command(&program, device).spawn().expect("it starts"), device);
    }
}

#[test]
fn connections_are_made_by_addresses() {
    let names = Names::new();
    for device in ["shm", "iwarp@127.0.0.1"] {
        if has("rping", "rdmacm-utils") {
            let said = ends(
                &names,
                device,
                ["rping"; 2],
                ["-s -a 127.0.0.1 -C 20 -V", "-c -a 127.0.0.1 -C 20 -V -v"],
            );
            assert!(said[0].matches("ping data: rdma-ping-").count() == 20, "{device}: {said:?}");
        }
        run_pairs(
            device,
            "perftest",
            &["ib_write_lat -R -n 100", "ib_send_bw -R -n 100", "ib_read_bw -R -n 100 -e"],
        );
    }
}
