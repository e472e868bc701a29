//! Devices side by side as tables for a terminal: devices as columns, variants as blocks of rows.

use super::columns::Column;
use super::figures::Figure;
use super::number::sig;
use super::series::spread;
use super::side_table::{floors, reasons};
use super::sides::{Block, Row, Slot, best, blocks, columns_of, noise};
use results::schema::{ClockKind, Run};

/// Spaces between columns.
const GAP: usize = 2;
/// A device's name is cut at this width.
const MAX_HEAD: usize = 24;

/// Lines of a figure, each at most `width` columns wide if the columns of two devices fit it.
pub(super) struct SideText {
    /// Heads of the columns, in one or two lines, and rows; several tables if not all devices fit into one.
    pub(super) tables: Vec<Vec<(Kind, String)>>,
    /// Remarks below.
    pub(super) notes: Vec<String>,
}

/// The kind of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Head,
    Variant,
    Row,
}

/// The table of a figure.
pub(super) fn table(figure: &Figure<'_>, columns: &[Column], runs: &[Run], width: usize) -> SideText {
    let columns = &columns_of(figure, columns, runs);
    let blocks = blocks(figure, columns, runs);
    let (reasons, noise) = (reasons(&blocks), noise(runs));
    let names = blocks.iter().flat_map(|b| &b.rows).map(|row| row.name.chars().count() + 2);
    let first = names.max().unwrap_or(0);
    let laid: Vec<Laid> =
        (0..columns.len()).map(|i| Laid::new(i, columns, &blocks, figure.scale, &reasons, noise)).collect();
    let widths: Vec<usize> = laid.iter().map(|l| l.width).collect();
    let tables =
        groups(first, &widths, width).into_iter().map(|group| lines(first, &laid[group], &blocks)).collect();
    let mut notes: Vec<String> =
        reasons.iter().enumerate().map(|(i, why)| format!("[{}] {why}", i + 1)).collect();
    let floors = floors(&blocks, columns);
    if !floors.is_empty() {
        notes.push(format!("Floors: {}.", floors.join("; ")));
    }
    SideText { tables, notes }
}

/// A device's column, laid out: lines of its head, a text for each row, and the width in characters.
struct Laid {
    head: Vec<String>,
    cells: Vec<String>,
    width: usize,
}

impl Laid {
    fn new(
        column: usize,
        columns: &[Column],
        blocks: &[Block<'_>],
        scale: f64,
        reasons: &[&str],
        noise: f64,
    ) -> Self {
        let rows = blocks.iter().flat_map(|b| &b.rows);
        let parts: Vec<[String; 3]> = rows.map(|row| cell(row, column, scale, reasons, noise)).collect();
        let widest = |part: usize| parts.iter().map(|p| p[part].chars().count()).max().unwrap_or(0);
        let (v, w, q) = (widest(0), widest(1), widest(2));
        let gap = |n: usize| if n > 0 { " " } else { "" };
        let cells: Vec<String> = parts
            .iter()
            .map(|[value, ends, ratio]| format!("{value:>v$}{}{ends:<w$}{}{ratio:>q$}", gap(w), gap(q)))
            .collect();
        let mut head = vec![cut(&columns[column].device)];
        let rest = columns[column].label[columns[column].device.len()..].trim_start_matches([' ', ',']);
        if !rest.is_empty() {
            head.push(rest.to_owned());
        }
        let longest = cells.iter().chain(&head).map(|s| s.chars().count()).max();
        Self { head, cells, width: longest.unwrap_or(0) }
    }
}

fn cut(name: &str) -> String {
    match name.chars().count() {
        n if n <= MAX_HEAD => name.to_owned(),
        _ => name.chars().take(MAX_HEAD - 3).chain("...".chars()).collect(),
    }
}

/// Median, interval and ratio as text; the best is followed by `*`.
fn cell(row: &Row<'_>, column: usize, scale: f64, reasons: &[&str], noise: f64) -> [String; 3] {
    let r = match row.slots[column] {
        Slot::Measured(r) => r,
        Slot::Missing(why) => {
            let number = 1 + reasons.iter().position(|r| *r == why).unwrap_or(0);
            return [format!("– [{number}]"), String::new(), String::new()];
        }
        Slot::Empty => return ["– ".to_owned(), String::new(), String::new()],
    };
    let mark = if best(row, noise) == Some(column) { '*' } else { ' ' };
    let value = format!("{}{mark}", sig(r.median * scale, 3));
    if r.clock == ClockKind::Virtual {
        return [value, String::new(), String::new()];
    }
    let ratio = r.floor.as_ref().map_or_else(String::new, |f| format!("{}×", sig(f.ratio, 3)));
    [value, spread(r, scale), ratio]
}

/// Ranges of columns that fit the width next to the first column, of about equal number.
fn groups(first: usize, widths: &[usize], width: usize) -> Vec<std::ops::Range<usize>> {
    let fits =
        |per: usize| widths.chunks(per).all(|c| first + c.iter().map(|w| w + GAP).sum::<usize>() <= width);
    let per = (1..=widths.len()).rev().find(|per| fits(*per)).unwrap_or(1);
    let per = widths.len().div_ceil(widths.len().div_ceil(per)).max(1);
    (0..widths.len()).step_by(per).map(|i| i..(i + per).min(widths.len())).collect()
}

fn lines(first: usize, laid: &[Laid], blocks: &[Block<'_>]) -> Vec<(Kind, String)> {
    let line = |name: &str, cells: &mut dyn Iterator<Item = &str>| {
        let mut text = format!("{name:<first$}");
        for (cell, column) in cells.zip(laid) {
            text += &format!("{:GAP$}{cell:>width$}", "", width = column.width);
        }
        text.trim_end().to_owned()
    };
    let mut out = Vec::new();
    let heads = laid.iter().map(|l| l.head.len()).max().unwrap_or(0);
    for i in 0..heads {
        // Single-line names are on the last line.
        let part = |l: &'_ Laid| {
            (i + l.head.len()).checked_sub(heads).map_or("", |at| l.head[at].as_str()).to_owned()
        };
        let parts: Vec<String> = laid.iter().map(part).collect();
        out.push((Kind::Head, line("", &mut parts.iter().map(String::as_str))));
    }
    let mut at = 0;
    for block in blocks {
        if !block.title.is_empty() {
            out.push((Kind::Variant, block.title.clone()));
        }
        for row in &block.rows {
            let mut cells = laid.iter().map(|l| l.cells[at].as_str());
            let name = if block.title.is_empty() {
                format!("  {}", row.name)
            } else {
                format!("  {:>width$}", row.name, width = first - 2)
            };
            out.push((Kind::Row, line(&name, &mut cells)));
            at += 1;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::figures::figures_of;
    use super::super::findings::made_up::floored;
    use super::super::series::series;
    use super::super::{columns::columns, sides::tests::three};
    use super::*;

    fn text(width: usize) -> Vec<Vec<String>> {
        let mut runs = [three()];
        runs[0].results[0] = floored(runs[0].results[0].clone(), 0.5, "cache line");
        let (columns, all) = (columns(&runs), series(&runs));
        let table = table(&figures_of(&all, &columns)[0], &columns, &runs, width);
        assert_eq!(table.notes, ["[1] the card is out of breath", "Floors: shm: cache line."]);
        table.tables.into_iter().map(|t| t.into_iter().map(|(_, line)| line).collect()).collect()
    }

    #[test]
    fn devices_are_columns_under_heads_that_say_what_is_virtual() {
        let lines = &text(100)[0];
        assert!(lines[0].trim() == "model:card" && lines[1].trim_end().ends_with("(virtual)"), "{lines:#?}");
        assert_eq!(lines[2], "nic → nic");
        let row = lines[3].split_whitespace().collect::<Vec<_>>();
        assert_eq!(row, ["1", "B", "1.01*", "1.00..1.02", "2.02×", "10.1", "10.0..10.2", "4.04"]);
        assert!(lines[9].contains("– [1]"), "{}", lines[9]);
    }

    #[test]
    fn what_does_not_fit_becomes_several_tables() {
        for width in [40, 60, 80] {
            let tables = text(width);
            let longest = tables.iter().flatten().map(|l| l.chars().count()).max();
            assert!(longest.is_some_and(|n| n <= width), "{width}: {tables:#?}");
        }
        assert!(text(40).len() > 1);
    }
}
