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

use auth::{Challenge, Identity, Key, Protocol, Seed};
use transport::{ConnectTarget, Peers, Wireup};
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

/// The secrets by which a process proves its identity, and its connect requests.
#[derive(Debug)]
pub(crate) struct Trust {
    key: Key,
    /// `None` where it is derived from the key.
    seed: Option<Seed>,
    /// Known seeds of other processes.
    seeds: BTreeMap<Process, Seed>,
    /// Requests by link. The check of incoming ones opens when the process knows its number; before, no one can
    /// know where it listens.
    pub(crate) wireup: Wireup<KeyHolders>,
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
        let wireup = Wireup::new(PROTOCOL, own.derive("nonces", &[]));
        Self { key, seed, seeds: BTreeMap::new(), wireup }
    }

    /// Admits requests to `me`. Only the first call has an effect.
    pub(crate) fn open(&self, me: Process) {
        let seed = self.seed.clone().unwrap_or_else(|| known_seed(&self.key, me));
        self.wireup.admission().open(identity(me), seed, KeyHolders { me, key: self.key.clone() });
    }

    /// The seed of this process; `None` where it is derived from the key.
    pub(crate) fn seed(&self) -> Option<Seed> {
        self.seed.clone()
    }

    /// Records the seed of another process, so that it need not refuse the first request.
    pub(crate) fn learn(&mut self, process: Process, seed: Seed) {
        self.seeds.insert(process, seed);
    }

    /// The other end of a connect request, with the challenge that is known for the first one.
    pub(crate) fn target(&self, me: Process, peer: Process) -> ConnectTarget {
        let (key, from, to) = (self.key.clone(), identity(me), identity(peer));
        let challenge = match (self.seeds.get(&peer), &self.seed) {
            (Some(seed), _) => seed.challenge(PROTOCOL, from, 0),
            (None, Some(_)) => Challenge::UNKNOWN,
            (None, None) => known_seed(&key, peer).challenge(PROTOCOL, from, 0),
        };
        ConnectTarget { key, from, to, challenge }
    }
}

#[cfg(test)]
mod tests {
    use auth::{Attempt, OFFER, REQUEST, Rejected};

    use super::*;

    const ME: Process = Process::physical(0x7f00_0001, 3);
    const PEER: Process = Process::physical(0x7f00_0001, 4);

    /// Trust with a key that consists of this byte, with derived or random seeds.
    fn trust(key: u8, is_known: bool) -> Trust {
        Trust::of(Key::from_bytes([key; 16]), &Key::from_bytes([key + 100; 16]), is_known)
    }

    /// A connect request of one process to another.
    fn attempt(from: &mut Trust, (me, peer): (Process, Process)) -> Attempt {
        let ConnectTarget { key, from: own, to, challenge } = from.target(me, peer);
        Attempt::new(PROTOCOL, key, (own, to), (challenge, from.wireup.next_nonce()), [7; OFFER])
    }

    #[test]
    fn request_is_proved_at_once_where_seeds_are_known() {
        let to = trust(1, true);
        to.open(ME);
        let request = attempt(&mut trust(1, true), (PEER, ME)).request();
        let proved = to.wireup.admission().check(&request).expect("proved");
        assert_eq!((process(proved.from()), proved.offer()), (PEER, &[7; OFFER]));
    }

    #[test]
    fn request_is_proved_the_second_time_where_seeds_are_not_known() {
        let (mut from, to) = (trust(1, false), trust(1, false));
        to.open(ME);
        let first = attempt(&mut from, (PEER, ME));
        let refusal = to.wireup.admission().check(&first.request()).expect_err("no challenge");
        assert!(matches!(first.rejected(&refusal), Rejected::Again(_)));
        from.learn(ME, to.seed().expect("a random seed"));
        assert!(to.wireup.admission().check(&attempt(&mut from, (PEER, ME)).request()).is_ok());
    }

    #[test]
    fn another_key_another_process_and_changed_offers_are_refused() {
        let to = trust(1, true);
        to.open(ME);
        let check = |said: &[u8]| to.wireup.admission().check(said);
        let said = |key, ends| attempt(&mut trust(key, true), ends).request();
        assert!(check(&said(1, (PEER, ME))).is_ok());
        assert!(check(&said(2, (PEER, ME))).is_err(), "another key");
        assert!(check(&said(1, (PEER, PEER))).is_err(), "for another process");
        assert!(check(&said(1, (ME, ME))).is_err(), "from this process itself");
        for at in 0..REQUEST {
            let mut changed = said(1, (PEER, ME));
            changed[at] ^= 1;
            assert!(check(&changed).is_err(), "byte {at}");
        }
    }
}
