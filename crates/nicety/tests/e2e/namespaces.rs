//! iWARP between hosts, which are network namespaces: `nicety serve` runs in each but one, `nicety bench --peer` in that one.
//! Needs the right to create namespaces; without it, a test prints that and returns.

use results::variant::{Factor, factor};
use std::collections::BTreeSet;

use results::schema::Run;

use crate::bench_command::long_with;
use crate::common::{Ended, wait};
use crate::hosts::Hosts;

/// The hosts; `None`, with a remark, if they cannot be created.
fn hosts(tag: &str, count: usize) -> Option<Hosts> {
    let made = Hosts::new(tag, count);
    made.map_err(|why| {
        eprintln!("SKIPPED: {count} hosts cannot be made here, nothing was tested between hosts: {why}");
    })
    .ok()
}

/// Goal: iWARP is measured between two hosts, at the addresses of `--device`, with sockets between the same hosts as the floor.
#[test]
fn two_hosts_measure_each_other_over_iwarp() {
    let Some(hosts) = hosts("two", 2) else { return };
    let (near, far) = (format!("iwarp@{}", Hosts::addr(0)), format!("iwarp@{}", Hosts::addr(1)));
    let server = hosts.server(1, &["--device", &far]);
    let peer = Hosts::addr(1);
    let measure = |device: &str, what: &[&str]| -> Ended {
        let short = ["--size", "8,64K", "--quick", "--launches", "1", "--set", "budget=1", "--json", "-"];
        let args: Vec<&str> = ["bench"].iter().chain(what).chain(&short).copied().collect();
        let args: Vec<&str> = args.into_iter().chain(["--device", device, "--peer", &peer]).collect();
        hosts.nicety(0, &args).output().expect("the command runs").into()
    };
    let ended = measure(&near, &["latency", "bandwidth", "bibw", "rate", "memory"]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let run = Run::from_json(&ended.out).expect("a result file");
    assert!(run.missing.is_empty(), "{:?}", run.missing);
    for experiment in ["latency", "bandwidth", "bibw", "rate"] {
        let of: Vec<_> = run.results.iter().filter(|r| r.experiment == experiment).collect();
        assert!(!of.is_empty() && of.iter().all(|r| r.device == near), "{experiment}");
        let beside =
            |r: &&results::schema::Measurement| r.floor.as_ref().is_some_and(|f| f.what.contains("TCP"));
        assert!(of.iter().all(beside), "{experiment} stands beside sockets");
    }
    // A device other than the server's; shm cannot reach other hosts anyway.
    let refused = measure("shm", &["latency"]);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(refused.err.contains("--device iwarp"), "{refused:?}");
    drop(server);
}

/// Goal: experiments of several processes run between as many hosts. Method: four hosts; hot spots with every possible number
/// of slaves and in all variants, chains, and the ring of `park`.
#[test]
fn four_hosts_measure_hot_spots_chains_and_rings() {
    let Some(hosts) = hosts("four", 4) else { return };
    let servers = [1, 2, 3].map(|host| hosts.server(host, &[]));
    let peers = [1, 2, 3].map(Hosts::addr).join(",");
    let args = [
        "bench",
        "hotspot",
        "chain",
        "park",
        "--device",
        "iwarp",
        "--peer",
        &peers,
        "--size",
        "2K",
        "--launches",
        "1",
        "--set",
        "budget=2",
        "--json",
        "-",
    ];
    let ended: Ended = hosts.nicety(0, &args).output().expect("the command runs").into();
    assert_eq!(ended.status, Some(0), "{ended:?}");
    let run = Run::from_json(&ended.out).expect("a result file");
    let levels = |experiment: &str, factor: Factor| -> BTreeSet<String> {
        let of = run.results.iter().filter(|r| r.experiment == experiment);
        of.map(|r| r.variant.get(factor).unwrap_or_default().to_owned()).collect()
    };
    let set = |all: &[&str]| -> BTreeSet<String> { all.iter().map(|s| (*s).to_owned()).collect() };
    assert_eq!(levels("hotspot", factor::SLAVES), set(&["1", "2", "3"]));
    assert_eq!(levels("hotspot", factor::OP), set(&["read", "send", "send-receive", "write"]));
    assert_eq!(levels("chain", factor::NODES), set(&["2", "4"]));
    assert_eq!(levels("park", factor::OP), set(&["send"]));
    assert!(run.missing.iter().all(|m| m.why.contains("has one port")), "{:?}", run.missing);
    drop(servers);
}

/// Goal: when one of several hosts dies during a run, earlier results are kept, the dead host is named, and the other servers
/// continue. Method: kills its server after the first cells, then measures with the others.
#[test]
fn failed_host_is_named_and_others_continue() {
    let Some(hosts) = hosts("dies", 4) else { return };
    let dir = tempfile::tempdir().expect("directory");
    let mut servers = [1, 2, 3].map(|host| Some(hosts.server(host, &[])));
    let peers = [1, 2, 3].map(Hosts::addr).join(",");
    let several = ["bench", "hotspot", "--device", "iwarp", "--size", "2K", "--json", "r.json"];
    let args: Vec<&str> = several.iter().chain(&["--peer", &peers]).copied().collect();
    let command = hosts.nicety(0, &[&args[..], &["--set", "slaves=3"]].concat());
    let (mut child, said) = long_with(command, dir.path());
    servers[1] = None;
    assert_eq!(wait(&mut child), Some(1));
    let said = said.join().expect("no panic");
    let last = said.last().expect("a reason");
    // It died during a cell or between two launches.
    assert!(last.contains("hotspot") || last.contains("cannot be reached"), "{said:#?}");
    assert!(last.contains("is kept"), "{said:#?}");
    let named: Vec<usize> =
        (1..4).filter(|host| last.contains(&format!("{}:7471", Hosts::addr(*host)))).collect();
    assert_eq!(named, [2], "{said:#?}");
    let run = Run::read(dir.path().join("r.partial.json")).expect("a result file");
    assert!(!run.results.is_empty());
    let rest = [1, 3].map(Hosts::addr).join(",");
    let short = ["--peer", &rest, "--quick", "--launches", "1", "--set", "budget=1"];
    let mut again = hosts.nicety(0, &[&several[..], &short].concat());
    let ended: Ended = again.current_dir(dir.path()).output().expect("the command runs").into();
    assert_eq!(ended.status, Some(0), "{ended:?}");
}
