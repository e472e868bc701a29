//! Runs programs with librdmacm's sockets: our own in C, and those of Debian.

mod common;

use std::path::Path;

use common::{Names, await_listener, compile, ends, finish, free_port, has, has_compiler};

const DEVICES: [&str; 2] = ["shm", "iwarp@127.0.0.1"];

/// Goal: every call behaves as that of TCP. Method: a C program with both ends, and children that are killed.
#[test]
fn sockets_in_c_behave_as_those_of_tcp() {
    if !has_compiler() {
        return;
    }
    let names = Names::new();
    let program = compile(&names, "sockets.c");
    for device in DEVICES {
        let said = finish(names.command(&program, device).spawn().expect("it starts"), device);
        assert!(said.contains("all sockets work"), "{device}: {said}");
    }
}

#[test]
fn rstream_checks_what_it_receives() {
    for device in DEVICES {
        for options in [
            "-S 64 -C 200 -T v",
            "-S 1000003 -C 5 -T v",
            "-S 4097 -C 50 -T v -T a",
            "-S 100000 -C 20 -T n -T v",
        ] {
            if !has("rstream", "rdmacm-utils") {
                return;
            }
            let names = Names::new();
            let said = ends(&names, device, ["rstream"; 2], [options, &format!("{options} -s 127.0.0.1")]);
            for said in said {
                assert!(said.contains("custom") && !said.contains("failed"), "{device}, {options}: {said}");
            }
        }
    }
}

/// It polls memory that the peer writes, and gives the device no thread for that.
#[test]
fn riostream_writes_mapped_memory() {
    if !has("riostream", "rdmacm-utils") {
        return;
    }
    for device in DEVICES {
        let options = "-S 5000 -C 5 -I 3 -T v";
        let said =
            ends(&Names::new(), device, ["riostream"; 2], [options, &format!("{options} -s 127.0.0.1")]);
        assert!(said.iter().all(|said| said.contains("custom")), "{device}: {said:?}");
    }
}

/// Goal: a socket program without a change runs over RDMA, by rdma-core's library that turns its sockets into rsockets.
#[test]
fn socket_programs_run_under_librspreload() {
    let library = format!("/usr/lib/{}-linux-gnu/rsocket/librspreload.so", std::env::consts::ARCH);
    if !Path::new(&library).exists() || !has("iperf3", "iperf3") {
        eprintln!("SKIPPED: there is no librspreload.so here; apt-get install librdmacm1 iperf3");
        return;
    }
    for device in DEVICES {
        let (names, port) = (Names::new(), free_port());
        let start = |end: &str| {
            let mut command = names.command("iperf3", device);
            command.env("LD_PRELOAD", &library).args(end.split(' ')).args(["-p", &port.to_string()]);
            command.spawn().expect("it starts")
        };
        let mut server = start("-s -1");
        await_listener(port, &mut server);
        let client = finish(start("-c 127.0.0.1 -n 20M"), device);
        let server = finish(server, device);
        assert!(client.contains("iperf Done") && server.contains("receiver"), "{device}: {client}{server}");
    }
}
