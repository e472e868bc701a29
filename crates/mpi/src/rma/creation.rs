//! Creates and frees windows (MPI 5.0, section 12.2). Each member registers its memory with all of its devices, and sends the
//! others its addresses and keys.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use host::Lock;
use verbs::{Buf, Mr, RemoteAddr};

use crate::comm::communicator::Comm;
use crate::core::Core;
use crate::error::{Class, Error, Result};
use crate::info::Info;
use crate::memory::ADDRESS_MIN;
use crate::peers::nic::Nic;
use crate::rma::card::{CARD, Card, NO_PORT};
use crate::rma::carried::Carrier;
use crate::rma::control::{Control, DIRECTORY};
use crate::rma::directory::Attached;
use crate::rma::epoch::EpochNumber;
use crate::rma::object::{Belongings, Flavor, Inner, Kept, State, Window};
use crate::rma::one_sided::OneSided;
use crate::rma::segment::Segment;
use crate::rma::served::Service;
use crate::rma::target::Target;
use crate::rma::words::{Mark, Words};

/// Memory of a new window: its address, size and owner.
struct Part {
    address: usize,
    size: u64,
    unit: i64,
    memory: Option<Buf>,
    /// The registered region and its port, if the memory belongs to a port.
    mapped: Mapped,
}

/// Registered memory that belongs to a port.
type Mapped = Option<(Mr, usize)>;

impl Part {
    fn none(unit: i64) -> Self {
        Self { address: 0, size: 0, unit, memory: None, mapped: None }
    }

    /// Registers the part and the control block with all devices. Returns the card for the other members, and the registrations.
    fn expose(&self, core: &Core, block: (&Control, &Mapped)) -> Result<(Card, Vec<Mr>)> {
        let (mut regions, mut card) = (Vec::new(), Card::of(self.size, self.unit as u64));
        let ports = core.with(|engine| engine.transport.nics().len());
        for port in 0..ports {
            let mut expose = |address: usize, len: usize, known: &Mapped| -> Result<RemoteAddr> {
                if let Some((region, of)) = known
                    && *of == port
                {
                    return Ok(region.remote(0));
                }
                regions.push(core.with(|engine| engine.transport.nics()[port].expose(address, len))?);
                Ok(regions[regions.len() - 1].remote(0))
            };
            if self.size > 0 {
                card.data[port] = expose(self.address, self.size as usize, &self.mapped)?;
            }
            let memory = block.0.buf();
            card.control[port] = expose(memory.as_ptr().expose_provenance(), memory.len(), block.1)?;
        }
        let port_of = |known: &Mapped| known.as_ref().map_or(NO_PORT, |(_, port)| *port as u8);
        (card.data_port, card.control_port) = (port_of(&self.mapped), port_of(block.1));
        Ok((card, regions))
    }
}

/// Parts of a shared window begin at multiples of this, if the program allows gaps.
const APART: u64 = 64;

impl Window {
    /// A window onto `size` bytes at an address, which others address by displacements in units of `unit` bytes (`MPI_Win_create`).
    /// Collective (MPI 5.0, section 12.2.1).
    ///
    /// # Safety
    /// The memory must stay readable and writable until the window is freed, and must not be used meanwhile in a way that MPI
    /// forbids.
    ///
    /// # Errors
    /// [`Class::SIZE`] for a negative size, [`Class::DISP`] for a unit that is not positive, [`Class::BASE`] for bytes below
    /// [`ADDRESS_MIN`]; [`Class::COMM`] for an intercommunicator; [`Class::PROC_ABORTED`] when a member is lost.
    pub unsafe fn create(comm: &Comm, address: usize, size: i64, unit: i64, info: Info) -> Result<Self> {
        let size = checked(size, unit)?;
        if size > 0 && address < ADDRESS_MIN {
            let text = format!("base: there is no memory at {address:#x}, where {size} bytes should be");
            return Err(Error::new(Class::BASE, text));
        }
        Self::make(comm, Flavor::Create, Part { address, size, ..Part::none(unit) }, info)
    }

    /// A window with `size` zeroed bytes at this member (`MPI_Win_allocate`). The memory is a device's where others can map that
    /// and access it by load and store. Collective (MPI 5.0, section 12.2.2).
    ///
    /// # Errors
    /// As [`Window::create`]; [`Class::NO_MEM`].
    pub fn allocate(comm: &Comm, size: i64, unit: i64, info: Info) -> Result<Self> {
        let size = checked(size, unit)?;
        if size == 0 {
            return Self::make(comm, Flavor::Allocate, Part::none(unit), info);
        }
        let (memory, mapped) = new_memory(comm, size as usize)?;
        let address = memory.as_ptr().expose_provenance();
        let part = Part { address, size, unit, memory: Some(memory), mapped };
        Self::make(comm, Flavor::Allocate, part, info)
    }

    /// A window with `size` bytes at this member in memory that all members load and store in (`MPI_Win_allocate_shared`). The
    /// parts are consecutive, ordered by rank. Collective (MPI 5.0, section 12.2.3).
    ///
    /// # Errors
    /// As [`Window::allocate`]; [`Class::RMA_SHARED`] for members that are not on one host.
    pub fn allocate_shared(comm: &Comm, size: i64, unit: i64, info: Info) -> Result<Self> {
        let size = checked(size, unit)?;
        let own = own_comm(comm)?;
        let is_apart = info.get("alloc_shared_noncontig").is_ok_and(|value| value == Some("true"));
        let room = if is_apart { size.next_multiple_of(APART) } else { size };
        let wishes = own.talk()?.told_by_all(own.rank(), &room.to_le_bytes())?;
        let rooms: Vec<u64> =
            wishes.chunks_exact(8).map(|room| room.try_into().map_or(0, u64::from_le_bytes)).collect();
        let total = rooms.iter().try_fold(0_u64, |sum, room| sum.checked_add(*room));
        let total = total.filter(|total| *total <= i64::MAX as u64);
        let total =
            total.ok_or_else(|| Error::new(Class::SIZE, "all parts have more bytes than there are"))?;
        let segment = Segment::of_members(&own, total as usize)?;
        let begins: Vec<u64> =
            rooms.iter().scan(0, |at, room| Some(std::mem::replace(at, *at + room))).collect();
        let address = segment.address() + begins[own.rank() as usize] as usize;
        let part = Part { address, size, memory: segment.into_memory(), ..Part::none(unit) };
        let first = address - begins[own.rank() as usize] as usize;
        let places: Vec<usize> = begins.iter().map(|begin| first + *begin as usize).collect();
        Self::make_in(own, Flavor::Shared, part, info, Some(&places))
    }

    /// A window onto memory that members attach later (`MPI_Win_create_dynamic`). Displacements are addresses at the target.
    /// Collective (MPI 5.0, section 12.2.4).
    ///
    /// # Errors
    /// As [`Window::create`].
    pub fn create_dynamic(comm: &Comm, info: Info) -> Result<Self> {
        Self::make(comm, Flavor::Dynamic, Part::none(1), info)
    }

    fn make(comm: &Comm, flavor: Flavor, part: Part, info: Info) -> Result<Self> {
        Self::make_in(own_comm(comm)?, flavor, part, info, None)
    }

    /// Creates the window on its own communicator. With `places` all parts are mapped here, at these addresses by rank.
    fn make_in(comm: Comm, flavor: Flavor, part: Part, info: Info, places: Option<&[usize]>) -> Result<Self> {
        let (core, me) = (comm.core().clone(), comm.rank() as usize);
        let block = DIRECTORY + if flavor == Flavor::Dynamic { Attached::BYTES } else { 0 };
        let (memory, block_region) = new_memory(&comm, block)?;
        let control = Arc::new(Control::new(memory)?);
        let (card, mut regions) = part.expose(&core, (&control, &block_region))?;
        let known = [part.mapped, block_region].into_iter().flatten();
        regions.extend(known.map(|(region, _)| region));
        let is_asked = core.with(|engine| !engine.transport.nics().iter().all(Nic::has_atomics));
        let service = if is_asked { Some(Service::begin(&comm, &control)?) } else { None };
        let cards = comm.talk()?.told_by_all(comm.rank(), &card.bytes())?;
        let mut targets = Vec::with_capacity(comm.size() as usize);
        for (rank, (card, process)) in cards.chunks_exact(CARD).zip(comm.group().members()).enumerate() {
            let nonsense = "a member told of its memory what no process of this version tells";
            let card = Card::parse(card).ok_or_else(|| Error::new(Class::OTHER, nonsense))?;
            targets.push(if rank == me {
                Target::own((rank as i32, *process), card, part.address, Words::near(control.buf().clone())?)
            } else {
                Target::new((rank as i32, *process), card, block, places.map(|places| places[rank]))
            });
        }
        let mut services: Vec<_> = service.into_iter().collect();
        let limits = core.one_sided();
        let carrier = if limits == OneSided::default() || flavor == Flavor::Dynamic {
            None
        } else {
            let (carrier, stop) = Carrier::begin(&comm, limits, &targets[me])?;
            services.push(stop);
            Some(carrier)
        };
        let inner = Inner {
            id: core.next_id(),
            flavor,
            base: part.address,
            size: part.size,
            unit: part.unit,
            targets,
            control,
            carrier,
            kept: Lock::new(Some(Kept { _regions: regions, _memory: part.memory, _services: services })),
            is_freed: AtomicBool::new(false),
            attached: Lock::default(),
            posted: Lock::default(),
            state: Lock::new(State::default()),
            epoch: EpochNumber::default(),
            is_pending: AtomicBool::new(false),
            flushes: AtomicU32::new(0),
            is_ordered: AtomicBool::new(false),
            mark: Mark::of(core.bootstrap().rank()),
            belongings: Lock::new(Belongings { info, ..Belongings::default() }),
            comm,
        };
        Ok(Self(Arc::new(inner)))
    }

    /// Frees the window, after all members have called this and the delete functions of its attributes have run (`MPI_Win_free`).
    /// Collective (MPI 5.0, section 12.2.5).
    ///
    /// # Errors
    /// [`Class::RMA_SYNC`] in an epoch that has not ended, except a fence epoch; a delete function's error; [`Class::PROC_ABORTED`]
    /// when a member is lost, in which case the window is freed all the same.
    pub fn free(&self) -> Result<()> {
        self.enter()?;
        self.with_state(|state| state.epochs.check_free())?;
        self.delete_attributes()?;
        self.0.is_freed.store(true, Ordering::Relaxed);
        self.change_epochs(|_| ());
        let done = self.finish_all("MPI_Win_free").and_then(|()| self.meet());
        // Dropped without the lock, because this deregisters regions at devices.
        let kept = self.0.kept.lock(self.core().host()).take();
        drop(kept);
        self.forget_attached();
        self.0.comm.free()?;
        done
    }
}

/// Checks the arguments that all ways of creation share.
fn checked(size: i64, unit: i64) -> Result<u64> {
    if unit <= 0 {
        return Err(Error::new(
            Class::DISP,
            format_args!("a unit of displacement of {unit} bytes is not positive"),
        ));
    }
    u64::try_from(size)
        .map_err(|_| Error::new(Class::SIZE, format_args!("a size of {size} bytes is negative")))
}

/// A new communicator for the window.
fn own_comm(comm: &Comm) -> Result<Comm> {
    if comm.is_inter() {
        return Err(Error::new(Class::COMM, "a window needs an intracommunicator"));
    }
    comm.copy(Some(comm.agree()?))
}

/// New zeroed memory, which others can map if a device has such memory.
fn new_memory(comm: &Comm, len: usize) -> Result<(Buf, Mapped)> {
    let mapped = comm.core().with(|engine| {
        let nics = engine.transport.nics().iter().enumerate();
        nics.filter(|_| comm.size() > 1).find_map(|(port, nic)| Some((nic.mapped(len)?, port)))
    });
    match mapped {
        Some((region, port)) => {
            let memory = region.buf().clone();
            memory.fill(0);
            Ok((memory, Some((region, port))))
        }
        None => {
            let none = |error| Error::new(Class::NO_MEM, error);
            Ok((Buf::alloc(len).map_err(none)?, None))
        }
    }
}
