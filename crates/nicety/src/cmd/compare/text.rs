//! A comparison on the terminal: a block for each curve and a line for each size, verdict first.

use std::fmt::Write as _;

use report::number::{plural, sig};
use results::stats::{CellComparison, Comparison, Verdict};

use super::words::{VERDICTS, name, series};
use crate::term::{Paint, Stream, wrap};
use host::Bytes;

/// The whole text.
pub(super) fn render(compared: &Comparison, cautions: &[String], stream: Stream) -> String {
    let (width, colour) = (stream.width(), stream.colour());
    let mut out = String::new();
    let mut block = String::new();
    for cell in &compared.cells {
        let series = format!("{} ({})", series(&cell.cell), cell.unit);
        if series != block {
            let _ = writeln!(
                out,
                "{}{}",
                if block.is_empty() { "" } else { "\n" },
                Paint::Strong.on(&series, colour)
            );
            block = series;
        }
        line(&mut out, cell, colour);
    }
    reasons(&mut out, compared, width);
    for (cells, run) in [(&compared.only_old, "old"), (&compared.only_new, "new")] {
        if !cells.is_empty() {
            let _ = writeln!(out, "\nOnly in the {run} run: {}", plural(cells.len(), "cell"));
            for cell in cells {
                let _ = writeln!(out, "  {}", wrap(&name(cell), 4, width));
            }
        }
    }
    if !cautions.is_empty() {
        let _ = writeln!(out, "\n{}", Paint::Caution.on("Caution: this weakens the comparison", colour));
        for caution in cautions {
            let _ = writeln!(out, "  {}", wrap(caution, 4, width));
        }
    }
    summary(&mut out, compared, width, colour);
    out
}

/// The colour of a verdict.
fn paint(verdict: Verdict) -> Paint {
    match verdict {
        Verdict::Worse => Paint::Bad,
        Verdict::Better => Paint::Good,
        Verdict::CannotTell => Paint::Caution,
        Verdict::Same => Paint::Faint,
    }
}

/// The line of a cell.
fn line(out: &mut String, cell: &CellComparison, colour: bool) {
    let verdict = paint(cell.verdict).on(&format!("{:<11}", cell.verdict.to_string()), colour);
    let (old, new) = (sig(cell.old, 4), sig(cell.new, 4));
    let _ = write!(out, "  {verdict} {:>9}  {old:>9} -> {new:>9}", Bytes(cell.cell.size_bytes).to_string());
    let change = |ratio: f64| format!("{:+.1}", 100.0 * (ratio - 1.0));
    if let Some(found) = cell.ratio {
        let _ = write!(out, "  {:>8} %", change(found.ratio));
        if let Some((low, high)) = found.low.zip(found.high) {
            let _ = write!(out, "  {}..{}", change(low), change(high));
        }
    }
    out.push('\n');
}

/// The reasons for undecided cells, each once.
fn reasons(out: &mut String, compared: &Comparison, width: usize) {
    let mut reasons: Vec<(&str, usize)> = Vec::new();
    for reason in compared.cells.iter().filter_map(|c| c.reason.as_deref()) {
        match reasons.iter_mut().find(|(text, _)| *text == reason) {
            Some((_, count)) => *count += 1,
            None => reasons.push((reason, 1)),
        }
    }
    if reasons.is_empty() {
        return;
    }
    let _ = writeln!(out, "\nReasons for undecided cells:");
    for (reason, count) in reasons {
        let _ = writeln!(out, "  {}", wrap(&format!("{}: {reason}", plural(count, "cell")), 4, width));
    }
}

/// The number of cells with each verdict.
fn summary(out: &mut String, compared: &Comparison, width: usize, colour: bool) {
    let count = |v: &Verdict| (*v, compared.count(*v));
    let found: Vec<String> = VERDICTS
        .iter()
        .map(count)
        .filter(|(_, n)| *n > 0)
        .map(|(verdict, n)| paint(verdict).on(&format!("{n} {verdict}"), colour))
        .collect();
    let _ = writeln!(out, "\n{}: {}", plural(compared.cells.len(), "cell"), found.join(", "));
    let threshold = format!(
        "Threshold {} %; + means a larger value in the new run. An effect is the median of all ratios of a launch of one \
         run to a launch of the other; low..high is its 95 % interval.",
        sig(100.0 * compared.threshold, 3)
    );
    let _ = writeln!(out, "{}", wrap(&threshold, 0, width));
    let unsure = compared.count(Verdict::CannotTell);
    if unsure > 0 {
        let how_many =
            if unsure == compared.cells.len() { "NOTHING is decided" } else { "Not everything is decided" };
        let text = format!(
            "{how_many}: {} of {} without a verdict. This is not \"same\": run both with more launches.",
            unsure,
            plural(compared.cells.len(), "cell")
        );
        let _ = writeln!(out, "{}", Paint::Caution.on(&wrap(&text, 0, width), colour));
    }
    let alone = compared.without_counterpart();
    if alone > 0 {
        let text = format!("{} in one run only: they are not compared.", plural(alone, "cell"));
        let _ = writeln!(out, "{}", Paint::Caution.on(&wrap(&text, 0, width), colour));
    }
}
