//! The control protocol against peers that are cut off, hostile, of another version, or no peers at all.

use super::*;
use crate::experiment::{Cell, Round};
use results::stats::Rng;
use results::variant::variant;

fn bytes<T: Serialize>(what: &T) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, what).expect("short enough");
    out
}

fn token(text: &str) -> Token {
    Token::new(text).expect("long enough")
}

fn hello(token: Option<&Token>) -> Hello {
    Hello::own(token).expect("random numbers")
}

fn frames() -> Vec<Frame> {
    let cell = Cell {
        experiment: "latency".into(),
        variant: variant(&[("op", "write"), ("source", "nic"), ("sink", "nic")]),
        size: 8,
        twin: true,
    };
    let words = [
        Word::Begin { cell, rank: 1 },
        Word::Ready,
        Word::Round(Round { lead_in: 4, samples: 1 << 18, batch: 1 }),
        Word::Go,
        Word::Warm,
        Word::Finish,
        Word::Info { body: serde_json::json!({"addr": 18_446_744_073_709_551_615u64, "rkey": 7}) },
        Word::Failed { why: "no \u{1F980}".into(), local: true },
        Word::Bye,
    ];
    let mut all: Vec<Frame> = words.into_iter().map(|word| Frame::Word { word }).collect();
    all.push(Frame::Setup(Setup { device: "shm".into(), settings: Settings::default(), core: Some(1) }));
    all.push(Frame::Proof { proof: "00ff".into() });
    all.push(Frame::Wait { ahead: 3 });
    all.push(Frame::Still);
    all.push(Frame::Opened { core: None, machine: PeerInfo::default() });
    all.push(Frame::Refused { why: "x".repeat(500) });
    all
}

#[test]
fn every_frame_comes_back_as_it_went() {
    for frame in frames() {
        assert_eq!(read::<Frame>(&mut bytes(&frame).as_slice(), FRAME_MAX).expect("whole"), frame);
    }
    let hello = hello(Some(&token("0123456789abcdef")));
    assert_eq!(Hello::read(&mut bytes(&hello).as_slice()).expect("ours"), hello);
    assert!(bytes(&hello).len() as u32 <= HELLO_MAX);
}

#[test]
fn a_frame_cut_anywhere_is_a_peer_that_went_away() {
    for frame in frames() {
        let whole = bytes(&frame);
        for end in 0..whole.len() {
            let got = read::<Frame>(&mut &whole[..end], FRAME_MAX);
            assert!(matches!(got, Err(WireError::Gone(_))), "{end}: {got:?}");
        }
    }
}

#[test]
fn what_is_too_long_is_refused_before_it_is_read() {
    let mut endless = [0xff; 4].as_slice().chain(io::repeat(b' '));
    assert!(matches!(read::<Frame>(&mut endless, FRAME_MAX), Err(WireError::TooLong(u32::MAX))));
    let mut http = b"GET / HTTP/1.1\r\n\r\n".as_slice();
    assert!(matches!(Hello::read(&mut http), Err(WireError::TooLong(_))));
    let too_long = Frame::Refused { why: "x".repeat(FRAME_MAX as usize) };
    assert!(matches!(write(&mut Vec::new(), &too_long), Err(WireError::TooLong(_))));
    let long_hello = Hello { program: "x".repeat(2000), ..hello(None) };
    assert!(matches!(Hello::read(&mut bytes(&long_hello).as_slice()), Err(WireError::TooLong(_))));
}

#[test]
fn another_version_and_no_magic_are_told_apart() {
    let other = |hello: Hello| Hello::read(&mut bytes(&hello).as_slice()).expect_err("refused");
    let newer = other(Hello { version: VERSION + 1, ..hello(None) });
    assert!(newer.to_string().contains("install the same nicety"), "{newer}");
    assert!(matches!(other(Hello { magic: "x".into(), ..hello(None) }), WireError::Garbage(_)));
    assert!(matches!(Hello::read(&mut bytes(&"text").as_slice()), Err(WireError::Garbage(_))));
}

/// Goal: nothing that the other side says reaches a terminal as it is. Method: escape sequences in every text of a frame
/// that is shown, and in what is no frame at all.
#[test]
fn no_text_of_the_other_side_is_shown_as_it_is() {
    let evil = "\x1b]0;owned\x07\x1b[2J\n\u{202e}";
    let hello = Hello { program: evil.into(), version: 99, ..hello(None) };
    let version = Hello::read(&mut bytes(&hello).as_slice()).expect_err("refused").to_string();
    let read = |frame: &Frame| read::<Frame>(&mut bytes(frame).as_slice(), FRAME_MAX).expect("a frame");
    let Frame::Refused { why: refused } = read(&Frame::Refused { why: evil.into() }) else {
        panic!("a reason")
    };
    let failed = Word::Failed { why: evil.into(), local: true };
    let Frame::Word { word: Word::Failed { why: failed, .. } } = read(&Frame::Word { word: failed }) else {
        panic!("a reason")
    };
    let unknown = parse::<Frame>(&serde_json::to_vec(&serde_json::json!({"frame": evil})).expect("JSON"));
    let unknown = unknown.expect_err("no frame").to_string();
    for text in [version, refused, failed, unknown] {
        assert!(text.contains("\\u{1b}]0;owned"), "{text:?}");
        assert!(!text.contains(|c: char| c.is_control() || c == '\u{202e}'), "{text:?}");
    }
}

/// Goal: a frame is the same however it comes, and nothing behind it is taken. Method: two frames in pieces of every
/// length, with nothing to read in between.
#[test]
fn a_frame_in_pieces_is_the_same_frame() {
    struct Pieces<'a>(&'a [u8], usize, bool);
    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            self.2 = !self.2;
            if self.2 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            let n = into.len().min(self.1).min(self.0.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }
    let first = Frame::Wait { ahead: 7 };
    let both = [bytes(&first), bytes(&Frame::Still)].concat();
    for length in 1..both.len() {
        let (mut pieces, mut partial) = (Pieces(&both, length, false), Partial::default());
        for expected in [&first, &Frame::Still] {
            let body = loop {
                if let Some(body) = partial.pull(&mut pieces, FRAME_MAX).expect("sound") {
                    break body;
                }
            };
            assert_eq!(parse::<Frame>(&body).expect("a frame"), *expected);
            assert!(!partial.has_begun());
        }
        assert!(matches!(partial.pull(&mut Pieces(&[], 1, true), 1), Err(WireError::Gone(_))));
    }
    assert_eq!(Partial::default().pull(&mut [0; 4].as_slice(), 1).expect("empty"), Some(Vec::new()));
}

/// Goal: no bytes of a peer make this side panic or take more memory than a frame. Method: known frames, each
/// mutated thousands of times from a fixed seed: bits flipped, bytes cut, doubled, replaced, lengths changed.
#[test]
fn no_mutation_of_a_frame_does_harm() {
    let mut corpus: Vec<Vec<u8>> = frames().iter().map(bytes).collect();
    corpus.push(bytes(&hello(Some(&token("0123456789abcdef")))));
    corpus.push(Vec::new());
    corpus.push(vec![0, 0, 0, 0]);
    corpus.push(bytes(&vec![vec![Vec::<u8>::new(); 3]; 3]));
    corpus.push([&2000u32.to_be_bytes()[..], &[b'['; 2000]].concat());
    let mut rng = Rng::new(20);
    for round in 0..20_000 {
        let mut input = corpus[rng.below(corpus.len() as u64) as usize].clone();
        for _ in 0..=rng.below(4) {
            mutate(&mut input, &mut rng);
        }
        let _ = read::<Frame>(&mut input.as_slice(), FRAME_MAX);
        let hello = Hello::read(&mut input.as_slice());
        assert!(hello.is_err() || input.len() > 20, "round {round}: {input:?}");
    }
}

fn mutate(input: &mut Vec<u8>, rng: &mut Rng) {
    let at = rng.below(input.len() as u64) as usize;
    match rng.below(5) {
        0 if !input.is_empty() => input[at] ^= 1 << rng.below(8),
        1 if !input.is_empty() => input[at] = rng.next_u64() as u8,
        2 => input.truncate(at),
        3 => input.extend_from_within(at..),
        _ => input.insert(at, *b"{}[]\":,0e-\xff".get(rng.below(11) as usize).unwrap_or(&0)),
    }
}
