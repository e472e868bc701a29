//! Texts of `nicety bench` other than the results, and the contents of its files, with or without a plan file.

use bench::plan::{CheckedPlan, Time};
use report::number::plural;
use results::schema::Run;

use crate::doctor;
use crate::error::Failure;
use crate::output::Wanted;
use crate::term::remark;

/// Prints the worst problem of this machine for a run; not for a run in virtual time.
pub(super) fn judge(is_virtual: bool) {
    if !is_virtual && let Some(worst) = doctor::worst(&doctor::System::real()) {
        remark(worst);
    }
}

/// Warns before a run that cannot finish within its budget.
pub(super) fn foretell(plan: &CheckedPlan) {
    if let Some(why) = Time::of(plan).beyond(plan) {
        remark(why);
    }
}

/// Describes what would be measured, and how long that takes.
pub(super) fn outline<'a>(parts: impl Iterator<Item = (Option<&'a str>, &'a CheckedPlan)>) -> String {
    let (mut text, mut seconds, mut quiet, mut count) = (String::new(), 0.0, 0.0, 0);
    for (name, plan) in parts {
        let devices: Vec<&str> = plan.devices.iter().map(|d| d.name.as_str()).collect();
        let cells = plural(plan.cells.len() - plan.unfit.len(), "cell");
        let launches = plural(plan.launches() as usize, "launch").replace("launchs", "launches");
        let name = name.map_or_else(String::new, |name| format!("{name}: "));
        text += &format!("{name}{cells} on {}, {launches}\n", devices.join(", "));
        text.extend(plan.unfit.values().map(|why| format!("  left out: {why}\n")));
        let time = Time::of(plan);
        text.extend(time.beyond(plan).map(|why| format!("  {why}\n")));
        (seconds, quiet, count) = (seconds + time.seconds, quiet + time.quiet_seconds, count + 1);
    }
    let parts = if count == 1 { String::new() } else { format!("{}, ", plural(count, "part")) };
    let [least, most] = [quiet, seconds].map(|seconds| format!("{seconds:.0}"));
    let time = if least == most {
        format!("about {most} s of this machine's time")
    } else {
        format!("about {least} s of this machine's time if it is quiet, {most} s if it is not")
    };
    text + &format!("{parts}{time}\n")
}

/// Adds the commit of this program to the run.
pub(super) fn with_commit(mut run: Run) -> Run {
    run.environment.commit = option_env!("NICETY_COMMIT").map(str::to_owned);
    run
}

/// The contents of the file of this option.
///
/// # Errors
/// If the results cannot be converted to that format.
pub(super) fn content(option: &str, run: &Run) -> Result<String, Failure> {
    match option {
        "--json" => run.to_json().map_err(Failure::run),
        "--csv" => {
            let mut text = Vec::new();
            run.to_csv(&mut text).map_err(Failure::run)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        "--prometheus" => Ok(report::prometheus(run)),
        "--export-markdown" => Ok(report::markdown(run)),
        _ => report::html(std::slice::from_ref(run)).map_err(Failure::run),
    }
}

/// The line that names the file of this option; empty for standard output.
pub(super) fn notice(wanted: Wanted<'_>) -> String {
    let what = match wanted.option {
        "--json" => "Results",
        "--csv" => "Results as CSV",
        "--prometheus" => "Results for Prometheus",
        "--export-markdown" => "Results as Markdown",
        _ => "Report",
    };
    let how = if what == "Report" { " (open it in a browser)" } else { "" };
    wanted.target.file().map_or_else(String::new, |path| format!("{what}: {}{how}\n", path.display()))
}
