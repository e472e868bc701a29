//! The control protocol against peers that are cut off, hostile, of another version, or no peers at all.

use super::*;
use crate::experiment::{Cell, Round, variant};
use crate::stats::Rng;

fn bytes<T: Serialize>(what: &T) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out, what).expect("short enough");
    out
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
        Word::Round(Round { lead_in: 4, samples: u64::MAX, batch: 1 }),
        Word::Go,
        Word::Warm,
        Word::Finish,
        Word::Info { body: serde_json::json!({"addr": 18_446_744_073_709_551_615u64, "rkey": 7}) },
        Word::Failed { why: "no\n\u{1F980}".into(), local: true },
        Word::Bye,
    ];
    let mut all: Vec<Frame> = words.into_iter().map(|word| Frame::Word { word }).collect();
    all.push(Frame::Setup { device: "shm".into(), settings: Settings::default(), core: Some(1) });
    all.push(Frame::Opened { core: None });
    all.push(Frame::Refused { why: "x".repeat(1000) });
    all
}

#[test]
fn every_frame_comes_back_as_it_went() {
    for frame in frames() {
        assert_eq!(read::<Frame>(&mut bytes(&frame).as_slice(), FRAME_MAX).expect("whole"), frame);
    }
    let hello = Hello::own("secret");
    assert_eq!(Hello::read(&mut bytes(&hello).as_slice(), "secret").expect("ours"), hello);
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
    assert!(matches!(Hello::read(&mut http, ""), Err(WireError::TooLong(_))));
    let too_long = Frame::Refused { why: "x".repeat(FRAME_MAX as usize) };
    assert!(matches!(write(&mut Vec::new(), &too_long), Err(WireError::TooLong(_))));
    let long_hello = Hello { program: "x".repeat(2000), ..Hello::own("") };
    assert!(matches!(Hello::read(&mut bytes(&long_hello).as_slice(), ""), Err(WireError::TooLong(_))));
}

#[test]
fn another_version_another_token_and_no_magic_are_told_apart() {
    let other = |hello: Hello| Hello::read(&mut bytes(&hello).as_slice(), "t").expect_err("refused");
    let newer = other(Hello { version: VERSION + 1, ..Hello::own("t") });
    assert!(newer.to_string().contains("install the same nicety"), "{newer}");
    assert!(matches!(other(Hello::own("guess")), WireError::Stranger));
    assert!(matches!(other(Hello { magic: "x".into(), ..Hello::own("t") }), WireError::Garbage(_)));
    assert!(matches!(Hello::read(&mut bytes(&"text").as_slice(), "t"), Err(WireError::Garbage(_))));
}

/// Goal: no bytes of a peer make this side panic or take more memory than a frame. Method: known frames, each
/// mutated thousands of times from a fixed seed: bits flipped, bytes cut, doubled, replaced, lengths changed.
#[test]
fn no_mutation_of_a_frame_does_harm() {
    let mut corpus: Vec<Vec<u8>> = frames().iter().map(bytes).collect();
    corpus.push(bytes(&Hello::own("token")));
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
        let hello = Hello::read(&mut input.as_slice(), "token");
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
