//! The command line: all options with their help, and examples for each command.

mod check;
pub(crate) mod fail_if;
mod faults;
pub(crate) mod mpi;
mod target;
mod token;
mod trace;

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use bench::plan::DEFAULT_PORT;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::sizes::{self, Sizes};
pub(crate) use check::{CheckArgs, Level};
use fail_if::Condition;
pub(crate) use faults::FaultsArgs;
pub(crate) use mpi::{ExplainMpiArgs, MpiccArgs, MpirunArgs, NextProgram, ProgramArgs};
pub(crate) use target::Target;
pub(crate) use token::TokenArgs;
pub(crate) use trace::{RecordArgs, TopArgs, TraceArgs};

/// RDMA in software on Linux, with every microsecond accounted for.
#[derive(Debug, Parser)]
#[command(name = "nicety", version, after_help = MORE)]
pub(crate) struct Cli {
    /// The command; without one, `nicety` prints where to start.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

const MORE: &str = "`nicety help COMMAND` explains a command and shows examples.";

/// The commands of `nicety`, with their options.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure this machine or a network; without an experiment an overview, with an HTML report
    Bench(Box<BenchArgs>),
    /// Measure a card, or other devices, by the papers' whole suite in less than 15 minutes, and write one page
    #[command(after_long_help = SURVEY)]
    Survey(Box<SurveyArgs>),
    /// Answer measurements from another machine or terminal (`nicety bench --peer`)
    #[command(after_long_help = SERVE)]
    Serve(ServeArgs),
    /// List the devices, the purpose of each, and whether it works here
    #[command(after_long_help = DEVICES)]
    Devices(DevicesArgs),
    /// Decide whether run B is worse than run A, with an exit status for CI
    #[command(after_long_help = COMPARE)]
    Compare(CompareArgs),
    /// Write an HTML report of result files
    #[command(after_long_help = REPORT)]
    Report(ReportArgs),
    /// Compare the published numbers of five papers with the modelled cards
    #[command(after_long_help = REPRODUCE)]
    Reproduce(ReproduceArgs),
    /// Run an unmodified program for libibverbs, librdmacm or uDAPL on our devices
    #[command(after_long_help = RUN)]
    Run(RunArgs),
    /// Make requests of a running program fail on purpose, or list what its faults did
    #[command(after_long_help = FAULT)]
    Fault(FaultArgs),
    /// Show what a program did: its calls, requests and completions, as recorded by --trace
    #[command(after_long_help = trace::TRACE)]
    Trace(Box<TraceArgs>),
    /// Show live counters of a running program: objects, rates, outstanding requests
    #[command(after_long_help = trace::TOP)]
    Top(TopArgs),
    /// Run an MPI program: start its ranks on this host and others, and end them together
    #[command(after_long_help = mpi::MPIRUN)]
    Mpirun(Box<MpirunArgs>),
    /// Compile a C program for MPI's standard ABI
    #[command(after_long_help = mpi::MPICC)]
    Mpicc(MpiccArgs),
    /// Compile a C++ program for MPI's standard ABI
    #[command(after_long_help = mpi::MPICXX)]
    Mpicxx(MpiccArgs),
    /// Compile a Fortran program for MPI's standard ABI
    #[command(after_long_help = mpi::MPIFORT)]
    Mpifort(MpiccArgs),
    /// Check this machine for what spoils measurements, with a remedy for each problem
    #[command(after_long_help = DOCTOR)]
    Doctor(DoctorArgs),
    /// Explain an experiment: what it measures, how, and how to read it; or how MPI chooses protocols
    #[command(after_long_help = EXPLAIN)]
    Explain(ExplainArgs),
    /// Print a completion script for a shell
    #[command(after_long_help = COMPLETIONS)]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print possible next words; called by the scripts of `completions`
    #[command(hide = true)]
    Complete {
        /// The words after `nicety`; the user is typing the last one
        #[arg(last = true, value_name = "WORD")]
        words: Vec<OsString>,
    },
    /// Write the manual pages; for packages
    #[command(hide = true)]
    Man {
        /// Folder to write to
        folder: PathBuf,
    },
    /// Run as the second process of a measurement; started by `nicety bench`
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
    /// Experiments to run (see `nicety explain`); without one, an overview of all
    #[arg(value_name = "EXPERIMENT")]
    pub(crate) experiments: Vec<String>,
    /// Device to measure (see `nicety devices`), shm by default; several, with commas, are compared
    #[arg(short, long, value_name = "DEV[,DEV...]", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) device: Option<String>,
    /// Host that runs `nicety serve`, to measure against; without it, a second process on this host
    ///
    /// The experiments hotspot, chain and park run several processes; they accept several hosts, with commas, and run one process on each.
    #[arg(long, value_name = "HOST[:PORT][,...]")]
    pub(crate) peer: Option<String>,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    /// For mpi-*: also measure another MPI library of the standard ABI, alternating with ours
    ///
    /// Compiles a C program and runs it with both libraries by `nicety mpirun`. Environment variables configure the other library.
    #[arg(long, value_name = "LIBRARY", conflicts_with = "peer")]
    pub(crate) against: Option<PathBuf>,
    /// Message sizes, such as 8,4K,1M or 1..4M
    ///
    /// Bytes, with an optional K, M or G (powers of 1024). A range such as 1..4M doubles from its start to its end.
    #[arg(short, long, value_name = "LIST", value_parser = sizes::parse, allow_negative_numbers = true)]
    pub(crate) size: Option<Sizes>,
    /// Measure only variants with these levels, such as op=write,op=send,source=host: either op, this source
    #[arg(long, value_name = "FACTOR=LEVEL[,...]", value_delimiter = ',', value_parser = setting)]
    pub(crate) only: Vec<(String, String)>,
    /// For nas-*: problem size, such as S or A; short for --only class=CLASS
    #[arg(long, value_name = "CLASS")]
    pub(crate) class: Option<String>,
    /// For experiments with ranks: number of ranks, such as 2,4; short for --set ranks=LIST
    #[arg(long, value_name = "LIST")]
    pub(crate) ranks: Option<String>,
    /// Measure fewer sizes, variants and launches, in about half a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// Seed for the order of measurements and for the data, 1 by default
    #[arg(long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub(crate) seed: Option<u64>,
    /// Change a parameter, such as window=8; `nicety bench --help` lists them
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<(String, String)>,
    /// How often both processes are started anew; 6 or more give 95 % intervals
    #[arg(long, value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub(crate) launches: Option<u32>,
    /// Exact number of samples of each cell in a launch (sets min-count and max-count)
    #[arg(short = 'n', long, value_name = "N", value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub(crate) iterations: Option<u64>,
    /// Seconds of timed work in total (sets budget)
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
    /// Write the results as JSON; - for standard output, which then contains nothing else
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Target>,
    /// Write the results as CSV, one row each (docs/reference/results-csv.md); - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) csv: Option<Target>,
    /// Write the results for the textfile collector of Prometheus' node exporter; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) prometheus: Option<Target>,
    /// Write the results as a Markdown table, one row each; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) export_markdown: Option<Target>,
    /// Exit with 1 if a result is beyond a limit, such as 'latency.write@8>5us'; may be repeated
    ///
    /// EXPERIMENT with optional .LEVEL and @SIZE, then > or <, then a value with its unit (ns, us, ms, s, kB/s, MB/s, GB/s, /s, k/s, M/s, B, %). The
    /// condition applies to each result of this experiment with these levels and this size. A result fails if its whole 95 % interval is
    /// beyond the limit. If the interval contains the limit, the result is reported as undecided.
    #[arg(long, value_name = "CONDITION")]
    pub(crate) fail_if: Vec<Condition>,
    /// Write an HTML report; without this option, only the overview writes one, nicety-report.html
    #[arg(long, value_name = "FILE|-")]
    pub(crate) html: Option<Target>,
    /// Print plain lines, without colour and live display, as into a file
    #[arg(long)]
    pub(crate) plain: bool,
    /// Configuration file to read instead of ~/.config/nicety/config.toml
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
    /// Measure the parts of a plan file; skips parts already measured
    ///
    /// Writes FILE.PART.json for each part, one report FILE.html, and FILE.journal in the folder of the plan file. After an interruption,
    /// the same command continues from the journal.
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["experiments", "device", "peer", "against", "size", "only", "class", "ranks", "quick", "seed",
        "set", "launches", "iterations", "duration", "interval", "json", "csv", "prometheus", "export_markdown", "fail_if", "html"])]
    pub(crate) plan: Option<PathBuf>,
    /// With --plan: measure all parts again; keeps the old journal as FILE.journal.old
    // `requires` alone would accept --fresh without --plan if an option that conflicts with --plan is given.
    #[arg(long, requires = "plan", conflicts_with_all = ["experiments", "device", "peer", "size", "quick", "seed", "set",
        "launches", "json", "csv", "html"])]
    pub(crate) fresh: bool,
    /// Print what would be measured and how long it takes, without measuring
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// `nicety survey`
#[derive(Debug, Args)]
pub(crate) struct SurveyArgs {
    /// Devices to measure and compare, such as hw:mlx5_0 (see `nicety devices`); the first usable card by default
    #[arg(value_name = "DEV", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) devices: Vec<String>,
    /// Beginning of the names of all files: NAME.toml, NAME.PART.json, NAME.html and NAME.journal
    #[arg(long, value_name = "NAME", default_value = "nicety-survey", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) name: String,
    /// Seconds of timed work in each of the four parts, 60 by default
    #[arg(short = 'D', long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    pub(crate) duration: Option<f64>,
    /// Measure all parts again; keeps the old journal as NAME.journal.old
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Print what would be measured and how long it takes, without measuring
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
    #[command(flatten)]
    pub(crate) shown: Shown,
    /// Print plain lines, without colour and live display, as into a file
    #[arg(long)]
    pub(crate) plain: bool,
    /// Configuration file to read instead of ~/.config/nicety/config.toml
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) config: Option<PathBuf>,
}

const SURVEY: &str = "\
Measures messages, the calls of the interface, what depends on state that a card keeps, and MPI. Writes \
the plan NAME.toml first; after an interruption, the same command continues from the journal. An edited \
plan is measured by `nicety bench --plan NAME.toml`.

EXAMPLES
  nicety survey                           the first usable card; nicety-survey.html
  nicety survey hw:mlx5_0 iwarp --name mlx5
                                          a card beside our iWARP on TCP; mlx5.html
  nicety survey shm -D 5                  without a card, in a minute
  nicety survey --dry-run                 what it measures, and for how long
  nicety compare old.messages.json new.messages.json
                                          two cards, or two versions of a firmware";

/// How results are shown.
#[derive(Debug, Args)]
pub(crate) struct Shown {
    /// Print all tables and findings instead of the first screen
    #[arg(long)]
    pub(crate) full: bool,
    /// Print one line per result instead of the first screen
    #[arg(long, conflicts_with = "full")]
    pub(crate) line: bool,
    /// Print only value and unit of each result
    #[arg(short, long, conflicts_with_all = ["full", "line"])]
    pub(crate) quiet: bool,
    /// Print median, p90, p99 and p99.9 of each result with their bounds; times each operation alone (batch=1)
    #[arg(long, conflicts_with_all = ["full", "line", "quiet"])]
    pub(crate) tail: bool,
    /// Of mpi-...: tables in the form of the OSU micro-benchmarks, for scripts that parse those
    #[arg(long, conflicts_with_all = ["full", "line", "quiet", "tail"])]
    pub(crate) osu: bool,
    /// Leave out the plots of the first screen
    #[arg(long)]
    pub(crate) no_plot: bool,
    /// Also print the choices of devices, and what was not measured and why
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

/// The default report of an overview, in the current directory.
pub(crate) const REPORT_FILE: &str = "nicety-report.html";

/// The end of `nicety bench --help`, after the lists of experiments and parameters.
pub(crate) const BENCH: &str = "\
EXAMPLES
  nicety bench --quick                    the overview in half a minute, and nicety-report.html
  nicety bench                            the overview, with the narrowest intervals
  nicety bench latency --size 8           one experiment, one size
  nicety bench latency --only op=write,source=host,sink=host -s 8 --line
                                          one number, in one line; with -q only value and unit
  nicety bench latency -s 8 --only op=send,source=host,sink=host --tail
                                          its tail latencies
  nicety bench latency bandwidth --size 1..4M --json run.json --html run.html
  nicety bench --quick --device shm,iwarp,model:mt23108-vapi
                                          the same on several devices, compared
  nicety bench bandwidth --set window=8 --set half-width=0.5
  nicety bench bandwidth -s 1M --only op=write,source=host,sink=host --interval 1 -D 20
                                          its rate in each of 20 seconds
  nicety bench latency -s 8 --fail-if 'latency.write>5us' --export-markdown latency.md
                                          a limit for CI, and a table for a comment on a pull request
  nicety bench latency --json - | jq '.results[] | [.size_bytes, .median]'
  nicety bench --device iwarp --peer 10.0.0.2 --token-file token
                                          against a host that runs `nicety serve --listen 0.0.0.0 --token-file token`
  nicety bench hotspot --device iwarp --peer 10.0.0.2,10.0.0.3,10.0.0.4 --token-file token
                                          this host and three others, each of which runs `nicety serve`
  nicety bench --plan survey.toml         a matrix of experiments, devices and sizes
                                          (docs/reference/plan-files.md)

CONFIGURATION (~/.config/nicety/config.toml, or --config FILE; options override it)
  device = \"iwarp\"      instead of shm
  cores = \"2,3\"         cores of client and server
  budget = 60           seconds, except with --quick
  output = \"full\"       or \"screen\", \"line\"
  plot = false

The first Ctrl-C ends both sides and keeps the results so far (exit status 130); a second one ends
the command immediately. Files are written when the run ends; existing files stay until then.
Results of an interrupted or failed run are written to run.partial.json instead of run.json.

EXIT STATUS
  0  measured    1  the run failed, or a result is beyond a limit    2  invalid command line    130  interrupted";

/// `nicety serve`
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Address to listen on; only programs on this host reach the default
    ///
    /// 0.0.0.0 listens on all addresses. Every address but those of the loopback interface requires a token.
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "127.0.0.1", value_parser = listen)]
    pub(crate) listen: SocketAddr,
    /// Serve with this device only, such as iwarp@10.0.0.2; without it, with the device that the client requests
    ///
    /// Useful on a host with several addresses, as the address in a client's --device is the client's own. The options of this device
    /// apply here instead of those of the client.
    #[arg(long, value_name = "DEV")]
    pub(crate) device: Option<String>,
    /// Also run programs for `nicety mpirun --via serve`; requires a token on every address
    #[arg(long)]
    pub(crate) allow_run: bool,
    #[command(flatten)]
    pub(crate) token: TokenArgs,
}

const SERVE: &str = "\
The client sends all settings. Several clients may connect, also at the same time. Ctrl-C ends the \
server.

Holders of the token, or every program on this host if there is none, can let this host measure \
with messages of up to 1 GiB, and connect to addresses that they choose. With --allow-run, holders \
of the token can run any program as the user who started the server. Nothing is encrypted.

EXAMPLES
  nicety serve                            then, in another terminal: nicety bench --peer 127.0.0.1
  (umask 077; openssl rand -hex 16 >token)
                                          creates a secret; copy it to the other host
  nicety serve --listen 0.0.0.0 --token-file token
                                          for other machines: nicety bench --device iwarp --peer THIS-HOST --token-file token
  nicety serve --listen 10.0.0.2 --token-file token --device iwarp@10.0.0.2
                                          with data over this address only
  nicety serve --listen 10.0.0.2 --token-file token --allow-run
                                          also for: nicety mpirun --host 10.0.0.2 --via serve --token-file token
  nicety serve --listen 127.0.0.1:9000    on another port";

/// `nicety run`
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Run a program for uDAPL (DAT 2.0): registers the device with libdat2
    #[arg(long)]
    pub(crate) dat: bool,
    /// Device to run on (see `nicety devices`); repeat it to offer several devices
    #[arg(long = "device", value_name = "DEV", default_value = "shm")]
    pub(crate) devices: Vec<String>,
    #[command(flatten)]
    pub(crate) faults: FaultsArgs,
    #[command(flatten)]
    pub(crate) check: CheckArgs,
    #[command(flatten)]
    pub(crate) record: RecordArgs,
    /// Name of the adapter for the program (with --dat)
    #[arg(long, value_name = "NAME", default_value = "nicety", requires = "dat")]
    pub(crate) ia: String,
    /// Say why calls fail: `off`, `errors` (the first of each kind; the default on a terminal) or `calls` (all); `:FILE` appends to a file
    #[arg(long, value_name = "WHAT[:FILE]")]
    pub(crate) log: Option<OsString>,
    /// Print the variables for a shell to export, instead of running a program
    #[arg(long, conflicts_with_all = ["dat", "command"])]
    pub(crate) print_env: bool,
    /// Present devices as iWARP RNICs instead of RoCE adapters
    #[arg(long, conflicts_with = "dat")]
    pub(crate) rnic: bool,
    /// Path of our library, if it is not installed next to this program
    #[arg(long = "library", value_name = "PATH")]
    pub(crate) provider: Option<PathBuf>,
    /// The program with its arguments
    #[arg(last = true, required_unless_present = "print_env", value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

const RUN: &str = "\
The program loads our libibverbs.so.1 and librdmacm.so.1 instead of others (LD_LIBRARY_PATH). They offer the devices as nicety0, \
nicety1 and so on. They are also preloaded (LD_PRELOAD), so that the paths of such devices in /dev and /sys seem to exist. With \
--dat, the program gets its own dat.conf (DAT_OVERRIDE), in which NAME is the device; this needs libdat2 (Debian: libdapl2). No \
other RDMA software is needed. With --log, or by default on a terminal, each kind of failed call and completion gives one line that says \
what was wrong and what to do (NICETY_LOG). The exit status is that of the program.

EXAMPLES
  nicety run -- ibv_devinfo -v
  nicety run -- ibv_rc_pingpong                                   a server; in another terminal:
  nicety run -- ibv_rc_pingpong localhost
  nicety run --log calls:calls.txt -- ./program                   with a log of all calls
  nicety run --faults rules.toml -- ./program                     whose third write fails, for example
  nicety run --trace put.trace -- ./put                           recorded; then: nicety trace put.trace
  nicety run --check --check-exit 9 -- ./program                  exits with 9 if it uses verbs in a wrong way
  nicety run --rnic -- rping -s                                   on devices that look like iWARP
  eval \"$(nicety run --print-env --device iwarp@10.0.0.1)\"       for all programs of this shell
  nicety run --dat -- dtest -P nicety
  nicety run --dat --device iwarp -- dapltest -T S -D nicety
  nicety run --dat --device iwarp@10.0.0.1 --ia ib0 -- ./program  named as the program expects";

/// `nicety fault`
#[derive(Debug, Args)]
pub(crate) struct FaultArgs {
    /// The process, of the same user, that runs on a device of faults
    #[arg(value_name = "PID")]
    pub(crate) pid: i32,
    /// A rule, such as `on=write nth=3 status=RETRY_EXC_ERR`; `list` for what each rule did; `clear` to end all rules
    #[arg(required = true, value_name = "RULE")]
    pub(crate) rule: Vec<String>,
}

const FAULT: &str = "\
The process was started by `nicety run --faults FILE` or `nicety run --device 'faults(shm)'`. A rule has the keys of the file: on, and one of \
status, error, event, action and delay; also peer, nth, every, probability, times, after and until. They count from now on.

EXAMPLES
  nicety fault 4711 on=write nth=3 status=RETRY_EXC_ERR   the third write from now on fails
  nicety fault 4711 on=reg_mr times=all error=ENOMEM      nothing can be registered any more
  nicety fault 4711 on=time event=PORT_ERR                the port loses its link now
  nicety fault 4711 list                                  what each rule did
  nicety fault 4711 clear                                 ends all rules";

/// `nicety devices`
#[derive(Debug, Args)]
pub(crate) struct DevicesArgs {
    /// Also print the options, limits and choices of each device
    #[arg(short, long)]
    pub(crate) verbose: bool,
    /// Print JSON, including the limits
    #[arg(long)]
    pub(crate) json: bool,
}

const DEVICES: &str = "\
EXAMPLES
  nicety devices                          all devices on one screen
  nicety devices -v                       with options, choices and limits
  nicety devices --json | jq -r '.devices[] | select(.available) | .name'";

/// `nicety report`
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Result files, written by `nicety bench --json`
    #[arg(value_name = "RUN.json", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// File to write the report to; - for standard output
    #[arg(short, long, value_name = "FILE|-", default_value = REPORT_FILE)]
    pub(crate) output: Target,
    /// Print each run on the terminal instead, as `nicety bench` does
    #[arg(long, conflicts_with = "output")]
    pub(crate) text: bool,
    #[command(flatten)]
    pub(crate) shown: Shown,
}

const REPORT: &str = "\
Writes one HTML page with findings, plots, tables and all parameters. The page contains its data and \
needs no network. Several runs are compared with the first, and named by their files.

EXAMPLES
  nicety report run.json                       writes nicety-report.html
  nicety report before.json after.json -o both.html
  nicety report run.json --text                the first screen; also with --full, --line, --tail
  nicety report run.json -o - | gzip > run.html.gz";

/// `nicety reproduce`
#[derive(Debug, Args)]
pub(crate) struct ReproduceArgs {
    /// A paper, one of its experiments, or a row; without it, all papers
    #[arg(value_name = "PAPER[/EXPERIMENT]")]
    pub(crate) what: Option<String>,
    /// Change a value of the modelled cards, such as bus.clock_mhz=100, to see its effect
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    pub(crate) set: Vec<(String, String)>,
    /// Also show the comparisons of the paper on MPI over iWARP (mpi-iwarp) as measured by `cargo xtask peers --paper FILE`
    #[arg(long, value_name = "FILE")]
    pub(crate) real: Option<PathBuf>,
    /// Write the rows as JSON; - for standard output, which then contains nothing else
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Target>,
    /// Write an HTML page with the papers' figures; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) html: Option<Target>,
    /// Print plain lines, without colour and live display, as into a file
    #[arg(long)]
    pub(crate) plain: bool,
}

const REPRODUCE: &str = "\
Runs the experiments of the papers on the modelled cards in virtual time, and compares each published \
row with the computed value. The class of a row depends on the sources of the cards' values that \
affect it:
  predicted      the model does not contain it; only these rows are scored
  fitted         a value of the model was chosen to meet it, or only fitted values decide it
  input          a model input, or a row that only model inputs decide
  repeats        the same number as an earlier row
  undecided      a bound decides it that every result would meet
  not-computed   nothing to compute, or not modelled
Claims without a number are decided by comparing computed numbers; a stated cause is tested by \
changing the part of the machine that it names. An unknown name is answered with a list of names.

EXAMPLES
  nicety reproduce                                   all papers, about two minutes
  nicety reproduce mt23108-nicmem --html paper.html  with the paper's figures
  nicety reproduce mt23108-nicmem/bibw_2port         one experiment
  nicety reproduce NM-054                            one row
  nicety reproduce --set dma.read_latency_ns=700     with a slower bus
  nicety reproduce mpi-iwarp --real FILE --html page.html
                                                     also with the comparisons measured on this machine
  nicety reproduce --json - | jq '.rows[] | select(.class == \"predicted\") | [.id, .ratio]'

EXIT STATUS
  0  computed, whatever the score    2  unknown name or invalid value    130  interrupted";

/// What `nicety doctor` checks, if not the whole machine.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum DoctorTopic {
    /// Real cards: driver, link, GIDs, bus, memory limits
    Hw,
}

/// `nicety doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Check real cards instead of the whole machine
    pub(crate) topic: Option<DoctorTopic>,
    /// Print JSON instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a report of the cards to this file (- for standard output), without names, addresses and serial numbers
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) report: Option<Target>,
}

const DOCTOR: &str = "\
EXAMPLES
  nicety doctor                   every check, with a remedy for those that are not ok
  nicety doctor hw                real cards, as the device hw uses them
  nicety doctor hw --report card.json   what describes the card, without names and addresses, to send to others
  nicety doctor --json | jq -r '.checks[] | select(.state != \"ok\") | .remedy'

EXIT STATUS
  0  no check is bad; warnings make numbers less reliable, but measuring works
  1  a check is bad: some measurements would fail";

/// `nicety explain`
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The experiment, or mpi; without it, a list of all
    #[arg(value_name = "EXPERIMENT|mpi")]
    pub(crate) experiment: Option<String>,
    #[command(flatten)]
    pub(crate) mpi: ExplainMpiArgs,
}

const EXPLAIN: &str = "\
EXAMPLES
  nicety explain                  all experiments, one per line
  nicety explain availability     one experiment: its loop, what affects it, how to read it
  nicety explain mpi              which protocols and algorithms MPI chooses on shm for 4 ranks
  nicety explain mpi -d iwarp -n 64
                                  the same for 64 ranks on another device
  nicety explain mpi --json | jq -r '.collectives[] | select(.collective == \"bcast\") | [.from_bytes, .algorithm]'";

/// `nicety compare`
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Result files of the old run and of the new run; with --baseline only of the new run
    #[arg(value_name = "RUN.json", required = true, num_args = 1..=2)]
    pub(crate) runs: Vec<PathBuf>,
    /// Compare with the run that was saved under this name
    #[arg(long, value_name = "NAME")]
    pub(crate) baseline: Option<String>,
    /// Save the new run under this name, in ~/.local/share/nicety/baselines
    #[arg(long, value_name = "NAME")]
    pub(crate) save_baseline: Option<String>,
    /// Differences up to this share count as equal, such as 5% or 0.05
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = share, allow_hyphen_values = true)]
    pub(crate) threshold: f64,
    /// Exit with 3 if any result is undecided, or in only one file
    #[arg(long)]
    pub(crate) strict: bool,
    /// Also write the comparison as JSON; - for standard output, which then contains nothing else
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json: Option<Target>,
    /// Also write the comparison as JUnit XML, with a test case for each cell; - for standard output
    #[arg(long, value_name = "FILE|-")]
    pub(crate) junit: Option<Target>,
}

const COMPARE: &str = "\
A cell is one experiment, device, variant, size and metric. The effect in a cell is the median of \
all ratios of a launch of B to a launch of A, with its 95 % interval, corrected for the number of \
cells (Benjamini-Hochberg). It may differ from the ratio of the two medians shown.
  worse, better   the whole interval is beyond the threshold, and beyond the drift of either run
                  while the cell was measured
  same            the whole interval is within the threshold
  cannot tell     undecided; more launches would decide it (`nicety bench --launches`)

EXAMPLES
  nicety compare before.json after.json
  nicety compare before.json after.json --threshold 10%
  nicety compare main.json branch.json --strict --json -     in CI
  nicety compare main.json branch.json --junit compare.xml   in CI that shows tests
  nicety compare --save-baseline main main.json              saves a run; later:
  nicety compare --baseline main branch.json

EXIT STATUS
  0  no cell is worse
  1  at least one cell is worse
  2  the files cannot be compared
  3  with --strict: no cell is worse, but one is undecided, or in only one file";

const COMPLETIONS: &str = "\
EXAMPLES
  nicety completions bash > ~/.local/share/bash-completion/completions/nicety
  nicety completions zsh > ~/.zfunc/_nicety
  nicety completions fish > ~/.config/fish/completions/nicety.fish

The script calls the installed `nicety` for each completion, so it never becomes outdated.";

/// Parses `KEY=VALUE`.
fn setting(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => Ok((key.trim().to_owned(), value.trim().to_owned())),
        _ => Err(format!("'{text}' is not KEY=VALUE; write, for example, window=8")),
    }
}

/// Parses a whole number that is not negative.
fn whole<N: FromStr>(text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("'{text}' is not a whole number, or too large; write, for example, 10"))
}

/// Parses seconds, which may have a fraction; the plan checks the range.
fn seconds(text: &str) -> Result<f64, String> {
    text.parse().map_err(|_| format!("'{text}' is not a number of seconds; write, for example, 60 or 0.5"))
}

/// Parses `ADDR[:PORT]` with an address of this machine.
fn listen(text: &str) -> Result<SocketAddr, String> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let with_port = || bare.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, DEFAULT_PORT));
    text.parse().or_else(|_| with_port()).map_err(|_| {
        format!(
            "'{text}' is not an address of this host; write, for example, 0.0.0.0 or 127.0.0.1:{DEFAULT_PORT}"
        )
    })
}

/// Parses a share: `5%`, `5 %` or `0.05`.
fn share(text: &str) -> Result<f64, String> {
    const HOW: &str = "write a share such as 5% or 0.05";
    let number =
        |text: &str| text.trim().parse::<f64>().map_err(|_| format!("'{text}' is not a share; {HOW}"));
    let value = match text.strip_suffix('%') {
        Some(percent) => number(percent)? / 100.0,
        None => number(text)?,
    };
    match value {
        _ if !value.is_finite() || value < 0.0 => Err(format!("'{text}' is not a share; {HOW}")),
        _ if value >= 1.0 && !text.ends_with('%') => {
            Err(format!("'{text}' is 100 % or more; for {text} %, write {text}%"))
        }
        _ => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Goal: help contains examples. Method: every visible command has an EXAMPLES section that begins with its own name.
    #[test]
    fn help_of_every_command_has_examples() {
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
    fn settings_and_addresses_are_parsed() {
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
    fn shares_are_parsed_as_percent_or_fraction() {
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
