//! Figures as plots: panels of curves as SVG, and single values as rows of bars or marks.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::figures::{Figure, Panel};
use super::number::{self, count, plural, times};
use super::series::{Series, bound, interval, is_wide, low_high};
use super::svg::{Axis, COLOURS, Chart, Line, Mark, Point, Trace, legend};
use results::schema::{Measurement, Run};

/// Values that differ by more than this are set out on a logarithmic scale.
const LINEAR: f64 = 30.0;
/// A point this many times farther from its neighbours than the sizes explain does not stretch the axis: it is drawn at the edge.
const FAR: f64 = 10.0;
/// Intervals stretch the axis up to this many times the values, and are cut there.
const STRETCH: f64 = 2.0;

/// Charts of a figure, one for each of its panels of curves; `None` for others.
pub(super) fn charts(figure: &Figure<'_>, runs: &[Run]) -> Vec<Option<Chart>> {
    let traces: Vec<Option<Vec<Trace>>> =
        figure.panels.iter().map(|p| (!p.dots).then(|| traces(figure, p, runs))).collect();
    let all = || traces.iter().flatten().flatten();
    let (x, y) = (range(all().flat_map(|t| &t.points).map(|p| p.at[0])), heights(all()));
    let title = format!("{} ({})", super::series::words(figure.metric), figure.unit);
    let chart = |(traces, panel): (Option<Vec<Trace>>, &Panel<'_>)| {
        let (traces, x, y) = (traces?, x?, y?);
        let label = format!(
            "{} {} in {} against message size, {}; the numbers are in the results table",
            figure.title,
            panel.title,
            figure.unit,
            plural(panel.curves.len(), "curve")
        );
        let x =
            Axis { title: "message size".to_owned(), log: true, bytes: true, range: x, names: Vec::new() };
        let y = Axis { title: title.clone(), log: true, bytes: false, range: y, names: Vec::new() };
        Some(Chart { label, x, y, traces })
    };
    traces.into_iter().zip(&figure.panels).map(chart).collect()
}

/// The range of a vertical axis: that of all points but the far ones, and of intervals as far as they do not stretch it too much.
fn heights<'a>(traces: impl Iterator<Item = &'a Trace> + Clone) -> Option<[f64; 2]> {
    let near = |trace: &'a Trace| {
        let points = &trace.points;
        (0..points.len()).filter(move |i| !is_far(points, *i)).map(move |i| &points[i])
    };
    let [low, high] = range(traces.clone().flat_map(near).map(|p| p.at[1]))?;
    let ends = traces.flat_map(near).filter_map(|p| p.interval).flatten();
    range(ends.map(|end| end.clamp(low / STRETCH, high * STRETCH)).chain([low, high]))
}

/// Whether a point is farther from its neighbours than a value that is proportional to the size, or to its inverse, could be.
fn is_far(points: &[Point], i: usize) -> bool {
    let [x, y] = points[i].at;
    let around = [i.checked_sub(1), Some(i + 1)].into_iter().flatten().filter_map(|n| points.get(n));
    let bounds = around.map(|p| (p.at[1], (x / p.at[0]).max(p.at[0] / x)));
    let allowed = bounds.fold(None, |found: Option<[f64; 2]>, (value, factor)| {
        let [low, high] = found.unwrap_or([value; 2]);
        Some([low.min(value / factor), high.max(value * factor)])
    });
    allowed.is_some_and(|[low, high]| y < low / FAR || y > high * FAR)
}

fn range(values: impl Iterator<Item = f64>) -> Option<[f64; 2]> {
    values.fold(None, |range: Option<[f64; 2]>, v| {
        Some(range.map_or([v, v], |[low, high]| [low.min(v), high.max(v)]))
    })
}

/// The legend of all panels of curves.
pub(super) fn legend_of(figure: &Figure<'_>, charts: &[Option<Chart>]) -> Markup {
    let traces: Vec<&Trace> = charts.iter().flatten().flat_map(|c| &c.traces).collect();
    // Curves in the order of their colours, then the floors that they are compared with.
    let mut ordered: Vec<&Trace> = traces.iter().copied().filter(|t| !is_floor(t)).collect();
    ordered.sort_by_key(|t| t.curve);
    ordered.extend(traces.iter().copied().filter(|t| is_floor(t)));
    legend(&format!("Curves of {}", figure.title), &ordered)
}

/// Whether a trace is what the machine itself does: the floor of times, the ceiling of rates.
fn is_floor(trace: &Trace) -> bool {
    BOUNDS.iter().any(|bound| trace.name.starts_with(bound))
}

/// What [`bound`] returns.
const BOUNDS: [&str; 2] = ["floor", "ceiling"];

/// Floor or ceiling, for the results of a panel.
fn bound_of(panel: &Panel<'_>) -> &'static str {
    panel.curves.iter().find_map(|(_, s)| s.points.first()).map_or(BOUNDS[0], |r| bound(r))
}

/// Whether an axis can show it.
fn drawable(r: &Measurement) -> bool {
    r.median > 0.0 && r.size_bytes > 0
}

fn traces(figure: &Figure<'_>, panel: &Panel<'_>, runs: &[Run]) -> Vec<Trace> {
    let mut all = if figure.sides { side_floors(figure, panel) } else { floors(panel, figure.scale) };
    all.extend(panel.curves.iter().map(|(label, s)| curve(figure, *label, s, runs)));
    all.retain(|trace| !trace.points.is_empty());
    all
}

fn curve(figure: &Figure<'_>, label: usize, s: &Series<'_>, runs: &[Run]) -> Trace {
    let point = |r: &Measurement| Point {
        at: [r.size_bytes as f64, r.median * figure.scale],
        // An interval that reaches nothing is cut at a thousandth of the median: there is no zero.
        interval: interval(r).map(|ends| ends.map(|v| v.max(r.median / 1000.0) * figure.scale)),
        text: hover(s, r),
        cell: index_of(runs, s.run, r),
    };
    let of_device = figure.sides && s.is_virtual();
    Trace {
        name: figure.labels[label].clone(),
        curve: Some(label),
        line: if of_device { Line::Dashed(0) } else { Line::Solid },
        mark: if of_device { Mark::Hollow } else { Mark::Full },
        points: s.points.iter().copied().filter(|r| drawable(r)).map(point).collect(),
    }
}

/// The indices of a result: its run, and its position in the run.
pub(super) fn index_of(runs: &[Run], run: usize, r: &Measurement) -> Option<(usize, usize)> {
    let at = runs.get(run)?.results.iter().position(|other| std::ptr::eq(other, r))?;
    Some((run, at))
}

fn hover(s: &Series<'_>, r: &Measurement) -> String {
    let time = if s.is_virtual() { " (virtual)" } else { "" };
    let mut lines =
        vec![s.name(), format!("{}{time}, {}, {}", s.device, s.of_run(), number::size(r.size_bytes))];
    lines.push(format!("median {}", number::value(r.median, &r.unit)));
    if s.is_virtual() {
        lines.push("exact: virtual time".to_owned());
    } else if let Some(ends) = interval(r) {
        let (_, scale) = number::display_unit(&r.unit, r.median);
        lines.push(format!("95 % interval {}", low_high(ends.map(|end| end * scale))));
    } else {
        lines.push("no interval".to_owned());
    }
    let launches = match r.launches.len() {
        0 => String::new(),
        1 => " in 1 launch".to_owned(),
        n => format!(" in {n} launches"),
    };
    lines.push(format!("n {}{launches}", count(r.n)));
    if let Some(f) = &r.floor {
        lines.push(format!(
            "{} the {}: {} {}",
            times(f.ratio),
            bound(r),
            f.what,
            number::value(f.value, &f.unit)
        ));
    }
    if is_wide(r) {
        lines.push("a wide interval".to_owned());
    }
    lines.join("\n")
}

/// One curve for each kind of floor; most curves of a panel share it.
fn floors(panel: &Panel<'_>, scale: f64) -> Vec<Trace> {
    let several = panel.curves.windows(2).any(|pair| pair[0].1.run != pair[1].1.run);
    let mut map: BTreeMap<(usize, &str), BTreeMap<u64, Vec<f64>>> = BTreeMap::new();
    for (_, s) in &panel.curves {
        for r in s.points.iter().filter(|r| drawable(r)) {
            if let Some(f) = r.floor.as_ref().filter(|f| f.value > 0.0 && f.unit == r.unit) {
                let at = map.entry((s.run, f.what.as_str())).or_default();
                at.entry(r.size_bytes).or_default().push(f.value);
            }
        }
    }
    let unit = panel.curves.first().map_or("", |(_, s)| s.unit);
    // If each variant has its own measurement of a floor, the middle one is drawn.
    let middle = |(x, mut values): (u64, Vec<f64>)| {
        values.sort_by(f64::total_cmp);
        (x, values[values.len() / 2])
    };
    let mut all = Vec::new();
    for (kind, ((run, what), at)) in map.into_iter().enumerate() {
        let run = if several { format!(", {}", run_of(panel, run)) } else { String::new() };
        let points: Vec<(u64, f64)> = at.into_iter().map(middle).collect();
        let name = format!("{}: {what}{run}", bound_of(panel));
        all.push(floor_trace(&name, None, Line::Dashed(kind), &points, (unit, scale)));
    }
    all
}

fn run_of(panel: &Panel<'_>, run: usize) -> String {
    panel.curves.iter().find(|(_, s)| s.run == run).map_or_else(String::new, |(_, s)| s.of_run())
}

/// The floor of each curve, as a separate curve.
fn side_floors(figure: &Figure<'_>, panel: &Panel<'_>) -> Vec<Trace> {
    let one = |(label, s): &(usize, Series<'_>)| {
        let with_floor = s.points.iter().filter(|r| drawable(r));
        let value =
            |r: &&Measurement| Some((r.size_bytes, r.floor.as_ref().map(|f| f.value).filter(|v| *v > 0.0)?));
        let points: Vec<(u64, f64)> = with_floor.filter_map(value).collect();
        let name = format!("{} of {}", bound_of(panel), figure.labels[*label]);
        floor_trace(&name, Some(*label), Line::Dashed(1), &points, (s.unit, figure.scale))
    };
    panel.curves.iter().map(one).collect()
}

fn floor_trace(
    name: &str,
    curve: Option<usize>,
    line: Line,
    points: &[(u64, f64)],
    (unit, scale): (&str, f64),
) -> Trace {
    let point = |(x, y): &(u64, f64)| Point {
        at: [*x as f64, y * scale],
        interval: None,
        text: format!("{name}\n{}\n{}", number::size(*x), number::value(*y, unit)),
        cell: None,
    };
    let mark = if points.len() > 1 { Mark::No } else { Mark::Level };
    Trace { name: name.to_owned(), curve, line, mark, points: points.iter().map(point).collect() }
}

/// Single values as rows, each with its number: bars from nothing, or marks on a logarithmic scale if they differ much.
pub(super) fn rows(figure: &Figure<'_>, panel: &Panel<'_>, runs: &[Run]) -> Markup {
    let values: Vec<(&(usize, Series<'_>), &Measurement)> =
        panel.curves.iter().filter_map(|c| Some((c, *c.1.points.first()?))).collect();
    let shown = |(_, r): &&(&(usize, Series<'_>), &Measurement)| r.median > 0.0;
    let medians = values.iter().filter(shown).flat_map(|(_, r)| {
        let floor = r.floor.as_ref().map(|f| f.value).filter(|v| *v > 0.0);
        [r.median].into_iter().chain(floor)
    });
    let Some([low, high]) = range(medians) else { return html! { p.hint { "Nothing above zero to draw." } } };
    let ends = values.iter().filter(shown).filter_map(|(_, r)| interval(r));
    let high = ends.map(|ends| ends[1].min(high * STRETCH)).fold(high, f64::max);
    let log = high / low > LINEAR;
    let place = move |v: f64| match log {
        true => ((v / (low / 2.0)).ln() / (high / (low / 2.0)).ln() * 100.0).clamp(0.0, 100.0),
        false => (v / high * 100.0).clamp(0.0, 100.0),
    };
    html! {
        @if log { p.constant { "Marks on a logarithmic scale." } }
        div.rows {
            @for ((label, s), r) in &values {
                div.row.(format!("k{}", if figure.sides { label % COLOURS } else { 0 })) title=(hover(s, r)) {
                    span.what {
                        (s.name())
                        @if figure.sides { " · " (figure.labels[*label]) }
                        @if r.size_bytes > 0 && panel.title.is_empty() { ", " (number::size(r.size_bytes)) }
                    }
                    span.track aria-hidden="true" {
                        @if log { i.dot style={ "left:" (share(place(r.median))) } {} } @else { i.bar style={ "width:" (share(place(r.median))) } {} }
                        @if let Some([from, to]) = interval(r) {
                            i.ends style={ "left:" (share(place(from.max(0.0)))) ";width:" (share(place(to) - place(from.max(0.0)))) } {}
                        }
                        @if let Some(floor) = r.floor.as_ref().filter(|f| f.value > 0.0) { i.floor style={ "left:" (share(place(floor.value))) } {} }
                    }
                    @let cell = index_of(runs, s.run, r).map(|(run, result)| format!("{run},{result}"));
                    span.value data-cell=[cell] { (number::value(r.median, &r.unit)) }
                }
            }
        }
    }
}

fn share(percent: f64) -> String {
    format!("{percent:.1}%")
}

#[cfg(test)]
mod tests {
    use super::super::figures::figures_of;
    use super::super::findings::made_up::{curve, floored, point, run};
    use super::super::series::series;
    use super::*;

    fn of(results: Vec<Measurement>) -> Chart {
        let runs = [run(results)];
        charts(&figures_of(&series(&runs), &[])[0], &runs).remove(0).expect("a chart")
    }

    #[test]
    fn curves_share_one_floor_and_hover_tells_everything() {
        let mut all = curve("latency", "op=write", 0..4, |x| x);
        all.extend(curve("latency", "op=send", 0..4, |x| 2.0 * x));
        let chart = of(all.into_iter().map(|m| floored(m, 0.5, "cache line")).collect());
        let floors: Vec<&Trace> = chart.traces.iter().filter(|t| is_floor(t)).collect();
        assert!(floors.len() == 1 && floors[0].points.iter().all(|p| p.at[1] == 0.5));
        assert_eq!(chart.y.range, [0.5, 16.16]);
        let send = &chart.traces[1].points[3];
        for part in
            ["send", "8 B", "16.0 µs", "95 % interval 15.8..16.2", "n 6,000 in 6 launches", "32.0× the floor"]
        {
            assert!(send.text.contains(part), "{} lacks {part}", send.text);
        }
        assert_eq!(send.cell, Some((0, 7)), "the result that it is");
    }

    #[test]
    fn bound_of_rates_is_a_ceiling() {
        let names = |experiment| {
            let all = curve(experiment, "op=write", 0..4, |x| x);
            let drawn = of(all.into_iter().map(|m| floored(m, 0.5, "memcpy")).collect());
            drawn.traces.iter().filter(|t| is_floor(t)).map(|t| t.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names("latency"), ["floor: memcpy"]);
        assert_eq!(names("bandwidth"), ["ceiling: memcpy"]);
    }

    /// Goal: one bad value does not flatten all curves. Method: a spike of a thousand times the value, and an interval up to 100,000;
    /// a curve that really rises that much keeps its axis.
    #[test]
    fn single_far_value_does_not_stretch_the_axis() {
        let mut all = curve("latency", "op=write", 0..6, |x| 10.0 + x);
        all[2].median = 10_000.0;
        all[2].ci95 = Some([9_000.0, 11_000.0]);
        all[4].ci95 = Some([12.0, 100_000.0]);
        let chart = of(all);
        assert_eq!(chart.y.range, [10.89, 84.0]);
        let beyond = chart.beyond();
        assert_eq!(beyond.iter().map(|(_, point)| point.at[1]).collect::<Vec<_>>(), [10_000.0]);
        let steep = of(curve("latency", "op=write", 0..18, |x| 0.1 * x));
        assert!(steep.beyond().is_empty() && steep.y.range[1] > 13_000.0, "{:?}", steep.y.range);
        let falling = of(curve("rate", "op=write", 0..18, |x| 1e6 / x));
        assert!(falling.beyond().is_empty());
    }

    #[test]
    fn side_by_side_each_device_has_its_floor_and_virtual_time_is_dashed() {
        let mut runs = [super::super::sides::tests::three()];
        for r in runs[0].results.iter_mut().filter(|r| r.device != "model:card") {
            *r = floored(r.clone(), r.median / 2.0, &format!("what {} cannot beat", r.device));
        }
        let columns = super::super::columns::columns(&runs);
        let all = series(&runs);
        let figures = figures_of(&all, &columns);
        let drawn = charts(&figures[0], &runs).remove(0).expect("a chart");
        let (floors, curves): (Vec<&Trace>, Vec<&Trace>) = drawn.traces.iter().partition(|t| is_floor(t));
        assert_eq!(
            curves.iter().map(|t| t.line).collect::<Vec<_>>(),
            [Line::Solid, Line::Solid, Line::Dashed(0)]
        );
        let named: Vec<_> = floors.iter().map(|f| (f.curve, f.name.as_str())).collect();
        assert_eq!(named, [(Some(0), "floor of shm"), (Some(1), "floor of iwarp")]);
        assert!(curves[2].points[0].text.contains("model:card (virtual)"));
        let text = rows(&figures[1], &figures[1].panels[0], &runs).into_string();
        assert_eq!(text.matches("class=\"row ").count(), 6, "{text}");
        assert!(text.contains("· iwarp") && text.contains("k2"), "{text}");
    }

    #[test]
    fn what_a_logarithmic_axis_cannot_show_is_left_out() {
        let mut all = curve("latency", "op=write", 0..4, |x| x);
        all.push(point("latency", "op=write", 0, 1.0));
        all[1].median = 0.0;
        all[2].ci95 = Some([0.0, 5.0]);
        let points = &of(all).traces[0].points;
        assert_eq!(points.iter().map(|p| p.at[0]).collect::<Vec<_>>(), [1.0, 4.0, 8.0]);
        assert!(points.iter().all(|p| p.interval.is_some_and(|[low, _]| low > 0.0)));
    }

    /// Goal: a single value is a bar with its number; a wide range of values gets a suitable scale.
    #[test]
    fn single_values_are_rows_with_their_numbers() {
        let memory = |op: &str, bytes: f64| {
            let mut r = point("memory", &format!("queues={op}"), 0, bytes);
            (r.metric, r.unit) = ("memory_per_queue_pair".to_owned(), "B".to_owned());
            r
        };
        let text = |results: Vec<Measurement>| {
            let runs = [run(results)];
            let all = series(&runs);
            let figures = figures_of(&all, &[]);
            rows(&figures[0], &figures[0].panels[0], &runs).into_string()
        };
        let one = text(vec![memory("default", 12_300.0)]);
        assert!(one.contains("12.0 KiB") && one.contains("class=\"bar\" style=\"width:99.0%\""), "{one}");
        let far = text(vec![memory("few", 100.0), memory("many", 100_000.0)]);
        assert!(
            far.contains("logarithmic") && far.contains("class=\"dot\"") && !far.contains("\"bar\""),
            "{far}"
        );
        assert!(text(vec![memory("none", 0.0)]).contains("Nothing above zero"));
    }
}
