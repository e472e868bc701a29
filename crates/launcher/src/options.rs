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
    /// The hosts that ranks may run on.
    pub hosts: Hosts,
    /// How agents on other hosts are reached.
    pub connector: Connector,
    /// Which ranks are given standard input.
    pub readers: Readers,
    /// Whether each line of output begins with its rank.
    pub is_tagged: bool,
    /// All ranks are ended after this time, with status 124.
    pub timeout: Option<Duration>,
    /// What ranks are bound to.
    pub bind: Bind,
    /// The order in which ranks are bound to cores; only with [`Bind::Core`].
    pub map_by: Option<MapBy>,
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
    /// How many ranks, at least one.
    pub ranks: u32,
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

/// What a rank is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Bind {
    /// Its share of the host's cores, if there is at least one core for each rank.
    #[default]
    Share,
    /// One core.
    Core,
    /// Nothing.
    None,
}

/// The order in which ranks are bound to cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MapBy {
    /// Adjacent cores first.
    Core,
    /// Round robin over the sockets.
    Socket,
    /// No order: ranks are not bound to cores.
    None,
}

/// The library that programs of MPI's standard ABI are given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MpiLibrary {
    /// The library that was built or installed with this program.
    #[default]
    Bundled,
    /// The library that the programs find themselves.
    None,
    /// The library at this path, which names its file or its directory.
    At(PathBuf),
}
