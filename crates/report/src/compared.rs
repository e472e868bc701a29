//! Two or more runs compared with the first, as a section of the page: verdicts, and the cells that moved.

use maud::{Markup, html};

use super::names::run_label;
use super::number::{percent, plural, sig, size, times, value};
use super::series::alone;
use results::schema::{Measurement, Run};
use results::stats::{CellComparison, CompareOptions, Comparison, Verdict, compare_runs};

/// Cells shown initially; more are folded.
const SHOWN: usize = 20;

/// The section, if there are several runs.
pub(super) fn section(runs: &[Run]) -> Markup {
    html! {
        @if runs.len() > 1 {
            section #compared {
                h2 { "Compared" }
                p.hint {
                    "The effect in a cell is the median of all ratios of a launch of one run to a launch of the other, with its \
                     95 % interval, corrected for the number of cells; " code { "nicety compare" } " says the same."
                }
                @for (i, run) in runs.iter().enumerate().skip(1) {
                    h3 { (run_label(run, i)) " against " (run_label(&runs[0], 0)) }
                    (against(&runs[0], run))
                }
            }
        }
    }
}

fn against(old: &Run, new: &Run) -> Markup {
    let compared = compare_runs(old, new, &CompareOptions::default());
    if compared.cells.is_empty() {
        return html! { p { "They have no cell in common: other devices, experiments or sizes." } };
    }
    let mut moved: Vec<&CellComparison> =
        compared.cells.iter().filter(|c| matches!(c.verdict, Verdict::Worse | Verdict::Better)).collect();
    let effect = |c: &CellComparison| c.ratio.map_or(0.0, |r| r.ratio.ln().abs());
    moved.sort_by(|a, b| effect(b).total_cmp(&effect(a)));
    let (first, rest) = moved.split_at(moved.len().min(SHOWN));
    html! {
        p { (verdicts(&compared)) }
        @if !first.is_empty() { (table(first, old)) }
        @if !rest.is_empty() {
            details {
                summary { (plural(rest.len(), "more cell")) }
                (table(rest, old))
            }
        }
    }
}

/// How many cells of each verdict, most urgent first.
fn verdicts(compared: &Comparison) -> String {
    let order = [Verdict::Worse, Verdict::CannotTell, Verdict::Better, Verdict::Same];
    let counts = order.map(|v| (v, compared.count(v)));
    let told: Vec<String> = counts.iter().filter(|(_, n)| *n > 0).map(|(v, n)| format!("{n} {v}")).collect();
    format!(
        "{} in both runs: {}. Effects within {} are no difference.",
        plural(compared.cells.len(), "cell"),
        told.join(", "),
        percent(compared.threshold)
    )
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
    let ends = found.low.zip(found.high).map(|(low, high)| format!(" [{}, {}]", sig(low, 3), sig(high, 3)));
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
    use super::super::findings::made_up::{curve, run};
    use super::super::names::name_run;
    use super::*;

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
        assert!(text.contains("4 cells in both runs: 1 worse, 3 same."), "{text}");
        assert!(text.contains("one-way latency, write, 8 B, shm") && text.contains("2.00×"), "{text}");
        assert!(
            text.contains(" µs</td>") && !text.contains(" us</td>"),
            "units are those of the rest of the page: {text}"
        );
        let other = run(curve("bandwidth", "op=write", 0..4, |x| x));
        assert!(section(&[before.clone(), other]).into_string().contains("no cell in common"));
        assert_eq!(section(&[before]).into_string(), "");
    }
}
