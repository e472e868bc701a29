//! Two hosts as network namespaces of this machine, connected by a cable with a rate and a delay. Needs the right to create
//! namespaces and TUN devices.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

use xtask::workspace::{Workspace, run};

/// The cable's device in each namespace.
pub(super) const INTERFACE: &str = "nic0";
const SUBNET: &str = "10.213.61";

/// The rate and the delay of a cable, such as `10g,50us`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Cable {
    mbit_per_s: f64,
    delay_us: f64,
}

impl FromStr for Cable {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let with_unit = |word: &str, units: [(&str, f64); 2]| {
            let (unit, factor) = units.into_iter().find(|(unit, _)| word.ends_with(unit))?;
            let value: f64 = word.strip_suffix(unit)?.parse().ok()?;
            (value.is_finite() && value > 0.0).then_some(value * factor)
        };
        let parsed = text.split_once(',').and_then(|(rate, delay)| {
            let mbit_per_s = with_unit(rate, [("g", 1e3), ("m", 1.0)])?;
            Some(Self { mbit_per_s, delay_us: with_unit(delay, [("us", 1.0), ("ms", 1e3)])? })
        });
        parsed.context("not a rate and a delay, such as 10g,50us or 100m,1ms")
    }
}

/// Two namespaces and the cable; all end when this is dropped.
pub(super) struct Network {
    names: [String; 2],
    cable: Option<Child>,
    agent: PathBuf,
}

impl Network {
    /// Creates the namespaces, lays the cable, and writes the program that reaches a host in place of ssh.
    pub(super) fn new(workspace: &Workspace, folder: &Path, cable: Cable) -> Result<Self> {
        let program = folder.join("cable");
        let source = workspace.root.join("xtask/peers/cable.c");
        run(Command::new("cc").args(["-O2", "-Wall", "-Wextra", "-o"]).args([&program, &source]))?;
        let names = ["a", "b"].map(|side| format!("nic-peers-{}-{side}", std::process::id()));
        let mut network = Self { names, cable: None, agent: folder.join("agent") };
        for name in &network.names {
            ip(&["netns", "add", name])
                .context("this measurement needs the right to create network namespaces")?;
        }
        let mut child = Command::new(&program)
            .args(&network.names)
            .args([INTERFACE, &cable.mbit_per_s.to_string(), &cable.delay_us.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{}", program.display()))?;
        let mut line = String::new();
        let output = child.stdout.take().context("its output")?;
        network.cable = Some(child);
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line == "ready\n", "the cable did not start: it needs /dev/net/tun and the right to use it");
        for (name, host) in network.names.iter().zip(Self::hosts()) {
            ip(&["-n", name, "addr", "add", &format!("{host}/24"), "dev", INTERFACE])?;
            ip(&["-n", name, "link", "set", "lo", "up"])?;
            ip(&["-n", name, "link", "set", INTERFACE, "up"])?;
        }
        network.write_agent()?;
        Ok(network)
    }

    /// The addresses of the two hosts.
    pub(super) fn hosts() -> [String; 2] {
        [1, 2].map(|host| format!("{SUBNET}.{host}"))
    }

    /// The network in the notation that libraries take.
    pub(super) fn subnet() -> String {
        format!("{SUBNET}.0/24")
    }

    /// The program that takes the place of ssh: its arguments are options, a host, and a command for the host's shell.
    pub(super) fn agent(&self) -> &Path {
        &self.agent
    }

    fn write_agent(&self) -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let [first, second] = &self.names;
        let text = format!(
            "#!/bin/sh\n\
             while [ \"${{1#-}}\" != \"$1\" ]; do case $1 in -o | -l | -p) shift ;; esac; shift; done\n\
             case $1 in *.1) name={first} ;; *.2) name={second} ;; *) echo \"no host $1\" >&2; exit 255 ;; esac\n\
             shift\n\
             exec ip netns exec $name unshare --uts sh -c \"hostname $name; $*\"\n"
        );
        std::fs::write(&self.agent, text).with_context(|| format!("{}", self.agent.display()))?;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&self.agent, mode).with_context(|| format!("{}", self.agent.display()))
    }

    /// A command on the first host; the caller appends a program and its arguments.
    pub(super) fn on_first(&self) -> Command {
        let [first, _] = &self.names;
        let mut command = Command::new("ip");
        command.args(["netns", "exec", first, "unshare", "--uts", "sh", "-c"]);
        command.args([&format!("hostname {first}; exec \"$@\""), "sh"]);
        command
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if let Some(mut cable) = self.cable.take() {
            // It ends with its standard input.
            drop(cable.stdin.take());
            let _ = cable.wait();
        }
        for name in &self.names {
            // Fails if the namespace was not created.
            let _ = ip(&["netns", "del", name]);
        }
    }
}

fn ip(args: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(args).output().context("cannot start ip (package iproute2)")?;
    if !output.status.success() {
        bail!("ip {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cables_are_parsed() {
        let cable = |mbit_per_s, delay_us| Cable { mbit_per_s, delay_us };
        assert_eq!("10g,50us".parse::<Cable>().ok(), Some(cable(10e3, 50.0)));
        assert_eq!("100m,1ms".parse::<Cable>().ok(), Some(cable(100.0, 1000.0)));
        for wrong in ["", "10g", "10,50us", "10g,50", "-1g,50us", "0g,1us", "infg,1us"] {
            assert!(wrong.parse::<Cable>().is_err(), "{wrong}");
        }
    }
}
