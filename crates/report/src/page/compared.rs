//! Two or more runs compared with the first, as a section of the page: verdicts, and the cells that moved.

use maud::{Markup, html};

use crate::names::run_label;
use crate::number::{percent, plural, size, times, value};
use crate::series::{alone, capital, low_high};
use results::schema::{Measurement, Run};
use results::stats::{CellComparison, CompareOptions, Comparison, Verdict, compare_runs};

/// Cells shown initially; more are folded.
const SHOWN: usize = 20;

/// The section, if there are several runs: a line for each run without differences.
pub(super) fn section(runs: &[Run]) -> Markup {
    let all = comparisons(runs);
    html! {
        @if runs.len() > 1 {
            section #compared {
                h2 { "Compared" }
                @if all.iter().any(|(_, compared)| !moved(compared).is_empty()) {
                    p.hint {
                        "The effect in a cell is the median of all ratios of a launch of one run to a launch of the other, with its \
                         95 % interval, corrected for the number of cells; " code { "nicety compare" } " says the same."
                    }
                }
                @for (title, compared) in &all {
                    @let moved = moved(compared);
                    @if moved.is_empty() {
                        p { b { (title) } ": " (verdicts(compared)) "." }
                    } @else {
                        h3 { (title) }
                        p { (capital(&verdicts(compared))) "." }
                        (effects(&moved, &runs[0]))
                    }
                }
            }
        }
    }
}

/// What the later runs differ in from the first: a line for each.
#[must_use]
pub fn differences(runs: &[Run]) -> Vec<String> {
    comparisons(runs).iter().map(|(title, compared)| format!("{title}: {}", verdicts(compared))).collect()
}

/// Each run but the first compared with the first.
fn comparisons(runs: &[Run]) -> Vec<(String, Comparison)> {
    let against = |(i, run): (usize, &Run)| {
        let title = format!("{} against {}", run_label(run, i), run_label(&runs[0], 0));
        (title, compare_runs(&runs[0], run, &CompareOptions::default()))
    };
    runs.iter().enumerate().skip(1).map(against).collect()
}

/// Cells that are better or worse, the largest effect first.
fn moved(compared: &Comparison) -> Vec<&CellComparison> {
    let differs = |c: &&CellComparison| matches!(c.verdict, Verdict::Worse | Verdict::Better);
    let mut moved: Vec<&CellComparison> = compared.cells.iter().filter(differs).collect();
    let effect = |c: &CellComparison| c.ratio.map_or(0.0, |r| r.ratio.ln().abs());
    moved.sort_by(|a, b| effect(b).total_cmp(&effect(a)));
    moved
}

/// The first cells, and the rest folded.
fn effects(moved: &[&CellComparison], old: &Run) -> Markup {
    let (first, rest) = moved.split_at(moved.len().min(SHOWN));
    html! {
        (table(first, old))
        @if !rest.is_empty() {
            details {
                summary { (plural(rest.len(), "more cell")) }
                (table(rest, old))
            }
        }
    }
}

/// How many cells of each verdict, most urgent first; whether any differs.
fn verdicts(compared: &Comparison) -> String {
    if compared.cells.is_empty() {
        return "no cell in common: other devices, experiments or sizes".to_owned();
    }
    let order = [Verdict::Worse, Verdict::CannotTell, Verdict::Better, Verdict::Same];
    let counts = order.map(|v| (v, compared.count(v)));
    let told: Vec<String> = counts.iter().filter(|(_, n)| *n > 0).map(|(v, n)| format!("{n} {v}")).collect();
    let cells = format!("{} in both runs: {}", plural(compared.cells.len(), "cell"), told.join(", "));
    let threshold = percent(compared.threshold);
    match moved(compared).is_empty() {
        true => format!("no difference found beyond {threshold}; {cells}"),
        false => format!("{cells}; effects within {threshold} are no difference"),
    }
}

fn table(cells: &[&CellComparison], old: &Run) -> Markup {
    html! {
        table.plain.cards {
            thead { tr { @for head in ["verdict", "cell", "before", "after", "ratio"] { th scope="col" { (head) } } } }
            tbody {
                @for cell in cells {
                    tr {
                        td.(if cell.verdict == Verdict::Worse { "missed" } else { "good" }) { (cell.verdict.to_string()) }
                        td { (name(cell, old)) }
                        td.number data-l="before" { (value(cell.old, &cell.unit)) }
                        td.number data-l="after" { (value(cell.new, &cell.unit)) }
                        td.number data-l="ratio" { (ratio(cell)) }
                    }
                }
            }
        }
    }
}

fn ratio(cell: &CellComparison) -> String {
    let Some(found) = cell.ratio else { return "–".to_owned() };
    let ends = found.low.zip(found.high).map(|(low, high)| format!(" ({})", low_high([low, high])));
    times(found.ratio) + &ends.unwrap_or_default()
}

fn name(cell: &CellComparison, old: &Run) -> String {
    let of = |r: &&Measurement| r.cell() == cell.cell;
    let Some(r) = old.results.iter().find(of) else { return cell.cell.experiment.clone() };
    let s = alone(r);
    let at = if r.size_bytes > 0 { format!(", {}", size(r.size_bytes)) } else { String::new() };
    format!("{}, {}{at}, {}", s.what(), s.name(), r.device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::made_up::{curve, run};
    use crate::names::name_run;

    /// Goal: moved cells are named with their ratio, the largest effect first, and runs by their files.
    #[test]
    fn the_cells_that_moved_are_named() {
        let all = |factor: f64| {
            let mut run = run(curve("latency", "op=write", 0..4, |x| if x > 4.0 { x * factor } else { x }));
            let spread = |r: &mut Measurement| {
                for (i, l) in r.launches.iter_mut().enumerate() {
                    l.median *= 1.0 + 0.001 * i as f64;
                }
            };
            run.results.iter_mut().for_each(spread);
            run
        };
        let (mut before, mut after) = (all(1.0), all(2.0));
        for (run, name) in [(&mut before, "before.json"), (&mut after, "after.json")] {
            name_run(run, name);
        }
        let text = section(&[before.clone(), after]).into_string();
        assert!(text.contains("<h3>after.json against before.json</h3>"), "{text}");
        assert!(text.contains("4 cells in both runs: 1 worse, 3 same; effects within 5.0 % are"), "{text}");
        assert!(text.contains("one-way latency, write, 8 B, shm") && text.contains("2.00×"), "{text}");
        assert!(
            text.contains(" µs</td>") && !text.contains(" us</td>"),
            "units are those of the rest of the page: {text}"
        );
        let other = run(curve("bandwidth", "op=write", 0..4, |x| x));
        assert!(section(&[before.clone(), other]).into_string().contains("no cell in common"));
        assert_eq!(section(std::slice::from_ref(&before)).into_string(), "");
        // Nothing to say is a line, without explanations of what is not there.
        let same = [before.clone(), before];
        let expected =
            "before.json against before.json: no difference found beyond 5.0 %; 4 cells in both runs: 4 same";
        assert_eq!(differences(&same), [expected]);
        let text = section(&same).into_string();
        assert_eq!((text.matches("<p").count(), text.matches("<h3").count()), (1, 0), "{text}");
    }
}
