//! The reproduction as text: rows by experiment, then the score, the contradictions, and the largest errors.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, Table, Width, presets};

use super::tables::PaperTable;
use crate::papers::contradictions::Contradiction;
use crate::papers::published::citation;
use crate::reproduction::{PaperScore, Reproduction};
use crate::verdicts::judge::{Class, Row};
use crate::verdicts::score::{Score, worst};
use report::number::{group, percent, plural, sig};

/// The column of text.
const WHAT: usize = 1;
/// Columns that may have ranges, and their maximum width if wider ones would leave less than this for words.
const RANGES: std::ops::RangeInclusive<usize> = 2..=3;
const RANGE: u16 = 17;
const LEAST: usize = 20;
/// Added to the content of a column.
const PADDING: usize = 2;
/// Columns of numbers.
const NUMBERS: std::ops::RangeInclusive<usize> = 2..=4;
/// Number of rows shown as furthest from the published values.
const WORST: usize = 5;

/// The whole reproduction, at most `width` columns wide.
#[must_use]
pub fn terminal(all: &Reproduction, width: usize, colour: bool) -> String {
    let mut out = String::new();
    for rows in by_experiment(&all.rows) {
        experiment(&mut out, &rows, width, colour);
    }
    ranges(&mut out, &all.rows, width);
    unmodelled(&mut out, &all.rows, width);
    tables(&mut out, all, width, colour);
    scores(&mut out, all, width, colour);
    assumed(&mut out, all, width);
    contradictions(&mut out, &all.contradictions, width);
    furthest(&mut out, &all.rows, width);
    out
}

/// Text in bold, if colours are on.
fn strong(text: &str, colour: bool) -> String {
    if colour { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
}

/// The rows of each experiment, in the order of the papers.
fn by_experiment(rows: &[Row]) -> Vec<Vec<&Row>> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let same =
            |group: &&mut Vec<&Row>| (&group[0].paper, &group[0].experiment) == (&row.paper, &row.experiment);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups
}

/// The rows of one experiment that have a value or a verdict.
fn experiment(out: &mut String, rows: &[&Row], width: usize, colour: bool) {
    let shown: Vec<&Row> =
        rows.iter().copied().filter(|row| row.modelled.is_some() || row.holds.is_some()).collect();
    if shown.is_empty() {
        return;
    }
    let title = format!("{}/{}", rows[0].paper, rows[0].experiment);
    let _ = writeln!(out, "{}", strong(&title, colour));
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width.min(usize::from(u16::MAX)) as u16);
    table.set_header(["row", "what", "paper", "model", "ratio", "class", "holds"]);
    for row in shown {
        table.add_row(cells(row));
    }
    let wide: usize =
        table.column_max_content_widths().iter().map(|content| usize::from(*content) + PADDING).sum();
    let words = usize::from(table.column_max_content_widths()[WHAT]) + PADDING;
    let crowded = width < wide - words + LEAST;
    for (index, column) in table.column_iter_mut().enumerate() {
        // Text is wrapped, and so are ranges if little room would be left for text.
        match index {
            WHAT => {}
            _ if crowded && RANGES.contains(&index) => {
                column.set_constraint(ColumnConstraint::UpperBoundary(Width::Fixed(RANGE)));
            }
            _ => {
                column.set_constraint(ColumnConstraint::ContentWidth);
            }
        }
        if NUMBERS.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for line in table.to_string().lines() {
        let _ = writeln!(out, "{}", line.trim_end());
    }
    out.push('\n');
}

/// The cells of a row.
fn cells(row: &Row) -> Vec<Cell> {
    let verdict = match row.holds {
        Some(true) => "yes",
        Some(false) if row.class == Class::Predicted => "NO",
        Some(false) => "no",
        None => "–",
    };
    let what = match &row.evidence {
        Some(evidence) if row.holds == Some(false) => format!("{} – {evidence}", row.variant),
        _ => row.variant.clone(),
    };
    let mark = if row.contradictions.is_empty() { "" } else { "*" };
    vec![
        Cell::new(format!("{}{mark}", row.id)),
        Cell::new(what),
        Cell::new(published(row)),
        Cell::new(modelled(row)),
        Cell::new(row.ratio.map_or_else(String::new, |ratio| format!("{ratio:.3}"))),
        Cell::new(row.class.name()),
        Cell::new(verdict),
    ]
}

/// The printed value: `886 MB/s`, `7 to 14 %`, `over 20 us`.
pub(crate) fn published(row: &Row) -> String {
    if row.qualitative {
        return "claim".to_owned();
    }
    let text = match (row.published, row.low, row.high) {
        (Some(value), _, _) => exact(value),
        (None, Some(low), Some(high)) => format!("{} to {}", exact(low), exact(high)),
        (None, Some(low), None) => format!("over {}", exact(low)),
        (None, None, Some(high)) => format!("below {}", exact(high)),
        (None, None, None) => String::new(),
    };
    format!("{text} {}", row.unit)
}

/// The model's number, or numbers.
pub(crate) fn modelled(row: &Row) -> String {
    let rounded = |value: f64| if value.fract() == 0.0 { exact(value) } else { sig(value, 4) };
    match (row.modelled, row.modelled_low, row.modelled_high) {
        (_, Some(low), Some(high)) => format!("{} to {}", rounded(low), rounded(high)),
        (Some(value), _, _) => rounded(value),
        _ => String::new(),
    }
}

/// A number with all its digits.
fn exact(value: f64) -> String {
    group(&value.to_string())
}

/// Notes which end of a range the ratio refers to, if there is a range.
fn ranges(out: &mut String, rows: &[Row], width: usize) {
    if rows.iter().any(|row| row.modelled_low.is_some()) {
        let text = "Where the model has a range, the ratio is of the end that is further off.";
        let _ = writeln!(out, "{}\n", wrapped(text, width));
    }
}

/// Why rows have no value, by reason.
fn unmodelled(out: &mut String, rows: &[Row], width: usize) {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in rows.iter().filter(|row| row.modelled.is_none() && row.holds.is_none()) {
        let why = row.reason.as_deref().unwrap_or("no reason");
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, ids)) => ids.push(&row.id),
            None => reasons.push((why, vec![&row.id])),
        }
    }
    if reasons.is_empty() {
        return;
    }
    let total: usize = reasons.iter().map(|(_, ids)| ids.len()).sum();
    let _ = writeln!(out, "{} without a value", plural(total, "row"));
    for (why, ids) in reasons {
        let _ = writeln!(out, "{}", wrapped(&format!("{why}: {}", ids.join(" ")), width));
    }
    out.push('\n');
}

/// The score of each paper.
fn scores(out: &mut String, all: &Reproduction, width: usize, colour: bool) {
    for PaperScore { paper, complete, score, second_score } in &all.papers {
        let of = if *complete { "predicted rows only" } else { "of the rows asked for" };
        let _ = writeln!(out, "{}", strong(&format!("Score of {paper} ({of})"), colour));
        let _ = writeln!(out, "{}", wrapped(&format!("{}.", citation(paper)), width));
        if !all.changes.is_empty() {
            let changed = format!("with changed values in all machine files: {}", all.changes.join(" "));
            let _ = writeln!(out, "{}", wrapped(&changed, width));
        }
        for line in if *complete { judged(score) } else { score.counts() } {
            let _ = writeln!(out, "{}", wrapped(&line, width));
        }
        let second = second_score.counts_and_median();
        let _ = writeln!(out, "{}", wrapped(&format!("by the second rule: {second}"), width));
        out.push('\n');
    }
    let _ = writeln!(out, "{} measured\n", plural(all.measured, "cell"));
}

/// The goals of a paper, each with whether it was reached, and the rows that are not scored.
fn judged(score: &Score) -> Vec<String> {
    let goals = score.goals().into_iter();
    let prefix = |reached| if reached { "reached" } else { "missed" };
    let mut all: Vec<String> = goals.map(|(text, reached)| format!("{}: {text}", prefix(reached))).collect();
    all.extend(score.others().into_iter().map(|other| format!("not scored: {other}")));
    all
}

/// The papers' tables.
fn tables(out: &mut String, all: &Reproduction, width: usize, colour: bool) {
    for PaperTable { number, title, columns, lines, paper } in &all.tables {
        let _ = writeln!(out, "{}", strong(&format!("{paper} Table {number}: {title}"), colour));
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
        table.set_width(width.min(usize::from(u16::MAX)) as u16);
        let heads = columns.iter().flat_map(|column| [(*column).to_owned(), "model".to_owned()]);
        table.set_header(std::iter::once(String::new()).chain(heads));
        for line in lines {
            let show = |cell: &Option<[f64; 2]>| match cell {
                Some(both) => both.map(|value| format!("{value:.2}")),
                None => ["–".to_owned(), String::new()],
            };
            let cells = line.cells.iter().flat_map(show);
            table.add_row(std::iter::once(line.operation.to_owned()).chain(cells));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for line in table.to_string().lines() {
            let _ = writeln!(out, "{}", line.trim_end());
        }
        out.push('\n');
    }
}

/// The assumed values that move scored rows.
fn assumed(out: &mut String, all: &Reproduction, width: usize) {
    let deciding = all.assumed.iter().filter(|one| one.near[1] != one.near[2]);
    let lines: Vec<String> = deciding
        .map(|one| {
            let ([low, high], [_, least, most]) = (one.range, one.near);
            let (low, high) = (exact(low), exact(high));
            format!("{} {} between {low} and {high}: {least} to {most} near", one.card, one.key)
        })
        .collect();
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "Assumed values that change how many predicted numbers are near");
    for line in lines {
        let _ = writeln!(out, "{}", wrapped(&line, width));
    }
    out.push('\n');
}

/// The contradictions between or within papers.
fn contradictions(out: &mut String, all: &[Contradiction], width: usize) {
    if all.is_empty() {
        return;
    }
    let _ = writeln!(out, "Rows (*) with contradictions between or within papers");
    for Contradiction { entry, rows, text } in all {
        let _ = writeln!(out, "{}", wrapped(&format!("{entry} ({}): {text}", rows.join(" ")), width));
    }
    out.push('\n');
}

/// The predictions with the largest errors.
fn furthest(out: &mut String, rows: &[Row], width: usize) {
    let worst = worst(rows, WORST);
    if worst.is_empty() {
        return;
    }
    let _ = writeln!(out, "Predictions with the largest errors");
    for row in worst {
        let text = match (row.error(), &row.evidence) {
            (Some(error), _) => {
                let (paper, model) = (published(row), modelled(row));
                format!("{} off by {}: paper {paper}, model {model}; {}", row.id, percent(error), row.how)
            }
            (None, evidence) => {
                let evidence = evidence.as_deref().unwrap_or_default();
                format!("{} does not hold: {}; {evidence}", row.id, row.variant)
            }
        };
        let _ = writeln!(out, "{}", wrapped(&text, width));
    }
}

/// Wraps at `width`, indented, the first line by two columns less than the others.
fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::from(" ");
    let mut used = 1;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if used + 1 + len > width && used > 4 {
            out.push_str("\n   ");
            used = 3;
        }
        out.push(' ');
        out.push_str(word);
        used += 1 + len;
    }
    out
}
