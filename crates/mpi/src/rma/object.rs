//! [`Window`]: one member's view of a window, with its name, hints, attributes and error handler (MPI 5.0, section 12.2).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use host::{Lock, SlotKey, Step};
use verbs::Mr;

use crate::attribute::{Attributes, Keyval};
use crate::comm::communicator::{Comm, NAME_MAX};
use crate::comm::group::Group;
use crate::core::Core;
use crate::errhandler::Errhandler;
use crate::error::{Class, Error, Result};
use crate::info::Info;
use crate::req::request::Request;
use crate::rma::control::Control;
use crate::rma::control_messages::StopOnDrop;
use crate::rma::control_words::OwnerWord;
use crate::rma::directory::AttachedRegions;
use crate::rma::epoch::{EpochNumber, Epochs};
use crate::rma::message_rma::MessageRma;
use crate::rma::target::Target;
use crate::status::PROC_NULL;

/// How a window's memory was provided (`MPI_WIN_CREATE_FLAVOR`; the numbers are those of the standard ABI).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Flavor {
    /// By the program.
    Create = 311,
    /// Allocated with the window.
    Allocate = 312,
    /// Attached and detached later.
    Dynamic = 313,
    /// Allocated with the window, and loaded and stored by all members.
    Shared = 314,
}

/// A window (`MPI_Win`); cheap to clone, and clones are the same object. A window dropped without [`Window::free`] stays as long as
/// its last clone; after that, peers' operations fail.
#[derive(Clone)]
pub struct Window(pub(super) Arc<Inner>);

pub(super) struct Inner {
    /// The window's own communicator.
    pub(super) comm: Comm,
    pub(super) id: u64,
    pub(super) flavor: Flavor,
    /// This process's part: its address, its length in bytes, and the bytes of a unit of displacement.
    pub(super) base: usize,
    pub(super) size: u64,
    pub(super) unit: i64,
    /// The members, by rank.
    pub(super) targets: Vec<Target>,
    pub(super) control: Arc<Control>,
    /// The path for operations that are sent as messages, if any are.
    pub(super) message_rma: Option<MessageRma>,
    /// Holds the memory, if the window owns it, and its registrations; empty after the window was freed.
    pub(super) resources: Lock<Option<WindowResources>>,
    pub(super) is_freed: AtomicBool,
    pub(super) attached: Lock<AttachedRegions>,
    /// Requests that complete when the processes of the last post have completed their epochs.
    pub(super) posted: Lock<Vec<Request>>,
    pub(super) state: Lock<WindowState>,
    pub(super) epoch: EpochNumber,
    /// Whether an operation may be pending. Exact for a caller that has started them all itself.
    pub(super) is_pending: AtomicBool,
    /// Flushes that had nothing to wait for.
    pub(super) flushes: AtomicU32,
    /// Whether all stores to members' memory are ordered before the next loads, so that a flush needs no fence. Valid only for
    /// callers whose calls are sequential.
    pub(super) is_ordered: AtomicBool,
    /// The value that this process writes into words that it owns exclusively.
    pub(super) owner_word: OwnerWord,
    pub(super) properties: Lock<Properties>,
}

/// Keeps a member's memory registered, and serves others' requests.
pub(super) struct WindowResources {
    pub(super) _regions: Vec<Mr>,
    pub(super) _memory: Option<verbs::Buf>,
    pub(super) _servers: Vec<StopOnDrop>,
}

/// The state of a window's operations at this process.
#[derive(Default)]
pub(super) struct WindowState {
    pub(super) epochs: Epochs,
    /// Operations on others' memory that may not have completed.
    pub(super) pending: Vec<PendingOp>,
}

/// A started operation, by its target's rank.
pub(super) struct PendingOp {
    pub(super) rank: i32,
    pub(super) key: SlotKey,
    /// The program holds a request for the operation, which reports its status.
    pub(super) is_requested: bool,
}

#[derive(Default)]
pub(super) struct Properties {
    pub(super) name: String,
    pub(super) info: Info,
    pub(super) errhandler: Errhandler,
    pub(super) attributes: Attributes<Window>,
}

impl std::fmt::Debug for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Window({:?}, rank {} of {})", self.0.flavor, self.0.comm.rank(), self.0.comm.size())
    }
}

impl Window {
    pub(super) fn core(&self) -> &Core {
        self.0.comm.core()
    }

    /// Accesses the operations' state under its lock. `act` must not wait.
    pub(super) fn with_state<T>(&self, act: impl FnOnce(&mut WindowState) -> T) -> T {
        act(&mut self.core().hold(&self.0.state))
    }

    /// Changes the epochs, which invalidates all earlier grants.
    pub(super) fn change_epochs<T>(&self, act: impl FnOnce(&mut Epochs) -> T) -> T {
        self.with_state(|state| {
            let done = act(&mut state.epochs);
            self.0.epoch.advance(&state.epochs);
            done
        })
    }

    fn with_properties<T>(&self, act: impl FnOnce(&mut Properties) -> T) -> T {
        act(&mut self.0.properties.lock(self.core().host()))
    }

    /// Starts a call: charges it, and checks that the window was not freed.
    pub(super) fn begin_call(&self) -> Result<()> {
        self.core().host().charge_step(Step::Call, 1);
        if self.0.is_freed.load(Ordering::Relaxed) {
            return Err(Error::new(Class::WIN, "the window was freed"));
        }
        Ok(())
    }

    /// The member with a rank.
    pub(super) fn target(&self, rank: i32) -> Result<&Target> {
        let found = usize::try_from(rank).ok().and_then(|rank| self.0.targets.get(rank));
        let size = self.0.targets.len();
        found.ok_or_else(|| {
            Error::new(Class::RANK, format_args!("there is no rank {rank} in a window of {size}"))
        })
    }

    /// A number that no other object of this process ever has.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    /// How its memory was provided (MPI 5.0, section 12.2.6).
    pub fn flavor(&self) -> Flavor {
        self.0.flavor
    }

    /// The address of this process's part; 0 for a dynamic window, and for an empty part.
    pub fn base(&self) -> usize {
        self.0.base
    }

    /// Bytes of this process's part.
    pub fn size(&self) -> u64 {
        self.0.size
    }

    /// Bytes of a unit of displacement in this process's part.
    pub fn unit(&self) -> i64 {
        self.0.unit
    }

    /// The members, by rank (MPI 5.0, section 12.2.6).
    pub fn group(&self) -> &Group {
        self.0.comm.group()
    }

    /// The name; empty if it has none (MPI 5.0, section 7.8).
    pub fn name(&self) -> String {
        self.with_properties(|properties| properties.name.clone())
    }

    /// Sets the name (MPI 5.0, section 7.8).
    ///
    /// # Errors
    /// [`Class::ARG`] for more than [`NAME_MAX`] bytes.
    pub fn set_name(&self, name: &str) -> Result<()> {
        if name.len() > NAME_MAX {
            let text = format!("the name has {} bytes, but at most {NAME_MAX} are possible", name.len());
            return Err(Error::new(Class::ARG, text));
        }
        self.with_properties(|properties| properties.name = name.to_owned());
        Ok(())
    }

    /// The hints from its creation or set since (MPI 5.0, section 12.2.7).
    pub fn info(&self) -> Info {
        self.with_properties(|properties| properties.info.clone())
    }

    /// Sets its hints (MPI 5.0, section 12.2.7).
    pub fn set_info(&self, info: Info) {
        self.with_properties(|properties| properties.info = info);
    }

    /// The error handler of its operations (MPI 5.0, section 9.3.2).
    pub fn errhandler(&self) -> Errhandler {
        self.with_properties(|properties| properties.errhandler.clone())
    }

    /// Sets the error handler of its operations (MPI 5.0, section 9.3.2).
    pub fn set_errhandler(&self, errhandler: Errhandler) {
        self.with_properties(|properties| properties.errhandler = errhandler);
    }

    /// The value of an attribute, if it is set (MPI 5.0, section 7.7.3).
    pub fn attribute(&self, key: &Keyval<Self>) -> Option<usize> {
        self.with_properties(|properties| properties.attributes.get(key))
    }

    /// Sets an attribute. The delete function is called with an old value (MPI 5.0, section 7.7.3).
    ///
    /// # Errors
    /// The delete function's; the old value is then kept.
    pub fn set_attribute(&self, key: &Keyval<Self>, value: usize) -> Result<()> {
        self.delete_attribute(key)?;
        self.with_properties(|properties| properties.attributes.set(key.clone(), value));
        Ok(())
    }

    /// Deletes an attribute, if it is set, after calling its delete function (MPI 5.0, section 7.7.3).
    ///
    /// # Errors
    /// The delete function's; the value is then kept.
    pub fn delete_attribute(&self, key: &Keyval<Self>) -> Result<()> {
        if let Some(value) = self.attribute(key) {
            key.delete(self, value)?;
            self.with_properties(|properties| properties.attributes.take(key));
        }
        Ok(())
    }

    /// Calls the delete functions of all attributes, in reverse order of setting.
    pub(super) fn delete_attributes(&self) -> Result<()> {
        while let Some((key, _)) = self.with_properties(|properties| properties.attributes.all().pop()) {
            self.delete_attribute(&key)?;
        }
        Ok(())
    }
}

/// A member's part of a window, as mapped by this process (`MPI_Win_shared_query`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedPart {
    /// Its address.
    pub address: usize,
    /// Its size in bytes.
    pub size: u64,
    /// Bytes of a unit of displacement.
    pub unit: i64,
}

impl Window {
    /// A rank's part, for load and store; for [`PROC_NULL`], the first part that is not empty. A part that this process cannot map
    /// has address 0 and size 0 (MPI 5.0, section 12.2.3).
    ///
    /// # Errors
    /// [`Class::RANK`]; [`Class::RMA_FLAVOR`] for a dynamic window.
    pub fn shared(&self, rank: i32) -> Result<SharedPart> {
        self.begin_call()?;
        if self.0.flavor == Flavor::Dynamic {
            return Err(Error::new(Class::RMA_FLAVOR, "a dynamic window has no part at a member"));
        }
        let first = || self.0.targets.iter().find(|target| target.desc.size > 0).or(self.0.targets.first());
        let nobody = || Error::new(Class::RANK, "the window has no members");
        let target = if rank == PROC_NULL { first().ok_or_else(nobody)? } else { self.target(rank)? };
        let unit = target.desc.unit as i64;
        Ok(match target.mapped_at() {
            Some(address) if target.desc.size > 0 => SharedPart { address, size: target.desc.size, unit },
            _ => SharedPart { address: 0, size: 0, unit },
        })
    }
}
