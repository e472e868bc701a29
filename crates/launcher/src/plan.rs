//! [`Plan`]: which rank starts on which host, and how; complete before any process starts.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pmi::mapping::RANKS_MAX;

use super::hosts::rankfile::{self, RankPlaces};
use super::hosts::{self, Host};
use super::message::{Binding, Library, ProcessSpec, Turn};
use super::{program, topology};
use crate::failure::Failure;
use crate::install_paths;
use crate::options::{
    Abi, Bind, Connector, Hosts, MapBy, MpiLibrary, Options, Output, Program, RankBy, Readers, Resource,
};
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
    /// Where the output of ranks goes.
    pub(super) output: Output,
    /// Whether a line is printed for each rank about what it is bound to.
    pub(super) reports_bindings: bool,
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
        let is_incomplete = |program: &Program| program.command.is_empty() || program.ranks == Some(0);
        if programs.is_empty() || programs.iter().any(is_incomplete) {
            return Err(Failure::usage(
                "each program needs a name and at least one rank; see `nicety mpirun --help`",
            ));
        }
        let all = CommonSettings::new(options)?;
        let places = options.rankfile.as_deref().map(rankfile::read).transpose()?;
        let (hosts, default) = hosts_and_default_ranks(options, places.as_ref())?;
        let default = if programs.len() == 1 { default } else { 1 };
        let sizes: Vec<usize> =
            programs.iter().map(|program| program.ranks.map_or(default, |ranks| ranks as usize)).collect();
        let size = sizes.iter().fold(0_usize, |sum, size| sum.saturating_add(*size));
        if size > RANKS_MAX as usize {
            return Err(Failure::usage(format!("{size} ranks are too many; start {RANKS_MAX} at most")));
        }
        let (hosts, placed) = match &places {
            Some(places) => place_by_file(hosts, places, size)?,
            None => {
                let placed = place(&hosts, size, options)?;
                (hosts, placed)
            }
        };
        let (hosts, placed) = without_idle_hosts(hosts, &placed);
        let mut ranks = Vec::with_capacity(size);
        for (appnum, (program, count)) in (0..).zip(programs.iter().zip(sizes)) {
            let start = all.start(program)?;
            let places = placed.iter().skip(ranks.len()).take(count);
            let of = |&host: &usize| Rank { host, appnum, start: start.clone() };
            ranks.extend(places.map(of).collect::<Vec<_>>());
        }
        for (number, rank) in (0..).zip(&mut ranks) {
            let place = places.as_ref().and_then(|places| places.get(&number));
            if let Some(place) = place.filter(|place| !place.cores.is_empty()) {
                rank.start.bind = Binding::Cores(place.cores.clone());
            }
        }
        let mut plan = Self {
            hosts,
            ranks,
            readers: options.readers,
            output: options.output.clone(),
            reports_bindings: options.reports_bindings,
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
        let is_plain = self.output == Output { is_copied: self.output.is_copied, ..Output::default() };
        let is_alone = self.ranks.len() == 1 && self.is_here(0);
        for (number, rank) in (0..).zip(&mut self.ranks) {
            rank.start.local_size = counts[rank.host];
            rank.start.notes_calls = self.timeout.is_some();
            rank.start.reads = match self.readers {
                Readers::All => true,
                Readers::None => false,
                Readers::Rank(reader) => reader == number,
            };
            rank.start.inherits_output = is_alone && is_plain;
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
            topology::processors(start).map_err(Failure::usage)?;
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
            let bound = match &start.bind {
                Binding::None => String::new(),
                _ if self.is_here(rank.host) => match topology::processors(start) {
                    Ok(processors) if !processors.is_empty() => {
                        let processors: Vec<u32> =
                            processors.into_iter().map(|number| number as u32).collect();
                        format!("processors {}  ", topology::list_text(&processors))
                    }
                    _ => String::new(),
                },
                Binding::Share => "a share of the cores  ".to_owned(),
                Binding::Turn(turn) => format!("{} {}  ", turn.width, turn.to.name()),
                Binding::Cores(_) => "cores of the rank file  ".to_owned(),
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
        let mpi = match &options.mpi {
            MpiLibrary::Bundled(abi) => bundled(*abi)?,
            MpiLibrary::None => Library::None,
            MpiLibrary::At(path) => Library::In(library(path)?.into()),
        };
        let device = options.device.iter().map(|device| (DEVICE.into(), device.into()));
        let transport = options.transport.iter().map(|transport| (TRANSPORT.into(), transport.name().into()));
        let profile = options.has_profile.then(|| (PROFILE.into(), "1".into()));
        let mut variables: Vec<_> = device.chain(transport).chain(profile).collect();
        for word in &options.variables {
            variables.push(variable(word)?);
        }
        let here = std::env::current_dir().map_err(|why| {
            Failure::usage(format!("cannot find the path of this directory: {why}; change to another"))
        })?;
        Ok(Self { bind: binding(options)?, mpi, variables, here })
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
            bind: self.bind.clone(),
            mpi: self.mpi.clone(),
            ..ProcessSpec::default()
        })
    }
}

/// What ranks are bound to, unless a rank file says it.
fn binding(options: &Options) -> Result<Binding, Failure> {
    let (by, ranks) = match options.map_by {
        Some(MapBy::Resource(by, ranks) | MapBy::PerResource(by, ranks)) => (Some(by), ranks),
        Some(MapBy::Slot | MapBy::Node) | None => (None, 1),
    };
    let turn = |to, by| {
        let width = options.width.unwrap_or(1);
        Ok(Binding::Turn(Turn { to, width, by, ranks }))
    };
    match (options.bind, by) {
        (Some(Bind::None), _) => Ok(Binding::None),
        (Some(Bind::Share), None) | (None, None) if options.width.is_none() => Ok(Binding::Share),
        (Some(Bind::Share), _) => Err(Failure::usage(
            "--bind share has no order and no number of cores; write --bind core, or leave out the other option",
        )),
        (Some(Bind::To(to)), by) => turn(to, by.unwrap_or(to)),
        (None, Some(by)) if options.width.is_none() => turn(by, by),
        (None, by) => turn(Resource::Core, by.unwrap_or(Resource::Core)),
    }
}

/// The hosts, and the number of ranks of a single program that names none.
fn hosts_and_default_ranks(
    options: &Options,
    places: Option<&RankPlaces>,
) -> Result<(Vec<Host>, usize), Failure> {
    let mut hosts = merge_hosts(match &options.hosts {
        Hosts::File(path) => hosts::read_file(path)?,
        Hosts::Own => vec![Host::new(hosts::own_name(), 1)],
        Hosts::Words(words) => hosts::parse_list(words)?,
    });
    let per_host = match options.map_by {
        // The units of other hosts are unknown before their agents start; they count as many as this host has.
        Some(MapBy::PerResource(by, ranks)) => Some(ranks.saturating_mul(topology::count(by))),
        _ => options.per_host,
    };
    for host in &mut hosts {
        host.slots = per_host.unwrap_or(host.slots).min(host.slots_max);
    }
    let default = match (places.and_then(RankPlaces::last_key_value), per_host) {
        (Some((last, _)), _) => *last as usize + 1,
        (None, Some(_)) => hosts.iter().map(|host| host.slots as usize).sum(),
        (None, None) => 1,
    };
    Ok((hosts, default))
}

/// The host of each rank.
fn place(hosts: &[Host], size: usize, options: &Options) -> Result<Vec<usize>, Failure> {
    let placed = hosts::assign_ranks(hosts, size, options.map_by == Some(MapBy::Node))?;
    Ok(match options.rank_by {
        None => placed,
        Some(order) => hosts::renumber(&placed, order == RankBy::Node),
    })
}

/// The hosts, with those of a rank file that the host list lacks, and the host of each rank.
fn place_by_file(
    mut hosts: Vec<Host>,
    places: &RankPlaces,
    size: usize,
) -> Result<(Vec<Host>, Vec<usize>), Failure> {
    let (own, listed) = (hosts::own_name(), hosts.clone());
    let mut placed = Vec::with_capacity(size);
    for rank in 0..size as u32 {
        let place = places.get(&rank).ok_or_else(|| {
            Failure::usage(format!(
                "the rank file has no line for rank {rank}; add one, or start {rank} ranks"
            ))
        })?;
        let name = place.host(&listed)?;
        let name = if hosts::is_here(name) { &own } else { name };
        placed.push(hosts.iter().position(|host| host.name == *name).unwrap_or(hosts.len()));
        if placed.last() == Some(&hosts.len()) {
            hosts.push(Host::new(name, 1));
        }
    }
    Ok((hosts, placed))
}

/// Leaves out the hosts that have no rank.
fn without_idle_hosts(hosts: Vec<Host>, placed: &[usize]) -> (Vec<Host>, Vec<usize>) {
    let used: BTreeSet<usize> = placed.iter().copied().collect();
    let numbers: BTreeMap<usize, usize> = used.iter().copied().zip(0..).collect();
    let hosts = hosts.into_iter().enumerate().filter(|(at, _)| used.contains(at)).map(|(_, host)| host);
    (hosts.collect(), placed.iter().map(|at| numbers[at]).collect())
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

/// The libraries of this program. That of MPICH's ABI must exist if it is asked for.
fn bundled(abi: Abi) -> Result<Library, Failure> {
    if abi == Abi::Mpich && install_paths::mpich_directory(&install_paths::own_directory()?).is_none() {
        return Err(Failure::usage(
            "--abi mpich: there is no libmpi_mpich.so with this program; build abi-mpich",
        ));
    }
    Ok(Library::Bundled(abi))
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
            Some(other) => {
                other.slots = other.slots.saturating_add(host.slots);
                other.slots_max = other.slots_max.saturating_add(host.slots_max);
            }
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
        Program { ranks: Some(ranks), variables: Vec::new(), directory: None, command }
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
        let alone = |ranks, is_tagged: bool, hosts| {
            let output = Output { tag: is_tagged.then(|| "[%r] ".to_owned()), ..Output::default() };
            let options =
                Options { programs: vec![program(ranks, &["sh"])], output, hosts, ..Options::default() };
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

    /// The host, the number on it and the binding of each rank.
    fn shown(options: Options) -> Result<Vec<(String, u32, Binding)>, String> {
        let plan = Plan::new(&options).map_err(|why| why.to_string())?;
        let name = |rank: &Rank| plan.hosts[rank.host].name.clone();
        Ok(plan
            .ranks
            .iter()
            .map(|rank| (name(rank), rank.start.local_rank, rank.start.bind.clone()))
            .collect())
    }

    fn hosts_of(options: Options) -> String {
        let ranks = shown(options).expect("a plan");
        ranks.into_iter().map(|(host, ..)| host).collect::<Vec<_>>().join("")
    }

    fn on(hosts: &[&str], ranks: Option<u32>) -> Options {
        let programs = vec![Program { ranks, ..program(1, &["sh"]) }];
        let hosts = Hosts::Words(hosts.iter().map(|host| (*host).to_owned()).collect());
        Options { programs, hosts, ..Options::default() }
    }

    #[test]
    fn ranks_are_placed_by_slot_by_node_or_so_many_per_host() {
        let by = |map_by, rank_by| Options { map_by, rank_by, ..on(&["a:2", "b:2"], Some(4)) };
        assert_eq!(hosts_of(by(None, None)), "aabb");
        assert_eq!(hosts_of(by(Some(MapBy::Slot), Some(RankBy::Node))), "abab");
        assert_eq!(hosts_of(by(Some(MapBy::Node), None)), "abab");
        assert_eq!(hosts_of(by(Some(MapBy::Node), Some(RankBy::Slot))), "aabb");
        let per_host = |ranks| Options { per_host: Some(3), ..on(&["a", "b:9"], ranks) };
        assert_eq!(hosts_of(per_host(None)), "aaabbb");
        assert_eq!(hosts_of(per_host(Some(4))), "aaab");
        assert_eq!(hosts_of(per_host(Some(7))), "aaabbba", "the hosts are filled again");
        let per_core = Options { map_by: Some(MapBy::PerResource(Resource::Socket, 2)), ..on(&["a"], None) };
        assert_eq!(hosts_of(per_core).len() as u32, 2 * topology::count(Resource::Socket));
    }

    #[test]
    fn binding_follows_from_both_options() {
        let bind = |bind, map_by, width| {
            shown(Options { bind, map_by, width, ..on(&["a"], Some(1)) }).map(|ranks| ranks[0].2.clone())
        };
        let turn = |to, width, by, ranks| Ok(Binding::Turn(Turn { to, width, by, ranks }));
        let (core, socket) = (Resource::Core, Resource::Socket);
        assert_eq!(bind(None, None, None), Ok(Binding::Share));
        assert_eq!(bind(None, Some(MapBy::Slot), None), Ok(Binding::Share));
        assert_eq!(bind(Some(Bind::None), Some(MapBy::Resource(core, 1)), None), Ok(Binding::None));
        assert_eq!(bind(Some(Bind::To(core)), None, None), turn(core, 1, core, 1));
        assert_eq!(
            bind(Some(Bind::To(core)), Some(MapBy::Resource(socket, 1)), None),
            turn(core, 1, socket, 1)
        );
        assert_eq!(bind(None, Some(MapBy::PerResource(socket, 2)), None), turn(socket, 1, socket, 2));
        assert_eq!(bind(None, None, Some(2)), turn(core, 2, core, 1));
        assert_eq!(bind(None, Some(MapBy::Resource(socket, 1)), Some(2)), turn(core, 2, socket, 1));
        let why = bind(Some(Bind::Share), Some(MapBy::Resource(core, 1)), None).expect_err("no order");
        assert!(why.contains("--bind share has no order"), "{why}");
        assert!(bind(Some(Bind::Share), None, Some(2)).is_err());
    }

    #[test]
    fn rank_file_places_ranks() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ranks");
        std::fs::write(&path, "rank 0=c slot=1\nrank 1=+n1\nrank 2=localhost slot=0\n").expect("a file");
        let by_file = |ranks| Options { rankfile: Some(path.clone()), ..on(&["a", "b"], ranks) };
        let ranks = shown(by_file(None)).expect("a plan");
        let (own, bound) = (hosts::own_name(), |at: usize| matches!(ranks[at].2, Binding::Cores(_)));
        let names: Vec<&str> = ranks.iter().map(|(host, ..)| host.as_str()).collect();
        assert_eq!(names, ["c", "b", &own], "hosts without ranks are left out");
        assert_eq!((bound(0), bound(1), bound(2)), (true, false, true));
        let why = shown(by_file(Some(4))).expect_err("three lines");
        assert!(why.contains("no line for rank 3; "), "{why}");
        std::fs::write(&path, "rank 0=localhost slot=100000\n").expect("a file");
        let why = shown(by_file(None)).expect_err("no such core");
        assert!(why.contains("names core 100000, but"), "{why}");
    }
}
