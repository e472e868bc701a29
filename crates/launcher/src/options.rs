//! [`Options`]: the description of a job. `nicety mpirun` fills them in from its command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The description of a job.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The programs in the order of their ranks.
    pub programs: Vec<Program>,
    /// Variables of the ranks of all programs, as those of [`Program::variables`], which override them.
    pub variables: Vec<OsString>,
    /// The hosts that ranks may run on.
    pub hosts: Hosts,
    /// How agents on other hosts are reached.
    pub connector: Connector,
    /// Which ranks are given standard input.
    pub readers: Readers,
    /// Where the output of ranks goes.
    pub output: Output,
    /// All ranks are ended after this time, with status 124.
    pub timeout: Option<Duration>,
    /// The ranks that each host takes in turn, instead of its slots. Without a number of ranks, every host gets this many.
    pub per_host: Option<u32>,
    /// The order in which ranks are placed.
    pub map_by: Option<MapBy>,
    /// The order in which placed ranks are numbered; as they were placed by default.
    pub rank_by: Option<RankBy>,
    /// A file with the host and the cores of each rank.
    pub rankfile: Option<PathBuf>,
    /// What ranks are bound to; by default what [`Options::map_by`] names, or else their share of the cores.
    pub bind: Option<Bind>,
    /// How many cores, or units of what is named by [`Options::bind`], each rank gets; one by default.
    pub width: Option<u32>,
    /// Whether a line is printed for each rank about what it is bound to.
    pub reports_bindings: bool,
    /// No remark if there are more ranks than cores. The variable NICETY_OVERSUBSCRIBE=1 has the same effect.
    pub oversubscribe: bool,
    /// The device of the ranks' MPI library, by a name that the caller has checked.
    pub device: Option<String>,
    /// The transport of messages between ranks.
    pub transport: Option<Transport>,
    /// The library that programs of MPI's standard ABI are given.
    pub mpi: MpiLibrary,
    /// Whether ranks write profiles of their calls.
    pub has_profile: bool,
    /// The version of this program: agents on other hosts must have the same.
    pub version: String,
}

/// A program and its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// How many ranks, at least one; by default one, or as many as the placement asks for.
    pub ranks: Option<u32>,
    /// `NAME=VALUE`, or `NAME` for the value from this environment.
    pub variables: Vec<OsString>,
    /// The working directory of its ranks, relative to the current one, which is the default.
    pub directory: Option<PathBuf>,
    /// The program with its arguments; not empty.
    pub command: Vec<OsString>,
}

/// The hosts that ranks may run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    /// This host only.
    #[default]
    Own,
    /// These hosts, as `HOST` or `HOST:RANKS`.
    Words(Vec<String>),
    /// The hosts listed in a file, one per line.
    File(PathBuf),
}

/// How the agents of other hosts are reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Connector {
    /// By a command: these words, the host, and a command for its shell, which starts this program by its path on this host.
    Shell(Vec<String>),
    /// Through the server of each host.
    Server {
        /// Its port.
        port: u16,
        /// Options of this program that name the secret.
        token: Vec<OsString>,
    },
}

impl Default for Connector {
    /// By ssh in batch mode, which never prompts.
    fn default() -> Self {
        Self::Shell(["ssh", "-o", "BatchMode=yes"].map(str::to_owned).into())
    }
}

/// Which ranks are given standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readers {
    /// Each rank gets all of it.
    All,
    /// No rank.
    None,
    /// One rank.
    Rank(u32),
}

impl Default for Readers {
    /// Rank 0 alone.
    fn default() -> Self {
        Self::Rank(0)
    }
}

/// The transport of messages between ranks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// Verbs: connections of the device.
    Verbs,
    /// Portals 4 on the device.
    Portals,
}

impl Transport {
    /// The value of `NICETY_LANE`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Verbs => "verbs",
            Self::Portals => "portals",
        }
    }
}

/// Where the output of ranks goes: to mpirun's own streams, unless a file is named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// What each line begins with; see [`Output::FIELDS`].
    pub tag: Option<String>,
    /// The files for standard output, with fields as in the tag; folders are created.
    pub out_file: Option<String>,
    /// The files for standard error.
    pub err_file: Option<String>,
    /// Whether output in files is printed, too.
    pub is_copied: bool,
    /// Whether standard error of ranks goes where their standard output goes.
    pub merges_errors: bool,
}

impl Output {
    /// The fields of tags and file names.
    pub const FIELDS: &str = "%r rank, %R rank with leading zeros, %h host, %p number of the host, %g number of the job, \
                              %t seconds since 1970, %% a percent sign";
}

/// What a rank is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bind {
    /// Its share of the host's cores, if there is at least one core for each rank.
    Share,
    /// One or several units of this resource.
    To(Resource),
    /// Nothing.
    None,
}

/// A part of a host, from the smallest to the largest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Resource {
    /// A hardware thread.
    Thread,
    /// A core.
    Core,
    /// The cores next to one memory.
    Numa,
    /// A socket.
    Socket,
}

impl Resource {
    /// All resources, from the smallest to the largest.
    pub const ALL: [Self; 4] = [Self::Thread, Self::Core, Self::Numa, Self::Socket];

    /// The name in options.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Thread => "hwthread",
            Self::Core => "core",
            Self::Numa => "numa",
            Self::Socket => "socket",
        }
    }
}

/// The order in which ranks are placed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapBy {
    /// Each host is filled in turn.
    Slot,
    /// One rank on each host, then the next on each.
    Node,
    /// Each host is filled in turn; on it, the units of the resource take this many ranks (usually one) in turn.
    Resource(Resource, u32),
    /// As `Resource`, and each host takes as many ranks as its units do.
    PerResource(Resource, u32),
}

/// The order in which placed ranks are numbered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RankBy {
    /// All ranks of a host, then those of the next.
    Slot,
    /// One rank of each host, then the next of each.
    Node,
}

/// The ABI of MPI programs, for which libraries are on their search path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Abi {
    /// Each that there is a library for, after the user's own directories.
    #[default]
    Any,
    /// The standard's only.
    Standard,
    /// MPICH's, before the user's own directories.
    Mpich,
}

/// The library that MPI programs are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MpiLibrary {
    /// The libraries that were built or installed with this program.
    Bundled(Abi),
    /// The library that the programs find themselves.
    None,
    /// The library of the standard ABI at this path, which names its file or its directory.
    At(PathBuf),
}

impl Default for MpiLibrary {
    fn default() -> Self {
        Self::Bundled(Abi::default())
    }
}
