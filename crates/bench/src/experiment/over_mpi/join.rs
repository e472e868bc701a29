//! [`join`]: an MPI process at each rank of a cell. They find each other through messages of the session, in place of
//! a launcher's process manager.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use mpi::{Bootstrap, Class, Config, Connect, Error, OneSided, Port, Process};
use verbs::Device;
use verbs::host::{EventCount, Host, Lock, Time};

use super::super::{Fault, Session};
use results::variant::factor;

/// Protocols for a short message: sent, or written into a ring polled by the receiver.
pub(super) const PATHS: [&str; 2] = ["send", "ring"];

/// Short operations as messages, by MVAPICH2's defaults on Xeons of 64 bits: `RDMA_PUT_FALLBACK_THRESHOLD` and
/// `RDMA_GET_FALLBACK_THRESHOLD` of 0.9's `ibv_param.h`. The thresholds for the Chelsio T3 (8 and 394 KiB) were
/// introduced in 1.0.
const BOTH: OneSided = OneSided { put_max: 2 << 10, get_max: 192 << 10 };

/// Notes by their names.
type Notes = BTreeMap<String, String>;

/// The process of this rank, joined with those of the others; collective over all ranks.
pub(crate) fn join(session: &mut Session<'_>, ranks: u32) -> Result<Process, Fault> {
    join_by(session, ranks, Connect::OnDemand)
}

/// As [`join`], connecting then or on the first messages.
pub(super) fn join_by(session: &mut Session<'_>, ranks: u32, connect: Connect) -> Result<Process, Fault> {
    if session.bounds.work.is_some() {
        // An MPI process exposes all its memory to the others of its job.
        return Err(Fault::Meaningless(
            "MPI for a stranger, who would reach all memory of this side; leave --peer away, and use `nicety mpirun` between \
             hosts"
                .into(),
        ));
    }
    let relay = Arc::new(Relay {
        rank: session.rank,
        size: ranks,
        host: session.host.clone(),
        state: Lock::default(),
        wakeup: EventCount::new(),
    });
    // Ranks wait as a launcher would configure them, or as processes that may have no core of their own.
    let is_real = session.device.host().node().is_none();
    let oversubscribed = if is_real { verbs::host::real::is_oversubscribed(ranks as usize) } else { None };
    let config = Config { connect, oversubscribed, ..config(session)? };
    let starting = relay.clone();
    let body = move || {
        let started = Process::start(&starting.host, &config, starting.clone());
        starting.change(|state| state.started = Some(started));
    };
    // Starting blocks in its own calls, so another task has to relay the messages meanwhile.
    let task = session
        .host
        .spawn("mpi", None, body)
        .map_err(|error| Fault::Machine(format!("a thread to start MPI: {error}")))?;
    let found = relay.serve(session);
    if found.is_err() {
        relay.change(|state| state.is_lost = true);
    }
    task.join();
    found
}

fn config(session: &Session<'_>) -> Result<Config, Fault> {
    let (device, variant) = (session.device, &session.cell.variant);
    let address =
        session.controls.first().map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |control| control.local_ip());
    let port = |device: Device, fabric: &str| {
        let own = device.attr().port_addrs.first().copied();
        Port { device, address: own.unwrap_or(address), fabric: fabric.to_owned() }
    };
    // Ranks of one simulated machine share its node name; without simulation all ranks are on this host.
    let node =
        device.host().node().map_or_else(|| "here".to_owned(), |node| format!("node-{}", node.index()));
    let mut ports = Vec::new();
    if let Some(inside) = variant.get(factor::INSIDE) {
        ports.push(port(fabric::open(inside, session.host)?, &node));
    }
    ports.push(port(device.clone(), "bench"));
    let one_sided = match variant.get(factor::SIDED) {
        Some("messages") => OneSided::MESSAGES,
        Some("both") => BOTH,
        _ => OneSided::default(),
    };
    Ok(Config { ports, node, fast_path: variant.is(factor::PATH, PATHS[1]), one_sided, ..Config::default() })
}

/// What the starting process knows of its job, and the relay of messages between it and the session.
struct Relay {
    rank: u32,
    size: u32,
    host: Host,
    state: Lock<State>,
    wakeup: EventCount,
}

#[derive(Default)]
struct State {
    /// Notes of this rank that the others do not have yet.
    own: Notes,
    /// Messages of all ranks.
    all: Notes,
    /// Fences that the process has entered, and completed ones.
    come: u64,
    over: u64,
    /// The others are not there any more.
    is_lost: bool,
    started: Option<mpi::Result<Process>>,
}

/// The next request of the process.
enum Wanted {
    Fence(Notes),
    Nothing(mpi::Result<Process>),
}

impl Relay {
    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock(&self.host));
        self.host.notify(&self.wakeup);
    }

    /// Passes notes on until the process has started.
    fn serve(&self, session: &mut Session<'_>) -> Result<Process, Fault> {
        loop {
            match self.wanted(session.deadline())? {
                Wanted::Nothing(started) => return Ok(started?),
                Wanted::Fence(own) => {
                    let all = exchanged(session, own, self.size as usize)?;
                    self.change(|state| {
                        state.all.extend(all);
                        state.over = state.come;
                    });
                }
            }
        }
    }

    fn wanted(&self, deadline: Option<Time>) -> Result<Wanted, Fault> {
        let look = || {
            let mut state = self.state.lock(&self.host);
            if let Some(started) = state.started.take() {
                return Some(Wanted::Nothing(started));
            }
            (state.come > state.over).then(|| Wanted::Fence(std::mem::take(&mut state.own)))
        };
        let found = self.host.wait("an MPI process that starts", &self.wakeup, deadline, look);
        found.ok_or(Fault::TimedOut("the start of an MPI process"))
    }
}

/// Waits until all ranks have arrived, and have received all messages sent to them. Then the process can be dropped.
pub(crate) fn leave_together(session: &mut Session<'_>, process: &Process) -> Result<(), Fault> {
    process.drain()?;
    exchanged(session, Notes::new(), process.world().size() as usize).map(drop)
}

/// The notes of all ranks: the client collects them and hands them out.
fn exchanged(session: &mut Session<'_>, own: Notes, ranks: usize) -> Result<Notes, Fault> {
    if !session.is_client() {
        session.send_info(&own)?;
        return session.receive_info();
    }
    let mut all = own;
    for rank in 1..ranks {
        all.extend(session.receive_info_from::<Notes>(rank)?);
    }
    (1..ranks).try_for_each(|rank| session.send_info_to(rank, &all))?;
    Ok(all)
}

impl Bootstrap for Relay {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn put(&self, key: &str, value: &str) -> mpi::Result<()> {
        self.state.lock(&self.host).own.insert(key.to_owned(), value.to_owned());
        Ok(())
    }

    fn get(&self, key: &str) -> mpi::Result<String> {
        let missing = || Error::new(Class::OTHER, format_args!("nobody has left a note named {key}"));
        self.state.lock(&self.host).all.get(key).cloned().ok_or_else(missing)
    }

    /// Only before [`join`] returns: afterwards nothing relays messages.
    fn fence(&self) -> mpi::Result<()> {
        let mut mine = 0;
        self.change(|state| {
            state.come += 1;
            mine = state.come;
        });
        let look = || {
            let state = self.state.lock(&self.host);
            if state.over >= mine { Some(Ok(())) } else { state.is_lost.then_some(Err(())) }
        };
        let passed = self.host.wait("Bootstrap::fence", &self.wakeup, None, look);
        let lost = |()| Error::new(Class::OTHER, "another process did not start");
        passed.unwrap_or(Err(())).map_err(lost)
    }
}
