//! What is to be started where: the command line's programs as ranks on hosts, known before anything starts.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pmi::mapping::RANKS_MAX;

use super::hosts::{self, Host};
use super::message::{Binding, Library, Start};
use super::remote::Reach;
use super::{line, program, topology};
use crate::args::{Bind, MapBy, MpirunArgs, ProgramArgs, Readers, Target};
use crate::beside;
use crate::error::Failure;
use crate::output::{self, Wanted};
use crate::quote::shell_words;

/// The variable by which the MPI library is told of its device.
const DEVICE: &str = "NICETY_DEVICE";
/// That by which it is told what carries messages.
const LANE: &str = "NICETY_LANE";
/// That by which it is told that a profile is wanted.
const PROFILE: &str = "NICETY_PROFILE";
/// That by which it is told of the network between hosts.
const NETWORK: &str = "NICETY_NETWORK";
/// That by which mpirun itself is told that ranks may share cores.
const OVERSUBSCRIBE: &str = "NICETY_OVERSUBSCRIBE";
/// The option that wants one.
pub(super) const PROFILE_OPTION: &str = "--profile";

/// A rank to be started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Rank {
    /// The index of its host.
    pub(super) host: usize,
    /// The number of its program.
    pub(super) appnum: u32,
    pub(super) start: Start,
}

/// A job before it starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    /// Those that have ranks.
    pub(super) hosts: Vec<Host>,
    pub(super) ranks: Vec<Rank>,
    pub(super) readers: Readers,
    pub(super) is_tagged: bool,
    /// Ranks may outnumber the cores: nothing is said of it.
    pub(super) may_share_cores: bool,
    pub(super) timeout: Option<Duration>,
    /// Where the page of the ranks' profiles goes, if they are wanted.
    pub(super) profile: Option<Target>,
    /// How another host is reached.
    pub(super) way: Reach,
}

impl Plan {
    /// Of a command line.
    ///
    /// # Errors
    /// What cannot be started, as far as this host can know.
    pub(super) fn new(args: &MpirunArgs) -> Result<Self, Failure> {
        let programs = line::programs(&args.program)?;
        let hosts = match &args.hostfile {
            Some(path) => hosts::of_file(path)?,
            None if args.host.is_empty() => vec![Host { name: hosts::own_name(), slots: 1 }],
            None => hosts::of_words(&args.host)?,
        };
        let all = Common::new(args)?;
        let sizes: Vec<usize> = programs.iter().map(|program| program.ranks.unwrap_or(1) as usize).collect();
        let size = sizes.iter().sum();
        if size > RANKS_MAX as usize {
            return Err(Failure::usage(format!("{size} ranks are too many; start {RANKS_MAX} at most")));
        }
        let mut hosts = merged(hosts);
        let placed = hosts::placed(&hosts, size);
        // Hosts are filled in their order, so those without ranks are the last ones.
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
            readers: args.stdin,
            is_tagged: args.tag,
            may_share_cores: args.oversubscribe
                || std::env::var_os(OVERSUBSCRIBE).is_some_and(|set| set == "1"),
            timeout: args.timeout,
            profile: args.profile.clone().map(Target::File),
            way: way(args)?,
        };
        plan.number();
        plan.check()?;
        Ok(plan)
    }

    /// Tells each rank its place on its host, and what it reads and writes.
    fn number(&mut self) {
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
            rank.start.writes_itself = is_alone && !self.is_tagged;
        }
    }

    /// Whether a host is this one.
    pub(super) fn is_here(&self, host: usize) -> bool {
        hosts::is_here(&self.hosts[host].name)
    }

    /// The network that ranks of several hosts are told to use.
    pub(super) fn network(&self) -> Option<String> {
        let start = &self.ranks.first()?.start;
        let said =
            start.variables.iter().rev().find(|(name, _)| name == NETWORK).map(|(_, value)| value.clone());
        said.or_else(|| std::env::var_os(NETWORK)).and_then(|network| network.into_string().ok())
    }

    /// Refuses what would not start.
    fn check(&self) -> Result<(), Failure> {
        let profile = self.profile.iter().map(|target| Wanted { option: PROFILE_OPTION, target });
        output::check(&profile.collect::<Vec<_>>())?;
        let size = self.ranks.len();
        if let Readers::Rank(reader) = self.readers
            && reader as usize >= size
        {
            return Err(Failure::usage(format!(
                "--stdin {reader}: there are ranks 0 to {} only; name one of them, all or none",
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

    /// A line for each rank, and one for each host that is reached by another program.
    pub(super) fn text(&self) -> String {
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
                Binding::Share => "its share of the cores  ".to_owned(),
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
                let words = self.way.command(&entry.name);
                text += &format!("{} is reached by: {}\n", entry.name, shell_words(&words));
            }
        }
        text
    }
}

/// How other hosts are reached.
fn way(args: &MpirunArgs) -> Result<Reach, Failure> {
    if let Some(port) = args.via {
        let none = "--via serve needs the secret of the servers; give it by --token-file or NICETY_TOKEN";
        args.token.read()?.ok_or_else(|| Failure::usage(none))?;
        return Ok(Reach::Server { port, token: args.token.words() });
    }
    let words: Vec<String> = args.rsh.split_whitespace().map(str::to_owned).collect();
    if words.is_empty() {
        return Err(Failure::usage("--rsh is empty; name a command such as ssh"));
    }
    Ok(Reach::Shell(words))
}

/// What the ranks of all programs have in common.
struct Common {
    bind: Binding,
    mpi: Library,
    variables: Vec<(OsString, OsString)>,
    here: PathBuf,
}

impl Common {
    fn new(args: &MpirunArgs) -> Result<Self, Failure> {
        let bind = match (args.bind, args.map_by) {
            (Bind::None, None | Some(MapBy::None)) => Binding::None,
            (Bind::Share, None) => Binding::Share,
            (Bind::None | Bind::Share, Some(_)) => {
                return Err(Failure::usage("--map-by says in which order ranks are bound; add --bind core"));
            }
            (Bind::Core, Some(MapBy::None)) => {
                return Err(Failure::usage("--bind core needs an order; --map-by core or socket"));
            }
            (Bind::Core, order) => Binding::Core(order.unwrap_or(MapBy::Core)),
        };
        for device in args.device.iter().flat_map(|names| fabric::split(names, '+')) {
            fabric::check(device).map_err(Failure::usage)?;
            if fabric::is_virtual(device) {
                return Err(Failure::usage(format!(
                    "{device} lives in virtual time, where other programs cannot run; take shm or iwarp"
                )));
            }
        }
        let mpi = match &args.mpi_library {
            None => Library::Beside,
            Some(name) if name == Path::new("none") => Library::None,
            Some(path) => Library::In(library(path)?.into()),
        };
        let device = args.device.iter().map(|device| (DEVICE.into(), device.into()));
        let lane = args.lane.iter().map(|lane| (LANE.into(), lane.name().into()));
        let profile = args.profile.iter().map(|_| (PROFILE.into(), "1".into()));
        let variables = device.chain(lane).chain(profile).collect();
        let here = std::env::current_dir()
            .map_err(|why| Failure::usage(format!("this directory cannot be named: {why}; go to another")))?;
        Ok(Self { bind, mpi, variables, here })
    }

    /// A rank of a program.
    fn start(&self, program: &ProgramArgs) -> Result<Start, Failure> {
        let mut variables = self.variables.clone();
        for word in &program.variables {
            variables.push(variable(word)?);
        }
        let directory = program.wdir.as_ref().map_or_else(|| self.here.clone(), |wdir| self.here.join(wdir));
        Ok(Start {
            command: program.command.clone(),
            directory: directory.into(),
            variables,
            bind: self.bind,
            mpi: self.mpi.clone(),
            ..Start::default()
        })
    }
}

/// `NAME=VALUE`, or a name with the value that it has here.
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
            Failure::usage(format!("-x {shown}: it is not set here; write -x {shown}=VALUE"))
        })?,
    };
    Ok((name, value))
}

/// The directory of a library that was named by its file or its directory.
fn library(path: &Path) -> Result<PathBuf, Failure> {
    let directory = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    let found = path.exists() && directory.join(beside::MPI).exists();
    directory.canonicalize().ok().filter(|_| found).ok_or_else(|| {
        Failure::usage(format!(
            "--library {}: no {} is there; name it, its directory, or none",
            path.display(),
            beside::MPI
        ))
    })
}

/// Hosts that are named several times, this one by whatever name, take all their ranks where they are named first.
fn merged(hosts: Vec<Host>) -> Vec<Host> {
    let (own, mut merged, mut known) = (hosts::own_name(), Vec::<Host>::new(), BTreeMap::new());
    for mut host in hosts {
        if hosts::is_here(&host.name) {
            host.name.clone_from(&own);
        }
        let at = *known.entry(host.name.clone()).or_insert(merged.len());
        match merged.get_mut(at) {
            Some(other) => other.slots = other.slots.saturating_add(host.slots),
            None => merged.push(host),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(words: &[&str]) -> Result<Plan, String> {
        Plan::new(&line::parsed(words)).map_err(|failure| failure.lines[0].clone())
    }

    #[test]
    fn ranks_are_numbered_through_all_programs() {
        let words =
            ["--host", "a:2,b,a", "-n", "3", "-x", "A=1", "sh", ":", "-n", "2", "--wdir", "/x", "cat"];
        let plan = plan(&words).expect("a plan");
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
        assert!(text.starts_with("rank 0  a  its share of the cores  cd "), "{text}");
        assert!(
            text.contains("&& A=1 sh\n")
                && text.contains("rank 3  b  its share of the cores  cd /x && cat\n"),
            "{text}"
        );
        assert!(text.contains("b is reached by: ssh -o BatchMode=yes b "), "{text}");
    }

    #[test]
    fn a_rank_alone_writes_by_itself() {
        let alone = |words: &[&str]| plan(words).expect("a plan").ranks[0].start.writes_itself;
        assert!(alone(&["sh"]));
        assert!(!alone(&["--tag", "sh"]) && !alone(&["-n", "2", "sh"]) && !alone(&["--host", "a", "sh"]));
    }

    #[test]
    fn what_cannot_start_is_said_before_anything_does() {
        for (words, hint) in [
            (&["no-such-program-here"][..], "no program no-such-program-here is found in PATH; "),
            (&["-n", "2", "sh", ":", "./missing"], "there is no such file; "),
            (&["--wdir", "/nowhere", "sh"], "the directory /nowhere is not there; "),
            (&["--stdin", "2", "-n", "2", "sh"], "ranks 0 to 1 only; "),
            (&["--map-by", "socket", "sh"], "add --bind core"),
            (&["--bind", "core", "--map-by", "none", "sh"], "needs an order; "),
            (&["-x", "NO_SUCH_VARIABLE_HERE", "sh"], "it is not set here; "),
            (&["-x", "=1", "sh"], "names no variable; "),
            (&["--device", "smh", "sh"], "shm"),
            (&["--device", "model:mt23108-vapi", "sh"], "virtual time"),
            (&["--library", "/nowhere", "sh"], "no libmpi_abi.so.1 is there; "),
            (&["--rsh", " ", "sh"], "--rsh is empty; "),
            (&["--via", "serve", "--token-file", "/nowhere", "sh"], "cannot read the token in /nowhere"),
            (&["--host", "a:0", "sh"], "no number of ranks; "),
            (&["-n", "1048576", "sh", ":", "sh"], "too many; "),
        ] {
            let why = plan(words).expect_err(hint);
            assert!(why.contains(hint), "{words:?}: {why}");
        }
    }

    #[test]
    fn the_device_is_a_variable() {
        assert!(plan(&["--device", "shm+smh", "sh"]).is_err());
        let plan = plan(&["--device", "shm+iwarp", "-x", "NICETY_DEVICE=shm", "sh"]).expect("a plan");
        let values: Vec<_> = plan.ranks[0].start.variables.iter().map(|(_, value)| value.to_str()).collect();
        assert_eq!(values, [Some("shm+iwarp"), Some("shm")], "the later one counts");
    }
}
