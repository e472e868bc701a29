//! `nicety bench`: builds a plan from the command line, runs it, and writes tables and files.

mod against;
mod file;
mod words;

pub(crate) use file::{PlanOptions, run_plan};

use std::collections::BTreeMap;

use bench::launch::{self, BenchError};
use bench::plan::{Only, Plan, PlanError};
use results::schema::Run;
use results::variant::factor;

use super::shown::{self, Form};
use crate::args::fail_if;
use crate::args::{BenchArgs, REPORT_FILE, Target};
use crate::config::Config;
use crate::error::{FAILED, Failure, OK, Outcome, USAGE};
use crate::output::{self, Wanted};
use crate::progress::Display;
use crate::signals::Signals;
use crate::term::{Stream, remark};

/// Why `--osu` is refused.
const OSU: &str =
    "--osu has tables of MPI only; name mpi-latency, mpi-bandwidth, mpi-allreduce or others of mpi-...";
/// The budget of a run with `--interval`.
const WATCHED_SECONDS: &str = "10";

/// Measures, prints the results and writes the files.
///
/// # Errors
/// An invalid plan, files that cannot be written, or a failed run.
pub(crate) fn run(args: &BenchArgs) -> Outcome {
    if let Some(path) = &args.plan {
        return file::run(path, args);
    }
    let config = Config::read(args.config.as_deref())?;
    let mut plan = plan(args, &config).check_strictly().map_err(refused)?;
    fail_if::check(&args.fail_if, &plan)?;
    if args.shown.osu
        && plan.cells.iter().any(|cell| !cell.experiment.starts_with("mpi-") && cell.experiment != "floor")
    {
        return Err(Failure::usage(OSU));
    }
    if args.dry_run {
        Stream::Out.print(&words::outline(std::iter::once((None, &plan))))?;
        return Ok(OK);
    }
    plan.token = args.token.read()?;
    let built = args.against.as_deref().map(against::build).transpose()?;
    plan.against = built.as_ref().map(|built| built.against.clone());
    let outputs = Outputs::new(args);
    let form = Form::of(&args.shown, &config);
    output::check(&outputs.wanted())?;
    let signals = Signals::install()?;
    words::judge(plan.is_virtual());
    words::foretell(&plan);
    let moved = (!form.is_data()).then(|| outputs.people());
    let mut display =
        Display::new(args.plain, &signals.stop).verbose(args.shown.verbose).with_intervals_on(moved);
    display = display.expecting(&plan);
    let measured = launch::run(&plan, &mut display, &signals.stop).map(words::with_commit);
    display.clear();
    let interrupted = signals.status();
    match measured {
        Ok(run) if run.results.is_empty() => Err(Failure {
            status: interrupted.unwrap_or(FAILED),
            ..Failure::run(
                "nothing was measured, so nothing was written; `nicety bench` again, or see the remarks above",
            )
        }),
        Ok(run) => {
            let outputs = if interrupted.is_some() { outputs.partial() } else { outputs };
            deliver(args, form, &outputs, &run)?;
            if interrupted.is_some() {
                remark("interrupted: what was measured until then is shown; files of it are named .partial");
            }
            interrupted.map_or_else(|| thresholds(&args.fail_if, &run), Ok)
        }
        Err(why) => Err(failed(args, form, &outputs, why, interrupted)),
    }
}

/// The status of a run that was measured: whether its results stay within the limits of `--fail-if`.
fn thresholds(conditions: &[fail_if::Condition], run: &Run) -> Outcome {
    let (fails, undecided) = fail_if::judge(conditions, run);
    undecided.iter().for_each(remark);
    if fails.is_empty() { Ok(OK) } else { Err(Failure { lines: fails, status: FAILED }) }
}

/// Handles a failed run: files are not overwritten; partial results go to the terminal and to files named `.partial`.
fn failed(
    args: &BenchArgs,
    form: Form,
    outputs: &Outputs,
    why: BenchError,
    interrupted: Option<u8>,
) -> Failure {
    let mut failure = Failure::run(&why);
    failure.status = interrupted.unwrap_or(FAILED);
    if let Some(run) = why.partial.filter(|run| !run.results.is_empty())
        && let Err(more) = deliver(args, form, &outputs.partial(), &words::with_commit(*run))
    {
        failure.lines.extend(more.lines);
    }
    failure
}

/// The plan that options and configuration describe.
fn plan(args: &BenchArgs, config: &Config) -> Plan {
    let device = args.device.as_ref().or(config.device.as_ref());
    Plan {
        experiments: args.experiments.clone(),
        device: device.cloned().unwrap_or_default(),
        peer: args.peer.clone(),
        sizes: args.size.as_ref().map(|sizes| sizes.0.clone()),
        quick: args.quick,
        seed: args.seed,
        launches: args.launches,
        against: args.against.clone(),
        set: settings(args, config),
        only: only(args),
    }
}

/// The selected levels of each factor; other variants are not measured.
fn only(args: &BenchArgs) -> Only {
    let class = args.class.iter().map(|class| (factor::CLASS.name().to_owned(), class.clone()));
    args.only.iter().cloned().chain(class).collect()
}

/// Parameters by increasing precedence: the configuration, options, then `--set`.
fn settings(args: &BenchArgs, config: &Config) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut set = |key: &str, value: Option<String>| all.extend(value.map(|value| (key.to_owned(), value)));
    set("cores", config.cores.clone());
    // The configured budget would make a quick run slow.
    set("budget", config.budget.filter(|_| !args.quick).map(|seconds| seconds.to_string()));
    set("batch", args.shown.tail.then(|| "1".to_owned()));
    set("min-count", args.iterations.map(|n| n.to_string()));
    set("max-count", args.iterations.map(|n| n.to_string()));
    if let Some(seconds) = args.interval {
        set("interval", Some(seconds.to_string()));
        set("launches", Some("1".to_owned()));
        set("budget", Some(WATCHED_SECONDS.to_owned()));
    }
    set("budget", args.duration.map(|seconds| seconds.to_string()));
    set(factor::RANKS.name(), args.ranks.clone());
    all.extend(args.set.iter().cloned());
    all
}

/// All problems, one line each.
fn refused(problems: Vec<PlanError>) -> Failure {
    Failure {
        lines: problems.into_iter().flat_map(|problem| Failure::usage(problem).lines).collect(),
        status: USAGE,
    }
}

/// The destinations of results other than the terminal.
struct Outputs {
    json: Option<Target>,
    csv: Option<Target>,
    prometheus: Option<Target>,
    markdown: Option<Target>,
    html: Option<Target>,
}

impl Outputs {
    /// From the options; an overview always writes a report.
    fn new(args: &BenchArgs) -> Self {
        let overview = args.experiments.is_empty();
        let html = args.html.clone().or_else(|| overview.then(|| Target::File(REPORT_FILE.into())));
        let [json, csv, prometheus, markdown] =
            [&args.json, &args.csv, &args.prometheus, &args.export_markdown].map(Clone::clone);
        Self { json, csv, prometheus, markdown, html }
    }

    /// The destinations of partial results, next to the requested files.
    fn partial(&self) -> Self {
        let beside = |target: &Option<Target>| output::partial(target.as_ref()?);
        Self {
            json: beside(&self.json),
            csv: beside(&self.csv),
            prometheus: beside(&self.prometheus),
            markdown: beside(&self.markdown),
            html: beside(&self.html),
        }
    }

    /// The files that options request.
    fn wanted(&self) -> Vec<Wanted<'_>> {
        let all = [
            ("--json", &self.json),
            ("--csv", &self.csv),
            ("--prometheus", &self.prometheus),
            ("--export-markdown", &self.markdown),
            ("--html", &self.html),
        ];
        all.into_iter()
            .filter_map(|(option, target)| Some(Wanted { option, target: target.as_ref()? }))
            .collect()
    }

    /// The stream for text: standard error if standard output carries data.
    fn people(&self) -> Stream {
        let taken = self.wanted().iter().any(|wanted| *wanted.target == Target::Stdout);
        if taken { Stream::Err } else { Stream::Out }
    }
}

/// Prints and writes all results; after a failure, the remaining outputs are still written.
fn deliver(args: &BenchArgs, form: Form, outputs: &Outputs, run: &Run) -> Result<(), Failure> {
    let people = outputs.people();
    let mut problems = Vec::new();
    let mut written = String::new();
    for wanted in outputs.wanted() {
        match words::content(wanted.option, run).and_then(|text| output::write(wanted, &text)) {
            Ok(()) => written += &words::notice(wanted),
            Err(problem) => problems.extend(problem.lines),
        }
    }
    // Data is not followed by anything. Otherwise the list of files follows an empty line.
    if form.is_data() {
        written.clear();
    } else if !written.is_empty() {
        written.insert(0, '\n');
    }
    let text = shown::text(run, form, (people, args.plain), written.lines().count()) + &written;
    if let Err(problem) = people.print(&text) {
        problems.extend(problem.lines);
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure { lines: problems, status: FAILED }) }
}
