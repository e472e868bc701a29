//! A run as lines, one for each result: for single results, and for scripts.

use std::slice::from_ref;

use super::number::{count, display_unit, sig, size};
use super::screen::cell;
use super::series::{Series, series};
use super::terminal::Out;
use results::schema::{Measurement, Quantile, Run};

/// Quantiles shown of a tail.
const TAIL: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Results of devices in the order of the report, without the machine's own floors.
fn results(run: &Run, mut tell: impl FnMut(&Series<'_>, &Measurement) -> String) -> String {
    let all = series(from_ref(run));
    let shown = all.iter().filter(|s| !s.is_floor());
    shown.flat_map(|s| s.points.iter().map(|r| tell(s, r)).collect::<Vec<_>>()).collect()
}

/// Without `colour` in ASCII, as everything that may go to a file.
fn line(text: &str, colour: bool) -> String {
    Out { text: String::new(), width: usize::MAX, colour }.safe(text) + "\n"
}

/// The measured quantity: `one-way latency, write (host → host), 8 B, shm`.
fn what(s: &Series<'_>, r: &Measurement) -> String {
    let mut parts = vec![s.what(), s.name()];
    if r.size_bytes > 0 {
        parts.push(size(r.size_bytes));
    }
    if s.name() != s.device {
        parts.push(s.device.to_owned());
    }
    parts.join(", ") + if s.is_virtual() { " (virtual)" } else { "" }
}

/// A line for each result: quantity, median and unit, `low..high` of the 95 % interval (`?` none, `!` wider than 5 % to
/// either side), and the ratio to the floor. Without `colour` in ASCII.
#[must_use]
pub fn lines(run: &Run, colour: bool) -> String {
    results(run, |s, r| {
        let (unit, scale) = display_unit(s.unit, r.median);
        let [value, interval, ratio] = cell(r, scale);
        let floor = r.floor.as_ref().map_or_else(String::new, |f| format!("  {ratio} {}", f.what));
        let interval = if interval.is_empty() { interval } else { format!("  {interval}") };
        line(&format!("{}: {value} {unit}{interval}{floor}", what(s, r)), colour)
    })
}

/// Value and unit of each result, with four digits and without groups of thousands, in the units of the result file.
#[must_use]
pub fn values(run: &Run) -> String {
    results(run, |s, r| line(&format!("{} {}", sig(r.median, 4).replace(',', ""), s.unit), false))
}

/// The tail of each result: median, p90, p99 and p99.9 with the bounds of their 95 % intervals, or why there are too
/// few samples for one. Without `colour` in ASCII.
#[must_use]
pub fn tails(run: &Run, colour: bool) -> String {
    results(run, |s, r| {
        let (unit, scale) = display_unit(s.unit, r.median);
        let each = if r.batch > 1 { format!(", {} operations each", count(r.batch)) } else { String::new() };
        let head = line(&format!("{} ({unit}), {} samples{each}", what(s, r), count(r.n)), colour);
        TAIL.iter().fold(head, |text, p| {
            text + &line(&format!("  {:<6} {}", name(*p), quantile(r, *p, scale)), colour)
        })
    })
}

/// `p99.9`.
fn name(p: f64) -> String {
    format!("p{}", sig(p * 100.0, 3).trim_end_matches('0').trim_end_matches('.'))
}

fn quantile(r: &Measurement, p: f64, scale: f64) -> String {
    let value = |v: f64| sig(v * scale, 3);
    match r.quantiles.iter().find(|q| q.p == p) {
        Some(Quantile { value: Some(v), ci95: Some([low, high]), .. }) => {
            format!("{:>8}  {}..{}", value(*v), value(*low), value(*high))
        }
        Some(Quantile { value: Some(v), .. }) => format!("{:>8}  ?", value(*v)),
        Some(Quantile { refused: Some(why), .. }) => format!("{:>8}  {why}", "-"),
        _ => format!("{:>8}  not in this result", "-"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::findings::made_up::{floored, point, run};
    use super::*;

    fn one() -> Run {
        let r = floored(point("latency", "op=write,source=host,sink=host", 8, 0.937), 0.45, "cache line");
        run(vec![r])
    }

    #[test]
    fn one_number_is_one_line() {
        let told =
            "one-way latency, write (host -> host), 8 B, shm: 0.937 us  0.928..0.946  2.08x cache line\n";
        assert_eq!(lines(&one(), false), told);
        assert_eq!(values(&one()), "0.9370 us\n");
        let fast = run(vec![point("rate", "op=write", 8, 12_345_678.0)]);
        assert_eq!(values(&fast), "12350000 1/s\n");
    }

    /// Goal: quantiles supported by the samples are shown with bounds, others with the reason.
    #[test]
    fn a_tail_goes_as_far_as_its_samples() {
        let mut one = one();
        let told =
            |p, v| Quantile { p, value: Some(v), ci95: Some([v * 0.9, v * 1.1]), ..Quantile::default() };
        let refused = Quantile {
            p: 0.999,
            refused: Some("2,995 samples are needed".to_owned()),
            ..Quantile::default()
        };
        one.results[0].quantiles = vec![told(0.5, 0.9), told(0.9, 1.0), told(0.99, 2.0), refused];
        let text = tails(&one, false);
        let expected = [
            "one-way latency, write (host -> host), 8 B, shm (us), 6,000 samples",
            "  p50       0.900  0.810..0.990",
            "  p90        1.00  0.900..1.10",
            "  p99        2.00  1.80..2.20",
            "  p99.9         -  2,995 samples are needed",
        ];
        assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    }
}
