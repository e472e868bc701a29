//! How communicators of two jobs become one intercommunicator (`MPI_Comm_accept`, `MPI_Comm_connect`, `MPI_Comm_join`,
//! `MPI_Comm_spawn`). One process of each has a [`Bridge`] to the other; over it the two tell each other who is there, and where. From
//! then on all is as within a job.

use auth::Key;

use crate::comm::communicator::Comm;
use crate::comm::context::Context;
use crate::comm::create::name_of;
use crate::comm::members::Told;
use crate::error::{Class, Error, Result};
use crate::peers::nic::Sizes;

/// A way to one process of another job, before the two are connected.
pub trait Bridge {
    /// A key that the two ends of the bridge share and nobody else has, if there is one: keys go over the bridge encrypted with it, and else
    /// in the clear.
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

/// The name of the new communicator, and the members of the other side.
type Met = (Context, Told);

/// Bytes of the largest message over a bridge: 2^20 members with their addresses, which take up to 1 KiB each.
const MEMBERS_MAX: usize = 1 << 30;

/// What the two say when their members know each other.
const READY: &[u8] = b"ready";

fn nonsense() -> Error {
    Error::new(Class::PORT, "the other side says what no process of this version says")
}

impl Comm {
    /// An intercommunicator with the communicator whose root is at the other end of the bridge that this one's root has; `bridge` has a
    /// meaning there only, where an error is told to the others. Collective over both.
    ///
    /// # Errors
    /// [`Class::RANK`] for a root that there is not; [`Class::COMM`] for an intercommunicator; [`Class::PORT`] when the two sides cannot
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
        // Nobody of the other side speaks to one who does not know it yet.
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

    /// Sends something of the root to all others, made by `bytes` for each. An error goes to the others in its place.
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

    /// Receives what the root has sent by [`Comm::tell_others`].
    fn told_by_root(&self, root: i32) -> Result<Vec<u8>> {
        let said = self.talk()?.receive(root)?;
        let (class, rest) = said.split_first_chunk().ok_or_else(nonsense)?;
        match i32::from_le_bytes(*class) {
            0 => Ok(rest.to_vec()),
            class => Err(Error::new(Class(class), String::from_utf8_lossy(rest))),
        }
    }

    /// Makes what the root has agreed on with the other side known to all; its error is an error of all.
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

    /// The root's part: the name that both sides take, and the other side's members.
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
