//! Two hosts, as two network namespaces of this one: `nicety serve` in one, `nicety bench --peer` in the other, iWARP
//! between them. Needs the right to make namespaces; without it the test says so and is over.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use bench::schema::Run;

use crate::common::{Ended, command};

const SUBNET: &str = "10.213.47";

/// Two namespaces with a cable between them; dropping removes both.
struct Hosts {
    names: [String; 2],
}

impl Hosts {
    /// Why not, if the machine does not allow it.
    fn new() -> Result<Self, String> {
        let names = ["a", "b"].map(|side| format!("nic-e2e-{}-{side}", std::process::id()));
        let [a, b] = &names;
        // From here on dropping cleans up.
        let hosts = Self { names: names.clone() };
        for name in &names {
            ip(&["netns", "add", name])?;
        }
        ip(&["-n", a, "link", "add", "nic0", "type", "veth", "peer", "name", "nic0", "netns", b])?;
        for (name, last) in [(a, 1), (b, 2)] {
            ip(&["-n", name, "addr", "add", &format!("{SUBNET}.{last}/24"), "dev", "nic0"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", "nic0", "up"])?;
        }
        Ok(hosts)
    }

    /// The command within a host.
    fn nicety(&self, host: usize, args: &[&str]) -> Command {
        let mut inside = Command::new("ip");
        let program = command();
        inside.args(["netns", "exec", &self.names[host]]).arg(program.get_program()).args(args);
        inside.env("TERM", "xterm").stdin(Stdio::null());
        inside
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // One that is not there needs no removing.
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(args).output().map_err(|e| format!("ip: {e}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("ip {}: {}", args.join(" "), said.trim())) }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Goal: iWARP is measured between two hosts, on the sides that were named, beside what sockets do between the same two.
#[test]
fn two_hosts_measure_each_other_over_iwarp() {
    let hosts = match Hosts::new() {
        Ok(hosts) => hosts,
        Err(why) => {
            eprintln!("SKIPPED: two hosts cannot be made here, nothing was tested between hosts: {why}");
            return;
        }
    };
    let (near, far) = (format!("iwarp@{SUBNET}.1"), format!("iwarp@{SUBNET}.2"));
    let serve = ["serve", "--listen", &format!("{SUBNET}.2:7471"), "--device", &far];
    let mut child = hosts.nicety(1, &serve).stdout(Stdio::piped()).spawn().expect("a server");
    let lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
    let server = Server(child);
    let mut lines = lines.map_while(Result::ok);
    assert!(lines.next().is_some_and(|line| line.contains("listening at")), "the server listens");
    std::thread::spawn(move || lines.count());

    let peer = format!("{SUBNET}.2");
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
            |r: &&bench::schema::Measurement| r.floor.as_ref().is_some_and(|f| f.what.contains("TCP"));
        assert!(of.iter().all(beside), "{experiment} stands beside sockets");
    }
    // Another kind of device than the server offers, and one that does not reach other hosts anyway.
    let refused = measure("shm", &["latency"]);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(refused.err.contains("--device iwarp"), "{refused:?}");
    drop(server);
}
