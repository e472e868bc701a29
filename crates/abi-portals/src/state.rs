//! Open interfaces of the process (Portals 4.3, sections 3.5 and 3.6). Only this file and `limits` read the environment.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{OnceLock, PoisonError, RwLock};

use auth::{Key, KeyError};
use host::Host;
use host::real::remark;
use portals::{Engine, Limits, Matcher, Ni, NiKind, Node};

use crate::answer::{Answer, Code, code};
use crate::handle::SLOTS;
use crate::limits;

/// The variable that selects the device; `shm` if unset.
const DEVICE: &str = "NICETY_DEVICE";
/// The variable that selects the thread that matches messages: `caller`, `thread` or `spin`.
const MATCHER: &str = "NICETY_PORTALS_ENGINE";
/// What happens to messages without room: `drop`, or `replay`, which delays them until there is room.
const FLOW: &str = "NICETY_PORTALS_FLOW";

struct OpenInterface {
    ni: Ni,
    /// Calls of `PtlNIInit` without a matching `PtlNIFini`.
    users: u32,
    limits: Limits,
}

#[derive(Default)]
struct Library {
    /// Calls of `PtlInit` without a matching `PtlFini`.
    inits: u32,
    node: Option<Node>,
    interfaces: [Option<OpenInterface>; 4],
}

static STATE: RwLock<Option<Library>> = RwLock::new(None);

/// The host of this process.
pub(crate) fn host() -> &'static Host {
    static HOST: OnceLock<Host> = OnceLock::new();
    HOST.get_or_init(host::real::host)
}

fn with_library<T>(act: impl FnOnce(&mut Library) -> Answer<T>) -> Answer<T> {
    let mut state = STATE.write().unwrap_or_else(PoisonError::into_inner);
    match state.as_mut().filter(|state| state.inits > 0) {
        Some(state) => act(state),
        None => Err(Code::NoInit),
    }
}

/// `PtlInit`.
pub(crate) fn init() -> Answer<()> {
    let mut state = STATE.write().unwrap_or_else(PoisonError::into_inner);
    state.get_or_insert_default().inits += 1;
    Ok(())
}

/// `PtlFini`: the last call closes everything that is still open.
pub(crate) fn fini() {
    let mut state = STATE.write().unwrap_or_else(PoisonError::into_inner);
    let Some(open) = state.as_mut() else { return };
    open.inits -= u32::from(open.inits > 0);
    if open.inits > 0 {
        return;
    }
    let last = state.take();
    drop(state);
    last.iter().flat_map(|open| open.interfaces.iter().flatten()).for_each(|open| open.ni.close());
}

/// Opens the interface of a kind, or adds a user to it; returns its limits.
pub(crate) fn open(kind: NiKind, pid: Option<u32>, desired: Option<Limits>) -> Answer<Limits> {
    with_library(|state| {
        if pid.is_some_and(|pid| state.node.as_ref().is_some_and(|node| node.me().pid != pid)) {
            return Err(Code::PidInUse);
        }
        if let Some(open) = &mut state.interfaces[usize::from(kind.number())] {
            open.users += 1;
            return Ok(open.limits);
        }
        let node = match &state.node {
            Some(node) => node.clone(),
            None => state.node.insert(self::node(pid)?).clone(),
        };
        let granted = Limits::grant(desired.as_ref(), &limits::from_environment());
        // As many as handles can name, less the freed slots that are not reused yet.
        let most = SLOTS - 64;
        let limits = Limits { max_entries: granted.max_entries.min(most), ..granted };
        let is_replay = is_replay()?;
        let ni = node.interface(kind, limits);
        if is_replay {
            ni.with_engine(Engine::set_patient);
        }
        state.interfaces[usize::from(kind.number())] = Some(OpenInterface { ni, users: 1, limits });
        Ok(limits)
    })
}

/// Reads the setting: whether messages that find no room wait for it; otherwise they are dropped.
fn is_replay() -> Answer<bool> {
    match std::env::var(FLOW).unwrap_or_default().as_str() {
        "" | "drop" => Ok(false),
        "replay" => Ok(true),
        other => {
            remark(format_args!("{FLOW}={other}: expected drop or replay"));
            Err(Code::Fail)
        }
    }
}

fn node(pid: Option<u32>) -> Answer<Node> {
    let name = std::env::var(DEVICE).ok().filter(|name| !name.is_empty()).unwrap_or_else(|| "shm".into());
    let log_error = |error: &dyn std::fmt::Display| remark(format_args!("{DEVICE}={name}: {error}"));
    let device = fabric::open(&name, host()).map_err(|error| {
        log_error(&error);
        Code::Fail
    })?;
    if fabric::is_wrapped(&name) {
        ffi::log::report_at_exit(fabric::end_report);
    }
    let matcher = std::env::var(MATCHER).ok().filter(|name| !name.is_empty());
    let matcher = matcher.map_or(Ok(Matcher::default()), |name| {
        Matcher::named(&name).ok_or_else(|| {
            remark(format_args!("{MATCHER}={name}: expected caller, thread or spin"));
            Code::Fail
        })
    })?;
    let first = device.attr().port_addrs.iter().find_map(|address| match address {
        IpAddr::V4(address) => Some(*address),
        IpAddr::V6(_) => None,
    });
    let (address, uid) = (first.unwrap_or(Ipv4Addr::LOCALHOST), rustix::process::geteuid().as_raw());
    let key = key(device.attr().maps_peers).map_err(|error| {
        log_error(&error);
        Code::Fail
    })?;
    // SAFETY: a C program promises this for all memory that it gives to Portals. Test:
    // `messages_go_both_ways_on_shm`.
    unsafe { Node::open(host(), &device, address, pid, uid, matcher, &key) }.map_err(|error| {
        log_error(&error);
        if pid.is_some() { Code::PidInUse } else { Code::Fail }
    })
}

/// The key that processes prove to each other. A device that maps memory of peers only connects processes of
/// the same user, so without a launcher it needs no key from a file.
fn key(maps_peers: bool) -> Result<Key, KeyError> {
    let variable = |name: &str| std::env::var_os(name);
    match variable(auth::JOB_KEY) {
        None if maps_peers => Ok(Key::from_bytes([0; 16])),
        _ => auth::shared_key(variable),
    }
}

/// The code of a handle of an interface that is not open.
#[cold]
pub(crate) fn closed() -> Code {
    code!(
        ArgInvalid,
        "the interface of the handle was closed by PtlNIFini, or never opened; call PtlNIInit first"
    )
}

/// Closes an interface for one of its users.
pub(crate) fn close(number: u8) -> Answer<()> {
    let last = with_library(|state| {
        let place = &mut state.interfaces[usize::from(number)];
        let open = place.as_mut().ok_or_else(closed)?;
        open.users -= 1;
        Ok(if open.users == 0 { place.take() } else { None })
    })?;
    // Other threads may call meanwhile; they find the interface closed.
    last.iter().for_each(|open| open.ni.close());
    Ok(())
}

/// An open interface.
pub(crate) fn interface(number: u8) -> Answer<Ni> {
    let state = STATE.read().unwrap_or_else(PoisonError::into_inner);
    let open = state.as_ref().filter(|state| state.inits > 0).ok_or(Code::NoInit)?;
    let place = open.interfaces[usize::from(number)].as_ref();
    place.map(|open| open.ni.clone()).ok_or_else(closed)
}

/// Fails unless `PtlInit` was called.
pub(crate) fn check_init() -> Answer<()> {
    with_library(|_| Ok(()))
}
