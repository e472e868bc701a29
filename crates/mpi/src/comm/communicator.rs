//! [`Comm`]: communicators, with their members, and their names, hints, error handlers and attributes (MPI 5.0, chapter 7).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use host::{Lock, LockGuard};

use crate::attribute::{Attributes, Keyval};
use crate::coll::shm::CommShmColl;
use crate::comm::context::{Context, Plane};
use crate::comm::group::{Comparison, Group};
use crate::comm::oob::OobChannel;
use crate::core::Core;
use crate::errhandler::Errhandler;
use crate::error::{Class, Error, Result};
use crate::info::Info;
use crate::topo::topology::Topology;

/// A communicator (`MPI_Comm`); cheap to clone, and clones are the same object. Dropping the last clone without [`Comm::free`] has
/// no effect on other processes.
#[derive(Clone)]
pub struct Comm(Arc<Inner>);

struct Inner {
    core: Core,
    /// Empty while a communicator that is being duplicated has no context yet.
    context: OnceLock<Context>,
    /// Identifies this communicator in this process; never reused.
    id: u64,
    group: Group,
    remote: Option<Group>,
    topology: Option<Topology>,
    rank: i32,
    /// The host of each member, once known ([`Comm::hosts`]).
    hosts: OnceLock<Arc<[usize]>>,
    /// How many blocking and how many nonblocking collective operations have been started.
    collectives: [AtomicU32; 2],
    /// The next tag for parts of partitioned messages.
    parts: AtomicU32,
    properties: Lock<Properties>,
    /// The state of collective operations in shared memory.
    shm_coll: Lock<CommShmColl>,
}

#[derive(Default)]
struct Properties {
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
fn not_created() -> Error {
    Error::new(
        Class::COMM,
        "the communicator is not created yet; wait for the request of MPI_Comm_idup first",
    )
}

/// Bytes of a name, without the zero that C adds (`MPI_MAX_OBJECT_NAME`).
pub const NAME_MAX: usize = 127;

impl Comm {
    /// Creates a communicator with these members, which include this process.
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
            hosts: OnceLock::new(),
            collectives: Default::default(),
            parts: AtomicU32::new(0),
            properties: Lock::default(),
            shm_coll: Lock::default(),
        })))
    }

    /// Creates a copy in another context; `None` if the context is not known yet.
    pub(crate) fn copy(&self, context: Option<Context>) -> Result<Self> {
        let (group, remote) = (self.group().clone(), self.remote_group().cloned());
        Self::new(self.core(), context, group, remote, self.0.topology.clone())
    }

    #[inline]
    pub(crate) fn core(&self) -> &Core {
        &self.0.core
    }

    /// The context of its messages of one kind.
    ///
    /// # Errors
    /// [`Class::COMM`] while it is being created.
    #[inline]
    pub(crate) fn context(&self, plane: Plane) -> Result<u64> {
        self.0.context.get().map(|context| context.plane(plane)).ok_or_else(not_created)
    }

    /// Sets its context.
    pub(crate) fn set_context(&self, context: Context) {
        // A second call would be a bug of this crate; the first context stays.
        let _ = self.0.context.set(context);
    }

    /// The tag of the next blocking collective operation: all members start these in the same order.
    pub(crate) fn next_collective_tag(&self) -> i32 {
        self.next_tag(0)
    }

    /// The tag of the next nonblocking collective operation. These have an order of their own, since MPI never matches them with
    /// blocking ones.
    pub(crate) fn next_nonblocking_tag(&self) -> i32 {
        self.next_tag(1)
    }

    /// The state of collective operations in shared memory, locked.
    #[inline]
    pub(crate) fn shm_coll(&self) -> LockGuard<'_, CommShmColl> {
        self.core().hold(&self.0.shm_coll)
    }

    fn next_tag(&self, kind: u32) -> i32 {
        let number = self.0.collectives[kind as usize].fetch_add(1, Ordering::Relaxed);
        ((number << 1 | kind) & i32::MAX as u32) as i32
    }

    /// Reserves this many tags for parts of a message, and returns the first.
    pub(crate) fn reserve_part_tags(&self, parts: u32) -> u32 {
        self.0.parts.fetch_add(parts, Ordering::Relaxed)
    }

    /// A number that identifies it in this process, and is never reused.
    #[inline]
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// What [`Comm::hosts`] has found.
    pub(crate) fn known_hosts(&self) -> &OnceLock<Arc<[usize]>> {
        &self.0.hosts
    }

    /// The rank of this process (MPI 5.0, section 7.4.1).
    pub fn rank(&self) -> i32 {
        self.0.rank
    }

    /// The number of members; for an intercommunicator, of the local group (MPI 5.0, section 7.4.1).
    pub fn size(&self) -> i32 {
        self.0.group.size()
    }

    /// Its members; for an intercommunicator, the local group (MPI 5.0, section 7.3.2).
    pub fn group(&self) -> &Group {
        &self.0.group
    }

    /// The remote group of an intercommunicator (MPI 5.0, section 7.6.1).
    pub fn remote_group(&self) -> Option<&Group> {
        self.0.remote.as_ref()
    }

    /// Its topology, if it has one (MPI 5.0, section 8.5.5).
    pub fn topology(&self) -> Option<&Topology> {
        self.0.topology.as_ref()
    }

    /// Whether it is an intercommunicator (MPI 5.0, section 7.6.1).
    pub fn is_inter(&self) -> bool {
        self.0.remote.is_some()
    }

    /// The group that ranks of sources and destinations refer to: the remote group, if there is one.
    #[inline]
    pub fn peers(&self) -> &Group {
        self.0.remote.as_ref().unwrap_or(&self.0.group)
    }

    /// Compares two communicators (`MPI_Comm_compare`; MPI 5.0, section 7.4.1).
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

    /// Its name; empty if it has none (MPI 5.0, section 7.8).
    pub fn name(&self) -> String {
        self.0.properties.lock(self.core().host()).name.clone()
    }

    /// Sets its name, for people (MPI 5.0, section 7.8).
    ///
    /// # Errors
    /// [`Class::ARG`] for more than [`NAME_MAX`] bytes.
    pub fn set_name(&self, name: &str) -> Result<()> {
        if name.len() > NAME_MAX {
            let text = format!("the name has {} bytes, but at most {NAME_MAX} are possible", name.len());
            return Err(Error::new(Class::ARG, text));
        }
        self.0.properties.lock(self.core().host()).name = name.to_owned();
        Ok(())
    }

    /// The hints that it was created with, or that were set later (MPI 5.0, section 7.4.4).
    pub fn info(&self) -> Info {
        self.0.properties.lock(self.core().host()).info.clone()
    }

    /// Sets its hints (MPI 5.0, section 7.4.4).
    pub fn set_info(&self, info: Info) {
        self.0.properties.lock(self.core().host()).info = info;
    }

    /// Its error handler (MPI 5.0, section 9.3.1).
    pub fn errhandler(&self) -> Errhandler {
        self.0.properties.lock(self.core().host()).errhandler.clone()
    }

    /// Sets its error handler (MPI 5.0, section 9.3.1).
    pub fn set_errhandler(&self, errhandler: Errhandler) {
        self.0.properties.lock(self.core().host()).errhandler = errhandler;
    }

    /// The value of an attribute, if it is set (MPI 5.0, section 7.7.2).
    pub fn attribute(&self, key: &Keyval<Self>) -> Option<usize> {
        self.0.properties.lock(self.core().host()).attributes.get(key)
    }

    /// Sets an attribute. For an old value the delete function is called (MPI 5.0, section 7.7.2).
    ///
    /// # Errors
    /// The delete function's; the old value then remains.
    pub fn set_attribute(&self, key: &Keyval<Self>, value: usize) -> Result<()> {
        if self.attribute(key).is_some() {
            self.delete_attribute(key)?;
        }
        self.0.properties.lock(self.core().host()).attributes.set(key.clone(), value);
        Ok(())
    }

    /// Deletes an attribute, if it is set, after calling its delete function (MPI 5.0, section 7.7.2).
    ///
    /// # Errors
    /// The delete function's; the value then remains.
    pub fn delete_attribute(&self, key: &Keyval<Self>) -> Result<()> {
        if let Some(value) = self.attribute(key) {
            key.delete(self, value)?;
            self.0.properties.lock(self.core().host()).attributes.take(key);
        }
        Ok(())
    }

    /// Frees it: the delete functions of its attributes are called, in reverse order of setting. Operations in progress complete
    /// (MPI 5.0, section 7.4.3).
    ///
    /// # Errors
    /// A delete function's; this attribute and those set before it remain.
    pub fn free(&self) -> Result<()> {
        loop {
            let last = self.0.properties.lock(self.core().host()).attributes.all().pop();
            let Some((key, _)) = last else { break };
            self.delete_attribute(&key)?;
        }
        if let Ok(context) = self.context(Plane::PointToPoint) {
            self.core().with(|engine| engine.drop_context(context));
        }
        Ok(())
    }

    /// Waits until all its operations have completed, and frees it (`MPI_Comm_disconnect`; MPI 5.0, section 11.10.4).
    ///
    /// # Errors
    /// As [`Comm::free`].
    pub fn disconnect(&self) -> Result<()> {
        let id = self.id();
        self.core().wait("MPI_Comm_disconnect", |engine| (!engine.has_active_operation(id)).then_some(()))?;
        self.free()
    }

    /// Copies the error handler, the hints and the attributes of this communicator to a duplicate.
    pub(crate) fn copy_properties_to(&self, to: &Self, info: Option<Info>) -> Result<()> {
        let (errhandler, own, attributes) = {
            let properties = self.0.properties.lock(self.core().host());
            (properties.errhandler.clone(), properties.info.clone(), properties.attributes.all())
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

    /// An out-of-band channel between the members of the local group.
    pub(crate) fn oob(&self) -> Result<OobChannel<'_>> {
        let plane = if self.is_inter() { Plane::LocalGroup } else { Plane::Collective };
        Ok(OobChannel::new(self.core(), self.context(plane)?, self.next_collective_tag(), self.group()))
    }
}
