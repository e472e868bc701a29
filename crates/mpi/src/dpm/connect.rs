//! Connects communicators of two jobs to one intercommunicator (`MPI_Comm_accept`, `MPI_Comm_connect`, `MPI_Comm_join`,
//! `MPI_Comm_spawn`; MPI 5.0, sections 11.8 to 11.10). One process of each job has a [`Bridge`] to the other, over which the two
//! exchange the members and addresses of both sides. After that, communication works as within a job.

use auth::Key;

use crate::comm::communicator::Comm;
use crate::comm::context::Context;
use crate::comm::create::parse_context;
use crate::comm::members::GroupDescription;
use crate::error::{Class, Error, Result};
use crate::peers::nic::Sizes;

/// A connection to one process of another job, before the two jobs are connected.
pub trait Bridge {
    /// A secret key that both ends of the bridge share, if there is one. Keys sent over the bridge are encrypted with it, otherwise
    /// they are sent in the clear.
    fn shared_key(&self) -> Option<Key>;
    /// Sends a message.
    ///
    /// # Errors
    /// [`Class::PORT`] when the other process is gone.
    fn send(&mut self, bytes: &[u8]) -> Result<()>;
    /// Receives the next message, of at most `most` bytes.
    ///
    /// # Errors
    /// [`Class::PORT`] when the other process is gone, sends nothing for too long, or sends more.
    fn receive(&mut self, most: usize) -> Result<Vec<u8>>;
}

/// The context of the new communicator, and the members of the other side.
type Agreement = (Context, GroupDescription);

/// Maximum size of a message over a bridge: 2^20 members with addresses of up to 1 KiB each.
const MEMBERS_MAX: usize = 1 << 30;

/// The message that each root sends once its members know those of the other side.
const READY: &[u8] = b"ready";

fn bad_format() -> Error {
    Error::new(Class::PORT, "the other side has sent a message that no process of this version sends")
}

impl Comm {
    /// An intercommunicator with the communicator whose root is at the other end of the bridge. `bridge` is significant only at the
    /// root; its error is reported to the other members. Collective over both communicators.
    ///
    /// # Errors
    /// [`Class::RANK`] for an invalid root; [`Class::COMM`] for an intercommunicator; [`Class::PORT`] when the two sides cannot
    /// agree; [`Class::GROUP`] for two sides with a common member; [`Class::PROC_ABORTED`].
    pub fn join(&self, root: i32, mut bridge: Result<Option<&mut dyn Bridge>>) -> Result<Self> {
        if self.is_inter() {
            return Err(Error::new(Class::COMM, "only an intracommunicator can be connected to another job"));
        }
        if self.group().process(root).is_none() {
            return Err(Error::new(
                Class::RANK,
                format_args!("root {root} is not a rank of the communicator"),
            ));
        }
        let agreement = match &mut bridge {
            Ok(Some(bridge)) => self.agree_over_bridge(*bridge),
            Ok(None) => Err(Error::new(Class::PORT, "the root has no connection to the other side")),
            Err(error) => Err(error.clone()),
        };
        let (name, members) = self.distribute_agreement(root, agreement)?;
        let known = members.group(self.core()).and_then(|remote| {
            if self.group().intersection(&remote).size() > 0 {
                return Err(Error::new(Class::GROUP, "the two sides have a common member"));
            }
            Ok(remote)
        });
        // The other side must not send to a process before that process knows the sender.
        self.oob()?.allgather(self.rank(), &[0])?;
        let ready = match (&known, &mut bridge) {
            (Err(error), _) => Err(error.clone()),
            (Ok(_), Ok(Some(bridge))) => bridge.send(READY).and_then(|()| bridge.receive(READY.len())),
            (Ok(_), _) => Ok(Vec::new()),
        };
        let ready = if self.rank() == root {
            self.send_from_root(root, |_| ready.clone())?;
            ready?
        } else {
            self.receive_from_root(root)?
        };
        if ready != READY {
            return Err(bad_format());
        }
        self.derive(name, self.group().clone(), Some(known?), None)
    }

    /// Sends a message made by `bytes` from the root to each other member, or the error instead.
    fn send_from_root(&self, root: i32, bytes: impl Fn(u32) -> Result<Vec<u8>>) -> Result<()> {
        let oob = self.oob()?;
        for (rank, process) in (0..self.size()).zip(self.group().members()).filter(|(rank, _)| *rank != root)
        {
            let all = match bytes(*process) {
                Ok(bytes) => [&[0; 4], &bytes[..]].concat(),
                Err(error) => [&error.class.0.to_le_bytes()[..], error.text.as_bytes()].concat(),
            };
            oob.send(rank, &all)?;
        }
        Ok(())
    }

    /// Receives the root's message of [`Comm::send_from_root`].
    fn receive_from_root(&self, root: i32) -> Result<Vec<u8>> {
        let received = self.oob()?.receive(root)?;
        let (class, rest) = received.split_first_chunk().ok_or_else(bad_format)?;
        match i32::from_le_bytes(*class) {
            0 => Ok(rest.to_vec()),
            class => Err(Error::new(Class(class), String::from_utf8_lossy(rest))),
        }
    }

    /// Distributes the root's agreement with the other side, or its error, to all members.
    fn distribute_agreement(&self, root: i32, agreement: Result<Agreement>) -> Result<Agreement> {
        let core = self.core();
        if self.rank() == root {
            self.send_from_root(root, |process| {
                let (name, members) = agreement.as_ref().map_err(Clone::clone)?;
                Ok([&name.number().to_le_bytes()[..], &members.bytes_for(core, process)?].concat())
            })?;
            return agreement;
        }
        let received = self.receive_from_root(root)?;
        let (name, members) = received.split_at_checked(8).ok_or_else(bad_format)?;
        let from = self.group().process(root).ok_or_else(bad_format)?;
        Ok((parse_context(name)?, GroupDescription::parse_from(core, from, members)?))
    }

    /// The root's part: agrees on the context of both sides, and gets the other side's members.
    fn agree_over_bridge(&self, bridge: &mut dyn Bridge) -> Result<Agreement> {
        let name = self.core().new_intercomm_context();
        let mine = GroupDescription::across_jobs(self.core(), self.group())?;
        let sizes = Sizes::of_job(self.core().bootstrap().size()).to_bytes();
        let (number, key) = (name.number().to_le_bytes(), bridge.shared_key());
        bridge.send(&[&sizes[..], &number[..], &mine.bytes(self.core(), key.as_ref())].concat())?;
        let received = bridge.receive(MEMBERS_MAX)?;
        let (their_sizes, received) = received.split_at_checked(sizes.len()).ok_or_else(bad_format)?;
        if their_sizes != sizes {
            let text = "the connections of the two jobs have different buffer sizes: one job has at most 64 processes, or at most 1024, and the other has more";
            return Err(Error::new(Class::UNSUPPORTED_OPERATION, text));
        }
        let (their_name, theirs) = received.split_at_checked(8).ok_or_else(bad_format)?;
        let theirs = GroupDescription::parse(theirs, key.as_ref())?;
        let other = theirs.first_member().ok_or_else(bad_format)?;
        let name = if mine.first_member() < Some(other) { name } else { parse_context(their_name)? };
        Ok((name, theirs))
    }
}
