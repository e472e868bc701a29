//! The beginning of the page: the answers to the most common questions as a table, then latency and bandwidth as plots.

use maud::{Markup, html};

use super::frame::frame;
use crate::columns::columns;
use crate::figures::{Figure, MAX_CURVES, Panel};
use crate::names::{name_of, run_label};
use crate::number::display_unit;
use crate::screen::{Answers, LEGEND, Row, answers};
use crate::series::{Series, capital};
use results::schema::Run;

/// Rows at most, unless more are asked for; the results section has all.
const ROWS: usize = 8;
/// Fewer sizes are no curve.
const MIN_SIZES: usize = 3;

/// The section; empty if nothing was measured.
pub(super) fn section(runs: &[Run]) -> Markup {
    let found: Vec<Answers<'_>> = runs.iter().map(answers).collect();
    let figures: Vec<Figure<'_>> =
        ["us", "MB/s"].into_iter().filter_map(|unit| figure(runs, &found, unit)).collect();
    html! {
        @if found.iter().any(|one| !one.rows.is_empty()) {
            section #summary {
                h2 { "Summary" }
                @for (i, (run, found)) in runs.iter().zip(&found).enumerate() {
                    @if runs.len() > 1 { h3 { (run_label(run, i)) } }
                    @if found.rows.is_empty() { p { "Nothing measured." } } @else { (table(found)) }
                }
                p.note { (LEGEND) }
                div.figures { @for (i, figure) in figures.iter().enumerate() { (frame(&format!("summary-{i}"), figure, runs)) } }
            }
        }
    }
}

fn table(found: &Answers<'_>) -> Markup {
    let shown = found.rows.len().min(found.asked().max(ROWS));
    let mut group = "";
    html! {
        table.plain.cards.summary {
            @if found.heads.iter().any(|head| !head[0].is_empty()) {
                thead {
                    tr {
                        td {}
                        @for [name, time] in &found.heads { th scope="col" { (name) @if !time.is_empty() { " " (time) } } }
                    }
                }
            }
            tbody {
                @for row in &found.rows[..shown] {
                    @let title = title(&mut group, row);
                    tr {
                        th scope="row" { (title) }
                        @if row.alone {
                            td colspan=(found.heads.len()) { (cell(row, 0)) @if let Some(note) = &row.note { " " span.soft { (note) } } }
                        } @else {
                            @for (i, head) in found.heads.iter().enumerate() { td data-l=(head[0]) { (cell(row, i)) } }
                        }
                    }
                }
            }
        }
    }
}

/// The name of a row with its group, which the row itself has only if it is the group's first.
fn title<'r>(group: &mut &'r str, row: &'r Row<'_>) -> String {
    if !row.group.is_empty() {
        *group = &row.group;
    }
    format!("{group} {}", row.name)
}

/// Value, interval and ratio; each stays whole.
fn cell(row: &Row<'_>, column: usize) -> Markup {
    let [value, interval, ratio] = &row.cells[column];
    html! {
        @if value.is_empty() { "–" } @else if row.words { (value) } @else {
            span.whole.median { (value) " " (row.unit) }
            @if !interval.is_empty() { " " span.whole.missed[interval.ends_with('!')] { (interval) } }
            @if !ratio.is_empty() { " " span.whole.soft { (ratio) } }
        }
    }
}

/// The curves of the first row with this unit, of all runs.
fn figure<'a>(runs: &'a [Run], found: &[Answers<'a>], unit: &str) -> Option<Figure<'a>> {
    let is_curve = |s: &Series<'_>| s.unit == unit && s.points.len() >= MIN_SIZES;
    let curved = |row: &&Row<'_>| row.curves.iter().flatten().any(is_curve);
    let first = found.iter().find_map(|one| one.rows.iter().find(curved))?;
    let of = first.curves.iter().flatten().next()?.clone();
    let alike = |s: &&Series<'_>| {
        (s.experiment, s.metric, s.op()) == (of.experiment, of.metric, of.op()) && is_curve(s)
    };
    let (mut labels, mut curves) = (Vec::new(), Vec::new());
    for (i, (run, one)) in runs.iter().zip(found).enumerate() {
        let rows = one.rows.iter().filter(|row| row.curves.iter().flatten().any(|s| alike(&s)));
        for (column, s) in rows.take(1).flat_map(|row| row.curves.iter().enumerate()) {
            let Some(s) = s.as_ref().filter(alike) else { continue };
            labels.push(label(&one.heads[column], s, (runs.len() > 1).then(|| run_label(run, i))));
            curves.push((labels.len() - 1, Series { run: i, run_name: name_of(run), ..s.clone() }));
        }
    }
    curves.truncate(MAX_CURVES);
    let largest = curves.iter().flat_map(|(_, s)| &s.points).map(|r| r.median).fold(0.0, f64::max);
    let (unit, scale) = display_unit(of.unit, largest);
    let op = if of.op().is_empty() { String::new() } else { format!(", {}", of.op()) };
    Some(Figure {
        title: capital(&of.what()) + &op,
        constant: String::new(),
        unit,
        scale,
        metric: of.metric,
        labels,
        panels: vec![Panel { title: String::new(), dots: false, curves }],
        sides: columns(runs).len() > 1,
    })
}

/// The column of a curve, and its run if there are several.
fn label([name, time]: &[String; 2], s: &Series<'_>, run: Option<String>) -> String {
    let column = match (name.is_empty(), time.is_empty()) {
        (true, _) => s.name(),
        (false, true) => name.clone(),
        (false, false) => format!("{name} {time}"),
    };
    run.map_or_else(|| column.clone(), |run| format!("{column}, {run}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::made_up::{curve, floored, run};

    fn measured() -> Run {
        let mut all = Vec::new();
        for place in ["source=nic,sink=nic", "source=host,sink=host"] {
            all.extend(curve("latency", &format!("op=write,{place}"), 0..8, |x| 1.0 + x / 100.0));
            all.extend(curve("bandwidth", &format!("op=write,{place}"), 0..8, |x| 100.0 * x));
        }
        run(all.into_iter().map(|m| floored(m, 0.5, "cache line")).collect())
    }

    /// Goal: the most common questions are answered first. Method: the table has the rows of the screen, in its form; then come two plots.
    #[test]
    fn table_and_two_plots_come_first() {
        let text = section(&[measured()]).into_string();
        for part in [
            "latency write 8 B",
            "1.08 µs",
            "1.07..1.09",
            "2.16×",
            "bandwidth write peak",
            "12.8 GB/s",
            "12.7..12.9",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        let plots: Vec<usize> = text.match_indices("<figure").map(|(at, _)| at).collect();
        assert!(plots.len() == 2 && text.find("<table").is_some_and(|at| at < plots[0]), "{text}");
        assert!(text.contains("One-way latency, write") && text.contains("Bandwidth, write"), "{text}");
    }

    #[test]
    fn several_runs_share_the_plots() {
        let text = section(&[measured(), measured()]).into_string();
        assert_eq!((text.matches("<table").count(), text.matches("<figure").count()), (2, 2), "{text}");
        assert!(text.contains("nic → nic, Run 1") && text.contains("nic → nic, Run 2"), "{text}");
        assert_eq!(text.matches("<h3>Run ").count(), 2);
    }

    #[test]
    fn nothing_measured_has_no_summary() {
        assert_eq!(section(&[Run::default()]).into_string(), "");
    }
}
