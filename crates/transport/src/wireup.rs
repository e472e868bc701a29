//! Wire-up: which of two processes connects to the other, and how both prove their identities.
//!
//! Either of two processes may connect first, and both may at the same time: [`answer`] decides, so that they end with one connection.
//!
//! A request proves that its sender has the key and the identity in the request, and the reply proves the same of the responder.
//! The crate `auth` defines both messages. [`Wireup`] sends and accepts requests, and interprets the events about them.
//! [`Admission`] checks the requests of other processes in the device's thread, before they are queued, and rejects requests without
//! a valid proof.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use auth::{
    Attempt, Challenge, Gate, Identity, Key, Nonce, Nonces, OFFER, Protocol, Proved, REPLY, REQUEST, Refusal,
    Rejected, Seed,
};
use verbs::{CmEvent, ConnParam, ConnectRequest, Error, Result, Screen, ScreenRequest, Verdict};

use crate::endpoint::{ConnStage, Endpoint, User};
use crate::nic::Nic;

/// Reason of a rejection: both processes connect at the same time, and the other request is used.
pub const CROSSED: &[u8] = b"crossed";
/// Reason of a rejection: the process does not admit any yet.
pub const NOT_YET: &[u8] = b"not yet";

/// The reply to a connect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Accept; an own request is given up.
    Accept,
    /// Reject: the own request is used instead.
    Crossed,
    /// Reject.
    Refuse,
}

/// The reply of process `me` to a connect request from process `from`: if both sent one, the request of the higher process is used.
pub fn answer<T: Ord>(stage: ConnStage, me: T, from: T) -> Answer {
    match stage {
        ConnStage::None => Answer::Accept,
        ConnStage::Connecting if from > me => Answer::Accept,
        ConnStage::Connecting => Answer::Crossed,
        ConnStage::Accepting | ConnStage::Connected => Answer::Refuse,
    }
}

/// How often a process connects with another challenge before it gives up. One is enough, unless the peer accepts another
/// connection of this process in between.
const CHALLENGES_MAX: u32 = 4;

/// A connect request without an answer yet.
#[derive(Debug)]
struct Pending {
    attempt: Option<Attempt>,
    challenge: Challenge,
    /// Challenges that the peer has replied with.
    challenges: u32,
}

/// The other end of a connect request.
#[derive(Debug)]
pub struct ConnectTarget {
    /// The key that both ends have.
    pub key: Key,
    /// The initiator.
    pub from: Identity,
    /// The responder.
    pub to: Identity,
    /// The challenge for the first request: computed from the peer's seed, or [`Challenge::UNKNOWN`].
    pub challenge: Challenge,
}

/// The processes that may connect to this one, as defined by the user.
pub trait Peers: Send + Sync + 'static {
    /// The key that an initiator has to prove; `None` if the initiator may not connect.
    fn key_of(&self, from: Identity) -> Option<Key>;
}

impl<P: Peers> Peers for Arc<P> {
    fn key_of(&self, from: Identity) -> Option<Key> {
        (**self).key_of(from)
    }
}

/// Checks connect requests. The process shares it with the threads of its devices. They may listen before the process knows its
/// identity, and until then all requests are rejected.
#[derive(Debug)]
pub struct Admission<P> {
    protocol: Protocol,
    open: OnceLock<(Gate, P)>,
}

impl<P: Peers> Admission<P> {
    /// A closed admission: it rejects all requests with [`NOT_YET`].
    pub const fn new(protocol: Protocol) -> Self {
        Self { protocol, open: OnceLock::new() }
    }

    /// Opens it. Only the first call has an effect.
    pub fn open(&self, me: Identity, seed: Seed, peers: P) {
        self.open.get_or_init(|| (Gate::new(self.protocol, me, seed), peers));
    }

    /// Checks the private data of a request; returns what it proves.
    ///
    /// # Errors
    /// The private data of the rejection.
    pub fn check(&self, said: &[u8]) -> Result<Proved, Vec<u8>> {
        let (gate, peers) = self.open.get().ok_or_else(|| NOT_YET.to_vec())?;
        let refused = |refusal: Refusal| refusal.bytes(self.protocol).to_vec();
        let checked = gate.check(said, |from| peers.key_of(from));
        checked.map_err(|refusal| refusal.map_or_else(Vec::new, refused))
    }

    /// The reply to a request that passed, as by [`Gate::accept`].
    pub fn accept(&self, proved: &Proved, offer: [u8; OFFER]) -> Option<[u8; REPLY]> {
        self.open.get()?.0.accept(proved, offer)
    }

    /// The number of requests that were rejected since it was opened.
    pub fn refused(&self) -> u64 {
        self.open.get().map_or(0, |(gate, _)| gate.refused())
    }
}

/// A request that passes is taken with what it proves: [`Proved`].
impl<P: Peers> Screen for Admission<P> {
    fn screen(&self, request: &ScreenRequest<'_>) -> Verdict {
        let checked = self.check(request.private_data);
        checked.map_or_else(Verdict::Reject, |proved| Verdict::Pass(Box::new(proved)))
    }
}

/// What an event of the connection manager says about a connection.
#[derive(Debug)]
pub enum ConnEvent {
    /// It is established; the private data of the reply.
    Established(Vec<u8>),
    /// The peer has rejected the request; the private data of the rejection.
    Rejected(Vec<u8>),
    /// It has failed, or has ended; why.
    Ended(String),
}

impl ConnEvent {
    /// The number of the queue pair, and what the event says.
    ///
    /// # Errors
    /// A connect request, which is about no connection yet.
    pub fn of(event: CmEvent) -> Result<(u32, Self), Box<ConnectRequest>> {
        match event {
            CmEvent::ConnectRequest(request) => Err(Box::new(request)),
            CmEvent::Established { qp_num, private_data, .. } => {
                Ok((qp_num, Self::Established(private_data)))
            }
            CmEvent::Rejected { qp_num, private_data } => Ok((qp_num, Self::Rejected(private_data))),
            CmEvent::ConnectFailed { qp_num, why } => Ok((qp_num, Self::Ended(why.to_string()))),
            CmEvent::Disconnected { qp_num } => {
                Ok((qp_num, Self::Ended("it has ended, or has disconnected".to_owned())))
            }
        }
    }
}

/// What has become of a connection.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is established, and the peer has proved its identity.
    Established,
    /// The caller should send the request again. Retrying until the peer's own request arrives costs little, and detects that a peer
    /// has ended meanwhile.
    Again,
    /// The peer has another key, or changes its challenge too often.
    Unproved,
    /// The peer refused for a reason of the user's protocol, which is in this private data.
    Refused(Vec<u8>),
    /// It has failed, or has ended; why.
    Ended(String),
}

/// How a process connects to others, and accepts their requests. Connections have the user's numbers.
#[derive(Debug)]
pub struct Wireup<P> {
    protocol: Protocol,
    nonces: Nonces,
    /// The requests of this process without an answer yet.
    pending: BTreeMap<usize, Pending>,
    admission: Arc<Admission<P>>,
}

impl<P: Peers> Wireup<P> {
    /// Without connections, and with a closed admission. Nonces derive from a key that only this process has.
    pub fn new(protocol: Protocol, nonces: Key) -> Self {
        let admission = Arc::new(Admission::new(protocol));
        Self { protocol, nonces: Nonces::new(nonces), pending: BTreeMap::new(), admission }
    }

    /// The check of incoming requests, for the listeners of devices.
    pub fn admission(&self) -> &Arc<Admission<P>> {
        &self.admission
    }

    /// Returns a number that is never used again.
    pub fn next_nonce(&mut self) -> Nonce {
        self.nonces.next_nonce()
    }

    /// Sends the connect request of an endpoint to a listener, with these parameters and a proof. It is proved with the last challenge
    /// of the peer, or if there is none yet, with the target's.
    ///
    /// # Errors
    /// Those of the device.
    pub fn connect<U: User, const CHANNELS: usize, const INLINE: usize>(
        &mut self,
        nic: &Nic,
        (number, endpoint): (usize, &Endpoint<U, CHANNELS, INLINE>),
        (address, target): (SocketAddr, ConnectTarget),
        param: ConnParam,
    ) -> Result<()> {
        let said = self.request(number, target, endpoint.offer());
        nic.cm.connect(endpoint.qp(), address, &ConnParam { private_data: said.to_vec(), ..param })
    }

    /// Accepts a request with a new endpoint.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a request that was accepted before, and those of the device.
    pub fn accept<U: User, const CHANNELS: usize, const INLINE: usize>(
        &self,
        nic: &Nic,
        (request, proved): (ConnectRequest, &Proved),
        endpoint: &mut Endpoint<U, CHANNELS, INLINE>,
    ) -> Result<()> {
        endpoint.set_offer(proved.offer());
        let replayed = || Error::Invalid("its connect request was sent twice".into());
        let reply = self.admission.accept(proved, endpoint.offer()).ok_or_else(replayed)?;
        nic.cm.accept(request, endpoint.qp(), &ConnParam::with_private_data(reply))
    }

    /// Interprets an event of a connection.
    pub fn outcome<U: User, const CHANNELS: usize, const INLINE: usize>(
        &mut self,
        number: usize,
        endpoint: &mut Endpoint<U, CHANNELS, INLINE>,
        event: ConnEvent,
    ) -> Outcome {
        match event {
            // The peer's request was checked.
            ConnEvent::Established(_) if endpoint.stage() == ConnStage::Accepting => Outcome::Established,
            ConnEvent::Established(said) => match self.check_reply(number, &said) {
                Some(offer) => {
                    endpoint.set_offer(&offer);
                    Outcome::Established
                }
                None => Outcome::Unproved,
            },
            ConnEvent::Rejected(said) => self.rejected(number, said),
            ConnEvent::Ended(why) => Outcome::Ended(why),
        }
    }

    /// Drops the state of a connection's request.
    pub fn forget(&mut self, number: usize) {
        self.pending.remove(&number);
    }

    /// The private data of a request.
    fn request(&mut self, number: usize, target: ConnectTarget, offer: [u8; OFFER]) -> [u8; REQUEST] {
        let ConnectTarget { key, from, to, challenge } = target;
        let new = || Pending { attempt: None, challenge, challenges: 0 };
        let pending = self.pending.entry(number).or_insert_with(new);
        let proofs = (pending.challenge, self.nonces.next_nonce());
        let attempt = Attempt::new(self.protocol, key, (from, to), proofs, offer);
        pending.attempt.insert(attempt).request()
    }

    /// Interprets the private data of a rejection.
    fn rejected(&mut self, number: usize, said: Vec<u8>) -> Outcome {
        let Some(pending) = self.pending.get_mut(&number) else { return Outcome::Refused(said) };
        if said.starts_with(CROSSED) || said.starts_with(NOT_YET) {
            return Outcome::Again;
        }
        match pending.attempt.as_ref().map(|attempt| attempt.rejected(&said)) {
            Some(Rejected::Again(challenge)) if pending.challenges < CHALLENGES_MAX => {
                (pending.challenge, pending.challenges) = (challenge, pending.challenges + 1);
                Outcome::Again
            }
            Some(Rejected::Again(_) | Rejected::OtherKey) => Outcome::Unproved,
            Some(Rejected::Other) | None => Outcome::Refused(said),
        }
    }

    /// Returns the offer of a reply; `None` if the reply proves nothing. Removes the request in either case.
    fn check_reply(&mut self, number: usize, said: &[u8]) -> Option<[u8; OFFER]> {
        self.pending.remove(&number)?.attempt?.check_reply(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: Protocol = Protocol { name: "test", magic: *b"tst\x01" };
    const ME: Identity = Identity([1; auth::IDENTITY]);
    const PEER: Identity = Identity([2; auth::IDENTITY]);
    const OFFERED: [u8; OFFER] = [7; OFFER];

    fn key(byte: u8) -> Key {
        Key::from_bytes([byte; 16])
    }

    fn seed() -> Seed {
        Seed::from_key(key(9))
    }

    /// Lets initiators with the key of this byte connect.
    #[derive(Debug)]
    struct Friends(u8);

    impl Peers for Friends {
        fn key_of(&self, from: Identity) -> Option<Key> {
            (from != ME).then(|| key(self.0))
        }
    }

    fn admission() -> Admission<Friends> {
        let admission = Admission::new(PROTOCOL);
        admission.open(ME, seed(), Friends(1));
        admission
    }

    fn wireup() -> Wireup<Friends> {
        Wireup::new(PROTOCOL, key(50))
    }

    fn request(wireup: &mut Wireup<Friends>, byte: u8, challenge: Challenge) -> [u8; REQUEST] {
        wireup.request(3, ConnectTarget { key: key(byte), from: PEER, to: ME, challenge }, OFFERED)
    }

    #[test]
    fn request_with_the_seed_of_the_peer_is_accepted_at_once_and_only_once() {
        let (admission, mut wireup) = (admission(), wireup());
        let said = request(&mut wireup, 1, seed().challenge(PROTOCOL, PEER, 0));
        let [first, again] = [0; 2].map(|_| admission.check(&said).expect("proved"));
        assert_eq!((first.from(), first.offer()), (PEER, &OFFERED));
        let reply = admission.accept(&first, [8; OFFER]).expect("the first answer");
        assert_eq!(admission.accept(&again, [8; OFFER]), None, "a replay");
        assert!(wireup.pending.contains_key(&3));
        assert_eq!(wireup.check_reply(3, &reply), Some([8; OFFER]));
        assert_eq!((wireup.pending.len(), wireup.check_reply(3, &reply)), (0, None));
    }

    #[test]
    fn request_with_an_unknown_challenge_is_accepted_the_second_time() {
        let (admission, mut wireup) = (admission(), wireup());
        let refusal =
            admission.check(&request(&mut wireup, 1, Challenge::UNKNOWN)).expect_err("no challenge");
        assert_eq!(wireup.rejected(3, refusal), Outcome::Again);
        assert!(admission.check(&request(&mut wireup, 1, Challenge::UNKNOWN)).is_ok());
        assert_eq!(admission.refused(), 1);
    }

    #[test]
    fn request_with_another_key_or_to_a_closed_admission_is_rejected() {
        let (closed, mut wireup) = (Admission::<Friends>::new(PROTOCOL), wireup());
        let said = request(&mut wireup, 2, seed().challenge(PROTOCOL, PEER, 0));
        assert_eq!(closed.check(&said).expect_err("closed"), NOT_YET);
        assert_eq!(wireup.rejected(3, NOT_YET.to_vec()), Outcome::Again);
        assert_eq!(wireup.rejected(3, b"full".to_vec()), Outcome::Refused(b"full".to_vec()));
        let refusal = admission().check(&said).expect_err("another key");
        assert_eq!(wireup.rejected(3, refusal.clone()), Outcome::Unproved);
        wireup.forget(3);
        assert_eq!(wireup.rejected(3, refusal.clone()), Outcome::Refused(refusal));
    }

    #[test]
    fn peer_that_changes_its_challenge_too_often_is_given_up() {
        let mut wireup = wireup();
        let again = (1..=CHALLENGES_MAX + 1).map(|count| {
            request(&mut wireup, 1, Challenge::UNKNOWN);
            wireup.rejected(3, Refusal(seed().challenge(PROTOCOL, PEER, count)).bytes(PROTOCOL).to_vec())
        });
        let again: Vec<_> = again.collect();
        assert_eq!(again.iter().filter(|one| **one == Outcome::Again).count() as u32, CHALLENGES_MAX);
        assert_eq!(again.last(), Some(&Outcome::Unproved));
    }

    /// Goal: however requests cross, two processes end with one connection, the same at both. Method: all orders in which requests
    /// and answers of two processes can be delivered, each process asking at most twice.
    #[test]
    fn two_processes_end_with_one_connection() {
        let mut ends = 0;
        explore(&mut State::default(), &mut ends);
        assert!(ends >= 10, "{ends} orders");
    }

    #[derive(Clone, Debug, PartialEq)]
    enum Message {
        Ask,
        Yes,
        No,
        Crossed,
    }

    #[derive(Clone, Debug)]
    struct State {
        stages: [ConnStage; 2],
        /// The process that asked for the connection of each process.
        asked_by: [Option<usize>; 2],
        /// Messages in flight to each process, with the process whose request each is about.
        inbox: [Vec<(Message, usize)>; 2],
        asked: [bool; 2],
    }

    impl Default for State {
        fn default() -> Self {
            Self {
                stages: [ConnStage::None; 2],
                asked_by: [None; 2],
                inbox: [Vec::new(), Vec::new()],
                asked: [false; 2],
            }
        }
    }

    fn explore(state: &mut State, ends: &mut u32) {
        let mut moved = false;
        for me in 0..2 {
            if !state.asked[me] && state.stages[me] == ConnStage::None {
                let mut next = state.clone();
                (next.asked[me], next.stages[me]) = (true, ConnStage::Connecting);
                next.inbox[1 - me].push((Message::Ask, me));
                explore(&mut next, ends);
                moved = true;
            }
            if !state.inbox[me].is_empty() {
                let mut next = state.clone();
                let (message, whose) = next.inbox[me].remove(0);
                deliver(&mut next, me, message, whose);
                explore(&mut next, ends);
                moved = true;
            }
        }
        if !moved {
            assert_eq!(state.stages, [ConnStage::Connected; 2], "{state:?}");
            assert!(state.asked_by[0].is_some() && state.asked_by[0] == state.asked_by[1], "{state:?}");
            *ends += 1;
        }
    }

    fn deliver(state: &mut State, me: usize, message: Message, whose: usize) {
        let peer = 1 - me;
        match message {
            Message::Ask => match answer(state.stages[me], me as u32, peer as u32) {
                Answer::Accept => {
                    (state.stages[me], state.asked_by[me]) = (ConnStage::Connected, Some(peer));
                    state.inbox[peer].push((Message::Yes, peer));
                }
                Answer::Crossed => state.inbox[peer].push((Message::Crossed, peer)),
                Answer::Refuse => state.inbox[peer].push((Message::No, peer)),
            },
            Message::Yes => (state.stages[me], state.asked_by[me]) = (ConnStage::Connected, Some(whose)),
            // The own request is no longer used, or was given up already: the peer's request is in flight.
            Message::Crossed | Message::No => {
                let crossed = message == Message::Crossed && state.stages[me] == ConnStage::Connecting;
                assert!(crossed || state.asked_by[me] == Some(peer), "{state:?}");
            }
        }
    }
}
