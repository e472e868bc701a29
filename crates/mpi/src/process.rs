//! [`Process`]: one process of a job, from its start to its end (MPI 5.0, chapter 11).

use std::net::IpAddr;
use std::sync::Arc;

use host::Host;
use portals::Matcher;

use crate::bootstrap::Bootstrap;
use crate::coll::tuning::Tuning;
use crate::comm::communicator::Comm;
use crate::comm::context::Context;
use crate::comm::group::Group;
use crate::core::{Core, LEAVE_TIMEOUT, LongWaitNotes};
use crate::error::{Class, Error, Result};
use crate::p2p::over_portals::Portals;
use crate::peers::nic::Port;
use crate::peers::transport::Transport;
use crate::req::request::{Request, Requests};
use crate::req::special::Generalized;
use crate::rma::one_sided::OneSided;

/// When connections are established.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connect {
    /// With the first message to a process.
    #[default]
    OnDemand,
    /// All at the start: each process connects to those of lower ranks, the nearest first.
    All,
}

/// The layer that carries messages between two processes, and matches them with receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MatchEngine {
    /// Connections of the devices; this library does the matching.
    #[default]
    Verbs,
    /// Portals on the last of the ports, which reaches all processes of the job; the Portals interface does the matching.
    Portals(Matcher),
}

/// The configuration of a process.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The devices that reach other processes, best first, at most 5: two processes use the first device in the list of the lower
    /// rank whose [`Port::fabric`] the other also has.
    pub ports: Vec<Port>,
    /// When connections are established.
    pub connect: Connect,
    /// A text that is the same for all processes of one host, in the format of [`Port::fabric`].
    pub node: String,
    /// Addresses of this host, at most six; more are ignored. Ports whose address is `0.0.0.0` or `::` listen at each address.
    pub addresses: Vec<IpAddr>,
    /// Whether the processes of this host outnumber its cores, if that is known. If so, waiting threads yield their cores
    /// immediately; if not, they spin for longer ([`Host::set_oversubscribed`]), since a polling thread does a NIC's work itself. Ignored
    /// with [`MatchEngine::Portals`], since the thread of its NIC needs cores, too.
    pub oversubscribed: Option<bool>,
    /// The layer that carries messages; the same for all processes of a job.
    pub match_engine: MatchEngine,
    /// The parameters by which collective algorithms are chosen; those of process 0 apply to all.
    pub tuning: Tuning,
    /// Messages that fit into a slot are written to memory that the peer polls, instead of sent. This applies to devices that write
    /// the last byte of a write last, whose memory cannot be mapped, and whose writes can notify, or in virtual time. The same for
    /// all processes of a job.
    pub fast_path: bool,
    /// Which one-sided operations are sent as messages, if memory cannot be mapped; none by default.
    pub one_sided: OneSided,
    /// The receiver of notes about long waits; none by default.
    pub long_waits: Option<LongWaitNotes>,
}

/// A process of a job, which owns all state. Cheap to clone; any thread may use it.
#[derive(Clone, Debug)]
pub struct Process {
    core: Core,
    world: Comm,
    comm_self: Comm,
}

impl Process {
    /// Joins the job (`MPI_Init`). Collective over all its processes (MPI 5.0, section 11.2.1).
    ///
    /// # Errors
    /// [`Class::ARG`] for invalid names or ports; the devices' and the process manager's; [`Class::PROC_ABORTED`] when
    /// [`Connect::All`] cannot reach a process.
    pub fn start(host: &Host, config: &Config, bootstrap: Arc<dyn Bootstrap>) -> Result<Self> {
        let (rank, size) = (bootstrap.rank(), bootstrap.size());
        if rank >= size || size > i32::MAX as u32 {
            return Err(Error::new(
                Class::ARG,
                format_args!("rank {rank} does not exist in a job of {size}"),
            ));
        }
        let oversubscribed = config.oversubscribed.filter(|_| config.match_engine == MatchEngine::Verbs);
        oversubscribed.into_iter().for_each(|oversubscribed| host.set_oversubscribed(oversubscribed));
        let shared_cores = (oversubscribed == Some(true)).then(host::real::online_cores);
        config.tuning.publish(&*bootstrap, &config.ports, shared_cores)?;
        let here = (&*config.node, &*config.addresses, config.fast_path);
        let transport = Transport::new(host, &config.ports, here, bootstrap.clone())?;
        let tuning = Tuning::read(&*bootstrap)?;
        let portals = match (config.match_engine, config.ports.last()) {
            (MatchEngine::Portals(matcher), Some(port)) => {
                // Portals identifies a process by one address.
                let mut port = port.clone();
                if let Some(first) = config.addresses.first().filter(|_| port.address.is_unspecified()) {
                    port.address = *first;
                }
                Some(Portals::open(host, &port, matcher, &*bootstrap, &transport.shared_with(rank)?)?)
            }
            _ => None,
        };
        let long_waits = config.long_waits.clone();
        let core = Core::new(host, bootstrap, transport, portals, (tuning, config.one_sided), long_waits);
        core.set_oversubscribed(oversubscribed == Some(true));
        let world = Comm::new(&core, Some(Context::new(0, 0)), Group::of_all(size), None, None)?;
        let comm_self = Comm::new(&core, Some(Context::new(rank, 1)), Group::new(vec![rank])?, None, None)?;
        world.set_name("MPI_COMM_WORLD")?;
        comm_self.set_name("MPI_COMM_SELF")?;
        let process = Self { core, world, comm_self };
        if config.connect == Connect::All {
            process.connect_all()?;
        }
        Ok(process)
    }

    fn connect_all(&self) -> Result<()> {
        let (rank, size) = (self.core.bootstrap().rank(), self.core.bootstrap().size());
        self.core.with(|engine| (0..rank).rev().try_for_each(|other| engine.transport.connect(other)))?;
        self.core.wait("MPI_Init", |engine| {
            if engine.transport.open() + 1 == size as usize {
                return Some(Ok(()));
            }
            (0..size).find_map(|other| engine.transport.lost(other)).map(|error| Err(error.clone()))
        })?
    }

    /// Leaves the job (`MPI_Finalize`): does what [`Process::end_world`] does, and announces to connected processes of other jobs
    /// that it leaves. Collective. Afterwards nothing works that needs other processes (MPI 5.0, section 11.2.2).
    ///
    /// # Errors
    /// As [`Process::end_world`].
    pub fn finalize(&self) -> Result<()> {
        self.end_world()?;
        // After the fence no process of this job waits for another.
        self.announce_leaving(false);
        Ok(())
    }

    /// Ends what `MPI_Init` began, while sessions continue: deletes the attributes of [`Process::comm_self`], waits until other
    /// processes have received, or can fetch, all messages to them, and waits for all processes of the job. Collective.
    ///
    /// # Errors
    /// The first error of a delete function or of the process manager.
    pub fn end_world(&self) -> Result<()> {
        self.comm_self.free()?;
        self.drain()?;
        self.core.bootstrap().fence()
    }

    /// Leaves the job without [`Process::finalize`]: announces to all connected processes that this one leaves, and closes the
    /// connections when the announcement has arrived, or after five seconds. Peers do not report this process as lost, and have all
    /// earlier messages. Afterwards nothing works that needs other processes.
    pub fn leave(&self) {
        if let Some(ni) = self.core.with(|engine| engine.portals.as_ref().map(|portals| portals.interface()))
        {
            ni.close();
        }
        self.announce_leaving(true);
    }

    fn announce_leaving(&self, all: bool) {
        let deadline = self.host().after(LEAVE_TIMEOUT);
        // A peer without the announcement by then is stopped or dead.
        let _ =
            self.core.wait_for("MPI_Finalize", deadline, |engine| engine.transport.leave(all).then_some(()));
        self.core.with(|engine| engine.transport.close(all));
    }

    /// Waits until other processes have received, or can fetch, all that was sent to them.
    ///
    /// # Errors
    /// [`Class::OTHER`] when the world of this process ends first.
    pub fn drain(&self) -> Result<()> {
        self.core.wait("MPI_Finalize", |engine| engine.is_drained().then_some(()))
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// All processes (`MPI_COMM_WORLD`).
    #[inline]
    pub fn world(&self) -> &Comm {
        &self.world
    }

    /// This process alone (`MPI_COMM_SELF`).
    #[inline]
    pub fn comm_self(&self) -> &Comm {
        &self.comm_self
    }

    /// The host that it runs on.
    pub fn host(&self) -> &Host {
        self.core.host()
    }

    /// The bootstrap of the job.
    pub fn bootstrap(&self) -> &Arc<dyn Bootstrap> {
        self.core.bootstrap()
    }

    /// The parameters by which collective algorithms are chosen, the same in all of the job.
    pub fn tuning(&self) -> &Tuning {
        self.core.tuning()
    }

    /// Processes that it is or was connected to, in the order of connecting, and whether this process sent the request.
    pub fn connected(&self) -> Vec<(u32, bool)> {
        self.core.with(|engine| engine.transport.begun().collect())
    }

    /// Makes progress without waiting.
    pub fn progress(&self) {
        self.core.test(|_| None::<()>);
    }

    /// Its requests, for interfaces whose programs hold request numbers.
    #[inline]
    pub fn requests(&self) -> Requests<'_> {
        Requests::new(&self.core)
    }

    /// Creates a generalized request, which [`Requests::complete`] completes (`MPI_Grequest_start`; MPI 5.0, section 13.2).
    pub fn generalized(&self, program: Arc<dyn Generalized>) -> Request {
        Request::generalized(&self.core, program)
    }
}
