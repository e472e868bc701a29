//! What `nicety bench` says around the results of a run, and what it puts into files, with a plan file or without.

use bench::schema::Run;

use crate::doctor;
use crate::error::Failure;
use crate::output::Wanted;
use crate::term::remark;

/// Says what spoils a run on this machine most; virtual time does not care.
pub(super) fn judge(is_virtual: bool) {
    if !is_virtual && let Some(worst) = doctor::worst(&doctor::System::real()) {
        remark(worst);
    }
}

/// The run with the commit of this program.
pub(super) fn stamped(mut run: Run) -> Run {
    run.environment.commit = option_env!("NICETY_COMMIT").map(str::to_owned);
    run
}

/// What the file of this option holds.
///
/// # Errors
/// Results that cannot be written in that form.
pub(super) fn content(option: &str, run: &Run) -> Result<String, Failure> {
    match option {
        "--json" => run.to_json().map_err(Failure::run),
        "--csv" => {
            let mut text = Vec::new();
            run.to_csv(&mut text).map_err(Failure::run)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        }
        _ => report::html(std::slice::from_ref(run)).map_err(Failure::run),
    }
}

/// Where the file of this option is; nothing for standard output.
pub(super) fn notice(wanted: Wanted<'_>) -> String {
    let what = match wanted.option {
        "--json" => "Results",
        "--csv" => "Results as CSV",
        _ => "Report",
    };
    let how = if what == "Report" { " (open it in a browser)" } else { "" };
    wanted.target.file().map_or_else(String::new, |path| format!("{what}: {}{how}\n", path.display()))
}
