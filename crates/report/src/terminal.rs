//! The report for a terminal: tables of a few columns that fit, then the findings.

use std::collections::BTreeSet;

use comfy_table::{CellAlignment, ContentArrangement, Table};

use super::columns::{Column, columns};
use super::figures::{Figure, Panel, figures_of};
use super::findings::{Finding, Tone, findings};
use super::number::{sig, size};
use super::over_time::intervals;
use super::series::{Series, series, spread};
use super::side_text::{self, Kind};
use super::words;
use results::plain;
use results::schema::{ClockKind, Measurement, Run};

/// Narrower terminals get this width all the same.
const MIN_WIDTH: usize = 40;
/// Longest head of a column.
const MAX_HEAD: usize = 30;
/// Spaces between columns.
const GAP: usize = 2;

/// Tables of a run, one for each panel of curves, and the findings in words, at most `width` columns wide.
///
/// A table has sizes as rows and variants as columns; each cell is the median, the 95 % interval (`!` if that is wide) and the ratio
/// to the floor. Without `colour` the text is
/// plain ASCII without escape sequences, for pipes and files.
#[must_use]
pub fn terminal(run: &Run, width: usize, colour: bool) -> String {
    let mut out = Out { text: String::new(), width: width.max(MIN_WIDTH), colour };
    out.wrapped("", &words::paragraph(run));
    let all = series(std::slice::from_ref(run));
    let columns = columns(std::slice::from_ref(run));
    let figures = figures_of(&all, &columns);
    for figure in &figures {
        if figure.sides {
            out.sides(figure, &columns, run);
            continue;
        }
        for panel in &figure.panels {
            out.panel(figure, panel);
        }
    }
    if !figures.is_empty() {
        out.text.push('\n');
        let exact = run.results.iter().all(|r| r.clock == ClockKind::Virtual);
        out.wrapped("", if exact { LEGEND_EXACT } else { LEGEND });
        if !columns.is_empty() {
            out.wrapped("", LEGEND_SIDES);
        }
        if !exact && columns.iter().any(|c| c.is_virtual) {
            out.wrapped("", LEGEND_VIRTUAL);
        }
    }
    let moved = intervals(run);
    if !moved.is_empty() {
        out.heading("Over time");
        for line in moved.lines() {
            let line = cut(&out.safe(line), out.width);
            out.line(&line);
        }
    }
    out.heading("Findings");
    out.findings(findings(run));
    out.text
}

/// Maximum lines of findings.
const FINDINGS_MAX: usize = 25;
const ELSEWHERE: &str =
    "More of this, with details, is in the report (--html FILE) and the result file (--json FILE).";

const LEGEND: &str = "Cells: median, 95 % interval as low..high (? none, ! wider than 5 % to either side), ratio to the machine's \
                      own floor, which for rates is a ceiling.";

const LEGEND_SIDES: &str = "* the best of its row, where its interval is apart from all others and the difference is more \
                            than the same thing measured twice.";

const LEGEND_VIRTUAL: &str =
    "(virtual): simulated, another kind of time: exact, with no interval and no floor.";

const LEGEND_EXACT: &str = "Cells: virtual time, exact: the same run gives the same numbers again.";

/// Text being laid out at a fixed width.
pub(super) struct Out {
    pub(super) text: String,
    pub(super) width: usize,
    /// Whether escape sequences and characters beyond ASCII are wanted.
    pub(super) colour: bool,
}

pub(super) const BOLD: &str = "1";
pub(super) const DIM: &str = "2";
pub(super) const YELLOW: &str = "33";

impl Out {
    /// Foreign text without control characters, and in ASCII if plain.
    pub(super) fn safe(&self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        for c in text.chars() {
            match c {
                c if plain::is_terminal_control(c) => out.push('?'),
                c if self.colour || c.is_ascii() => out.push(c),
                '×' => out.push('x'),
                'µ' => out.push('u'),
                '±' => out.push_str("+-"),
                '→' => out.push_str("->"),
                '–' => out.push('-'),
                '½' => out.push_str("1/2"),
                '≥' => out.push_str(">="),
                _ => out.push('?'),
            }
        }
        out
    }

    pub(super) fn styled(&self, style: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{style}m{text}\x1b[0m") } else { text.to_owned() }
    }

    pub(super) fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    fn heading(&mut self, text: &str) {
        let safe = cut(&self.safe(text), self.width);
        let styled = self.styled(BOLD, &safe);
        self.text.push('\n');
        self.line(&styled);
    }

    /// Wraps text at the width, later lines indented as deep as `first` is long.
    pub(super) fn wrapped(&mut self, first: &str, text: &str) {
        let text = self.safe(text);
        let indent = " ".repeat(first.chars().count());
        let mut line = first.to_owned();
        let mut empty = true;
        for word in text.split_whitespace() {
            let word = cut(word, self.width - indent.len());
            if !empty && line.chars().count() + 1 + word.chars().count() > self.width {
                self.line(&std::mem::replace(&mut line, indent.clone()));
                empty = true;
            }
            if !empty {
                line.push(' ');
            }
            line.push_str(&word);
            empty = false;
        }
        self.line(&line);
    }

    /// As many findings as a reader wants: details are dropped first, then undecided findings, then the later facts.
    /// Doubts about the numbers stay.
    fn findings(&mut self, mut all: Vec<Finding>) {
        let whole = self.text.len();
        let full = all.clone();
        let cap = FINDINGS_MAX - ELSEWHERE.len().div_ceil(self.width);
        for details in [usize::MAX, 6, 4, 3, 2, 1, 0] {
            for (f, full) in all.iter_mut().zip(&full) {
                f.items = full.items.iter().take(details).cloned().collect();
            }
            if self.fits(&all, if details == usize::MAX { FINDINGS_MAX } else { cap }) {
                break;
            }
        }
        while !self.fits(&all, FINDINGS_MAX) || (all != full && !self.fits(&all, cap)) {
            let least = |tone| all.iter().rposition(|f| f.tone == tone);
            let Some(index) = least(Tone::CannotTell).or_else(|| least(Tone::Fact)) else { break };
            all.remove(index);
        }
        self.text.truncate(whole);
        all.iter().for_each(|f| self.finding(f));
        if all != full {
            self.wrapped("", ELSEWHERE);
        }
    }

    /// Whether these findings take no more lines.
    fn fits(&mut self, all: &[Finding], lines: usize) -> bool {
        let whole = self.text.len();
        all.iter().for_each(|f| self.finding(f));
        let taken = self.text[whole..].lines().count();
        self.text.truncate(whole);
        taken <= lines
    }

    fn finding(&mut self, f: &Finding) {
        let (mark, style) = match f.tone {
            Tone::Fact => ("* ", BOLD),
            Tone::CannotTell => ("? ", DIM),
            Tone::Caution => ("! ", YELLOW),
        };
        let start = self.text.len();
        self.wrapped(mark, &format!("{}: {}", f.topic, f.text));
        if self.colour {
            let marked = self.styled(style, mark.trim_end());
            self.text.replace_range(start..start + mark.trim_end().len(), &marked);
        }
        for item in &f.items {
            self.wrapped("    - ", item);
        }
    }

    /// Devices as columns.
    fn sides(&mut self, figure: &Figure<'_>, columns: &[Column], run: &Run) {
        let about =
            if figure.constant.is_empty() { String::new() } else { format!(" - {}", figure.constant) };
        self.heading(&format!("{} ({}){about}, side by side", figure.title, figure.unit));
        let table = side_text::table(figure, columns, std::slice::from_ref(run), self.width);
        for (i, lines) in table.tables.iter().enumerate() {
            if i > 0 {
                self.text.push('\n');
            }
            for (kind, text) in lines {
                let text = cut(&self.safe(text), self.width);
                let line = if *kind == Kind::Row { text } else { self.styled(DIM, &text) };
                self.line(&line);
            }
        }
        for note in &table.notes {
            self.wrapped("  ", note);
        }
    }

    fn panel(&mut self, figure: &Figure<'_>, panel: &Panel<'_>) {
        let about: Vec<&str> =
            [panel.title.as_str(), figure.constant.as_str()].into_iter().filter(|s| !s.is_empty()).collect();
        let about = if about.is_empty() { String::new() } else { format!(" - {}", about.join(", ")) };
        self.heading(&format!("{} ({}){about}", figure.title, figure.unit));
        if panel.dots { self.dots(figure, panel) } else { self.lines(figure, panel) }
    }

    fn lines(&mut self, figure: &Figure<'_>, panel: &Panel<'_>) {
        let sizes: BTreeSet<u64> =
            panel.curves.iter().flat_map(|(_, s)| s.points.iter().map(|r| r.size_bytes)).collect();
        let rows: Vec<String> = sizes.iter().map(|s| size(*s)).collect();
        let first = rows.iter().map(String::len).max().unwrap_or(0).max("size".len());
        let columns: Vec<Vec<String>> = panel
            .curves
            .iter()
            .map(|(label, s)| {
                let mut cells = vec![cut(&self.safe(&figure.labels[*label]), MAX_HEAD)];
                cells.extend(aligned(s, &sizes, figure.scale).iter().map(|c| self.safe(c)));
                cells
            })
            .collect();
        let widths: Vec<usize> =
            columns.iter().map(|c| c.iter().map(|s| s.chars().count()).max().unwrap_or(0)).collect();
        for (i, chunk) in chunks(first, &widths, self.width).into_iter().enumerate() {
            if i > 0 {
                self.text.push('\n');
            }
            let mut head = vec!["size".to_owned()];
            head.extend(columns[chunk.clone()].iter().map(|c| c[0].clone()));
            let body = rows.iter().enumerate().map(|(row, size)| {
                let cells = columns[chunk.clone()].iter().map(|c| c[row + 1].clone());
                std::iter::once(size.clone()).chain(cells).collect()
            });
            self.table(head, body.collect(), 0);
        }
    }

    fn dots(&mut self, figure: &Figure<'_>, panel: &Panel<'_>) {
        let points = || panel.curves.iter().flat_map(|(_, s)| s.points.iter().map(move |r| (s, *r)));
        let sized = points().any(|(_, r)| r.size_bytes > 0);
        let mut head = vec!["median", "interval", "ratio"];
        if sized {
            head.insert(0, "size");
        }
        let numbers: Vec<Vec<String>> = points()
            .map(|(_, r)| {
                let mut row: Vec<String> = cell(r, figure.scale).iter().map(|c| self.safe(c)).collect();
                if sized {
                    row.insert(0, size(r.size_bytes));
                }
                row
            })
            .collect();
        let widest = |i: usize| numbers.iter().map(|row| row[i].chars().count()).max().unwrap_or(0);
        let taken: usize = head.iter().enumerate().map(|(i, h)| GAP + widest(i).max(h.len())).sum();
        let name = |s: &Series<'_>| cut(&self.safe(&s.name()), self.width.saturating_sub(taken));
        let rows = points().zip(&numbers).map(|((s, _), row)| {
            std::iter::once(name(s)).chain(row.iter().cloned()).collect::<Vec<String>>()
        });
        let rows = rows.collect();
        self.table(std::iter::once("").chain(head).map(str::to_owned).collect(), rows, 1);
    }

    /// Columns from `left` on are right-aligned.
    pub(super) fn table(&mut self, head: Vec<String>, rows: Vec<Vec<String>>, left: usize) {
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(head).add_rows(rows);
        for (i, column) in table.column_iter_mut().enumerate() {
            column.set_padding((0, GAP as u16));
            column.set_cell_alignment(if i < left { CellAlignment::Left } else { CellAlignment::Right });
        }
        for (i, line) in table.lines().enumerate() {
            let line = if i == 0 { self.styled(DIM, line.trim_end()) } else { line };
            self.line(&line);
        }
    }
}

/// The first `width` characters, `...` marking that some are missing.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut out: String = text.chars().take(width.saturating_sub(3)).collect();
    out.push_str("...");
    out
}

/// Median, interval and ratio as text.
fn cell(r: &Measurement, scale: f64) -> [String; 3] {
    if r.clock == ClockKind::Virtual {
        return [sig(r.median * scale, 3), String::new(), String::new()];
    }
    let ratio = r.floor.as_ref().map_or_else(String::new, |f| format!("{}×", sig(f.ratio, 3)));
    [sig(r.median * scale, 3), spread(r, scale), ratio]
}

/// Cells of a column with their three parts under each other.
fn aligned(s: &Series<'_>, sizes: &BTreeSet<u64>, scale: f64) -> Vec<String> {
    let parts: Vec<[String; 3]> =
        sizes.iter().map(|size| s.at(*size).map_or_else(Default::default, |r| cell(r, scale))).collect();
    let widest = |part: usize| parts.iter().map(|p| p[part].chars().count()).max().unwrap_or(0);
    let (v, w, q) = (widest(0), widest(1), widest(2));
    let gap = if q > 0 { " " } else { "" };
    parts.iter().map(|[value, width, ratio]| format!("{value:>v$} {width:<w$}{gap}{ratio:>q$}")).collect()
}

/// Ranges of columns that fit the width next to the first column, of about equal number.
fn chunks(first: usize, widths: &[usize], width: usize) -> Vec<std::ops::Range<usize>> {
    let fits = |per: usize| {
        widths.chunks(per).all(|c| first + GAP + c.iter().map(|w| w + GAP).sum::<usize>() - GAP <= width)
    };
    let per = (1..=widths.len()).rev().find(|per| fits(*per)).unwrap_or(1);
    // Balances tables: four columns become two and two, not three and one.
    let tables = widths.len().div_ceil(per);
    let per = widths.len().div_ceil(tables.max(1));
    (0..widths.len()).step_by(per.max(1)).map(|i| i..(i + per).min(widths.len())).collect()
}

#[cfg(test)]
mod tests {
    use super::super::findings::made_up::{curve, floored, point, run};
    use super::*;

    fn made_up() -> Run {
        let places = ["nic,sink=nic", "nic,sink=host", "host,sink=nic", "host,sink=host"];
        let mut all = Vec::new();
        for op in ["write", "send", "read"] {
            for place in places {
                all.extend(curve("latency", &format!("op={op},source={place}"), 0..=22, |x| {
                    0.1 + x / 9000.0
                }));
            }
        }
        all.push(point("floor", "what=futex wake-up", 0, 5.1));
        let mut run = run(all.into_iter().map(|m| floored(m, 0.1, "cache-line half round trip")).collect());
        run.results[3].ci95 = run.results[3].ci95.map(|[low, high]| [0.9 * low, 1.1 * high]);
        run.results[4].ci95 = None;
        run
    }

    #[test]
    fn nothing_is_wider_than_the_terminal() {
        for width in [40, 60, 80, 120, 200] {
            let text = terminal(&made_up(), width, false);
            let longest = text.lines().max_by_key(|l| l.chars().count()).expect("lines");
            assert!(longest.chars().count() <= width, "{width}: {longest}");
        }
    }

    #[test]
    fn devices_stand_side_by_side_and_virtual_time_is_named() {
        for width in [60, 100] {
            let text = terminal(&super::super::sides::tests::three(), width, false);
            for part in [
                "side by side",
                "(virtual)",
                "nic -> nic",
                "1.01*",
                "- [1]",
                "out of breath",
                "another kind of time",
            ] {
                assert!(text.contains(part), "{width}: no {part} in {text}");
            }
            assert!(text.lines().all(|l| l.chars().count() <= width), "{text}");
            assert!(text.is_ascii());
        }
    }

    #[test]
    fn plain_text_is_ascii_and_has_no_escapes() {
        let mut run = made_up();
        run.environment.host = "n\x1b[31möde".to_owned();
        run.results.iter_mut().for_each(|r| r.device = "dev\x07\x1b]0;x\n".to_owned());
        let text = terminal(&run, 80, false);
        assert!(text.is_ascii() && text.bytes().all(|b| b == b'\n' || (32..127).contains(&b)));
        let coloured = terminal(&run, 80, true);
        assert!(!coloured.contains("\x1b[31m") && !coloured.contains('\x07'));
        assert!(coloured.contains("\x1b[1m") && coloured.contains('µ'));
    }

    /// Goal: doubts about the numbers are always on the screen. Method: more findings than fit, the warnings last.
    #[test]
    fn findings_are_as_many_as_one_reads() {
        let item =
            |i| format!("detail {i} of some length, so that it takes about a line of a terminal by itself");
        let finding = |tone, topic: &str| Finding {
            tone,
            topic: topic.to_owned(),
            text: "It is so. ".repeat(12),
            items: (0..30).map(item).collect(),
        };
        let mut all: Vec<Finding> = (0..9).map(|i| finding(Tone::Fact, &format!("Fact {i}"))).collect();
        all.extend((0..9).map(|i| finding(Tone::CannotTell, &format!("Doubt {i}"))));
        all.extend((0..2).map(|i| finding(Tone::Caution, &format!("Caution {i}"))));
        for (width, few) in [(60, 1), (100, 1), (100, 20)] {
            let mut out = Out { text: String::new(), width, colour: false };
            out.findings(all[all.len() - few..].to_vec());
            let lines = out.text.lines().count();
            assert!(lines <= FINDINGS_MAX, "{lines} lines:\n{}", out.text);
            assert!(out.text.contains("Caution 1") && out.text.contains("--html"), "{}", out.text);
            assert!(few == 1 || out.text.contains("Fact 0"), "{}", out.text);
        }
        let mut out = Out { text: String::new(), width: 100, colour: false };
        out.findings(vec![Finding { items: Vec::new(), ..finding(Tone::Fact, "Fact") }]);
        assert!(!out.text.contains("--html"), "nothing is left out: {}", out.text);
    }

    #[test]
    fn cells_show_median_interval_and_ratio() {
        let text = terminal(&made_up(), 120, false);
        let line = text.lines().find(|l| l.trim_start().starts_with("8 B")).expect("a row");
        assert!(line.contains("0.101 0.0999..0.102") && line.contains("1.01x"), "{line}");
        assert!(text.contains("0.101 0.0899..0.112!") && text.contains("0.102 ?"), "{text}");
    }

    #[test]
    fn four_columns_that_do_not_fit_become_two_and_two() {
        assert_eq!(chunks(7, &[20, 20, 20, 20], 80), [0..2, 2..4]);
        assert_eq!(chunks(7, &[16, 16, 16, 16], 80).len(), 1);
        assert_eq!(chunks(7, &[200], 80).len(), 1);
    }
}
