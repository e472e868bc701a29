//! The command line: all options with their help, and examples for each command.

pub(crate) mod fail_if;
mod mpi;
mod token;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use bench::plan::DEFAULT_PORT;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::sizes::{self, Sizes};
use fail_if::Condition;
pub(crate) use mpi::{ExplainMpiArgs, MpiccArgs, MpirunArgs, NextProgram, ProgramArgs};
pub(crate) use token::TokenArgs;

/// RDMA on any machine, measured so that one can believe the numbers.
#[derive(Debug, Parser)]
#[command(name = "nicety", version, after_help = MORE)]
pub(crate) struct Cli {
    /// What to do; without one, where to start.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const MORE: &str = "`nicety help COMMAND` explains a command and shows examples.";

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure; without an experiment an overview, with a report for the browser
    Bench(Box<BenchArgs>),
    /// Be the other side of measurements from another machine or terminal
    #[command(after_long_help = SERVE)]
    Serve(ServeArgs),
    /// List the devices, what each is for, and whether it works here
    #[command(after_long_help = DEVICES)]
    Devices(DevicesArgs),
    /// Say whether run B is worse than run A, with an exit status for CI
    #[command(after_long_help = COMPARE)]
    Compare(CompareArgs),
    /// Make a report for the browser from result files
    #[command(after_long_help = REPORT)]
    Report(ReportArgs),
    /// Put the papers' published numbers beside the modelled cards
    #[command(after_long_help = REPRODUCE)]
    Reproduce(ReproduceArgs),
    /// Run somebody else's program, built for libibverbs, librdmacm or uDAPL, on our devices
    #[command(after_long_help = RUN)]
    Run(RunArgs),
    /// Run a parallel program: ranks on this host and others, started, served and ended together
    #[command(after_long_help = mpi::MPIRUN)]
    Mpirun(Box<MpirunArgs>),
    /// Compile a C program for MPI's standard ABI
    #[command(after_long_help = mpi::MPICC)]
    Mpicc(MpiccArgs),
    /// Compile a C++ program for MPI's standard ABI
    #[command(after_long_help = mpi::MPICXX)]
    Mpicxx(MpiccArgs),
    /// Check this machine: what would spoil numbers, why, and the remedy
    #[command(after_long_help = DOCTOR)]
    Doctor(DoctorArgs),
    /// Say what an experiment measures, how, what moves it, and how to read it; or how our MPI chooses
    #[command(after_long_help = EXPLAIN)]
    Explain(ExplainArgs),
    /// Print a completion script for a shell
    #[command(after_long_help = COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// What may come next; asked by the scripts of `completions`
    #[command(hide = true)]
    Complete {
        /// The words behind `nicety`, the last of which is being typed
        #[arg(last = true, value_name = "WORD")]
        words: Vec<OsString>,
    },
    /// Write the manual pages; for packages
    #[command(hide = true)]
    Man {
        /// Where to
        folder: PathBuf,
    },
    /// The second process of a measurement; started by `nicety bench`
    #[command(hide = true)]
    Worker,
}

/// The shells with completion scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// `nicety bench`
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure; none for an overview of everything
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiments: Vec<String>,
    /// Device to measure (see `nicety devices`), shm unless configured; several, with commas, are set side by side
    #[arg(short, long, value_name = "DEV[,DEV...]", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) device: Option<String>,
    /// The other side, where `nicety serve` runs; without it a second process of this machine
    ///
    /// Several, with commas, for experiments of several processes: hotspot, chain and park take one on each.
    #[arg(long, value_name = "HOST[:PORT][,...]")]
    pub(crate) peer: Option<String>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// Of mpi-...: another library of MPI's standard ABI, which is measured beside ours, in turn
    ///
    /// A program of C is compiled, and run under both by `nicety mpirun`; its own settings reach the other library as variables of the
    /// environment.
    #[arg(long, value_name = "LIBRARY", conflicts_with = "peer")]
    pub(crate) against: Option<PathBuf>,
    /// Message sizes, such as 8,4K,1M or 1..4M
    ///
    /// Bytes with an optional K, M or G (powers of 1024); a..b doubles from a up to b.
    #[arg(short, long, value_name = "LIST", value_parser = sizes::parse, allow_negative_numbers = true)]
    pub(crate) size: Option<Sizes>,
    /// Only variants with these levels, such as op=write,op=send,source=host: either op, that source
    #[arg(long, value_name = "FACTOR=LEVEL[,...]", value_delimiter = ',', value_parser = setting)]
    pub(crate) only: Vec<(String, String)>,
    /// Of nas-...: how large the problem is, as --only class=CLASS
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<String>,
    /// Of experiments with ranks: how many, as --set ranks=LIST
    #[arg(long, value_name = "LIST")]
    pub(crate) ranks: Option<String>,
    /// Fewer sizes, variants and launches: about half a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seed of the order of measurements and of the data, 1 unless given
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    /// Change a parameter; --help lists them
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<(String, String)>,
    /// Fresh starts of both processes; 6 or more carry a 95 % interval
    #[arg(long, value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub(crate) launches: Option<u32>,
    /// Samples of each cell in a launch, neither fewer nor more (min-count and max-count)
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub(crate) iterations: Option<u64>,
    /// Seconds of timed work in all (budget)
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) duration: Option<f64>,
    /// Print what a stream moves, a line for each interval of SECONDS; one launch of 10 s, unless --launches or -D are given
    ///
    /// For bandwidth, bibw, rate, mpi-bandwidth and others with a rate. Columns: seconds from-to, bytes, MB/s, messages. The result file
    /// has them, too.
    #[arg(short, long, value_name = "SECONDS", value_parser = seconds, conflicts_with = "against")]
    pub(crate) interval: Option<f64>,
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// Write the results as JSON; - for standard output, which then carries nothing else
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Target>,
    /// Write the results as CSV, a row for each (docs/reference/results-csv.md); - as above
    #[arg(long, value_name = "FILE|-")]
    pub(crate) csv: Option<Target>,
    /// Write the results for the textfile collector of Prometheus' node exporter; - as above
    #[arg(long, value_name = "FILE|-")]
    pub(crate) prometheus: Option<Target>,
    /// Write the results as a Markdown table, a row for each; - as above
    #[arg(long, value_name = "FILE|-")]
    pub(crate) export_markdown: Option<Target>,
    /// End with status 1 if a result is beyond a limit, such as 'latency.write@8>5us'; may be given more than once
    ///
    /// An experiment, levels behind dots and a size behind @ where they matter, > or <, and a value with its unit (ns, us, ms, s, kB/s,
    /// MB/s, GB/s, /s, k/s, M/s, B, %). It is about each result with this experiment, these levels and this size. A result is beyond the
    /// limit if its whole 95 % interval is; an interval that contains the limit is reported as undecided.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<Condition>,
    /// Write the report for the browser; the overview writes nicety-report.html anyway
    #[arg(long, value_name = "FILE|-")]
    pub(crate) html: Option<Target>,
    /// No colour and no live display: plain lines, as into a file
    #[arg(long)]
    pub(crate) plain: bool,
    /// Configuration instead of ~/.config/nicety/config.toml
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// Measure what a plan file says; what was measured of it before is not measured again
    ///
    /// Results lie beside it: FILE.PART.json for each part, one page FILE.html, and FILE.journal, by which the same command
    /// goes on after an interruption.
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["experiments", "device", "peer", "against", "size", "only", "class", "ranks", "quick", "seed",
        "set", "launches", "iterations", "duration", "interval", "json", "csv", "prometheus", "export_markdown", "fail_if", "html"])]
    pub(crate) plan: Option<PathBuf>,
    /// With --plan: measure everything again; the old journal is kept as .old
    // `requires` alone would accept --fresh without --plan if an option that conflicts with --plan is given.
    #[arg(long, requires = "plan", conflicts_with_all = ["experiments", "device", "peer", "size", "quick", "seed", "set",
        "launches", "json", "csv", "html"])]
    pub(crate) fresh: bool,
    /// Say what would be measured and how long it takes, and end
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// How results are shown.
#[derive(Debug, Args)]
pub(crate) struct Shown {
    /// All tables and findings instead of the first screen
    #[arg(long)]
    pub(crate) full: bool,
    /// A line for each result instead of the first screen
    #[arg(long, conflicts_with = "full")]
    pub(crate) line: bool,
    /// Nothing but value and unit of each result
    #[arg(short, long, conflicts_with_all = ["full", "line"])]
    pub(crate) quiet: bool,
    /// The median, p90, p99 and p99.9 of each result with their bounds; each operation is timed by itself (batch=1)
    #[arg(long, conflicts_with_all = ["full", "line", "quiet"])]
    pub(crate) tail: bool,
    /// Of mpi-...: tables in the form of the OSU micro-benchmarks, for scripts that parse those
    #[arg(long, conflicts_with_all = ["full", "line", "quiet", "tail"])]
    pub(crate) osu: bool,
    /// No plots on the first screen
    #[arg(long)]
    pub(crate) no_plot: bool,
    /// Also say what devices chose, and what was left out and why
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// The default report of an overview, in the current directory.
pub(crate) const REPORT_FILE: &str = "nicety-report.html";

/// The end of `nicety bench --help`, after the lists of experiments and parameters.
pub(crate) const BENCH: &str = "\
EXAMPLES
  nicety bench --quick                    the overview in half a minute, and nicety-report.html
  nicety bench                            the overview, with intervals as narrow as they get
  nicety bench latency --size 8           one experiment, one size
  nicety bench latency --only op=write,source=host,sink=host -s 8 --line
                                          one number, in a line; with -q nothing but value and unit
  nicety bench latency -s 8 --only op=send,source=host,sink=host --tail
                                          its tail, as far as the samples carry it
  nicety bench latency bandwidth --size 1..4M --json run.json --html run.html
  nicety bench --quick --device shm,iwarp,model:mt23108-vapi
                                          the same on several devices, side by side
  nicety bench bandwidth --set window=8 --set half-width=0.5
  nicety bench bandwidth -s 1M --only op=write,source=host,sink=host --interval 1 -D 20
                                          its rate in each of 20 seconds
  nicety bench latency -s 8 --fail-if 'latency.write>5us' --export-markdown latency.md
                                          a limit for CI, and a table for its comment
  nicety bench latency --json - | jq '.results[] | [.size_bytes, .median]'
  nicety bench --device iwarp --peer 10.0.0.2 --token-file token
                                          where `nicety serve --listen 0.0.0.0 --token-file token` runs
  nicety bench hotspot --device iwarp --peer 10.0.0.2,10.0.0.3,10.0.0.4 --token-file token
                                          this host serves three, in each of which `nicety serve` runs
  nicety bench --plan survey.toml         a matrix of experiments, devices and sizes; docs/reference/plan-files.md

CONFIGURATION (~/.config/nicety/config.toml, or --config FILE; the command line goes before it)
  device = \"iwarp\"      instead of shm
  cores = \"2,3\"         of client and server
  budget = 60           seconds, except with --quick
  output = \"full\"       or \"screen\", \"line\"
  plot = false

Ctrl-C once ends both sides and keeps what was measured (exit status 130); twice ends at once.
Files are written as a whole at the end; one that is already there stays until then. What an
interrupted or failed run measured goes to run.partial.json beside run.json, and so on.

EXIT STATUS
  0  measured    1  the run failed, or a result is beyond a limit    2  the command line cannot be used    130  interrupted";

/// `nicety serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Where to listen; only programs of this machine reach the default
    ///
    /// 0.0.0.0 opens it to the network, which needs a token.
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "127.0.0.1", value_parser = listen)]
    pub(crate) listen: SocketAddr,
    /// The one device to serve with, such as iwarp@10.0.0.2; without it, whatever clients ask for
    ///
    /// For a host with several addresses: the client's own side is none of this host's. Its options here are this
    /// device's, not the client's.
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<String>,
    /// Run programs too, for `nicety mpirun --via serve` of those who have the secret, which is needed then on any address
    #[arg(long)]
    pub(crate) allow_run: bool,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
}

const SERVE: &str = "\
The client sends every parameter, so there is nothing to agree on. Clients may come one after the \
other or at once. Ctrl-C ends it.

Whoever shares the token, and without one every program of this machine, can make this machine \
measure, with messages of up to 1 GiB, and connect to addresses that they name. With --allow-run, \
whoever shares the token can run any program as the user who serves. Nothing is encrypted.

EXAMPLES
  nicety serve                            then, in another terminal: nicety bench --peer 127.0.0.1
  (umask 077; openssl rand -hex 16 >token)
                                          a secret, to be copied to the other machine
  nicety serve --listen 0.0.0.0 --token-file token
                                          for other machines: nicety bench --device iwarp --peer THIS-HOST --token-file token
  nicety serve --listen 10.0.0.2 --token-file token --device iwarp@10.0.0.2
                                          data over that address only
  nicety serve --listen 10.0.0.2 --token-file token --allow-run
                                          also for: nicety mpirun --host 10.0.0.2 --via serve --token-file token
  nicety serve --listen 127.0.0.1:9000    another port";

/// `nicety run`
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The program is built against DAT 2.0: its registry, libdat2, is told of the device
    #[arg(long)]
    pub(crate) dat: bool,
    /// Device to run on (see `nicety devices`); several times for a program that is to see several
    #[arg(long = "device", value_name = "DEV", default_value = "shm")]
    pub(crate) devices: Vec<String>,
    /// What the program calls the adapter (with --dat)
    #[arg(long, value_name = "NAME", default_value = "nicety", requires = "dat")]
    pub(crate) ia: String,
    /// Print what a shell has to export instead, for programs that something else starts
    #[arg(long, conflicts_with_all = ["dat", "command"])]
    pub(crate) print_env: bool,
    /// Devices look like RNICs of iWARP, and not like adapters of RoCE
    #[arg(long, conflicts_with = "dat")]
    pub(crate) rnic: bool,
    /// The library that the program is given, if it is not beside this program
    #[arg(long = "library", value_name = "PATH")]
    pub(crate) provider: Option<PathBuf>,
    /// The program with its arguments
    #[arg(last = true, required_unless_present = "print_env", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const RUN: &str = "\
The program finds our libibverbs.so.1 and librdmacm.so.1 before any others (LD_LIBRARY_PATH), and in them the devices, as \
nicety0, nicety1 and so on; preloaded (LD_PRELOAD), they answer for the paths of such devices, too. With --dat it is given a dat.conf of its own (DAT_OVERRIDE) in which NAME is the device; that needs \
libdat2 (Debian: libdapl2). Neither needs anything else of RDMA. The exit status is that of the program.

EXAMPLES
  nicety run -- ibv_devinfo -v
  nicety run -- ibv_rc_pingpong                                   a server; then, in another terminal:
  nicety run -- ibv_rc_pingpong localhost
  nicety run --rnic -- rping -s                                   as on iWARP hardware
  eval \"$(nicety run --print-env --device iwarp@10.0.0.1)\"       for all that this shell starts
  nicety run --dat -- dtest -P nicety
  nicety run --dat --device iwarp -- dapltest -T S -D nicety
  nicety run --dat --device iwarp@10.0.0.1 --ia ib0 -- ./program  by the name that it expects";

/// `nicety devices`
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Show options, limits, and what each device chose and why
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print JSON, with the limits
    #[arg(long)]
    pub(crate) json: bool,
}

const DEVICES: &str = "\
EXAMPLES
  nicety devices                          what there is, on one screen
  nicety devices -v                       with options, choices and every limit
  nicety devices --json | jq -r '.devices[] | select(.available) | .name'";

/// `nicety report`
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Result files, written by `nicety bench --json`
    #[arg(value_name = "RUN.json", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Where to write the page; - for standard output
    #[arg(short, long, value_name = "FILE|-", default_value = REPORT_FILE)]
    pub(crate) output: Target,
    /// Each run on the terminal instead, as `nicety bench` ends
    #[arg(long, conflicts_with = "output")]
    pub(crate) text: bool,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

const REPORT: &str = "\
One page with findings in words, plots, tables and all parameters. It carries its data and opens \
without a network. Several runs are named by their files, and compared with the first.

EXAMPLES
  nicety report run.json                       writes nicety-report.html
  nicety report before.json after.json -o both.html
  nicety report run.json --text                the first screen; --full, --line, --quiet and --tail as in bench
  nicety report run.json -o - | gzip > run.html.gz";

/// `nicety reproduce`
#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// A paper, one experiment of it, or a row; without it everything that is modelled
    #[arg(value_name = "PAPER[/EXPERIMENT]")]
    pub(crate) what: Option<String>,
    /// Change a value of the modelled cards, such as bus.clock_mhz=100, to see what follows
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<(String, String)>,
    /// Show what the paper on MPI over iWARP compares for real, too: a file of `cargo xtask peers --paper FILE`
    #[arg(long, value_name = "FILE")]
    pub(crate) real: Option<PathBuf>,
    /// Write the rows as JSON; - for standard output, which then carries nothing else
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Target>,
    /// Write a page for the browser, with the papers' figures; - as above
    #[arg(long, value_name = "FILE|-")]
    pub(crate) html: Option<Target>,
    /// No colour and no live display: plain lines, as into a file
    #[arg(long)]
    pub(crate) plain: bool,
}

const REPRODUCE: &str = "\
Every published row of what is modelled, computed by running the same experiments on the modelled \
cards in virtual time. Each row has a class, derived from where the cards' values come from and \
which of them move it:
  predicted      the model knew nothing of it; only these are scored
  fitted         a value was once chosen to meet it, or fitted values alone decide it
  input          a parameter, a constant, or a row that such alone decide
  repeats        the same number as an earlier row's
  undecided      a bound that cannot be missed decides it
  not-computed   it puts nothing in, or is not modelled
Claims without a number are decided by comparisons of measured numbers, stated causes by changing \
the part of the machine that they name. An unknown name is answered with what there is.

EXAMPLES
  nicety reproduce                                   all papers, about two minutes
  nicety reproduce mt23108-nicmem --html paper.html  with the paper's figures
  nicety reproduce mt23108-nicmem/bibw_2port         one experiment
  nicety reproduce NM-054                            one row
  nicety reproduce --set dma.read_latency_ns=700     what if the bus took longer?
  nicety reproduce mpi-iwarp --real FILE --html page.html
                                                     and what the paper compares, for real
  nicety reproduce --json - | jq '.rows[] | select(.class == \"predicted\") | [.id, .ratio]'

EXIT STATUS
  0  computed, whatever the score    2  there is no such name or value    130  interrupted";

/// `nicety doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

const DOCTOR: &str = "\
EXAMPLES
  nicety doctor                   every check, and what to do about those that are not ok
  nicety doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .remedy'

EXIT STATUS
  0  nothing is bad (a warning weakens numbers; measuring works)
  1  something is bad: some measurement would fail";

/// `nicety explain`
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The experiment, or mpi; without it a list of all
    #[arg(value_name = "EXPERIMENT|mpi")]
    pub(crate) experiment: Option<String>,
    #[command(flatten)]
    pub(crate) mpi: ExplainMpiArgs,
}

const EXPLAIN: &str = "\
EXAMPLES
  nicety explain                  every experiment in a line
  nicety explain availability     one of them: the loop, what moves it, how to read it, who else measures it
  nicety explain mpi              which protocol and which algorithm our MPI takes on shm for 4 ranks, and why
  nicety explain mpi -d iwarp -n 64
                                  the same for 64 ranks on another device
  nicety explain mpi --json | jq -r '.collectives[] | select(.collective == \"bcast\") | [.from_bytes, .algorithm]'";

/// `nicety compare`
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Result files of the old run and of the new one; with --baseline the new one only
    #[arg(value_name = "RUN.json", required = true, num_args = 1..=2)]
    pub(crate) runs: Vec<PathBuf>,
    /// The old run is the one that was kept under this name
    #[arg(long, value_name = "NAME")]
    pub(crate) baseline: Option<String>,
    /// Keep the new run under this name, in ~/.local/share/nicety/baselines
    #[arg(long, value_name = "NAME")]
    pub(crate) save_baseline: Option<String>,
    /// Effects within this are no difference (5% or 0.05)
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = share, allow_hyphen_values = true)]
    pub(crate) threshold: f64,
    /// Exit with 3 if something cannot be told, or only one of the files has it
    #[arg(long)]
    pub(crate) strict: bool,
    /// Also write the comparison as JSON; - for standard output, which then carries nothing else
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Target>,
    /// Also write the comparison as JUnit's XML, a test case for each cell; - as above
    #[arg(long, value_name = "FILE|-")]
    pub(crate) junit: Option<Target>,
}

const COMPARE: &str = "\
A cell is one experiment, device, variant, size and metric. The effect in each cell is the \
median of all ratios of a launch of B to a launch of A, with its 95 % interval (so it need not be \
the ratio of the two medians shown), corrected for the number of cells (Benjamini-Hochberg):
  worse, better   the whole interval is beyond the threshold, and beyond what either run drifted by
                  while the cell was measured
  same            the whole interval is within the threshold
  cannot tell     anything else: more launches would tell (--launches of `nicety bench`)

EXAMPLES
  nicety compare before.json after.json
  nicety compare before.json after.json --threshold 10%
  nicety compare main.json branch.json --strict --json -     in CI
  nicety compare main.json branch.json --junit compare.xml   in CI that shows tests
  nicety compare --save-baseline main main.json              keeps a run; later:
  nicety compare --baseline main branch.json

EXIT STATUS
  0  no cell is worse
  1  some cell is worse
  2  the files cannot be compared
  3  with --strict: none is worse, but some cannot be told, or are in one file only";

const COMPLETIONS: &str = "\
EXAMPLES
  nicety completions bash > ~/.local/share/bash-completion/completions/nicety
  nicety completions zsh > ~/.zfunc/_nicety
  nicety completions fish > ~/.config/fish/completions/nicety.fish

The script asks `nicety` itself, so it offers what the installed one has.";

/// A file, or `-` for standard output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Standard output.
    Stdout,
    /// A file, replaced as a whole.
    File(PathBuf),
}

impl From<std::ffi::OsString> for Target {
    fn from(text: std::ffi::OsString) -> Self {
        if text == "-" { Self::Stdout } else { Self::File(text.into()) }
    }
}

impl Target {
    /// The path, unless this is standard output.
    pub(crate) fn file(&self) -> Option<&Path> {
        match self {
            Self::Stdout => None,
            Self::File(path) => Some(path),
        }
    }
}

/// Parses `KEY=VALUE`.
fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("{text:?} is not KEY=VALUE; write for example window=8")),
    }
}

/// Parses a whole number that is not negative.
fn whole<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("{text:?} is no whole number, or too large; write for example 10"))
}

/// Parses seconds, which may have a fraction; the plan checks the range.
fn seconds(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("{text:?} is no number of seconds; write for example 60 or 0.5"))
}

/// Parses `ADDR[:PORT]` with an address of this machine.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let with_port = || bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DEFAULT_PORT));
    text.parse().or_else(|_| with_port()).map_err(|_| {
        format!("{text:?} is not an address of this machine; write for example 0.0.0.0 or 127.0.0.1:{DEFAULT_PORT}")
    })
}

/// Parses a share: `5%`, `5 %` or `0.05`.
fn share(text: &str) -> Result<f64, String> {
    const HOW: &str = "write a share such as 5% or 0.05";
    let number =
        |text: &str| text.trim().parse::<f64>().map_err(|_| format!("{text:?} is not a share; {HOW}"));
    let value = match text.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    match value {
        _ if !value.is_finite() || value < 0.0 => Err(format!("{text} is not a share; {HOW}")),
        _ if value >= 1.0 && !text.ends_with('%') => {
            Err(format!("{text} is 100 % or more; for {text} %, write {text}%"))
        }
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Goal: help contains examples. Method: every visible command has an EXAMPLES section that begins with its own name.
    #[test]
    fn every_command_has_examples() {
        let cli = crate::usage::command();
        for command in cli.get_subcommands().filter(|c| !c.is_hide_set()) {
            let name = command.get_name();
            let help = command.get_after_long_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains(&format!("EXAMPLES\n  nicety {name}")), "{name}: {help}");
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            assert!(!about.is_empty() && !about.contains('\n'), "{name}: {about}");
        }
    }

    #[test]
    fn settings_and_addresses() {
        assert_eq!(setting("window=8"), Ok(("window".to_owned(), "8".to_owned())));
        assert_eq!(setting("a=b=c"), Ok(("a".to_owned(), "b=c".to_owned())));
        assert!(setting("window").is_err() && setting("=8").is_err());
        let at = |text: &str| listen(text).map(|addr| addr.to_string());
        assert_eq!(at("0.0.0.0"), Ok(format!("0.0.0.0:{DEFAULT_PORT}")));
        assert_eq!(at("127.0.0.1:9"), Ok("127.0.0.1:9".to_owned()));
        assert_eq!(at("::1"), Ok(format!("[::1]:{DEFAULT_PORT}")));
        assert_eq!(at("[::1]:9"), Ok("[::1]:9".to_owned()));
        for text in ["", "host", "1.2.3.4:x", "1.2.3.4:70000", ":80"] {
            assert!(listen(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("5 %"), Ok(0.05));
        assert_eq!(share("0.05"), Ok(0.05));
        assert_eq!(share("0"), Ok(0.0));
        assert_eq!(share("150%"), Ok(1.5));
        assert!(share("5").expect_err("ambiguous").contains("write 5%"));
        for text in ["", "x", "%", "-1%", "nan", "inf"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
