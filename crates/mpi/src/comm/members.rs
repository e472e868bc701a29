//! [`GroupDescription`]: a group as one process describes it to another: by process numbers within a job, and by addresses across
//! jobs.
//!
//! The guest keys of the members' jobs (`trust`) are sent with the addresses, encrypted under a key that the two processes share.
//! So an eavesdropper learns no key. The encoding differs for each receiver.
//!
//! Bytes: a kind; with [`ADDRESSES`] a nonce (8), the number of jobs (2), for each its number (8) and its sealed key (16), then for
//! each member its identity (12), the length of its address (2) and the address.

use std::collections::BTreeMap;

use auth::Key;

use crate::comm::group::Group;
use crate::core::Core;
use crate::dpm::remote_jobs::{IDENTITY, Identity};
use crate::error::{Class, Error, Result};
use crate::peers::address::Address;

const NUMBERS: u8 = 0;
const ADDRESSES: u8 = 1;
const NONCE: usize = auth::NONCE;
/// The most jobs that the members of a group may belong to.
const JOBS_MAX: usize = u16::MAX as usize;

fn bad_format() -> Error {
    Error::new(Class::OTHER, "a process has described a group in a format that this version does not know")
}

/// The members of a group.
#[derive(Debug)]
pub(crate) enum GroupDescription {
    /// Encoded numbers in the job.
    WithinJob(Vec<u8>),
    /// Members of any job.
    AcrossJobs {
        /// Guest keys by job.
        keys: BTreeMap<u64, Key>,
        /// Encoded identities and addresses.
        members: Vec<u8>,
    },
}

impl GroupDescription {
    /// Describes a group, for a process that this one can already reach.
    pub(crate) fn new(core: &Core, group: &Group) -> Result<Self> {
        // A process that can reach another job knows members of it.
        if core.with(|engine| !engine.transport.strangers().is_empty()) {
            return Self::across_jobs(core, group);
        }
        Ok(Self::WithinJob(group.members().iter().flat_map(|process| process.to_le_bytes()).collect()))
    }

    /// Describes a group, for a process of any job. The guest keys let its processes connect to members of the other jobs.
    pub(crate) fn across_jobs(core: &Core, group: &Group) -> Result<Self> {
        let (mut keys, mut members) = (BTreeMap::new(), Vec::new());
        for process in group.members() {
            let (identity, address, guest_key) = core.with(|engine| {
                let transport = &engine.transport;
                let identity = transport.strangers().identity(*process);
                let guest_key = transport.members().guest(identity.job);
                transport.address_of(*process).map(|address| (identity, address, guest_key))
            })?;
            let none = || Error::new(Class::INTERN, format_args!("there is no key for process {process}"));
            keys.insert(identity.job, guest_key.ok_or_else(none)?);
            let encoded_address = address.note()?;
            members.extend(identity.bytes());
            members.extend((encoded_address.len() as u16).to_le_bytes());
            members.extend(encoded_address.as_bytes());
        }
        if keys.len() > JOBS_MAX {
            return Err(Error::new(
                Class::OTHER,
                format_args!("a group has members of {JOBS_MAX} jobs at most"),
            ));
        }
        Ok(Self::AcrossJobs { keys, members })
    }

    /// Encodes the group for another process, which shares a key with this one.
    pub(crate) fn bytes_for(&self, core: &Core, process: u32) -> Result<Vec<u8>> {
        let key = core.with(|engine| engine.transport.shared_with(process))?;
        Ok(self.bytes(core, Some(&key)))
    }

    /// Encodes the group, with keys encrypted under `shared`; in the clear if the two sides share none.
    pub(crate) fn bytes(&self, core: &Core, shared: Option<&Key>) -> Vec<u8> {
        match self {
            Self::WithinJob(numbers) => [&[NUMBERS][..], numbers].concat(),
            Self::AcrossJobs { keys, members } => {
                let nonce = core.with(|engine| engine.transport.next_nonce().to_bytes());
                let mut bytes = vec![ADDRESSES];
                bytes.extend(nonce);
                bytes.extend((keys.len() as u16).to_le_bytes());
                for (job, key) in keys {
                    bytes.extend(job.to_le_bytes());
                    bytes.extend(seal_key(shared, nonce, *job, key).to_bytes());
                }
                bytes.extend(members);
                bytes
            }
        }
    }

    /// Parses bytes that another process has sent to this one.
    pub(crate) fn parse_from(core: &Core, process: u32, bytes: &[u8]) -> Result<Self> {
        let key = core.with(|engine| engine.transport.shared_with(process))?;
        Self::parse(bytes, Some(&key))
    }

    /// Parses bytes whose keys are encrypted under `shared`.
    pub(crate) fn parse(bytes: &[u8], shared: Option<&Key>) -> Result<Self> {
        let (kind, rest) = bytes.split_first().ok_or_else(bad_format)?;
        match *kind {
            NUMBERS => Ok(Self::WithinJob(rest.to_vec())),
            ADDRESSES => Self::parse_across_jobs(rest, shared).ok_or_else(bad_format),
            _ => Err(bad_format()),
        }
    }

    fn parse_across_jobs(bytes: &[u8], shared: Option<&Key>) -> Option<Self> {
        let (nonce, rest) = bytes.split_first_chunk::<NONCE>()?;
        let (count, mut rest) = rest.split_first_chunk()?;
        let mut keys = BTreeMap::new();
        for _ in 0..u16::from_le_bytes(*count) {
            let (job, after_job) = rest.split_first_chunk()?;
            let (key, after_key) = after_job.split_first_chunk()?;
            let job = u64::from_le_bytes(*job);
            keys.insert(job, seal_key(shared, *nonce, job, &Key::from_bytes(*key)));
            rest = after_key;
        }
        Some(Self::AcrossJobs { keys, members: rest.to_vec() })
    }

    /// The first member; `None` if the members are numbers.
    pub(crate) fn first_member(&self) -> Option<Identity> {
        match self {
            Self::WithinJob(_) => None,
            Self::AcrossJobs { members, .. } => Identity::parse(members),
        }
    }

    /// The group. Registers its members, and the keys of their jobs, with this process.
    pub(crate) fn group(&self, core: &Core) -> Result<Group> {
        match self {
            Self::WithinJob(numbers) => {
                let process = |four: &[u8]| four.try_into().map(u32::from_le_bytes).unwrap_or(u32::MAX);
                Group::new(numbers.chunks_exact(4).map(process).collect())
            }
            Self::AcrossJobs { keys, members } => {
                for (job, key) in keys {
                    core.with(|engine| engine.transport.members().learn(*job, key.clone()));
                }
                introduce_members(core, members)
            }
        }
    }
}

/// Encrypts a key under another one, or decrypts it.
fn seal_key(shared: Option<&Key>, nonce: [u8; NONCE], job: u64, key: &Key) -> Key {
    shared.map_or_else(|| key.clone(), |shared| shared.seal(&[&nonce[..], &job.to_le_bytes()].concat(), key))
}

fn introduce_members(core: &Core, mut bytes: &[u8]) -> Result<Group> {
    let mut members = Vec::new();
    while !bytes.is_empty() {
        let identity = Identity::parse(bytes).ok_or_else(bad_format)?;
        let (len, rest) = bytes[IDENTITY..].split_first_chunk().ok_or_else(bad_format)?;
        let len = u16::from_le_bytes(*len).into();
        let (encoded_address, rest) = rest.split_at_checked(len).ok_or_else(bad_format)?;
        let encoded_address = std::str::from_utf8(encoded_address).map_err(|_| bad_format())?;
        let address = Address::parse(encoded_address)?;
        members.push(core.with(|engine| engine.transport.introduce(identity, address))?);
        bytes = rest;
    }
    Group::new(members)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(byte: u8) -> Key {
        Key::from_bytes([byte; 16])
    }

    /// What [`GroupDescription::bytes`] returns for one job.
    fn bytes(shared: Option<&Key>) -> Vec<u8> {
        let nonce = [5; NONCE];
        let sealed = seal_key(shared, nonce, 7, &key(1)).to_bytes();
        [&[ADDRESSES][..], &nonce, &1_u16.to_le_bytes(), &7_u64.to_le_bytes(), &sealed, b"members"].concat()
    }

    fn key_in(bytes: &[u8], shared: Option<&Key>) -> Option<Key> {
        match GroupDescription::parse(bytes, shared) {
            Ok(GroupDescription::AcrossJobs { keys, members }) if members == b"members" => {
                keys.get(&7).cloned()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keys_are_readable_with_the_shared_key_only() {
        let description = bytes(Some(&key(2)));
        assert!(!description.windows(16).any(|window| window == [1; 16]), "the key is in the clear");
        assert_eq!(key_in(&description, Some(&key(2))), Some(key(1)));
        assert_ne!(key_in(&description, Some(&key(3))), Some(key(1)));
        assert_eq!(key_in(&bytes(None), None), Some(key(1)));
    }

    proptest! {
        /// Goal: no bytes of a peer make this process panic, and truncated ones are refused.
        #[test]
        fn malformed_group_descriptions_are_rejected(noise in any::<Vec<u8>>(), len in 0..35_usize) {
            let _ = GroupDescription::parse(&noise, Some(&key(2)));
            let _ = GroupDescription::parse(&[&[ADDRESSES][..], &noise].concat(), Some(&key(2)));
            prop_assert!(GroupDescription::parse(&bytes(None)[..len], None).is_err());
        }
    }
}
