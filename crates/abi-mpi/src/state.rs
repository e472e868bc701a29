//! The state of the program's MPI process: initialization, termination, configuration.
//!
//! The process joins its job with `MPI_Init` or the first session, whichever is first; this is collective over the job. It leaves
//! the job with `MPI_Finalize` if there was no session, and otherwise when the program exits, since more sessions may follow until
//! then.

use std::collections::BTreeMap;
use std::env;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::thread::{self, ThreadId};

use ffi::lock;
use host::real::remark;
use mpi::{
    Bootstrap as _, CollKind, Config, Connect, LongWaitNotes, MatchEngine, Matcher, OneSided, Port, Process,
    Tuning,
};

use crate::answer::{Answer, Fault};
use crate::clock::host;
use crate::constants as c;
use crate::launch::{self, Launch, at_exit};
use crate::long_waits;
use crate::profile;

/// The initialized process; it stays allocated after `MPI_Finalize`, but unused.
pub(crate) struct State {
    pub(crate) process: Process,
    pub(crate) launch: Arc<Launch>,
    /// The thread that called `MPI_Init`.
    pub(crate) main: ThreadId,
    /// This process's address for sockets.
    pub(crate) address: IpAddr,
    /// Attributes of the job; programs read them through their addresses.
    pub(crate) appnum: i32,
    pub(crate) universe: i32,
    /// Whether extensions that other implementations share are errors (`NICETY_STRICT`).
    pub(crate) is_strict: bool,
}

static STATE: OnceLock<State> = OnceLock::new();
/// The phase of the world model: before, between or after `MPI_Init` and `MPI_Finalize`.
static WORLD_PHASE: AtomicU8 = AtomicU8::new(UNINITIALIZED);
const UNINITIALIZED: u8 = 0;
const RUNNING: u8 = 1;
const FINALIZED: u8 = 2;
/// The number of open sessions, and whether there ever was one.
static SESSIONS: AtomicUsize = AtomicUsize::new(0);
static HAD_SESSIONS: AtomicBool = AtomicBool::new(false);
static HAS_LEFT: AtomicBool = AtomicBool::new(false);
/// The highest thread level provided so far, and the one of `MPI_Init`.
static THREAD_LEVEL: AtomicI32 = AtomicI32::new(c::MPI_THREAD_SINGLE);
static WORLD_LEVEL: AtomicI32 = AtomicI32::new(c::MPI_THREAD_SINGLE);
/// Algorithms that a tool selected before `MPI_Init`.
pub(crate) static TOOL_ALGORITHMS: Mutex<BTreeMap<CollKind, String>> = Mutex::new(BTreeMap::new());
/// Serializes initialization and termination.
static INIT_LOCK: Mutex<()> = Mutex::new(());

/// The state between `MPI_Init` and `MPI_Finalize`, or while a session is open.
#[inline]
pub(crate) fn state() -> Answer<&'static State> {
    match STATE.get() {
        Some(state) if WORLD_PHASE.load(Ordering::Relaxed) == RUNNING => Ok(state),
        state => state_in_session(state),
    }
}

/// The state while a session is open; an error otherwise.
#[cold]
fn state_in_session(state: Option<&'static State>) -> Answer<&'static State> {
    let why =
        if is_finalized() { "MPI_Finalize was called before" } else { "MPI_Init must be called before" };
    let state = state.filter(|_| SESSIONS.load(Ordering::Relaxed) > 0);
    state.ok_or_else(|| Fault::new(c::MPI_ERR_OTHER, why))
}

/// `MPI_COMM_WORLD`, between `MPI_Init` and `MPI_Finalize`.
#[inline]
pub(crate) fn world() -> Option<&'static mpi::Comm> {
    let state = STATE.get().filter(|_| WORLD_PHASE.load(Ordering::Relaxed) == RUNNING);
    state.map(|state| state.process.world())
}

/// The process of the library, which must be in use.
#[inline]
pub(crate) fn process() -> Answer<&'static Process> {
    state().map(|state| &state.process)
}

pub(crate) fn is_initialized() -> bool {
    WORLD_PHASE.load(Ordering::Relaxed) != UNINITIALIZED
}

pub(crate) fn is_finalized() -> bool {
    WORLD_PHASE.load(Ordering::Relaxed) == FINALIZED
}

/// Joins the job, once per program.
fn join_job() -> Answer<&'static State> {
    if HAS_LEFT.load(Ordering::Relaxed) {
        return Err(Fault::new(
            c::MPI_ERR_OTHER,
            "MPI_Finalize has left the job; a session that is opened before it keeps the job",
        ));
    }
    if let Some(state) = STATE.get() {
        return Ok(state);
    }
    let launch = Arc::new(Launch::join()?);
    let (config, is_strict) = (config(&launch)?, is_set("NICETY_STRICT")?);
    let process = Process::start(host(), &config, launch.clone())?;
    let number = |known: Option<u32>| known.and_then(|known| i32::try_from(known).ok()).unwrap_or(-1);
    let (appnum, universe) = (number(launch.appnum), number(launch.universe));
    let address = address(&config);
    let main = thread::current().id();
    if env::var_os("NICETY_PROFILE").is_some_and(|value| !value.is_empty()) {
        profile::start(&process);
    }
    profile::log_calls();
    let rank = u32::try_from(process.world().rank());
    rank.into_iter().for_each(fabric::set_rank);
    Ok(STATE.get_or_init(|| State { process, launch, main, address, appnum, universe, is_strict }))
}

/// The address of a device that other hosts reach, or the loopback address.
fn address(config: &Config) -> IpAddr {
    let mut all = config.ports.iter().map(|port| port.address).chain(config.addresses.iter().copied());
    all.find(|address| !address.is_loopback() && !address.is_unspecified())
        .unwrap_or(Ipv4Addr::LOCALHOST.into())
}

/// Provides a thread level. Unless it was ever `MPI_THREAD_MULTIPLE`, the program's calls are serialized.
pub(crate) fn raise_thread_level(level: i32) {
    THREAD_LEVEL.fetch_max(level, Ordering::Relaxed);
}

/// Whether the program's calls are serialized.
#[inline]
pub(crate) fn calls_are_serialized() -> bool {
    THREAD_LEVEL.load(Ordering::Relaxed) < c::MPI_THREAD_MULTIPLE
}

/// The thread level of `MPI_Init`.
pub(crate) fn world_level() -> i32 {
    WORLD_LEVEL.load(Ordering::Relaxed)
}

/// Initializes the world model at a thread level; once per program. While the caller holds the result, no other thread can
/// initialize or finalize.
pub(crate) fn init_world(level: i32) -> Answer<MutexGuard<'static, ()>> {
    let init_lock = lock(&INIT_LOCK);
    if is_initialized() {
        return Err(Fault::new(c::MPI_ERR_OTHER, "MPI was initialized before, which is possible once"));
    }
    join_job()?;
    WORLD_LEVEL.store(level, Ordering::Relaxed);
    raise_thread_level(level);
    WORLD_PHASE.store(RUNNING, Ordering::Relaxed);
    Ok(init_lock)
}

/// Finalizes the world model.
pub(crate) fn finalize_world() -> Answer {
    let _init_lock = lock(&INIT_LOCK);
    if WORLD_PHASE.load(Ordering::Relaxed) != RUNNING {
        return state().map(drop);
    }
    let state = state()?;
    if HAD_SESSIONS.load(Ordering::Relaxed) {
        state.process.end_world()?;
        WORLD_PHASE.store(FINALIZED, Ordering::Relaxed);
        return Ok(());
    }
    state.process.finalize()?;
    WORLD_PHASE.store(FINALIZED, Ordering::Relaxed);
    HAS_LEFT.store(true, Ordering::Relaxed);
    Ok(leave_job(state)?)
}

/// Leaves the job, after sending the profile to the launcher if it was requested.
fn leave_job(state: &State) -> mpi::Result<()> {
    if let Some(profile) = profile::finish() {
        // If this fails, there is no profile; the launcher reports that.
        let _ = state.launch.send_profile(&profile);
    }
    state.launch.leave()
}

/// Opens a session.
pub(crate) fn begin_session() -> Answer<&'static Process> {
    let _init_lock = lock(&INIT_LOCK);
    let state = join_job()?;
    if !HAD_SESSIONS.swap(true, Ordering::Relaxed) {
        at_exit(leave_at_exit);
    }
    SESSIONS.fetch_add(1, Ordering::Relaxed);
    Ok(&state.process)
}

/// Closes a session. After the last one, everything that was sent has arrived.
pub(crate) fn end_session() -> Answer {
    let _init_lock = lock(&INIT_LOCK);
    if SESSIONS.load(Ordering::Relaxed) == 1 && WORLD_PHASE.load(Ordering::Relaxed) != RUNNING {
        process()?.drain()?;
    }
    SESSIONS.fetch_sub(1, Ordering::Relaxed);
    Ok(())
}

/// Leaves the job when the program exits. If the program did not finalize, the launcher reports a premature exit.
extern "C" fn leave_at_exit() {
    let is_over = WORLD_PHASE.load(Ordering::Relaxed) != RUNNING && SESSIONS.load(Ordering::Relaxed) == 0;
    if let Some(state) = STATE.get().filter(|_| is_over && !HAS_LEFT.swap(true, Ordering::Relaxed)) {
        // Errors cannot be reported any more.
        let _ = ffi::catch_panic(|| {
            state.process.leave();
            leave_job(state)
        });
    }
}

/// Ends the whole job, after the message on standard error.
pub(crate) fn abort(code: i32, message: &str) -> ! {
    remark(message);
    if let Some(state) = STATE.get() {
        state.launch.abort(code);
    }
    std::process::exit(pmi::abort_status(code).into());
}

/// Ends this process with a message and SIGABRT, as an uncaught C++ exception does.
pub(crate) fn abort_process(message: &str) -> ! {
    warn(message);
    std::process::abort();
}

/// Prints a warning on standard error.
pub(crate) fn warn(message: &str) {
    let rank = rank().map(|rank| format!("rank {rank}: ")).unwrap_or_default();
    remark(format_args!("{rank}{message}"));
}

/// The rank in the job, for messages; `None` before the process has joined.
pub(crate) fn rank() -> Option<u32> {
    STATE.get().map(|state| state.launch.rank())
}

#[inline]
pub(crate) fn predefined_comm(value: usize) -> Answer<Option<&'static mpi::Comm>> {
    match value {
        c::MPI_COMM_WORLD => Ok(Some(process()?.world())),
        c::MPI_COMM_SELF => Ok(Some(process()?.comm_self())),
        _ => Ok(None),
    }
}

/// The predefined handle of the communicator with this [`mpi::Comm::id`], if it has one.
pub(crate) fn handle_of(id: u64) -> Option<usize> {
    let process = &STATE.get()?.process;
    let is = |other: &mpi::Comm| other.id() == id;
    let world = is(process.world()).then_some(c::MPI_COMM_WORLD);
    world.or_else(|| is(process.comm_self()).then_some(c::MPI_COMM_SELF))
}

/// The devices that `NICETY_DEVICE` names: one, or several in the order of preference, joined by `+`. The default is `shm`,
/// followed by `iwarp` unless the whole job is on this host; `iwarp` uses the local address that is nearest to the peer, within the
/// network that `NICETY_NETWORK` names, if it is set. `NICETY_CONNECT=all` connects all processes at the start, and
/// `NICETY_ALGORITHMS` selects algorithms. `NICETY_FAST_PATH=1` writes short messages directly to memory that the receiver polls,
/// and `NICETY_ONE_SIDED=messages` sends puts and gets as messages between a start and its completion, where memory cannot be
/// mapped. `NICETY_LANE=portals` transports messages over Portals, and `NICETY_PORTALS_ENGINE` selects where Portals matches them.
fn config(launch: &Launch) -> mpi::Result<Config> {
    let unset = if launch.is_one_host { "shm" } else { "shm+iwarp" };
    let names = env::var("NICETY_DEVICE").ok().filter(|names| !names.is_empty());
    let names = names.unwrap_or_else(|| unset.to_owned());
    let node = node_id();
    let addresses = if launch.is_one_host { Vec::new() } else { own_addresses()? };
    let port = |name: &str| port(name, &node, &addresses);
    let ports = fabric::split(&names, '+').into_iter().map(port).collect::<mpi::Result<_>>()?;
    let connect = match env::var("NICETY_CONNECT").as_deref() {
        Ok("all") => Connect::All,
        _ => Connect::OnDemand,
    };
    // A tool's selection has precedence over the environment.
    let mut named = algorithms(&env::var("NICETY_ALGORITHMS").unwrap_or_default())?;
    named.extend(lock(&TOOL_ALGORITHMS).clone());
    let tuning = Tuning { algorithms: named, costs: None };
    let oversubscribed = launch.local_size.and_then(|count| host::real::is_oversubscribed(count as usize));
    let match_engine = match_engine()?;
    let (fast_path, one_sided) = path_options()?;
    Ok(Config {
        ports,
        connect,
        node,
        addresses,
        oversubscribed,
        match_engine,
        tuning,
        fast_path,
        one_sided,
        long_waits: noted_waits(),
    })
}

/// Notes of long waits, if the launcher may ask for them.
fn noted_waits() -> Option<LongWaitNotes> {
    let number = variable(pmi::calls::CALLS_FD)?.parse().ok()?;
    long_waits::notes_in(launch::duplicate(number).ok()?)
}

/// The value of an environment variable, if it is set and not empty.
fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

/// The error for an environment variable, with its possible values.
fn invalid_variable(name: &str, value: String, are: &str) -> mpi::Error {
    mpi::Error::new(mpi::Class::OTHER, format_args!("{name}={value}: it is {are}"))
}

/// Whether an environment variable is 1. It may also be 0 or unset.
fn is_set(name: &str) -> mpi::Result<bool> {
    match variable(name) {
        Some(is) if is == "1" => Ok(true),
        Some(is) if is != "0" => Err(invalid_variable(name, is, "0 or 1")),
        _ => Ok(false),
    }
}

/// Whether short messages use the fast path, and which one-sided operations are sent as messages.
fn path_options() -> mpi::Result<(bool, OneSided)> {
    let fast_path = is_set("NICETY_FAST_PATH")?;
    let one_sided = match variable("NICETY_ONE_SIDED") {
        Some(how) if how == "messages" => OneSided::MESSAGES,
        Some(how) if how != "device" => {
            return Err(invalid_variable("NICETY_ONE_SIDED", how, "device or messages"));
        }
        _ => OneSided::default(),
    };
    Ok((fast_path, one_sided))
}

/// Where Portals matches messages, from the environment.
fn match_engine() -> mpi::Result<MatchEngine> {
    let matcher = match variable("NICETY_PORTALS_ENGINE") {
        None => Matcher::default(),
        Some(name) => Matcher::named(&name)
            .ok_or_else(|| invalid_variable("NICETY_PORTALS_ENGINE", name, "caller, thread or spin"))?,
    };
    match variable("NICETY_LANE") {
        Some(name) if name == "portals" => Ok(MatchEngine::Portals(matcher)),
        Some(name) if name != "verbs" => Err(invalid_variable("NICETY_LANE", name, "verbs or portals")),
        _ => Ok(MatchEngine::Verbs),
    }
}

/// Parses algorithms of collectives, `allreduce=ring,bcast=chain`; the selection of process 0 applies to all.
fn algorithms(text: &str) -> mpi::Result<BTreeMap<CollKind, String>> {
    let wrong = |part: &str| {
        let kinds: Vec<&str> = CollKind::ALL.into_iter().map(CollKind::name).collect();
        let text = format!("NICETY_ALGORITHMS: '{part}' is no KIND=NAME; kinds are {}", kinds.join(", "));
        mpi::Error::new(mpi::Class::OTHER, text)
    };
    let parts = text.split(',').filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (kind, name) = part.split_once('=').ok_or_else(|| wrong(part))?;
        let kind = CollKind::ALL.into_iter().find(|known| known.name() == kind).ok_or_else(|| wrong(part))?;
        Ok((kind, name.to_owned()))
    };
    parts.map(pair).collect()
}

/// The addresses under which other hosts reach this one.
fn own_addresses() -> mpi::Result<Vec<IpAddr>> {
    let network = env::var("NICETY_NETWORK").ok().filter(|network| !network.is_empty());
    host::real::addresses(network.as_deref())
        .map_err(|why| mpi::Error::new(mpi::Class::OTHER, format_args!("NICETY_NETWORK: {why}")))
}

/// The listening address of a device without an address of its own: the host's only address, or the wildcard for all of
/// `addresses`, since the peer decides which one it uses. IPv4 is preferred. A job on one host uses the loopback.
fn listen_address(addresses: &[IpAddr]) -> IpAddr {
    let four: Vec<IpAddr> = addresses.iter().copied().filter(IpAddr::is_ipv4).collect();
    match if four.is_empty() { addresses } else { &four } {
        [] => Ipv4Addr::LOCALHOST.into(),
        [one] => *one,
        [IpAddr::V4(_), ..] => Ipv4Addr::UNSPECIFIED.into(),
        [IpAddr::V6(_), ..] => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// A device and its listening address. Other hosts must reach it at one of `addresses`, if there are any.
fn port(name: &str, node: &str, addresses: &[IpAddr]) -> mpi::Result<Port> {
    let device = fabric::open(name, host())
        .map_err(|error| mpi::Error::new(mpi::Class::OTHER, format_args!("NICETY_DEVICE={name}: {error}")))?;
    if fabric::is_wrapped(name) {
        ffi::log::report_at_exit(fabric::end_report);
        profile::trace_calls(name);
    }
    let unset = listen_address(if fabric::is_local(name) { &[] } else { addresses });
    let address = device.attr().port_addrs.first().copied().unwrap_or(unset);
    let word = fabric::word(name);
    let fabric = if fabric::is_local(name) { format!("{word}/{node}") } else { word.to_owned() };
    Ok(Port { device, address, fabric })
}

/// The identity of processes that can share memory: the host's boot id, and the network namespace, in which they find each other.
fn node_id() -> String {
    let boot = host::bounded::kernel_text("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let net = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let plain = |text: &str| text.chars().filter(|c| c.is_ascii_alphanumeric()).collect::<String>();
    format!("{}-{}", plain(&boot), plain(&net.to_string_lossy()))
}
