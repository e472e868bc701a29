//! [`Gate`]: the responder's side. It accepts initiators that prove that they have the key, and stores nothing about any others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::key::Key;
use crate::message::{
    Challenge, Identity, OFFER, ProofContext, Protocol, REPLY, Refusal, Reply, Request, Seed,
};

/// A responder. A NIC's thread may check requests while the program accepts others.
#[derive(Debug)]
pub struct Gate {
    protocol: Protocol,
    me: Identity,
    seed: Seed,
    /// The number of accepted connections, by initiator.
    accepted: Mutex<BTreeMap<Identity, u32>>,
    refused: AtomicU64,
}

/// A request with a valid proof. [`Gate::accept`] answers it.
#[derive(Debug)]
pub struct Proved {
    request: Request,
    key: Key,
    challenge: Challenge,
    /// Accepted connections of the initiator when the request was checked.
    accepted: u32,
}

impl Proved {
    /// The initiator, as its proof says.
    pub fn from(&self) -> Identity {
        self.request.from
    }

    /// The protocol's data in the request.
    pub fn offer(&self) -> &[u8; OFFER] {
        &self.request.offer
    }
}

impl Gate {
    /// A responder that has accepted no connection yet.
    pub fn new(protocol: Protocol, me: Identity, seed: Seed) -> Self {
        Self { protocol, me, seed, accepted: Mutex::default(), refused: AtomicU64::new(0) }
    }

    fn accepted(&self) -> MutexGuard<'_, BTreeMap<Identity, u32>> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the private data of a connect request; `key` returns the key that this responder shares with an initiator.
    ///
    /// # Errors
    /// A request without a valid proof is counted and refused: with a challenge, or without data if the bytes are no request at
    /// all.
    pub fn check(
        &self,
        received: &[u8],
        key: impl FnOnce(Identity) -> Option<Key>,
    ) -> Result<Proved, Option<Refusal>> {
        let checked = Request::parse(received, self.protocol).ok_or(None).and_then(|request| {
            let accepted = self.accepted().get(&request.from).copied().unwrap_or(0);
            let challenge = self.seed.challenge(self.protocol, request.from, accepted);
            let (protocol, from, to, nonce) = (self.protocol, request.from, self.me, request.nonce);
            let context = ProofContext { protocol, from, to, challenge, nonce };
            let is_proved = |key: &Key| context.initiator_proof(key, &request.offer).verifies(&request.proof);
            let key = key(request.from).filter(is_proved).ok_or(Some(Refusal(challenge)))?;
            Ok(Proved { request, key, challenge, accepted })
        });
        checked.inspect_err(|_| {
            self.refused.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// The private data of the reply, with a proof of this responder. It invalidates all earlier requests of the initiator; `None`
    /// if this request is already invalid, and so a replay.
    pub fn accept(&self, proved: &Proved, offer: [u8; OFFER]) -> Option<[u8; REPLY]> {
        let Proved { request, key, challenge, .. } = proved;
        let mut all = self.accepted();
        let accepted = all.entry(request.from).or_default();
        if *accepted != proved.accepted {
            return None;
        }
        *accepted += 1;
        drop(all);
        let (protocol, from, to, nonce) = (self.protocol, request.from, self.me, request.nonce);
        let context = ProofContext { protocol, from, to, challenge: *challenge, nonce };
        let proof = context.responder_proof(key, &request.proof, &offer).finish();
        Some(Reply { proof, offer }.bytes(protocol))
    }

    /// The number of refused requests.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}
