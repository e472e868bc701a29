//! The plots of the page: the papers' figures from the model with the published numbers in them, and how far each prediction is
//! off.

use crate::papers::figure::{Axis, Curve, Figure, Mark};
use crate::verdicts::judge::{Class, Row};
use report::number::{group, sig, size};
use report::svg::{self, Chart, Line, Point, Trace};

/// The name of all published numbers in a legend.
const PUBLISHED: &str = "published";

/// The model's curves first, then the published values.
pub(crate) fn entries(chart: &Chart) -> Vec<&Trace> {
    let (published, curves): (Vec<&Trace>, Vec<&Trace>) =
        chart.traces.iter().partition(|t| t.name == PUBLISHED);
    curves.into_iter().chain(published).collect()
}

/// A figure on its paper's axes, if anything of it has a value.
pub(crate) fn chart(figure: &Figure, is_fitted: &dyn Fn(&str) -> bool) -> Option<Chart> {
    let points = || figure.curves.iter().flat_map(|curve| &curve.points);
    let x = range(points().map(|p| p[0]), figure.x.log)?;
    let x = if figure.bars { [x[0] - 0.5, x[1] + 0.5] } else { x };
    let tops = figure.curves.iter().enumerate();
    let tops = tops.flat_map(|(i, curve)| curve.points.iter().map(move |p| bar_base(figure, i, p[0]) + p[1]));
    let y = range(tops.chain(figure.marks.iter().map(|mark| mark.y)), figure.y.log)?;
    // A linear axis begins at nothing, unless there is something below.
    let y = if figure.y.log { y } else { [y[0].min(0.0), y[1]] };
    let svg_axis = |axis: Axis, range: [f64; 2], names| svg::Axis {
        title: axis.title.to_owned(),
        log: axis.log,
        bytes: axis.bytes,
        range,
        names,
    };
    let mut traces: Vec<Trace> =
        figure.marks.iter().map(|mark| reference(figure, mark, (x, is_fitted(mark.id)))).collect();
    traces.extend(figure.curves.iter().enumerate().map(|(i, curve)| model_trace(figure, i, curve)));
    let label =
        format!("Plot of {}, {} curves; the rows are in the table", figure.title, figure.curves.len());
    let (x, y) = (svg_axis(figure.x, x, tick_labels(figure)), svg_axis(figure.y, y, Vec::new()));
    Some(Chart { label, x, y, traces })
}

/// Labels below a figure that has bars, or that counts by steps of a factor: names, and the counted values.
fn tick_labels(figure: &Figure) -> Vec<(f64, String)> {
    let Axis { log, bytes, names, .. } = figure.x;
    if !log || bytes {
        return (1u32..).map(f64::from).zip(names.iter().map(|name| (*name).to_owned())).collect();
    }
    let mut counted: Vec<f64> =
        figure.curves.iter().flat_map(|curve| &curve.points).map(|point| point[0]).collect();
    counted.sort_by(f64::total_cmp);
    counted.dedup();
    counted.into_iter().map(|x| (x, group(&x.to_string()))).collect()
}

fn model_trace(figure: &Figure, i: usize, curve: &Curve) -> Trace {
    let at = |x: f64| match figure.x {
        Axis { bytes: true, .. } => size(x as u64),
        Axis { names: [_, ..], .. } => figure
            .x
            .names
            .get((x as usize).wrapping_sub(1))
            .map_or_else(String::new, |name| (*name).to_owned()),
        // Numbers of things are whole.
        _ if x.fract() == 0.0 => format!("{x:.0} {}", figure.x.title),
        _ => format!("{} {}", sig(x, 2), figure.x.title),
    };
    let point = |[x, y]: &[f64; 2]| {
        let low = bar_base(figure, i, *x);
        Point {
            at: [x + bar_offset(figure, i), low + *y],
            interval: figure.stacked.then_some([low, low + *y]),
            text: format!("{}\n{}\nmodel {}", curve.label, at(*x), sig(*y, 4)),
            cell: None,
        }
    };
    Trace {
        name: curve.label.clone(),
        curve: Some(i),
        line: if figure.bars { Line::Bars } else { Line::Solid },
        mark: if figure.bars { svg::Mark::No } else { svg::Mark::Full },
        points: curve.points.iter().map(point).collect(),
    }
}

/// The base of a curve's bar: the sum of all bars below it.
fn bar_base(figure: &Figure, curve: usize, x: f64) -> f64 {
    let below = figure.curves.iter().take(if figure.stacked { curve } else { 0 });
    below.flat_map(|curve| &curve.points).filter(|point| point[0] == x).map(|point| point[1]).sum()
}

/// The offset of a curve's bar from the centre of its group.
fn bar_offset(figure: &Figure, curve: usize) -> f64 {
    const APART: f64 = 0.2;
    if figure.bars && !figure.stacked {
        (curve as f64 - (figure.curves.len() - 1) as f64 / 2.0) * APART
    } else {
        0.0
    }
}

/// A published number in the colour of its curve: a point, or a level over the whole axis; other signs if a value was fitted
/// to it.
fn reference(figure: &Figure, mark: &Mark, ([low, high], is_fitted): ([f64; 2], bool)) -> Trace {
    let label = figure.curves.get(mark.curve).map_or("", |curve| curve.label.as_str());
    let fitted = if is_fitted { ", fitted to" } else { "" };
    let text = format!("published: {label}\n{} ({}{fitted})", sig(mark.y, 4), mark.id);
    let point = |x: f64| Point { at: [x, mark.y], interval: None, text: text.clone(), cell: None };
    Trace {
        name: PUBLISHED.to_owned(),
        curve: Some(mark.curve),
        line: Line::Dashed(if is_fitted { 3 } else { 1 }),
        mark: match (mark.x, is_fitted) {
            (None, _) => svg::Mark::No,
            (Some(_), true) => svg::Mark::Hollow,
            (Some(_), false) => svg::Mark::Level,
        },
        points: mark.x.map_or_else(
            || vec![point(low), point(high)],
            |x| vec![point(x + bar_offset(figure, mark.curve))],
        ),
    }
}

/// The least and the greatest value; only positive values on a logarithmic axis.
fn range(values: impl Iterator<Item = f64>, log: bool) -> Option<[f64; 2]> {
    values.filter(|v| !log || *v > 0.0).fold(None, |range: Option<[f64; 2]>, v| {
        Some(range.map_or([v, v], |[low, high]| [low.min(v), high.max(v)]))
    })
}

/// Model divided by paper for every predicted and fitted number, in charts of a few rows each, named below.
pub(crate) fn residuals(rows: &[&Row]) -> Vec<Chart> {
    let is_drawn = |row: &&&Row| {
        let is_used = row.is_scored() || row.class == Class::Fitted && !row.apart;
        is_used && !row.qualitative && row.ratio.is_some()
    };
    let mut drawn: Vec<&Row> = rows.iter().filter(is_drawn).copied().collect();
    drawn.sort_by_key(|row| row.class);
    drawn.chunks(ROWS_EACH).filter_map(residuals_of).collect()
}

/// Rows of a chart: as many as their numbers fit below it.
const ROWS_EACH: usize = 14;

/// The middle of a printed range of which both ends are compared.
fn middle(row: &Row) -> Option<f64> {
    let is_range = row.published.is_none() && row.steps.is_none() && row.modelled_low.is_some();
    if is_range { Some(f64::midpoint(row.low?, row.high?)) } else { None }
}

/// Both ends of a range over a number; `None` if they are one.
fn over(base: f64, low: Option<f64>, high: Option<f64>) -> Option<[f64; 2]> {
    let ends = [(low? / base).clamp(FAR[0], FAR[1]), (high? / base).clamp(FAR[0], FAR[1])];
    (ends[0] < ends[1]).then_some(ends)
}

/// Model divided by paper for some rows, with what the print allows. Both are intervals over the middle of the printed one if
/// the paper prints a range.
fn residuals_of(rows: &[&Row]) -> Option<Chart> {
    // Zero or infinite ratios are drawn at the limit of the axis.
    let ratio = |row: &Row| row.ratio.unwrap_or(1.0).clamp(FAR[0], FAR[1]);
    let place = |i: usize| (i + 1) as f64;
    let point = |(i, row): (usize, &&Row)| {
        let modelled = middle(row).and_then(|middle| over(middle, row.modelled_low, row.modelled_high));
        let of_paper = sig(row.ratio.unwrap_or(1.0), 3);
        Point {
            at: [place(i), modelled.map_or_else(|| ratio(row), |[low, high]| f64::midpoint(low, high))],
            interval: modelled,
            text: format!("{}: {}\nmodel over paper {of_paper}", row.id, row.variant),
            cell: None,
        }
    };
    let of = |name: &str, curve, mark, class: Class| Trace {
        name: name.to_owned(),
        curve: Some(curve),
        line: Line::No,
        mark,
        points: rows.iter().enumerate().filter(|(_, row)| row.class == class).map(point).collect(),
    };
    let printed = |(i, row): (usize, &&Row)| {
        let base =
            row.published.filter(|value| *value != 0.0 && row.steps.is_none()).or_else(|| middle(row))?;
        let interval = over(base, row.low, row.high)?;
        let text = format!("{}: printed {} to {}", row.id, sig(row.low?, 4), sig(row.high?, 4));
        Some(Point { at: [place(i), 1.0], interval: Some(interval), text, cell: None })
    };
    let printed = Trace {
        name: "printed interval".to_owned(),
        curve: Some(2),
        line: Line::No,
        mark: svg::Mark::Level,
        points: rows.iter().enumerate().filter_map(printed).collect(),
    };
    let ends = [0.5, rows.len() as f64 + 0.5];
    let bound = |at: f64| Trace {
        name: "10 %".to_owned(),
        curve: None,
        line: Line::Dashed(0),
        mark: svg::Mark::No,
        points: ends.map(|x| Point { at: [x, at], interval: None, text: String::new(), cell: None }).into(),
    };
    let number = |id: &str| id.rsplit('-').next().unwrap_or(id).to_owned();
    let names = rows.iter().enumerate().map(|(i, row)| (place(i), number(&row.id))).collect();
    let axis = |title: &str, log, range, names| svg::Axis {
        title: title.to_owned(),
        log,
        bytes: false,
        range,
        names,
    };
    let traces = [
        of("predicted", 0, svg::Mark::Full, Class::Predicted),
        of("fitted", 1, svg::Mark::Hollow, Class::Fitted),
        printed,
    ];
    let drawn = |point: &Point| point.interval.unwrap_or([point.at[1]; 2]);
    let values = traces.iter().flat_map(|trace| &trace.points).flat_map(drawn);
    let y = range(values.chain([0.5, 2.0]), true)?;
    let traces = traces.into_iter().filter(|trace| !trace.points.is_empty());
    let prefix = rows.first().map_or("", |row| row.id.split('-').next().unwrap_or(""));
    Some(Chart {
        label: format!("Plot of {} numbers, the model over the paper; the rows are in the table", rows.len()),
        x: axis(&format!("row ({prefix}-)"), false, ends, names),
        y: axis("model over paper", true, y, Vec::new()),
        traces: traces.chain([0.9, 1.1].map(bound)).collect(),
    })
}

/// Ratios beyond these are drawn there.
pub(crate) const FAR: [f64; 2] = [0.2, 5.0];
