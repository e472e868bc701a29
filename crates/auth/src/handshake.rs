//! Mutual proof over a stream, such as a socket, between two programs that share a key. The listener sends first; there are three
//! messages of fixed size. They are useless for another handshake, and the key does not travel.
//!
//! | sender | message | bytes |
//! |---|---|---|
//! | listener | [`Listener::challenge`]: magic, nonce | [`CHALLENGE`] |
//! | connector | [`Connector::answer`]: magic, nonce, proof | [`ANSWER`] |
//! | listener | [`Authenticated::welcome`]: magic, proof | [`WELCOME`] |

use crate::key::{KEY, Key, NoRandom, random};

const MAGIC: [u8; 4] = *b"nmt\x01";
/// Bytes of the listener's first message.
pub const CHALLENGE: usize = 4 + KEY;
/// Bytes of the connector's answer.
pub const ANSWER: usize = 4 + 2 * KEY;
/// Bytes of the listener's last message.
pub const WELCOME: usize = 4 + KEY;

/// The proof of one side, under that side's label.
fn side_proof(key: &Key, side: &str, nonces: [&[u8; KEY]; 2]) -> crate::key::Mac {
    let mut code = key.mac(side);
    nonces.into_iter().for_each(|nonce| code.add(nonce));
    code
}

const LISTENER: &str = "meeting, listener";
const CONNECTOR: &str = "meeting, connector";

/// A key for this connection.
fn session(key: &Key, [listener, connector]: [&[u8; KEY]; 2]) -> Key {
    key.derive("meeting", &[listener, connector])
}

/// The listening side of one handshake. Its whole state is a nonce.
#[derive(Clone, Copy, Debug)]
pub struct Listener {
    nonce: [u8; KEY],
}

/// The result of a valid answer.
#[derive(Debug)]
pub struct Authenticated {
    /// The message that proves this side to the connector.
    pub welcome: [u8; WELCOME],
    /// A key for this connection. An eavesdropper cannot compute it without the shared key.
    pub session: Key,
}

impl Listener {
    /// Starts a handshake.
    ///
    /// # Errors
    /// [`NoRandom`].
    pub fn new() -> Result<Self, NoRandom> {
        Ok(Self { nonce: random()? })
    }

    /// The first message.
    pub fn challenge(&self) -> [u8; CHALLENGE] {
        let mut bytes = [0; CHALLENGE];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..].copy_from_slice(&self.nonce);
        bytes
    }

    /// Checks the answer; `None` if its proof is wrong.
    pub fn check(&self, key: &Key, answer: &[u8; ANSWER]) -> Option<Authenticated> {
        let (nonce, proof) = answer.strip_prefix(&MAGIC)?.split_first_chunk()?;
        let nonces = [&self.nonce, nonce];
        if !side_proof(key, CONNECTOR, nonces).verifies(proof.first_chunk()?) {
            return None;
        }
        let mut welcome = [0; WELCOME];
        welcome[..4].copy_from_slice(&MAGIC);
        welcome[4..].copy_from_slice(&side_proof(key, LISTENER, nonces).finish());
        Some(Authenticated { welcome, session: session(key, nonces) })
    }
}

/// The connecting side.
#[derive(Debug)]
pub struct Connector {
    nonces: [[u8; KEY]; 2],
}

impl Connector {
    /// Takes the listener's first message; `None` if it is not a challenge.
    ///
    /// # Errors
    /// [`NoRandom`].
    pub fn new(challenge: &[u8; CHALLENGE]) -> Result<Option<Self>, NoRandom> {
        let Some(theirs) = challenge.strip_prefix(&MAGIC).and_then(<[u8]>::first_chunk) else {
            return Ok(None);
        };
        Ok(Some(Self { nonces: [*theirs, random()?] }))
    }

    /// The answer, with a proof of this side.
    pub fn answer(&self, key: &Key) -> [u8; ANSWER] {
        let [theirs, own] = &self.nonces;
        let mut bytes = [0; ANSWER];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4..4 + KEY].copy_from_slice(own);
        bytes[4 + KEY..].copy_from_slice(&side_proof(key, CONNECTOR, [theirs, own]).finish());
        bytes
    }

    /// Checks the listener's last message and returns the connection's key; `None` if the proof is wrong.
    pub fn check(&self, key: &Key, welcome: &[u8; WELCOME]) -> Option<Key> {
        let proof = welcome.strip_prefix(&MAGIC)?.first_chunk()?;
        let nonces = self.nonces.each_ref();
        side_proof(key, LISTENER, nonces).verifies(proof).then(|| session(key, nonces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::from_bytes([byte; KEY])
    }

    fn both() -> (Listener, Connector) {
        let listener = Listener::new().expect("random bytes");
        let connector = Connector::new(&listener.challenge()).expect("random bytes").expect("a challenge");
        (listener, connector)
    }

    #[test]
    fn a_handshake_with_a_shared_key_gives_a_new_session_key() {
        let (listener, connector) = both();
        let met = listener.check(&key(1), &connector.answer(&key(1))).expect("proved");
        assert_eq!(connector.check(&key(1), &met.welcome), Some(met.session.clone()));
        let (again, other) = both();
        let other = again.check(&key(1), &other.answer(&key(1))).expect("proved");
        assert_ne!(other.session, met.session);
    }

    #[test]
    fn a_wrong_key_a_replay_and_a_reflection_are_refused() {
        let (listener, connector) = both();
        let answer = connector.answer(&key(1));
        assert!(listener.check(&key(2), &answer).is_none(), "another key");
        let (later, _) = both();
        assert!(later.check(&key(1), &answer).is_none(), "an answer to another challenge");
        let met = listener.check(&key(1), &answer).expect("proved");
        assert!(connector.check(&key(2), &met.welcome).is_none(), "another key");
        let mut reflected = met.welcome;
        reflected[4..].copy_from_slice(&answer[4 + KEY..]);
        assert!(connector.check(&key(1), &reflected).is_none(), "the own proof");
        for bit in 0..ANSWER * 8 {
            let mut changed = answer;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(listener.check(&key(1), &changed).is_none(), "bit {bit}");
        }
        let mut wrong = listener.challenge();
        wrong[0] ^= 1;
        assert!(Connector::new(&wrong).expect("random bytes").is_none());
    }
}
