//! The cells: what is measured for each library, and the bound of each.

use std::fmt;

/// The placement of ranks and the transport of their messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Setting {
    /// Two ranks, shared memory.
    Shm2,
    /// Four ranks, shared memory: more ranks than cores on the original development machine.
    Shm4,
    /// Two ranks over TCP on the loopback interface; ours over iWARP.
    Tcp2,
    /// Four ranks over TCP on the loopback interface; ours over iWARP.
    Tcp4,
    /// Two ranks on two hosts that a cable connects.
    Net2,
    /// Four ranks, two on each of two hosts.
    Net4,
    /// Two ranks, shared memory, empty program.
    Start,
    /// 64 ranks, shared memory, empty program.
    Idle64,
}

impl Setting {
    pub(crate) const ALL: [Self; 8] =
        [Self::Shm2, Self::Shm4, Self::Tcp2, Self::Tcp4, Self::Net2, Self::Net4, Self::Start, Self::Idle64];

    pub(crate) fn ranks(self) -> u32 {
        match self {
            Self::Shm2 | Self::Tcp2 | Self::Net2 | Self::Start => 2,
            Self::Shm4 | Self::Tcp4 | Self::Net4 => 4,
            Self::Idle64 => 64,
        }
    }

    pub(crate) fn is_tcp(self) -> bool {
        matches!(self, Self::Tcp2 | Self::Tcp4)
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self {
            Self::Tcp2 | Self::Tcp4 => "tcp",
            Self::Net2 | Self::Net4 => "net",
            Self::Shm2 | Self::Shm4 | Self::Start | Self::Idle64 => "shm",
        };
        write!(f, "{transport} {}", self.ranks())
    }
}

/// The program that runs under a library: a C file in `xtask/peers/`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Program {
    /// Single operations.
    Probe,
    /// Two NAS kernels.
    Nas,
    /// An array that is written into a file.
    Write,
}

impl Program {
    pub(crate) const ALL: [Self; 3] = [Self::Probe, Self::Nas, Self::Write];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::Nas => "nas",
            Self::Write => "write",
        }
    }
}

/// The library that a cell is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ComparedWith {
    Mpich,
    OpenMpi,
    /// The better one of both in this run.
    Better,
    /// No library: the figure itself has a bound.
    Nothing,
}

/// The bound of a cell.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// Maximal ratio of times, ours by theirs.
    Time(f64),
    /// Minimal ratio of bandwidths, ours by theirs; the time of a message is measured.
    Speed(f64),
    /// Minimal value.
    Least(f64),
    /// Maximal value.
    Most(f64),
}

/// One measurement with its bound.
pub(crate) struct Cell {
    pub(crate) setting: Setting,
    /// The measuring program's name for it; empty if the whole job is timed.
    pub(crate) probe: &'static str,
    pub(crate) bound: Bound,
    pub(crate) compared_with: ComparedWith,
}

impl Cell {
    /// Whether the whole job is timed.
    pub(crate) fn is_start_up(&self) -> bool {
        self.setting == Setting::Start
    }

    /// The program that measures it.
    pub(crate) fn program(&self) -> Program {
        match self.probe.split(':').next() {
            Some("is" | "cg") => Program::Nas,
            Some("write") => Program::Write,
            _ => Program::Probe,
        }
    }

    /// The bound as text.
    pub(crate) fn bound(&self) -> String {
        let library = match self.compared_with {
            ComparedWith::Mpich => "MPICH",
            ComparedWith::OpenMpi => "Open MPI",
            ComparedWith::Better => "the better of both",
            ComparedWith::Nothing => "",
        };
        match self.bound {
            Bound::Time(most) => format!("time / {library} <= {most}"),
            Bound::Speed(least) => format!("speed / {library} >= {least}"),
            Bound::Least(least) => format!(">= {least}"),
            Bound::Most(most) => format!("<= {most}"),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.setting, if self.is_start_up() { "start" } else { self.probe })
    }
}

const fn cell(setting: Setting, probe: &'static str, bound: Bound, compared_with: ComparedWith) -> Cell {
    Cell { setting, probe, bound, compared_with }
}

use Bound::{Least, Most, Speed, Time};
use ComparedWith::{Better, Mpich, Nothing, OpenMpi};
use Setting::{Idle64, Net2, Net4, Shm2, Shm4, Start, Tcp2, Tcp4};

/// Collective operations with long messages, the same in each setting.
const LONG_COLLECTIVES: [&str; 8] = [
    "allreduce:65536",
    "allgather:65536",
    "bcast:65536",
    "alltoall:65536",
    "allreduce:1048576",
    "allgather:1048576",
    "bcast:1048576",
    "alltoall:1048576",
];

/// All cells between two hosts, in the order of the table.
pub(crate) fn net_cells() -> Vec<Cell> {
    let two = |probe| cell(Net2, probe, Time(0.95), Better);
    let four = |probe| cell(Net4, probe, Time(0.95), Better);
    let pairs = ["latency:8", "latency:65536", "latency:1048576", "bandwidth:65536", "bandwidth:1048576"];
    pairs.map(two).into_iter().chain(LONG_COLLECTIVES.map(four)).collect()
}

/// All cells on one host, in the order of the table.
pub(crate) fn cells() -> Vec<Cell> {
    let long = |setting| LONG_COLLECTIVES.map(|probe| cell(setting, probe, Time(0.9), Better));
    let mut cells: Vec<Cell> = SHORT.into();
    cells.extend([Shm2, Shm4, Tcp2, Tcp4].into_iter().flat_map(long));
    cells.extend(JOBS);
    cells
}

/// Operations between two ranks, and collective operations with short messages.
const SHORT: [Cell; 32] = [
    cell(Shm2, "latency:8", Time(0.6), OpenMpi),
    cell(Shm2, "latency:1024", Time(0.8), Better),
    cell(Shm2, "latency:4096", Time(0.8), Better),
    cell(Shm2, "latency:65536", Time(0.8), Better),
    cell(Shm2, "rate:8", Speed(1.5), OpenMpi),
    cell(Shm2, "bandwidth:65536", Speed(1.2), Better),
    cell(Shm2, "bandwidth:1048576", Speed(1.5), Better),
    cell(Shm2, "bandwidth:4194304", Speed(1.5), Better),
    cell(Shm2, "bibw:1048576", Speed(1.0), Better),
    cell(Shm2, "overlap:1048576", Least(0.8), Nothing),
    cell(Shm2, "exchange100:1048576", Time(1.0), Better),
    cell(Shm2, "exchange300:1048576", Time(1.0), Better),
    cell(Shm2, "exchange1000:1048576", Time(1.0), Better),
    cell(Shm2, "put:8", Time(1.0), OpenMpi),
    cell(Shm2, "get:8", Time(1.0), OpenMpi),
    cell(Shm2, "fetchadd:8", Time(0.8), Better),
    cell(Shm2, "put:1048576", Speed(1.2), Better),
    cell(Shm2, "barrier:0", Time(0.8), Better),
    cell(Shm2, "allreduce:8", Time(0.8), Better),
    cell(Shm2, "bcast:8", Time(0.8), Better),
    cell(Shm2, "alltoall:8", Time(0.8), Better),
    cell(Shm4, "barrier:0", Time(1.0), Better),
    cell(Shm4, "allreduce:8", Time(1.0), Better),
    cell(Shm4, "bcast:8", Time(1.0), Better),
    cell(Shm4, "alltoall:8", Time(1.0), Better),
    cell(Tcp2, "latency:8", Time(0.85), Better),
    cell(Tcp2, "bandwidth:1048576", Speed(1.1), Better),
    // Open MPI's windows are shared memory, as both ranks are on one host.
    cell(Tcp2, "put:1048576", Speed(1.1), Mpich),
    cell(Tcp2, "overlap:1048576", Least(0.8), Nothing),
    cell(Tcp2, "exchange100:1048576", Time(1.0), Better),
    cell(Tcp2, "exchange300:1048576", Time(1.0), Better),
    cell(Tcp2, "exchange1000:1048576", Time(1.0), Better),
];

/// Cells that are a whole program each.
const JOBS: [Cell; 11] = [
    cell(Shm2, "is:A", Time(1.0), Better),
    cell(Shm2, "cg:A", Time(1.0), Better),
    cell(Shm4, "is:A", Time(1.0), Better),
    cell(Shm4, "cg:A", Time(1.0), Better),
    cell(Tcp2, "is:A", Time(1.0), Better),
    cell(Tcp2, "cg:A", Time(1.0), Better),
    cell(Tcp4, "is:A", Time(1.0), Better),
    cell(Tcp4, "cg:A", Time(1.0), Better),
    cell(Shm4, "write:256", Time(1.0), Mpich),
    cell(Start, "", Time(1.0), Mpich),
    cell(Idle64, "memory:0", Most(32.0 * 1024.0), Nothing),
];
