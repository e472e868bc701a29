//! Connects communicators of two jobs to one intercommunicator (`MPI_Comm_accept`, `MPI_Comm_connect`, `MPI_Comm_join`,
//! `MPI_Comm_spawn`; MPI 5.0, sections 11.8 to 11.10). One process of each job has a [`Bridge`] to the other, over which the two
//! exchange the members and addresses of both sides. After that, communication works as within a job.

use auth::Key;

use crate::comm::communicator::Comm;
use crate::comm::context::Context;
use crate::comm::create::name_of;
use crate::comm::members::Told;
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
type Met = (Context, Told);

/// Maximum size of a message over a bridge: 2^20 members with addresses of up to 1 KiB each.
const MEMBERS_MAX: usize = 1 << 30;

/// The message that each root sends once its members know those of the other side.
const READY: &[u8] = b"ready";

fn nonsense() -> Error {
    Error::new(Class::PORT, "the other side says what no process of this version says")
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
            return Err(Error::new(Class::COMM, "an intercommunicator is made of intracommunicators"));
        }
        if self.group().process(root).is_none() {
            return Err(Error::new(Class::RANK, format_args!("there is no rank {root} to be the root")));
        }
        let met = match &mut bridge {
            Ok(Some(bridge)) => self.meet(*bridge),
            Ok(None) => Err(Error::new(Class::PORT, "the root has no way to the other side")),
            Err(error) => Err(error.clone()),
        };
        let (name, members) = self.met_by_root(root, met)?;
        let known = members.group(self.core()).and_then(|remote| {
            if self.group().intersection(&remote).size() > 0 {
                return Err(Error::new(Class::GROUP, "the two sides have a common member"));
            }
            Ok(remote)
        });
        // The other side must not send to a process before that process knows the sender.
        self.talk()?.told_by_all(self.rank(), &[0])?;
        let ready = match (&known, &mut bridge) {
            (Err(error), _) => Err(error.clone()),
            (Ok(_), Ok(Some(bridge))) => bridge.send(READY).and_then(|()| bridge.receive(READY.len())),
            (Ok(_), _) => Ok(Vec::new()),
        };
        let ready = if self.rank() == root {
            self.tell_others(root, |_| ready.clone())?;
            ready?
        } else {
            self.told_by_root(root)?
        };
        if ready != READY {
            return Err(nonsense());
        }
        self.child(name, self.group().clone(), Some(known?), None)
    }

    /// Sends a message made by `bytes` from the root to each other member, or the error instead.
    fn tell_others(&self, root: i32, bytes: impl Fn(u32) -> Result<Vec<u8>>) -> Result<()> {
        let talk = self.talk()?;
        for (rank, process) in (0..self.size()).zip(self.group().members()).filter(|(rank, _)| *rank != root)
        {
            let all = match bytes(*process) {
                Ok(bytes) => [&[0; 4], &bytes[..]].concat(),
                Err(error) => [&error.class.0.to_le_bytes()[..], error.text.as_bytes()].concat(),
            };
            talk.send(rank, &all)?;
        }
        Ok(())
    }

    /// Receives the root's message of [`Comm::tell_others`].
    fn told_by_root(&self, root: i32) -> Result<Vec<u8>> {
        let said = self.talk()?.receive(root)?;
        let (class, rest) = said.split_first_chunk().ok_or_else(nonsense)?;
        match i32::from_le_bytes(*class) {
            0 => Ok(rest.to_vec()),
            class => Err(Error::new(Class(class), String::from_utf8_lossy(rest))),
        }
    }

    /// Distributes the root's agreement with the other side, or its error, to all members.
    fn met_by_root(&self, root: i32, met: Result<Met>) -> Result<Met> {
        let core = self.core();
        if self.rank() == root {
            self.tell_others(root, |process| {
                let (name, members) = met.as_ref().map_err(Clone::clone)?;
                Ok([&name.number().to_le_bytes()[..], &members.bytes_for(core, process)?].concat())
            })?;
            return met;
        }
        let said = self.told_by_root(root)?;
        let (name, members) = said.split_at_checked(8).ok_or_else(nonsense)?;
        let from = self.group().process(root).ok_or_else(nonsense)?;
        Ok((name_of(name)?, Told::parse_from(core, from, members)?))
    }

    /// The root's part: agrees on the context of both sides, and gets the other side's members.
    fn meet(&self, bridge: &mut dyn Bridge) -> Result<Met> {
        let name = self.core().name_apart();
        let mine = Told::apart(self.core(), self.group())?;
        let sizes = Sizes::of_job(self.core().bootstrap().size()).bytes_told();
        let (number, key) = (name.number().to_le_bytes(), bridge.shared_key());
        bridge.send(&[&sizes[..], &number[..], &mine.bytes(self.core(), key.as_ref())].concat())?;
        let said = bridge.receive(MEMBERS_MAX)?;
        let (their_sizes, said) = said.split_at_checked(sizes.len()).ok_or_else(nonsense)?;
        if their_sizes != sizes {
            let text = "the two jobs give their connections unlike memory: one has up to 64 processes, or up to 1024, and the other more";
            return Err(Error::new(Class::UNSUPPORTED_OPERATION, text));
        }
        let (their_name, theirs) = said.split_at_checked(8).ok_or_else(nonsense)?;
        let theirs = Told::parse(theirs, key.as_ref())?;
        let other = theirs.first().ok_or_else(nonsense)?;
        let name = if mine.first() < Some(other) { name } else { name_of(their_name)? };
        Ok((name, theirs))
    }
}
