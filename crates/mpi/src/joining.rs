//! How communicators of two jobs become one intercommunicator (`MPI_Comm_accept`, `MPI_Comm_connect`, `MPI_Comm_join`,
//! `MPI_Comm_spawn`). One process of each has a [`Bridge`] to the other; over it the two tell each other who is there, and where. From
//! then on all is as within a job.

use crate::comm::Comm;
use crate::error::{Class, Error, Result};
use crate::making::name_of;
use crate::members::{heard, told_apart};
use crate::nic::Sizes;
use crate::strangers::Identity;

/// A way to one process of another job, before the two are connected.
pub trait Bridge {
    /// Says something to it.
    ///
    /// # Errors
    /// [`Class::PORT`] when it is gone.
    fn send(&mut self, bytes: &[u8]) -> Result<()>;
    /// Hears what it says next.
    ///
    /// # Errors
    /// [`Class::PORT`] when it is gone, or says nothing for too long.
    fn receive(&mut self) -> Result<Vec<u8>>;
}

/// What the two say when their members know each other.
const READY: &[u8] = b"ready";

/// The first of members that are told of.
fn first_of(told: &[u8]) -> Option<Identity> {
    Identity::parse(told.get(1..)?)
}

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
        let said = match &mut bridge {
            Ok(Some(bridge)) => self.meet(*bridge),
            Ok(None) => Err(Error::new(Class::PORT, "the root has no way to the other side")),
            Err(error) => Err(error.clone()),
        };
        let said = self.told_by_root(root, said)?;
        let (name, members) = said.split_at_checked(8).ok_or_else(nonsense)?;
        let known = heard(self.core(), members).and_then(|remote| {
            if self.group().intersection(&remote).size() > 0 {
                return Err(Error::new(Class::GROUP, "the two sides have a common member"));
            }
            Ok(remote)
        });
        // Nobody of the other side speaks to one who does not know it yet.
        self.talk()?.told_by_all(self.rank(), &[0])?;
        let ready = match (&known, &mut bridge) {
            (Err(error), _) => Err(error.clone()),
            (Ok(_), Ok(Some(bridge))) => bridge.send(READY).and_then(|()| bridge.receive()),
            (Ok(_), _) => Ok(Vec::new()),
        };
        if self.told_by_root(root, ready)? != READY {
            return Err(nonsense());
        }
        self.child(name_of(name)?, self.group().clone(), Some(known?), None)
    }

    /// What the root has, to all; its error is an error of all.
    fn told_by_root(&self, root: i32, said: Result<Vec<u8>>) -> Result<Vec<u8>> {
        let talk = self.talk()?;
        if self.rank() == root {
            let bytes = match &said {
                Ok(bytes) => [&[0; 4], &bytes[..]].concat(),
                Err(error) => [&error.class.0.to_le_bytes()[..], error.text.as_bytes()].concat(),
            };
            for rank in (0..self.size()).filter(|rank| *rank != root) {
                talk.send(rank, &bytes)?;
            }
            return said;
        }
        let bytes = talk.receive(root)?;
        let (class, rest) = bytes.split_first_chunk().ok_or_else(nonsense)?;
        match i32::from_le_bytes(*class) {
            0 => Ok(rest.to_vec()),
            class => Err(Error::new(Class(class), String::from_utf8_lossy(rest))),
        }
    }

    /// The root's part: the name that both sides take, and the other side's members.
    fn meet(&self, bridge: &mut dyn Bridge) -> Result<Vec<u8>> {
        let name = self.core().name_apart().number().to_le_bytes();
        let mine = told_apart(self.core(), self.group())?;
        let sizes = Sizes::of_job(self.core().bootstrap().size()).bytes_told();
        bridge.send(&[&sizes[..], &name[..], &mine].concat())?;
        let said = bridge.receive()?;
        let (their_sizes, said) = said.split_at_checked(sizes.len()).ok_or_else(nonsense)?;
        if their_sizes != sizes {
            let text = "the two jobs give their connections unlike memory: one has up to 64 processes, or up to 1024, and the other more";
            return Err(Error::new(Class::UNSUPPORTED_OPERATION, text));
        }
        let (their_name, theirs) = said.split_at_checked(8).ok_or_else(nonsense)?;
        let (first, other) = (first_of(&mine), first_of(theirs).ok_or_else(nonsense)?);
        let name = if first < Some(other) { &name[..] } else { their_name };
        Ok([name, theirs].concat())
    }
}
