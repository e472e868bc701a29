//! Programs of Debian for arm64, on our library for arm64, under emulation.

use anyhow::{Context, Result, bail};
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use xtask::limited::Running;
use xtask::packages::is_root;
use xtask::workspace::run as run_command;

use crate::deb;
use crate::targets::ARM64;

/// Debian's packages of the programs; what they depend on comes with them.
const WITH: &str = "--include=ibverbs-utils,rdmacm-utils";
/// A limit for each step of a program, which is slow under emulation.
const LIMIT: Duration = Duration::from_secs(120);

/// A program that runs twice, as a server and as a client.
struct Pair {
    program: &'static str,
    device: &'static str,
    server: &'static str,
    client: &'static str,
    /// What the client prints when all went well.
    says: &'static str,
}

const PAIRS: [Pair; 2] = [
    Pair {
        program: "ibv_rc_pingpong",
        device: "shm",
        server: "-c -n 100 -p",
        client: "127.0.0.1 -c -n 100 -p",
        says: "100 iters in",
    },
    Pair {
        program: "rping",
        device: "iwarp@127.0.0.1",
        server: "-s -a 127.0.0.1 -C 5 -p",
        client: "-c -a 127.0.0.1 -C 5 -v -p",
        says: "ping data: rdma-ping-4",
    },
];

/// Runs all pairs; returns their names and devices. `folder` is cargo's target folder for this architecture.
pub(super) fn run(folder: &Path) -> Result<String> {
    let emulated = Emulated { root: root(folder)?, names: names(folder)?, logs: folder.to_owned() };
    let ran = PAIRS.iter().map(|pair| {
        emulated.run(pair).with_context(|| format!("{} on {} under emulation", pair.program, pair.device))?;
        Ok(format!("{} on {}", pair.program, pair.device))
    });
    Ok(ran.collect::<Result<Vec<_>>>()?.join(", "))
}

/// A folder in which our library has the names that programs load.
fn names(folder: &Path) -> Result<PathBuf> {
    let (names, library) = (folder.join("names"), folder.join(ARM64).join("debug/libnicety_verbs.so"));
    fs::create_dir_all(&names)?;
    for name in ["libibverbs.so.1", "librdmacm.so.1"].map(|name| names.join(name)) {
        if name.symlink_metadata().is_err() {
            symlink(&library, name)?;
        }
    }
    Ok(names)
}

/// A folder with the programs and their libraries. Installing them runs no program for arm64.
fn root(folder: &Path) -> Result<PathBuf> {
    let (root, done) = (folder.join("root"), folder.join("root.done"));
    if done.exists() {
        return Ok(root);
    }
    if !is_root() {
        bail!("only root can unpack Debian's programs for arm64; try: sudo cargo xtask arm64");
    }
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("cannot empty {}", root.display()))?;
    }
    let mut make = Command::new("mmdebstrap");
    make.args(["--quiet", "--variant=extract", "--architectures=arm64", WITH, &deb::suite_of_debian()?]);
    run_command(make.arg(&root).stdin(Stdio::null()))?;
    fs::write(done, "")?;
    Ok(root)
}

/// What programs run in.
struct Emulated {
    root: PathBuf,
    names: PathBuf,
    logs: PathBuf,
}

impl Emulated {
    /// Runs the server and the client, and checks what the client prints.
    fn run(&self, pair: &Pair) -> Result<()> {
        let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        let start = |arguments: &str, role: &str| {
            let log = self.logs.join(format!("{}-{role}.log", pair.program));
            Running::start(&mut self.command(pair, arguments, port), &log)
        };
        let mut server = start(pair.server, "server")?;
        server.wait_for_listener(port, LIMIT)?;
        let client = start(pair.client, "client")?.finish(LIMIT)?;
        let server = server.finish(LIMIT)?;
        if !client.is_good() || !server.is_good() || !client.output.contains(pair.says) {
            bail!("the client: {client:?}\nthe server: {server:?}");
        }
        Ok(())
    }

    fn command(&self, pair: &Pair, arguments: &str, port: u16) -> Command {
        let mut command = Command::new("qemu-aarch64");
        command.arg("-L").arg(&self.root);
        command.arg("-E").arg(format!("LD_LIBRARY_PATH={}", self.names.display()));
        command.arg("-E").arg(format!("NICETY_VERBS_DEVICES={}", pair.device));
        command.arg(self.root.join("usr/bin").join(pair.program));
        command.args(arguments.split(' ')).arg(port.to_string());
        command
    }
}
