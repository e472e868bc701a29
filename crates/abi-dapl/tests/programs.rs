//! Debian's own test programs, unmodified, on our devices: dtest, and dapltest's transaction, performance, quit and limit
//! tests, with server and client. Without the package the tests are skipped, and print that.

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The time limit for one program.
const LIMIT: Duration = Duration::from_secs(120);

/// The environment for the programs of dapl2-utils: a device, and a directory for their configuration and logs.
struct Environment {
    device: &'static str,
    directory: tempfile::TempDir,
    /// Locked while the programs use their built-in ports.
    _turn: File,
}

impl Environment {
    /// Creates the environment, if the programs are installed.
    fn open(device: &'static str) -> Option<Self> {
        let missing = ["dtest", "dapltest"].into_iter().find(|program| !is_installed(program));
        if let Some(program) = missing {
            eprintln!(
                "SKIPPED, nothing is shown on {device}: {program} is missing; apt-get install dapl2-utils"
            );
            return None;
        }
        let turn = File::create(std::env::temp_dir().join("nicety-dat-programs.lock")).expect("a lock file");
        turn.lock().expect("the lock");
        let directory = tempfile::tempdir().expect("a directory");
        let line = |threads| {
            format!("nic u2.0 {threads} default {} nicety.2.0 \"{device}\" \"\"\n", library().display())
        };
        std::fs::write(directory.path().join("dat.conf"), line("nonthreadsafe") + &line("threadsafe"))
            .expect("written");
        Some(Self { device, directory, _turn: turn })
    }

    fn command(&self, line: &str, log: &str) -> (Command, PathBuf) {
        let log = self.directory.path().join(log);
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        let out = File::create(&log).expect("a file");
        command
            .args(words)
            .env("DAT_OVERRIDE", self.directory.path().join("dat.conf"))
            .stdin(Stdio::null())
            .stderr(out.try_clone().expect("a file"))
            .stdout(out);
        (command, log)
    }

    /// Starts a program in the background.
    fn start(&self, line: &str) -> Running {
        let (mut command, log) = self.command(line, "server");
        Running { child: command.spawn().expect("it starts"), log, line: line.to_owned() }
    }

    /// Runs a program until it exits; returns its output.
    fn run(&self, line: &str) -> String {
        let (mut command, log) = self.command(line, "client");
        let child = command.spawn().expect("it starts");
        Running { child, log, line: line.to_owned() }.wait_for_exit(self.device)
    }
}

/// A running program.
struct Running {
    child: Child,
    log: PathBuf,
    line: String,
}

impl Running {
    fn output(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Waits until its output contains a text.
    fn wait_for_output(&mut self, what: &str) {
        let began = Instant::now();
        while !self.output().contains(what) {
            let ended = self.child.try_wait().expect("it is ours");
            assert!(ended.is_none(), "{} ended: {}", self.line, self.output());
            assert!(began.elapsed() < LIMIT, "{} is silent: {}", self.line, self.output());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for its exit, which must be successful; returns its output.
    fn wait_for_exit(mut self, device: &str) -> String {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                break status;
            }
            assert!(began.elapsed() < LIMIT, "{device}: {} does not end: {}", self.line, self.output());
            std::thread::sleep(Duration::from_millis(20));
        };
        let output = self.output();
        assert!(status.success(), "{device}: {} ends with {status}: {output}", self.line);
        output
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has exited already, or the test has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(program).exists())
}

/// The library that cargo has built for this test.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this test");
    let places = own.ancestors().skip(1).take(2).map(|place| place.join("libnicety_dat.so"));
    let found = places.max_by_key(|path| path.metadata().and_then(|meta| meta.modified()).ok());
    found.filter(|path| Path::exists(path)).expect("cargo builds the library for its tests")
}

/// Fails on error messages of dapltest and its kin, which may still exit successfully.
fn assert_clean(device: &str, line: &str, output: &str) {
    for bad in ["FAILED", "rror", "mismatch", "Mismatch", "fails", "WARNING"] {
        let found = output.lines().find(|line| line.contains(bad) && !line.contains("Error: 0"));
        assert!(found.is_none(), "{device}: {line}: {found:?}\n{output}");
    }
}

/// Waits until the port that is built into dtest is free. It is in the range that the system assigns to clients, whose
/// connections may linger there for a minute.
fn await_port() {
    let began = Instant::now();
    while let Err(why) = TcpListener::bind(("0.0.0.0", 45248)) {
        assert!(began.elapsed() < LIMIT, "another program keeps port 45248 of dtest: {why}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until dtest's server listens for the connection over which it exchanges its parameters: it announces this some system
/// calls before it listens, and it takes only one connection, so the test must not try to connect.
fn await_listener() {
    let port = format!(":{:04X}", 15828);
    let began = Instant::now();
    let listens = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words.len() > 3 && words[1].ends_with(&port) && words[3] == "0A"
    };
    while !std::fs::read_to_string("/proc/net/tcp").expect("the system's sockets").lines().any(listens) {
        assert!(began.elapsed() < LIMIT, "dtest's server never listens");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs the server and the client of one of the simple programs.
fn pair(device: &'static str, server: &str, listening: &str, client: &str) {
    let Some(environment) = Environment::open(device) else { return };
    await_port();
    let mut running = environment.start(server);
    running.wait_for_output(listening);
    await_listener();
    let output = environment.run(client);
    assert!(output.contains("PASSED"), "{device}: {client}: {output}");
    let output = running.wait_for_exit(device);
    assert!(output.contains("PASSED"), "{device}: {server}: {output}");
}

fn dapltest(device: &'static str) {
    let Some(environment) = Environment::open(device) else { return };
    // A port for this process, below the range that the system assigns.
    let port = 20_000 + std::process::id() % 10_000;
    let mut server = environment.start(&format!("dapltest -T S -D nic -n {port}"));
    server.wait_for_output("Service Point Ready");
    let to = format!("-s 127.0.0.1 -D nic -n {port}");
    for line in [
        format!("dapltest -T T {to} -i 200 client SR 4096 2 server SR 4096 2"),
        format!(
            "dapltest -T T {to} -i 50 -t 2 -w 4 -V client RW 4096 1 server RW 2048 4 client SR 1024 4 server SR 4096 2 \
             client RR 4096 2 server RR 1024 1 client SR 1024 3 -f server SR 2048 1 -f"
        ),
        format!("dapltest -T T {to} -i 200 -P client SR 256 1 server SR 256 1"),
        format!("dapltest -T T {to} -i 10 client RW 1000000 1 server SR 65536 1 client SR 65536 1"),
        format!("dapltest -T P {to} -i 1000 -m b RW 4096 2"),
        format!("dapltest -T P {to} -i 1000 -m p -p 16 RR 4096 2"),
        format!("dapltest -T Q {to}"),
    ] {
        assert_clean(device, &line, &environment.run(&line));
    }
    assert_clean(device, "the server", &server.wait_for_exit(device));
    let limits = environment.run("dapltest -T L -D nic -w 2 -m 200");
    for what in
        ["IAs opened: 200", "PZs created: 200", "EVDs created: 200", "EPs created: 200", "LMRs created: 200"]
    {
        assert!(limits.contains(what), "{device}: {what} is missing: {limits}");
    }
}

const DTEST: [&str; 3] =
    ["stdbuf -oL dtest -P nic -s", "waiting for client connection", "dtest -P nic -h 127.0.0.1"];

#[test]
fn dtest_on_shm() {
    pair("shm", DTEST[0], DTEST[1], DTEST[2]);
}

#[test]
fn dtest_on_iwarp() {
    pair("iwarp", DTEST[0], DTEST[1], DTEST[2]);
}

#[test]
fn dapltest_on_shm() {
    dapltest("shm");
}

#[test]
fn dapltest_on_iwarp() {
    dapltest("iwarp");
}

/// The service process copies instead of the kernel, and CRCs are enabled: devices with options pass, too.
#[test]
fn dapltest_on_devices_with_options() {
    dapltest("shm(copy=service,dm=64M)");
    dapltest("iwarp(crc=on)");
}

#[test]
fn unknown_device_is_named_in_the_error() {
    let Some(environment) = Environment::open("smh") else { return };
    let (mut command, log) = environment.command("dtest -P nic -s", "typo");
    let status = command.status().expect("it starts");
    let output = std::fs::read_to_string(log).expect("a log");
    assert!(
        !status.success() && output.contains("there is no device 'smh'; there is: shm, iwarp"),
        "{output}"
    );
}
