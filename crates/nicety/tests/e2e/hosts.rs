//! Hosts as network namespaces of this machine, connected by a bridge. Needs the right to create namespaces.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::common::command;

const SUBNET: &str = "10.213.47";
const TOKEN: &str = "shared by all hosts";

/// Namespaces, each with a virtual cable to a bridge; removed when dropped.
pub(crate) struct Hosts {
    names: Vec<String>,
}

impl Hosts {
    /// Creates this many hosts; `tag` distinguishes the hosts of different tests. An error says why the machine does not allow
    /// it.
    pub(crate) fn new(tag: &str, count: usize) -> Result<Self, String> {
        let name = |what: &str| format!("nic-{tag}-{}-{what}", std::process::id());
        let switch = name("switch");
        let mut names: Vec<String> = (1..=count).map(|n| name(&n.to_string())).collect();
        names.push(switch.clone());
        // From here on, an error drops `hosts`, which removes the namespaces.
        let hosts = Self { names };
        hosts.names.iter().try_for_each(|name| ip(&["netns", "add", name]))?;
        ip(&["-n", &switch, "link", "add", "br0", "type", "bridge"])?;
        ip(&["-n", &switch, "link", "set", "br0", "up"])?;
        for (index, name) in hosts.names[..count].iter().enumerate() {
            let port = format!("port{index}");
            ip(&[
                "-n", name, "link", "add", "nic0", "type", "veth", "peer", "name", &port, "netns", &switch,
            ])?;
            ip(&["-n", &switch, "link", "set", &port, "master", "br0", "up"])?;
            ip(&["-n", name, "addr", "add", &format!("{}/24", Self::addr(index)), "dev", "nic0"])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", "nic0", "up"])?;
        }
        Ok(hosts)
    }

    /// The address of a host.
    pub(crate) fn addr(host: usize) -> String {
        format!("{SUBNET}.{}", host + 1)
    }

    /// The command, run inside a host.
    pub(crate) fn nicety(&self, host: usize, args: &[&str]) -> Command {
        let mut inside = Command::new("ip");
        let program = command();
        inside
            .args(["netns", "exec", &self.names[host]])
            .arg(program.get_program())
            .args(program.get_args())
            .args(args);
        // Every server here listens on a network, which requires a token.
        inside.env("TERM", "xterm").env("NICETY_TOKEN", TOKEN).stdin(Stdio::null());
        inside
    }

    /// Starts a server inside a host, at its address and the default port; it listens when this returns.
    pub(crate) fn server(&self, host: usize, more: &[&str]) -> Server {
        let at = format!("{}:7471", Self::addr(host));
        let args: Vec<&str> = ["serve", "--listen", &at].iter().chain(more).copied().collect();
        let mut child = self.nicety(host, &args).stdout(Stdio::piped()).spawn().expect("a server");
        let lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
        let server = Server(child);
        let mut lines = lines.map_while(Result::ok);
        assert!(lines.next().is_some_and(|line| line.contains("listening at")), "the server listens");
        std::thread::spawn(move || lines.count());
        server
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            // Fails if the namespace was not created.
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn ip(args: &[&str]) -> Result<(), String> {
    let done = Command::new("ip").args(args).output().map_err(|e| format!("ip: {e}"))?;
    let said = String::from_utf8_lossy(&done.stderr);
    if done.status.success() { Ok(()) } else { Err(format!("ip {}: {}", args.join(" "), said.trim())) }
}

/// A server, killed when dropped.
pub(crate) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
