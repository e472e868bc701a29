//! Keys, and how two processes prove to each other that they have the same one.
//!
//! A key never travels in the clear. The side that connects (the initiator) sends a [`Request`] in the private data of its connect
//! request; the side that listens (the responder) checks it with a [`Gate`] and answers with a reply, or rejects it with a
//! [`Refusal`]. Each proof is an HMAC-SHA-256 (RFC 2104, FIPS 180-4) truncated to 128 bits. It covers the protocol, the role of its
//! sender, both identities, the responder's challenge, the initiator's nonce and all other fields of the message.
//!
//! A responder computes its challenge from its [`Seed`], the initiator's identity and the number of accepted connections of that
//! initiator, so it stores nothing for strangers. An initiator that knows the seed connects in one round trip. An initiator without
//! the seed sends [`Challenge::UNKNOWN`], is refused with the right challenge, and connects again, as with the Retry of QUIC (RFC
//! 9000, section 8.1.2).
//!
//! This authenticates both ends when a connection is set up. It does not encrypt, and does not protect later traffic: see
//! `SECURITY.md`.
//!
//! | file | what it holds |
//! |---|---|
//! | `key` | [`Key`]: 128 secret bits, derived keys, keys sealed for transport |
//! | `message` | [`Request`], [`Refusal`]: the bytes that are exchanged when a connection is made |
//! | `gate` | [`Gate`]: the responder |
//! | `attempt` | [`Attempt`]: the initiator |
//! | `handshake` | [`handshake`]: mutual proof over a socket |
//! | `fuzzing` | the code that the fuzz target calls; not part of the library |
//! | `source` | [`shared_key`]: the key of a process, from its launcher or from a file of its user's that nobody else can read |
//!
//! Nothing here does I/O, but for reading the file of a user's key and asking the system for random bytes.

#![forbid(unsafe_code)]

mod attempt;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod gate;
pub mod handshake;
mod key;
mod message;
mod source;

pub use attempt::{Attempt, Nonces, Rejected};
pub use gate::{Gate, Proved};
pub use key::{Key, NoRandom};
pub use message::{
    Challenge, IDENTITY, Identity, NONCE, Nonce, OFFER, Protocol, REFUSAL, REPLY, REQUEST, Refusal, Request,
    Seed,
};
pub use source::{JOB_KEY, KEY_FILE, KeyError, shared_key, user_key, user_key_path};
