//! [`Keyring`]: the keys that this process shares with others; [`Members`]: the processes that may connect with them.
//!
//! All processes of a job have the job's key: process 0 creates it, and the others read it from the launcher's board. A job that is
//! introduced to another one gives it a guest key, which derives from the job's key and does not reveal it. Two processes of
//! different jobs use a key derived from both guest keys, so that a third job, introduced to only one of the two, cannot
//! impersonate either. All processes of a job are trusted alike: each can impersonate any other.
//!
//! Challenges derive from a [`Seed`](auth::Seed) that each process publishes with its address. The seed is fresh for each process,
//! and a process accepts a peer once, after which the peer's challenge changes. So a recorded request is valid only until the
//! connection that it was made for is accepted: an eavesdropper can at most be faster than the process itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use auth::{Key, Protocol};
use transport::{Admission, Peers};

use crate::dpm::remote_jobs::Identity;
use crate::error::{Class, Error, Result};

/// The protocol of connections between processes. Its magic changes with every change of the wire format.
pub const PROTOCOL: Protocol = Protocol { name: "mpi", magic: *b"nmp\x0b" };

impl From<auth::NoRandom> for Error {
    fn from(error: auth::NoRandom) -> Self {
        Self::new(Class::OTHER, error)
    }
}

/// A job's number and key, which its processes read from a note of process 0.
#[derive(Clone, Debug)]
pub(crate) struct JobSecret {
    pub(crate) job: u64,
    key: Key,
}

impl JobSecret {
    /// Creates one from two keys that were never used before.
    pub(crate) fn new(key: Key, other: &Key) -> Self {
        let bytes = other.to_bytes();
        Self { job: u64::from_le_bytes(std::array::from_fn(|at| bytes[at])), key }
    }

    /// The note for the job's processes.
    pub(crate) fn note(&self) -> String {
        format!("{:016x}-{}", self.job, self.key.to_hex())
    }

    /// Parses the note.
    ///
    /// # Errors
    /// [`Class::OTHER`] for other text, without repeating it.
    pub(crate) fn parse(note: &str) -> Result<Self> {
        let wrong = || {
            Error::new(
                Class::OTHER,
                "the note with the job's key is invalid: process 0 of the job has another version",
            )
        };
        let (job, key) = note.split_once('-').ok_or_else(wrong)?;
        let job = u64::from_str_radix(job, 16).map_err(|_| wrong())?;
        Ok(Self { job, key: Key::from_hex(key).ok_or_else(wrong)? })
    }
}

/// The keys that a process shares with others.
#[derive(Debug)]
pub(crate) struct Keyring {
    own: JobSecret,
    /// Guest keys by job, including that of the own job.
    guests: BTreeMap<u64, Key>,
}

impl Keyring {
    pub(crate) fn new(own: JobSecret) -> Self {
        let guest = own.key.derive("guest", &[&own.job.to_le_bytes()]);
        Self { guests: BTreeMap::from([(own.job, guest)]), own }
    }

    /// The guest key of a job: of the own job, or of one that was introduced.
    pub(crate) fn guest(&self, job: u64) -> Option<&Key> {
        self.guests.get(&job)
    }

    /// Adds the guest key of another job. The first key remains.
    pub(crate) fn learn(&mut self, job: u64, key: Key) {
        self.guests.entry(job).or_insert(key);
    }

    /// The key that this process shares with processes of a job.
    pub(crate) fn shared_with(&self, job: u64) -> Option<Key> {
        if job == self.own.job {
            return Some(self.own.key.clone());
        }
        let (lower, higher) = (job.min(self.own.job), job.max(self.own.job));
        let (first, second) = (self.guest(lower)?, self.guest(higher)?);
        Some(first.derive("pair", &[&second.to_bytes()]))
    }
}

/// The processes that may connect to this one: other processes of its job, and of jobs introduced to it.
#[derive(Debug)]
pub(crate) struct Members {
    me: Identity,
    /// The number of processes of the own job.
    size: u32,
    keys: Mutex<Keyring>,
}

/// The check of connect requests. Devices listen before the job's key is known; until then all requests are rejected, and the
/// initiator retries.
pub(crate) type ConnectAdmission = Admission<Arc<Members>>;

impl Members {
    /// The members for process `me` of a job of `size`, with these keys.
    pub(crate) fn new(me: Identity, size: u32, keys: Keyring) -> Self {
        Self { me, size, keys: Mutex::new(keys) }
    }

    fn keys(&self) -> MutexGuard<'_, Keyring> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guest key of a job, as [`Keyring::guest`] returns it.
    pub(crate) fn guest(&self, job: u64) -> Option<Key> {
        self.keys().guest(job).cloned()
    }

    /// Adds a guest key, as [`Keyring::learn`] does.
    pub(crate) fn learn(&self, job: u64, key: Key) {
        self.keys().learn(job, key);
    }

    /// The key shared with a job, as [`Keyring::shared_with`] returns it.
    pub(crate) fn shared_with(&self, job: u64) -> Option<Key> {
        self.keys().shared_with(job)
    }
}

impl Peers for Members {
    /// The key that an initiator has to prove: `None` for this process itself, and for ranks that the own job does not have.
    fn key_of(&self, from: auth::Identity) -> Option<Key> {
        let from = Identity::parse(&from.0)?;
        if from == self.me || from.job == self.me.job && from.rank >= self.size {
            return None;
        }
        self.shared_with(from.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(job: u64, byte: u8) -> JobSecret {
        JobSecret { job, key: Key::from_bytes([byte; 16]) }
    }

    /// The keyrings of two jobs introduced to each other.
    fn met(one: &JobSecret, other: &JobSecret) -> [Keyring; 2] {
        let mut both = [one, other].map(|secret| Keyring::new(secret.clone()));
        let guests = [0, 1].map(|at| both[at].guest(both[at].own.job).expect("its own").clone());
        both[0].learn(other.job, guests[1].clone());
        both[1].learn(one.job, guests[0].clone());
        both
    }

    #[test]
    fn notes_bring_the_key_and_other_text_is_refused_without_being_shown() {
        let secret = JobSecret::new(Key::from_bytes([1; 16]), &Key::from_bytes([2; 16]));
        let parsed = JobSecret::parse(&secret.note()).expect("its own note");
        assert_eq!((parsed.job, parsed.key), (secret.job, secret.key));
        for wrong in
            ["", "7", "7-", "x-00112233445566778899aabbccddeeff", "7-00112233445566778899aabbccddeef"]
        {
            let error = JobSecret::parse(wrong).expect_err(wrong);
            assert!(wrong.len() < 2 || !error.text.contains(wrong), "{error}");
        }
    }

    #[test]
    fn jobs_that_have_met_share_a_key_and_a_third_one_has_another() {
        let all = [secret(5, 1), secret(9, 2), secret(7, 3)];
        let [a, b] = met(&all[0], &all[1]);
        let pair = a.shared_with(9).expect("they have met");
        assert_eq!(b.shared_with(5), Some(pair.clone()));
        assert_eq!((a.shared_with(7), b.shared_with(7)), (None, None));
        assert_ne!(a.shared_with(5), Some(pair.clone()), "of the own job");
        // The third job was introduced to the first only, and claims to be the second.
        let [_, mut third] = met(&all[0], &all[2]);
        third.own.job = 9;
        assert_ne!(third.shared_with(5), Some(pair));
    }

    #[test]
    fn a_guest_key_is_not_replaced() {
        let [mut a, _] = met(&secret(5, 1), &secret(9, 2));
        let before = a.shared_with(9);
        a.learn(9, Key::from_bytes([66; 16]));
        a.learn(5, Key::from_bytes([66; 16]));
        assert_eq!(a.shared_with(9), before);
    }
}
