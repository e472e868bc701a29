//! `nicety explain`: what an experiment measures, its method, factors, interpretation and origin; and how our MPI chooses
//! protocols and algorithms.

mod mpi;

use bench::experiment::{Axis, Experiment, all, find};
use bench::plan::{Plan, did_you_mean};

use crate::args::ExplainArgs;
use crate::error::{Failure, OK, Outcome};
use crate::term::{Paint, Stream, wrap};

/// A modelled card that supports most experiments.
const MODEL: &str = "model:mt23108-vapi";
/// The default number of ranks for the explanation of MPI.
const RANKS: u32 = 4;
/// Wider lines are hard to read.
const WIDTH: usize = 100;

/// The name for the explanation of MPI, which is not an experiment.
const MPI: &str = "mpi";

/// Prints the text of an experiment, the choices of MPI, or the list of experiments.
///
/// # Errors
/// If there is no such experiment, or output cannot be written.
pub(crate) fn run(args: &ExplainArgs) -> Outcome {
    let options = &args.mpi;
    if args.experiment.as_deref() == Some(MPI) {
        let device = options.device.as_deref().unwrap_or(bench::plan::DEVICE);
        return mpi::run(device, options.ranks.unwrap_or(RANKS), options.json);
    }
    if options.device.is_some() || options.ranks.is_some() || options.json {
        return Err(Failure::usage(
            "--device, -n and --json are options of `nicety explain mpi`; an experiment is explained without them",
        ));
    }
    let (width, colour) = (Stream::Out.width().min(WIDTH), Stream::Out.colour());
    let text = match &args.experiment {
        None => list(width, colour),
        Some(name) => match find(name) {
            Some(experiment) => rendered(experiment, width, colour),
            None => {
                let names = || all().iter().map(|e| e.name()).chain([MPI]);
                let (hint, known) = (did_you_mean(name, names()), names().collect::<Vec<_>>().join(", "));
                return Err(Failure::usage(format!(
                    "there is no experiment '{name}'{hint}; there are: {known}"
                )));
            }
        },
    };
    Stream::Out.print(&text)?;
    Ok(OK)
}

fn list(width: usize, colour: bool) -> String {
    let column = all().iter().map(|e| e.name().len()).max().unwrap_or(0);
    let mut text = String::new();
    for experiment in all() {
        let name = Paint::Strong.on(&format!("{:<column$}", experiment.name()), colour);
        text += &format!("{name}  {}\n", wrap(experiment.about(), column + 2, width));
    }
    text + "\n`nicety explain EXPERIMENT` says what it measures, how, what moves it, how to read it, and where it comes from.\n\
            `nicety explain mpi` says which protocol and which algorithm our MPI takes, and why.\n"
}

/// The text with its paragraphs wrapped at the width and indented lines unchanged; then the factors and sizes.
fn rendered(experiment: &dyn Experiment, width: usize, colour: bool) -> String {
    let mut out = String::new();
    let mut paragraph = String::new();
    let flush = |paragraph: &mut String, out: &mut String| {
        if !paragraph.is_empty() {
            out.push_str(&wrap(&std::mem::take(paragraph), 0, width));
            out.push('\n');
        }
    };
    for line in experiment.explain().lines() {
        let heading = line.strip_prefix("# ").or_else(|| line.strip_prefix("## "));
        if heading.is_none() && !line.is_empty() && !line.starts_with("    ") {
            paragraph.push_str(line);
            paragraph.push(' ');
            continue;
        }
        flush(&mut paragraph, &mut out);
        match heading {
            Some(title) if line.starts_with("# ") => {
                let head = format!("{title}: {}", experiment.about());
                out += &format!("{}\n", Paint::Strong.on(&wrap(&head, 0, width), colour));
            }
            Some(title) => out += &format!("{}\n", Paint::Strong.on(title, colour)),
            None => out += &format!("{line}\n"),
        }
    }
    flush(&mut paragraph, &mut out);
    out + &factors(experiment, width, colour)
}

/// Commands to try; only commands that this machine accepts.
fn factors(experiment: &dyn Experiment, width: usize, colour: bool) -> String {
    let mut out = format!("\n{}\n", Paint::Strong.on("Try", colour));
    let name = experiment.name();
    let on = |device: &str| Plan {
        experiments: vec![name.to_owned()],
        device: device.to_owned(),
        quick: true,
        ..Plan::default()
    };
    let works = |plan: &Plan| plan.check_strictly().is_ok();
    let devices = ["", MODEL].map(on).into_iter().filter(works);
    let devices: Vec<String> = devices.map(|plan| plan.device).collect();
    let named = |device: &str| if device.is_empty() { String::new() } else { format!(" --device {device}") };
    for device in &devices {
        let quick = if device.is_empty() { " --quick" } else { "" };
        out += &format!("    nicety bench {name}{quick}{}\n", named(device));
    }
    let Some(first) = devices.first() else { return out };
    for axis in bench::experiment::all_axes(experiment) {
        let about = format!("{} ({} to {})", axis.about, axis.low, axis.high);
        let levels = levels(experiment, axis);
        let command = format!("    nicety bench {name}{} --set {}={levels}  ", named(first), axis.factor);
        out += &format!("{command}{}\n", wrap(&about, command.len(), width));
    }
    out
}

/// The levels of a factor in a quick run.
fn levels(experiment: &dyn Experiment, axis: &Axis) -> String {
    let variants = experiment.variants(true);
    let mut all: Vec<&str> = Vec::new();
    for level in variants.iter().filter_map(|variant| variant.get(axis.factor)) {
        if !all.contains(&level) {
            all.push(level);
        }
    }
    if all.is_empty() { axis.low.to_string() } else { all.join(",") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_keeps_its_code_and_fits_the_width() {
        for experiment in all() {
            let text = rendered(*experiment, 80, false);
            assert!(text.starts_with(&format!("{}: ", experiment.name())), "{text}");
            let prose = text.lines().filter(|line| !line.starts_with("    "));
            prose.for_each(|line| assert!(line.chars().count() <= 80, "{line}"));
            for code in experiment.explain().lines().filter(|line| line.starts_with("    ")) {
                assert!(text.lines().any(|line| line == code), "{code}");
            }
        }
    }

    #[test]
    fn the_list_has_them_all() {
        let text = list(80, false);
        assert!(all().iter().all(|e| text.lines().any(|line| line.starts_with(e.name()))), "{text}");
    }

    #[test]
    fn unknown_name_is_refused_with_the_known_ones() {
        let failure = run(&ExplainArgs { experiment: Some("latncy".into()), mpi: Default::default() })
            .expect_err("an unknown name");
        assert!(failure.lines[0].contains("did you mean 'latency'?"), "{failure:?}");
    }
}
