//! Greetings over real sockets: with tokens, without, and with peers that are none.

use super::*;
use std::net::TcpListener;

fn token(text: &str) -> Token {
    Token::new(text).expect("long enough")
}

fn against(
    ours: Option<&Token>,
    peer: impl FnOnce(TcpStream) + Send + 'static,
) -> Result<ControlStream, WireError> {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound");
    let thread = std::thread::spawn(move || peer(listener.accept().expect("a client").0));
    let control_stream =
        ControlStream::greet(TcpStream::connect(addr).expect("listening"), ours, Party::Client);
    thread.join().expect("no panic");
    control_stream
}

#[test]
fn two_sides_find_each_other_and_know_their_numbers() {
    let secret = token("0123456789abcdef");
    let theirs = secret.clone();
    let control_stream = against(Some(&secret), move |s| {
        let mut control_stream = ControlStream::greet(s, Some(&theirs), Party::Server).expect("greeted");
        control_stream.send(&Word::Ready).expect("told");
    });
    let mut control_stream = control_stream.expect("greeted");
    assert_eq!(control_stream.receive(), Ok(Word::Ready));
    assert!(matches!(control_stream.receive(), Err(Fault::Control(_))), "it hung up");
    assert_eq!(control_stream.neighbour(), Some(std::process::id()));
    assert!(control_stream.local_ip().is_loopback() && control_stream.peer_ip().is_loopback());
}

/// Goal: with a token on one side only, or two that differ, neither side goes on, and the client says what to do.
#[test]
fn without_the_same_token_nobody_goes_on() {
    let (a, b) = (token("0123456789abcdef"), token("fedcba9876543210"));
    for (ours, theirs, said) in [
        (Some(&a), Some(b), "tokens of the two sides differ"),
        (None, Some(a.clone()), "requires a token"),
        (Some(&a), None, "has no token"),
    ] {
        let control_stream = against(ours, move |s| {
            assert!(ControlStream::greet(s, theirs.as_ref(), Party::Server).is_err(), "the server goes on");
        });
        let Err(why) = control_stream else { panic!("the client goes on: {said}") };
        // The server may have hung up before it was understood.
        let why = why.to_string();
        assert!(why.contains(said) || (said.contains("differ") && why.contains("went away")), "{why}");
    }
}

/// Goal: a peer that only echoes what the client sends is not taken for a server that has the token.
#[test]
fn a_proof_that_is_sent_back_proves_nothing() {
    let control_stream = against(Some(&token("0123456789abcdef")), |mut s| {
        let mut taken = [0; 4096];
        while let Ok(n @ 1..) = s.read(&mut taken) {
            if s.write_all(&taken[..n]).is_err() {
                return;
            }
        }
    });
    assert!(matches!(control_stream, Err(WireError::Stranger)), "{:?}", control_stream.err());
}

#[test]
fn garbage_is_refused() {
    let http = against(None, |mut s| s.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("sent"));
    assert!(matches!(http, Err(WireError::TooLong(_))));
    assert!(matches!(against(None, drop), Err(WireError::Gone(_))));
}

/// Goal: a frame has its time as a whole. Method: it comes byte by byte, each long before the time is up.
#[test]
fn a_frame_that_is_dribbled_is_given_up() {
    let (mut near, far) = pair();
    near.set_patience(Duration::from_millis(200));
    let dribble = std::thread::spawn(move || {
        let mut far = far;
        let mut frame = Vec::new();
        wire::write(&mut frame, &Frame::Refused { why: "x".repeat(500) }).expect("a frame");
        for byte in frame {
            std::thread::sleep(Duration::from_millis(20));
            if far.write_all(&[byte]).is_err() {
                return false;
            }
        }
        true
    });
    let heard = near.read();
    drop(near);
    assert!(!dribble.join().expect("no panic"), "all of it was taken");
    assert!(matches!(heard, Err(WireError::Silent)), "{heard:?}");
}

/// Two ends that have greeted each other; the far one as a bare socket.
fn pair() -> (ControlStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let far = TcpStream::connect(listener.local_addr().expect("bound")).expect("listening");
    let (near, _) = listener.accept().expect("a client");
    let there = far.try_clone().expect("a descriptor");
    let greeted = std::thread::spawn(move || ControlStream::greet(there, None, Party::Client).map(drop));
    let near = ControlStream::greet(near, None, Party::Server).expect("greeted");
    greeted.join().expect("no panic").expect("greeted");
    far.set_nonblocking(false).expect("a socket");
    (near, far)
}

#[test]
fn nobody_there_is_said_with_advice() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let addr = listener.local_addr().expect("bound").to_string();
    drop(listener);
    let why = ControlStream::dial(&addr, None, Duration::from_secs(5)).err().expect("refused").to_string();
    assert!(why.contains(&addr) && why.contains("nicety serve"), "{why}");
    let why =
        ControlStream::dial("no.such.host.invalid:1", None, Duration::from_secs(5)).err().expect("unknown");
    assert!(why.to_string().contains("no.such.host.invalid"), "{why}");
}
