//! The first screen of a run: the machine and how far to trust the run, a line for each common question, and doubts
//! with the remedy. Its number of lines is limited; everything else is in [`terminal`](super::terminal()).

mod answers;
mod braille;
mod trust;

use super::number::plural;
use super::terminal::{BOLD, DIM, Out, YELLOW, cut};
use super::words;
pub(super) use answers::{Answers, Row, answers, cell};
use braille::panels;
use results::schema::{ClockKind, Run};

/// The appearance of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// Columns.
    pub width: usize,
    /// Maximum lines.
    pub lines: usize,
    /// Whether to use colours and characters beyond ASCII.
    pub colour: bool,
    /// Whether to draw latency and bandwidth against size if there is room; needs `colour`.
    pub plot: bool,
}

/// Maximum lines of one doubt.
const DOUBT_LINES: usize = 2;
/// Lines of doubts with and without plots.
const DOUBTS: (usize, usize) = (4, 8);
/// Lines of the plots: of fewer they show nothing; as many as these come before further rows; and up to the last on a tall terminal.
const PLOT: (usize, usize, usize) = (5, 9, 14);
/// On a lower screen, lines of the head are not folded.
const LOW: usize = 20;
/// Spaces between columns of the table.
const GAP: usize = 2;
/// Colours of the columns' curves, and of their heads.
const CURVES: [&str; 4] = ["36", "35", "34", "32"];

pub(super) const LEGEND: &str = "low..high: 95 % interval, ? none, ! wide; ×: ratio to the machine's floor.";
const LEGEND_EXACT: &str = "Virtual time is exact: no interval, and no floor.";

/// The first screen of a run.
#[must_use]
pub fn screen(run: &Run, look: Look) -> String {
    let mut out = Out { text: String::new(), width: look.width.max(40), colour: look.colour };
    let found = answers(run);
    let head = head(&out, run, if look.lines < LOW { 1 } else { 2 });
    let doubts: Vec<String> =
        trust::doubts(run).iter().flat_map(|d| folded(&out, "! ", d, DOUBT_LINES)).collect();
    // An empty line, the table's head and legend, and the heading of the doubts.
    let heads = if found.heads.iter().any(|name| !name[1].is_empty()) { 2 } else { 1 };
    let fixed = head.len() + 2 + heads + usize::from(!doubts.is_empty());
    let rows = found.asked().min(look.lines.saturating_sub(fixed));
    let mut room = look.lines.saturating_sub(fixed + rows);
    let drawn = if look.plot && look.colour { panels(&found.rows, out.width) } else { Vec::new() };
    let of_doubts = doubts.len().min(if drawn.is_empty() { DOUBTS.1 } else { DOUBTS.0 }).min(room);
    room -= of_doubts;
    let of_plot = if drawn.is_empty() || room < PLOT.0 { 0 } else { room.min(PLOT.1) };
    room -= of_plot;
    // A heading without a doubt leaves its line to a row.
    room += usize::from(of_doubts == 0 && !doubts.is_empty());
    let more_rows = room.min(found.rows.len() - rows);
    room -= more_rows;
    let more_doubts = if of_doubts == 0 { 0 } else { room.min(doubts.len() - of_doubts) };
    room -= more_doubts;
    let more_plot = if of_plot == 0 { 0 } else { room.min(PLOT.2.saturating_sub(of_plot)) };
    let (rows, of_doubts, of_plot) = (rows + more_rows, of_doubts + more_doubts, of_plot + more_plot);

    head.iter().take(look.lines).for_each(|line| out.line(line));
    if look.lines < fixed {
        return out.text;
    }
    out.line("");
    table(&mut out, run, &found, (rows, of_doubts == 0 && !doubts.is_empty()));
    if of_plot > 0 {
        plot(&mut out, &drawn, of_plot);
    }
    if of_doubts > 0 {
        let left = doubts.len() - of_doubts;
        let more =
            if left > 0 { format!(" ({} more with --full)", plural(left, "line")) } else { String::new() };
        let heading = out.styled(BOLD, &format!("Not to be trusted, and what to do{more}"));
        out.line(&heading);
        for line in &doubts[..of_doubts] {
            let marked = line.strip_prefix('!').map(|rest| out.styled(YELLOW, "!") + rest);
            out.line(marked.as_deref().unwrap_or(line));
        }
    }
    out.text
}

/// The experiments, the machine, and how far to trust them; long texts take up to `most` lines.
fn head(out: &Out, run: &Run, most: usize) -> Vec<String> {
    let env = &run.environment;
    let title = format!(
        "{}: {}{}",
        words::headline(run),
        plural(run.results.len(), "result"),
        if env.date.is_empty() { String::new() } else { format!(", {}", words::date(&env.date)) }
    );
    let mut lines = vec![out.styled(BOLD, &cut(&out.safe(&title), out.width))];
    let mut add = |first: &str, text: &str, most: usize| lines.extend(folded(out, first, text, most));
    add("Machine   ", &words::machine_briefly(env), 1);
    let level = trust::level(run);
    if level != trust::Level::Exact {
        add("Noise     ", &trust::noise(env), most);
    }
    add("Trust     ", &trust::verdict(run, level), most);
    let named = trust::warnings(env);
    if !named.is_empty() {
        add("Warnings  ", &named.join("; "), 1);
    }
    if matches!(level, trust::Level::Poor | trust::Level::Rough | trust::Level::Unknown) {
        for line in lines.iter_mut().filter(|line| line.starts_with("Trust") || line.starts_with("Warnings"))
        {
            *line = out.styled(YELLOW, line);
        }
    }
    lines
}

/// How far to trust a run, in a sentence without its point.
pub(super) fn trust(run: &Run) -> String {
    trust::verdict(run, trust::level(run))
}

/// Folds text into at most `most` lines of the width; `...` marks that there was more.
fn folded(out: &Out, first: &str, text: &str, most: usize) -> Vec<String> {
    let mut own = Out { text: String::new(), width: out.width, colour: out.colour };
    own.wrapped(first, text);
    let mut lines: Vec<String> = own.text.lines().map(str::to_owned).collect();
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = format!("{}...", cut(last, out.width - 3).trim_end_matches("..."));
        }
    }
    lines
}

/// Which parts of a cell are shown.
#[derive(Clone, Copy)]
struct Parts(usize);

/// Rows with their columns: as many columns and parts of cells as fit, the best first. `doubtful` if there is no room for doubts.
fn table(out: &mut Out, run: &Run, found: &Answers<'_>, (rows, doubtful): (usize, bool)) {
    let shown = &found.rows[..rows];
    let whole = (found.heads.as_slice(), shown);
    let label = Label::of(out, shown);
    let widths = |parts: Parts| -> Vec<[usize; 3]> {
        (0..found.heads.len()).map(|column| part_widths(out, shown, column, parts)).collect()
    };
    let fits = |parts: Parts, columns: usize| {
        let cells: usize = (0..columns).map(|i| GAP + column_width(out, whole, i, &widths(parts)[i])).sum();
        label.width() + cells <= out.width
    };
    let all = found.heads.len();
    // Ratios go before columns do.
    let (parts, columns) = [3, 2]
        .into_iter()
        .map(|parts| (Parts(parts), all))
        .chain((1..all).rev().map(|columns| (Parts(2), columns)))
        .find(|(parts, columns)| fits(*parts, *columns))
        .unwrap_or((Parts(1), 1));
    let widths = widths(parts);
    for part in 0..2 {
        let mut head = " ".repeat(label.width());
        for (i, name) in found.heads.iter().take(columns).enumerate() {
            let width = column_width(out, whole, i, &widths[i]);
            let name = cut(&out.safe(&name[part]), width);
            let pad = " ".repeat(width - name.chars().count());
            head += &format!("{:GAP$}{}{pad}", "", out.styled(CURVES[i % CURVES.len()], &name));
        }
        if part == 0 || found.heads.iter().any(|name| !name[1].is_empty()) {
            out.line(&head);
        }
    }
    for row in shown {
        let mut line = label.line(out, row);
        for (i, cell) in row.cells.iter().take(if row.alone { 1 } else { columns }).enumerate() {
            let [v, w, q] = widths[i];
            let [value, interval, ratio] = cell.each_ref().map(|part| out.safe(part));
            let (interval, ratio) = (
                if parts.0 > 1 { interval } else { String::new() },
                if parts.0 > 2 { ratio } else { String::new() },
            );
            let text = format!("{value:>v$} {interval:<w$} {ratio:>q$}");
            line += &format!(
                "{:GAP$}{:<width$}",
                "",
                text.trim_end(),
                width = column_width(out, whole, i, &widths[i])
            );
        }
        if let Some(note) = row.note.as_deref().filter(|_| columns > 1 && row.alone) {
            let note = cut(&out.safe(note), out.width.saturating_sub(line.chars().count() + GAP));
            line += &format!("{:GAP$}{}", "", out.styled(DIM, &note));
        }
        out.line(&line);
    }
    let legend = legend(run, found, (rows, doubtful), parts, columns);
    let legend = folded(out, "", &legend, 1).concat();
    let legend = out.styled(DIM, &legend);
    out.line(&legend);
}

/// Explains the marks, and notes omitted parts.
fn legend(
    run: &Run,
    found: &Answers<'_>,
    (rows, doubtful): (usize, bool),
    parts: Parts,
    columns: usize,
) -> String {
    let mut lost = Vec::new();
    if columns < found.heads.len() {
        lost.push(found.heads[columns..].iter().map(|name| name[0].as_str()).collect::<Vec<_>>().join(", "));
    }
    if rows < found.rows.len() {
        lost.push(plural(found.rows.len() - rows, "more row"));
    }
    if parts.0 < 3 && run.results.iter().any(|r| r.floor.is_some()) {
        lost.push("ratios to the floor".to_owned());
    }
    if doubtful {
        lost.push("what not to trust".to_owned());
    }
    if !lost.is_empty() {
        return format!("With --full: {}.", lost.join("; "));
    }
    let exact = run.results.iter().all(|r| r.clock == ClockKind::Virtual);
    (if exact { LEGEND_EXACT } else { LEGEND }).to_owned()
}

fn part_widths(out: &Out, rows: &[Row<'_>], column: usize, parts: Parts) -> [usize; 3] {
    let widest = |part: usize| {
        let of = |row: &Row<'_>| row.cells.get(column).map_or(0, |c| out.safe(&c[part]).chars().count());
        // Text that is no number may be as wide as the whole column.
        if part < parts.0 { rows.iter().filter(|row| !row.words).map(of).max().unwrap_or(0) } else { 0 }
    };
    [widest(0), widest(1), widest(2)]
}

fn column_width(
    out: &Out,
    (heads, rows): (&[[String; 2]], &[Row<'_>]),
    column: usize,
    parts: &[usize; 3],
) -> usize {
    let cells = parts.iter().sum::<usize>() + parts[1..].iter().filter(|w| **w > 0).count();
    let words = rows.iter().filter(|row| row.words).filter_map(|row| row.cells.get(column));
    let words = words.map(|cell| out.safe(&cell[0]).chars().count()).max().unwrap_or(0);
    // A device's name may be long; the numbers decide.
    let name = heads[column].iter().map(|part| out.safe(part).chars().count()).max().unwrap_or(0);
    cells.max(words).max(name.min(cells.max(20)))
}

/// The left part of a row: group, name, and unit.
struct Label {
    group: usize,
    name: usize,
    unit: usize,
}

impl Label {
    fn of(out: &Out, rows: &[Row<'_>]) -> Self {
        let widest = |part: for<'r> fn(&'r Row<'_>) -> &'r String| {
            rows.iter().map(|row| out.safe(part(row)).chars().count()).max().unwrap_or(0)
        };
        Self { group: widest(|r| &r.group), name: widest(|r| &r.name).min(30), unit: widest(|r| &r.unit) }
    }

    fn width(&self) -> usize {
        self.group + 1 + self.name + 1 + self.unit
    }

    fn line(&self, out: &Out, row: &Row<'_>) -> String {
        let part = |text: &str, width: usize| cut(&out.safe(text), width);
        format!(
            "{:<g$} {:<n$} {:<u$}",
            part(&row.group, self.group),
            part(&row.name, self.name),
            part(&row.unit, self.unit),
            g = self.group,
            n = self.name,
            u = self.unit
        )
    }
}

/// Panels side by side: a title line, then the dots.
fn plot(out: &mut Out, drawn: &[braille::Panel], lines: usize) {
    let each = (out.width - GAP * (drawn.len() - 1)) / drawn.len();
    let titles: Vec<String> =
        drawn.iter().map(|p| format!("{:<each$}", cut(&out.safe(&p.title), each))).collect();
    let titles = out.styled(DIM, &titles.join(&" ".repeat(GAP)));
    out.line(&titles);
    let dots: Vec<Vec<Vec<(char, usize)>>> = drawn.iter().map(|p| p.dots(each, lines - 1)).collect();
    for row in 0..lines - 1 {
        let mut line = String::new();
        for (i, panel) in dots.iter().enumerate() {
            if i > 0 {
                line += &" ".repeat(GAP);
            }
            for (dot, curve) in &panel[row] {
                let dot = dot.to_string();
                line += &if dot == "\u{2800}" {
                    " ".to_owned()
                } else {
                    out.styled(CURVES[curve % CURVES.len()], &dot)
                };
            }
        }
        out.line(&line);
    }
}
