//! `nicety doctor`: prints the checks of this machine as text or JSON, and writes the report of its cards.

use std::fmt::Write as _;

use report::number::plural;
use serde::Serialize;

use crate::args::{DoctorArgs, DoctorTopic};
use crate::cmd::devices::limits;
use crate::doctor::{Check, ReportedCard, Severity, System, describe_cards, examine, examine_cards};
use crate::error::{FAILED, Failure, OK, Outcome};
use crate::output::{self, Wanted};
use crate::term::{Paint, Stream, json, wrap};

/// Type and version of the JSON.
const SCHEMA: &str = "nicety-doctor/1";

#[derive(Serialize)]
struct Document<'a> {
    schema: &'static str,
    nicety_version: &'static str,
    /// The worst state of all checks.
    state: Severity,
    checks: &'a [Check],
}

/// Examines the machine.
///
/// # Errors
/// Output that cannot be written.
pub(crate) fn run(args: &DoctorArgs) -> Outcome {
    let report = args.report.as_ref().map(|target| Wanted { option: "--report", target });
    if report.is_some() && args.topic.is_none() {
        return Err(Failure::usage("--report describes real cards; write nicety doctor hw --report FILE"));
    }
    output::check(report.as_slice())?;
    let checks = match args.topic {
        None => examine(&System::real()),
        Some(DoctorTopic::Hw) => examine_cards(&System::real(), &listed_cards()),
    };
    if let Some(wanted) = report {
        return write_report(wanted, &checks);
    }
    let worst = checks.iter().map(|check| check.state).max().unwrap_or(Severity::Ok);
    if args.json {
        let nicety_version = env!("CARGO_PKG_VERSION");
        Stream::Out.json(&Document { schema: SCHEMA, nicety_version, state: worst, checks: &checks })?;
    } else {
        Stream::Out.print(&render(&checks, Stream::Out.width(), Stream::Out.colour()))?;
    }
    Ok(if worst == Severity::Bad { FAILED } else { OK })
}

/// The cards that libibverbs lists, each with its ports in words.
fn listed_cards() -> Result<Vec<String>, String> {
    let cards = fabric::cards().map_err(|why| why.to_string())?;
    let words = cards.into_iter().map(|card| {
        let ports = card.ports.map_or_else(|why| why, |ports| ports.join(", "));
        format!("hw:{}: {ports}", card.name)
    });
    Ok(words.collect())
}

/// Writes what describes the cards of this machine.
fn write_report(wanted: Wanted<'_>, checks: &[Check]) -> Outcome {
    let card = |card: fabric::CardInfo| {
        let opened = fabric::attr(&format!("hw:{}", card.name)).map_err(|why| why.to_string());
        ReportedCard { name: card.name, opened: opened.map(|attr| (limits(&attr), attr.notes)) }
    };
    // Why none is listed is a check.
    let cards = fabric::cards().unwrap_or_default().into_iter().map(card).collect();
    output::write(wanted, &json(&describe_cards(&System::real(), checks, cards))?)?;
    if let Some(file) = wanted.target.file() {
        let file = file.display();
        Stream::Out.print(&format!(
            "{file} describes the cards of this machine without names, addresses and serial numbers.\n"
        ))?;
    }
    Ok(OK)
}

fn render(checks: &[Check], width: usize, colour: bool) -> String {
    let name = checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    let margin = "  warn  ".len() + name + 2;
    let mut out = String::new();
    for check in checks {
        let paint = match check.state {
            Severity::Ok => Paint::Good,
            Severity::Warn => Paint::Caution,
            Severity::Bad => Paint::Bad,
        };
        let state = paint.on(&format!("{:<4}", check.state.word()), colour);
        let _ = writeln!(out, "  {state}  {:<name$}  {}", check.id, wrap(&check.found, margin, width));
        let more = [("why", &check.why), ("do", &check.remedy)];
        for (label, text) in more.into_iter().filter_map(|(label, text)| Some((label, text.as_ref()?))) {
            let label = Paint::Faint.on(&format!("{label:<3}"), colour);
            let _ = writeln!(out, "{}{label}  {}", " ".repeat(margin), wrap(text, margin + 5, width));
        }
    }
    let count = |state| checks.iter().filter(|check| check.state == state).count();
    let (warn, bad) = (count(Severity::Warn), count(Severity::Bad));
    let verdict = match (bad, warn) {
        (0, 0) => "All checks are ok: numbers of this machine are reliable.".to_owned(),
        (0, n) => format!("{}: measuring works, but its numbers are less reliable.", plural(n, "warning")),
        (n, _) => format!(
            "{}: some measurements will fail.",
            plural(n, "check") + if n == 1 { " is bad" } else { " are bad" }
        ),
    };
    let _ = writeln!(out, "\n{}", wrap(&verdict, 0, width));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_to_the_width_and_remedies_stand_below() {
        let check = |state, why: &str| Check {
            id: "memory",
            state,
            found: "something quite long ".repeat(8),
            why: Some(why.to_owned()),
            remedy: Some("ulimit -n 65536".to_owned()),
        };
        let text = render(
            &[check(Severity::Warn, "because of that"), check(Severity::Bad, "for another reason")],
            60,
            false,
        );
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(text.contains("do   ulimit -n 65536"), "{text}");
        assert!(text.contains("1 check is bad"), "{text}");
    }
}
