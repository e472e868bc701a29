//! `nicety survey`: the papers' whole suite on a card, from a plan file that the command writes and the user may edit.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use bench::planfile;
use host::bounded;

use crate::args::SurveyArgs;
use crate::cmd::bench::{PlanOptions, run_plan};
use crate::error::{Failure, Outcome};

/// The plan, for the device [`DEVICES`] names and with the time that [`BUDGET`] sets.
const PLAN: &str = include_str!("survey/plan.toml");
const DEVICES: &str = "devices = [\"hw\"]";
const BUDGET: &str = "budget = 60";

/// Writes the plan, unless it exists, and measures it.
///
/// # Errors
/// Another file has the plan's name; those of `nicety bench --plan`.
pub(crate) fn run(args: &SurveyArgs) -> Outcome {
    let text = plan(&args.devices, args.duration);
    let path = PathBuf::from(format!("{}.toml", args.name));
    let existing = existing(&path)?;
    if existing.as_ref().is_some_and(|existing| *existing != text) {
        return Err(Failure::usage(format!(
            "{0} exists and is another plan; measure it by nicety bench --plan {0}, or choose another --name",
            path.display()
        )));
    }
    if !args.dry_run {
        check_devices(&args.devices)?;
    }
    if existing.is_none() && !args.dry_run {
        std::fs::write(&path, &text).map_err(|why| {
            Failure::usage(format!("cannot write the plan {}: {why}; change the folder", path.display()))
        })?;
    }
    let options = PlanOptions {
        shown: &args.shown,
        token: &args.token,
        config: args.config.as_deref(),
        plain: args.plain,
        fresh: args.fresh,
        dry_run: args.dry_run,
    };
    run_plan(&path, &text, &options)
}

/// Opens each device once, so that a plan is written only for devices that work here.
fn check_devices(devices: &[String]) -> Result<(), Failure> {
    if devices.is_empty() {
        return check_device("hw").map_err(|why| {
            Failure::run(format!("{why}; without a card, nicety survey shm measures this machine"))
        });
    }
    devices.iter().try_for_each(|device| check_device(device).map_err(Failure::run))
}

fn check_device(device: &str) -> Result<(), verbs::Error> {
    // Modelled cards work everywhere, and open in simulated time only.
    if fabric::is_virtual(device) {
        return Ok(());
    }
    fabric::open(device, &host::real::host()).map(drop)
}

/// The plan for these devices; `seconds` of timed work in each part, as written without a number.
fn plan(devices: &[String], seconds: Option<f64>) -> String {
    let mut text = PLAN.to_owned();
    if !devices.is_empty() {
        let mut named = String::new();
        for device in devices {
            let _ = write!(named, "{}{device:?}", if named.is_empty() { "" } else { ", " });
        }
        text = text.replacen(DEVICES, &format!("devices = [{named}]"), 1);
    }
    if let Some(seconds) = seconds {
        text = text.replacen(BUDGET, &format!("budget = {seconds}"), 1);
    }
    text
}

/// The text of a plan that exists.
fn existing(path: &Path) -> Result<Option<String>, Failure> {
    match bounded::read_text(path, planfile::TEXT_MAX) {
        Ok(text) => Ok(Some(text)),
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
        Err(why) => {
            Err(Failure::usage(format!("cannot read {}: {why}; choose another --name", path.display())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_and_time_are_in_the_plan() {
        assert!(PLAN.contains(DEVICES) && PLAN.contains(BUDGET));
        let parts = planfile::read(&plan(&[], None)).expect("a plan");
        assert!(parts.iter().all(|part| part.plan.devices[0].name == "hw"));
        let devices = ["shm", "rails(shm,shm)"].map(str::to_owned);
        let parts = planfile::read(&plan(&devices, Some(2.5))).expect("a plan");
        for part in &parts {
            assert_eq!(part.plan.devices.iter().map(|device| &*device.name).collect::<Vec<_>>(), devices);
        }
        assert!(plan(&devices, Some(2.5)).contains("budget = 2.5"));
    }
}
