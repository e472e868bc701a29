//! The uDAPL cases: Debian's dtest and dapltest, unmodified, on our devices, started as a user does with `nicety run
//! --dat`. They need no guest.

use super::case::{Case, Verdict};
use super::guest::tail;
use anyhow::{Result, bail, ensure};
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use xtask::limited::{Finished, Running};
use xtask::workspace::{Workspace, run};

pub(crate) const CASES: &[Case<Programs>] = &[
    Case { name: "dtest-shm", shows: "dtest, server and client", run: |p| p.dtest("shm") },
    Case { name: "dtest-iwarp", shows: "the same on iwarp", run: |p| p.dtest("iwarp") },
    Case { name: "dtest-rails", shows: "the same on two rails", run: |p| p.dtest(RAILS) },
    Case {
        name: "dapltest-shm",
        shows: "dapltest: transactions, performance, limits, quit",
        run: |p| p.dapltest("shm"),
    },
    Case { name: "dapltest-iwarp", shows: "the same on iwarp", run: |p| p.dapltest("iwarp") },
    Case { name: "dapltest-rails", shows: "the same on two rails", run: |p| p.dapltest(RAILS) },
];

/// Two devices on one machine, combined.
const RAILS: &str = "rails(iwarp@127.0.0.1,iwarp@127.0.0.2)";
/// How long one of the programs may run.
const LIMIT: Duration = Duration::from_secs(120);
/// Commands of dapltest, without the options that name the server: sends, writes and reads of several sizes, threads and
/// queues, checked bytes, polling; then performance, blocking and polling.
const DAPLTESTS: &[&str] = &[
    "-T T TO -i 200 client SR 4096 2 server SR 4096 2",
    "-T T TO -i 50 -t 2 -w 4 -V client RW 4096 1 server RW 2048 4 client SR 1024 4 server SR 4096 2 \
     client RR 4096 2 server RR 1024 1 client SR 1024 3 -f server SR 2048 1 -f",
    "-T T TO -i 200 -P client SR 256 1 server SR 256 1",
    "-T T TO -i 10 client RW 1000000 1 server SR 65536 1 client SR 65536 1",
    "-T P TO -i 1000 -m b RW 4096 2",
    "-T P TO -i 1000 -m p -p 16 RR 4096 2",
    "-T Q TO",
];
/// Output that reports a problem even though the program exits successfully.
const BAD: &[&str] = &["FAILED", "rror", "ismatch", "fails", "WARNING"];

/// Debian's programs, started by `nicety`.
pub(crate) struct Programs {
    nicety: PathBuf,
    folder: PathBuf,
    case: &'static str,
    step: u32,
}

impl Programs {
    /// Builds our programs and libraries.
    pub(crate) fn open(workspace: &Workspace) -> Result<Self> {
        run(&mut workspace.cargo(&["build", "--quiet", "--package", "nicety", "--package", "abi-dapl"]))?;
        let folder = workspace.target().join("interop/dat");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        Ok(Self { nicety: workspace.target().join("debug/nicety"), folder, case: "", step: 0 })
    }

    /// Begins another case.
    pub(crate) fn begin(&mut self, case: &'static str) {
        (self.case, self.step) = (case, 0);
    }

    fn start(&mut self, device: &str, line: &str) -> Result<Running> {
        self.step += 1;
        let log = self.folder.join(format!("{}-{}.log", self.case, self.step));
        let mut command = Command::new(&self.nicety);
        command.args(["run", "--dat", "--device", device, "--"]).args(line.split_whitespace());
        Running::start(&mut command, &log)
    }

    /// Starts a program that listens, and waits until its output says so.
    fn listening(&mut self, device: &str, line: &str, words: &str) -> Result<Running> {
        let mut running = self.start(device, line)?;
        ensure!(
            running.wait_for_output(words, LIMIT)?,
            "`{line}` does not listen: {}",
            tail(&running.output()?)
        );
        Ok(running)
    }

    /// Runs a program to its end; returns its output.
    fn finish(&mut self, device: &str, line: &str) -> Result<String> {
        good(line, self.start(device, line)?.finish(LIMIT)?)
    }

    fn dtest(&mut self, device: &str) -> Result<Verdict> {
        const SERVER: &str = "stdbuf -oL dtest -P nicety -s";
        const CLIENT: &str = "dtest -P nicety -h 127.0.0.1";
        let mut server = self.listening(device, SERVER, "waiting for client connection")?;
        // It prints this some system calls before it listens for clients that query its type.
        server.wait_for_listener(15828, LIMIT)?;
        let said = [self.finish(device, CLIENT)?, good(SERVER, server.finish(LIMIT)?)?];
        ensure!(said.iter().all(|said| said.contains("PASSED")), "not passed: {}", tail(&said.concat()));
        Ok(Verdict("both ends say PASSED".into()))
    }

    fn dapltest(&mut self, device: &str) -> Result<Verdict> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let listen = format!("dapltest -T S -D nicety -n {port}");
        let server = self.listening(device, &listen, "Service Point Ready")?;
        let to = format!("-s 127.0.0.1 -D nicety -n {port}");
        for what in DAPLTESTS {
            let line = format!("dapltest {}", what.replace("TO", &to));
            clean(&line, &self.finish(device, &line)?)?;
        }
        clean(&listen, &good(&listen, server.finish(LIMIT)?)?)?;
        let limits = self.finish(device, "dapltest -T L -D nicety -w 2 -m 200")?;
        for what in ["IAs opened", "PZs created", "EVDs created", "EPs created", "LMRs created"] {
            ensure!(limits.contains(&format!("{what}: 200")), "{what}: not 200: {}", tail(&limits));
        }
        Ok(Verdict(format!("{} runs and the server clean, 200 objects of each kind", DAPLTESTS.len())))
    }
}

fn good(line: &str, finished: Finished) -> Result<String> {
    ensure!(finished.is_good(), "`{line}` ended with {:?}: {}", finished.status, tail(&finished.output));
    Ok(finished.output)
}

/// Fails if the output reports a problem.
fn clean(line: &str, said: &str) -> Result<()> {
    let is_bad = |line: &&str| BAD.iter().any(|bad| line.contains(bad)) && !line.contains("Error: 0");
    match said.lines().find(is_bad) {
        Some(bad) => bail!("`{line}` says: {bad}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_in_output_is_found_despite_exit_status_0() {
        assert!(clean("dapltest", "DT_cs_Client: connected\nTotal Error: 0\n").is_ok());
        for said in ["ok\nTest[0]: FAILED\n", "DAT Error: 3", "WARNING: wrong bytes", "Data mismatch at 7"] {
            assert!(clean("dapltest", said).is_err(), "{said}");
        }
    }
}
