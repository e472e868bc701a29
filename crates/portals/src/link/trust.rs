//! Proofs of identity before a link is made: [`Trust`], and [`KeyHolders`], the processes that may connect.
//!
//! All processes with the same key trust each other. A request proves that its sender has the key and is the
//! process that it claims to be; the reply proves this for the other side. Both use the messages of the crate
//! `auth`, and offer the memory of the sender's rings.
//!
//! A process chooses a random seed for its challenges. If a peer does not know the seed, its first request is
//! refused with a challenge, and it connects again. Where no other user can read or replay requests, seeds
//! are derived from the key, and one request is enough: on devices that map memory of peers, which are
//! processes of the same user on the same host, and in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;

use auth::{Challenge, Identity, Key, OFFER, Protocol, Proved, REPLY, REQUEST, Seed};
use transport::{Admission, Attempts, ConnectTarget, Peers, Rejection};
use verbs::host::Host;
use verbs::{Device, Error, Result};

use crate::objects::process::Process;

/// The protocol of links. The magic changes with every change of the wire format.
pub const PROTOCOL: Protocol = Protocol { name: "portals", magic: *b"ptl\x05" };

/// A process's identity in proofs.
fn identity(process: Process) -> Identity {
    let mut bytes = [0; auth::IDENTITY];
    bytes[..4].copy_from_slice(&process.nid.to_le_bytes());
    bytes[4..8].copy_from_slice(&process.pid.to_le_bytes());
    Identity(bytes)
}

/// The process that an identity names.
pub(crate) fn process(Identity(bytes): Identity) -> Process {
    let [a, b, c, d, e, f, g, h, ..] = bytes;
    Process { nid: u32::from_le_bytes([a, b, c, d]), pid: u32::from_le_bytes([e, f, g, h]) }
}

/// The seed of a process where seeds are derived from the key.
fn known_seed(key: &Key, process: Process) -> Seed {
    Seed::from_key(key.derive("portals seed", &[&identity(process).0]))
}

/// The processes that may connect to this one: all others with its key.
#[derive(Debug)]
pub(crate) struct KeyHolders {
    me: Process,
    key: Key,
}

impl Peers for KeyHolders {
    fn key_of(&self, from: Identity) -> Option<Key> {
        let is_other = process(from) != self.me && identity(process(from)) == from;
        is_other.then(|| self.key.clone())
    }
}

/// Checks connect requests. It opens when the process knows its number; before, no one can know where it
/// listens.
type LinkAdmission = Admission<KeyHolders>;

/// The secrets by which a process proves its identity, and its unanswered requests.
#[derive(Debug)]
pub(crate) struct Trust {
    key: Key,
    /// `None` where it is derived from the key.
    seed: Option<Seed>,
    /// Known seeds of other processes.
    seeds: BTreeMap<Process, Seed>,
    admission: Arc<LinkAdmission>,
    /// By link.
    attempts: Attempts,
}

impl Trust {
    /// Trusts processes that have `key`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the system has no random numbers.
    pub(crate) fn new(key: &Key, host: &Host, device: &Device) -> Result<Self> {
        let no_random = |error: auth::NoRandom| Error::Invalid(error.to_string());
        let (own, is_known) = match host.node() {
            Some(_) => (key.derive("portals world", &[]), true),
            None => (Key::random().map_err(no_random)?, device.attr().maps_peers),
        };
        Ok(Self::of(key.clone(), &own, is_known))
    }

    /// With a secret `own` of this process alone.
    fn of(key: Key, own: &Key, is_known: bool) -> Self {
        let seed = (!is_known).then(|| Seed::from_key(own.derive("seed", &[])));
        let attempts = Attempts::new(PROTOCOL, own.derive("nonces", &[]));
        let (seeds, admission) = (BTreeMap::new(), Arc::new(LinkAdmission::new(PROTOCOL, b"")));
        Self { key, seed, seeds, admission, attempts }
    }

    /// The check for the listener.
    pub(crate) fn admission(&self) -> &Arc<LinkAdmission> {
        &self.admission
    }

    /// Admits requests to `me`. Only the first call has an effect.
    pub(crate) fn open(&self, me: Process) {
        let seed = self.seed.clone().unwrap_or_else(|| known_seed(&self.key, me));
        self.admission.open(identity(me), seed, KeyHolders { me, key: self.key.clone() });
    }

    /// The seed of this process; `None` where it is derived from the key.
    pub(crate) fn seed(&self) -> Option<Seed> {
        self.seed.clone()
    }

    /// Records the seed of another process, so that it need not refuse the first request.
    pub(crate) fn learn(&mut self, process: Process, seed: Seed) {
        self.seeds.insert(process, seed);
    }

    /// The private data of a link's connect request, with the last known challenge.
    pub(crate) fn request(
        &mut self,
        link: usize,
        (me, peer): (Process, Process),
        offer: [u8; OFFER],
    ) -> [u8; REQUEST] {
        let (key, from, to) = (self.key.clone(), identity(me), identity(peer));
        let challenge = match (self.seeds.get(&peer), &self.seed) {
            (Some(seed), _) => seed.challenge(PROTOCOL, from, 0),
            (None, Some(_)) => Challenge::UNKNOWN,
            (None, None) => known_seed(&key, peer).challenge(PROTOCOL, from, 0),
        };
        self.attempts.request(link, ConnectTarget { key, from, to, challenge }, offer)
    }

    /// Whether a link's rejected request can be sent again, with another challenge.
    pub(crate) fn can_ask_again(&mut self, link: usize, said: &[u8]) -> bool {
        self.attempts.rejected(link, said) == Some(Rejection::Again)
    }

    /// The offer in the reply to a link's request; `None` if it proves nothing.
    pub(crate) fn check_reply(&mut self, link: usize, said: &[u8]) -> Option<[u8; OFFER]> {
        self.attempts.check_reply(link, said)
    }

    /// Drops the state of a link's request.
    pub(crate) fn forget(&mut self, link: usize) {
        self.attempts.forget(link);
    }

    /// The private data of the reply to a request; `None` if the request was answered before.
    pub(crate) fn reply(&self, proved: &Proved, offer: [u8; OFFER]) -> Option<[u8; REPLY]> {
        self.admission.accept(proved, offer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Process = Process::physical(0x7f00_0001, 3);
    const PEER: Process = Process::physical(0x7f00_0001, 4);
    const OFFERS: [[u8; OFFER]; 2] = [[0; OFFER], [7; OFFER]];

    /// Trust with a key that consists of this byte, with derived or random seeds.
    fn trust(key: u8, is_known: bool) -> Trust {
        Trust::of(Key::from_bytes([key; 16]), &Key::from_bytes([key + 100; 16]), is_known)
    }

    #[test]
    fn both_sides_are_proved_and_learn_the_offers_at_once_where_seeds_are_known() {
        for offer in OFFERS {
            let (mut from, to) = (trust(1, true), trust(1, true));
            to.open(ME);
            let proved = to.admission.check(&from.request(0, (PEER, ME), offer)).expect("proved");
            assert_eq!((process(proved.from()), *proved.offer()), (PEER, offer));
            let reply = to.reply(&proved, offer).expect("the first answer");
            assert_eq!(to.reply(&proved, offer), None, "a replay");
            assert_eq!(from.check_reply(0, &reply), Some(offer));
        }
    }

    #[test]
    fn where_seeds_are_not_known_a_challenge_is_asked_for_once() {
        let [none, some] = OFFERS;
        let (mut from, to) = (trust(1, false), trust(1, false));
        assert_eq!(to.admission.check(&from.request(0, (PEER, ME), none)).expect_err("not open"), []);
        to.open(ME);
        let refusal = to.admission.check(&from.request(0, (PEER, ME), some)).expect_err("no challenge");
        assert!(from.can_ask_again(0, &refusal));
        let proved = to.admission.check(&from.request(0, (PEER, ME), some)).expect("proved");
        let reply = to.reply(&proved, none).expect("the first answer");
        assert_eq!(from.check_reply(0, &reply), Some(none));
    }

    #[test]
    fn another_key_another_process_and_changed_offers_are_refused() {
        let to = trust(1, true);
        to.open(ME);
        let said = |key, ends| trust(key, true).request(0, ends, OFFERS[1]);
        assert!(to.admission.check(&said(1, (PEER, ME))).is_ok());
        assert!(to.admission.check(&said(2, (PEER, ME))).is_err(), "another key");
        assert!(to.admission.check(&said(1, (PEER, PEER))).is_err(), "for another process");
        assert!(to.admission.check(&said(1, (ME, ME))).is_err(), "from this process itself");
        for at in 0..REQUEST {
            let mut changed = said(1, (PEER, ME));
            changed[at] ^= 1;
            assert!(to.admission.check(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_reply_with_a_changed_offer_is_refused() {
        for at in 0..REPLY {
            let (mut from, to) = (trust(1, true), trust(1, true));
            to.open(ME);
            let proved = to.admission.check(&from.request(0, (PEER, ME), OFFERS[0])).expect("proved");
            let mut reply = to.reply(&proved, OFFERS[1]).expect("the first answer");
            reply[at] ^= 1;
            assert_eq!(from.check_reply(0, &reply), None, "byte {at}");
        }
    }
}
