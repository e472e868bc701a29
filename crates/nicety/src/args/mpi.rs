//! The options of `nicety mpirun`, `nicety mpicc`, `nicety mpicxx`, `nicety mpifort` and `nicety explain mpi`.

mod placement;
mod streams;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use bench::plan::DEFAULT_PORT;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser};
use launcher::{Abi, Transport};

use super::check::MpiCheckArgs;
use super::faults::FaultsArgs;
use super::token::TokenArgs;
use super::trace::RecordArgs;
pub(crate) use placement::PlacementArgs;
use placement::ranks;
pub(crate) use streams::StreamArgs;

/// `nicety mpirun`
#[derive(Debug, Args)]
pub(crate) struct MpirunArgs {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
    /// Like -x, for the ranks of all programs
    #[arg(long, value_name = "VAR[=VALUE]")]
    pub(crate) genv: Vec<OsString>,
    /// Hosts, filled in turn with RANKS ranks each (1 by default), such as a:2,b:2; others than this one are reached by ssh
    #[arg(long, value_name = "HOST[:RANKS][,...]", value_delimiter = ',', conflicts_with = "hostfile")]
    pub(crate) host: Vec<String>,
    /// File with one host per line, as HOST, HOST:RANKS or HOST slots=RANKS max_slots=LIMIT; # begins a comment
    #[arg(long, value_name = "FILE")]
    pub(crate) hostfile: Option<PathBuf>,
    /// Command that reaches another host; the host and a command for its shell are appended
    #[arg(long, value_name = "COMMAND", default_value = "ssh -o BatchMode=yes")]
    pub(crate) rsh: String,
    /// Reach other hosts through the `nicety serve --allow-run` on each of them, instead of ssh; needs its token
    #[arg(long, value_name = "serve[:PORT]", value_parser = port, conflicts_with = "rsh")]
    pub(crate) via: Option<u16>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    #[command(flatten)]
    pub(crate) streams: StreamArgs,
    /// End all ranks after this many seconds, and exit with 124 (or MPIEXEC_TIMEOUT)
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) placement: PlacementArgs,
    /// Device of the MPI library (NICETY_DEVICE; see `nicety devices`); of several, such as shm+iwarp, each pair of ranks uses the first possible one
    #[arg(long, value_name = "DEV[+...]")]
    pub(crate) device: Option<String>,
    /// Message transport: verbs or Portals (NICETY_LANE)
    #[arg(long, value_parser = one_of(TRANSPORTS), value_name = "verbs|portals", hide_possible_values = true)]
    pub(crate) lane: Option<Transport>,
    /// MPI library for programs of the standard ABI, instead of the one installed with this program; none leaves the choice to the program
    #[arg(long = "library", value_name = "PATH|none")]
    pub(crate) mpi_library: Option<PathBuf>,
    /// ABI of the programs, whose library comes first in their search path; by default, libraries of both ABIs come last
    #[arg(long, value_parser = one_of(ABIS), value_name = "standard|mpich", hide_possible_values = true, conflicts_with = "mpi_library")]
    pub(crate) abi: Option<Abi>,
    /// At the end, print the calls, times and messages of the ranks, and write a page to FILE, nicety-profile.html by default
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = PROFILE_FILE)]
    pub(crate) profile: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    #[command(flatten)]
    pub(crate) check: MpiCheckArgs,
    #[command(flatten)]
    pub(crate) faults: FaultsArgs,
    /// Say why calls fail: `off`, `errors` (the first of each kind) or `calls` (all); `:FILE` appends to a file
    #[arg(long, value_name = "WHAT[:FILE]")]
    pub(crate) log: Option<OsString>,
    /// Print what would be started on which host, without starting it
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Run as the agent of this command on another host; started by this command
    #[arg(long, hide = true)]
    pub(crate) agent: bool,
    /// Connect to the agent on another host through the server there; started by this command
    #[arg(long, hide = true, value_name = "HOST:PORT")]
    pub(crate) call: Option<String>,
    /// Kill the ranks if this command is killed; started by this command
    #[arg(long, hide = true)]
    pub(crate) guard: bool,
}

/// One program and its ranks; several are separated by `:`.
#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    /// Number of ranks of this program, 1 by default; -np is the same
    #[arg(short = 'n', value_name = "N", value_parser = ranks, allow_negative_numbers = true)]
    pub(crate) ranks: Option<u32>,
    /// Set an environment variable of these ranks, by default to its value here; ranks on hosts reached by ssh inherit no others
    #[arg(short = 'x', value_name = "VAR[=VALUE]")]
    pub(crate) variables: Vec<OsString>,
    /// Working directory of these ranks, on each host; the current one by default
    #[arg(long, value_name = "DIR")]
    pub(crate) wdir: Option<PathBuf>,
    /// The program with its arguments; after a separate colon, the next program with its own -n, -x and --wdir
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

/// The default page of `--profile`, in the current directory.
const PROFILE_FILE: &str = "nicety-profile.html";

/// The program after a colon.
#[derive(Debug, Parser)]
#[command(name = "nicety mpirun", no_binary_name = true)]
pub(crate) struct NextProgram {
    #[command(flatten)]
    pub(crate) program: ProgramArgs,
}

/// The values of `--abi` and `--lane`.
const ABIS: &[(&str, Abi)] = &[("standard", Abi::Standard), ("mpich", Abi::Mpich)];
const TRANSPORTS: &[(&str, Transport)] = &[("verbs", Transport::Verbs), ("portals", Transport::Portals)];
/// A parser that accepts only these words.
fn one_of<T: Clone + Send + Sync>(words: &'static [(&'static str, T)]) -> impl TypedValueParser<Value = T> {
    let value = |word: String| words.iter().find(|(known, _)| *known == word).map(|(_, value)| value.clone());
    PossibleValuesParser::new(words.iter().map(|(word, _)| *word))
        .try_map(move |word| value(word).ok_or("it is not one of the possible values"))
}

/// Parses `serve` or `serve:PORT`.
fn port(text: &str) -> Result<u16, String> {
    let port = match text.split_once(':') {
        None if text == "serve" => Some(DEFAULT_PORT),
        Some(("serve", port)) => port.parse().ok().filter(|port| *port > 0),
        _ => None,
    };
    port.ok_or_else(|| format!("'{text}' is not serve[:PORT]; write serve, or serve:{DEFAULT_PORT}"))
}

/// Parses a time limit.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let number = text.parse::<f64>().ok().filter(|seconds| *seconds > 0.0);
    number
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("'{text}' is not a number of seconds; write, for example, 90 or 0.5"))
}

pub(crate) const MPIRUN: &str = "\
Runs any program for MPI's standard ABI (`nicety mpicc`, mpicc_abi of MPICH 5), programs linked to \
MPICH's libmpi.so.12, and others that use PMI-1. The MPI libraries that are installed with this program \
are appended to LD_LIBRARY_PATH, so that programs find them.

Lines of different ranks are not mixed. If a rank fails, dies or exits without MPI_Finalize, one line \
names the rank and the reason, and all others end within two seconds, with the processes that they \
started. Ctrl-C, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are forwarded to all ranks; a second Ctrl-C \
kills them.

With --profile, ranks that use the library installed with this program record their calls from \
MPI_Init to MPI_Finalize. In the program, MPI_Pcontrol(0) pauses recording, MPI_Pcontrol(1) resumes \
it, and MPI_Pcontrol(2) discards all records so far.

EXAMPLES
  nicety mpirun -n 4 ./program input.dat          four ranks on this host
  nicety mpirun -n 4 --tag ./program              lines begin with the rank: [2] text
  nicety mpirun -n 2 --device iwarp ./program     over TCP
  nicety mpirun --host a:2,b:2 -n 4 -x OMP_NUM_THREADS=1 ./program
                                                  two ranks on each host, by ssh
  nicety mpirun --host a,b --via serve --token-file token -n 2 ./program
                                                  on hosts that run `nicety serve --allow-run`
  nicety mpirun -n 1 ./master : -n 3 --wdir /tmp ./worker
                                                  two programs, one job
  nicety mpirun -n 4 python3 script.py < input    standard input goes to rank 0
  nicety mpirun -n 4 --profile ./program          prints calls and times; writes nicety-profile.html
  nicety mpirun -n 4 --check ./program            reports wrong uses of MPI, with their places
  nicety mpirun -n 64 --hostfile hosts --dry-run ./program
                                                  prints what would be started on which host

EXIT STATUS
  0    every rank succeeded              124    --timeout has expired
  N    status of the first failed rank   128+S  signal S ended a rank
  1    the job could not be run, or its output could not be written
  2    invalid command line              141    the reader of the output has closed it";

/// `nicety mpicc`, `nicety mpicxx` and `nicety mpifort`
#[derive(Debug, Args)]
pub(crate) struct MpiccArgs {
    /// Print the command line of the compiler, without running it
    #[arg(long, alias = "showme")]
    pub(crate) show: bool,
    /// Arguments for the compiler
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    pub(crate) arguments: Vec<OsString>,
}

pub(super) const MPICC: &str = "\
Calls the compiler that -cc=, $OMPI_CC, $MPICH_CC or $CC names, or cc if none does or it is this command, with the paths of mpi.h and \
libmpi_abi that are installed with this program. The compiled program finds the library at the same \
path, and runs with every MPI library of the standard ABI.

EXAMPLES
  nicety mpicc -O2 -o ring ring.c && nicety mpirun -n 4 ./ring
  nicety mpicc --show -c part.c                   prints the compiler's command line; parts of it by
                                                  -compile-info, -link-info, --showme:incdirs, ...
  CC=clang nicety mpicc -o ring ring.c            another compiler
  ln -s $(command -v nicety) ~/bin/mpicc          for build systems that need a path; links named
                                                  mpicc_abi, mpicxx, mpiCC, mpirun, mpiexec, too";

pub(super) const MPICXX: &str = "\
Like `nicety mpicc`, with -cxx=, $OMPI_CXX, $MPICH_CXX or $CXX, or c++. The interface is that of C.

EXAMPLES
  nicety mpicxx -O2 -o mesh mesh.cc && nicety mpirun -n 4 ./mesh
  CC='nicety mpicc' CXX='nicety mpicxx' ./configure
  ln -s $(command -v nicety) ~/bin/mpicxx         for build systems that need a path, such as CMake";

pub(super) const MPIFORT: &str = "\
Like `nicety mpicc`, with -fc=, $OMPI_FC, $MPICH_FC or $FC, or gfortran, for programs with `use mpi_f08`, `use mpi` or \
include 'mpif.h'. The modules depend on the compiler and its version: they are compiled at the first use of each, into \
$XDG_CACHE_HOME/nicety/fortran or ~/.cache/nicety/fortran, in about two seconds.

EXAMPLES
  nicety mpifort -O2 -o ring ring.f90 && nicety mpirun -n 4 ./ring
  FC='nicety mpifort' ./configure
  ln -s $(command -v nicety) ~/bin/mpifort        for build systems that need a compiler's path, such as CMake; links
                                                  named mpif90 and mpif77 work likewise";

/// `nicety explain mpi`
#[derive(Debug, Default, Args)]
pub(crate) struct ExplainMpiArgs {
    /// For mpi: device, shm by default; of several, such as shm+iwarp, each pair of ranks uses the first possible one
    #[arg(short, long, value_name = "DEV[+...]")]
    pub(crate) device: Option<String>,
    /// For mpi: number of ranks, 4 by default
    #[arg(short = 'n', value_name = "N", value_parser = ranks, allow_negative_numbers = true)]
    pub(crate) ranks: Option<u32>,
    /// For mpi: print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use pmi::mapping::RANKS_MAX;

    use super::*;

    #[test]
    fn option_values_of_mpirun_are_parsed() {
        assert_eq!((ranks("1"), ranks(&RANKS_MAX.to_string())), (Ok(1), Ok(RANKS_MAX)));
        for text in ["", "0", "-1", "x", &(RANKS_MAX + 1).to_string()] {
            assert!(ranks(text).is_err(), "{text}");
        }
        assert_eq!((port("serve"), port("serve:9000")), (Ok(DEFAULT_PORT), Ok(9000)));
        assert!(["", "ssh", "serve:", "serve:0", "serve:65536", ":1"].iter().all(|text| port(text).is_err()));
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["", "0", "-1", "nan", "inf", "1e300", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
