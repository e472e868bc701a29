//! [`Options`]: what a job is to be. `nicety mpirun` fills them in from its command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What a job is to be.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The programs in the order of their ranks.
    pub programs: Vec<Program>,
    /// Where ranks may go.
    pub hosts: Hosts,
    /// How other hosts are reached.
    pub reach: Reach,
    /// Which ranks are given standard input.
    pub readers: Readers,
    /// Whether each line of output begins with its rank.
    pub is_tagged: bool,
    /// After so long all ranks are ended, with status 124.
    pub timeout: Option<Duration>,
    /// What ranks are bound to.
    pub bind: Bind,
    /// In which order ranks get cores; only with [`Bind::Core`].
    pub map_by: Option<MapBy>,
    /// Ranks may outnumber the cores without a remark. The variable NICETY_OVERSUBSCRIBE=1 says the same.
    pub may_share_cores: bool,
    /// The device of the ranks' MPI library, by a name that the caller has checked.
    pub device: Option<String>,
    /// What carries messages between ranks.
    pub lane: Option<Lane>,
    /// Which library programs of MPI's standard ABI find.
    pub mpi: MpiLibrary,
    /// Whether ranks are told to leave profiles of their calls.
    pub has_profile: bool,
    /// The version of this program: agents on other hosts must have the same.
    pub version: String,
}

/// A program and its ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// How many ranks, at least one.
    pub ranks: u32,
    /// `NAME=VALUE`, or a name with the value that it has here.
    pub variables: Vec<OsString>,
    /// The directory that ranks start in, seen from this one, which is taken if there is none.
    pub directory: Option<PathBuf>,
    /// The program with its arguments; not empty.
    pub command: Vec<OsString>,
}

/// Where ranks may go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Hosts {
    /// To this host alone.
    #[default]
    Own,
    /// To these, as `HOST` or `HOST:RANKS`.
    Words(Vec<String>),
    /// To those that a file has, a line each.
    File(PathBuf),
}

/// How the agents of other hosts are reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// By these words, a host, and a command for its shell: this program, by the path that it has here.
    Shell(Vec<String>),
    /// Through the server of each host.
    Server {
        /// Its port.
        port: u16,
        /// Options of this program that say where the secret is.
        token: Vec<OsString>,
    },
}

impl Default for Reach {
    /// By ssh, which may ask for nothing.
    fn default() -> Self {
        Self::Shell(["ssh", "-o", "BatchMode=yes"].map(str::to_owned).into())
    }
}

/// Which ranks are given standard input.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readers {
    /// Each of them, all of it.
    All,
    /// None.
    None,
    /// This one.
    Rank(u32),
}

impl Default for Readers {
    /// Rank 0 alone.
    fn default() -> Self {
        Self::Rank(0)
    }
}

/// What carries messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lane {
    /// Connections of the device.
    Verbs,
    /// Portals on the device.
    Portals,
}

impl Lane {
    /// As the MPI library is told.
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
    /// Its share of the host's cores, if there is one for each.
    #[default]
    Share,
    /// One core.
    Core,
    /// Nothing.
    None,
}

/// In which order ranks get cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MapBy {
    /// Neighbours first.
    Core,
    /// Sockets in turn.
    Socket,
    /// None: ranks are not bound to cores.
    None,
}

/// Which library programs of MPI's standard ABI find.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MpiLibrary {
    /// The one beside this program.
    #[default]
    Beside,
    /// Theirs.
    None,
    /// The one in this directory, or in that of this file.
    At(PathBuf),
}
