//! `nicety bench --plan`: measures the parts of a plan file one after the other, and saves each result immediately.

use std::path::{Path, PathBuf};

use bench::launch::{self, Found, Journal, JournalError, WorkerCommand};
use bench::planfile::{self, Part};
use host::bounded;
use report::number::plural;
use results::schema::Run;

use super::words;
use crate::args::{BenchArgs, Shown, Target, TokenArgs};
use crate::cmd::shown::{self, Form};
use crate::config::Config;
use crate::error::{FAILED, Failure, OK, Outcome, USAGE};
use crate::output::{self, Wanted};
use crate::progress::Display;
use crate::signals::Signals;
use crate::term::{Paint, Stream, remark};

/// How a plan is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanOptions<'a> {
    pub(crate) shown: &'a Shown,
    pub(crate) token: &'a TokenArgs,
    /// The configuration file, if not the usual one.
    pub(crate) config: Option<&'a Path>,
    /// Print plain lines.
    pub(crate) plain: bool,
    /// Measure all parts again.
    pub(crate) fresh: bool,
    /// Only print what would be measured.
    pub(crate) dry_run: bool,
}

/// Reads the plan file, and measures its parts.
///
/// # Errors
/// A file that cannot be read; those of [`run_plan`].
pub(super) fn run(path: &Path, args: &BenchArgs) -> Outcome {
    let text = bounded::read_text(path, planfile::TEXT_MAX).map_err(|why| {
        Failure::usage(format!("cannot read the plan {}: {why}; check its name", path.display()))
    })?;
    let BenchArgs { shown, token, config, plain, fresh, dry_run, .. } = args;
    let config = config.as_deref();
    let options = PlanOptions { shown, token, config, plain: *plain, fresh: *fresh, dry_run: *dry_run };
    run_plan(path, &text, &options)
}

/// Measures the parts of the plan in the file `path`, except what the journal already contains.
///
/// # Errors
/// All mistakes of the plan; files that cannot be written; a journal of another machine; failed parts, reported after all
/// others are done.
pub(crate) fn run_plan(path: &Path, text: &str, options: &PlanOptions<'_>) -> Outcome {
    let form = Form::of(options.shown, &Config::read(options.config)?);
    let mut parts = planfile::read(text).map_err(|mistakes| {
        let line = |m: &planfile::Mistake| format!("{}:{}: {}", path.display(), m.line, m.what);
        Failure { lines: mistakes.iter().map(line).collect(), status: USAGE }
    })?;
    let token = options.token.read()?;
    parts.iter_mut().for_each(|part| part.plan.token.clone_from(&token));
    if options.dry_run {
        let named = parts.iter().map(|part| (Some(part.name.as_str()), &part.plan));
        Stream::Out.print(&words::outline(named))?;
        return Ok(OK);
    }
    let beside = Beside::new(path);
    beside.check(&parts)?;
    if options.fresh {
        Journal::set_aside(&beside.journal()).map_err(cannot)?;
    }
    let plans = || parts.iter().map(|part| &part.plan);
    let (journal, found) = Journal::open(&beside.journal(), text, plans()).map_err(cannot)?;
    let all: u64 = plans().map(planned).sum();
    remarks(&found, all).iter().for_each(remark);
    let signals = Signals::install()?;
    if found.kept as u64 != all {
        words::judge(plans().all(bench::plan::CheckedPlan::is_virtual));
        plans().for_each(words::foretell);
    }
    let mut measured =
        Measured { options, form, beside, journal, signals, runs: Vec::new(), problems: Vec::new() };
    measured.measure(&parts)?;
    measured.end(&parts)
}

/// A failure of the journal has status 2, as its cause may be the command line as well as the machine.
fn cannot(why: JournalError) -> Failure {
    Failure { status: USAGE, ..Failure::run(why) }
}

/// The number of cells over all launches.
fn planned(plan: &bench::plan::CheckedPlan) -> u64 {
    let fit = |virtually: bool| -> u64 {
        let devices = plan.devices.iter().filter(|d| d.is_virtual == virtually);
        devices.map(|d| d.cells.clone().filter(|i| !plan.unfit.contains_key(i)).count() as u64).sum()
    };
    fit(false) * u64::from(plan.launches()) + fit(true)
}

/// Remarks about earlier runs of this plan.
fn remarks(found: &Found, all: u64) -> Vec<String> {
    let mut lines = Vec::new();
    if found.torn > 0 {
        lines.push(
            "the journal ended in the middle of a line, as a crash leaves it; that cell is measured again"
                .into(),
        );
    }
    if found.unreadable > 0 {
        lines.push(format!(
            "{} of the journal cannot be read; those cells are measured again",
            plural(found.unreadable, "line")
        ));
    }
    let Some(since) = &found.since else { return lines };
    if found.changed {
        lines.push(format!(
            "the plan has changed since it was measured last: {} still belong to it, {} do not and are left alone",
            plural(found.kept, "measurement"),
            found.aside
        ));
    }
    let kept = found.kept as u64;
    lines.push(match kept {
        _ if kept >= all => {
            format!("all {all} measurements exist, begun at {since}; --fresh measures them again")
        }
        _ => format!("resuming: {kept} of {all} measurements exist, begun at {since}"),
    });
    lines
}

/// The result files, next to the plan.
struct Beside(PathBuf);

impl Beside {
    /// The results of `survey.toml` are `survey.PART.json` and so on.
    fn new(plan: &Path) -> Self {
        let bare = plan.extension().is_some_and(|end| end == "toml");
        Self(if bare { plan.with_extension("") } else { plan.to_owned() })
    }

    /// The path of the plan with this ending.
    fn with(&self, end: &str) -> PathBuf {
        let mut name = self.0.as_os_str().to_owned();
        name.push(".");
        name.push(end);
        name.into()
    }

    /// The journal's path.
    fn journal(&self) -> PathBuf {
        self.with("journal")
    }

    /// The file of a part's results.
    fn results(&self, part: &Part) -> Target {
        Target::File(self.with(&format!("{}.json", part.name)))
    }

    /// The page of all results.
    fn page(&self) -> Target {
        Target::File(self.with("html"))
    }

    /// Checks that all these files can be written.
    fn check(&self, parts: &[Part]) -> Result<(), Failure> {
        let mut targets: Vec<Target> = parts.iter().map(|part| self.results(part)).collect();
        targets.push(self.page());
        let wanted = |target| Wanted { option: "--plan", target };
        output::check(&targets.iter().map(wanted).collect::<Vec<_>>())
    }
}

/// The requested file, or the partial one next to it if the results are incomplete.
fn named(target: Target, is_complete: bool) -> Target {
    if is_complete { target } else { output::partial(&target).unwrap_or(target) }
}

/// A plan that is being measured.
struct Measured<'a> {
    options: &'a PlanOptions<'a>,
    form: Form,
    beside: Beside,
    journal: Journal,
    signals: Signals,
    runs: Vec<Run>,
    /// Failures of parts; the remaining parts are measured nevertheless.
    problems: Vec<String>,
}

impl Measured<'_> {
    /// Measures the parts that have cells left.
    fn measure(&mut self, parts: &[Part]) -> Result<(), Failure> {
        let command = WorkerCommand::own().map_err(Failure::run)?;
        for (number, part) in parts.iter().enumerate() {
            remark(format_args!("part {} ({} of {})", part.name, number + 1, parts.len()));
            let display =
                Display::new(self.options.plain, &self.signals.stop).verbose(self.options.shown.verbose);
            let display = display.with_intervals_on((!self.form.is_data()).then_some(Stream::Out));
            let mut display = display.expecting(&part.plan);
            let journal = Some(&mut self.journal);
            let measured =
                launch::run_keeping(&command, &part.plan, journal, &mut display, &self.signals.stop);
            display.clear();
            let is_complete = measured.is_ok() && self.signals.status().is_none();
            let run = measured.or_else(|why| {
                self.problems.push(format!("part {}: {why}", part.name));
                why.partial.map(|run| *run).ok_or(())
            });
            if let Ok(run) = run {
                self.deliver(part, words::with_commit(run), is_complete);
            }
            if self.signals.status().is_some() {
                break;
            }
        }
        Ok(())
    }

    /// Prints and writes the results of a part; incomplete results do not overwrite complete ones.
    fn deliver(&mut self, part: &Part, run: Run, is_complete: bool) {
        if run.results.is_empty() {
            return;
        }
        let (people, colour) = (Stream::Out, Stream::Out.colour() && !self.options.plain);
        let target = named(self.beside.results(part), is_complete);
        let mut text = format!("{}\n", Paint::Strong.on(&format!("Part {}", part.name), colour));
        text += &shown::text(&run, self.form, (people, self.options.plain), 4);
        let wanted = Wanted { option: "--json", target: &target };
        match words::content("--json", &run).and_then(|json| output::renew(wanted, &json)) {
            Ok(()) => text += &format!("\n{}", words::notice(wanted)),
            Err(problem) => self.problems.extend(problem.lines),
        }
        if let Err(problem) = people.print(&(text + "\n")) {
            self.problems.extend(problem.lines);
        }
        self.runs.push(run);
    }

    /// Writes the page of all parts, and reports the outcome.
    fn end(mut self, parts: &[Part]) -> Outcome {
        let interrupted = self.signals.status();
        if !self.runs.is_empty() {
            let target = named(self.beside.page(), interrupted.is_none());
            let wanted = Wanted { option: "--html", target: &target };
            let page = report::html(&self.runs).map_err(Failure::run);
            match page.and_then(|page| output::renew(wanted, &page)) {
                Ok(()) => Stream::Out.print(&words::notice(wanted))?,
                Err(problem) => self.problems.extend(problem.lines),
            }
        }
        let missing: usize = self.runs.iter().map(|run| run.missing.len()).sum();
        if missing > 0 {
            remark(format_args!(
                "{} could not be measured, as the findings say; the same command tries again what may work",
                plural(missing, "cell")
            ));
        }
        if interrupted.is_some() {
            remark(format_args!(
                "interrupted: what was measured of {} is in {}, and the same command goes on from there",
                plural(parts.len(), "part"),
                self.beside.journal().display()
            ));
        }
        match (interrupted, self.problems.is_empty()) {
            (Some(status), _) => Ok(status),
            (None, true) => Ok(OK),
            (None, false) => Err(Failure { lines: self.problems, status: FAILED }),
        }
    }
}
