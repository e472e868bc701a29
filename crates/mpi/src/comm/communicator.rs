//! [`Comm`]: communicators: who their members are, and what hangs on them.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use host::{Held, Lock};

use crate::attribute::{Attributes, Keyval};
use crate::coll::shm::CommExchange;
use crate::comm::context::{Context, Plane};
use crate::comm::group::{Comparison, Group};
use crate::comm::oob::Talk;
use crate::core::Core;
use crate::errhandler::Errhandler;
use crate::error::{Class, Error, Result};
use crate::info::Info;
use crate::topo::topology::Topology;

/// A communicator (`MPI_Comm`); cheap to clone, and clones are the same object. It has no effect on others when the last clone is
/// dropped without [`Comm::free`].
#[derive(Clone)]
pub struct Comm(Arc<Inner>);

struct Inner {
    core: Core,
    /// Empty until a communicator that is being duplicated has its name.
    context: OnceLock<Context>,
    /// This process among others of the object; never used again.
    id: u64,
    group: Group,
    remote: Option<Group>,
    topology: Option<Topology>,
    rank: i32,
    /// Collective operations begun so far that the program waits for, and others.
    collectives: [AtomicU32; 2],
    /// Tags of parts of messages given so far.
    parts: AtomicU32,
    belongings: Lock<Belongings>,
    /// For collective operations without messages.
    exchange: Lock<CommExchange>,
}

#[derive(Default)]
struct Belongings {
    name: String,
    info: Info,
    errhandler: Errhandler,
    attributes: Attributes<Comm>,
}

impl std::fmt::Debug for Comm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Comm({}, rank {} of {})", self.name(), self.rank(), self.size())
    }
}

#[cold]
fn early() -> Error {
    Error::new(Class::COMM, "the communicator is still being made; wait for MPI_Comm_idup first")
}

/// Bytes of a name, without the zero that C adds (`MPI_MAX_OBJECT_NAME`).
pub const NAME_MAX: usize = 127;

impl Comm {
    /// A communicator of these members, of which this process is one.
    pub(crate) fn new(
        core: &Core,
        context: Option<Context>,
        group: Group,
        remote: Option<Group>,
        topology: Option<Topology>,
    ) -> Result<Self> {
        let none = || Error::new(Class::GROUP, "this process is not a member of its communicator");
        let rank = group.rank_of(core.bootstrap().rank()).ok_or_else(none)?;
        Ok(Self(Arc::new(Inner {
            core: core.clone(),
            context: context.map_or_else(OnceLock::new, OnceLock::from),
            id: core.next_id(),
            group,
            remote,
            topology,
            rank,
            collectives: Default::default(),
            parts: AtomicU32::new(0),
            belongings: Lock::default(),
            exchange: Lock::default(),
        })))
    }

    /// A communicator as this one, in another context; in none yet with `None`.
    pub(crate) fn copy(&self, context: Option<Context>) -> Result<Self> {
        let (group, remote) = (self.group().clone(), self.remote_group().cloned());
        Self::new(self.core(), context, group, remote, self.0.topology.clone())
    }

    #[inline]
    pub(crate) fn core(&self) -> &Core {
        &self.0.core
    }

    /// The context of its messages of a kind.
    ///
    /// # Errors
    /// [`Class::COMM`] while it is being made.
    #[inline]
    pub(crate) fn context(&self, plane: Plane) -> Result<u64> {
        self.0.context.get().map(|context| context.plane(plane)).ok_or_else(early)
    }

    /// Gives it its name.
    pub(crate) fn set_context(&self, context: Context) {
        // A second name would be a mistake of this crate's; the first one counts.
        let _ = self.0.context.set(context);
    }

    /// A tag for a collective operation that the program waits for: the members begin them in one order.
    pub(crate) fn next_collective(&self) -> i32 {
        self.next_of(0)
    }

    /// A tag for a collective operation that goes on by itself. These have an order of their own, as MPI never matches them with
    /// those that the program waits for.
    pub(crate) fn next_background(&self) -> i32 {
        self.next_of(1)
    }

    /// The exchange, by which collective operations need no messages.
    #[inline]
    pub(crate) fn own_exchange(&self) -> Held<'_, CommExchange> {
        self.core().hold(&self.0.exchange)
    }

    fn next_of(&self, kind: u32) -> i32 {
        let number = self.0.collectives[kind as usize].fetch_add(1, Ordering::Relaxed);
        ((number << 1 | kind) & i32::MAX as u32) as i32
    }

    /// The first of so many tags for parts of a message.
    pub(crate) fn tags_of_parts(&self, parts: u32) -> u32 {
        self.0.parts.fetch_add(parts, Ordering::Relaxed)
    }

    /// A number that no other communicator of this process ever has.
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// This process's rank in it.
    pub fn rank(&self) -> i32 {
        self.0.rank
    }

    /// How many members it has; of an intercommunicator, those of this process's side.
    pub fn size(&self) -> i32 {
        self.0.group.size()
    }

    /// Its members; of an intercommunicator, those of this process's side.
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// The members of the other side of an intercommunicator.
    pub fn remote_group(&self) -> Option<&Group> {
        self.0.remote.as_ref()
    }

    /// Who is whose neighbour, if somebody is.
    pub fn topology(&self) -> Option<&Topology> {
        self.0.topology.as_ref()
    }

    /// Whether it has two sides.
    pub fn is_inter(&self) -> bool {
        self.0.remote.is_some()
    }

    /// Those whom ranks of sources and destinations are of: the other side, if there are two.
    #[inline]
    pub fn peers(&self) -> &Group {
        self.0.remote.as_ref().unwrap_or(&self.0.group)
    }

    /// Whether both are the same, or how far they are alike.
    pub fn compare(&self, other: &Self) -> Comparison {
        if Arc::ptr_eq(&self.0, &other.0) {
            return Comparison::Identical;
        }
        let remote = match (self.remote_group(), other.remote_group()) {
            (None, None) => Comparison::Identical,
            (Some(mine), Some(theirs)) => mine.compare(theirs),
            _ => Comparison::Unequal,
        };
        match (self.group().compare(other.group()), remote) {
            (Comparison::Unequal, _) | (_, Comparison::Unequal) => Comparison::Unequal,
            (Comparison::Identical, Comparison::Identical) => Comparison::Congruent,
            _ => Comparison::Similar,
        }
    }

    /// Its name; empty if it has none.
    pub fn name(&self) -> String {
        self.0.belongings.lock(self.core().host()).name.clone()
    }

    /// Gives it a name for people.
    ///
    /// # Errors
    /// [`Class::ARG`] for more than [`NAME_MAX`] bytes.
    pub fn set_name(&self, name: &str) -> Result<()> {
        if name.len() > NAME_MAX {
            let text = format!("the name has {} bytes, but at most {NAME_MAX} are possible", name.len());
            return Err(Error::new(Class::ARG, text));
        }
        self.0.belongings.lock(self.core().host()).name = name.to_owned();
        Ok(())
    }

    /// The hints that it was made with, or got since.
    pub fn info(&self) -> Info {
        self.0.belongings.lock(self.core().host()).info.clone()
    }

    /// Sets its hints.
    pub fn set_info(&self, info: Info) {
        self.0.belongings.lock(self.core().host()).info = info;
    }

    /// What is to happen with errors of its operations.
    pub fn errhandler(&self) -> Errhandler {
        self.0.belongings.lock(self.core().host()).errhandler.clone()
    }

    /// Says what is to happen with errors of its operations.
    pub fn set_errhandler(&self, errhandler: Errhandler) {
        self.0.belongings.lock(self.core().host()).errhandler = errhandler;
    }

    /// The value of an attribute, if it is set.
    pub fn attribute(&self, key: &Keyval<Self>) -> Option<usize> {
        self.0.belongings.lock(self.core().host()).attributes.get(key)
    }

    /// Sets an attribute. The delete function is called with an old value.
    ///
    /// # Errors
    /// The delete function's; the old value stays then.
    pub fn set_attribute(&self, key: &Keyval<Self>, value: usize) -> Result<()> {
        if self.attribute(key).is_some() {
            self.delete_attribute(key)?;
        }
        self.0.belongings.lock(self.core().host()).attributes.set(key.clone(), value);
        Ok(())
    }

    /// Deletes an attribute, if it is set, after its delete function was called.
    ///
    /// # Errors
    /// The delete function's; the value stays then.
    pub fn delete_attribute(&self, key: &Keyval<Self>) -> Result<()> {
        if let Some(value) = self.attribute(key) {
            key.delete(self, value)?;
            self.0.belongings.lock(self.core().host()).attributes.take(key);
        }
        Ok(())
    }

    /// Gives it up: the delete functions of its attributes are called, the last one that was set first. What is under way completes.
    ///
    /// # Errors
    /// A delete function's; the attributes from there on stay.
    pub fn free(&self) -> Result<()> {
        loop {
            let last = self.0.belongings.lock(self.core().host()).attributes.all().pop();
            let Some((key, _)) = last else { break };
            self.delete_attribute(&key)?;
        }
        if let Ok(context) = self.context(Plane::Point) {
            self.core().with(|engine| engine.forget(context));
        }
        Ok(())
    }

    /// Waits until all that is under way on it is over, and gives it up then (`MPI_Comm_disconnect`).
    ///
    /// # Errors
    /// As [`Comm::free`].
    pub fn disconnect(&self) -> Result<()> {
        let id = self.id();
        self.core().wait("MPI_Comm_disconnect", |engine| (!engine.is_busy(id)).then_some(()))?;
        self.free()
    }

    /// What another communicator takes over from this one, with its attributes if it is a copy.
    pub(crate) fn inherit(&self, to: &Self, info: Option<Info>) -> Result<()> {
        let (errhandler, own, attributes) = {
            let belongings = self.0.belongings.lock(self.core().host());
            (belongings.errhandler.clone(), belongings.info.clone(), belongings.attributes.all())
        };
        to.set_errhandler(errhandler);
        to.set_info(info.unwrap_or(own));
        for (key, value) in attributes {
            if let Some(value) = key.copy(self, value)? {
                to.set_attribute(&key, value)?;
            }
        }
        Ok(())
    }

    /// A conversation of the members of this side.
    pub(crate) fn talk(&self) -> Result<Talk<'_>> {
        let plane = if self.is_inter() { Plane::Side } else { Plane::Collective };
        Ok(Talk::new(self.core(), self.context(plane)?, self.next_collective(), self.group()))
    }
}
