//! The options of `nicety mpirun`, `nicety mpicc`, `nicety mpicxx` and `nicety explain mpi`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bench::plan::DEFAULT_PORT;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser};
use launcher::{Bind, Lane, MapBy, Readers};

use super::token::TokenArgs;

/// `nicety mpirun`
#[derive(Debug, Args)]
pub(crate) struct MpirunArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// Hosts with the ranks that each takes before the next does, 1 unless given; this one is known by name, others by ssh
    #[arg(long, value_name = "HOST[:RANKS][,...]", value_delimiter = ',', conflicts_with = "hostfile")]
    pub(crate) host: Vec<String>,
    /// File with a host in each line, as --host has them, or as HOST slots=RANKS; # begins a remark
    #[arg(long, value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,
    /// How another host is reached: this, the host and a command for its shell
    #[arg(long, value_name = "COMMAND", default_value = "ssh -o BatchMode=yes")]
    pub(crate) rsh: String,
    /// How other hosts are reached instead: by the `nicety serve --allow-run` that runs on each, with the secret that it has
    #[arg(long, value_name = "serve[:PORT]", value_parser = port, conflicts_with = "rsh")]
    pub(crate) via: Option<u16>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// The rank that is given standard input; or all, or none
    #[arg(long, value_name = "RANK|all|none", default_value = "0", value_parser = readers)]
    pub(crate) stdin: Readers,
    /// Begin each line of output with its rank: `[3] text`
    #[arg(long)]
    pub(crate) tag: bool,
    /// End all ranks after so many seconds, with status 124
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    /// What a rank is bound to: its share of the host's cores, if there is one for each; one core, in turn; or nothing
    #[arg(
        long,
        value_parser = one_of(BINDS),
        value_name = "share|core|none",
        default_value = "share",
        hide_possible_values = true
    )]
    pub(crate) bind: Bind,
    /// Ranks may outnumber the cores: nothing is said of it (NICETY_OVERSUBSCRIBE=1 is the same)
    #[arg(long)]
    pub(crate) oversubscribe: bool,
    /// In which order ranks are bound to one core each: neighbours first, or sockets in turn
    #[arg(long, value_parser = one_of(ORDERS), value_name = "core|socket|none", hide_possible_values = true)]
    pub(crate) map_by: Option<MapBy>,
    /// Device that the ranks' MPI library takes (NICETY_DEVICE; see `nicety devices`), or several, of which each pair takes the first
    #[arg(long, value_name = "DEV[+...]")]
    pub(crate) device: Option<String>,
    /// What carries messages between two ranks, and matches them (NICETY_LANE): connections of the device, or Portals on it
    #[arg(long, value_parser = one_of(LANES), value_name = "verbs|portals", hide_possible_values = true)]
    pub(crate) lane: Option<Lane>,
    /// The MPI library for programs of the standard ABI, if not the one beside this program; none leaves it to the program
    #[arg(long = "library", value_name = "PATH|none")]
    pub(crate) mpi_library: Option<PathBuf>,
    /// At the end, say what ranks called, how long that took and whom they sent to; the page goes to FILE, nicety-profile.html unless given
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = PROFILE_FILE)]
    pub(crate) profile: Option<PathBuf>,
    /// Say what would be started where, and end
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// The part of this command on another host; started by it
    #[arg(long, hide = true)]
    pub(crate) agent: bool,
    /// Connects this command with its part on another host through the server there; started by it
    #[arg(long, hide = true, value_name = "HOST:PORT")]
    pub(crate) call: Option<String>,
    /// Ends the ranks if this command is killed; started by it
    #[arg(long, hide = true)]
    pub(crate) guard: bool,
}

/// One program and its ranks; several are separated by `:`.
#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    /// Ranks of this program, 1 unless given; -np is the same
    #[arg(short = 'n', value_name = "N", value_parser = ranks, allow_negative_numbers = true)]
    pub(crate) ranks: Option<u32>,
    /// A variable for these ranks: of this value, or of that which it has here; hosts reached by ssh have no others of here
    #[arg(short = 'x', value_name = "VAR[=VALUE]")]
    pub(crate) variables: Vec<OsString>,
    /// Directory that these ranks start in, on each host; this one unless given
    #[arg(long, value_name = "DIR")]
    pub(crate) wdir: Option<PathBuf>,
    /// The program with its arguments; then, after a colon by itself, the next with its -n, -x and --wdir
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// The default page of `--profile`, in the current directory.
const PROFILE_FILE: &str = "nicety-profile.html";

pub(crate) use pmi::mapping::RANKS_MAX;

/// What stands behind a colon.
#[derive(Debug, Parser)]
#[command(name = "nicety mpirun", no_binary_name = true)]
pub(crate) struct NextProgram {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

/// The values of `--lane`.
const LANES: &[(&str, Lane)] = &[("verbs", Lane::Verbs), ("portals", Lane::Portals)];
/// The values of `--bind`.
const BINDS: &[(&str, Bind)] = &[("share", Bind::Share), ("core", Bind::Core), ("none", Bind::None)];
/// The values of `--map-by`.
const ORDERS: &[(&str, MapBy)] = &[("core", MapBy::Core), ("socket", MapBy::Socket), ("none", MapBy::None)];

/// A parser that accepts only these words.
fn one_of<T: Clone + Send + Sync>(words: &'static [(&'static str, T)]) -> impl TypedValueParser<Value = T> {
    let value = |word: String| words.iter().find(|(known, _)| *known == word).map(|(_, value)| value.clone());
    PossibleValuesParser::new(words.iter().map(|(word, _)| *word))
        .try_map(move |word| value(word).ok_or("it is no word of these"))
}

fn ranks(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=RANKS_MAX).contains(number));
    number.ok_or_else(|| format!("{text:?} is no number of ranks; write 1 to {RANKS_MAX}"))
}

fn readers(text: &str) -> Result<Readers, String> {
    match text {
        "all" => Ok(Readers::All),
        "none" => Ok(Readers::None),
        rank => {
            rank.parse().map(Readers::Rank).map_err(|_| format!("{text:?} is no rank; write 0, all or none"))
        }
    }
}

/// Parses `serve` or `serve:PORT`.
fn port(text: &str) -> Result<u16, String> {
    let port = match text.split_once(':') {
        None if text == "serve" => Some(DEFAULT_PORT),
        Some(("serve", port)) => port.parse().ok().filter(|port| *port > 0),
        _ => None,
    };
    port.ok_or_else(|| format!("{text:?} is no way to a host; write serve, or serve:{DEFAULT_PORT}"))
}

fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    number
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("{text:?} is no number of seconds; write for example 90 or 0.5"))
}

pub(super) const MPIRUN: &str = "\
Any program built against MPI's standard ABI (`nicety mpicc`, mpicc_abi of MPICH 5), and any other \
that speaks PMI-1 to whoever starts it, such as those of MPICH. The library beside this program is \
put behind LD_LIBRARY_PATH, so that a program finds it without being told.

Lines of different ranks are not mixed. When a rank fails, dies or leaves without MPI_Finalize, one \
line says which and how, and all others are ended within two seconds, with the processes that they \
started. Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are passed on to all ranks; a second Ctrl-C \
kills them.

With --profile, ranks that use the library beside this program note their calls from MPI_Init to \
MPI_Finalize. MPI_Pcontrol(0) in the program ceases, MPI_Pcontrol(1) goes on, and MPI_Pcontrol(2) \
forgets what was noted until then.

EXAMPLES
  nicety mpirun -n 4 ./program input.dat          four ranks on this host
  nicety mpirun -n 4 --tag ./program              who says what: [2] text
  nicety mpirun -n 2 --device iwarp ./program     over TCP
  nicety mpirun --host a:2,b:2 -n 4 -x OMP_NUM_THREADS=1 ./program
                                                  two ranks on either host, by ssh
  nicety mpirun --host a,b --via serve --token-file token -n 2 ./program
                                                  where `nicety serve --allow-run` runs
  nicety mpirun -n 1 ./master : -n 3 --wdir /tmp ./worker
                                                  two programs, one job
  nicety mpirun -n 4 python3 script.py < input    standard input goes to rank 0
  nicety mpirun -n 4 --profile ./program          where its time goes: tables, and nicety-profile.html
  nicety mpirun -n 64 --hostfile hosts --dry-run ./program
                                                  what would be started where

EXIT STATUS
  0    every rank ended well             124  --timeout was over
  N    of the first rank that failed     128+S  a rank was ended by signal S
  1    the job could not be run, or its output not be written
  2    the command line cannot be used   141  nobody reads the output any more";

/// `nicety mpicc` and `nicety mpicxx`
#[derive(Debug, Args)]
pub(crate) struct MpiccArgs {
    /// Print the command line of the compiler, and end
    #[arg(long, alias = "showme")]
    pub(crate) show: bool,
    /// What the compiler is given
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<OsString>,
}

pub(super) const MPICC: &str = "\
The compiler is $CC, or cc, also where CC is this command. It is told where mpi.h and libmpi_abi lie, which are looked for beside \
this program; the program will find the library there, too. Such a program runs with every MPI \
library of the standard ABI.

EXAMPLES
  nicety mpicc -O2 -o ring ring.c && nicety mpirun -n 4 ./ring
  nicety mpicc --show -c part.c                   what the compiler would be told
  CC=clang nicety mpicc -o ring ring.c            another compiler
  ln -s $(command -v nicety) ~/bin/mpicc          for what wants a compiler's path: by this name,
                                                  mpicxx, mpirun and mpiexec it is that command";

pub(super) const MPICXX: &str = "\
As `nicety mpicc`, with $CXX, or c++. The interface is that of C.

EXAMPLES
  nicety mpicxx -O2 -o mesh mesh.cc && nicety mpirun -n 4 ./mesh
  CC='nicety mpicc' CXX='nicety mpicxx' ./configure
  ln -s $(command -v nicety) ~/bin/mpicxx         for what wants a compiler's path, such as CMake";

/// `nicety explain mpi`
#[derive(Debug, Default, Args)]
pub(crate) struct ExplainMpiArgs {
    /// Of mpi: the device, shm unless given; or several, of which each pair of ranks takes the first
    #[arg(short, long, value_name = "DEV[+...]")]
    pub(crate) device: Option<String>,
    /// Of mpi: the ranks of the job, 4 unless given
    #[arg(short = 'n', value_name = "N", value_parser = ranks, allow_negative_numbers = true)]
    pub(crate) ranks: Option<u32>,
    /// Of mpi: print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_readers_and_ports() {
        assert_eq!((ranks("1"), ranks(&RANKS_MAX.to_string())), (Ok(1), Ok(RANKS_MAX)));
        for text in ["", "0", "-1", "x", &(RANKS_MAX + 1).to_string()] {
            assert!(ranks(text).is_err(), "{text}");
        }
        assert_eq!((port("serve"), port("serve:9000")), (Ok(DEFAULT_PORT), Ok(9000)));
        assert!(["", "ssh", "serve:", "serve:0", "serve:65536", ":1"].iter().all(|text| port(text).is_err()));
        assert_eq!(readers("all"), Ok(Readers::All));
        assert_eq!(readers("none"), Ok(Readers::None));
        assert_eq!(readers("3"), Ok(Readers::Rank(3)));
        assert!(readers("-1").is_err() && readers("").is_err() && readers("some").is_err());
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "0", "-1", "nan", "inf", "1e300", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
