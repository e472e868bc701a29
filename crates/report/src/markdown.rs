//! A run as a Markdown table, for pull requests and notes: a row for each result.

use std::slice::from_ref;

use super::number::{display_unit, size};
use super::screen::cell;
use super::series::{flags, series};
use results::schema::Run;

/// The table, with a line about the run above it. Intervals are `low..high` at 95 %, `?` where there is none; the ratio is to the floor
/// of the machine. Text from the run cannot leave its cell.
#[must_use]
pub fn markdown(run: &Run) -> String {
    let env = &run.environment;
    let mut text =
        format!("{}, {}, nicety {}\n\n", plain(&env.cpu), plain(&env.date), plain(&env.nicety_version));
    text += "| measured | device | size | median | 95 % interval | floor | remarks |\n|---|---|---:|---:|---:|---:|---|\n";
    for s in series(from_ref(run)).iter().filter(|s| !s.is_floor()) {
        for r in &s.points {
            let (unit, scale) = display_unit(s.unit, r.median);
            let [value, interval, ratio] = cell(r, scale);
            let floor = r.floor.as_ref().map_or_else(String::new, |f| format!("{ratio} {}", f.what));
            let bytes = if r.size_bytes > 0 { size(r.size_bytes) } else { String::new() };
            let name = if s.name() == s.device { s.what() } else { format!("{}, {}", s.what(), s.name()) };
            let cells = [
                name,
                s.device.to_owned(),
                bytes,
                format!("{value} {unit}"),
                interval,
                floor,
                flags(r).join(", "),
            ];
            let cells: Vec<String> = cells.iter().map(|cell| plain(cell)).collect();
            text += &format!("| {} |\n", cells.join(" | "));
        }
    }
    text
}

/// Text that Markdown takes as it is, in one cell of a table.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '|' | '\\' | '`' | '*' | '_' | '<' | '[' | '&' => plain.extend(['\\', letter]),
            _ if letter.is_control() => plain.push(' '),
            _ => plain.push(letter),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::super::findings::made_up::{floored, point, run};
    use super::*;

    #[test]
    fn result_is_a_row_and_foreign_text_stays_in_its_cell() {
        let mut run = run(vec![floored(
            point("latency", "op=write,source=host,sink=host", 8, 0.937),
            0.45,
            "cache line",
        )]);
        run.results[0].device = "shm|<b>\n".to_owned();
        let text = markdown(&run);
        let rows: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(rows.len(), 3, "{text}");
        assert_eq!(
            rows[2],
            "| one-way latency, write (host → host) | shm\\|\\<b>  | 8 B | 0.937 µs | 0.928..0.946 | 2.08× cache line |  |"
        );
    }
}
