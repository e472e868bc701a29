//! Runs programs with the library of this crate: third-party ones, and our own in C.
#![allow(dead_code)] // each test file uses a part of it

use std::fs;
use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long a program may take to start listening, and to end.
const LIMIT: Duration = Duration::from_secs(600);

/// The library that cargo has built for this test.
pub(crate) fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this test");
    let places = own.ancestors().skip(1).take(2).map(|place| place.join("libnicety_verbs.so"));
    let found = places.max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok());
    found.filter(|path| path.exists()).expect("cargo builds the library for its tests")
}

/// A folder that contains the library under both of its names.
pub(crate) struct Names(tempfile::TempDir);

impl Names {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["libibverbs.so.1", "librdmacm.so.1"] {
            symlink(library(), folder.path().join(name)).expect("a link");
        }
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// A command that runs a program with the library, on a device.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>, device: &str) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.path()).env("NICETY_VERBS_DEVICES", device);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
        command
    }
}

/// Whether a program is installed; otherwise prints what is skipped.
pub(crate) fn has(program: &str, package: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !there {
        eprintln!("SKIPPED: there is no {program} here; apt-get install {package}");
    }
    there
}

/// Whether a C compiler and the headers are installed; otherwise prints what is skipped.
pub(crate) fn has_compiler() -> bool {
    let headers = ["infiniband/verbs.h", "rdma/rdma_cma.h"];
    let there = headers.iter().all(|header| Path::new("/usr/include").join(header).exists());
    if !there {
        eprintln!("SKIPPED: no headers here; apt-get install libibverbs-dev librdmacm-dev");
    }
    has("cc", "gcc") && there
}

/// Compiles a source of `tests/c` and links it with our library.
pub(crate) fn compile(names: &Names, source: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let program = names.path().join("program");
    let mut cc = Command::new("cc");
    cc.args(["-Wall", "-Wextra", "-Werror", "-g", "-o"]).arg(&program).arg(source);
    cc.arg("-I").arg(names.path());
    cc.args(["libibverbs.so.1", "librdmacm.so.1"].map(|name| names.path().join(name))).arg("-lpthread");
    let output = cc.output().expect("cc runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// A free port outside of the system's ephemeral range: a connection could take a port of that range before the program listens.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let count = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 10_000 + (std::process::id().wrapping_mul(37).wrapping_add(count) % 20_000) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Waits until a server listens at this port, without connecting to it.
pub(crate) fn await_listener(port: u16, server: &mut Child) {
    let (wanted, start) = (format!(":{port:04X}"), Instant::now());
    let is_there = |file: &str| {
        let table = fs::read_to_string(file).unwrap_or_default();
        table.lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            words.next().is_some_and(|local| local.ends_with(&wanted)) && words.nth(1) == Some("0A")
        })
    };
    // Shared-memory devices listen at an abstract socket name.
    let name = format!("/{port}");
    let is_named = || {
        let table = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        table.lines().any(|line| line.contains("@nicety-shm/") && line.ends_with(&name))
    };
    while !is_there("/proc/net/tcp") && !is_there("/proc/net/tcp6") && !is_named() {
        if server.try_wait().expect("it can be queried").is_some() {
            panic!("the server has ended: {}", last_words(server));
        }
        assert!(start.elapsed() < LIMIT, "nobody listens");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The output of a program that has ended.
fn last_words(child: &mut Child) -> String {
    let mut words = String::new();
    let out = child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut words));
    let err = child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut words));
    drop((out, err));
    words
}

/// Waits for a program, which must succeed within the time limit; returns its output.
pub(crate) fn finish(child: Child, what: &str) -> String {
    let output = end(child, what);
    let said = said(&output);
    assert!(output.status.success(), "{what} ends with {}: {said}", output.status);
    said
}

/// Waits for a program, which must end within the time limit.
pub(crate) fn end(mut child: Child, what: &str) -> Output {
    let start = Instant::now();
    while child.try_wait().expect("it can be queried").is_none() {
        if start.elapsed() > LIMIT {
            let _ = child.kill();
            let said = said(&child.wait_with_output().expect("the process exits"));
            panic!("{what} does not end: {said}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("it has ended")
}

pub(crate) fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Runs a program that exchanges queue pair numbers over TCP, as server and as client; returns both outputs.
pub(crate) fn pair(names: &Names, device: &str, line: &str) -> [String; 2] {
    let (program, options) = line.split_once(' ').unwrap_or((line, ""));
    ends(names, device, [program, program], [options, &format!("{options} 127.0.0.1")])
}

/// Runs a server and then its client; returns both outputs, the client's first.
pub(crate) fn ends(names: &Names, device: &str, programs: [&str; 2], options: [&str; 2]) -> [String; 2] {
    let (port, line) = (free_port(), options[0]);
    let start = |end: usize| {
        let mut command = names.command(programs[end], device);
        command.args(["-p", &port.to_string()]).args(options[end].split_whitespace());
        command.spawn().expect("it starts")
    };
    let mut server = start(0);
    await_listener(port, &mut server);
    let client = start(1);
    [finish(client, line), finish(server, line)]
}
