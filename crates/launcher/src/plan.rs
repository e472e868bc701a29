//! [`Plan`]: which rank starts on which host, and how; complete before any process starts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pmi::mapping::RANKS_MAX;

use super::hosts::{self, Host};
use super::message::{Binding, Library, ProcessSpec};
use super::{program, topology};
use crate::failure::Failure;
use crate::install_paths;
use crate::options::{Bind, Connector, Hosts, MapBy, MpiLibrary, Options, Program, Readers};
use crate::quote::shell_words;

/// Selects the device of the MPI library.
const DEVICE: &str = "NICETY_DEVICE";
/// Selects the transport of messages.
const TRANSPORT: &str = "NICETY_LANE";
/// Requests a profile from the MPI library.
const PROFILE: &str = "NICETY_PROFILE";
/// Selects the network between hosts.
const NETWORK: &str = "NICETY_NETWORK";
/// Suppresses mpirun's remark about more ranks than cores.
const OVERSUBSCRIBE: &str = "NICETY_OVERSUBSCRIBE";

/// A rank to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rank {
    /// The index of its host.
    pub(super) host: usize,
    /// The application number: the index of its program.
    pub(super) appnum: u32,
    pub(super) start: ProcessSpec,
}

/// A job before its start, with at least one rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Hosts that have ranks.
    pub(super) hosts: Vec<Host>,
    pub(super) ranks: Vec<Rank>,
    pub(super) readers: Readers,
    pub(super) is_tagged: bool,
    /// Suppresses the remark about more ranks than cores.
    pub(super) oversubscribe: bool,
    pub(super) timeout: Option<Duration>,
    /// Ranks write profiles of their calls.
    pub(super) has_profile: bool,
    /// How agents on other hosts are reached.
    pub(super) connector: Connector,
    /// The version of this program, for agents.
    pub(super) version: String,
}

impl Plan {
    /// Places the ranks that these options describe.
    ///
    /// # Errors
    /// If something cannot be started, as far as this host can determine.
    pub fn new(options: &Options) -> Result<Self, Failure> {
        let programs = &options.programs;
        if programs.is_empty()
            || programs.iter().any(|program| program.command.is_empty() || program.ranks == 0)
        {
            return Err(Failure::usage(
                "each program needs a name and at least one rank; see `nicety mpirun --help`",
            ));
        }
        let hosts = match &options.hosts {
            Hosts::File(path) => hosts::read_file(path)?,
            Hosts::Own => vec![Host { name: hosts::own_name(), ranks: 1 }],
            Hosts::Words(words) => hosts::parse_list(words)?,
        };
        let all = CommonSettings::new(options)?;
        let sizes: Vec<usize> = programs.iter().map(|program| program.ranks as usize).collect();
        let size = sizes.iter().sum();
        if size > RANKS_MAX as usize {
            return Err(Failure::usage(format!("{size} ranks are too many; start {RANKS_MAX} at most")));
        }
        let mut hosts = merge_hosts(hosts);
        let placed = hosts::assign_ranks(&hosts, size);
        // Hosts are filled in order, so only the last ones may have no rank.
        hosts.truncate(placed.iter().max().map_or(0, |last| last + 1));
        let mut ranks = Vec::with_capacity(size);
        for (appnum, (program, count)) in (0..).zip(programs.iter().zip(sizes)) {
            let start = all.start(program)?;
            let places = placed.iter().skip(ranks.len()).take(count);
            let of = |&host: &usize| Rank { host, appnum, start: start.clone() };
            ranks.extend(places.map(of).collect::<Vec<_>>());
        }
        let mut plan = Self {
            hosts,
            ranks,
            readers: options.readers,
            is_tagged: options.is_tagged,
            oversubscribe: options.oversubscribe
                || std::env::var_os(OVERSUBSCRIBE).is_some_and(|set| set == "1"),
            timeout: options.timeout,
            has_profile: options.has_profile,
            connector: options.connector.clone(),
            version: options.version.clone(),
        };
        plan.number_ranks();
        plan.check()?;
        Ok(plan)
    }

    /// Sets each rank's place on its host, whether it reads standard input, and whether it writes directly.
    fn number_ranks(&mut self) {
        let mut counts = vec![0; self.hosts.len()];
        for rank in &mut self.ranks {
            rank.start.local_rank = counts[rank.host];
            counts[rank.host] += 1;
        }
        let is_alone = self.ranks.len() == 1 && self.is_here(0);
        for (number, rank) in (0..).zip(&mut self.ranks) {
            rank.start.local_size = counts[rank.host];
            rank.start.reads = match self.readers {
                Readers::All => true,
                Readers::None => false,
                Readers::Rank(reader) => reader == number,
            };
            rank.start.inherits_output = is_alone && !self.is_tagged;
        }
    }

    /// Whether this is the local host.
    pub(super) fn is_here(&self, host: usize) -> bool {
        hosts::is_here(&self.hosts[host].name)
    }

    /// The value of `NICETY_NETWORK` of the ranks, if it is set.
    pub(super) fn network(&self) -> Option<String> {
        let start = &self.ranks.first()?.start;
        let given =
            start.variables.iter().rev().find(|(name, _)| name == NETWORK).map(|(_, value)| value.clone());
        given.or_else(|| std::env::var_os(NETWORK)).and_then(|network| network.into_string().ok())
    }

    /// Rejects what would fail to start.
    fn check(&self) -> Result<(), Failure> {
        let size = self.ranks.len();
        if let Readers::Rank(reader) = self.readers
            && reader as usize >= size
        {
            return Err(Failure::usage(format!(
                "--stdin {reader}: there are only ranks 0 to {}; name one of them, all or none",
                size - 1
            )));
        }
        let mut last = None;
        for rank in self.ranks.iter().filter(|rank| self.is_here(rank.host)) {
            let start = &rank.start;
            if last.replace(rank.appnum) != Some(rank.appnum) {
                let path = start.variables.iter().rev().find(|(name, _)| name == "PATH");
                let path = path.map(|(_, path)| path.clone()).or_else(|| std::env::var_os("PATH"));
                program::find(&start.command[0], Path::new(&start.directory), path)
                    .map_err(Failure::usage)?;
            }
        }
        Ok(())
    }

    /// One line for each rank, and one for each remote host with the command that reaches it.
    #[must_use]
    pub fn text(&self) -> String {
        let width = self.hosts.iter().map(|host| host.name.len()).max().unwrap_or(0);
        let digits = (self.ranks.len() - 1).to_string().len();
        let mut text = String::new();
        for (number, rank) in self.ranks.iter().enumerate() {
            let start = &rank.start;
            let bound = match start.bind {
                Binding::None => String::new(),
                _ if self.is_here(rank.host) => match topology::processors(start) {
                    processors if processors.is_empty() => String::new(),
                    processors => format!("processors {processors:?}  "),
                },
                Binding::Share => "a share of the cores  ".to_owned(),
                Binding::Core(_) => format!("core {}  ", start.local_rank),
            };
            let directory = shell_words([&start.directory]);
            let set = |(name, value): &(OsString, OsString)| {
                format!("{}={} ", name.to_string_lossy(), shell_words([value]))
            };
            let variables: String = start.variables.iter().map(set).collect();
            let (host, command) = (&self.hosts[rank.host].name, shell_words(&start.command));
            text += &format!(
                "rank {number:digits$}  {host:width$}  {bound}cd {directory} && {variables}{command}\n"
            );
        }
        for (host, entry) in self.hosts.iter().enumerate() {
            if !self.is_here(host) {
                let words = self.connector.command(&entry.name);
                text += &format!("{} is reached by: {}\n", entry.name, shell_words(&words));
            }
        }
        text
    }
}

/// The settings common to all ranks.
struct CommonSettings {
    bind: Binding,
    mpi: Library,
    variables: Vec<(OsString, OsString)>,
    here: PathBuf,
}

impl CommonSettings {
    fn new(options: &Options) -> Result<Self, Failure> {
        let bind = match (options.bind, options.map_by) {
            (Bind::None, None | Some(MapBy::None)) => Binding::None,
            (Bind::Share, None) => Binding::Share,
            (Bind::None | Bind::Share, Some(_)) => {
                return Err(Failure::usage("--map-by is the order of --bind core; add --bind core"));
            }
            (Bind::Core, Some(MapBy::None)) => {
                return Err(Failure::usage("--bind core needs an order; write --map-by core or socket"));
            }
            (Bind::Core, order) => Binding::Core(order.unwrap_or(MapBy::Core)),
        };
        let mpi = match &options.mpi {
            MpiLibrary::Bundled => Library::Bundled,
            MpiLibrary::None => Library::None,
            MpiLibrary::At(path) => Library::In(library(path)?.into()),
        };
        let device = options.device.iter().map(|device| (DEVICE.into(), device.into()));
        let transport = options.transport.iter().map(|transport| (TRANSPORT.into(), transport.name().into()));
        let profile = options.has_profile.then(|| (PROFILE.into(), "1".into()));
        let variables = device.chain(transport).chain(profile).collect();
        let here = std::env::current_dir().map_err(|why| {
            Failure::usage(format!("cannot find the path of this directory: {why}; change to another"))
        })?;
        Ok(Self { bind, mpi, variables, here })
    }

    /// The start description of a rank of a program.
    fn start(&self, program: &Program) -> Result<ProcessSpec, Failure> {
        let mut variables = self.variables.clone();
        for word in &program.variables {
            variables.push(variable(word)?);
        }
        let directory = program
            .directory
            .as_ref()
            .map_or_else(|| self.here.clone(), |directory| self.here.join(directory));
        Ok(ProcessSpec {
            command: program.command.clone(),
            directory: directory.into(),
            variables,
            bind: self.bind,
            mpi: self.mpi.clone(),
            ..ProcessSpec::default()
        })
    }
}

/// Parses `NAME=VALUE`, or `NAME` for the value from this environment.
fn variable(word: &OsString) -> Result<(OsString, OsString), Failure> {
    use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
    let bytes = word.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=').unwrap_or(bytes.len());
    let name = OsString::from_vec(bytes[..at].to_vec());
    let shown = word.to_string_lossy();
    if name.is_empty() {
        return Err(Failure::usage(format!("-x {shown} names no variable; write -x NAME=VALUE")));
    }
    let value = match bytes.get(at + 1..) {
        Some(value) => OsString::from_vec(value.to_vec()),
        None => std::env::var_os(&name).ok_or_else(|| {
            Failure::usage(format!("-x {shown}: the variable is not set here; write -x {shown}=VALUE"))
        })?,
    };
    Ok((name, value))
}

/// The directory of a library that is named by its file or its directory.
fn library(path: &Path) -> Result<PathBuf, Failure> {
    let directory = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let found = path.exists() && directory.join(install_paths::MPI_SONAME).exists();
    directory.canonicalize().ok().filter(|_| found).ok_or_else(|| {
        Failure::usage(format!(
            "--library {}: there is no {}; name the library, its directory, or none",
            path.display(),
            install_paths::MPI_SONAME
        ))
    })
}

/// Merges entries of the same host into the first one and adds up their ranks; all names of the local host count as one.
fn merge_hosts(hosts: Vec<Host>) -> Vec<Host> {
    let (own, mut merged, mut known) = (hosts::own_name(), Vec::<Host>::new(), BTreeMap::new());
    for mut host in hosts {
        if hosts::is_here(&host.name) {
            host.name.clone_from(&own);
        }
        let at = *known.entry(host.name.clone()).or_insert(merged.len());
        match merged.get_mut(at) {
            Some(other) => other.ranks = other.ranks.saturating_add(host.ranks),
            None => merged.push(host),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(ranks: u32, command: &[&str]) -> Program {
        let command = command.iter().map(OsString::from).collect();
        Program { ranks, variables: Vec::new(), directory: None, command }
    }

    fn plan(options: &Options) -> Plan {
        Plan::new(options).expect("a plan")
    }

    #[test]
    fn ranks_are_numbered_through_all_programs() {
        let programs = vec![
            Program { variables: vec!["A=1".into()], ..program(3, &["sh"]) },
            Program { directory: Some("/x".into()), ..program(2, &["cat"]) },
        ];
        let hosts = Hosts::Words(["a:2", "b", "a"].map(str::to_owned).into());
        let plan = plan(&Options { programs, hosts, ..Options::default() });
        let shown: Vec<_> = plan
            .ranks
            .iter()
            .map(|rank| (rank.host, rank.appnum, rank.start.local_rank, rank.start.local_size))
            .collect();
        assert_eq!(shown, [(0, 0, 0, 4), (0, 0, 1, 4), (0, 0, 2, 4), (1, 1, 0, 1), (0, 1, 3, 4)]);
        assert_eq!(plan.ranks[0].start.variables, [("A".into(), "1".into())]);
        assert_eq!(
            (plan.ranks[4].start.variables.len(), plan.ranks[4].start.directory.to_str()),
            (0, Some("/x"))
        );
        assert!(plan.ranks[0].start.reads && !plan.ranks[1].start.reads);
        let text = plan.text();
        assert!(text.starts_with("rank 0  a  a share of the cores  cd "), "{text}");
        assert!(
            text.contains("&& A=1 sh\n") && text.contains("rank 3  b  a share of the cores  cd /x && cat\n"),
            "{text}"
        );
        assert!(text.contains("b is reached by: ssh -o BatchMode=yes b "), "{text}");
    }

    #[test]
    fn plan_without_program_or_rank_is_refused() {
        for programs in [vec![], vec![program(1, &[])], vec![program(1, &["sh"]), program(0, &["sh"])]] {
            let why = Plan::new(&Options { programs, ..Options::default() }).expect_err("nothing to start");
            assert!(why.to_string().contains("a name and at least one rank"), "{why}");
        }
    }

    #[test]
    fn single_rank_inherits_the_output_streams() {
        let alone = |ranks, is_tagged, hosts| {
            let options =
                Options { programs: vec![program(ranks, &["sh"])], is_tagged, hosts, ..Options::default() };
            plan(&options).ranks[0].start.inherits_output
        };
        assert!(alone(1, false, Hosts::Own));
        assert!(!alone(1, true, Hosts::Own) && !alone(2, false, Hosts::Own));
        assert!(!alone(1, false, Hosts::Words(vec!["a".to_owned()])));
    }

    #[test]
    fn device_option_is_passed_as_a_variable() {
        let programs = vec![Program { variables: vec!["NICETY_DEVICE=shm".into()], ..program(1, &["sh"]) }];
        let plan = plan(&Options { programs, device: Some("shm+iwarp".to_owned()), ..Options::default() });
        let values: Vec<_> = plan.ranks[0].start.variables.iter().map(|(_, value)| value.to_str()).collect();
        assert_eq!(values, [Some("shm+iwarp"), Some("shm")], "the later one counts");
    }
}
