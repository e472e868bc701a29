//! `nicety bench` with several peers: errors name the peer that caused them.

use std::io::Write as _;
use std::net::TcpListener;

use bench::launch::wire::VERSION;

use crate::common::{Ended, nicety};
use crate::serve::Server;

fn measure(peers: &[&str]) -> Ended {
    let peers = peers.join(",");
    let args = ["bench", "hotspot", "--quick", "--size", "64", "--launches", "1", "--set", "budget=0.5"];
    nicety(args.into_iter().chain(["--set", "patience=5", "--peer", &peers]))
}

/// The last line of a failed run.
fn why(ended: &Ended) -> &str {
    assert_eq!((ended.status, ended.out.as_str()), (Some(1), ""), "{ended:?}");
    let last = ended.err.lines().last().unwrap_or_default();
    assert!(last.starts_with("nicety: ") && last.contains("; "), "{ended:?}");
    last
}

#[test]
fn several_servers_of_one_machine_take_part() {
    let servers = [Server::start(), Server::start()];
    let ended = measure(&[&servers[0].addr, &servers[1].addr]);
    assert_eq!(ended.status, Some(0), "{ended:?}");
    assert!(ended.out.contains("slaves 2"), "{}", ended.out);
}

#[test]
fn duplicate_peer_is_refused_by_name() {
    measure(&["h", "k", "h:7471"]).is_error(2, "peer 'h:7471' was given twice");
    let server = Server::start();
    let port = server.addr.rsplit(':').next().expect("a port");
    let ended = measure(&[&server.addr, &format!("localhost:{port}")]);
    assert!(why(&ended).contains(&format!("peers {} and localhost:{port} are the same server", server.addr)));
}

/// Goal: all unreachable peers are named, and no others. Method: one server, and two ports without a listener.
#[test]
fn all_unreachable_peers_are_named() {
    let server = Server::start();
    // Bound and dropped: free, and unlikely to be assigned again soon.
    let free = || TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").to_string();
    let (a, b) = (free(), free());
    let ended = measure(&[&server.addr, &a, &b]);
    let why = why(&ended);
    assert!(why.contains("2 of 3 peers") && why.contains("nicety serve"), "{why}");
    assert!(
        why.contains(&format!("{a} cannot be reached")) && why.contains(&format!("{b} cannot be reached")),
        "{why}"
    );
    assert!(!why.contains(&format!("{} cannot", server.addr)), "{why}");
}

#[test]
fn peer_of_another_version_is_refused_by_name() {
    let server = Server::start();
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = other.local_addr().expect("bound").to_string();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().expect("a client");
        let hello = br#"{"magic":"nicety-control","version":99,"program":"9.9"}"#;
        stream.write_all(&(hello.len() as u32).to_be_bytes()).expect("written");
        stream.write_all(hello).expect("written");
        std::thread::sleep(std::time::Duration::from_millis(500));
    });
    let ended = measure(&[&server.addr, &addr]);
    thread.join().expect("no panic");
    let why = why(&ended);
    assert!(
        why.contains(&format!("{addr}: the peer speaks version 99")) && why.contains("nicety 9.9"),
        "{why}"
    );
}

/// Goal: control characters from a server do not reach the terminal. Method: a server that sends escape sequences in its hello,
/// in a refusal, and in an invalid frame.
#[test]
fn text_of_a_server_is_escaped_on_the_terminal() {
    let evil = "\\u001b]0;owned\\u0007\\u001b[2J";
    let hello = format!(r#"{{"magic":"nicety-control","version":{VERSION},"program":"9"}}"#);
    for said in [
        vec![format!(r#"{{"magic":"nicety-control","version":99,"program":"{evil}"}}"#)],
        vec![hello.clone(), format!(r#"{{"frame":"refused","why":"no{evil}"}}"#)],
        vec![hello, format!(r#"{{"frame":"{evil}"}}"#)],
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound").to_string();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            for frame in said {
                stream.write_all(&(frame.len() as u32).to_be_bytes()).expect("written");
                stream.write_all(frame.as_bytes()).expect("written");
            }
            // Keeps the connection open until the client closes it.
            let _ = std::io::copy(&mut stream, &mut std::io::sink());
        });
        let ended = measure(&[&addr]);
        thread.join().expect("no panic");
        assert_eq!(ended.status, Some(1), "{ended:?}");
        assert!(ended.err.contains("{1b}"), "{ended:?}");
        let shown = ended.err.replace('\n', "") + &ended.out.replace('\n', "");
        assert!(!shown.contains(char::is_control), "{ended:?}");
    }
}
