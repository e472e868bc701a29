//! Devices side by side as tables of the page: devices as columns, each next to its floor.

use std::collections::BTreeSet;

use maud::{Markup, html};

use super::columns::Column;
use super::figures::Figure;
use super::number::sig;
use super::series::{is_wide, spread};
use super::sides::{Block, Row, Slot, best, blocks, columns_of, noise};
use results::schema::Run;

const ABSENT: &str = "–";

/// The section, if there is something to set side by side.
pub(super) fn section(figures: &[Figure<'_>], columns: &[Column], runs: &[Run]) -> Markup {
    let shown: Vec<&Figure<'_>> = figures.iter().filter(|f| f.sides).collect();
    html! {
        @if columns.len() > 1 && !shown.is_empty() {
            section #sides {
                h2 { "Side by side" }
                p.hint {
                    "Each device's median with its 95 % interval, and what the machine itself does (its floor) with the \
                     ratio to it. The best of a row is marked where its interval is apart from all others. "
                    (times(columns))
                }
                @for (i, figure) in shown.iter().enumerate() { (table(i, figure, columns, runs)) }
            }
        }
    }
}

/// The kinds of time in the columns.
fn times(columns: &[Column]) -> String {
    let simulated = || columns.iter().filter(|c| c.is_virtual).map(|c| c.device.as_str());
    let virtuals: Vec<&str> = simulated().collect::<BTreeSet<_>>().into_iter().collect();
    match simulated().count() {
        0 => String::new(),
        n if n == columns.len() => {
            "All of it is virtual time: exact, with no interval and no floor.".to_owned()
        }
        _ => format!(
            "Columns marked (virtual) are simulated ({}): another kind of time, exact, with no interval and no floor.",
            virtuals.join(", ")
        ),
    }
}

/// The parts of a column that are needed.
struct Parts {
    interval: bool,
    floor: bool,
}

impl Parts {
    fn of(column: usize, is_virtual: bool, blocks: &[Block<'_>]) -> Self {
        let rows = || blocks.iter().flat_map(|b| &b.rows);
        let floor = rows().any(|row| row.slots[column].measured().is_some_and(|r| r.floor.is_some()));
        Self { interval: !is_virtual, floor }
    }

    fn heads(&self) -> Vec<&'static str> {
        let mut all = vec!["median"];
        if self.interval {
            all.push("95 % interval");
        }
        if self.floor {
            all.extend(["floor", "ratio"]);
        }
        all
    }
}

fn table(i: usize, figure: &Figure<'_>, columns: &[Column], runs: &[Run]) -> Markup {
    let columns = &columns_of(figure, columns, runs);
    let blocks = blocks(figure, columns, runs);
    let parts: Vec<Parts> =
        columns.iter().enumerate().map(|(i, c)| Parts::of(i, c.is_virtual, &blocks)).collect();
    let reasons = reasons(&blocks);
    let floors = floors(&blocks, columns);
    let (id, noise) = (format!("side-{i}"), noise(runs));
    html! {
        h3 id=(id) { (figure.title) " (" (figure.unit) ")" }
        @if !figure.constant.is_empty() { p.constant { (figure.constant) } }
        div.scroll tabindex="0" role="region" aria-labelledby=(id) {
            table.sides {
                thead {
                    tr {
                        td rowspan="2" {}
                        @for (column, parts) in columns.iter().zip(&parts) {
                            th.device.virtual[column.is_virtual] scope="colgroup" colspan=(parts.heads().len()) {
                                (column.label)
                            }
                        }
                    }
                    tr {
                        @for (parts, column) in parts.iter().zip(columns) {
                            @for (n, head) in parts.heads().iter().enumerate() {
                                th.number.first[n == 0].virtual[column.is_virtual] scope="col" { (head) }
                            }
                        }
                    }
                }
                @for block in &blocks {
                    tbody {
                        @if !block.title.is_empty() {
                            tr.variant { th scope="rowgroup" colspan=(1 + parts.iter().map(|p| p.heads().len()).sum::<usize>()) { span { (block.title) } } }
                        }
                        @for row in &block.rows { (line(row, columns, &parts, figure.scale, &reasons, noise)) }
                    }
                }
            }
        }
        @if !floors.is_empty() { p.note { "Floors: " (floors.join("; ")) "." } }
        @for (number, reason) in reasons.iter().enumerate() { p.note { sup { (number + 1) } " " (reason) } }
    }
}

fn line(
    row: &Row<'_>,
    columns: &[Column],
    parts: &[Parts],
    scale: f64,
    reasons: &[&str],
    noise: f64,
) -> Markup {
    let best = best(row, noise);
    html! {
        tr {
            th scope="row" { (row.name) }
            @for (i, (slot, parts)) in row.slots.iter().zip(parts).enumerate() {
                @let time = columns[i].is_virtual;
                @match slot {
                    Slot::Measured(r) => {
                        td.number.first.median.virtual[time].best[best == Some(i)] {
                            (sig(r.median * scale, 3))
                            @if best == Some(i) { span.mark title="the best of this row" { " ●" } }
                        }
                        @if parts.interval {
                            td.number.missed[is_wide(r)] {
                                (spread(r, scale))
                            }
                        }
                        @if parts.floor {
                            td.number.soft { (r.floor.as_ref().map_or_else(|| ABSENT.to_owned(), |f| sig(f.value * scale, 3))) }
                            td.number.soft { (r.floor.as_ref().map_or_else(|| ABSENT.to_owned(), |f| format!("{}×", sig(f.ratio, 3)))) }
                        }
                    }
                    Slot::Missing(why) => {
                        td.number.first.virtual[time] title=(why) {
                            (ABSENT) sup { (1 + reasons.iter().position(|r| r == why).unwrap_or(0)) }
                        }
                        @for _ in 1..parts.heads().len() { td {} }
                    }
                    Slot::Empty => {
                        td.number.first.virtual[time] { (ABSENT) }
                        @for _ in 1..parts.heads().len() { td {} }
                    }
                }
            }
        }
    }
}

/// Why slots are empty, each reason once.
pub(super) fn reasons<'a>(blocks: &[Block<'a>]) -> Vec<&'a str> {
    let mut all = Vec::new();
    for slot in blocks.iter().flat_map(|b| &b.rows).flat_map(|row| &row.slots) {
        if let Slot::Missing(why) = slot
            && !all.contains(why)
        {
            all.push(*why);
        }
    }
    all
}

/// Descriptions of each device's floors.
pub(super) fn floors(blocks: &[Block<'_>], columns: &[Column]) -> Vec<String> {
    let mut all = Vec::new();
    for (i, column) in columns.iter().enumerate() {
        let mut whats: Vec<&str> = Vec::new();
        let measured = blocks.iter().flat_map(|b| &b.rows).filter_map(|row| row.slots[i].measured());
        for floor in measured.filter_map(|r| r.floor.as_ref()) {
            if !whats.contains(&floor.what.as_str()) {
                whats.push(&floor.what);
            }
        }
        if !whats.is_empty() {
            all.push(format!("{}: {}", column.label, whats.join(" or ")));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::super::figures::figures_of;
    use super::super::findings::made_up::floored;
    use super::super::series::series;
    use super::super::{columns::columns, sides::tests::three};
    use super::*;

    #[test]
    fn columns_are_devices_with_their_floors_and_gaps_have_reasons() {
        let mut runs = [three()];
        runs[0].results[0] = floored(runs[0].results[0].clone(), 0.5, "cache line");
        let (columns, all) = (columns(&runs), series(&runs));
        let text = section(&figures_of(&all, &columns), &columns, &runs).into_string();
        for part in [
            "<th class=\"device\" scope=\"colgroup\" colspan=\"4\">shm</th>",
            "<th class=\"device\" scope=\"colgroup\" colspan=\"2\">iwarp</th>",
            "<th class=\"device virtual\" scope=\"colgroup\" colspan=\"1\">model:card (virtual)</th>",
            "Floors: shm: cache line.",
            "–<sup>1</sup>",
            "<sup>1</sup> the card is out of breath",
            "another kind of time",
            "1.01<span class=\"mark\"",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
    }

    #[test]
    fn one_device_has_no_such_section() {
        let mut runs = [three()];
        runs[0].results.retain(|r| r.device == "shm");
        let (columns, all) = (columns(&runs), series(&runs));
        assert_eq!(section(&figures_of(&all, &columns), &columns, &runs).into_string(), "");
    }
}
