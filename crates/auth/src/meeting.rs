//! Mutual proof over a stream, such as a socket, between two programs that share a key. The listener sends first; there are three
//! messages of fixed size. They are useless for another meeting, and the key does not travel.
//!
//! | sender | message | bytes |
//! |---|---|---|
//! | listener | [`Listening::challenge`]: magic, nonce | [`CHALLENGE`] |
//! | connector | [`Connecting::answer`]: magic, nonce, proof | [`ANSWER`] |
//! | listener | [`Met::welcome`]: magic, proof | [`WELCOME`] |

use crate::key::{KEY, Key, NoRandom, random};

const MAGIC: [u8; 4] = *b"nmt\x01";
/// Bytes of the listener's first message.
pub const CHALLENGE: usize = 4 + KEY;
/// Bytes of the connector's answer.
pub const ANSWER: usize = 4 + 2 * KEY;
/// Bytes of the listener's last message.
pub const WELCOME: usize = 4 + KEY;

/// The proof of one side, under that side's label.
fn code(key: &Key, side: &str, nonces: [&[u8; KEY]; 2]) -> crate::key::Code {
    let mut code = key.mac(side);
    nonces.into_iter().for_each(|nonce| code.add(nonce));
    code
}

const LISTENER: &str = "meeting, listener";
const CONNECTOR: &str = "meeting, connector";

/// A key for this meeting.
fn session(key: &Key, [listener, connector]: [&[u8; KEY]; 2]) -> Key {
    key.derive("meeting", &[listener, connector])
}

/// The listening side of one meeting. Its whole state is a nonce.
#[derive(Clone, Copy, Debug)]
pub struct Listening {
    nonce: [u8; KEY],
}

/// The result of a valid answer.
#[derive(Debug)]
pub struct Met {
    /// The message that proves this side to the connector.
    pub welcome: [u8; WELCOME],
    /// A key for this meeting. An eavesdropper cannot compute it without the shared key.
    pub session: Key,
}

impl Listening {
    /// Begins a meeting.
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
    pub fn check(&self, key: &Key, answer: &[u8; ANSWER]) -> Option<Met> {
        let (nonce, proof) = answer.strip_prefix(&MAGIC)?.split_first_chunk()?;
        let nonces = [&self.nonce, nonce];
        if !code(key, CONNECTOR, nonces).is(proof.first_chunk()?) {
            return None;
        }
        let mut welcome = [0; WELCOME];
        welcome[..4].copy_from_slice(&MAGIC);
        welcome[4..].copy_from_slice(&code(key, LISTENER, nonces).finish());
        Some(Met { welcome, session: session(key, nonces) })
    }
}

/// The connecting side.
#[derive(Debug)]
pub struct Connecting {
    nonces: [[u8; KEY]; 2],
}

impl Connecting {
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
        bytes[4 + KEY..].copy_from_slice(&code(key, CONNECTOR, [theirs, own]).finish());
        bytes
    }

    /// Checks the listener's last message and returns the meeting's key; `None` if the proof is wrong.
    pub fn check(&self, key: &Key, welcome: &[u8; WELCOME]) -> Option<Key> {
        let proof = welcome.strip_prefix(&MAGIC)?.first_chunk()?;
        let nonces = self.nonces.each_ref();
        code(key, LISTENER, nonces).is(proof).then(|| session(key, nonces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::from_bytes([byte; KEY])
    }

    fn both() -> (Listening, Connecting) {
        let listening = Listening::new().expect("random bytes");
        let connecting = Connecting::new(&listening.challenge()).expect("random bytes").expect("a challenge");
        (listening, connecting)
    }

    #[test]
    fn those_who_share_a_key_meet_and_have_a_key_of_their_own() {
        let (listening, connecting) = both();
        let met = listening.check(&key(1), &connecting.answer(&key(1))).expect("proved");
        assert_eq!(connecting.check(&key(1), &met.welcome), Some(met.session.clone()));
        let (again, other) = both();
        let other = again.check(&key(1), &other.answer(&key(1))).expect("proved");
        assert_ne!(other.session, met.session);
    }

    #[test]
    fn another_key_an_old_answer_and_a_reflection_are_refused() {
        let (listening, connecting) = both();
        let answer = connecting.answer(&key(1));
        assert!(listening.check(&key(2), &answer).is_none(), "another key");
        let (later, _) = both();
        assert!(later.check(&key(1), &answer).is_none(), "an answer to another challenge");
        let met = listening.check(&key(1), &answer).expect("proved");
        assert!(connecting.check(&key(2), &met.welcome).is_none(), "another key");
        let mut reflected = met.welcome;
        reflected[4..].copy_from_slice(&answer[4 + KEY..]);
        assert!(connecting.check(&key(1), &reflected).is_none(), "the own proof");
        for bit in 0..ANSWER * 8 {
            let mut changed = answer;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(listening.check(&key(1), &changed).is_none(), "bit {bit}");
        }
        let mut wrong = listening.challenge();
        wrong[0] ^= 1;
        assert!(Connecting::new(&wrong).expect("random bytes").is_none());
    }
}
