//! `nicety serve`, end to end: clients, invalid input, and its end.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use results::schema::Run;
use rustix::process::Signal;

use crate::bench_command::long;
use crate::common::{Ended, command, json, nicety, signal, wait};

/// A server at a free port, and its address; ended when dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) addr: String,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    pub(crate) fn with(more: &[&str]) -> Self {
        let mut child = command()
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command runs");
        let mut lines = BufReader::new(child.stdout.take().expect("standard output")).lines();
        let first = lines.next().expect("a line").expect("text");
        let addr = first.rsplit(' ').next().expect("an address").to_owned();
        std::thread::spawn(move || lines.count());
        Self { child, addr }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn measure(addr: &str) {
    let ended = measured(addr, &[]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(json(&ended.out)["results"].as_array().is_some_and(|results| !results.is_empty()));
}

fn measured(addr: &str, more: &[&str]) -> Ended {
    let args = [
        "bench",
        "latency",
        "--size",
        "8",
        "--quick",
        "--launches",
        "1",
        "--set",
        "budget=0.5",
        "--json",
        "-",
    ];
    nicety(args.into_iter().chain(["--peer", addr]).chain(more.iter().copied()))
}

/// Goal: results describe both machines. Method: the peer is this machine, so its description must equal the client's.
#[test]
fn results_describe_the_peer() {
    let server = Server::start();
    let ended = measured(&server.addr, &[]);
    let environment = &json(&ended.out)["environment"];
    let peers = environment["peers"].as_array().expect("peers");
    assert_eq!(peers.len(), 1, "{environment}");
    assert_eq!(peers[0]["address"], server.addr.as_str());
    for field in ["host", "kernel", "cpu", "cores", "nicety_version"] {
        assert_eq!(peers[0][field], environment[field], "{field}");
        assert!(!peers[0][field].is_null(), "{field}");
    }
    assert!(peers[0]["pinned_core"].is_u64(), "{environment}");
    assert_eq!(environment["nicety_version"], env!("CARGO_PKG_VERSION"));
}

/// Goal: the server survives any behaviour of clients. Method: between valid clients, connections send bytes outside the
/// protocol, a frame that claims 4 GiB, or nothing, and one client stays connected.
#[test]
fn server_survives_garbage() {
    let server = Server::start();
    let idle = TcpStream::connect(&server.addr).expect("a connection");
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0xff; 3000], &[0, 0, 0, 4, b'n', b'u'], b""] {
        let mut stream = TcpStream::connect(&server.addr).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
        // An error is a valid answer too: the server may have closed the connection already.
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.len() < 4096);
    }
    measure(&server.addr);
    drop(idle);
    measure(&server.addr);
}

/// Goal: idle connections do not keep clients out. Method: more idle connections than the server admits.
#[test]
fn silent_clients_do_not_block_others() {
    let server = Server::start();
    let silent: Vec<TcpStream> =
        (0..400).map(|_| TcpStream::connect(&server.addr).expect("a connection")).collect();
    measure(&server.addr);
    drop(silent);
}

/// Goal: a server with a token serves only clients with the same token; the others get an error with a remedy, and a server
/// without a token refuses to listen on a network.
#[test]
fn client_without_token_is_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).expect("file");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))
            .expect("changed");
        path.display().to_string()
    };
    let (ours, other) = (file("ours", "0123456789abcdef\n"), file("other", "another one, as long\n"));
    let server = Server::with(&["--token-file", &ours]);
    let ended = measured(&server.addr, &["--token-file", &ours]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    for (more, said) in
        [(&[][..], "requires a token"), (&["--token-file", &other], "the tokens of the two sides differ")]
    {
        let ended = measured(&server.addr, more);
        assert!(ended.status == Some(1) && ended.err.contains(said), "{ended:?}");
        assert!(ended.err.contains("--token-file") && !ended.err.contains("0123456789"), "{ended:?}");
    }
    let open = Server::start();
    let ended = measured(&open.addr, &["--token-file", &ours]);
    assert!(ended.status == Some(1) && ended.err.contains("has no token"), "{ended:?}");
    nicety(["serve", "--listen", "0.0.0.0:0"]).is_error(2, "give both sides a token");
    nicety(["serve", "--token", "short"]).is_error(2, "a token of 5 characters");
}

#[test]
fn simultaneous_clients_are_served() {
    let server = Server::start();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| measure(&server.addr));
        }
    });
}

/// Goal: if the peer dies during a run, earlier results are kept. Method: kills its server after the first cells.
#[test]
fn partial_results_are_written_when_the_peer_dies() {
    let dir = tempfile::tempdir().expect("directory");
    std::fs::write(dir.path().join("r.json"), "old").expect("file");
    let mut server = Server::start();
    let mut child = long(dir.path(), "peer-dies", &["--peer", &server.addr]);
    server.child.kill().expect("the server is there");
    server.child.wait().expect("a status");
    assert_eq!(wait(&mut child), Some(1));
    assert_eq!(std::fs::read_to_string(dir.path().join("r.json")).expect("file"), "old");
    let run = Run::read(dir.path().join("r.partial.json")).expect("a result file");
    assert!(!run.results.is_empty());
}

#[test]
fn server_ends_cleanly_on_a_signal() {
    for ask in [Signal::INT, Signal::TERM] {
        let mut server = Server::start();
        signal(&server.child, ask);
        assert_eq!(wait(&mut server.child), Some(0));
        assert!(TcpStream::connect(&server.addr).is_err(), "nobody listens any more");
    }
}

#[test]
fn invalid_listen_address_is_refused() {
    let server = Server::start();
    nicety(["serve", "--listen", &server.addr]).is_error(1, "cannot listen");
    nicety(["serve", "--listen", "nowhere"])
        .is_error(2, "--listen <ADDR[:PORT]>: 'nowhere' is not an address");
}

/// Goal: a server whose log cannot be written reports that once, continues, and ends with an error status.
#[test]
fn unwritable_log_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("/dev/full");
    let mut child = command()
        .args(["serve", "--listen", "127.0.0.1:0"])
        .stdout(full)
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut errors = BufReader::new(child.stderr.take().expect("standard error"));
    let mut line = String::new();
    errors.read_line(&mut line).expect("text");
    assert!(line.starts_with("nicety: cannot write to standard output: No space"), "{line}");
    signal(&child, Signal::TERM);
    assert_eq!(wait(&mut child), Some(1));
    let mut rest = String::new();
    errors.read_to_string(&mut rest).expect("text");
    assert_eq!(rest, "", "once");
}
