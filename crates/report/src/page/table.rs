//! The results as tables: one for each unit, since a column has one unit.

use std::collections::BTreeMap;

use maud::{Markup, html};

use crate::names::run_label;
use crate::number::{count, display_unit, percent, sig, size};
use crate::plots::index_of;
use crate::series::{alone, bound, flags, interval, is_wide, precision, series, spread};
use results::schema::{Measurement, Run};

/// Run and result.
type Row<'a> = (usize, &'a Measurement);

/// The section with its filter and tables.
pub(super) fn section(runs: &[Run]) -> Markup {
    // The order of measuring is shuffled; that of the curves is readable.
    let all = series(runs);
    let points = |floor: bool| {
        all.iter().filter(move |s| s.is_floor() == floor).flat_map(|s| s.points.iter().map(|r| (s.run, *r)))
    };
    let rows: Vec<Row<'_>> = points(false).chain(points(true)).collect();
    let mut units: Vec<&str> = Vec::new();
    for (_, r) in &rows {
        if !units.contains(&r.unit.as_str()) {
            units.push(&r.unit);
        }
    }
    let devices = runs.iter().any(|run| crate::words::devices(run).len() > 1);
    html! {
        section #results {
            h2 { "Results" }
            p.hint { "Press a median to see its distribution: all samples, and the median of each launch." }
            form.filter role="search" {
                label { "Filter "
                    input #filter type="search" placeholder="e.g. write nic, 4 KiB" autocomplete="off";
                }
                label { input #doubtful type="checkbox"; " only wide or flagged" }
                output #shown for="filter doubtful" aria-live="polite" { (count(rows.len() as u64)) " results" }
            }
            @for unit in units {
                @let of_unit: Vec<Row<'_>> = rows.iter().copied().filter(|(_, r)| r.unit == unit).collect();
                (of_unit_table(unit, &of_unit, runs, devices))
            }
        }
    }
}

/// One table's columns.
struct Columns {
    unit: String,
    scale: f64,
    run: bool,
    device: bool,
    /// Name and explanation of the column of the machine's own limit, if a result has one.
    bound: Option<(&'static str, &'static str)>,
    p99: bool,
}

impl Columns {
    fn of(unit: &str, rows: &[Row<'_>], run: bool, device: bool) -> Self {
        let largest = rows.iter().map(|(_, r)| r.median).fold(0.0, f64::max);
        let (unit, scale) = display_unit(unit, largest);
        let bounded = rows.iter().find(|(_, r)| r.floor.is_some());
        let bound =
            bounded.map(|(_, r)| (bound(r), if r.higher_is_better() { "to ceiling" } else { "to floor" }));
        let p99 = rows.iter().any(|(_, r)| quantile(r, 0.99).is_some());
        Self { unit, scale, run, device, bound, p99 }
    }

    /// Name, unit, and whether it holds numbers.
    fn heads(&self) -> Vec<(&'static str, &str, bool)> {
        let unit = self.unit.as_str();
        let (bound, to_bound) = self.bound.unwrap_or_default();
        let all = [
            (self.run, "run", "", false),
            (true, "measured", "", false),
            (self.device, "device", "", false),
            (true, "variant", "", false),
            (true, "size", "", true),
            (true, "median", unit, true),
            (true, "95 % interval", unit, true),
            (self.bound.is_some(), bound, unit, true),
            (self.bound.is_some(), "ratio", to_bound, true),
            (self.p99, "p99", unit, true),
            (true, "n", "in launches", true),
            (true, "remarks", "", false),
        ];
        all.into_iter().filter(|h| h.0).map(|(_, name, unit, number)| (name, unit, number)).collect()
    }

    fn scaled(&self, v: f64) -> String {
        sig(v * self.scale, 4)
    }
}

fn quantile(r: &Measurement, p: f64) -> Option<f64> {
    r.quantiles.iter().find(|q| q.p == p).and_then(|q| q.value)
}

fn title(unit: &str) -> String {
    match unit {
        "us" => "Times".to_owned(),
        "MB/s" => "Bandwidths".to_owned(),
        "1/s" => "Rates".to_owned(),
        "B" => "Memory".to_owned(),
        other => format!("In {other}"),
    }
}

fn of_unit_table(unit: &str, rows: &[Row<'_>], runs: &[Run], devices: bool) -> Markup {
    let columns = Columns::of(unit, rows, runs.len() > 1, devices);
    let id = format!("table-{}", unit.chars().filter(char::is_ascii_alphanumeric).collect::<String>());
    html! {
        h3 id={ (id) "-title" } { (title(unit)) }
        table.results aria-labelledby={ (id) "-title" } {
            thead {
                tr {
                    @for (name, unit, number) in columns.heads() {
                        th scope="col" class=[number.then_some("number")] aria-sort="none" {
                            button type="button" { (name) @if !unit.is_empty() { " " small { (unit) } } }
                        }
                    }
                }
            }
            tbody { @for (run, r) in rows { (row(*run, r, &columns, runs)) } }
        }
    }
}

/// A cell with the number to sort by, and on narrow screens its head before it; absent numbers are a dash.
fn number(head: &str, text: Option<String>, value: Option<f64>) -> Markup {
    html! { td.number data-l=(head) data-v=[value] { (text.as_deref().unwrap_or(ABSENT)) } }
}

const ABSENT: &str = "–";

fn row(run: usize, r: &Measurement, columns: &Columns, runs: &[Run]) -> Markup {
    let s = alone(r);
    let p99 = quantile(r, 0.99);
    let sized = r.size_bytes > 0 || !s.is_floor();
    let wide = is_wide(r);
    let flags = flags(r);
    let cell = index_of(runs, run, r).map(|(run, result)| format!("{run},{result}"));
    html! {
        tr data-doubtful=[(wide || !flags.is_empty()).then_some("1")] title=[r.note.as_deref()] {
            @if columns.run { td data-l="run" { (run_label(&runs[run], run)) } }
            td { (s.what()) }
            @if columns.device { td data-l="device" { (r.device) @if s.is_virtual() { " (virtual)" } } }
            td { @if !r.variant.is_empty() { (s.name()) } }
            (number("size", sized.then(|| size(r.size_bytes)), sized.then_some(r.size_bytes as f64)))
            td.number.median data-l={ "median " (columns.unit) } data-v=(r.median) {
                button.cell type="button" data-cell=[cell] aria-expanded="false" title="draw its distribution" { (columns.scaled(r.median)) }
            }
            td.number.(if wide { "missed" } else { "met" }) data-l="95 %" data-v=[interval(r).map(|ci| ci[0])] title=[r.ci95_reason.as_deref()] {
                (spread(r, columns.scale))
            }
            @if let Some((name, _)) = columns.bound { (floor(r, name, columns)) }
            @if columns.p99 { (number("p99", p99.map(|v| columns.scaled(v)), p99)) }
            (number("n", Some(samples(r)), Some(r.n as f64)))
            td { (remarks(r, &flags)) }
        }
    }
}

/// `6,000 in 6`.
fn samples(r: &Measurement) -> String {
    match r.launches.len() {
        0 => count(r.n),
        launches => format!("{} in {launches}", count(r.n)),
    }
}

/// The cells of the floor, or ceiling, of this name and of the ratio to it.
fn floor(r: &Measurement, name: &str, columns: &Columns) -> Markup {
    let floor = r.floor.as_ref();
    html! {
        td.number data-l=(name) data-v=[floor.map(|f| f.value)] title=[floor.map(|f| f.what.as_str())] {
            (floor.map_or_else(|| ABSENT.to_owned(), |f| columns.scaled(f.value)))
        }
        (number("ratio", floor.map(|f| format!("{}×", sig(f.ratio, 3))), floor.map(|f| f.ratio)))
    }
}

/// Reservations about the number: a precision not reached, flags.
fn remarks(r: &Measurement, flags: &[&str]) -> String {
    let p = precision(r);
    let missed = match (p.missed, p.worst) {
        (0, _) => None,
        (n, Some(w)) if r.launches.len() > 1 => {
            Some(format!("imprecise in {n} of {} launches: up to {}", r.launches.len(), percent(w)))
        }
        (_, Some(w)) => Some(format!("imprecise: {}", percent(w))),
        (_, None) => Some("imprecise".to_owned()),
    };
    missed.into_iter().chain(by_kind(flags)).collect::<Vec<_>>().join(", ")
}

/// Flags, each kind once; flags with a count as `context switches: up to 40`.
fn by_kind(flags: &[&str]) -> Vec<String> {
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for flag in flags {
        let (kind, count) = flag.split_once(": ").unwrap_or((flag, ""));
        let most = kinds.entry(kind).or_default();
        *most = (*most).max(count.parse().unwrap_or(0));
    }
    let told = |(kind, most): (&str, u64)| match most {
        0 => kind.to_owned(),
        most => format!("{kind}: up to {}", count(most)),
    };
    kinds.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::made_up::{floored, point, run};

    #[test]
    fn a_row_shows_what_defends_its_number() {
        let mut r = floored(point("latency", "op=write,source=nic,sink=host", 4096, 1.2), 1.0, "memcpy");
        r.launches[2].stop.state = "not reached: 3.1 %".to_owned();
        r.launches[2].stop.half_width = Some(0.031);
        r.launches[1].flags = vec!["trend".to_owned(), "context switches: 9".to_owned()];
        r.launches[3].flags = vec!["context switches: 40".to_owned()];
        let text = section(&[run(vec![r])]).into_string();
        for part in [
            "median <small>µs</small>",
            "1.200",
            "1.19..1.21",
            "1.20×",
            "4 KiB",
            "6,000 in 6",
            "imprecise in 1 of 6 launches: up to 3.1 %, context switches: up to 40, trend",
            "write (nic → host)",
            "data-doubtful",
        ] {
            assert!(text.contains(part), "no {part}");
        }
    }

    #[test]
    fn each_unit_has_its_own_table() {
        let all = vec![point("latency", "op=write", 8, 1.0), point("bandwidth", "op=write", 8, 9.0)];
        let text = section(&[run(all)]).into_string();
        assert_eq!(text.matches("<table").count(), 2);
        assert!(text.contains("median <small>MB/s</small>"));
    }

    #[test]
    fn column_of_a_bound_is_a_floor_for_times_and_a_ceiling_for_rates() {
        for (experiment, name) in [("latency", "floor"), ("bandwidth", "ceiling")] {
            let r = floored(point(experiment, "op=write", 8, 1.0), 1.0, "memcpy");
            let text = section(&[run(vec![r])]).into_string();
            for part in [format!("<small>to {name}</small>"), format!("data-l=\"{name}\"")] {
                assert!(text.contains(&part), "no {part} in {text}");
            }
        }
    }
}
