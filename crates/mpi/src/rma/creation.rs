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
use crate::rma::control::{Control, DIRECTORY};
use crate::rma::control_messages::ControlServer;
use crate::rma::control_words::{ControlWords, OwnerWord};
use crate::rma::desc::{DESC_LEN, NO_PORT, WindowDesc};
use crate::rma::directory::AttachedRegions;
use crate::rma::epoch::EpochNumber;
use crate::rma::message_rma::MessageRma;
use crate::rma::object::{Flavor, Inner, Properties, Window, WindowResources, WindowState};
use crate::rma::one_sided::OneSided;
use crate::rma::segment::SharedSegment;
use crate::rma::target::Target;

/// Memory of a new window: its address, size and owner.
struct LocalPart {
    address: usize,
    size: u64,
    unit: i64,
    memory: Option<Buf>,
    /// The registered region and its port, if the memory belongs to a port.
    mapped: MappedRegion,
}

/// Registered memory that belongs to a port.
type MappedRegion = Option<(Mr, usize)>;

impl LocalPart {
    fn none(unit: i64) -> Self {
        Self { address: 0, size: 0, unit, memory: None, mapped: None }
    }

    /// Registers the part and the control block with all devices. Returns the description for the other members, and the
    /// registrations.
    fn expose(&self, core: &Core, block: (&Control, &MappedRegion)) -> Result<(WindowDesc, Vec<Mr>)> {
        let (mut regions, mut desc) = (Vec::new(), WindowDesc::new(self.size, self.unit as u64));
        let ports = core.with(|engine| engine.transport.nics().len());
        for port in 0..ports {
            let mut expose = |address: usize, len: usize, known: &MappedRegion| -> Result<RemoteAddr> {
                if let Some((region, of)) = known
                    && *of == port
                {
                    return Ok(region.remote(0));
                }
                regions.push(core.with(|engine| engine.transport.nics()[port].expose(address, len))?);
                Ok(regions[regions.len() - 1].remote(0))
            };
            if self.size > 0 {
                desc.data[port] = expose(self.address, self.size as usize, &self.mapped)?;
            }
            let memory = block.0.buf();
            desc.control[port] = expose(memory.as_ptr().expose_provenance(), memory.len(), block.1)?;
        }
        let port_of = |known: &MappedRegion| known.as_ref().map_or(NO_PORT, |(_, port)| *port as u8);
        (desc.data_port, desc.control_port) = (port_of(&self.mapped), port_of(block.1));
        Ok((desc, regions))
    }
}

/// Parts of a shared window begin at multiples of this, if the program allows gaps.
const NONCONTIG_ALIGN: u64 = 64;

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
        let size = check_size(size, unit)?;
        if size > 0 && address < ADDRESS_MIN {
            let text =
                format!("base: {address:#x} is not the address of memory, but the size is {size} bytes");
            return Err(Error::new(Class::BASE, text));
        }
        Self::create_from_part(
            comm,
            Flavor::Create,
            LocalPart { address, size, ..LocalPart::none(unit) },
            info,
        )
    }

    /// A window with `size` zeroed bytes at this member (`MPI_Win_allocate`). The memory is a device's where others can map that
    /// and access it by load and store. Collective (MPI 5.0, section 12.2.2).
    ///
    /// # Errors
    /// As [`Window::create`]; [`Class::NO_MEM`].
    pub fn allocate(comm: &Comm, size: i64, unit: i64, info: Info) -> Result<Self> {
        let size = check_size(size, unit)?;
        if size == 0 {
            return Self::create_from_part(comm, Flavor::Allocate, LocalPart::none(unit), info);
        }
        let (memory, mapped) = new_memory(comm, size as usize)?;
        let address = memory.as_ptr().expose_provenance();
        let part = LocalPart { address, size, unit, memory: Some(memory), mapped };
        Self::create_from_part(comm, Flavor::Allocate, part, info)
    }

    /// A window with `size` bytes at this member in memory that all members load and store in (`MPI_Win_allocate_shared`). The
    /// parts are consecutive, ordered by rank. Collective (MPI 5.0, section 12.2.3).
    ///
    /// # Errors
    /// As [`Window::allocate`]; [`Class::RMA_SHARED`] for members that are not on one host.
    pub fn allocate_shared(comm: &Comm, size: i64, unit: i64, info: Info) -> Result<Self> {
        let size = check_size(size, unit)?;
        let own = dup_comm(comm)?;
        let is_noncontig = info.get("alloc_shared_noncontig").is_ok_and(|value| value == Some("true"));
        let part_size = if is_noncontig { size.next_multiple_of(NONCONTIG_ALIGN) } else { size };
        let sizes = own.oob()?.allgather(own.rank(), &part_size.to_le_bytes())?;
        let part_sizes: Vec<u64> = sizes
            .chunks_exact(8)
            .map(|part_size| part_size.try_into().map_or(0, u64::from_le_bytes))
            .collect();
        let total = part_sizes.iter().try_fold(0_u64, |sum, part_size| sum.checked_add(*part_size));
        let total = total.filter(|total| *total <= i64::MAX as u64);
        let total = total.ok_or_else(|| {
            Error::new(Class::SIZE, "the parts have more bytes in total than an address space")
        })?;
        let segment = SharedSegment::create_shared(&own, total as usize)?;
        let begins: Vec<u64> =
            part_sizes.iter().scan(0, |at, part_size| Some(std::mem::replace(at, *at + part_size))).collect();
        let address = segment.address() + begins[own.rank() as usize] as usize;
        let part = LocalPart { address, size, memory: segment.into_memory(), ..LocalPart::none(unit) };
        let first = address - begins[own.rank() as usize] as usize;
        let addresses: Vec<usize> = begins.iter().map(|begin| first + *begin as usize).collect();
        Self::create_in(own, Flavor::Shared, part, info, Some(&addresses))
    }

    /// A window onto memory that members attach later (`MPI_Win_create_dynamic`). Displacements are addresses at the target.
    /// Collective (MPI 5.0, section 12.2.4).
    ///
    /// # Errors
    /// As [`Window::create`].
    pub fn create_dynamic(comm: &Comm, info: Info) -> Result<Self> {
        Self::create_from_part(comm, Flavor::Dynamic, LocalPart::none(1), info)
    }

    fn create_from_part(comm: &Comm, flavor: Flavor, part: LocalPart, info: Info) -> Result<Self> {
        Self::create_in(dup_comm(comm)?, flavor, part, info, None)
    }

    /// Creates the window on its own communicator. With `addresses` all parts are mapped here, at these addresses by rank.
    fn create_in(
        comm: Comm,
        flavor: Flavor,
        part: LocalPart,
        info: Info,
        addresses: Option<&[usize]>,
    ) -> Result<Self> {
        let (core, me) = (comm.core().clone(), comm.rank() as usize);
        let block = DIRECTORY + if flavor == Flavor::Dynamic { AttachedRegions::BYTES } else { 0 };
        let (memory, block_region) = new_memory(&comm, block)?;
        let control = Arc::new(Control::new(memory)?);
        let (desc, mut regions) = part.expose(&core, (&control, &block_region))?;
        let known = [part.mapped, block_region].into_iter().flatten();
        regions.extend(known.map(|(region, _)| region));
        let needs_server = core.with(|engine| !engine.transport.nics().iter().all(Nic::has_atomics));
        let server = if needs_server { Some(ControlServer::start(&comm, &control)?) } else { None };
        let descs = comm.oob()?.allgather(comm.rank(), &desc.bytes())?;
        let mut targets = Vec::with_capacity(comm.size() as usize);
        for (rank, (desc, process)) in descs.chunks_exact(DESC_LEN).zip(comm.group().members()).enumerate() {
            let malformed = "a member has sent a window description that no process of this version sends";
            let desc = WindowDesc::parse(desc).ok_or_else(|| Error::new(Class::OTHER, malformed))?;
            targets.push(if rank == me {
                Target::own(
                    (rank as i32, *process),
                    desc,
                    part.address,
                    ControlWords::mapped(control.buf().clone())?,
                )
            } else {
                Target::new((rank as i32, *process), desc, block, addresses.map(|addresses| addresses[rank]))
            });
        }
        let mut servers: Vec<_> = server.into_iter().collect();
        let limits = core.one_sided();
        let message_rma = if limits == OneSided::default() || flavor == Flavor::Dynamic {
            None
        } else {
            let (message_rma, stop_on_drop) = MessageRma::start(&comm, limits, &targets[me])?;
            servers.push(stop_on_drop);
            Some(message_rma)
        };
        let inner = Inner {
            id: core.next_id(),
            flavor,
            base: part.address,
            size: part.size,
            unit: part.unit,
            targets,
            control,
            message_rma,
            resources: Lock::new(Some(WindowResources {
                _regions: regions,
                _memory: part.memory,
                _servers: servers,
            })),
            is_freed: AtomicBool::new(false),
            attached: Lock::default(),
            posted: Lock::default(),
            state: Lock::new(WindowState::default()),
            epoch: EpochNumber::default(),
            is_pending: AtomicBool::new(false),
            flushes: AtomicU32::new(0),
            is_ordered: AtomicBool::new(false),
            owner_word: OwnerWord::new(core.bootstrap().rank()),
            properties: Lock::new(Properties { info, ..Properties::default() }),
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
        self.begin_call()?;
        self.with_state(|state| state.epochs.check_free())?;
        self.delete_attributes()?;
        self.0.is_freed.store(true, Ordering::Relaxed);
        self.change_epochs(|_| ());
        let done = self.wait_all_pending("MPI_Win_free").and_then(|()| self.barrier());
        // Dropped without the lock, because this deregisters regions at devices.
        let resources = self.0.resources.lock(self.core().host()).take();
        drop(resources);
        self.forget_attached();
        self.0.comm.free()?;
        done
    }
}

/// Checks the arguments that all ways of creation share.
fn check_size(size: i64, unit: i64) -> Result<u64> {
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
fn dup_comm(comm: &Comm) -> Result<Comm> {
    if comm.is_inter() {
        return Err(Error::new(Class::COMM, "a window needs an intracommunicator"));
    }
    comm.copy(Some(comm.agree_context()?))
}

/// New zeroed memory, which others can map if a device has such memory.
fn new_memory(comm: &Comm, len: usize) -> Result<(Buf, MappedRegion)> {
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
