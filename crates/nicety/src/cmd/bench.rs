//! `nicety bench`: from the command line to a plan, and from the run to the table and the files.

mod file;
mod words;

use bench::launch::{self, BenchError};
use bench::plan::{Plan, PlanError};
use bench::schema::Run;

use crate::args::{BenchArgs, REPORT_FILE, Target};
use crate::error::{FAILED, Failure, OK, Outcome, USAGE, one_line};
use crate::output::{self, Wanted};
use crate::progress::Display;
use crate::signals::Signals;
use crate::term::{Stream, remark};

/// Measures, shows the table and writes the files.
///
/// # Errors
/// A plan that makes no sense, files that cannot be written, a run that failed.
pub(crate) fn run(args: &BenchArgs) -> Outcome {
    if let Some(path) = &args.plan {
        return file::run(path, args);
    }
    let mut plan = plan(args).check_strictly().map_err(refused)?;
    if args.dry_run {
        Stream::Out.print(&words::outline(std::iter::once((None, &plan))))?;
        return Ok(OK);
    }
    plan.token = args.token.read()?;
    let outputs = Outputs::new(args);
    output::check(&outputs.wanted())?;
    let signals = Signals::install()?;
    words::judge(plan.is_virtual());
    words::foretell(&plan);
    let mut display = Display::new(args.plain, &signals.stop);
    let measured = launch::run(&plan, &mut display, &signals.stop).map(words::stamped);
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
            deliver(args, &outputs, &run)?;
            if interrupted.is_some() {
                remark("interrupted: what was measured until then is shown; files of it are named .partial");
            }
            Ok(interrupted.unwrap_or(OK))
        }
        Err(why) => Err(failed(args, &outputs, why, interrupted)),
    }
}

/// A failed run overwrites nothing; what it measured goes to the terminal and to files named `.partial`.
fn failed(args: &BenchArgs, outputs: &Outputs, why: BenchError, interrupted: Option<u8>) -> Failure {
    let mut failure = Failure::run(&why);
    failure.status = interrupted.unwrap_or(FAILED);
    if let Some(run) = why.partial.filter(|run| !run.results.is_empty())
        && let Err(more) = deliver(args, &outputs.partial(), &words::stamped(*run))
    {
        failure.lines.extend(more.lines);
    }
    failure
}

fn plan(args: &BenchArgs) -> Plan {
    Plan {
        experiments: args.experiments.clone(),
        device: args.device.clone().unwrap_or_default(),
        peer: args.peer.clone(),
        sizes: args.size.as_ref().map(|sizes| sizes.0.clone()),
        quick: args.quick,
        seed: args.seed,
        launches: args.launches,
        set: args.set.iter().cloned().collect(),
    }
}

/// All that is wrong, a line each.
fn refused(problems: Vec<PlanError>) -> Failure {
    Failure { lines: problems.iter().map(|problem| one_line(&problem.to_string())).collect(), status: USAGE }
}

/// Where results go besides the terminal.
struct Outputs {
    json: Option<Target>,
    csv: Option<Target>,
    html: Option<Target>,
}

impl Outputs {
    /// As asked for; an overview has a report even so.
    fn new(args: &BenchArgs) -> Self {
        let overview = args.experiments.is_empty();
        let html = args.html.clone().or_else(|| overview.then(|| Target::File(REPORT_FILE.into())));
        Self { json: args.json.clone(), csv: args.csv.clone(), html }
    }

    /// Targets beside the files that were meant.
    fn partial(&self) -> Self {
        let beside = |target: &Option<Target>| output::partial(target.as_ref()?);
        Self { json: beside(&self.json), csv: beside(&self.csv), html: beside(&self.html) }
    }

    fn wanted(&self) -> Vec<Wanted<'_>> {
        let all = [("--json", &self.json), ("--csv", &self.csv), ("--html", &self.html)];
        all.into_iter()
            .filter_map(|(option, target)| Some(Wanted { option, target: target.as_ref()? }))
            .collect()
    }

    /// Where people read: standard error if standard output carries data.
    fn people(&self) -> Stream {
        let taken = self.wanted().iter().any(|wanted| *wanted.target == Target::Stdout);
        if taken { Stream::Err } else { Stream::Out }
    }
}

/// Shows and writes everything; one failure does not keep the rest back.
fn deliver(args: &BenchArgs, outputs: &Outputs, run: &Run) -> Result<(), Failure> {
    let people = outputs.people();
    let mut problems = Vec::new();
    let mut text = report::terminal(run, people.width(), people.colour() && !args.plain);
    let mut written = String::new();
    for wanted in outputs.wanted() {
        match words::content(wanted.option, run).and_then(|text| output::write(wanted, &text)) {
            Ok(()) => written += &words::notice(wanted),
            Err(problem) => problems.extend(problem.lines),
        }
    }
    if !written.is_empty() {
        text += "\n";
        text += &written;
    }
    if let Err(problem) = people.print(&text) {
        problems.extend(problem.lines);
    }
    if problems.is_empty() { Ok(()) } else { Err(Failure { lines: problems, status: FAILED }) }
}
