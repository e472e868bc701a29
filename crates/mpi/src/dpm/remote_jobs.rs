//! [`RemoteJobs`]: the processes of other jobs that this process knows. Their numbers follow those of its own job, and are valid
//! only locally: between jobs a process is named by its [`Identity`].

use std::collections::BTreeMap;

use crate::error::{Class, Error, Result};
use crate::peers::address::Address;

/// A process's name, unique among all jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Identity {
    /// The job's unique number.
    pub(crate) job: u64,
    /// The process's number in its job.
    pub(crate) rank: u32,
}

/// Bytes of an [`Identity`].
pub(crate) const IDENTITY: usize = 12;

impl Identity {
    /// Encodes the identity.
    pub(crate) fn bytes(self) -> [u8; IDENTITY] {
        let mut bytes = [0; IDENTITY];
        bytes[..8].copy_from_slice(&self.job.to_le_bytes());
        bytes[8..].copy_from_slice(&self.rank.to_le_bytes());
        bytes
    }

    /// Decodes an identity; `None` if there are too few bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let (job, rank) = bytes.get(..IDENTITY)?.split_first_chunk()?;
        Some(Self { job: u64::from_le_bytes(*job), rank: u32::from_le_bytes(rank.try_into().ok()?) })
    }
}

/// The known processes of other jobs, by local number.
#[derive(Debug)]
pub(crate) struct RemoteJobs {
    /// This process, and the size of its job.
    own: Identity,
    size: u32,
    known: Vec<(Identity, Address)>,
    numbers: BTreeMap<Identity, u32>,
}

impl RemoteJobs {
    /// No known processes outside of this process's job.
    pub(crate) fn new(own: Identity, size: u32) -> Self {
        Self { own, size, known: Vec::new(), numbers: BTreeMap::new() }
    }

    /// Whether no process of another job is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// Whether a process belongs to this process's job.
    pub(crate) fn is_of_job(&self, process: u32) -> bool {
        process < self.size
    }

    /// The identity of a process.
    pub(crate) fn identity(&self, process: u32) -> Identity {
        match self.entry(process) {
            Some((identity, _)) => *identity,
            None => Identity { job: self.own.job, rank: process },
        }
    }

    /// The address of a process of another job; `None` for a process of this job.
    pub(crate) fn address(&self, process: u32) -> Option<&Address> {
        self.entry(process).map(|(_, address)| address)
    }

    fn entry(&self, process: u32) -> Option<&(Identity, Address)> {
        self.known.get(process.checked_sub(self.size)? as usize)
    }

    /// The local number of a known process.
    pub(crate) fn number(&self, identity: Identity) -> Option<u32> {
        if identity.job == self.own.job {
            return Some(identity.rank).filter(|rank| *rank < self.size);
        }
        self.numbers.get(&identity).copied()
    }

    /// Adds a process. Returns its local number.
    ///
    /// # Errors
    /// [`Class::OTHER`] for an invalid rank of this job, and beyond 2^31 processes.
    pub(crate) fn introduce(&mut self, identity: Identity, address: Address) -> Result<u32> {
        if let Some(number) = self.number(identity) {
            return Ok(number);
        }
        let number = self.size + self.known.len() as u32;
        if identity.job == self.own.job || number > i32::MAX as u32 {
            return Err(Error::new(
                Class::OTHER,
                format_args!("{identity:?} is not a process that can be added"),
            ));
        }
        self.known.push((identity, address));
        self.numbers.insert(identity, number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use auth::{Key, Seed};

    use super::*;

    #[test]
    fn remote_processes_are_numbered_after_those_of_the_job() {
        let address = |node: &str| Address {
            node: node.to_owned(),
            ports: Vec::new(),
            addresses: Vec::new(),
            seed: Seed::from_key(Key::from_bytes([1; 16])),
        };
        let of = |job, rank| Identity { job, rank };
        let mut jobs = RemoteJobs::new(of(7, 1), 4);
        assert!(jobs.is_empty() && jobs.number(of(8, 0)).is_none());
        assert_eq!(jobs.introduce(of(8, 3), address("a")), Ok(4));
        assert_eq!(jobs.introduce(of(6, 0), address("b")), Ok(5));
        assert_eq!(jobs.introduce(of(8, 3), address("c")), Ok(4), "known already");
        assert_eq!(jobs.introduce(of(7, 2), address("c")), Ok(2), "of the own job");
        assert!(jobs.introduce(of(7, 4), address("c")).is_err());
        assert_eq!((jobs.identity(5), jobs.identity(3)), (of(6, 0), of(7, 3)));
        assert_eq!((jobs.address(4), jobs.address(3)), (Some(&address("a")), None));
        assert_eq!((jobs.number(of(7, 3)), jobs.number(of(7, 9))), (Some(3), None));
        assert_eq!(Identity::parse(&of(u64::MAX - 1, 5).bytes()), Some(of(u64::MAX - 1, 5)));
        assert_eq!(Identity::parse(&[0; IDENTITY - 1]), None);
    }
}
