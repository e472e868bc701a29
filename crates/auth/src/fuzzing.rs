//! What the fuzz target in `fuzz/` calls, and the replay of its corpus by an ordinary test.

use crate::attempt::{Attempt, Rejected};
use crate::gate::Gate;
use crate::handshake::{ANSWER, CHALLENGE, Connector, Listener, WELCOME};
use crate::key::{KEY, Key};
use crate::message::{Identity, Nonce, OFFER, Protocol, Refusal, Request, Seed};

const PROTOCOL: Protocol = Protocol { name: "fuzzed", magic: *b"fuz1" };
const BOTH: (Identity, Identity) = (Identity([1; 12]), Identity([2; 12]));

fn key() -> Key {
    Key::from_bytes([3; KEY])
}

/// Goal: no input passes for a proof, and every parsed message encodes to the same bytes. The first byte selects the message.
///
/// # Panics
/// If that does not hold.
pub fn handshake(data: &[u8]) {
    let [which, said @ ..] = data else { return };
    let seed = Seed::from_key(Key::from_bytes([4; KEY]));
    let proofs = (seed.challenge(PROTOCOL, BOTH.0, 0), Nonce([5; 8]));
    let attempt = Attempt::new(PROTOCOL, key(), BOTH, proofs, [6; OFFER]);
    match which % 4 {
        0 => {
            if let Some(request) = Request::parse(said, PROTOCOL) {
                assert!(said.starts_with(&request.bytes(PROTOCOL)));
            }
            let checked = Gate::new(PROTOCOL, BOTH.1, seed).check(said, |_| Some(key()));
            let is_known = said.starts_with(&attempt.request());
            assert_eq!(checked.is_ok(), is_known, "a proof without the key");
        }
        1 => {
            assert_eq!(attempt.check_reply(said), None, "a proof without the key");
            match (attempt.rejected(said), Refusal::parse(said, PROTOCOL)) {
                (Rejected::Other, None) => {}
                (_, Some(refusal)) => assert!(said.starts_with(&refusal.bytes(PROTOCOL))),
                other => panic!("{other:?}"),
            }
        }
        2 => {
            let Ok(listener) = Listener::new() else { return };
            let answer = said.first_chunk::<ANSWER>();
            assert!(answer.is_none_or(|answer| listener.check(&key(), answer).is_none()));
        }
        _ => {
            let Some((challenge, rest)) = said.split_first_chunk::<CHALLENGE>() else { return };
            let Ok(Some(connector)) = Connector::new(challenge) else { return };
            let welcome = rest.first_chunk::<WELCOME>();
            assert!(welcome.is_none_or(|welcome| connector.check(&key(), welcome).is_none()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: earlier findings do not return. Method: every input of the corpus.
    #[test]
    fn handshakes_of_the_corpus() {
        let folder = format!("{}/../../fuzz/corpus/handshake", env!("CARGO_MANIFEST_DIR"));
        let mut count = 0;
        for entry in std::fs::read_dir(&folder).expect("the corpus") {
            handshake(&std::fs::read(entry.expect("an entry").path()).expect("an input"));
            count += 1;
        }
        assert!(count > 0, "{folder} is empty");
    }
}
