//! [`Attempt`]: the initiator's side of one connect request.

use crate::key::{KEY, Key};
use crate::message::{
    Challenge, Identity, Nonce, OFFER, ProofContext, Protocol, REQUEST, Refusal, Reply, Request,
};

/// The nonces of a process, one for each request.
#[derive(Debug)]
pub struct Nonces {
    key: Key,
    count: u64,
}

impl Nonces {
    /// Nonces derived from a key of this process alone.
    pub fn new(key: Key) -> Self {
        Self { key, count: 0 }
    }

    /// The next one.
    pub fn next_nonce(&mut self) -> Nonce {
        self.count += 1;
        let bytes = self.key.derive("nonce", &[&self.count.to_le_bytes()]).to_bytes();
        Nonce(std::array::from_fn(|at| bytes[at]))
    }
}

/// The meaning of a rejection for an [`Attempt`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// The request used another challenge than this one: connect again with this one.
    Again(Challenge),
    /// The request used the right challenge, so the responder has another key, or none for this initiator.
    OtherKey,
    /// The data is not a refusal of a [`crate::Gate`].
    Other,
}

/// A connect request under way.
#[derive(Clone, Debug)]
pub struct Attempt {
    context: ProofContext,
    key: Key,
    offer: [u8; OFFER],
    proof: [u8; KEY],
}

impl Attempt {
    /// A request `from` this process `to` another one. Both have `key`.
    pub fn new(
        protocol: Protocol,
        key: Key,
        (from, to): (Identity, Identity),
        (challenge, nonce): (Challenge, Nonce),
        offer: [u8; OFFER],
    ) -> Self {
        let context = ProofContext { protocol, from, to, challenge, nonce };
        let proof = context.initiator_proof(&key, &offer).finish();
        Self { context, key, offer, proof }
    }

    /// The private data of the request.
    pub fn request(&self) -> [u8; REQUEST] {
        let ProofContext { protocol, from, nonce, .. } = self.context;
        Request { from, nonce, proof: self.proof, offer: self.offer }.bytes(protocol)
    }

    /// The offer in the responder's reply; `None` if the proof in the reply is wrong.
    pub fn check_reply(&self, received: &[u8]) -> Option<[u8; OFFER]> {
        let reply = Reply::parse(received, self.context.protocol)?;
        let mac = self.context.responder_proof(&self.key, &self.proof, &reply.offer);
        mac.verifies(&reply.proof).then_some(reply.offer)
    }

    /// Interprets the private data of a rejection.
    pub fn rejected(&self, received: &[u8]) -> Rejected {
        match Refusal::parse(received, self.context.protocol) {
            Some(Refusal(challenge)) if challenge == self.context.challenge => Rejected::OtherKey,
            Some(Refusal(challenge)) => Rejected::Again(challenge),
            None => Rejected::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::Gate;
    use crate::message::{REPLY, Seed};

    const MPI: Protocol = Protocol { name: "one", magic: *b"one1" };
    const ALICE: Identity = Identity([1; 12]);
    const BOB: Identity = Identity([2; 12]);
    const NOTHING: [u8; OFFER] = [0; OFFER];

    fn key(byte: u8) -> Key {
        Key::from_bytes([byte; KEY])
    }

    fn seed() -> Seed {
        Seed::from_key(key(99))
    }

    fn nonce(byte: u8) -> Nonce {
        Nonce([byte; 8])
    }

    /// Bob's gate.
    fn gate() -> Gate {
        Gate::new(MPI, BOB, seed())
    }

    /// Alice's attempt to connect to Bob, after `accepted` earlier connections.
    fn attempt(accepted: u32) -> Attempt {
        let proofs = (seed().challenge(MPI, ALICE, accepted), nonce(accepted as u8));
        Attempt::new(MPI, key(1), (ALICE, BOB), proofs, [7; OFFER])
    }

    fn only_alice(from: Identity) -> Option<Key> {
        (from == ALICE).then(|| key(1))
    }

    #[test]
    fn both_sides_are_proved_in_one_round_trip_if_the_seed_is_known() {
        let (gate, attempt) = (gate(), attempt(0));
        let mut padded = attempt.request().to_vec();
        padded.extend([0; 40]);
        let proved = gate.check(&padded, only_alice).expect("proved");
        assert_eq!((proved.from(), proved.offer()), (ALICE, &[7; OFFER]));
        let reply = gate.accept(&proved, [8; OFFER]).expect("the first one");
        assert_eq!(attempt.check_reply(&reply), Some([8; OFFER]));
        assert_eq!(gate.refused(), 0);
    }

    #[test]
    fn a_refusal_contains_the_next_valid_challenge() {
        let gate = gate();
        let new = |challenge| Attempt::new(MPI, key(1), (ALICE, BOB), (challenge, nonce(1)), NOTHING);
        let blind = new(Challenge::UNKNOWN);
        let refusal = gate.check(&blind.request(), only_alice).expect_err("no proof").expect("a challenge");
        let Rejected::Again(challenge) = blind.rejected(&refusal.bytes(MPI)) else { panic!("{refusal:?}") };
        let second = new(challenge);
        gate.check(&second.request(), only_alice).expect("proved");
        assert_eq!(second.rejected(&refusal.bytes(MPI)), Rejected::OtherKey);
        assert_eq!(second.rejected(b"crossed"), Rejected::Other);
        assert_eq!(gate.refused(), 1);
    }

    #[test]
    fn a_request_is_accepted_once_and_the_next_one_has_another_challenge() {
        let gate = gate();
        let (first, replayed) = (attempt(0).request(), attempt(0).request());
        let both = [first, replayed].map(|received| gate.check(&received, only_alice).expect("proved"));
        assert!(gate.accept(&both[0], NOTHING).is_some());
        assert!(gate.accept(&both[1], NOTHING).is_none(), "checked before the first was accepted");
        assert!(gate.check(&first, only_alice).is_err(), "replayed behind it");
        let second = gate.check(&attempt(1).request(), only_alice).expect("proved");
        assert!(gate.accept(&second, NOTHING).is_some());
    }

    /// Goal: a proof is valid for one protocol, one pair of ends in their roles, one key and one challenge.
    #[test]
    fn a_proof_for_another_purpose_is_refused() {
        let other = Protocol { name: "two", ..MPI };
        let proofs = (seed().challenge(MPI, ALICE, 0), nonce(1));
        let new = |protocol, byte, ends, proofs| Attempt::new(protocol, key(byte), ends, proofs, NOTHING);
        let (ends, foreign) = ((ALICE, BOB), Seed::from_key(key(98)).challenge(MPI, ALICE, 0));
        for (what, attempt) in [
            ("protocol", new(other, 1, ends, proofs)),
            ("key", new(MPI, 2, ends, proofs)),
            ("responder", new(MPI, 1, (ALICE, ALICE), proofs)),
            ("initiator", new(MPI, 1, (BOB, ALICE), proofs)),
            ("challenge", new(MPI, 1, ends, (foreign, nonce(1)))),
        ] {
            assert!(gate().check(&attempt.request(), |_| Some(key(1))).is_err(), "{what}");
        }
        assert!(gate().check(&new(MPI, 1, ends, proofs).request(), |_| Some(key(1))).is_ok());
        assert!(gate().check(&new(MPI, 1, ends, proofs).request(), |_| None).is_err());
    }

    /// Goal: every byte of a request and of a reply is proved. Method: each bit changed.
    #[test]
    fn a_changed_message_is_refused() {
        let (gate, attempt) = (gate(), attempt(0));
        let request = attempt.request();
        for bit in 0..request.len() * 8 {
            let mut changed = request;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(gate.check(&changed, |_| Some(key(1))).is_err(), "bit {bit}");
        }
        for len in 0..request.len() {
            assert_eq!(gate.check(&request[..len], only_alice).expect_err("cut"), None, "{len} bytes");
        }
        let proved = gate.check(&request, only_alice).expect("proved");
        let reply = gate.accept(&proved, [8; OFFER]).expect("the first one");
        for bit in 0..REPLY * 8 {
            let mut changed = reply;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(attempt.check_reply(&changed), None, "bit {bit}");
        }
        assert!((0..REPLY).all(|len| attempt.check_reply(&reply[..len]).is_none()));
    }

    /// Goal: a received proof does not prove its receiver. Method: send an initiator its own proof as the reply, and the reply to
    /// another request.
    #[test]
    fn reflected_and_old_replies_are_refused() {
        let (gate, attempt) = (gate(), attempt(0));
        let request = attempt.request();
        let mut reflected = [0; REPLY];
        reflected[..4].copy_from_slice(&MPI.magic);
        reflected[4..20].copy_from_slice(&attempt.proof);
        reflected[20..].copy_from_slice(&attempt.offer);
        assert_eq!(attempt.check_reply(&reflected), None);
        let proved = gate.check(&request, only_alice).expect("proved");
        let reply = gate.accept(&proved, NOTHING).expect("the first one");
        let proofs = (seed().challenge(MPI, ALICE, 0), nonce(44));
        let later = Attempt::new(MPI, key(1), (ALICE, BOB), proofs, [7; OFFER]);
        assert_eq!((attempt.check_reply(&reply), later.check_reply(&reply)), (Some(NOTHING), None));
        // Alice is a responder, too: her own request is none to her.
        let alice = Gate::new(MPI, ALICE, seed());
        assert!(alice.check(&request, |_| Some(key(1))).is_err());
    }

    #[test]
    fn nonces_differ() {
        let mut nonces = Nonces::new(key(5));
        let all: Vec<Nonce> = (0..100).map(|_| nonces.next_nonce()).collect();
        for (at, one) in all.iter().enumerate() {
            assert!(!all[at + 1..].contains(one), "{at}");
        }
    }
}
